//! The report before it takes a form: sections of paragraphs, tables and charts.

use super::about::{heat_of, primary, ways};
use super::cells::{BACK, Cells, FORTH, State};
use super::claims;
use super::number;
use super::svg::{self, Point, Row};
use crate::ratio::{Spread, log_percent};
use crate::ring::metric::{self, Better, Metric};
use crate::ring::{Test, grid};
use crate::vpn::{NO_VPN, WARREN, WIREGUARD_GO};

/// Figures in a row beside a name, at most: as many as a laptop's screen shows.
const COLUMNS_MAX: usize = 8;

/// A part of the report.
#[derive(Debug, Default, Clone)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) paragraphs: Vec<String>,
    pub(crate) tables: Vec<Table>,
    /// SVG.
    pub(crate) charts: Vec<String>,
    /// Whether its tables are narrow: they then stand side by side.
    pub(crate) narrow: bool,
    /// A heading and a text as it was printed.
    pub(crate) logs: Vec<(String, String)>,
}

/// A table; each row has as many cells as the head.
#[derive(Debug, Default, Clone)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Whether it is for those who ask: folded away, or left out where nothing can be folded.
    pub(crate) is_folded: bool,
}

/// A cell.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// How good it is among its like: 1 is the best.
    pub(crate) heat: Option<f64>,
    /// A failure, or a requirement that does not hold.
    pub(crate) bad: bool,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The whole report, in order, behind what it says in short.
pub(crate) fn all(cells: &Cells<'_>) -> Vec<Section> {
    let mut sections = vec![overview(cells), required(cells)];
    sections.extend(Test::ALL.into_iter().filter_map(|test| one_test(cells, test)));
    sections.extend(over_grid(cells));
    sections.push(failures(cells));
    sections.push(facts(cells));
    sections.push(reading());
    sections
}

pub(crate) fn facts(cells: &Cells<'_>) -> Section {
    let note = cells.note;
    let facts = &note.facts;
    let settings = &note.settings;
    let mut paragraphs = vec![facts.command.clone()];
    let [one, five, fifteen] = facts.load_before;
    paragraphs.push(format!(
        "{}, commit {}. {}, {} cores, {}; load average before: {one} {five} {fifteen}. {}.",
        facts.date, facts.commit, facts.cpu, facts.cores, facts.kernel, facts.iperf3
    ));
    paragraphs.push(format!(
        "Three hosts are network namespaces of this one machine, on one wire that is a switch. \
         Each host's way out carries 1 Gbit/s, has a queue of 1000 packets, and the weather of \
         the profile, packet by packet. Offloads are off, and nothing above 1500 bytes enters. \
         Seed {}. {} s a transfer, CUBIC, {} of three links, {} rounds, peers in turn. Kernel \
         settings of the hosts: {}. All hosts and the wire share the machine's cores.",
        settings.seed, settings.seconds, settings.links, settings.rounds, settings.tuning
    ));
    if settings.https {
        paragraphs.push("Downloads come over HTTPS.".to_owned());
    }
    if settings.links > 1 {
        paragraphs.push(
            "Connect, parallel, reconnect, shared and the grid are measured once a round, all else \
             on each link: n stands with every figure."
                .to_owned(),
        );
    }
    let whole = |profile: &&String| crate::ring::takes_superpackets(profile);
    let whole: Vec<&str> = settings.profiles.iter().filter(whole).map(|p| p.as_str()).collect();
    if !whole.is_empty() {
        paragraphs.push(format!(
            "In {} superpackets of up to 64 KiB enter whole, are lost or delayed as one, and count \
             as one in the queue. No real wire does that; it is what netem does on an interface \
             with offloads.",
            whole.join(", ")
        ));
    }
    if !note.resumed.is_empty() {
        paragraphs.push(format!("Interrupted, and taken up again: {}.", note.resumed.join(", ")));
    }
    let head = ["peer", "version", "to know"].map(str::to_owned).to_vec();
    let row = |peer: &crate::ring::sample::Peer| {
        vec![Cell::text(&*peer.name), Cell::text(&*peer.version), Cell::text(&*peer.remark)]
    };
    let rows = note.peers.iter().map(row).collect();
    let mut tables =
        vec![Table { title: "Who took part".to_owned(), head, rows, ..Table::default() }];
    if !note.skipped.is_empty() {
        let head = ["skipped", "because", "to have it"].map(str::to_owned).to_vec();
        let row = |absent: &crate::ring::sample::Absent| {
            vec![Cell::text(&*absent.name), Cell::text(&*absent.why), Cell::text(&*absent.hint)]
        };
        let rows = note.skipped.iter().map(row).collect();
        tables.push(Table { title: "Who did not".to_owned(), head, rows, ..Table::default() });
    }
    Section { title: "This run".to_owned(), paragraphs, tables, ..Section::default() }
}

pub(crate) fn required(cells: &Cells<'_>) -> Section {
    let mut verdicts = claims::verdicts(cells);
    // What was measured comes first; else the order is kept.
    verdicts.sort_by_key(|verdict| verdict.holds.is_none());
    let count = |holds| verdicts.iter().filter(|verdict| verdict.holds == holds).count();
    let few = verdicts.iter().filter(|verdict| verdict.holds.is_some() && verdict.is_of_few());
    let paragraphs = vec![format!(
        "{} hold, {} do not hold, {} were not measured; {} of these verdicts rest on one or two \
         measurements, n says which, and such a one is no proof. Ratios are taken on the same link \
         in the same round, but of medians where a test of all links stands beside one of each; \
         medians decide. “Ourselves” asks what Warren requires of itself in bad weather. The \
         other rows are statements about a published comparison of nine VPNs, by their numbers in \
         docs/sources.md, where it is 002.5.",
        count(Some(true)),
        count(Some(false)),
        count(None),
        few.count()
    )];
    let row = |verdict: &claims::Verdict| {
        let said = match verdict.holds {
            Some(true) if verdict.is_of_few() => Cell::text("holds, once"),
            holds => self::verdict(holds),
        };
        vec![
            Cell::text(&*verdict.what),
            Cell::text(&*verdict.required),
            Cell::text(&*verdict.found),
            said,
            Cell::text(verdict.asked_by()),
        ]
    };
    let head = ["what", "required", "found", "verdict", "asked by"].map(str::to_owned).to_vec();
    let is_known =
        |verdict: &&claims::Verdict| verdict.holds.is_some() || !verdict.found.is_empty();
    let (known, unknown): (Vec<_>, Vec<_>) = verdicts.iter().partition(is_known);
    let found = Table {
        head: head.clone(),
        rows: known.into_iter().map(row).collect(),
        ..Table::default()
    };
    let missing = Table {
        title: "What was not measured".to_owned(),
        head,
        rows: unknown.into_iter().map(row).collect(),
        is_folded: true,
    };
    let title = "What is required".to_owned();
    Section { title, paragraphs, tables: vec![found, missing], ..Section::default() }
}

/// A heat map for each test: peers by profiles.
fn overview(cells: &Cells<'_>) -> Section {
    let mut tables = Vec::new();
    let tests = Test::ALL.into_iter().filter(|test| *test != Test::Shared);
    for (test, metric) in tests.flat_map(|test| shown(cells, test).map(move |m| (test, m))) {
        let profiles = cells.profiles(test);
        let mut head = vec!["peer".to_owned()];
        head.extend(profiles.iter().map(|profile| (*profile).to_owned()));
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for peer in cells.peers() {
            let mut row = vec![Cell::text(peer)];
            row.extend(profiles.iter().map(|profile| {
                let mut cell = value(cells, profile, test, peer, metric);
                cell.heat = heat(cells, profile, test, peer, metric);
                cell
            }));
            rows.push(row);
        }
        let title = format!("{}: {}, {}", test.title(), metric.title, metric.unit);
        tables.push(Table { title, head, rows, ..Table::default() });
    }
    let paragraphs = vec![
        "Medians over links and rounds; the colour compares within a profile, on a scale of \
         powers of ten, from the worst to the best."
            .to_owned(),
    ];
    let title = "Everything, by profile".to_owned();
    Section { title, paragraphs, tables, narrow: true, ..Section::default() }
}

/// What a test is about, where it was measured, and each way of what goes both ways.
fn shown(cells: &Cells<'_>, test: Test) -> impl Iterator<Item = &'static Metric> {
    let is_there = move |name: &str| {
        let mut profiles = cells.profiles(test).into_iter();
        profiles.any(|p| cells.peers().any(|peer| cells.spread(p, test, peer, name).is_some()))
    };
    let is_about = !cells.profiles(test).is_empty();
    let first = metric::named(primary(test)).filter(|_| is_about);
    let ways = ways(test).into_iter().filter(move |way| *way != primary(test) && is_there(way));
    first.into_iter().chain(ways.filter_map(metric::named))
}

/// A cell with a median, or the failure that forbids one.
pub(crate) fn value(
    cells: &Cells<'_>,
    profile: &str,
    test: Test,
    peer: &str,
    metric: &Metric,
) -> Cell {
    match cells.state(profile, test, peer) {
        State::Empty => Cell::text("–"),
        State::Failed(failed, of) => {
            Cell { text: format!("failed {failed} of {of}"), bad: true, heat: None }
        }
        State::Partial(n, of) => Cell::text(format!("{n} of {of} so far")),
        State::Whole(_) => match cells.spread(profile, test, peer, metric.name) {
            Some(spread) => Cell::text(number(spread.median)),
            None => Cell::text("–"),
        },
    }
}

/// Where a median lies between the worst (0) and the best (1) of its profile.
pub(crate) fn heat(
    cells: &Cells<'_>,
    profile: &str,
    test: Test,
    peer: &str,
    metric: &Metric,
) -> Option<f64> {
    let median = |peer| Some(cells.spread(profile, test, peer, metric.name)?.median);
    let all: Vec<f64> = cells.peers().filter_map(median).collect();
    Some(heat_of(median(peer)?, &all, metric.better))
}

fn one_test(cells: &Cells<'_>, test: Test) -> Option<Section> {
    let profiles = cells.profiles(test);
    if profiles.is_empty() {
        return None;
    }
    let mut section = Section { title: test.title().to_owned(), ..Section::default() };
    let first = primary(test);
    for profile in profiles {
        section.tables.extend(details(cells, profile, test, first));
        section.tables.extend(daemons(cells, profile, test));
        for metric in shown(cells, test) {
            section.charts.push(box_chart(cells, profile, test, metric));
        }
        for (x, y, title) in [
            ("forward_again_percent", FORTH, "retransmits against throughput, up"),
            ("back_again_percent", BACK, "retransmits against throughput, down"),
            ("loaded_rtt_mean_ms", FORTH, "latency under load against throughput, up"),
        ] {
            section.charts.push(plane(cells, profile, test, x, y, title));
        }
    }
    section.charts.retain(|chart| !chart.is_empty());
    Some(section)
}

/// Every figure of a test in a profile, the best peer first, failures last: what the test is about,
/// then all else in tables that a laptop shows.
fn details(cells: &Cells<'_>, profile: &str, test: Test, first: &str) -> Vec<Table> {
    let has = |metric: &&Metric| {
        cells.peers().any(|peer| cells.spread(profile, test, peer, metric.name).is_some())
    };
    let metrics: Vec<&Metric> = metric::METRICS.iter().filter(has).collect();
    let (about, rest): (Vec<&Metric>, Vec<&Metric>) = metrics
        .into_iter()
        .partition(|metric| metric.name == first || ways(test).contains(&metric.name));
    let peers = in_order(cells, profile, test, first);
    let mut tables = vec![about_table(cells, profile, test, about, &peers)];
    for (i, some) in rest.chunks(COLUMNS_MAX).enumerate() {
        let mut head = vec!["peer".to_owned()];
        head.extend(some.iter().map(|metric| format!("{}, {}", metric.title, metric.unit)));
        let row = |peer: &&str| {
            let mut row = vec![Cell::text(*peer)];
            row.extend(some.iter().map(|metric| {
                median(cells.spread(profile, test, peer, metric.name).map(|s| s.median))
            }));
            row
        };
        let more = if i == 0 { "what else was read" } else { "and more of it" };
        let rows = peers.iter().map(row).collect();
        // For those who ask: wide, and in `run.json` as well.
        tables.push(Table { title: format!("{profile}: {more}"), head, rows, is_folded: true });
    }
    tables
}

/// Those of whom anything is known, the best first.
fn in_order<'a>(cells: &Cells<'a>, profile: &str, test: Test, first: &str) -> Vec<&'a str> {
    let better = metric::named(first).map_or(Better::High, |metric| metric.better);
    let is_there = |peer: &&str| !matches!(cells.state(profile, test, peer), State::Empty);
    let mut peers: Vec<(&str, Option<f64>)> = cells
        .peers()
        .filter(is_there)
        .map(|peer| (peer, cells.spread(profile, test, peer, first).map(|s| s.median)))
        .collect();
    peers.sort_by(|(_, a), (_, b)| match (a, b) {
        (Some(a), Some(b)) if better == Better::High => b.total_cmp(a),
        (Some(a), Some(b)) => a.total_cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    peers.into_iter().map(|(peer, _)| peer).collect()
}

fn median(value: Option<f64>) -> Cell {
    Cell::text(value.map_or_else(|| "–".to_owned(), number))
}

/// The first figure with its spread and ratios, and the other directions with theirs.
fn about_table(
    cells: &Cells<'_>,
    profile: &str,
    test: Test,
    mut metrics: Vec<&Metric>,
    peers: &[&str],
) -> Table {
    metrics.sort_by_key(|metric| metric.name != primary(test));
    let mut head = vec!["peer".to_owned(), "n".to_owned()];
    for (i, metric) in metrics.iter().enumerate() {
        head.push(format!("{}, {}", metric.title, metric.unit));
        if i == 0 {
            let more = ["smallest", "largest", "÷ no VPN", "÷ wireguard-go", "log-change, log %"];
            head.extend(more.map(str::to_owned));
        } else {
            head.extend([NO_VPN, WIREGUARD_GO].map(|of| format!("÷ {of}, {}", metric.title)));
        }
    }
    let mut rows = Vec::new();
    for peer in peers {
        let count = match cells.state(profile, test, peer) {
            State::Empty => continue,
            State::Whole(n) => Cell::text(n.to_string()),
            State::Failed(failed, of) => {
                Cell { text: format!("failed {failed} of {of}"), bad: true, heat: None }
            }
            State::Partial(n, of) => Cell::text(format!("{n} of {of} so far")),
        };
        let mut row = vec![Cell::text(*peer), count];
        for (i, metric) in metrics.iter().enumerate() {
            let spread = cells.spread(profile, test, peer, metric.name);
            row.push(median(spread.map(|s| s.median)));
            let key = (profile, test, metric.name);
            let to = |other| cells.ratio(key, peer, other).map(|s| s.median);
            let bare = to(NO_VPN);
            let rival = to(WIREGUARD_GO);
            if i == 0 {
                row.push(median(spread.map(|s| s.min)));
                row.push(median(spread.map(|s| s.max)));
                row.extend([median(bare), median(rival), median(bare.and_then(log_percent))]);
            } else {
                row.extend([median(bare), median(rival)]);
            }
        }
        rows.push(row);
    }
    Table { title: profile.to_owned(), head, rows, ..Table::default() }
}

/// What each daemon took in transfers on the first link, in which the first host sends: the sum and
/// the largest stand in [`details`].
fn daemons(cells: &Cells<'_>, profile: &str, test: Test) -> Option<Table> {
    let link = crate::ring::LINKS[0].0;
    let mut rows = Vec::new();
    let mut most = 0;
    for peer in cells.peers() {
        let samples = cells.of(profile, test, peer).iter();
        let samples = samples.filter(|sample| sample.key.link == link && sample.failed.is_none());
        let all = |name: &str| -> Vec<&Vec<f64>> {
            samples.clone().filter_map(|sample| sample.series.get(name)).collect()
        };
        let cpu = all("daemons_cpu_s");
        let rss = all("daemons_rss_mib");
        let count = cpu.iter().chain(&rss).map(|each| each.len()).min().unwrap_or(0);
        let median = |all: &[&Vec<f64>], i: usize| {
            let of_one: Vec<f64> = all.iter().map(|each| each[i]).collect();
            Spread::of(&of_one).map_or_else(|| "–".to_owned(), |spread| number(spread.median))
        };
        let each = |i| [median(&cpu, i), median(&rss, i)].map(Cell::text);
        most = most.max(count);
        let row: Vec<Cell> = (0..count).flat_map(each).collect();
        rows.extend((count > 0).then(|| [vec![Cell::text(peer)], row].concat()));
    }
    let mut head = vec!["peer".to_owned()];
    for i in 1..=most {
        head.extend([format!("daemon {i}, s"), format!("daemon {i}, MiB")]);
    }
    for row in &mut rows {
        row.resize(head.len(), Cell::text("–"));
    }
    let title = format!("{profile}: processor time and memory of each daemon, {link}");
    // For those who ask: it is much, and says little.
    (most > 0).then_some(Table { title, head, rows, is_folded: true })
}

fn box_chart(cells: &Cells<'_>, profile: &str, test: Test, metric: &Metric) -> String {
    let row = |peer: &str| {
        // Round trips are shown each; of all else there is one value a measurement.
        let raw = cells.of(profile, test, peer).iter().filter_map(|s| s.series.get("rtt_us"));
        let raw: Vec<f64> = raw.flatten().map(|us| us / 1e3).collect();
        let whole = cells.values(profile, test, peer, metric.name).unwrap_or_default();
        let values = if raw.is_empty() || whole.is_empty() { whole } else { raw };
        Row { label: peer.to_owned(), values, marked: peer == WARREN }
    };
    let rows: Vec<Row> = cells.peers().map(row).collect();
    let title = match test {
        Test::Ping => "every round trip".to_owned(),
        _ => metric.title.to_owned(),
    };
    svg::boxes(&format!("{profile}: {title}"), metric.unit, &rows)
}

fn plane(cells: &Cells<'_>, profile: &str, test: Test, x: &str, y: &str, title: &str) -> String {
    let point = |peer: &str| {
        Some(Point {
            label: peer.to_owned(),
            x: cells.spread(profile, test, peer, x)?.median,
            y: cells.spread(profile, test, peer, y)?.median,
            marked: peer == WARREN,
        })
    };
    let points: Vec<Point> = cells.peers().filter_map(point).collect();
    let unit = metric::named(x).map_or("", |metric| metric.unit);
    svg::scatter(&format!("{profile}: {title}"), unit, "Mbit/s", &points)
}

/// Delay by loss, a table for each rate and peer.
fn over_grid(cells: &Cells<'_>) -> Option<Section> {
    if !cells.note.settings.grid {
        return None;
    }
    let title = Test::Grid.title().to_owned();
    let mut section = Section { title, narrow: true, ..Section::default() };
    section.paragraphs.push(
        "Mbit/s of one stream; delay one way, losses in bursts of four packets in the mean, a \
         queue of 20 ms and at least 32 packets. In brackets the ratio to no VPN in the same cell, \
         bytes on the wire for each that arrived, and, of several rounds, the smallest and the \
         largest."
            .to_owned(),
    );
    let profiles = grid::cells();
    let delays = grid::DELAYS_MS.len();
    let losses = grid::LOSSES.len();
    for (rate, at_rate) in grid::RATES_MBIT_S.iter().zip(profiles.chunks(delays * losses)) {
        for peer in cells.peers() {
            let mut head = vec!["delay".to_owned()];
            head.extend(grid::LOSSES.map(|loss| format!("{loss} % lost")));
            let mut rows = Vec::new();
            for (delay, at_delay) in grid::DELAYS_MS.iter().zip(at_rate.chunks(losses)) {
                let mut row = vec![Cell::text(format!("{delay} ms"))];
                let cell = |profile: &String| grid_cell(cells, profile, peer, f64::from(*rate));
                row.extend(at_delay.iter().map(cell));
                rows.push(row);
            }
            let title = match flow_s(cells, at_rate, peer) {
                0 => format!("{rate} Mbit/s: {peer}"),
                seconds => format!("{rate} Mbit/s: {peer}, flows of {seconds} s"),
            };
            section.tables.push(Table { title, head, rows, ..Table::default() });
        }
    }
    Some(section)
}

/// How long the flows of these cells were measured, seconds; zero where none was.
fn flow_s(cells: &Cells<'_>, profiles: &[String], peer: &str) -> usize {
    let samples = profiles.iter().flat_map(|profile| cells.of(profile, Test::Grid, peer));
    let series = samples.filter_map(|sample| sample.series.get("forward_seconds_mbit_s"));
    series.map(Vec::len).max().unwrap_or(0)
}

fn grid_cell(cells: &Cells<'_>, profile: &str, peer: &str, rate: f64) -> Cell {
    let Some(metric) = metric::named(primary(Test::Grid)) else { return Cell::default() };
    let mut cell = value(cells, profile, Test::Grid, peer, metric);
    let Some(spread) = cells.spread(profile, Test::Grid, peer, metric.name) else { return cell };
    cell.heat = Some((spread.median / rate).clamp(0.0, 1.0));
    let key = (profile, Test::Grid, metric.name);
    let mut more = Vec::new();
    if let Some(ratio) = cells.ratio(key, peer, NO_VPN).filter(|_| peer != NO_VPN) {
        more.push(format!("{}×", number(ratio.median)));
    }
    if let Some(bytes) = cells.spread(profile, Test::Grid, peer, "wire_bytes_per_byte") {
        more.push(format!("{:.2} bytes", bytes.median));
    }
    if spread.n > 1 {
        more.push(format!("{} to {}", number(spread.min), number(spread.max)));
    }
    if !more.is_empty() {
        cell.text += &format!(" ({})", more.join("; "));
    }
    cell
}

/// Whether a bound holds, if it is known.
pub(crate) fn verdict(holds: Option<bool>) -> Cell {
    let said = match holds {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "not measured",
    };
    Cell { text: said.to_owned(), bad: holds == Some(false), heat: None }
}

pub(crate) fn failures(cells: &Cells<'_>) -> Section {
    let mut section = Section { title: "What failed".to_owned(), ..Section::default() };
    for (sample, why) in cells.failures() {
        let key = &sample.key;
        let heading = format!(
            "{}: {}, {}, {}, round {}",
            key.peer, key.profile, key.test, key.link, key.round
        );
        section.logs.push((heading, why.to_owned()));
    }
    let busy = |sample: &&crate::ring::sample::Sample| sample.load_before > 2.0;
    let said = match section.logs.len() {
        0 => "Nothing failed.".to_owned(),
        n => format!("{n} of {} measurements. None is in any median above.", cells.samples.len()),
    };
    section.paragraphs.push(said);
    let during = cells.samples.iter().filter(busy).count();
    if during > 0 {
        section.paragraphs.push(format!(
            "Before {during} of {} measurements the load average was above 2: other programs may \
             have taken part.",
            cells.samples.len()
        ));
    }
    section
}

pub(crate) fn reading() -> Section {
    let paragraphs = [
        "Mbit/s is 10^6 bits of payload a second, by the receiver's count. GB is 10^9 bytes. \
         Retransmits are the sending kernel's count of segments; their share is of segments of \
         1448 bytes. Round trips are in milliseconds.",
        "Processor time of daemons is user and system time of all their processes on all hosts; \
         that of the machine is all that was busy, less the wire, and includes iperf3 and whatever \
         else ran. Kernel data paths have no process and show only there.",
        "Bytes on the wire are what the sender's host put there, each frame with 38 bytes of \
         Ethernet, divided by the payload that arrived: 1.06 is what plain TCP takes.",
        "Log-change is 100 ln(y/x) against no VPN, of source 000: −69 is half, +69 is double.",
        "UDP is offered without pace, between hosts whose cards carry as much as the line and push \
         back when they are full: the sender starves daemons of processor time where they do not. \
         Loss is against what was really sent.",
        "Quality is what ristreceiver says of each second, without what follows the point, and its \
         mean: what comes late or in disorder lowers it, too. Frames are compared byte by byte.",
        "A download has one time limit for everybody, 300 s. The first connection is counted from \
         just before the last host's start, the reconnect from the link's return; a probe \
         takes some 5 ms, a lost one 50 ms.",
    ];
    let title = "How to read it".to_owned();
    Section { title, paragraphs: paragraphs.map(str::to_owned).to_vec(), ..Section::default() }
}
