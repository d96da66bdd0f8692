//! The sender's picture of one path, from the reports of the other end.
//!
//! Losses are summed up twice: over a third of a second, to follow the weather, and over five
//! seconds, for what is rare; both over some thousands of chunks at least. The larger share counts.
//! The slower sum, which also says how losses come, leaves out what stands out (`spells`).
//! Only chunks judged while the queue was short enter these sums. While there are none of
//! them, what is known about losses loses its weight, the sooner the less it rests on.

use wire::frame::{Losses, Report};

use crate::tuning::Belief;
use crate::weather::model::{Counts, Model};
use crate::weather::spells::Spells;

/// Without a loss among `n` chunks a share of more than `3 / n` has a chance of a twentieth. With
/// `k` losses that is about `(k + 3 + 1.65 √k) / n` (limits of Poisson's distribution).
const RULE_OF_THREE: f64 = 3.0;
const RULE_ROOT: f64 = 1.65;

/// What is believed about a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Whether enough was judged, and not too long ago, to believe it.
    pub known: bool,
    /// What the share of losses can hardly exceed, by as little as was judged; zero where that was
    /// enough.
    pub loss_hidden: f64,
    /// The losses that are not congestion.
    pub model: Model,
    /// Their share: of the last moments or of the last seconds, whichever is larger.
    pub loss_likely: f64,
    /// The same with a margin for what chance hides.
    pub loss_upper: f64,
    /// Share of all losses that came while the queue was long.
    pub queued_share: f64,
    /// Delay above the smallest.
    pub queue_us: u32,
    /// By how much the queue grows, microseconds a second.
    pub gradient_us: i64,
    /// How late chunks come behind younger ones.
    pub reorder_us: u32,
    /// Share of missing data chunks that was rebuilt.
    pub rebuilt_share: f64,
    /// Whether the last report has far more losses than those before: an accident, or new weather.
    pub stands_out: bool,
}

/// Sums of reports.
#[derive(Debug)]
pub struct Estimator {
    belief: &'static Belief,
    quick: Counts,
    slow: Spells,
    /// Losses in a queue beyond those of the weather, in both horizons.
    spilling: [f64; 2],
    stands_out: bool,
    lost_clear: f64,
    lost_queued: f64,
    /// Chunks judged while the queue was long.
    judged_queued: f64,
    missing: f64,
    rebuilt: f64,
    reorder_us: u32,
    queue_us: u32,
    gradient_us: f64,
    before_us: Option<u64>,
}

impl Estimator {
    /// Nothing was reported.
    #[must_use]
    pub fn new(belief: &'static Belief) -> Self {
        Self {
            belief,
            quick: Counts::default(),
            slow: Spells::new(belief),
            spilling: [0.0; 2],
            stands_out: false,
            lost_clear: 0.0,
            lost_queued: 0.0,
            judged_queued: 0.0,
            missing: 0.0,
            rebuilt: 0.0,
            reorder_us: 0,
            queue_us: 0,
            gradient_us: 0.0,
            before_us: None,
        }
    }

    /// Takes a report in.
    pub fn handle_report(&mut self, report: &Report, now_us: u64) {
        let belief = self.belief;
        let since_us = self.before_us.map_or(0, |before_us| now_us.saturating_sub(before_us));
        let since_us = since_us.min(belief.pause_us_max) as f64;
        self.before_us = Some(now_us);
        let clear = checked(&report.clear);
        let queued = checked(&report.queued);
        let old = kept(belief.old_half_us, since_us);
        let quick =
            shrunk(belief.quick_half_us, belief.quick_chunks, self.quick.judged, since_us) * old;
        self.quick.scale(quick);
        let slow =
            shrunk(belief.slow_half_us, belief.slow_chunks, self.slow.judged(), since_us) * old;
        self.slow.scale(slow);
        let excess = (queued.lost - self.slow.sum().share() * queued.judged).max(0.0);
        self.spilling = [self.spilling[0] * quick + excess, self.spilling[1] * slow + excess];
        if clear.judged * belief.blind_times < queued.judged {
            // Fewer losses among as many chunks: the belief itself fades, one in little the sooner.
            let weight = (self.slow.judged() / belief.known_chunks).clamp(belief.weight_min, 1.0);
            let kept = kept(belief.blind_half_us * weight, since_us);
            self.quick.fade(kept);
            self.slow.fade(kept);
        }
        self.quick.add(&clear);
        self.stands_out = self.slow.handle_counts(&clear);
        let keep = kept(belief.shown_half_us, since_us);
        self.lost_clear = self.lost_clear * keep + clear.lost;
        self.lost_queued = self.lost_queued * keep + queued.lost;
        self.judged_queued = self.judged_queued * old + queued.judged;
        self.missing = self.missing * keep + f64::from(report.missing);
        self.rebuilt = self.rebuilt * keep + f64::from(report.rebuilt.min(report.missing));
        self.reorder_us = report.reorder_us;
        if since_us > 0.0 {
            let grown = f64::from(report.queue_us) - f64::from(self.queue_us);
            let share = (since_us / belief.gradient_us).min(1.0);
            self.gradient_us += (grown * 1e6 / since_us - self.gradient_us) * share;
        }
        self.queue_us = report.queue_us;
    }

    /// What is believed now.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let quick = self.without_spill(self.quick, self.spilling[0]);
        let slow = self.without_spill(self.slow.sum(), self.spilling[1]);
        let model = Model::fit(&slow, self.belief);
        let upper = |sum: &Counts| {
            if sum.judged < 1.0 {
                return 0.0;
            }
            let share = sum.share().min(1.0);
            share + (share * (2.0 * model.burst() - 1.0) / sum.judged).sqrt()
        };
        let loss_upper = [&quick, &slow].into_iter().map(upper).fold(0.0, f64::max).min(1.0);
        // A full line hides the weather, but what it lost it lost to its queue.
        let judged = slow.judged + self.judged_queued;
        let Belief { known_chunks, known_losses, .. } = *self.belief;
        let known = judged >= known_chunks || slow.lost >= known_losses;
        Estimate {
            known,
            loss_hidden: self.hidden(&slow, judged),
            model,
            loss_likely: quick.share().max(slow.share()).min(1.0),
            loss_upper,
            queued_share: ratio(self.lost_queued, self.lost_clear + self.lost_queued),
            queue_us: self.queue_us,
            gradient_us: self.gradient_us as i64,
            reorder_us: self.reorder_us,
            rebuilt_share: ratio(self.rebuilt, self.missing),
            stands_out: self.stands_out,
        }
    }

    /// What a sum over clear chunks is without what was lost in a queue, as many were.
    fn without_spill(&self, mut sum: Counts, queued_lost: f64) -> Counts {
        let Belief { spill, spill_max, .. } = *self.belief;
        let spilled = (spill * queued_lost).min(spill_max).min(sum.runs);
        sum.fade(1.0 - ratio(spilled, sum.runs));
        sum
    }

    /// What chance may hide; `judged` are all chunks, also those that a queue hid.
    fn hidden(&self, slow: &Counts, judged: f64) -> f64 {
        let Belief { known_chunks, known_losses, enough_chunks, .. } = *self.belief;
        let is_lossy = slow.lost >= known_losses;
        let (seen, enough) =
            if is_lossy { (slow.judged, enough_chunks) } else { (judged, known_chunks) };
        let most = slow.lost + RULE_OF_THREE + RULE_ROOT * slow.lost.sqrt();
        if seen < enough { most / seen.max(1.0) } else { 0.0 }
    }
}

/// What is left after `since_us` of a sum over `judged` chunks that forgets half in `half_us`, but
/// not so many `chunks`.
fn shrunk(half_us: f64, chunks: f64, judged: f64, since_us: f64) -> f64 {
    let floor = (chunks / (judged + 1.0)).min(1.0);
    kept(half_us, since_us).max(floor)
}

/// The counts of a report, made consistent whatever the other end claims.
fn checked(losses: &Losses) -> Counts {
    let lost = losses.lost.min(losses.judged);
    Counts {
        judged: f64::from(losses.judged),
        lost: f64::from(lost),
        runs: f64::from(losses.runs.min(lost)),
        windows: f64::from(losses.windows),
        window_losses: f64::from(losses.window_losses),
        window_squares: f64::from(losses.window_squares),
    }
}

/// What is left after `since_us`; half after the half-life, and never quite nothing.
fn kept(half_us: f64, since_us: f64) -> f64 {
    half_us / (half_us + since_us)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;
    use crate::weather::tests::single;

    /// Ten seconds of the same report, ten a second.
    fn fed(report: &Report, from_us: u64, estimator: &mut Estimator) -> Estimate {
        (0..100).for_each(|n| estimator.handle_report(report, from_us + n * 100_000));
        estimator.estimate()
    }

    #[test]
    fn a_steady_share_is_found_and_a_change_is_followed_within_half_a_second() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        let calm = Report { clear: single(5_000, 5), ..Report::default() };
        let estimate = fed(&calm, 0, &mut estimator);
        assert!((0.001..0.0013).contains(&estimate.loss_upper), "{estimate:?}");
        let storm = Report { clear: single(5_000, 150), ..Report::default() };
        (0..5).for_each(|n| estimator.handle_report(&storm, 10_100_000 + n * 100_000));
        assert!(estimator.estimate().loss_upper > 0.016, "{:?}", estimator.estimate());
        let estimate = fed(&storm, 20_000_000, &mut estimator);
        assert!((0.03..0.033).contains(&estimate.loss_upper), "{estimate:?}");
    }

    #[test]
    fn losses_in_a_queue_are_no_weather_and_what_was_known_fades_meanwhile() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        let jam = Report { queued: single(5_000, 200), queue_us: 20_000, ..Report::default() };
        let estimate = fed(&jam, 0, &mut estimator);
        assert_eq!((estimate.loss_upper, estimate.queued_share), (0.0, 1.0));
        assert!(estimate.known, "nothing is assumed of it any more");
        let storm = Report { clear: single(5_000, 100), ..Report::default() };
        let before = fed(&storm, 20_000_000, &mut estimator).loss_upper;
        let after = fed(&jam, 40_000_000, &mut estimator).loss_upper;
        assert!(after < before * 0.65 && after > 0.0, "{before} {after}");
    }

    /// Ten packets' queue loses a third of a first flight, part of it before a delay tells of it.
    #[test]
    fn what_little_was_judged_is_soon_forgotten_while_a_queue_stands() {
        let later = |judged: u32, lost: u32| {
            let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
            let first = Report { clear: single(judged, lost), ..Report::default() };
            estimator.handle_report(&first, 0);
            let before = estimator.estimate().loss_likely;
            let jam = Report { queued: single(100, 10), queue_us: 12_000, ..Report::default() };
            (1..=10).for_each(|n| estimator.handle_report(&jam, n * 100_000));
            estimator.estimate().loss_likely / before
        };
        let (little, much) = (later(40, 10), later(4_000, 1_000));
        assert!(little < 0.25 && much > 0.85, "{little} {much}");
    }

    #[test]
    fn a_loss_or_two_beside_many_in_a_queue_are_none_of_the_weather() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        let calm = Report { clear: single(500, 0), ..Report::default() };
        let begins = Report { clear: single(40, 1), queued: single(300, 120), ..calm };
        estimator.handle_report(&begins, 0);
        let estimate = fed(&calm, 100_000, &mut estimator);
        assert_eq!((estimate.loss_likely, estimate.loss_upper), (0.0, 0.0), "{estimate:?}");
        let storm = Report { clear: single(500, 5), queued: single(4_500, 45), ..calm };
        let estimate = fed(&storm, 20_000_000, &mut estimator);
        assert!((0.0095..0.0105).contains(&estimate.loss_likely), "{estimate:?}");
    }

    #[test]
    fn what_may_be_hidden_shrinks_with_what_was_judged() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        let mut hidden = vec![estimator.estimate().loss_hidden];
        for n in 0..3 {
            let calm = Report { clear: single(200, 0), ..Report::default() };
            estimator.handle_report(&calm, n * 100_000);
            hidden.push(estimator.estimate().loss_hidden);
        }
        assert!(hidden.is_sorted_by(|a, b| a > b) && hidden[3] < 0.006, "{hidden:?}");
    }

    /// Of 200 chunks of a path that loses 2.5 % three are lost one time in eight, or fewer.
    #[test]
    fn a_few_losses_may_hide_more_of_them_until_enough_was_judged() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        estimator.handle_report(&Report { clear: single(200, 3), ..Report::default() }, 0);
        let estimate = estimator.estimate();
        assert!(estimate.known && estimate.loss_upper < 0.025, "{estimate:?}");
        assert!((0.04..0.05).contains(&estimate.loss_hidden), "{estimate:?}");
        let weather = Report { clear: single(1_000, 10), ..Report::default() };
        let after = fed(&weather, 100_000, &mut estimator);
        assert_eq!(after.loss_hidden, 0.0);
        assert!((0.01..0.012).contains(&after.loss_upper), "{after:?}");
    }

    #[test]
    fn the_gradient_follows_a_growing_queue() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        for n in 0..20 {
            let report = Report { queue_us: n as u32 * 1_000, ..Report::default() };
            estimator.handle_report(&report, n * 100_000);
        }
        let gradient_us = estimator.estimate().gradient_us;
        assert!((9_000..=10_000).contains(&gradient_us), "{gradient_us}");
    }

    #[test]
    fn bc_09_absurd_reports_leave_shares_between_zero_and_one() {
        let mut estimator = Estimator::new(&Tuning::DEFAULT.belief);
        let all = Losses {
            judged: 1,
            lost: u32::MAX,
            runs: u32::MAX,
            windows: 1,
            window_losses: u32::MAX,
            window_squares: 1,
        };
        for (n, now_us) in [0, u64::MAX, 5, 1 << 40].into_iter().enumerate() {
            let report = Report { clear: all, queued: all, rebuilt: 9, ..Report::default() };
            estimator.handle_report(&report, now_us);
            let estimate = estimator.estimate();
            for share in [estimate.loss_upper, estimate.queued_share, estimate.rebuilt_share] {
                assert!((0.0..=1.0).contains(&share), "{n}: {estimate:?}");
            }
        }
    }
}
