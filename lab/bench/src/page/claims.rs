//! Requirements on Warren in bad weather, and whether a run meets them.
//!
//! A verdict is one of three: it holds, it does not hold, it was not measured. A cell with a
//! failure never lets anything hold.

use super::cells::{BACK, Cells, FORTH, State};
use crate::ratio::{Percentile, Spread};
use crate::ring::metric::{self, Better};
use crate::ring::{BASELINE, SLOW_LINE, SLOW_RING, Test};
use crate::row::Bound;
use crate::vpn::{EASYTIER_KCP, NO_VPN, WARREN, WARREN_NETWORK, WARREN_PLAIN, WIREGUARD_GO};

mod whole;
mod worst;

/// One line of the table of requirements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// Where it is required: [`OURSELVES`], or the number of a statement of source 002.
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
    /// Who requires it, for people.
    pub(crate) fn asked_by(&self) -> String {
        let number = self.of.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        number.map_or_else(|| "ourselves".to_owned(), |number| format!("comparison, no. {number}"))
    }

    /// Whether it rests on fewer measurements than a claim takes.
    pub(crate) fn is_of_few(&self) -> bool {
        (1..crate::ring::HONEST_COUNT as usize).contains(&self.n)
    }

    /// Where what was found, with its error, is within twice that of the bound: says so, and does
    /// not let it fail.
    fn with_chance(mut self, found: Option<(f64, f64)>, most: f64, unit: &str) -> Self {
        let within = found.filter(|(value, error)| (value - most).abs() <= 2.0 * error);
        if let Some((_, error)) = within {
            let error = super::number(error);
            self.found += &format!("; chance alone makes ± {error}{unit} of it");
            self.holds = self.holds.filter(|holds| *holds);
        }
        self
    }

    /// What was found counts as not measured, where it holds, or does not, as `holds` has it, and
    /// this is why that says nothing.
    fn void(mut self, holds: bool, why: Option<String>) -> Self {
        if let Some(why) = why.filter(|_| self.holds == Some(holds)) {
            self.holds = None;
            self.found += &format!("; {why}");
        }
        self
    }
}

/// What Warren requires of itself in bad weather.
pub(crate) const OURSELVES: &str = "bound";
/// Nobody's rivals.
const OURS: [&str; 3] = [WARREN, WARREN_PLAIN, WARREN_NETWORK];
const CLEAN: &str = BASELINE;
const BAD: [&str; 3] = ["low", "medium", "high"];
const ALL: [&str; 4] = [CLEAN, "low", "medium", "high"];
const RATE: &str = FORTH;
/// Each direction alone: what holds up need not hold down.
const RATES: [&str; 2] = [RATE, BACK];
/// What a byte costs on the wire.
const BYTES: &str = "wire_bytes_per_byte";
/// Share of the processors' time from which on they decide how quick something is, not the line.
const BUSY_PERCENT: f64 = 80.0;
/// Transfers of the source from which a count of segments comes.
const SOURCE_SECONDS: u32 = 30;
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
    let judge = Judge { cells, of: OURSELVES };
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
        all.push(judge.ratio(profile, Test::Quic, rate, NO_VPN, AtLeast(5.0)));
    }
    for profile in BAD {
        for rate in RATES {
            all.push(judge.ratio(profile, Test::Udp, rate, EASYTIER_KCP, AtLeast(1.7)));
        }
        all.push(judge.ratio(profile, Test::Flood, RATE, EASYTIER_KCP, AtLeast(1.7)));
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
    all.push(judge.grid_goodput(0.9));
    // Repair may be a half of what it repairs, and headers are up to 6 % of a packet and more of
    // what opens and answers.
    all.push(judge.grid_bytes(1.6, 1.35));
    all.push(judge.grid_overhead(1.0 + NOISE));
    all.push(judge.memory(40.0));
    let shared = crate::ring::BOTTLENECK;
    for share in ["inside_percent", "outside_percent"] {
        all.push(judge.value(shared, Test::Shared, share, AtLeast(40.0)));
    }
    // What the queue drops of the outer flow, and of both.
    for drops in ["outside_queue_drops", "queue_drops"] {
        all.push(judge.counted(shared, Test::Shared, drops, WARREN_PLAIN, 1.1));
    }
    for test in [Test::Tcp, Test::Udp, Test::Flood] {
        all.push(judge.ratio(CLEAN, test, BYTES, WIREGUARD_GO, AtMost(1.0 + NOISE)));
    }
    for what in [
        "CPU-limited veth: throughput ≥ 2 × wireguard-go, CPU per GB ≤ 0.4 ×",
        "veth, offloads off: throughput ≥ 1.5 × wireguard-go, CPU per GB ≤ 0.6 ×",
    ] {
        all.push(judge.elsewhere(what, "measured by `warren-lab bench link`"));
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
        of("002.5 (5)").sent_again(109.0),
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
    // A full first datagram of QUIC with the heads of UDP and IPv6.
    all.push(of("002.5 (9)").value(CLEAN, Test::Quic, "mtu_bytes", AtLeast(1_328.0)));
    for profile in ALL {
        let failed = "ipv6_handshakes_failed";
        all.push(of("002.5 (9)").value(profile, Test::Quic, failed, AtMost(0.0)));
    }
    let quality = "video_quality_percent";
    all.push(of("002.5 (10)").value(CLEAN, Test::Video, quality, AtLeast(100.0)));
    for profile in ALL {
        all.push(of("002.5 (11)").value(profile, Test::Video, quality, AtLeast(99.9)));
        for slowest in ["loaded_rtt_p99_ms", "session_rtt_p99_ms"] {
            let most = AtMost(3.0);
            all.push(of("002.5 (11)").ratio(profile, Test::Video, slowest, NO_VPN, most));
        }
    }
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
            let found = spread_text(spread, unit);
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

    /// What a stream sends again on the clear line. The source counts in [`SOURCE_SECONDS`]: what a
    /// shorter one sends again may be too much, but cannot be shown to be little enough.
    fn sent_again(&self, most: f64) -> Verdict {
        let verdict = self.value(CLEAN, Test::Tcp, "forward_retransmits", Bound::AtMost(most));
        let seconds = self.cells.note.settings.seconds;
        let why = format!("in {seconds} s, and the bound is one of {SOURCE_SECONDS} s");
        verdict.void(true, (seconds < SOURCE_SECONDS).then_some(why))
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
    /// little round by round. Chance makes of two such counts what Poisson says; losses come in
    /// company, so it is rather more.
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
        self.verdict(what, format!("≤ {most} ×"), found, &cells).with_chance(ratio, most, "")
    }

    /// What a download takes longer than without a VPN. Where that is too long, but the processors,
    /// which all hosts share, had no time left, and wireguard-go took longer still, it is the
    /// machine that was measured; a lower rate tells.
    fn overhead(&self, cell: (&str, Test, &str), bound: Bound) -> Verdict {
        let (profile, test, metric) = cell;
        let verdict = self.ratio(profile, test, metric, NO_VPN, bound);
        verdict.void(false, self.processors_decide(cell))
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
        let apart = apart.map(|(ms, error_ms, _)| (ms, error_ms));
        self.verdict(what, format!("≤ {more} ms"), found, &cells).with_chance(apart, more, " ms")
    }

    /// Six streams carry no less than one.
    fn six(&self, profile: &str, rate: &str) -> Verdict {
        let ratios = self.cells.paired(profile, rate, Test::Six, WARREN, Test::Tcp, WARREN);
        let found = ratios.map(|spread| (spread, "×", spread.median >= 1.0 - NOISE));
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
        let verdict = verdict.void(
            false,
            bare.map(|bare| {
                format!("without a VPN {} ×: the processors decide", super::number(bare.median))
            }),
        );
        verdict.void(false, self.processors_decide((profile, Test::Parallel, "sum_mbit_s")))
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
        let others = self.cells.peers().filter(|peer| !OURS.contains(peer));
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
        let ratios =
            best.and_then(|(_, best)| self.cells.ratio((profile, Test::Tcp, key), WARREN, best));
        let found = ratios.map(|spread| (spread, "×", spread.median > 1.0));
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

    fn elsewhere(&self, what: &str, found: &str) -> Verdict {
        let of = self.of;
        let required = String::new();
        Verdict { of, what: what.to_owned(), required, found: found.to_owned(), holds: None, n: 0 }
    }
}

fn describe(metric: &str) -> (&'static str, &'static str) {
    metric::named(metric).map_or(("", ""), |metric| (metric.title, metric.unit))
}

fn spread_text(spread: Spread, unit: &str) -> String {
    let number = super::number;
    let found = format!("{} {unit}", number(spread.median));
    match spread.min == spread.max {
        true => format!("{found} (n = {})", spread.n),
        false => {
            format!("{found} ({} to {}, n = {})", number(spread.min), number(spread.max), spread.n)
        }
    }
}

#[cfg(test)]
mod tests;
