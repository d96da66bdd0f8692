//! Verdicts on the grid, where the worst cell decides.
//!
//! A cell in which Warren failed is worse than any figure, and a grid with cells that are not there
//! yet shows nothing.

use super::{BYTES, Judge, RATE, Verdict, describe};
use crate::page::cells::State;
use crate::ratio::Spread;
use crate::ring::{Test, grid};
use crate::row::Bound;
use crate::vpn::{NO_VPN, WARREN, WARREN_PLAIN};

impl Judge<'_> {
    /// What arrives beside no VPN. Where no VPN fills a line, headers alone take up to 8 % of it.
    pub(super) fn grid_goodput(&self, least: f64) -> Verdict {
        let ratio = |profile: &str| self.cells.ratio((profile, Test::Grid, RATE), WARREN, NO_VPN);
        let what = format!("{}, {WARREN} ÷ {NO_VPN}", describe(RATE).0);
        self.worst_of_grid(&what, Bound::AtLeast(least), &grid::cells()[..], NO_VPN, ratio)
    }

    /// What is sent for what arrives, beside no VPN, which sends again what is lost: that is the
    /// weather's. How many cells are above `dear` bytes a byte is told.
    pub(super) fn grid_bytes(&self, most: f64, dear: f64) -> Verdict {
        let ratio = |profile: &str| self.cells.ratio((profile, Test::Grid, BYTES), WARREN, NO_VPN);
        let what = format!("{}, {WARREN} ÷ {NO_VPN}", describe(BYTES).0);
        let mut verdict =
            self.worst_of_grid(&what, Bound::AtMost(most), &grid::cells()[..], NO_VPN, ratio);
        let bytes = |profile: &String| self.cells.spread(profile, Test::Grid, WARREN, BYTES);
        let all: Vec<f64> = grid::cells().iter().filter_map(bytes).map(|it| it.median).collect();
        let above = all.iter().filter(|&&it| it > dear).count();
        if above > 0 {
            verdict.found += &format!("; above {dear} in {above} of {} cells", all.len());
        }
        verdict
    }

    /// What frames cost beside plain WireGuard's datagrams where nothing is lost.
    pub(super) fn grid_overhead(&self, most: f64) -> Verdict {
        let clear: Vec<String> =
            grid::cells().into_iter().filter(|p| p.contains("loss=0%")).collect();
        let ratio =
            |profile: &str| self.cells.ratio((profile, Test::Grid, BYTES), WARREN, WARREN_PLAIN);
        let what = format!("{} without loss, {WARREN} ÷ {WARREN_PLAIN}", describe(BYTES).0);
        self.worst_of_grid(&what, Bound::AtMost(most), &clear[..], WARREN_PLAIN, ratio)
    }

    /// The cell of these `profiles` whose `value`, Warren's or its ratio to `theirs`, is worst.
    fn worst_of_grid(
        &self,
        what: &str,
        bound: Bound,
        profiles: &[String],
        theirs: &str,
        value: impl Fn(&str) -> Option<Spread>,
    ) -> Verdict {
        let all = profiles.iter().filter_map(|profile| Some((value(profile)?, profile)));
        let mut all: Vec<(Spread, &String)> = all.collect();
        all.sort_by(|(a, _), (b, _)| a.median.total_cmp(&b.median));
        let worst = match bound {
            Bound::AtLeast(_) => all.first(),
            Bound::AtMost(_) => all.last(),
        };
        let found = worst.map(|(spread, _)| (*spread, "×", bound.holds(spread.median)));
        let what = format!("grid: {what}, in the worst cell");
        let mut verdict = self.verdict(what, format!("{bound} ×"), found, &[]);
        if let Some((_, profile)) = worst {
            verdict.found += &format!(" at {profile}");
        }
        let beyond =
            |most: fn(&Spread) -> f64| all.iter().filter(|(it, _)| !bound.holds(most(it))).count();
        let medians = beyond(|it| it.median);
        if medians > 0 {
            let all = all.len();
            let rounds = match bound {
                Bound::AtLeast(_) => beyond(|it| it.max),
                Bound::AtMost(_) => beyond(|it| it.min),
            };
            verdict.found += &format!(
                "; beyond the bound in {medians} of {all} cells, in all rounds in {rounds}"
            );
        }
        let count = |peer: &str, is: fn(State) -> bool| {
            let states = profiles.iter().map(|p| self.cells.state(p, Test::Grid, peer));
            states.filter(|state| is(*state)).count()
        };
        let has_failed = |state| matches!(state, State::Failed(..));
        let is_missing = |state| matches!(state, State::Empty | State::Partial(..));
        let failed = count(WARREN, has_failed);
        if failed > 0 {
            verdict.holds = Some(false);
            verdict.found += &format!("; {WARREN} failed in {failed} cells");
        }
        let alone = if theirs == WARREN { 0 } else { count(theirs, has_failed) };
        if alone > 0 && worst.is_some() {
            verdict.found += &format!("; {theirs} failed in {alone} cells, which are not compared");
        }
        let missing = count(WARREN, is_missing).max(count(theirs, is_missing));
        // A grid that was not asked for needs no words.
        let why = format!("{missing} of {} cells are not there", profiles.len());
        verdict.void(true, (missing > 0).then_some(why))
    }
}
