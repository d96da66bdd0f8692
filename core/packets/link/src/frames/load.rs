//! Counts of what is sent and received, and how much of either is in blocks. What is in none is not
//! given back when it is lost.

use repair::table::{Sent, Upper};

/// Outwards: what was sent since the last report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    sent: Sent,
    /// Share of all that is in blocks, by the last reports.
    protected: f64,
}

impl Load {
    /// One more data chunk, in a block of this kind or in none, or packet without a frame.
    #[inline]
    pub(crate) fn count(&mut self, in_block: Option<Upper>) {
        self.sent.count(in_block);
    }

    /// What was sent since this was asked; `kept` is the share of what was believed that it leaves.
    pub(crate) fn take(&mut self, kept: f64) -> Sent {
        let sent = std::mem::take(&mut self.sent);
        if sent.all > 0 {
            let share = sent.all_in_blocks() as f64 / sent.all as f64;
            self.protected = self.protected * kept + share * (1.0 - kept);
        }
        sent
    }

    /// What is left of `loss` where `rebuilt` is the share of the missing pieces of blocks that was
    /// given back.
    pub(crate) fn left(&self, loss: f64, rebuilt: f64) -> f64 {
        loss * (1.0 - self.protected * rebuilt)
    }
}

/// Inwards: what came, and what did not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harvest {
    /// Data since the last report, in blocks and in none.
    came: [u32; 2],
    /// Up to the last report, the older the less: the same; datagrams judged, and lost of these;
    /// pieces of blocks that were missing, and rebuilt of these.
    sums: [f64; 6],
    told_us: u64,
}

impl Harvest {
    /// Data came, in a block or in none.
    #[inline]
    pub(crate) fn count(&mut self, in_block: bool) {
        self.came[usize::from(!in_block)] += 1;
    }

    /// A report tells of so many datagrams judged and lost, and of so many pieces of blocks that
    /// were missing and rebuilt.
    /// What came `half_us` ago counts half.
    pub(crate) fn handle_report(
        &mut self,
        lost: [u32; 2],
        rebuilt: [u32; 2],
        half_us: f64,
        now_us: u64,
    ) {
        let since_us = now_us.saturating_sub(self.told_us).min(1_000_000);
        let kept = (-(since_us as f64) / half_us).exp2();
        let [protected, bare] = std::mem::take(&mut self.came);
        let new = [protected, bare, lost[0], lost[1], rebuilt[0], rebuilt[1]];
        self.sums = std::array::from_fn(|n| self.sums[n] * kept + f64::from(new[n]));
        self.told_us = now_us;
    }

    /// When something was told last, microseconds; zero before the first.
    pub(crate) const fn told_us(&self) -> u64 {
        self.told_us
    }

    /// Share of datagrams lost, and what repair left of it.
    pub(crate) fn losses(&self) -> (f64, f64) {
        let [protected, bare, judged, lost, missing, rebuilt] = self.sums;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let loss = share(lost, judged).min(0.99);
        // Of what is in blocks these know; what travels bare is lost as everything is.
        let kept = missing - rebuilt;
        let gone = bare * loss / (1.0 - loss);
        (loss, share(kept + gone, protected + missing + bare + gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_in_no_block_is_not_given_back() {
        let near = |found: f64, due: f64| (found - due).abs() < 1e-9;
        let mut load = Load::default();
        (0..100).for_each(|_| load.count(None));
        assert_eq!(load.take(0.7), Sent { all: 100, ..Sent::default() });
        assert!(near(load.left(0.02, 1.0), 0.02), "nothing of it was repaired");
        for _ in 0..100 {
            (0..30).for_each(|_| load.count(None));
            (0..70).for_each(|_| load.count(Some(Upper::Other)));
            assert_eq!(load.take(0.7), Sent { all: 100, in_blocks: [0, 70] });
        }
        assert!(near(load.left(0.02, 0.9), 0.02 * 0.37));
        let before = load.left(0.02, 0.9);
        assert_eq!(load.take(0.7), Sent::default());
        assert!(near(load.left(0.02, 0.9), before), "silence says nothing");
    }

    #[test]
    fn what_came_is_told_with_what_repair_left_and_old_weather_is_forgotten() {
        let mut harvest = Harvest::default();
        assert_eq!(harvest.losses(), (0.0, 0.0));
        // Of 100 datagrams, of which some are bare, some are lost, as many of either kind.
        let report = |harvest: &mut Harvest, at: u64, bare: u32, lost: u32, rebuilt: u32| {
            let missing = lost * (100 - bare) / 100;
            (0..100 - bare - missing).for_each(|_| harvest.count(true));
            (0..bare + missing - lost).for_each(|_| harvest.count(false));
            harvest.handle_report([100, lost], [missing, rebuilt], 30e6, at * 100_000);
            let (before, after) = harvest.losses();
            ((before * 1e6).round() / 1e6, (after * 1e6).round() / 1e6)
        };
        assert_eq!(report(&mut harvest, 1, 100, 5, 0), (0.05, 0.05), "all of it bare");
        let mut harvest = Harvest::default();
        assert_eq!(report(&mut harvest, 1, 0, 5, 5), (0.05, 0.0), "all of it given back");
        let mut harvest = Harvest::default();
        assert_eq!(report(&mut harvest, 1, 50, 4, 2), (0.04, 0.02), "half of it is in blocks");
        // Half a minute of clear sky halves the share, and a day of it hides nothing that comes.
        (2..302).for_each(|at| _ = report(&mut harvest, at, 0, 0, 0));
        assert!(harvest.losses().0 < 0.000_2, "{:?}", harvest.losses());
        (302..864_302).step_by(10).for_each(|at| _ = report(&mut harvest, at, 0, 0, 0));
        (0..3_000).for_each(|at| _ = report(&mut harvest, 900_000 + at, 0, 5, 0));
        let (before, after) = harvest.losses();
        assert!(before > 0.045 && (after - before).abs() < 1e-6, "{before} {after}");
    }
}
