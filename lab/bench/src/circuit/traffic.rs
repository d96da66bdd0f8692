//! What goes through a system while it is measured: bulk, an echo over its own connection of TCP,
//! and a page of 40 objects over six connections; and what is read of it.
//!
//! Bulk down is iperf3's. Bulk up is ours, because iperf3 ends its test over a connection of its
//! own: behind Tor's queue that word comes so late that the server has gone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use lab::Process;

use super::chain::{Chain, SERVER, word};
use crate::iperf::Transfer;

const IPERF_PORT: u16 = 5_201;
const SINK_PORT: u16 = 5_202;
const ECHO_PORT: u16 = 5_300;
const PAGE_PORT: u16 = 80;
/// Bytes of an echo, and how often one is sent whatever became of the one before: so that slow
/// answers are not left out.
const ECHO_BYTES: usize = 1_024;
const LOADED_EVERY_S: f64 = 0.05;
const IDLE_EVERY_S: f64 = 0.02;
/// How long an answer is waited for after the last question.
const ECHO_LATE_S: f64 = 8.0;
/// Bytes of a page's text, and of its 39 objects: 0.6 MB together.
const PAGE_BYTES: usize = 60_000;
const OBJECTS: usize = 39;
/// Where the sink writes what came up.
const RECEIVED: &str = "received";

const ECHO_SERVER: &str = r#"
import socketserver
class H(socketserver.BaseRequestHandler):
    def handle(self):
        while True:
            data = self.request.recv(65536)
            if not data: break
            self.request.sendall(data)
class S(socketserver.ThreadingTCPServer): allow_reuse_address = True; daemon_threads = True
S(("203.0.113.9", 5300), H).serve_forever()
"#;

const ECHO_CLIENT: &str = r#"
import socket, struct, sys, threading, time
size, count = int(sys.argv[1]), int(sys.argv[3])
every, late = float(sys.argv[2]), float(sys.argv[4])
s = socket.create_connection(("203.0.113.9", 5300), 20)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
sent, got = [0.0] * count, []
def read():
    data = b""
    while len(got) < count:
        try: more = s.recv(65536)
        except OSError: return
        if not more: return
        data += more
        while len(data) >= size:
            i = struct.unpack("!I", data[:4])[0]
            got.append((time.monotonic() - sent[i]) * 1000); data = data[size:]
reader = threading.Thread(target=read, daemon=True); reader.start()
begin = time.monotonic()
for i in range(count):
    wait = begin + i * every - time.monotonic()
    if wait > 0: time.sleep(wait)
    sent[i] = time.monotonic()
    s.sendall(struct.pack("!I", i) + bytes(size - 4))
reader.join(late)
print("sent", count)
for ms in got: print("ms", round(ms, 3))
"#;

/// Counts what comes after the first second, for as long as the first connection says, and ends all
/// of them then.
const SINK: &str = r#"
import os, socket, sys, threading, time
out = sys.argv[1]
server = socket.create_server(("203.0.113.9", 5202), backlog=64)
def run(first, said):
    seconds, flows = float(said[0]), int(said[1])
    begin, total, counted, conns = time.monotonic(), [0] * flows, [0] * flows, [first]
    def read(i, conn):
        buffer = bytearray(1 << 18)
        while True:
            try: n = conn.recv_into(buffer)
            except OSError: return
            if n == 0: return
            total[i] += n
            if begin + 1 <= time.monotonic() < begin + 1 + seconds: counted[i] += n
    threading.Thread(target=read, args=(0, first), daemon=True).start()
    server.settimeout(10)
    for i in range(1, flows):
        conn = server.accept()[0]; conn.recv(64); conns.append(conn)
        threading.Thread(target=read, args=(i, conn), daemon=True).start()
    server.settimeout(None)
    time.sleep(max(0, begin + 1 + seconds - time.monotonic()))
    with open(out + ".new", "w") as file:
        print("received", sum(counted), seconds, sum(total), file=file)
    os.rename(out + ".new", out)
    for conn in conns: conn.shutdown(socket.SHUT_RDWR); conn.close()
while True:
    conn = server.accept()[0]
    try: run(conn, conn.recv(64).decode().split())
    except (OSError, ValueError, IndexError) as error: print(error, file=sys.stderr)
"#;

/// Sends until it is told to end.
const SOURCE: &str = r#"
import socket, sys, threading, time
seconds, flows = float(sys.argv[1]), int(sys.argv[2])
def send():
    conn = socket.create_connection(("203.0.113.9", 5202), 20)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    conn.settimeout(60)
    data = bytes(1 << 18)
    try:
        conn.sendall(f"{seconds} {flows}".encode().ljust(64))
        while True: conn.sendall(data)
    except OSError: pass
threads = [threading.Thread(target=send, daemon=True) for _ in range(flows)]
for thread in threads: thread.start()
for thread in threads: thread.join(seconds + 30)
"#;

const PAGE_SERVER: &str = r#"
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = bytes(int(self.path.rsplit("/", 1)[-1]))
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
class S(http.server.ThreadingHTTPServer): daemon_threads = True
S(("203.0.113.9", 80), H).serve_forever()
"#;

/// What answers at the server.
#[derive(Debug)]
pub(super) struct Servers(Vec<Process>);

impl Servers {
    pub(super) fn start(chain: &Chain) -> Result<Self> {
        let server = chain.server();
        let port = IPERF_PORT.to_string();
        let mut all = vec![server.spawn(&["iperf3", "-s", "-B", SERVER, "-p", &port])?];
        for script in [ECHO_SERVER, PAGE_SERVER] {
            all.push(server.spawn(&["python3", "-c", script])?);
        }
        let out = word(&chain.file(RECEIVED));
        all.push(server.spawn(&["python3", "-c", SINK, &out])?);
        for port in [IPERF_PORT, SINK_PORT, ECHO_PORT, PAGE_PORT] {
            server.sh(&format!(
                "for i in $(seq 100); do ss -ltnH sport = :{port} | grep -q . && exit 0; \
                 sleep 0.1; done; exit 1"
            ))?;
        }
        Ok(Self(all))
    }

    /// Fails when one of them has ended.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.0.iter().all(Process::is_running), "a server of the traffic ended");
        Ok(())
    }
}

/// A script for the client, in a file that every room sees.
fn script(chain: &Chain, name: &str, text: &str) -> Result<PathBuf> {
    let path = chain.file(name);
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn echo(chain: &Chain, every_s: f64, count: usize) -> Result<String> {
    let client = script(chain, "echo.py", ECHO_CLIENT)?;
    Ok(format!("python3 {} {ECHO_BYTES} {every_s} {count} {ECHO_LATE_S}", word(&client)))
}

/// An echo with nothing beside it.
pub(super) fn idle(chain: &Chain, count: usize) -> Result<PathBuf> {
    script(chain, "idle.sh", &format!("{}\n", echo(chain, IDLE_EVERY_S, count)?))
}

/// So many streams of TCP down, and the echo beside them, opened before.
pub(super) fn down(chain: &Chain, flows: u32, seconds: u32) -> Result<PathBuf> {
    let report = word(&chain.file("iperf.json"));
    let transfer = format!(
        "iperf3 -c {SERVER} -p {IPERF_PORT} -P {flows} -t {seconds} -O 1 -C cubic -R -J > {report}"
    );
    bulk(chain, &transfer, &report, seconds)
}

/// The same up.
pub(super) fn up(chain: &Chain, flows: u32, seconds: u32) -> Result<PathBuf> {
    let source = word(&script(chain, "source.py", SOURCE)?);
    let received = word(&chain.file(RECEIVED));
    let transfer = format!("python3 {source} {seconds} {flows}");
    bulk(chain, &transfer, &received, seconds)
}

fn bulk(chain: &Chain, transfer: &str, report: &str, seconds: u32) -> Result<PathBuf> {
    let every = LOADED_EVERY_S;
    let count = (f64::from(seconds + 1) / every) as usize;
    let text = format!(
        "rm -f {report}
         {} > {report}.echo &
         echo=$!
         sleep 0.3
         {transfer}
         wait $echo; cat {report}.echo; echo ==; cat {report}\n",
        echo(chain, every, count)?
    );
    script(chain, "bulk.sh", &text)
}

/// A page: its text, then its objects over six connections, none of which was open before.
pub(super) fn page(chain: &Chain) -> Result<PathBuf> {
    let objects: Vec<String> = (0..OBJECTS)
        .map(|i| format!("http://{SERVER}/{i}/{}", 3_000 + i * 21_600 / (OBJECTS - 1)))
        .collect();
    let text = format!(
        "begin=$(date +%s%N)
         curl -sSf --max-time 60 -o /dev/null http://{SERVER}/{PAGE_BYTES}
         curl -sSf --max-time 60 -Z --parallel-max 6 --remove-on-error -o /dev/null {} > /dev/null
         end=$(date +%s%N)
         echo page $(((end - begin) / 1000))\n",
        objects.join(" -o /dev/null ")
    );
    script(chain, "page.sh", &text)
}

/// What was read of a step, by name.
pub(super) type Values = BTreeMap<String, f64>;

/// Round trips of an echo, ms: the middle, the 95th of a hundred, and the share that was answered.
pub(super) fn read_echo(said: &str) -> Result<Values> {
    let number = |line: &str, word: &str| line.strip_prefix(word)?.trim().parse::<f64>().ok();
    let sent = said.lines().find_map(|line| number(line, "sent "));
    let sent = sent.with_context(|| format!("the echo said nothing: {}", said.trim()))?;
    let mut ms: Vec<f64> = said.lines().filter_map(|line| number(line, "ms ")).collect();
    let answered = ms.len();
    // What never came is as late as can be told.
    ms.resize((sent as usize).max(answered), f64::from(9_999));
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms[((ms.len() - 1) as f64 * share).round() as usize];
    ensure!(!ms.is_empty(), "no echo was sent");
    Ok([
        ("echo_p50_ms".to_owned(), at(0.5)),
        ("echo_p95_ms".to_owned(), at(0.95)),
        ("echo_answered".to_owned(), answered as f64 / ms.len() as f64),
    ]
    .into())
}

/// What a bulk step printed: its figures, and the bytes that came in all.
pub(super) fn read_bulk(said: &str) -> Result<(Values, u64)> {
    let (echo, report) = said.split_once("\n==\n").context("the bulk step printed no report")?;
    let mut values = read_echo(echo)?;
    let (mbit_s, bytes) = match report.strip_prefix("received ") {
        Some(counted) => read_received(counted)?,
        None => {
            let transfer = Transfer::parse(report)?;
            (transfer.mbit_s(), transfer.received_bytes)
        }
    };
    values.insert("mbit_s".to_owned(), mbit_s);
    Ok((values, bytes))
}

/// The sink's word: bytes that counted, for how many seconds, and bytes in all.
fn read_received(said: &str) -> Result<(f64, u64)> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let [counted, seconds, all] = words[..] else {
        anyhow::bail!("the sink wrote {said:?}");
    };
    let mbit = counted.parse::<f64>()? * 8.0 / 1e6;
    Ok((mbit / seconds.parse::<f64>()?, all.parse()?))
}

/// How long a page took, s.
pub(super) fn read_page(said: &str) -> Result<Values> {
    let us = said.lines().find_map(|line| line.strip_prefix("page ")?.trim().parse::<f64>().ok());
    let us = us.with_context(|| format!("no page: {}", said.trim()))?;
    Ok([("page_s".to_owned(), us / 1e6)].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_answered_counts_as_late() {
        let values = read_echo("sent 4\nms 1.5\nms 2.5\n").expect("an echo");
        assert_eq!(values["echo_answered"], 0.5);
        assert_eq!((values["echo_p50_ms"], values["echo_p95_ms"]), (9_999.0, 9_999.0));
        let values = read_echo("sent 3\nms 3\nms 1\nms 2\n").expect("an echo");
        assert_eq!((values["echo_p50_ms"], values["echo_p95_ms"]), (2.0, 3.0));
        let up = "sent 1\nms 2\n==\nreceived 1000000 8.0 1500000\n";
        let (values, bytes) = read_bulk(up).expect("an upload");
        assert_eq!((values["mbit_s"], bytes), (1.0, 1_500_000));
        assert!(read_echo("Traceback").is_err() && read_bulk("sent 1\n").is_err());
        assert_eq!(read_page("page 520000\n").expect("a page")["page_s"], 0.52);
    }
}
