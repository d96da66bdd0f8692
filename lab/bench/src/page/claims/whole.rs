//! Verdicts on a run as a whole.

use super::{ALL, Judge, OURS, Verdict};
use crate::page::cells::State;
use crate::ratio::Spread;
use crate::ring::Test;
use crate::ring::metric::{METRICS, Metric};
use crate::vpn::{NO_VPN, WARREN};

/// Where a test is measured in a run of everything.
fn profiles_of(test: Test) -> impl Iterator<Item = &'static str> {
    const SHARED: &[&str] = &[crate::ring::BOTTLENECK];
    let profiles: &[&str] = if test == Test::Shared { SHARED } else { &ALL };
    profiles.iter().copied()
}

impl Judge<'_> {
    pub(super) fn memory(&self, mib: f64) -> Verdict {
        let ours = self.cells.samples.iter().filter(|sample| sample.key.peer == WARREN);
        let all: Vec<f64> =
            ours.filter_map(|sample| sample.metrics.get("rss_mib")).copied().collect();
        let found = Spread::of(&all).map(|spread| (spread, "MiB", spread.max <= mib));
        let failures = self.cells.failures().filter(|(sample, _)| sample.key.peer == WARREN);
        let failed = failures.count();
        let what = "largest daemon of Warren after any load (the largest decides)".to_owned();
        let verdict = self.verdict(what, format!("≤ {mib} MiB"), found, &[]);
        let why = format!("{failed} measurements failed, and nobody knows what they took");
        verdict.void(true, (failed > 0).then_some(why))
    }

    /// Whether Warren got through these tests in all profiles.
    pub(super) fn completes(&self, tests: &[Test], what: &str) -> Verdict {
        let settings = &self.cells.note.settings;
        let mut failed = Vec::new();
        let mut whole = 0;
        let mut missing = 0;
        for test in tests {
            for profile in profiles_of(*test) {
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

    /// Whether everything was asked for and is there; what failed is named elsewhere.
    pub(super) fn everything(&self) -> Verdict {
        let settings = &self.cells.note.settings;
        let profiles = ALL.iter().filter(|p| settings.profiles.iter().any(|s| s == *p)).count();
        let tests = settings.tests.len();
        let links = settings.links;
        let is_rival = |peer: &&str| *peer != NO_VPN && !OURS.contains(peer);
        let rivals = self.cells.peers().filter(is_rival).count();
        let missing = |peer: &str| {
            let all =
                Test::ALL.into_iter().flat_map(|test| profiles_of(test).map(move |p| (p, test)));
            let states = all.map(|(profile, test)| self.cells.state(profile, test, peer));
            states.filter(|state| matches!(state, State::Empty | State::Partial(..))).count()
        };
        let missing: usize = self.cells.peers().map(missing).sum();
        let asked = profiles == ALL.len() && tests == Test::ALL.len() && links == 3;
        Verdict {
            of: self.of,
            what: "one command, three hosts, four profiles, all tests, installed rivals".to_owned(),
            required: format!("4 profiles, {} tests, 3 links, a rival", Test::ALL.len()),
            found: format!(
                "{profiles} profiles, {tests} tests, {links} links, {rivals} rivals; {missing} \
                 cells not measured"
            ),
            holds: (asked && rivals > 0 && missing == 0).then_some(true),
            n: 0,
        }
    }

    pub(super) fn packets(&self) -> Verdict {
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
    pub(super) fn failures_are_in_no_median(&self) -> Verdict {
        let mut failed = 0;
        let mut counted = 0;
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
            // Where nothing failed there is nothing to see; a test of the cells says it then.
            holds: (failed > 0).then_some(counted == 0),
            n: 0,
        }
    }
}
