//! A link between two hosts, one function for each part of what is shown.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::sys;

use crate::pcap::{self, Count};
use crate::report;
use crate::screen::time_text;
use crate::stage::Stage;

/// Bob, as the router and everybody on the way knows him, and where his side of the link listens.
const BOB_OUTSIDE: &str = "192.168.2.2";
const LINK_PORT: u16 = 51820;
/// Bob within the link.
const BOB: &str = "10.70.0.2";
const BOB_V6: &str = "fd70::2";
const HTTP_PORT: u16 = 8080;
/// The file's length, in bytes.
const FILE_BYTES: u64 = 200_000_000;
const FILE_BYTES_QUICK: u64 = 20_000_000;
/// Length of the text of which every line is the marker.
const MARKER_FILE_BYTES: usize = 1 << 20;

/// For how long nothing may come before a capture is complete.
const BLOCK_MAX: Duration = Duration::from_millis(1200);

/// Lines of the summary: what, and how much.
type Summary = Vec<(String, String)>;

/// All of it.
pub(crate) fn all(stage: &mut Stage<'_>, quick: bool) -> Result<Summary> {
    let mut summary = Summary::new();
    keys(stage)?;
    link_up(stage, &mut summary)?;
    file(stage, if quick { FILE_BYTES_QUICK } else { FILE_BYTES }, &mut summary)?;
    rates(stage, if quick { 1 } else { 3 }, &mut summary)?;
    marker(stage, &mut summary)?;
    Ok(summary)
}

/// Keys, and a wg-quick file for each host.
fn keys(stage: &mut Stage<'_>) -> Result<()> {
    stage.screen.heading("Keys, and a wg-quick file for each host")?;
    let begin = Instant::now();
    for host in ["alice", "bob"] {
        stage
            .run(host, "umask 077; warren genkey | tee private.key | warren pubkey > public.key")?;
    }
    stage.run("alice", "umask 077; warren genpsk > preshared.key")?;
    let key = |host: &str, name: &str| -> Result<String> {
        let path = stage.file(host, name);
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        Ok(text.trim().to_owned())
    };
    let shared = key("alice", "preshared.key")?;
    let alice = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.70.0.1/24, fd70::1/64\n\n\
         [Peer]\nPublicKey = {}\nPresharedKey = {shared}\n\
         Endpoint = {BOB_OUTSIDE}:{LINK_PORT}\nAllowedIPs = {BOB}/32, {BOB_V6}/128\n",
        key("alice", "private.key")?,
        key("bob", "public.key")?,
    );
    let bob = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {BOB}/24, {BOB_V6}/64\n\
         ListenPort = {LINK_PORT}\n\n\
         [Peer]\nPublicKey = {}\nPresharedKey = {shared}\n\
         AllowedIPs = 10.70.0.1/32, fd70::1/128\n",
        key("bob", "private.key")?,
        key("alice", "public.key")?,
    );
    for (host, text) in [("alice", alice), ("bob", bob)] {
        let folder = stage.host(host)?.etc().join("wireguard");
        fs::create_dir_all(&folder)?;
        write_secret(&folder.join("wg0.conf"), &text)?;
        let said = stage.run(host, "grep -vE 'PrivateKey|PresharedKey' /etc/wireguard/wg0.conf")?;
        stage.screen.said(&said)?;
    }
    Ok(stage.screen.done("written, for root alone", Some(begin.elapsed()))?)
}

/// The link on both sides, its handshake and its round trips.
fn link_up(stage: &mut Stage<'_>, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("The link")?;
    let begin = Instant::now();
    for host in ["bob", "alice"] {
        stage.stay(host, "warren link up wg0", "is up")?;
    }
    stage.screen.done("up on both sides", Some(begin.elapsed()))?;
    let first = stage.run("alice", &format!("ping -n -c 1 -W 5 {BOB}"))?;
    let first = report::first_answer(&first)?;
    let what = "handshake: the first ping waited for it, and was answered after";
    stage.screen.done(what, Some(first))?;
    summary.push(("handshake, to the first answer".into(), time_text(first)));
    let said = stage.run("alice", "wg show wg0")?;
    ensure!(said.contains("latest handshake"), "`wg show wg0` tells of no handshake:\n{said}");
    stage.screen.said(&said)?;
    let pings = stage.run("alice", &format!("ping -n -c 10 -i 0.1 {BOB}"))?;
    let average = report::average(&pings)?;
    stage.screen.done("ten pings over IPv4, on average", Some(average))?;
    summary.push(("ping".into(), time_text(average)));
    let pings = stage.run("alice", &format!("ping -n -c 10 -i 0.1 {BOB_V6}"))?;
    Ok(stage.screen.done("ten pings over IPv6, on average", Some(report::average(&pings)?))?)
}

/// A file of random data over HTTP, with its sums.
fn file(stage: &mut Stage<'_>, bytes: u64, summary: &mut Summary) -> Result<()> {
    let megabytes = bytes / 1_000_000;
    stage.screen.heading(&format!("A file of {megabytes} MB through the link"))?;
    stage.run("bob", &format!("head -c {bytes} /dev/urandom > random.bin"))?;
    serve(stage)?;
    let path = stage.file("alice", "random.bin");
    let begin = Instant::now();
    let line = format!("curl -sS -o random.bin http://{BOB}:{HTTP_PORT}/random.bin");
    stage.run_watched("alice", &line, |screen| {
        let done = fs::metadata(&path).map_or(0, |found| found.len());
        Ok(screen.progress("random.bin", done, bytes)?)
    })?;
    let time = begin.elapsed();
    stage.screen.clear_progress()?;
    let rate = report::rate_text(bytes as f64 * 8.0 / time.as_secs_f64());
    stage.screen.done(&format!("{megabytes} MB at {rate}"), Some(time))?;
    let mut sums = Vec::new();
    for host in ["bob", "alice"] {
        let said = stage.run(host, "sha256sum random.bin")?;
        stage.screen.said(&said)?;
        sums.push(report::sum(&said)?.to_owned());
    }
    let length = fs::metadata(stage.file("alice", "random.bin"))?.len();
    ensure!(length == bytes, "of {bytes} bytes {length} arrived");
    ensure!(sums[0] == sums[1], "the SHA-256 sums differ: what arrived is not what was sent");
    stage.screen.done("equal SHA-256 sums", None)?;
    let value = format!("{} at {rate}, equal SHA-256 sums", time_text(time));
    summary.push((format!("{megabytes} MB by curl"), value));
    for host in ["alice", "bob"] {
        fs::remove_file(stage.file(host, "random.bin"))?;
    }
    Ok(())
}

/// Starts bob's HTTP server, which prints nothing by which its readiness could be seen.
fn serve(stage: &mut Stage<'_>) -> Result<()> {
    stage.stay("bob", &format!("busybox httpd -f -p {HTTP_PORT} -h ."), "")?;
    let bob = stage.host("bob")?.path();
    stage.wait_until("bob's HTTP server", |_| {
        let connect = || TcpStream::connect(("127.0.0.1", HTTP_PORT));
        Ok(sys::in_netns(&bob, connect)?.is_ok())
    })
}

/// One TCP stream, both ways.
fn rates(stage: &mut Stage<'_>, seconds: u32, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("One TCP stream, each way")?;
    stage.stay("bob", "iperf3 -s --forceflush", "listening")?;
    let ways = [("", "alice to bob"), (" -R", "bob to alice")];
    for (option, way) in ways {
        let line = format!("iperf3 -c {BOB} -t {seconds} -f m{option}");
        let said = stage.run("alice", &line)?;
        let rate = report::rate_text(report::received_bits_s(&said)?);
        stage.screen.done(&format!("{way}: {rate}"), Some(Duration::from_secs(seconds.into())))?;
        summary.push((format!("iperf3, {way}"), rate));
    }
    Ok(())
}

/// A marker through the link and, as the control, beside it; what the router sees of either.
fn marker(stage: &mut Stage<'_>, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("What the router sees")?;
    let marker = format!("WARREN-DEMO-MARKER-{}", random_text()?);
    let text = format!("{marker}\n").repeat(MARKER_FILE_BYTES / (marker.len() + 1));
    fs::write(stage.file("bob", "marker.txt"), &text)?;
    let lines = report::count_text(text.lines().count() as u64);
    let line = "tail -n 1 marker.txt";
    let said = stage.run("bob", line)?;
    stage.screen.said(&said)?;
    stage.screen.done(&format!("marker.txt has this line {lines} times"), None)?;

    let through = capture(stage, "through.pcap", BOB, &marker, &text)?;
    let datagrams = report::count_text(through.datagrams);
    ensure!(
        through.datagram_bytes >= text.len() as u64,
        "the text of {} bytes did not pass port {LINK_PORT}: {through:?}",
        text.len()
    );
    ensure!(through.text == 0, "the marker was seen on the way: {through:?}");
    let kilobytes = report::count_text(through.datagram_bytes / 1000);
    let what = format!("through the link: {datagrams} datagrams of UDP port {LINK_PORT}, ");
    let what = what + &format!("{kilobytes} kB, and the marker 0 times");
    stage.screen.done(&what, None)?;

    let beside = capture(stage, "beside.pcap", BOB_OUTSIDE, &marker, &text)?;
    ensure!(
        beside.text > 0 && beside.datagrams == 0,
        "the control failed, the marker should be seen outside of the link: {beside:?}"
    );
    let seen = report::count_text(beside.text);
    let what = format!("the control, beside the link: the marker {seen} times");
    stage.screen.done(&what, None)?;
    let value =
        format!("0 times in {datagrams} datagrams through the link, {seen} times beside it");
    summary.push(("marker, seen by the router".into(), value));
    Ok(())
}

/// Has alice fetch the text from `address`, and counts in what passes the router meanwhile.
fn capture(
    stage: &mut Stage<'_>,
    name: &str,
    address: &str,
    marker: &str,
    text: &str,
) -> Result<Count> {
    let line = format!("tcpdump -n -i eth0 -U -B 8192 -Z root -w {name}");
    stage.stay("router", &line, "listening on eth0")?;
    stage.run("alice", &format!("curl -sS -o got.txt http://{address}:{HTTP_PORT}/marker.txt"))?;
    let got = fs::read(stage.file("alice", "got.txt"))?;
    ensure!(got == text.as_bytes(), "what alice got is not what bob has");
    // The kernel hands frames over by the block, and a block that is not full after a second.
    let path = stage.file("router", name);
    let mut last = 0;
    let mut since = Instant::now();
    stage.wait_until("the capture to be written", |_| {
        let length = fs::metadata(&path)?.len();
        if length != std::mem::replace(&mut last, length) {
            since = Instant::now();
        }
        Ok(length > got.len() as u64 && since.elapsed() > BLOCK_MAX)
    })?;
    let said = stage.end_last()?;
    let losses = said.lines().find(|line| line.contains("dropped by kernel"));
    ensure!(
        losses.is_some_and(|line| line.starts_with("0 ")),
        "tcpdump did not see everything:\n{said}"
    );
    pcap::count(&fs::read(&path)?, LINK_PORT, marker.as_bytes())
}

/// Sixteen digits that occur nowhere else.
fn random_text() -> Result<String> {
    let mut bytes = [0; 8];
    let mut source = fs::File::open("/dev/urandom").context("no random numbers")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> Result<()> {
    // A file of the machine may be seen there, with other permissions.
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let what = || format!("cannot write {}", path.display());
    file.with_context(what)?.write_all(text.as_bytes()).with_context(what)
}
