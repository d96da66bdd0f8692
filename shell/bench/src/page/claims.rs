//! What is required of Warren in bad weather, and whether a run shows it.
//!
//! A verdict is one of three: it holds, it does not hold, it was not measured. A cell with a
//! failure never lets anything hold.

use super::cells::{Cells, State};
use super::sections::{BACK, FORTH};
use crate::ratio::{Percentile, Spread};
use crate::ring::metric::{self, Better, METRICS, Metric};
use crate::ring::{BASELINE, SLOW_LINE, SLOW_RING, Test, grid};
use crate::verdict::Bound;
use crate::vpn::{EASYTIER_KCP, NO_VPN, WARREN, WARREN_PLAIN, WIREGUARD_GO};

/// One line of the table of requirements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// Where it is required: `bound`, or the number of a statement of source 002.
    pub(crate) of: &'static str,
    pub(crate) what: String,
    pub(crate) required: String,
    pub(crate) found: String,
    /// None where it was not measured.
    pub(crate) holds: Option<bool>,
    /// How many measurements it rests on; 0 where that is nothing to be counted.
    pub(crate) n: usize,
}

impl Verdict {
    /// Whether it rests on fewer measurements than a claim takes.
    pub(crate) fn is_of_few(&self) -> bool {
        (1..crate::ring::HONEST_COUNT as usize).contains(&self.n)
    }

    /// What was found counts as not measured, where it does not hold and this is why.
    fn unless(mut self, why: Option<String>) -> Self {
        if let (Some(false), Some(why)) = (self.holds, why) {
            self.holds = None;
            self.found += &format!("; {why}");
        }
        self
    }
}

const CLEAN: &str = BASELINE;
const BAD: [&str; 3] = ["low", "medium", "high"];
const ALL: [&str; 4] = [CLEAN, "low", "medium", "high"];
const RATE: &str = FORTH;
/// Each direction alone: what holds forth need not hold back.
const RATES: [&str; 2] = [RATE, BACK];
/// What a byte costs on the wire.
const BYTES: &str = "wire_bytes_per_byte";
/// Share of the processors' time from which on they decide how quick something is, not the line.
const BUSY_PERCENT: f64 = 80.0;
/// What two runs of the same thing differ by; a bound of "no less" or "no more" allows it.
const NOISE: f64 = 0.01;

/// Each of these profiles with each direction.
fn both_ways(profiles: &[&'static str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    profiles.iter().flat_map(|profile| RATES.map(|rate| (*profile, rate)))
}

/// Every verdict on a run.
pub(crate) fn verdicts(cells: &Cells<'_>) -> Vec<Verdict> {
    let mut all = bounds(cells);
    all.extend(statements(cells));
    all
}

fn bounds(cells: &Cells<'_>) -> Vec<Verdict> {
    use Bound::{AtLeast, AtMost};
    let judge = Judge { cells, of: "bound" };
    let mut all = Vec::new();
    for rate in RATES {
        all.push(judge.ratio(CLEAN, Test::Tcp, rate, WARREN_PLAIN, AtLeast(0.98)));
        for (profile, least) in BAD.into_iter().zip([800.0, 600.0, 400.0]) {
            all.push(judge.value(profile, Test::Tcp, rate, AtLeast(least)));
        }
        for (profile, least) in ALL.into_iter().zip([1.0 - NOISE, 12.0, 80.0, 100.0]) {
            all.push(judge.ratio(profile, Test::Tcp, rate, WIREGUARD_GO, AtLeast(least)));
        }
    }
    for (profile, rate) in both_ways(&BAD) {
        all.push(judge.ratio(profile, Test::Tcp, rate, EASYTIER_KCP, AtLeast(1.7)));
    }
    for profile in BAD {
        for test in [Test::Udp, Test::Flood] {
            all.push(judge.ratio(profile, test, RATE, EASYTIER_KCP, AtLeast(1.7)));
        }
    }
    for profile in BAD {
        for test in [Test::Tcp, Test::Udp, Test::Flood] {
            all.push(judge.value(profile, test, BYTES, AtMost(1.35)));
        }
    }
    for (profile, rate) in both_ways(&ALL) {
        all.push(judge.six(profile, rate));
    }
    for profile in ALL {
        all.push(judge.slowest(profile, NO_VPN, 1.0));
    }
    // Bundles hold a packet for 200 µs at most (BC-05).
    all.push(judge.slowest(CLEAN, WARREN_PLAIN, 0.2));
    for theirs in [WIREGUARD_GO, NO_VPN] {
        let most = AtMost((1.0f64 / 3.0 * 1e3).round() / 1e3);
        all.push(judge.ratio("medium", Test::Download, "download_s", theirs, most));
    }
    all.push(judge.grid(0.9));
    all.push(judge.grid_bytes(1.35));
    all.push(judge.grid_overhead(1.0 + NOISE));
    all.push(judge.memory(40.0));
    let shared = crate::ring::BOTTLENECK;
    for share in ["inside_percent", "outside_percent"] {
        all.push(judge.value(shared, Test::Shared, share, AtLeast(40.0)));
    }
    // The queue counts what it drops of both flows; the outer one's own are what it sends again.
    for drops in ["outside_retransmits", "queue_drops"] {
        all.push(judge.counted(shared, Test::Shared, drops, WARREN_PLAIN, 1.1));
    }
    for test in [Test::Tcp, Test::Udp, Test::Flood] {
        all.push(judge.ratio(CLEAN, test, BYTES, WIREGUARD_GO, AtMost(1.0 + NOISE)));
    }
    for what in [
        "CPU-limited veth: throughput ≥ 2 × wireguard-go, CPU per GB ≤ 0.4 ×",
        "veth, offloads off: throughput ≥ 1.5 × wireguard-go, CPU per GB ≤ 0.6 ×",
    ] {
        all.push(judge.elsewhere(what, "measured by `warren bench link`"));
    }
    all
}

fn statements(cells: &Cells<'_>) -> Vec<Verdict> {
    use Bound::{AtLeast, AtMost};
    let of = |of: &'static str| Judge { cells, of };
    let mut all = vec![
        of("002.5 (1)").everything(),
        of("002.5 (2)").completes(&Test::ALL, "all tests in all profiles, on three of three links"),
        of("002.5 (3)").failures_are_in_no_median(),
        of("002.5 (4)").packets(),
        of("002.5 (5)").ratio(CLEAN, Test::Tcp, RATE, WIREGUARD_GO, AtLeast(1.0 - NOISE)),
        of("002.5 (5)").value(CLEAN, Test::Tcp, "forward_retransmits", AtMost(109.0)),
        of("002.5 (5)").above(CLEAN, Test::Ping, "rtt_mean_ms", NO_VPN, 0.6),
    ];
    for (profile, rate) in both_ways(&BAD) {
        all.push(of("002.5 (6)").beats_all(profile, rate));
    }
    for profile in ALL.into_iter().chain([SLOW_RING]) {
        let least = if BAD.contains(&profile) { 1.0 } else { 1.48 };
        all.push(of("002.5 (7)").parallel(profile, least));
    }
    all.push(of("002.5 (8)").value(CLEAN, Test::Udp, "lost_percent", AtMost(0.05)));
    all.push(of("002.5 (12)").completes(&[Test::Download], "the download in all profiles"));
    // The source's takes 8.5 s without a VPN, and is the second one.
    for (profile, metric) in [(CLEAN, "long_download_s"), (SLOW_LINE, "download_s")] {
        all.push(of("002.5 (12)").overhead((profile, Test::Download, metric), AtMost(1.073)));
    }
    for profile in ALL {
        all.push(of("002.5 (13)").loaded(profile));
    }
    all.push(of("002.5 (14)").value(CLEAN, Test::Connect, "connect_ms", AtMost(50.0)));
    all.push(of("002.5 (14)").above(CLEAN, Test::Reconnect, "reconnect_s", NO_VPN, 1.0));
    all.push(of("002.5 (17)").elsewhere(
        "kernel tuning is one switch and shows the table's direction",
        "`bench run --tuning reorder`, set beside this run by `bench compare`",
    ));
    all
}

/// Why a value that is above `most` by less than twice its error says nothing.
fn chance(value: f64, error: f64, most: f64, unit: &str) -> Option<String> {
    let text = || format!("chance alone makes ± {}{unit} of it", super::number(error));
    (value - 2.0 * error <= most).then(text)
}

/// Judges Warren's cells.
struct Judge<'a> {
    cells: &'a Cells<'a>,
    of: &'static str,
}

impl Judge<'_> {
    /// A verdict from what was found; failures decide where nothing could be found.
    fn verdict(
        &self,
        what: String,
        required: String,
        found: Option<(Spread, &str, bool)>,
        cells: &[(&str, Test, &str)],
    ) -> Verdict {
        let of = self.of;
        if let Some((spread, unit, holds)) = found {
            let found = format!("{} {unit}", spread_text(spread));
            return Verdict { of, what, required, found, holds: Some(holds), n: spread.n };
        }
        let states = cells
            .iter()
            .map(|(profile, test, peer)| (peer, self.cells.state(profile, *test, peer)));
        let failed = states.filter_map(|(peer, state)| match state {
            State::Failed(failed, of) => Some((*peer, format!("{peer} failed {failed} of {of}"))),
            _ => None,
        });
        let failed: Vec<(&str, String)> = failed.collect();
        // A rival's failure leaves nothing to compare with; ours is ours.
        let holds = failed.iter().any(|(peer, _)| *peer == WARREN).then_some(false);
        let found: Vec<String> = failed.into_iter().map(|(_, text)| text).collect();
        Verdict { of, what, required, found: found.join("; "), holds, n: 0 }
    }

    fn value(&self, profile: &str, test: Test, metric: &str, bound: Bound) -> Verdict {
        let (title, unit) = describe(metric);
        let found = self.cells.spread(profile, test, WARREN, metric);
        let found = found.map(|spread| (spread, unit, bound.holds(spread.median)));
        let what = format!("{profile}, {}: {title}", test.word());
        self.verdict(what, format!("{bound} {unit}"), found, &[(profile, test, WARREN)])
    }

    fn ratio(
        &self,
        profile: &str,
        test: Test,
        metric: &str,
        theirs: &str,
        bound: Bound,
    ) -> Verdict {
        let found = self.cells.ratio((profile, test, metric), WARREN, theirs);
        let found = found.map(|spread| (spread, "×", bound.holds(spread.median)));
        let (title, _) = describe(metric);
        let what = format!("{profile}, {}: {title}, {WARREN} ÷ {theirs}", test.word());
        let cells = [(profile, test, WARREN), (profile, test, theirs)];
        self.verdict(what, format!("{bound} ×"), found, &cells)
    }

    /// What is counted in all rounds, beside theirs: events of which a round has some dozens say
    /// little round by round. Where it does not hold, but by less than twice what chance makes of
    /// two such counts (Poisson; losses come in company, so it is rather more), that was not
    /// measured.
    fn counted(&self, profile: &str, test: Test, metric: &str, theirs: &str, most: f64) -> Verdict {
        let sum = |peer| Some(self.cells.values(profile, test, peer, metric)?.iter().sum::<f64>());
        let rounds = self.cells.ratio((profile, test, metric), WARREN, theirs);
        let counts = sum(WARREN).zip(sum(theirs)).filter(|(_, theirs)| *theirs > 0.0);
        let ratio = counts.map(|(ours, theirs)| {
            let ratio = ours / theirs;
            (ratio, ratio * (1.0 / ours.max(1.0) + 1.0 / theirs).sqrt())
        });
        let found = ratio
            .zip(rounds)
            .map(|((ratio, _), rounds)| (Spread { median: ratio, ..rounds }, "×", ratio <= most));
        let (title, _) = describe(metric);
        let what = format!("{profile}, {}: {title}, in all, {WARREN} ÷ {theirs}", test.word());
        let cells = [(profile, test, WARREN), (profile, test, theirs)];
        let chance = ratio.and_then(|(ratio, error)| chance(ratio, error, most, ""));
        self.verdict(what, format!("≤ {most} ×"), found, &cells).unless(chance)
    }

    /// What a download takes longer than without a VPN. Where that is too long, but the processors,
    /// which all hosts share, had no time left, and wireguard-go took longer still, it is the
    /// machine that was measured; a lower rate tells.
    fn overhead(&self, cell: (&str, Test, &str), bound: Bound) -> Verdict {
        let (profile, test, metric) = cell;
        let verdict = self.ratio(profile, test, metric, NO_VPN, bound);
        verdict.unless(self.processors_decide(cell))
    }

    /// What says that the processors, which all hosts share, decided what was found and not the
    /// line: they had no time left, and wireguard-go did worse still.
    fn processors_decide(&self, cell: (&str, Test, &str)) -> Option<String> {
        let (profile, test, name) = cell;
        let busy = self.cells.spread(profile, test, WARREN, "busy_percent")?.median;
        let ratio = self.cells.ratio(cell, WARREN, WIREGUARD_GO)?.median;
        let is_better = match metric::named(name)?.better {
            Better::Low => ratio < 1.0,
            Better::High => ratio > 1.0,
        };
        (busy >= BUSY_PERCENT && is_better).then(|| {
            let percent = super::number(busy);
            format!("the processors were busy for {percent} % of it and decide")
        })
    }

    /// The median is at most `more` above theirs.
    fn above(&self, profile: &str, test: Test, metric: &str, theirs: &str, more: f64) -> Verdict {
        let (title, unit) = describe(metric);
        let both = self
            .cells
            .spread(profile, test, WARREN, metric)
            .zip(self.cells.spread(profile, test, theirs, metric));
        let found = both.map(|(ours, theirs)| {
            let apart = ours.median - theirs.median;
            (Spread { median: apart, min: apart, max: apart, n: ours.n }, unit, apart <= more)
        });
        let what = format!("{profile}, {}: {title}, {WARREN} above {theirs}", test.word());
        let cells = [(profile, test, WARREN), (profile, test, theirs)];
        self.verdict(what, format!("≤ {more} {unit}"), found, &cells)
    }

    /// The slowest in a hundred pings of all links together are at most `more` ms behind theirs.
    /// Where they are, but by less than twice what chance makes, that was not measured.
    fn slowest(&self, profile: &str, theirs: &str, more: f64) -> Verdict {
        let of = |peer: &str| {
            let times = self.cells.series(profile, Test::Ping, peer, "rtt_us")?;
            Some((Percentile::of(&times, 0.99)?, times.len()))
        };
        let apart = of(WARREN).zip(of(theirs)).map(|((ours, n), (theirs, _))| {
            let error_us = ours.error.hypot(theirs.error);
            ((ours.value - theirs.value) / 1e3, error_us / 1e3, n)
        });
        let found =
            apart.map(|(ms, _, n)| (Spread { median: ms, min: ms, max: ms, n }, "ms", ms <= more));
        let what =
            format!("{profile}, ping: {}, {WARREN} above {theirs}", describe("rtt_p99_ms").0);
        let cells = [(profile, Test::Ping, WARREN), (profile, Test::Ping, theirs)];
        let chance = apart.and_then(|(ms, error_ms, _)| chance(ms, error_ms, more, " ms"));
        self.verdict(what, format!("≤ {more} ms"), found, &cells).unless(chance)
    }

    /// Six streams carry no less than one.
    fn six(&self, profile: &str, rate: &str) -> Verdict {
        let one = self.cells.spread(profile, Test::Tcp, WARREN, rate);
        let six = self.cells.spread(profile, Test::Six, WARREN, rate);
        let found = one.zip(six).map(|(one, six)| {
            let ratio = six.median / one.median;
            let spread = Spread { median: ratio, min: ratio, max: ratio, n: six.n };
            (spread, "×", ratio >= 1.0 - NOISE)
        });
        let what = format!("{profile}: six streams ÷ one, {}, {WARREN}", describe(rate).0);
        let cells = [(profile, Test::Six, WARREN), (profile, Test::Tcp, WARREN)];
        self.verdict(what, format!("≥ {} ×", 1.0 - NOISE), found, &cells)
    }

    /// Parallel flows on three links against both directions on one. Where no VPN has no more of
    /// it, or the processors had no time left and wireguard-go had less still, it is the machine
    /// that was measured; a lower rate tells.
    fn parallel(&self, profile: &str, least: f64) -> Verdict {
        let factor = |peer: &str| {
            let one = self.cells.spread(profile, Test::Both, peer, "sum_mbit_s")?;
            let all = self.cells.spread(profile, Test::Parallel, peer, "sum_mbit_s")?;
            let ratio = all.median / one.median;
            Some(Spread { median: ratio, min: ratio, max: ratio, n: all.n })
        };
        let found = factor(WARREN).map(|spread| (spread, "×", spread.median >= least));
        let what = format!("{profile}: six flows on three links ÷ two on one, {WARREN}");
        let cells = [(profile, Test::Parallel, WARREN), (profile, Test::Both, WARREN)];
        let verdict = self.verdict(what, format!("≥ {least} ×"), found, &cells);
        let bare = factor(NO_VPN).filter(|bare| bare.median < least);
        let verdict = verdict.unless(bare.map(|bare| {
            format!("without a VPN {} ×: the processors decide", super::number(bare.median))
        }));
        verdict.unless(self.processors_decide((profile, Test::Parallel, "sum_mbit_s")))
    }

    /// A round trip under load against the idle wire's.
    fn loaded(&self, profile: &str) -> Verdict {
        let loaded = self.cells.spread(profile, Test::Tcp, WARREN, "loaded_rtt_mean_ms");
        let idle = self.cells.spread(profile, Test::Ping, NO_VPN, "rtt_mean_ms");
        let found = loaded.zip(idle).map(|(loaded, idle)| {
            let apart = loaded.median - idle.median;
            let spread = Spread { median: apart, min: apart, max: apart, n: loaded.n };
            (spread, "ms", apart < 10.0)
        });
        let what = format!("{profile}: round trip under load above the idle wire's");
        let cells = [(profile, Test::Tcp, WARREN), (profile, Test::Ping, NO_VPN)];
        self.verdict(what, "< 10 ms".to_owned(), found, &cells)
    }

    fn beats_all(&self, profile: &str, key: &str) -> Verdict {
        let others = self.cells.peers().filter(|peer| ![WARREN, WARREN_PLAIN].contains(peer));
        let mut best: Option<(f64, &str)> = None;
        let mut missing = Vec::new();
        for peer in others {
            match self.cells.spread(profile, Test::Tcp, peer, key) {
                Some(spread) if best.is_none_or(|(rate, _)| spread.median > rate) => {
                    best = Some((spread.median, peer));
                }
                Some(_) => {}
                None => missing.push(peer),
            }
        }
        let ours = self.cells.spread(profile, Test::Tcp, WARREN, key);
        let found = ours.zip(best).map(|(ours, (rate, _))| {
            let ratio = ours.median / rate;
            let spread = Spread { median: ratio, min: ratio, max: ratio, n: ours.n };
            (spread, "×", ratio > 1.0)
        });
        let best = best.map_or("the best other", |(_, peer)| peer);
        let without = match missing.is_empty() {
            true => String::new(),
            false => format!(" (without {}, which failed or is missing)", missing.join(", ")),
        };
        let way = describe(key).0;
        let what =
            format!("{profile}, tcp: {way}, {WARREN} ÷ {best}, the best of all others{without}");
        self.verdict(what, "> 1 ×".to_owned(), found, &[(profile, Test::Tcp, WARREN)])
    }

    /// The cell of the grid where Warren is worst beside no VPN. Where no VPN fills a line, headers
    /// alone take up to 8 % of it.
    fn grid(&self, least: f64) -> Verdict {
        let profiles = grid();
        let all = profiles.iter().filter_map(|profile| {
            let ratio = self.cells.ratio((profile, Test::Grid, RATE), WARREN, NO_VPN)?;
            Some((ratio, profile))
        });
        let worst = all.min_by(|(a, _), (b, _)| a.median.total_cmp(&b.median));
        let what = format!("{}, {WARREN} ÷ {NO_VPN}", describe(RATE).0);
        self.worst_of_grid(&what, Bound::AtLeast(least), worst, "")
    }

    /// The cell of the grid where Warren sends most for what arrives.
    fn grid_bytes(&self, most: f64) -> Verdict {
        let profiles = grid();
        let spread = |profile: &str| self.cells.spread(profile, Test::Grid, WARREN, BYTES);
        let all: Vec<_> = profiles.iter().filter_map(|p| Some((spread(p)?, p))).collect();
        let above = all.iter().filter(|(spread, _)| spread.median > most).count();
        let more = format!("; {above} of {} cells are above", all.len());
        let worst = all.into_iter().max_by(|(a, _), (b, _)| a.median.total_cmp(&b.median));
        let what = format!("{}, {WARREN}", describe(BYTES).0);
        self.worst_of_grid(&what, Bound::AtMost(most), worst, &more)
    }

    /// The cell without loss where frames cost most beside plain WireGuard's datagrams.
    fn grid_overhead(&self, most: f64) -> Verdict {
        let profiles = grid();
        let clear = profiles.iter().filter(|profile| profile.contains("loss=0%"));
        let all = clear.filter_map(|profile| {
            let key = (profile.as_str(), Test::Grid, BYTES);
            Some((self.cells.ratio(key, WARREN, WARREN_PLAIN)?, profile))
        });
        let worst = all.max_by(|(a, _), (b, _)| a.median.total_cmp(&b.median));
        let what = format!("{} without loss, {WARREN} ÷ {WARREN_PLAIN}", describe(BYTES).0);
        self.worst_of_grid(&what, Bound::AtMost(most), worst, "")
    }

    /// Whether the grid's worst cell holds what is required; `more` is to be said of all.
    fn worst_of_grid(
        &self,
        what: &str,
        bound: Bound,
        worst: Option<(Spread, &String)>,
        more: &str,
    ) -> Verdict {
        let found = worst.map(|(spread, _)| (spread, "×", bound.holds(spread.median)));
        let profiles = grid();
        let cells: Vec<_> = profiles.iter().map(|p| (p.as_str(), Test::Grid, WARREN)).collect();
        let what = format!("grid: {what}, in the worst cell");
        let mut verdict = self.verdict(what, format!("{bound} ×"), found, &cells);
        if let Some((_, profile)) = worst {
            verdict.found += &format!(" at {profile}{more}");
        }
        verdict
    }

    fn memory(&self, mib: f64) -> Verdict {
        let ours = self.cells.samples.iter().filter(|sample| sample.key.peer == WARREN);
        let all: Vec<f64> =
            ours.filter_map(|sample| sample.metrics.get("rss_mib")).copied().collect();
        let found = Spread::of(&all).map(|spread| (spread, "MiB", spread.max <= mib));
        let what = "largest daemon of Warren after any load (the largest decides)".to_owned();
        self.verdict(what, format!("≤ {mib} MiB"), found, &[])
    }

    /// Whether Warren got through these tests in all profiles.
    fn completes(&self, tests: &[Test], what: &str) -> Verdict {
        let settings = &self.cells.note.settings;
        let (mut failed, mut whole, mut missing) = (Vec::new(), 0, 0);
        for test in tests {
            let profiles: &[&str] =
                if *test == Test::Shared { &[crate::ring::BOTTLENECK] } else { &ALL };
            for profile in profiles {
                match self.cells.state(profile, *test, WARREN) {
                    State::Whole(_) if settings.links == 3 => whole += 1,
                    State::Failed(n, of) => {
                        failed.push(format!("{profile}, {}: {n} of {of}", test.word()));
                    }
                    _ => missing += 1,
                }
            }
        }
        let holds = match (failed.len(), missing) {
            (0, 0) => Some(true),
            (0, _) => None,
            _ => Some(false),
        };
        let found = match failed.is_empty() {
            true => format!("{whole} whole, {missing} not measured on three links"),
            false => format!("failed: {}", failed.join("; ")),
        };
        let what = format!("{WARREN} completes {what}");
        Verdict { of: self.of, what, required: "no failure".to_owned(), found, holds, n: 0 }
    }

    fn everything(&self) -> Verdict {
        let settings = &self.cells.note.settings;
        let profiles = ALL.iter().filter(|p| settings.profiles.iter().any(|s| s == *p)).count();
        let tests = settings.tests.len();
        let (peers, links) = (self.cells.note.peers.len(), settings.links);
        let whole = profiles == 4 && tests == Test::ALL.len() && links == 3;
        Verdict {
            of: self.of,
            what: "one command, three hosts, four profiles, all tests, installed rivals".to_owned(),
            required: format!("4 profiles, {} tests, 3 links", Test::ALL.len()),
            found: format!("{profiles} profiles, {tests} tests, {links} links, {peers} peers"),
            holds: whole.then_some(true),
            n: 0,
        }
    }

    fn packets(&self) -> Verdict {
        // A link that is cut refuses what is sent meanwhile.
        let by_packet = |sample: &&crate::ring::sample::Sample| {
            !crate::ring::takes_superpackets(&sample.key.profile)
                && sample.key.test != Test::Reconnect.word()
        };
        let samples = self.cells.samples.iter().filter(by_packet);
        let wires: Vec<_> = samples.filter_map(|sample| sample.wire).collect();
        let offered: u64 = wires.iter().map(|wire| wire.offered).sum();
        let failed: u64 = wires.iter().map(|wire| wire.failed).sum();
        Verdict {
            of: self.of,
            what: "the wire's model counts wire packets; nothing larger enters".to_owned(),
            required: "0 refused".to_owned(),
            found: format!("{offered} frames, {failed} refused"),
            holds: (offered > 0).then_some(failed == 0),
            n: 0,
        }
    }

    /// Asked of the cells as the tables ask them.
    fn failures_are_in_no_median(&self) -> Verdict {
        let (mut failed, mut counted) = (0, 0);
        for test in Test::ALL.into_iter().chain([Test::Grid]) {
            for profile in self.cells.profiles(test) {
                let has_failed = |peer: &&str| {
                    matches!(self.cells.state(profile, test, peer), State::Failed(..))
                };
                for peer in self.cells.peers().filter(has_failed) {
                    let has = |m: &Metric| self.cells.spread(profile, test, peer, m.name).is_some();
                    failed += 1;
                    counted += usize::from(METRICS.iter().any(has));
                }
            }
        }
        Verdict {
            of: self.of,
            what: "failures are in no median".to_owned(),
            required: "0 medians over a failure".to_owned(),
            found: format!("{failed} cells with a failure, {counted} of them with a median"),
            holds: Some(counted == 0),
            n: 0,
        }
    }

    fn elsewhere(&self, what: &str, found: &str) -> Verdict {
        let (of, required) = (self.of, String::new());
        Verdict { of, what: what.to_owned(), required, found: found.to_owned(), holds: None, n: 0 }
    }
}

fn describe(metric: &str) -> (&'static str, &'static str) {
    metric::named(metric).map_or(("", ""), |metric| (metric.title, metric.unit))
}

fn spread_text(spread: Spread) -> String {
    let number = super::number;
    match spread.min == spread.max {
        true => format!("{} (n = {})", number(spread.median), spread.n),
        false => format!(
            "{} ({} to {}, n = {})",
            number(spread.median),
            number(spread.min),
            number(spread.max),
            spread.n
        ),
    }
}

#[cfg(test)]
mod tests;
