//! Carriers beside each other and beside ptunnel-ng: `warren-lab bench carriers`.
//!
//! Two hosts and a veth without offloads and without checksums of a card. Kernels before 6.11 then
//! take UDP in single datagrams only, as they take all others; later ones cut its units themselves,
//! so UDP keeps that advantage. Each round measures every carrier in both directions, on new ground
//! each time. *Out* is the way of requests, *back* that of replies. ptunnel-ng is asked for one
//! connection only: of two at once it takes the second for the first again, and drops it.

mod ptunnel;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use noise::PrivateKey;
use serde_json::json;

use crate::facts::{Facts, Origin};
use crate::ground::{Ground, IFNAME};
use crate::iperf::Transfer;
use crate::load::finish;
use crate::ratio::Spread;
use crate::report::{Mark, Skipped};
use crate::rounds;
use crate::row::{Bound, Row};
use crate::scenario::Underlay;
use crate::sheet::{Sheet, number};

/// Addresses inside a link.
pub(crate) const INNER: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const PORT: &str = "5201";
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

/// What one transfer gave, out or back: payload a second, Mbit/s, and processor time of both
/// programs for each GB.
type Sample = rounds::Sample<(Way, bool), [f64; 2]>;

/// All that was found.
#[derive(Debug)]
pub struct Report {
    facts: Facts,
    marks: Vec<Mark>,
    settings: Settings,
    samples: Vec<Sample>,
    skipped: Vec<Skipped>,
}

/// Measures every carrier both ways, round after round.
///
/// # Errors
/// Returns an error without root, or when a signal asks this process to end. What fails for one of
/// them is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    let facts = Facts::gather(&settings.origin);
    let mut skipped = Vec::new();
    let has_ptunnel = std::process::Command::new("ptunnel-ng").arg("-h").output().is_ok();
    if !has_ptunnel {
        let [name, why, hint] =
            ["ptunnel-ng", "not installed", "apt-get install ptunnel-ng"].map(str::to_owned);
        skipped.push(Skipped { name, why, hint });
    }
    let ways = Way::ALL.into_iter().filter(|way| *way != Way::Ptunnel || has_ptunnel);
    let ways: Vec<_> = ways.flat_map(|way| [(way, false), (way, true)]).collect();
    let samples = rounds::all(
        settings.rounds,
        &ways,
        |(way, is_back)| format!("{}, {}", way.name(), direction(is_back)),
        |[rate, _]: &[f64; 2]| format!("{rate:.0} Mbit/s"),
        |(way, is_back), _| measure(settings, way, is_back),
    )?;
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
    let cpu_s = |programs: &[Process]| programs.iter().map(Process::cpu_s).sum::<f64>();
    if way == Way::Ptunnel {
        let programs = ptunnel::start(hosts, at)?;
        let before = cpu_s(&programs);
        let (bytes, took_s) = ptunnel::stream(hosts, at[1], is_back, settings.seconds)?;
        let spent = cpu_s(&programs) - before;
        return Ok([bytes * 8.0 / took_s / 1e6, spent / (bytes / 1e9)]);
    }
    let shared = &ground.ends[0].shared;
    let programs = link(&settings.origin.program, &way.lines(at), hosts, shared)?;
    let server =
        hosts[1].spawn(&["iperf3", "-s", "-1", "-B", INNER[1], "-p", PORT, "--forceflush"])?;
    server.wait_for(|log| log.contains("listening"))?;
    let seconds = settings.seconds.to_string();
    let mut argv = vec!["iperf3", "-J", "-c", INNER[1], "-p", PORT, "-t", &seconds, "-C", "cubic"];
    argv.extend(is_back.then_some("-R"));
    let before = cpu_s(&programs);
    let client = hosts[0].spawn(&argv)?;
    let limit = Duration::from_secs(settings.seconds.into()) + PATIENCE;
    let transfer = Transfer::parse(&finish(&client, limit)?)?;
    let spent = cpu_s(&programs) - before;
    Ok([transfer.mbit_s(), spent / (transfer.received_bytes as f64 / 1e9)])
}

/// A link between both hosts, once a ping has passed; `lines` are what each end's file has in its
/// two sections beside keys and addresses.
pub(crate) fn link(
    program: &Path,
    lines: &[[String; 2]; 2],
    hosts: [&Host; 2],
    shared: &Path,
) -> Result<Vec<Process>> {
    let keys = [1, 2].map(|n| PrivateKey::from_bytes([n; 32]));
    let program = program.to_string_lossy().into_owned();
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

impl Report {
    /// A figure of each round, in order.
    fn of(&self, way: Way, is_back: bool, which: usize) -> Vec<Option<f64>> {
        let mine = self.samples.iter().filter(|sample| sample.way == (way, is_back));
        mine.map(|sample| sample.found.as_ref().ok().map(|found| found[which])).collect()
    }

    fn spread(&self, way: Way, is_back: bool, which: usize) -> Option<Spread> {
        Spread::of_rounds(&self.of(way, is_back, which))
    }

    /// What is required: a ratio of each round, of which the median decides.
    fn rows(&self) -> Vec<Row> {
        use Bound::{AtLeast, AtMost};
        use Way::{Icmp, Ip, Ptunnel, Udp};
        let row = |what: &str, ours: (Way, bool), theirs: (Way, bool), which, bound| {
            let found = Spread::of_ratios(
                &self.of(ours.0, ours.1, which),
                &self.of(theirs.0, theirs.1, which),
            );
            Row::new(what, "×", Some(bound), found, self.settings.rounds as usize)
        };
        let rate = |what, ours, theirs, least| row(what, ours, theirs, 0, AtLeast(least));
        let time = |what, ours, theirs| row(what, ours, theirs, 1, AtMost(1.0));
        vec![
            rate("ip:99 out ÷ udp out", (Ip, false), (Udp, false), 0.8),
            rate("ip:99 back ÷ udp back", (Ip, true), (Udp, true), 0.8),
            rate("icmp out ÷ udp out", (Icmp, false), (Udp, false), 0.5),
            rate("icmp back ÷ udp back", (Icmp, true), (Udp, true), 0.5),
            rate("icmp back ÷ icmp out", (Icmp, true), (Icmp, false), 0.8),
            rate("icmp out ÷ ptunnel-ng", (Icmp, false), (Ptunnel, false), 5.0),
            rate("icmp back ÷ ptunnel-ng", (Icmp, true), (Ptunnel, true), 5.0),
            time("processor time out ÷ ptunnel-ng", (Icmp, false), (Ptunnel, false)),
            time("processor time back ÷ ptunnel-ng", (Icmp, true), (Ptunnel, true)),
        ]
    }
}

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("Carriers");
    let settings = &report.settings;
    page.marks(&report.marks);
    page.facts(
        &report.facts,
        &format!(
            "Two hosts, a veth of MTU 1500 without offloads and checksums of a card, TCP by \
             iperf3, {} rounds of {} s\nin turn, medians. *Out* is from the side that pings, \
             *back* to it.",
            settings.rounds, settings.seconds
        ),
    );
    let mut lines = Vec::new();
    for way in Way::ALL {
        for is_back in [false, true] {
            let Some(rate) = report.spread(way, is_back, 0) else { continue };
            let cpu = report.spread(way, is_back, 1).map(|spread| spread.median);
            lines.push(vec![
                way.name().to_owned(),
                direction(is_back).to_owned(),
                number(Some(rate.median), 0),
                format!("{:.0} to {:.0}", rate.min, rate.max),
                number(cpu, 1),
            ]);
        }
    }
    let head = ["carrier", "way", "Mbit/s", "least to most", "processor s per GB"];
    page.table(&head, 2..5, &lines);
    page.heading("What is required");
    page.rows(&report.rows());
    page.skipped(&report.skipped);
    let failed = report.samples.iter().filter_map(|sample| {
        let why = sample.found.as_ref().err()?;
        let (way, is_back) = sample.way;
        Some(format!("round {}, {} {}: {why}", sample.round, way.name(), direction(is_back)))
    });
    page.failures(&failed.collect::<Vec<_>>());
    page.text()
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
            let (way, is_back) = sample.way;
            json!({
                "carrier": way.name(),
                "way": direction(is_back),
                "round": sample.round,
                "mbit_s": sample.found.as_ref().ok().map(|found| found[0]),
                "cpu_s_per_gb": sample.found.as_ref().ok().map(|found| found[1]),
                "failed": sample.found.as_ref().err(),
            })
        })
        .collect();
    let told = json!({
        "kind": "carriers",
        "facts": serde_json::to_value(&report.facts)?,
        "seconds": report.settings.seconds,
        "rounds": report.settings.rounds,
        "skipped": report.skipped,
        "rows": report.rows(),
        "samples": samples,
    });
    Ok(serde_json::to_string(&told)? + "\n")
}
