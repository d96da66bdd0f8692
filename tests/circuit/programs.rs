//! Real programs through three hops: each protocol as its own program speaks it. What is not on the
//! machine is left out, and named.

use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{MARKER, WEB, World, has};

/// A page of 40 requests: its text, and 39 objects whose arrival it counts in its title. HTTP/1.1.
const PAGE_SERVER: &str = r#"
import http.server
page = b"""<!doctype html><title>0</title><body><script>
let n = 0;
function one() { n += 1; document.title = "came " + n; }
for (let i = 0; i < 39; i++) {
  let s = document.createElement("img"); s.onload = one; s.src = "/" + i + ".svg";
  document.body.append(s);
}
</script>"""
image = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--'
image += b"x" * 12000 + b"--></svg>"
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        is_page = self.path == "/"
        body = page if is_page else image
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if is_page else "image/svg+xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *a):
        print(self.request_version, self.path, self.client_address[0], flush=True)
http.server.ThreadingHTTPServer(("203.0.113.9", 8080), H).serve_forever()
"#;

/// HTTP/3 by aioquic, which answers every request with the marker.
const H3_SERVER: &str = r#"
import asyncio, sys
from aioquic.asyncio import serve, QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
class P(QuicConnectionProtocol):
    http = None
    def quic_event_received(self, event):
        self.http = self.http or H3Connection(self._quic)
        for came in self.http.handle_event(event):
            if isinstance(came, HeadersReceived):
                self.http.send_headers(came.stream_id, [(b":status", b"200")])
                self.http.send_data(came.stream_id, b"9b1c-marker-of-the-page-77aa " * 7000, True)
                self.transmit()
async def main():
    c = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    c.load_cert_chain(sys.argv[1], sys.argv[2])
    await serve("203.0.113.9", 443, configuration=c, create_protocol=P)
    print("ready", flush=True)
    await asyncio.Future()
asyncio.run(main())
"#;

const H3_CLIENT: &str = r#"
import asyncio, ssl
from aioquic.asyncio import connect, QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived
from aioquic.quic.configuration import QuicConfiguration
class P(QuicConnectionProtocol):
    def ask(self):
        self.http, self.body = H3Connection(self._quic), b""
        self.over = asyncio.get_event_loop().create_future()
        stream = self._quic.get_next_available_stream_id()
        self.http.send_headers(stream, [(b":method", b"GET"), (b":scheme", b"https"),
            (b":authority", b"page.example"), (b":path", b"/")], True)
        self.transmit()
        return self.over
    def quic_event_received(self, event):
        if not hasattr(self, "http"): return
        for came in self.http.handle_event(event):
            if isinstance(came, DataReceived):
                self.body += came.data
                if came.stream_ended and not self.over.done(): self.over.set_result(self.body)
async def main():
    c = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    async with connect("page.example", 443, configuration=c, create_protocol=P) as client:
        body = await asyncio.wait_for(client.ask(), 20)
        print("h3", len(body), body[:28].decode())
asyncio.run(main())
"#;

/// Whether this machine has what a part of the test needs; what is missing is named.
fn has_program(world: &World, what: &str, test: &str) -> bool {
    let is_there = world.hosts[0].sh(test).is_ok();
    if !is_there {
        eprintln!("left out, since it is not on this machine: {what}");
    }
    is_there
}

#[test]
fn programs_of_every_protocol_work_through_three_hops() -> Result<()> {
    scene("circ8", |scene| {
        let mut world = World::new(scene, "8")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        world.node(0, &["circuit", "close", &id])?;
        let page = world.on_web(&["python3", "-c", PAGE_SERVER], "page", "")?;
        let url = format!("http://{WEB}:8080/");
        let listens = || world.run(&["curl", "-sf", "--max-time", "3", &url]).is_ok();
        eventually("the page is served", seconds(30), listens)?;
        let version = ["-o", "/dev/null", "-w", "%{http_version} %{size_download}"];
        let get = ["curl", "-sS", "--http1.1", "--max-time", "20"];
        let one = world.run(&[&get[..], &version[..], &[url.as_str()]].concat())?;
        ensure!(one.starts_with("1.1 "), "HTTP/1.1: {one}");
        let (key, certificate) = (world.path("web.key"), world.path("web.crt"));
        world.hosts[0].sh(&format!(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=page.example \
             -keyout {key} -out {certificate} 2>/dev/null"
        ))?;
        speak_http2(&world, &key, &certificate, &version)?;
        speak_http3(&world, &key, &certificate)?;
        speak_ssh(&world)?;
        browse(&world)?;
        drop(page);
        Ok(())
    })
}

fn speak_http2(world: &World, key: &str, certificate: &str, version: &[&str]) -> Result<()> {
    if !has_program(world, "nghttpd (nghttp2-server): HTTP/2", "command -v nghttpd") {
        return Ok(());
    }
    let root = world.path("h2");
    std::fs::create_dir_all(&root)?;
    std::fs::write(format!("{root}/page"), MARKER.repeat(7000))?;
    let words = ["nghttpd", "-a", WEB, "-d", &root, "443", key, certificate];
    let server = world.on_web(&words, "h2", "")?;
    let get =
        ["curl", "-sSk", "--http2", "--max-time", "20", "--retry", "5", "--retry-connrefused"];
    let url = "https://page.example/page";
    let two = world.run(&[&get[..], version, &[url]].concat())?;
    ensure!(two == format!("2 {}", MARKER.len() * 7000), "HTTP/2: {two}");
    drop(server);
    Ok(())
}

fn speak_http3(world: &World, key: &str, certificate: &str) -> Result<()> {
    if !has_program(world, "aioquic for python3: HTTP/3", "python3 -c 'import aioquic'") {
        return Ok(());
    }
    let server =
        world.on_web(&["python3", "-c", H3_SERVER, certificate, key], "h3-server", "ready")?;
    let three = world.run(&["python3", "-c", H3_CLIENT])?;
    ensure!(three.starts_with("h3 203000 ") && has(three.as_bytes(), MARKER), "HTTP/3: {three}");
    drop(server);
    Ok(())
}

fn speak_ssh(world: &World) -> Result<()> {
    if !has_program(world, "sshd (openssh-server)", "test -x /usr/sbin/sshd && command -v ssh") {
        return Ok(());
    }
    let (host_key, own_key) = (world.path("ssh-host"), world.path("ssh-own"));
    let allowed = world.path("ssh-allowed");
    world.hosts[0].sh(&format!(
        "mkdir -p /run/sshd; chmod 755 /run/sshd
         ssh-keygen -q -t ed25519 -N '' -f {host_key}; ssh-keygen -q -t ed25519 -N '' -f {own_key}
         cat {own_key}.pub > {allowed}; chmod 600 {allowed}"
    ))?;
    let allowed = format!("AuthorizedKeysFile={allowed}");
    let words = [
        "/usr/sbin/sshd",
        "-D",
        "-e",
        "-f",
        "/dev/null",
        "-p",
        "22",
        "-h",
        &host_key,
        "-o",
        &allowed,
        "-o",
        "StrictModes=no",
        "-o",
        "UsePAM=no",
        "-o",
        "PidFile=none",
        "-o",
        "ListenAddress=203.0.113.9",
    ];
    let server = world.on_web(&words, "sshd", "Server listening")?;
    let command = "echo the client is ${SSH_CLIENT%% *}; head -c 300000 /dev/zero | wc -c";
    let said = world.run(&[
        "ssh",
        "-i",
        &own_key,
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "root@203.0.113.9",
        command,
    ])?;
    ensure!(said.contains("the client is 203.0.113.1"), "ssh: {said}");
    ensure!(said.contains("300000"), "ssh: {said}");
    drop(server);
    Ok(())
}

/// A browser's page of 40 objects, every one of which arrives.
fn browse(world: &World) -> Result<()> {
    if !has_program(world, "chromium: a page of 40 objects", "command -v chromium") {
        return Ok(());
    }
    let folder = format!("--user-data-dir={}", world.path("chromium"));
    let dom = world.run(&[
        "timeout",
        "90",
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        &folder,
        "--virtual-time-budget=60000",
        "--dump-dom",
        "http://page.example:8080/",
    ])?;
    ensure!(dom.contains("<title>came 39</title>"), "the browser's page: {dom}");
    let log = world.log("page");
    let of_page = log.lines().filter(|line| line.contains(".svg") && line.ends_with("203.0.113.1"));
    ensure!(of_page.count() >= 39, "{log}");
    Ok(())
}
