//! Carriers beside each other and beside ptunnel-ng: `warren-lab bench carriers`.
//!
//! Two hosts and a veth without offloads and without checksums of a card. Kernels before 6.11 then
//! take UDP in single datagrams only, as they take all others; later ones cut its units themselves,
//! so UDP keeps that advantage. Each round measures every carrier in both directions, on new ground
//! each time. *Out* is the way of requests, *back* that of replies.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use lab::sys;
use noise::PrivateKey;
use serde_json::json;

use crate::facts::{Facts, Origin};
use crate::ground::{Ground, IFNAME};
use crate::iperf::Transfer;
use crate::load::finish;
use crate::report::Mark;
use crate::scenario::Underlay;

/// Addresses inside a link.
const INNER: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const PORT: &str = "5201";
/// The client's end of ptunnel-ng.
const FORWARDED: &str = "5202";
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the namespaces begin with it.
    pub prefix: String,
    /// Length of one transfer, seconds.
    pub seconds: u32,
    /// Rounds.
    pub rounds: u32,
    /// What was typed, and what is measured.
    pub origin: Origin,
}

/// Who carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Udp,
    Ip,
    Icmp,
    Ptunnel,
}

impl Way {
    const ALL: [Self; 4] = [Self::Udp, Self::Ip, Self::Icmp, Self::Ptunnel];

    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Ip => "ip:99",
            Self::Icmp => "icmp",
            Self::Ptunnel => "ptunnel-ng",
        }
    }

    /// The lines of both files, in their two sections.
    fn lines(self, at: [&str; 2]) -> [[String; 2]; 2] {
        match self {
            Self::Udp => [0, 1].map(|own: usize| {
                let endpoint = format!("Endpoint = {}:51820", at[1 - own]);
                ["ListenPort = 51820".to_owned(), endpoint]
            }),
            Self::Ip => [0, 1].map(|own: usize| {
                let peer = format!("Carrier = ip:99\nEndpoint = {}", at[1 - own]);
                ["ListenIp = 99".to_owned(), peer]
            }),
            Self::Icmp | Self::Ptunnel => [
                [String::new(), format!("Carrier = icmp\nEndpoint = {}", at[1])],
                [format!("ListenIcmp = {}", at[1]), String::new()],
            ],
        }
    }
}

/// What one transfer gave.
#[derive(Debug, Clone)]
struct Sample {
    way: Way,
    is_back: bool,
    round: u32,
    /// Payload a second, Mbit/s, and processor time of both programs for each GB.
    found: Result<[f64; 2], String>,
}

/// All that was found.
#[derive(Debug)]
pub struct Report {
    facts: Facts,
    marks: Vec<Mark>,
    settings: Settings,
    samples: Vec<Sample>,
    skipped: Vec<String>,
}

/// Measures every carrier both ways, round after round.
///
/// # Errors
/// Returns an error without root, or when a signal asks this process to end. What fails for one of
/// them is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    ensure!((1..=100).contains(&settings.rounds), "there must be 1 to 100 rounds");
    sys::catch_interrupts();
    let facts = Facts::gather(&settings.origin);
    let (mut samples, mut skipped) = (Vec::new(), Vec::new());
    let has_ptunnel = std::process::Command::new("ptunnel-ng").arg("-h").output().is_ok();
    if !has_ptunnel {
        skipped.push("ptunnel-ng: not installed; see apt-get install ptunnel-ng".to_owned());
    }
    for round in 1..=settings.rounds {
        for way in Way::ALL.into_iter().filter(|way| *way != Way::Ptunnel || has_ptunnel) {
            for is_back in [false, true] {
                let found = measure(settings, way, is_back);
                sys::check_interrupted()?;
                let found = found.map_err(|error| format!("{error:#}"));
                let shown = match &found {
                    Ok([rate, _]) => format!("{rate:.0} Mbit/s"),
                    Err(why) => format!("failed: {why}"),
                };
                eprintln!("round {round}, {}, {}: {shown}", way.name(), direction(is_back));
                samples.push(Sample { way, is_back, round, found });
            }
        }
    }
    let marks = Mark::all(&facts, None);
    Ok(Report { facts, marks, settings: settings.clone(), samples, skipped })
}

const fn direction(is_back: bool) -> &'static str {
    if is_back { "back" } else { "out" }
}

fn measure(settings: &Settings, way: Way, is_back: bool) -> Result<[f64; 2]> {
    let ground = Ground::lay(&settings.prefix, Underlay::VethNoOffloads)?;
    let hosts = [&ground.ends[0].host, &ground.ends[1].host];
    for host in hosts {
        host.run(&["ethtool", "-K", IFNAME, "tx", "off", "rx", "off"])?;
    }
    let at = [&ground.ends[0].outer[..], &ground.ends[1].outer[..]];
    let (programs, to, port) = match way {
        Way::Ptunnel => (ptunnel(hosts, at)?, "127.0.0.1", FORWARDED),
        _ => (warren(settings, way, hosts, at, &ground.ends[0].shared)?, INNER[1], PORT),
    };
    let listen = if way == Way::Ptunnel { at[1] } else { INNER[1] };
    let server =
        hosts[1].spawn(&["iperf3", "-s", "-1", "-B", listen, "-p", PORT, "--forceflush"])?;
    server.wait_for(|log| log.contains("listening"))?;
    let seconds = settings.seconds.to_string();
    let mut argv = vec!["iperf3", "-J", "-c", to, "-p", port, "-t", &seconds, "-C", "cubic"];
    argv.extend(is_back.then_some("-R"));
    let before: f64 = programs.iter().map(Process::cpu_s).sum();
    let client = hosts[0].spawn(&argv)?;
    let limit = Duration::from_secs(settings.seconds.into()) + PATIENCE;
    let transfer = Transfer::parse(&finish(&client, limit)?)?;
    let spent: f64 = programs.iter().map(Process::cpu_s).sum::<f64>() - before;
    Ok([transfer.mbit_s(), spent / (transfer.received_bytes as f64 / 1e9)])
}

fn warren(
    settings: &Settings,
    way: Way,
    hosts: [&Host; 2],
    at: [&str; 2],
    shared: &Path,
) -> Result<Vec<Process>> {
    let keys = [1, 2].map(|n| PrivateKey::from_bytes([n; 32]));
    let lines = way.lines(at);
    let mut programs = Vec::new();
    for own in [1, 0] {
        let [interface, peer] = &lines[own];
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {}/24\n{interface}\n[Peer]\nPublicKey = {}\n\
             AllowedIPs = {}/32\n{peer}\n",
            keys[own].to_base64(),
            INNER[own],
            keys[1 - own].public(),
            INNER[1 - own],
        );
        let path = shared.join(format!("wbc{own}.conf"));
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let program = settings.origin.program.to_string_lossy().into_owned();
        let link = hosts[own].spawn(&[&program, "link", "up", &path.to_string_lossy()])?;
        link.wait_for(|log| log.contains("is up")).with_context(|| link.log())?;
        programs.push(link);
    }
    let begin = Instant::now();
    while hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", INNER[1]]).is_err() {
        ensure!(begin.elapsed() < PATIENCE, "no ping passes");
    }
    Ok(programs)
}

fn ptunnel(hosts: [&Host; 2], at: [&str; 2]) -> Result<Vec<Process>> {
    let server = hosts[1].spawn(&["ptunnel-ng"])?;
    let remote = [format!("-p{}", at[1]), format!("-r{}", at[1])];
    let (from, to) = (format!("-l{FORWARDED}"), format!("-R{PORT}"));
    let client = hosts[0].spawn(&["ptunnel-ng", &remote[0], &from, &remote[1], &to])?;
    let listens = || {
        let listed = hosts[0].run(&["ss", "-Htln"]).unwrap_or_default();
        listed.contains(&format!(":{FORWARDED}"))
    };
    let begin = Instant::now();
    while !listens() {
        ensure!(begin.elapsed() < PATIENCE, "ptunnel-ng does not listen: {}", client.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(vec![server, client])
}

/// A requirement: what is shown, its value, what is asked, whether that is met.
type Row = (&'static str, Option<f64>, &'static str, Option<bool>);

impl Report {
    fn of(&self, way: Way, is_back: bool, which: usize) -> Vec<f64> {
        let mine = self.samples.iter().filter(|s| (s.way, s.is_back) == (way, is_back));
        mine.filter_map(|sample| sample.found.as_ref().ok().map(|found| found[which])).collect()
    }

    fn median(&self, way: Way, is_back: bool, which: usize) -> Option<f64> {
        let mut all = self.of(way, is_back, which);
        all.sort_by(f64::total_cmp);
        let half = all.len() / 2;
        match all.len() {
            0 => None,
            len if len % 2 == 1 => Some(all[half]),
            _ => Some(f64::midpoint(all[half - 1], all[half])),
        }
    }

    fn ratio(&self, a: (Way, bool), b: (Way, bool), which: usize) -> Option<f64> {
        Some(self.median(a.0, a.1, which)? / self.median(b.0, b.1, which)?)
    }

    fn rows(&self) -> Vec<Row> {
        use Way::{Icmp, Ip, Ptunnel, Udp};
        let rows = [
            ("ip:99 out, of udp out", self.ratio((Ip, false), (Udp, false), 0), 0.8),
            ("ip:99 back, of udp back", self.ratio((Ip, true), (Udp, true), 0), 0.8),
            ("icmp out, of udp out", self.ratio((Icmp, false), (Udp, false), 0), 0.5),
            ("icmp back, of udp back", self.ratio((Icmp, true), (Udp, true), 0), 0.5),
            ("icmp back, of icmp out", self.ratio((Icmp, true), (Icmp, false), 0), 0.8),
            ("icmp out, of ptunnel-ng", self.ratio((Icmp, false), (Ptunnel, false), 0), 5.0),
            ("icmp back, of ptunnel-ng", self.ratio((Icmp, true), (Ptunnel, true), 0), 5.0),
        ];
        let most = [
            ("processor time out, of ptunnel-ng", self.ratio((Icmp, false), (Ptunnel, false), 1)),
            ("processor time back, of ptunnel-ng", self.ratio((Icmp, true), (Ptunnel, true), 1)),
        ];
        let asked = |least: f64| match least {
            0.8 => "at least 0.8",
            0.5 => "at least 0.5",
            _ => "at least 5",
        };
        let least = rows.map(|(what, found, least)| {
            (what, found, asked(least), found.map(|found| found >= least))
        });
        let most = most.map(|(what, found)| (what, found, "at most 1", found.map(|f| f <= 1.0)));
        least.into_iter().chain(most).collect()
    }
}

/// The report as a page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::from("# Carriers\n\n");
    let settings = &report.settings;
    let _ = write!(
        out,
        "`{}`: two hosts, a veth of MTU 1500 without offloads and checksums of a card, \
         TCP by iperf3, {} \
         rounds of {} s in turn, medians. *Out* is from the side that pings, *back* to it.\n\n",
        settings.origin.command, settings.rounds, settings.seconds
    );
    for mark in &report.marks {
        let _ = writeln!(out, "- {}: {}", mark.mark, mark.why);
    }
    out += "\n| carrier | way | Mbit/s | least to most | processor s per GB |\n";
    out += "|---|---|--:|--:|--:|\n";
    for way in Way::ALL {
        for is_back in [false, true] {
            let all = report.of(way, is_back, 0);
            let Some(rate) = report.median(way, is_back, 0) else { continue };
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            let cpu = report.median(way, is_back, 1).unwrap_or(f64::NAN);
            let (name, way) = (way.name(), direction(is_back));
            let _ = writeln!(
                out,
                "| {name} | {way} | {rate:.0} | {least:.0} to {most:.0} | {cpu:.1} |"
            );
        }
    }
    out += "\n## What is required\n\n| what | found | required | |\n|---|--:|---|---|\n";
    for (what, found, asked, is_met) in report.rows() {
        let found = found.map_or_else(|| "none".to_owned(), |found| format!("{found:.2}"));
        let is_met = match is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let _ = writeln!(out, "| {what} | {found} | {asked} | {is_met} |");
    }
    for skipped in &report.skipped {
        let _ = writeln!(out, "\nSkipped: {skipped}.");
    }
    out
}

/// The report as JSON.
///
/// # Errors
/// None that can happen: all of it can be written.
pub fn to_json(report: &Report) -> Result<String> {
    let samples: Vec<_> = report
        .samples
        .iter()
        .map(|sample| {
            json!({
                "carrier": sample.way.name(),
                "way": direction(sample.is_back),
                "round": sample.round,
                "mbit_s": sample.found.as_ref().ok().map(|found| found[0]),
                "cpu_s_per_gb": sample.found.as_ref().ok().map(|found| found[1]),
                "failed": sample.found.as_ref().err(),
            })
        })
        .collect();
    let rows: Vec<_> = report
        .rows()
        .into_iter()
        .map(|(what, found, asked, is_met)| {
            json!({ "what": what, "found": found, "required": asked, "is_met": is_met })
        })
        .collect();
    let told = json!({
        "kind": "carriers",
        "facts": serde_json::to_value(&report.facts)?,
        "seconds": report.settings.seconds,
        "rounds": report.settings.rounds,
        "skipped": report.skipped,
        "rows": rows,
        "samples": samples,
    });
    Ok(serde_json::to_string_pretty(&told)? + "\n")
}
