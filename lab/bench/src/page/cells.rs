//! Samples by what they measured, and what may be said of them together.
//!
//! A failed measurement poisons its cell: there is no median over the links that happened to
//! work. Such a cell says how many failed and takes no place in any order, ratio or verdict.

use std::collections::BTreeMap;

use crate::ratio::Spread;
use crate::ring::sample::{Note, Sample};
use crate::ring::{BOTTLENECK, Test};

/// The direction that is no test's first figure.
pub(super) const BACK: &str = "back_mbit_s";
/// The direction that is, for a stream.
pub(super) const FORTH: &str = "forward_mbit_s";

/// All samples of a run.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    pub(crate) note: &'a Note,
    pub(crate) samples: &'a [Sample],
    by: BTreeMap<[String; 3], Vec<&'a Sample>>,
}

/// What can be said of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was measured.
    Empty,
    /// This many of those failed.
    Failed(usize, usize),
    /// This many of those are there, and none failed: the run is not finished.
    Partial(usize, usize),
    /// All are there.
    Whole(usize),
}

impl<'a> Cells<'a> {
    pub(crate) fn new(note: &'a Note, samples: &'a [Sample]) -> Self {
        let mut by: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        for sample in samples {
            let key = &sample.key;
            let place = [&key.profile, &key.test, &key.peer].map(Clone::clone);
            by.entry(place).or_default().push(sample);
        }
        Self { note, samples, by }
    }

    /// The samples of a cell, in the order in which they were made.
    pub(crate) fn of(&self, profile: &str, test: Test, peer: &str) -> &[&'a Sample] {
        self.by.get(&[profile, test.word(), peer].map(str::to_owned)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn state(&self, profile: &str, test: Test, peer: &str) -> State {
        let samples = self.of(profile, test, peer);
        let failed = samples.iter().filter(|sample| sample.failed.is_some()).count();
        let settings = &self.note.settings;
        let expected = settings.count_of(test) as usize;
        match (samples.len(), failed) {
            (0, _) => State::Empty,
            (n, failed) if failed > 0 => State::Failed(failed, n),
            (n, _) if n < expected => State::Partial(n, expected),
            (n, _) => State::Whole(n),
        }
    }

    /// The values of a whole cell; none where anything is missing.
    pub(crate) fn values(
        &self,
        profile: &str,
        test: Test,
        peer: &str,
        metric: &str,
    ) -> Option<Vec<f64>> {
        self.whole(profile, test, peer)?.map(|sample| sample.metrics.get(metric).copied()).collect()
    }

    pub(crate) fn spread(
        &self,
        profile: &str,
        test: Test,
        peer: &str,
        metric: &str,
    ) -> Option<Spread> {
        Spread::of(&self.values(profile, test, peer, metric)?)
    }

    /// Every value of a series, of all links and rounds of a whole cell.
    pub(crate) fn series(
        &self,
        profile: &str,
        test: Test,
        peer: &str,
        name: &str,
    ) -> Option<Vec<f64>> {
        let all: Option<Vec<&Vec<f64>>> =
            self.whole(profile, test, peer)?.map(|sample| sample.series.get(name)).collect();
        Some(all?.into_iter().flatten().copied().collect())
    }

    fn whole(
        &self,
        profile: &str,
        test: Test,
        peer: &str,
    ) -> Option<impl Iterator<Item = &'a Sample>> {
        let is_whole = matches!(self.state(profile, test, peer), State::Whole(_));
        is_whole.then(|| self.of(profile, test, peer).iter().copied())
    }

    /// Ratios of two peers on the same link in the same round.
    pub(crate) fn ratio(
        &self,
        cell: (&str, Test, &str),
        ours: &str,
        theirs: &str,
    ) -> Option<Spread> {
        let (profile, test, metric) = cell;
        self.paired(profile, metric, test, ours, test, theirs)
    }

    /// Ratios of one figure of two tests or peers on the same link in the same round.
    pub(crate) fn paired(
        &self,
        profile: &str,
        metric: &str,
        test: Test,
        ours: &str,
        of_test: Test,
        theirs: &str,
    ) -> Option<Spread> {
        let ours_all = self.values(profile, test, ours, metric)?;
        self.values(profile, of_test, theirs, metric)?;
        let of_theirs = self.of(profile, of_test, theirs);
        let mut above = Vec::new();
        let mut below = Vec::new();
        for (sample, value) in self.of(profile, test, ours).iter().zip(ours_all) {
            let same = |other: &&&Sample| {
                (other.key.round, &other.key.link) == (sample.key.round, &sample.key.link)
            };
            above.push(Some(value));
            below.push(of_theirs.iter().find(same).and_then(|s| s.metrics.get(metric).copied()));
        }
        Spread::of_ratios(&above, &below)
    }

    /// Profiles in which a test was measured, in the order of the run.
    pub(crate) fn profiles(&self, test: Test) -> Vec<&'a str> {
        let mut profiles: Vec<&str> = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.key.test == test.word()) {
            if !profiles.contains(&&*sample.key.profile) {
                profiles.push(&sample.key.profile);
            }
        }
        let asked = &self.note.settings.profiles;
        let place = |profile: &str| match asked.iter().position(|asked| asked == profile) {
            Some(place) => place,
            None if profile == BOTTLENECK => asked.len(),
            None => asked.len() + 1,
        };
        profiles.sort_by_key(|profile| place(profile));
        profiles
    }

    /// Names of everybody who took part.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &'a str> {
        self.note.peers.iter().map(|peer| &*peer.name)
    }

    pub(crate) fn took_part(&self, name: &str) -> bool {
        self.peers().any(|peer| peer == name)
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'a Sample, &'a str)> {
        self.samples.iter().filter_map(|sample| Some((sample, sample.failed.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::sample::tests::{note, sample};

    /// Source 002.5 (3): nothing is summed or averaged over failed links.
    #[test]
    fn source_002_3_a_failed_link_leaves_no_median_and_no_ratio() {
        let note = note(&["Warren", "no VPN"]);
        let mut samples = Vec::new();
        for (link, rate) in [("a-b", 10.0), ("b-c", 20.0), ("c-a", 60.0)] {
            let value = [("forward_mbit_s", rate)];
            samples.push(sample("Warren", "low", "tcp", link, &value));
            samples.push(sample("no VPN", "low", "tcp", link, &[("forward_mbit_s", 10.0)]));
        }
        let key = ("low", Test::Tcp, "forward_mbit_s");
        let cells = Cells::new(&note, &samples);
        assert_eq!(cells.state("low", Test::Tcp, "Warren"), State::Whole(3));
        assert_eq!(cells.ratio(key, "Warren", "no VPN").expect("whole").median, 2.0);
        samples[2].failed = Some("it broke".to_owned());
        samples[2].metrics.clear();
        let cells = Cells::new(&note, &samples);
        assert_eq!(cells.state("low", Test::Tcp, "Warren"), State::Failed(1, 3));
        assert_eq!(cells.spread("low", Test::Tcp, "Warren", key.2), None);
        assert_eq!(cells.ratio(key, "Warren", "no VPN"), None);
        assert_eq!(cells.failures().count(), 1);
        samples.remove(2);
        let cells = Cells::new(&note, &samples);
        assert_eq!(cells.state("low", Test::Tcp, "Warren"), State::Partial(2, 3));
        assert_eq!(cells.spread("low", Test::Tcp, "Warren", key.2), None, "not finished");
        assert_eq!(cells.state("high", Test::Tcp, "Warren"), State::Empty);
    }
}
