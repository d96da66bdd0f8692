//! What nodes report of their links, for a page that shows the network: who reaches whom, by
//! which path, how fast, with which losses. It is in memory and nowhere else, bounded, and a day
//! old at most. A network that wants none has a policy with `"linkReports": false`, or a server
//! with `--no-link-reports`.
//!
//! Of each link there is the latest word of either end. Of each node there is a history: in steps
//! of five minutes the bytes that it sent and received, its worst loss and its median round trip.

use std::collections::{BTreeMap, VecDeque};

use control::limits::LINKS_MAX;
use control::{Available, LinkReport};
use serde::Serialize;

/// A report counts for so long, in seconds: a few times the pause between two.
const FRESH_S: u64 = 120;
/// A step of the history, and how many there are: a day.
const STEP_S: u64 = 300;
const STEPS_MAX: usize = 288;
/// Links that are kept, all together.
const ALL_MAX: usize = 262_144;

/// One step of a node's history.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Step {
    /// When it began, in Unix seconds.
    pub(crate) at: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    /// The worst of its links, as a share.
    pub(crate) loss_max: f64,
    /// The median of its links, in microseconds.
    pub(crate) rtt_us: Option<u32>,
}

/// A link as it is kept: small, for there are many.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kept {
    pub(crate) peer: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rtt_us: Option<u32>,
    pub(crate) loss_ppm: u32,
    pub(crate) path: Path,
}

/// By which path a link goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    Direct,
    Relay,
    None,
}

impl Path {
    fn read(word: &str) -> Self {
        match word {
            "direct" => Self::Direct,
            "relay" => Self::Relay,
            _ => Self::None,
        }
    }

    /// The word for it, as nodes and the API say it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relay => "relay",
            Self::None => "none",
        }
    }
}

impl From<&LinkReport> for Kept {
    fn from(link: &LinkReport) -> Self {
        Self {
            peer: link.peer,
            rx_bytes: link.rx_bytes,
            tx_bytes: link.tx_bytes,
            rtt_us: link.rtt_us,
            loss_ppm: link.loss_ppm,
            path: Path::read(&link.path),
        }
    }
}

#[derive(Default)]
struct Reported {
    at_unix_s: u64,
    links: Box<[Kept]>,
    /// What links have left, for the few of which that was measured: the peer, and when.
    available: Box<[(u64, Available)]>,
    history: VecDeque<Step>,
}

/// All reports.
#[derive(Default)]
pub(crate) struct Links(BTreeMap<u64, Reported>);

impl Links {
    /// Takes the report of a node.
    pub(crate) fn take(&mut self, node: u64, mut links: Vec<LinkReport>, now: u64) {
        links.truncate(LINKS_MAX);
        let others: usize =
            self.0.iter().filter(|(id, _)| **id != node).map(|(_, r)| r.links.len()).sum();
        links.truncate(ALL_MAX.saturating_sub(others));
        let known = self.0.entry(node).or_default();
        let before: BTreeMap<u64, (u64, u64)> =
            known.links.iter().map(|link| (link.peer, (link.rx_bytes, link.tx_bytes))).collect();
        let mut rx = 0_u64;
        let mut tx = 0_u64;
        let mut loss = 0_u32;
        for link in &links {
            // Of a counter that began anew nobody knows what went before.
            let (old_rx, old_tx) =
                before.get(&link.peer).copied().unwrap_or((link.rx_bytes, link.tx_bytes));
            rx = rx.saturating_add(link.rx_bytes.saturating_sub(old_rx));
            tx = tx.saturating_add(link.tx_bytes.saturating_sub(old_tx));
            loss = loss.max(link.loss_ppm);
        }
        let mut rtts: Vec<u32> = links.iter().filter_map(|link| link.rtt_us).collect();
        rtts.sort_unstable();
        let rtt_us = rtts.get(rtts.len() / 2).copied();
        let loss_max = f64::from(loss) / 1e6;
        let at = now - now % STEP_S;
        match known.history.back_mut().filter(|step| step.at == at) {
            Some(step) => {
                step.rx_bytes = step.rx_bytes.saturating_add(rx);
                step.tx_bytes = step.tx_bytes.saturating_add(tx);
                step.loss_max = step.loss_max.max(loss_max);
                step.rtt_us = rtt_us.or(step.rtt_us);
            }
            None => {
                known.history.push_back(Step { at, rx_bytes: rx, tx_bytes: tx, loss_max, rtt_us });
            }
        }
        while known.history.len() > STEPS_MAX {
            known.history.pop_front();
        }
        known.at_unix_s = now;
        known.links = links.iter().map(Kept::from).collect();
        known.available =
            links.iter().filter_map(|link| Some((link.peer, link.available?))).collect();
    }

    /// What a node said last, and when, if that is not long ago.
    pub(crate) fn of(&self, node: u64, now: u64) -> Option<(u64, &[Kept])> {
        let known =
            self.0.get(&node).filter(|known| now < known.at_unix_s.saturating_add(FRESH_S))?;
        Some((known.at_unix_s, &known.links))
    }

    /// What the way from a node to a peer has left, as the node said last.
    pub(crate) fn available(&self, node: u64, peer: u64) -> Option<Available> {
        let told = self.0.get(&node)?.available.iter();
        told.filter(|(id, _)| *id == peer).map(|(_, available)| *available).next()
    }

    /// A node's last day.
    pub(crate) fn history(&self, node: u64, now: u64) -> Vec<Step> {
        let from = now.saturating_sub(STEP_S * STEPS_MAX as u64);
        let known = self.0.get(&node).map(|known| &known.history);
        known.into_iter().flatten().filter(|step| step.at >= from).copied().collect()
    }

    /// Forgets everything: nobody is to know any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing was reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets nodes that are there no more, and what is a day old.
    pub(crate) fn sweep(&mut self, is_there: impl Fn(u64) -> bool, now: u64) {
        let last = STEP_S * STEPS_MAX as u64;
        self.0.retain(|id, known| is_there(*id) && now < known.at_unix_s.saturating_add(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn link(peer: u64, bytes: u64, loss_ppm: u32) -> LinkReport {
        LinkReport {
            peer,
            path: "direct".to_owned(),
            rtt_us: Some(1000 * peer as u32),
            loss_ppm,
            rx_bytes: bytes,
            tx_bytes: 2 * bytes,
            available: None,
        }
    }

    #[test]
    fn a_day_of_each_node_is_kept_and_no_more() {
        let mut links = Links::default();
        let end = NOW + 2 * 86_400;
        for (n, at) in (NOW..end).step_by(60).enumerate() {
            links.take(1, vec![link(2, n as u64 * 100, 0), link(3, 0, 10_000)], at);
        }
        let history = links.history(1, end);
        assert!((STEPS_MAX - 1..=STEPS_MAX).contains(&history.len()), "{}", history.len());
        let step = history[history.len() - 2];
        assert_eq!((step.rx_bytes, step.tx_bytes, step.rtt_us), (500, 1000, Some(3000)));
        assert!((step.loss_max - 0.01).abs() < 1e-9);
        assert_eq!(links.of(1, end).unwrap().1.len(), 2);
        assert!(links.of(1, end + FRESH_S).is_none() && links.of(9, end).is_none());
        assert!(size_of::<Kept>() <= 40, "{} bytes a link", size_of::<Kept>());
        assert_eq!(links.of(1, end).unwrap().1[0].path.word(), "direct");
        // A counter that began anew counts nothing.
        let available = Some(Available { low_bps: 9_000_000, high_bps: 11_000_000, age_s: 30 });
        links.take(1, vec![LinkReport { available, ..link(2, 5, 0) }], end);
        assert_eq!((links.available(1, 2), links.available(1, 3)), (available, None));
        assert_eq!(links.history(1, end).last().unwrap().rx_bytes, 0);
        links.sweep(|_| true, end + 86_399);
        assert_eq!(links.0.len(), 1);
        links.sweep(|id| id != 1, end);
        assert!(links.0.is_empty());
    }

    #[test]
    fn co_19_reports_are_bounded_whoever_makes_them() {
        let mut links = Links::default();
        let many: Vec<LinkReport> = (0..5000).map(|peer| link(peer, 0, 0)).collect();
        for node in 0..2000 {
            links.take(node, many.clone(), NOW);
        }
        let all: usize = links.0.values().map(|known| known.links.len()).sum();
        assert_eq!(all, ALL_MAX);
        assert_eq!(links.of(0, NOW).unwrap().1.len(), LINKS_MAX);
    }
}
