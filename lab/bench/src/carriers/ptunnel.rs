//! ptunnel-ng, and one connection through it: iperf3 needs two at once, which it does not carry.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::Process;
use lab::netns::Host;

use super::PATIENCE;
use crate::load::finish;

/// Where the server listens, and the client's end of the tunnel.
const PORT: &str = "5201";
const FORWARDED: &str = "5202";
/// Packets under way: with the default of 64 it carries a quarter of that.
const WINDOW: &str = "1024";

/// One end of a connection: it sends, or counts what comes for so many seconds after the first
/// byte. Whoever connects says a byte first, which has the tunnel open the other end.
const END: &str = r#"
import socket, sys, time
role, counts, host, port, seconds = sys.argv[1], sys.argv[2] == "counts", *sys.argv[3:6]
if role == "server":
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, int(port))); s.listen(1); print("listening", flush=True)
    c = s.accept()[0]; c.recv(1)
else:
    c = socket.create_connection((host, int(port)), 10); c.sendall(b"s")
c.settimeout(float(seconds) + 10)
seconds = float(seconds)
if counts:
    got, begin = 0, None
    while begin is None or time.monotonic() - begin < seconds:
        data = c.recv(65536)
        if not data: break
        begin = begin or time.monotonic(); got += len(data)
    print("got", got, time.monotonic() - begin if begin else 0, flush=True)
else:
    end = time.monotonic() + seconds + 8
    try:
        while time.monotonic() < end: c.sendall(bytes(16384))
    except OSError: pass
"#;

/// Both ends of it.
pub(super) fn start(hosts: [&Host; 2], at: [&str; 2]) -> Result<Vec<Process>> {
    let to = [format!("-r{}", at[1]), format!("-R{PORT}")];
    let server = hosts[1].spawn(&["ptunnel-ng", "-w", WINDOW, &to[0], &to[1]])?;
    let proxy = format!("-p{}", at[1]);
    let from = format!("-l{FORWARDED}");
    let client = hosts[0].spawn(&["ptunnel-ng", "-w", WINDOW, &proxy, &from, &to[0], &to[1]])?;
    let begin = Instant::now();
    while !hosts[0].run(&["ss", "-Htln"]).unwrap_or_default().contains(&format!(":{FORWARDED}")) {
        ensure!(begin.elapsed() < PATIENCE, "ptunnel-ng does not listen: {}", client.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(vec![server, client])
}

/// One stream through it: bytes that arrived, and in how many seconds.
pub(super) fn stream(
    hosts: [&Host; 2],
    server_at: &str,
    is_back: bool,
    seconds: u32,
) -> Result<(f64, f64)> {
    let seconds_word = seconds.to_string();
    let manners = if is_back { ["sends", "counts"] } else { ["counts", "sends"] };
    let end = |host: &Host, role: &str, manner: &str, at: [&str; 2]| {
        host.spawn(&["python3", "-c", END, role, manner, at[0], at[1], &seconds_word])
    };
    let server = end(hosts[1], "server", manners[0], [server_at, PORT])?;
    server.wait_for(|log| log.contains("listening"))?;
    let client = end(hosts[0], "client", manners[1], ["127.0.0.1", FORWARDED])?;
    let counting = if is_back { &client } else { &server };
    let said = finish(counting, Duration::from_secs(seconds.into()) + PATIENCE)?;
    let line = said.lines().find_map(|line| line.strip_prefix("got "));
    let mut numbers = line.into_iter().flat_map(|line| line.split(' ')).map(str::parse::<f64>);
    let (Some(Ok(bytes)), Some(Ok(took_s))) = (numbers.next(), numbers.next()) else {
        return Err(anyhow::anyhow!("nothing was counted: {said}"));
    };
    ensure!(bytes > 0.0 && took_s > 0.0, "nothing arrived");
    Ok((bytes, took_s))
}
