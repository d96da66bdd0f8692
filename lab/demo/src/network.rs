//! A network, one function for each part of what is shown: a server, six nodes in places of
//! their own, who reaches whom and how, a file over the worst pair, and UDP that stops in the
//! middle of another.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::report;
use crate::screen::time_text;
use crate::stage::Stage;

/// The nodes, and where they are.
const NODES: [(&str, &str); 6] = [
    ("lab", "on the Internet itself"),
    ("home", "behind a NAT, as homes are"),
    ("phone", "behind a NAT that maps each destination to another port"),
    ("robot", "on a campus that lets out nothing but HTTPS"),
    ("office", "behind a proxy that opens TLS and reads it"),
    ("train", "in a Wi-Fi that lets out pings and nothing else"),
];
/// Pairs that theory lets reach each other without a relay.
const DIRECT: [(&str, &str); 2] = [("lab", "home"), ("lab", "phone")];
const PROXY: &str = "10.9.5.1:3128";
const HTTP_PORT: u16 = 8080;
/// How long paths may take to become direct.
const DIRECT_WITHIN: Duration = Duration::from_secs(8);
/// Bytes over the worst pair, and of the transfer whose UDP is blocked; and that one's rate.
const FILE_BYTES: u64 = 50_000_000;
const STORM_BYTES: u64 = 40_000_000;
const STORM_RATE: u64 = 8_000_000;
/// Much more than kernels hold, so that what is left has to go by the relay.
const STORM_BYTES_QUICK: u64 = 24_000_000;
/// A quick demonstration has so much less.
const QUICK: u64 = 4;

/// Lines of the summary: what, and how much.
type Summary = Vec<(String, String)>;

/// All of it.
pub(crate) fn all(stage: &mut Stage<'_>, quick: bool) -> Result<Summary> {
    let mut summary = Summary::new();
    let less = if quick { QUICK } else { 1 };
    serve(stage)?;
    join(stage, &mut summary)?;
    matrix(stage, &mut summary)?;
    file(stage, FILE_BYTES / less, &mut summary)?;
    storm(stage, if quick { STORM_BYTES_QUICK } else { STORM_BYTES }, &mut summary)?;
    Ok(summary)
}

/// The server, and a token.
fn serve(stage: &mut Stage<'_>) -> Result<()> {
    stage.screen.heading("A server, and one token")?;
    let begin = Instant::now();
    let address = stage.address("server")?;
    let line = format!(
        "warren serve --data . --listen 0.0.0.0:443 --url https://{address} --stun 0.0.0.0:3478 \
         --icmp"
    );
    stage.stay("server", &line, "serving on")?;
    stage.run("server", "warren key create --data . --reusable --expires 1h > token")?;
    let token = stage.file("server", "token");
    for (host, _) in NODES {
        fs::copy(&token, stage.file(host, "token"))?;
    }
    Ok(stage.screen.done("serving, and a token for every node", Some(begin.elapsed()))?)
}

/// Six nodes.
fn join(stage: &mut Stage<'_>, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("Six nodes, each where it is")?;
    stage.stay("proxy", &format!("warren-lab proxy --listen {PROXY}"), "proxy at")?;
    let mut worst = Duration::ZERO;
    for (host, place) in NODES {
        let daemon = "warren daemon --state .";
        let line = match host {
            "office" => format!("env HTTPS_PROXY=http://{PROXY} {daemon}"),
            _ => daemon.to_owned(),
        };
        stage.stay(host, &line, "daemon at")?;
        let begin = Instant::now();
        stage.run(host, &format!("warren up file:token --hostname {host} --timeout 20s"))?;
        worst = worst.max(begin.elapsed());
        stage.screen.done(&format!("{host} is up, {place}"), Some(begin.elapsed()))?;
    }
    summary.push(("from token to up, at worst".into(), time_text(worst)));
    Ok(())
}

/// What a host's daemon says.
fn status(stage: &Stage<'_>, host: &str) -> Result<Value> {
    let said = stage.ask(host, "warren status --json")?;
    serde_json::from_str(&said).with_context(|| format!("the status of {host}: {said}"))
}

fn peer<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["peers"].as_array()?.iter().find(|peer| peer["name"] == name)
}

fn path(status: &Value, name: &str) -> String {
    let kind = peer(status, name).and_then(|peer| peer["path"]["kind"].as_str());
    kind.unwrap_or("none").to_owned()
}

fn address(stage: &Stage<'_>, of: &str) -> Result<String> {
    let said = stage.ask(of, "warren ip -4")?;
    Ok(said.trim().to_owned())
}

/// Who reaches whom, how, and how fast.
fn matrix(stage: &mut Stage<'_>, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("Who reaches whom: the path, and the round trip")?;
    let addresses: Vec<String> =
        NODES.iter().map(|(host, _)| address(stage, host)).collect::<Result<_>>()?;
    let begin = Instant::now();
    let all = addresses.join(" ");
    // Everybody speaks to everybody, until those who can have found each other.
    loop {
        for (host, _) in NODES {
            stage.ask(host, &format!("for a in {all}; do ping -c 1 -W 1 $a & done; wait"))?;
        }
        let mut is_found = true;
        for (from, to) in DIRECT {
            is_found &= path(&status(stage, from)?, to) == "direct";
            is_found &= path(&status(stage, to)?, from) == "direct";
        }
        if is_found || begin.elapsed() > DIRECT_WITHIN {
            break;
        }
    }
    stage.screen.done("everybody has spoken to everybody", Some(begin.elapsed()))?;
    let mut rows = vec![line("", NODES.map(|(host, _)| host.to_owned()).to_vec())];
    let mut direct = 0;
    let mut relayed = 0;
    for (from, _) in NODES {
        let status = status(stage, from)?;
        let mut cells = Vec::new();
        for ((to, _), address) in NODES.iter().zip(&addresses) {
            if *to == from {
                cells.push("·".to_owned());
                continue;
            }
            let said = stage.ask(from, &format!("ping -n -q -c 3 -i 0.05 -W 2 {address}"))?;
            let kind = path(&status, to);
            direct += u32::from(kind == "direct");
            relayed += u32::from(kind == "relay");
            cells.push(format!("{kind} {}", time_text(report::average(&said)?)));
        }
        rows.push(line(from, cells));
    }
    stage.screen.said(&rows.join("\n"))?;
    let pairs = NODES.len() * (NODES.len() - 1);
    ensure!(direct + relayed == pairs as u32, "not every pair has a path:\n{}", rows.join("\n"));
    for (from, to) in DIRECT {
        let kind = path(&status(stage, from)?, to);
        ensure!(kind == "direct", "{from} reaches {to} by {kind}, and could directly");
    }
    stage.screen.done(&format!("{pairs} of {pairs} ways work, {direct} of them direct"), None)?;
    summary.push(("ways that work".into(), format!("{pairs} of {pairs}, {direct} direct")));
    Ok(())
}

fn line(first: &str, cells: Vec<String>) -> String {
    let cells = cells.iter().map(|cell| format!("{cell:<16}")).collect::<String>();
    format!("{first:<8}{}", cells.trim_end())
}

/// A file over the pair for which nothing but HTTPS is left, on both sides.
fn file(stage: &mut Stage<'_>, bytes: u64, summary: &mut Summary) -> Result<()> {
    let megabytes = bytes / 1_000_000;
    stage.screen.heading(&format!("A file of {megabytes} MB over the worst pair"))?;
    let time = fetch(stage, ("robot", "office"), bytes, "", |_, _| Ok(()))?;
    let rate = report::rate_text(bytes as f64 * 8.0 / time.as_secs_f64());
    let value = format!("{} at {rate}, equal SHA-256 sums", time_text(time));
    summary.push((format!("{megabytes} MB, HTTPS only on both sides"), value));
    Ok(())
}

/// UDP is blocked while a file is fetched over a direct path.
fn storm(stage: &mut Stage<'_>, bytes: u64, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("UDP stops while a file is on its way")?;
    let limit = format!(" --limit-rate {STORM_RATE}");
    let mut blocked = None;
    let time = fetch(stage, ("home", "lab"), bytes, &limit, |stage, done| {
        if blocked.is_none() && done > bytes / 4 {
            let before = path(&status(stage, "home")?, "lab");
            ensure!(before == "direct", "the path is {before} before UDP is blocked");
            stage.run(
                "homenat",
                "nft 'add table inet storm; add chain inet storm c { type filter hook forward \
                 priority 0; }; add rule inet storm c meta l4proto udp drop'",
            )?;
            blocked = Some(Instant::now());
        }
        Ok(())
    })?;
    ensure!(blocked.is_some(), "the file came before UDP could be blocked");
    let after = path(&status(stage, "home")?, "lab");
    ensure!(after == "relay", "the path is {after} after UDP was blocked");
    stage.screen.done("the transfer went on over the relay", None)?;
    stage.run("homenat", "nft delete table inet storm")?;
    let value = format!("finished after {}, equal SHA-256 sums", time_text(time));
    summary.push(("a transfer whose UDP was blocked".into(), value));
    Ok(())
}

/// Has `to` fetch a file of random bytes from `from` by curl, and compares its sums. `glance` is
/// called meanwhile with what has arrived.
fn fetch(
    stage: &mut Stage<'_>,
    ends: (&str, &str),
    bytes: u64,
    options: &str,
    mut glance: impl FnMut(&mut Stage<'_>, u64) -> Result<()>,
) -> Result<Duration> {
    let (to, from) = ends;
    let name = format!("{from}.bin");
    stage.run(from, &format!("head -c {bytes} /dev/urandom > {name}"))?;
    let address = address(stage, from)?;
    stage.stay(from, &format!("busybox httpd -f -p {address}:{HTTP_PORT} -h ."), "")?;
    stage.wait_until("the HTTP server", |stage| {
        let probe = format!("curl -sS -m 1 -o probe -r 0-0 http://{address}:{HTTP_PORT}/{name}");
        Ok(stage.ask(from, &probe).is_ok())
    })?;
    let file = stage.file(to, &name);
    let line = format!("curl -sS{options} -o {name} http://{address}:{HTTP_PORT}/{name}");
    let begin = Instant::now();
    stage.run_glancing(to, &line, |stage| {
        let done = fs::metadata(&file).map_or(0, |found| found.len());
        stage.screen.progress(&name, done, bytes)?;
        glance(stage, done)
    })?;
    let time = begin.elapsed();
    stage.screen.clear_progress()?;
    let rate = report::rate_text(bytes as f64 * 8.0 / time.as_secs_f64());
    let megabytes = bytes / 1_000_000;
    stage.screen.done(&format!("{megabytes} MB from {from} to {to} at {rate}"), Some(time))?;
    let mut sums = Vec::new();
    for host in [from, to] {
        let said = stage.run(host, &format!("sha256sum {name}"))?;
        stage.screen.said(&said)?;
        sums.push(report::sum(&said)?.to_owned());
        fs::remove_file(stage.file(host, &name))?;
    }
    ensure!(sums[0] == sums[1], "the SHA-256 sums differ: what arrived is not what was sent");
    stage.screen.done("equal SHA-256 sums", None)?;
    stage.end_last()?;
    Ok(time)
}
