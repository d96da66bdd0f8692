//! Source 004's own line and its two tests: `warren-lab bench nest`.
//!
//! The line carries 1.5 Mbit/s each way in a round trip of 100 ms, loses 1 % each way, and lets one
//! packet in a hundred overtake. Test 1 is six TCP streams each way at once, of files of which each
//! other one can be halved; it tells what share of the line they have, compressed as the source
//! did. Test 2 is six spiders a side that fetch empty files, each on a connection of
//! its own; it tells how long that takes, and how many datagrams the line carried.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::netns::Host;
use lab::process::Process;
use serde_json::json;
use sim::impair::Impairment;
use sim::profile;

use crate::carriers::{INNER, Settings, link};
use crate::facts::Facts;
use crate::ground::Ground;
use crate::iperf::Transfer;
use crate::load::finish;
use crate::ratio::Spread;
use crate::report::Mark;
use crate::rounds;
use crate::row::{Bound, Row};
use crate::sheet::{Sheet, number};

/// The source's line, its section 004.3; its queue is dummynet's of 50 packets.
const LINE: [&str; 5] = ["delay=50ms", "loss=1%", "reorder=1%", "rate=1500kbit", "limit=50"];
/// What it carries both ways together, Mbit/s.
const LINE_MBIT_S: f64 = 3.0;
/// Streams each way, and spiders a side.
const AT_ONCE: usize = 6;
/// What a stream sends before it begins anew, and the files that it is made of.
const FILES_BYTES: usize = 8 << 20;
const FILE_BYTES: usize = 64 << 10;
/// Files that each spider fetches; the source has 1,000.
const FILES: usize = 40;
const STREAM_PORT: &str = "5201";
/// What a spider of the source's day says it is: a question without that is as short as a
/// keystroke, which waits for nobody.
const AGENT: &str = "Wget/1.8.2";
const FILE_PORT: &str = "8080";
/// A spider's longest time for all its files.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// No VPN.
    None,
    /// The source's configuration 1: nothing waits.
    Ip,
    /// Its configuration 2: small packets wait 32 ms for company.
    IpHeld,
    /// Its configuration 3.
    Icmp,
}

impl Way {
    const ALL: [Self; 4] = [Self::None, Self::Ip, Self::IpHeld, Self::Icmp];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "no VPN",
            Self::Ip => "ip:99",
            Self::IpHeld => "ip:99, HoldMs = 32",
            Self::Icmp => "icmp, HoldMs = 32",
        }
    }

    /// The lines of both files, in their two sections.
    fn lines(self, at: [&str; 2]) -> [[String; 2]; 2] {
        let hold = if self == Self::Ip { "" } else { "\nHoldMs = 32" };
        let hold = format!("\nCompress = 9{hold}");
        if self == Self::Icmp {
            let asks = format!("Carrier = icmp\nEndpoint = {}{hold}", at[1]);
            let answers = [format!("ListenIcmp = {}", at[1]), hold];
            return [[String::new(), asks], answers];
        }
        [0, 1].map(|own: usize| {
            let peer = format!("Carrier = ip:99\nEndpoint = {}{hold}", at[1 - own]);
            ["ListenIp = 99".to_owned(), peer]
        })
    }
}

/// What one round found.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// The share of the line that six streams each way had.
    share: f64,
    /// Seconds until all spiders had all their files.
    files_s: f64,
    /// Datagrams that the line was given for it.
    datagrams: f64,
}

type Sample = rounds::Sample<Way, Found>;

/// All that was found.
#[derive(Debug)]
pub struct Report {
    facts: Facts,
    marks: Vec<Mark>,
    settings: Settings,
    samples: Vec<Sample>,
}

/// Measures both tests by every way, round after round, each on new ground.
///
/// # Errors
/// Returns an error without root, or when a signal asks this process to end. What fails for one of
/// them is in the report.
pub fn run(settings: &Settings) -> Result<Report> {
    let facts = Facts::gather(&settings.origin);
    let samples = rounds::all(
        settings.rounds,
        &Way::ALL,
        |way| way.name().to_owned(),
        |Found { share, files_s, datagrams }: &Found| {
            let share = share * 100.0;
            format!("{share:.0} % of the line, files in {files_s:.1} s with {datagrams} datagrams")
        },
        |way, round| measure(settings, way, round),
    )?;
    let marks = Mark::all(&facts, None);
    Ok(Report { facts, marks, settings: settings.clone(), samples })
}

fn line() -> Result<Impairment> {
    let mut line = Impairment::NONE;
    for word in LINE {
        profile::apply(&mut line, word)?;
    }
    Ok(line)
}

fn measure(settings: &Settings, way: Way, round: u32) -> Result<Found> {
    let ground = Ground::lay_ring(&settings.prefix, line()?, false, u64::from(round))?;
    let hosts = [&ground.ends[0].host, &ground.ends[1].host];
    let outer = [&ground.ends[0].outer[..], &ground.ends[1].outer[..]];
    let (_programs, at) = if way == Way::None {
        (Vec::new(), outer)
    } else {
        let lines = way.lines(outer);
        (link(&settings.origin.program, &lines, hosts, &ground.ends[0].shared)?, INNER)
    };
    let shared = &ground.ends[0].shared;
    let share = streams(settings.seconds, hosts, at, shared).context("six streams each way")?;
    let before = ground.wire_count().context("there is a wire")?;
    let files_s = spiders(hosts, at, &ground).context("six spiders a side")?;
    let count = ground.wire_count().context("there is a wire")?.since(before);
    Ok(Found { share, files_s, datagrams: count.offered as f64 })
}

/// The share of the line that six streams each way have.
fn streams(seconds: u32, hosts: [&Host; 2], at: [&str; 2], shared: &Path) -> Result<f64> {
    let file = shared.join("files");
    std::fs::write(&file, files())?;
    let file = file.to_string_lossy().into_owned();
    let seconds_word = seconds.to_string();
    let streams = AT_ONCE.to_string();
    let mut servers = Vec::new();
    for (host, at) in hosts.into_iter().zip(at) {
        let words = ["iperf3", "-s", "-1", "-B", at, "-p", STREAM_PORT, "--forceflush"];
        let server = host.spawn(&words)?;
        server.wait_for(|log| log.contains("listening"))?;
        servers.push(server);
    }
    let words = ["iperf3", "-J", "-p", STREAM_PORT, "-P", &streams, "-t", &seconds_word];
    let mut clients = Vec::new();
    for (host, to) in hosts.into_iter().zip([at[1], at[0]]) {
        clients.push(host.spawn(&[&words[..], &["-C", "cubic", "-F", &file, "-c", to]].concat())?);
    }
    let limit = Duration::from_secs(seconds.into()) + PATIENCE;
    let mut both = 0.0;
    for client in &clients {
        both += Transfer::parse(&finish(client, limit)?)?.mbit_s();
    }
    Ok(both / LINE_MBIT_S)
}

/// What the streams send again and again: files of which each other one can be halved, as the
/// source's are.
fn files() -> Vec<u8> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(FILES_BYTES);
    while bytes.len() < FILES_BYTES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let can_be_halved = bytes.len() / FILE_BYTES % 2 == 1;
        if can_be_halved && bytes.len() / 32 % 2 == 1 {
            bytes.extend([0; 8]);
        } else {
            bytes.extend(random.to_le_bytes());
        }
    }
    bytes
}

/// How long six spiders a side take for all their files.
fn spiders(hosts: [&Host; 2], at: [&str; 2], ground: &Ground) -> Result<f64> {
    let site = ground.ends[0].shared.join("site");
    std::fs::create_dir_all(&site)?;
    std::fs::write(site.join("empty"), "")?;
    let site = site.to_string_lossy().into_owned();
    let mut servers = Vec::new();
    for (host, at) in hosts.into_iter().zip(at) {
        let place = format!("{at}:{FILE_PORT}");
        let server = host.spawn(&["busybox", "httpd", "-f", "-p", &place, "-h", &site])?;
        let begin = Instant::now();
        while !host.run(&["ss", "-Htln"])?.contains(&place) {
            ensure!(begin.elapsed() < PATIENCE, "no web server: {}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        servers.push(server);
    }
    let begin = Instant::now();
    let mut fetching: Vec<Process> = Vec::new();
    for (host, to) in hosts.into_iter().zip([at[1], at[0]]) {
        let script = format!(
            "for n in $(seq {FILES}); do\n\
             reply=$(exec 3<>/dev/tcp/{to}/{FILE_PORT} &&\n\
             printf 'GET /empty HTTP/1.0\\r\\nUser-Agent: {AGENT}\\r\\nAccept: */*\\r\\n\
             Host: {to}\\r\\n\\r\\n' >&3 && cat <&3)\n\
             case $reply in *200*) ;; *) echo \"$reply\"; exit 1;; esac\n\
             done; echo done"
        );
        for _ in 0..AT_ONCE {
            fetching.push(host.spawn(&["bash", "-c", &script])?);
        }
    }
    for spider in &fetching {
        let log = finish(spider, PATIENCE)?;
        ensure!(log.contains("done"), "a file did not come: {log}");
    }
    Ok(begin.elapsed().as_secs_f64())
}

impl Report {
    /// A figure of each round, in order.
    fn of(&self, way: Way, which: fn(&Found) -> f64) -> Vec<Option<f64>> {
        let mine = self.samples.iter().filter(|sample| sample.way == way);
        mine.map(|sample| sample.found.as_ref().ok().map(which)).collect()
    }

    fn spread(&self, way: Way, which: fn(&Found) -> f64) -> Option<Spread> {
        Spread::of_rounds(&self.of(way, which))
    }

    /// What is required, judged by the median of the rounds.
    fn rows(&self) -> [Row; 4] {
        use Bound::{AtLeast, AtMost};
        let row = |what, bound, found| {
            Row::new(what, "×", Some(bound), found, self.settings.rounds as usize)
        };
        let ratio =
            |ours, theirs, which| Spread::of_ratios(&self.of(ours, which), &self.of(theirs, which));
        let share = |way| self.spread(way, |found| found.share);
        let time = ratio(Way::IpHeld, Way::None, |found| found.files_s);
        let fewer = ratio(Way::None, Way::IpHeld, |found| found.datagrams);
        [
            row("test 1, ip:99 ÷ the line", AtLeast(0.83), share(Way::Ip)),
            row("test 1, icmp ÷ the line", AtLeast(0.75), share(Way::Icmp)),
            row("test 2, time, held ÷ no VPN", AtMost(1.0), time),
            row("test 2, datagrams, no VPN ÷ held", AtLeast(5.0), fewer),
        ]
    }
}

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("The line of source 004");
    let settings = &report.settings;
    page.marks(&report.marks);
    page.facts(
        &report.facts,
        &format!(
            "A line of 1.5 Mbit/s each way, round trip 100 ms, 1 % lost each way, 1 % overtake. \
             Test 1 is\n{AT_ONCE} TCP streams each way for {} s; half of it can be halved, \
             `Compress = 9`. Test 2 is {AT_ONCE} spiders\na side, {FILES} empty files each. {} \
             rounds in turn, medians.",
            settings.seconds, settings.rounds
        ),
    );
    let line = |way: &Way| {
        let middle = |which| report.spread(*way, which).map(|spread| spread.median);
        let share = report.spread(*way, |found| found.share)?;
        Some(vec![
            way.name().to_owned(),
            number(Some(share.median), 2),
            format!("{:.2} to {:.2}", share.min, share.max),
            number(middle(|found| found.files_s), 1),
            number(middle(|found| found.datagrams), 0),
        ])
    };
    let head = ["way", "share of the line", "least to most", "files, s", "datagrams"];
    page.table(&head, 1..5, &Way::ALL.iter().filter_map(line).collect::<Vec<_>>());
    page.heading("What is required");
    page.rows(&report.rows());
    let failed = report.samples.iter().filter_map(|sample| {
        let why = sample.found.as_ref().err()?;
        Some(format!("round {}, {}: {why}", sample.round, sample.way.name()))
    });
    page.failures(&failed.collect::<Vec<_>>());
    page.text()
}

/// The report as JSON.
///
/// # Errors
/// None that can happen: all of it can be written.
pub fn to_json(report: &Report) -> Result<String> {
    let sample = |sample: &Sample| {
        let found = sample.found.as_ref().ok();
        json!({
            "way": sample.way.name(),
            "round": sample.round,
            "share": found.map(|found| found.share),
            "files_s": found.map(|found| found.files_s),
            "datagrams": found.map(|found| found.datagrams),
            "failed": sample.found.as_ref().err(),
        })
    };
    let told = json!({
        "kind": "nest",
        "facts": serde_json::to_value(&report.facts)?,
        "line": LINE,
        "seconds": report.settings.seconds,
        "rounds": report.settings.rounds,
        "rows": report.rows(),
        "samples": report.samples.iter().map(sample).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string(&told)? + "\n")
}
