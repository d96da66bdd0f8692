//! Losses as a Markov chain of two states (Gilbert 1960, Elliott 1963), fitted to what was counted,
//! and what a block of k + r chunks still loses under it. The equations stand in docs/repair.md.

use crate::bounds::{DATA_MAX, REPAIR_MAX};
use crate::tuning::Belief;

/// Most chunks of a block, data and repair together.
pub const BLOCK_MAX: usize = DATA_MAX + REPAIR_MAX;
/// Chunks in a window whose losses are counted together, to tell how far bursts reach.
pub const WINDOW_CHUNKS: u32 = 64;

/// A good state without loss and a bad one that loses a share of its chunks. All shares are
/// between zero and one, per chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Overall share lost.
    pub loss: f64,
    /// Share lost in the bad state.
    pub loss_in_bad: f64,
    /// How much of the state is left after one chunk: 1 less the chances to enter and to leave.
    pub memory: f64,
}

/// What was counted: plain or weighted sums over chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Chunks judged.
    pub judged: f64,
    /// Of these, lost.
    pub lost: f64,
    /// Runs of losses.
    pub runs: f64,
    /// Windows of [`WINDOW_CHUNKS`] that were judged whole.
    pub windows: f64,
    /// Losses in these windows.
    pub window_losses: f64,
    /// Sum of the squares of the losses of each.
    pub window_squares: f64,
}

impl Counts {
    /// Lost of those judged.
    pub(crate) fn share(&self) -> f64 {
        if self.judged > 0.0 { self.lost / self.judged } else { 0.0 }
    }

    pub(crate) fn scale(&mut self, share: f64) {
        self.judged *= share;
        self.lost *= share;
        self.runs *= share;
        self.windows *= share;
        self.window_losses *= share;
        self.window_squares *= share;
    }

    /// Fewer losses among as many chunks.
    pub(crate) fn fade(&mut self, share: f64) {
        let judged = self.judged;
        self.scale(share);
        self.judged = judged;
    }

    pub(crate) fn add(&mut self, counts: &Self) {
        self.judged += counts.judged;
        self.lost += counts.lost;
        self.runs += counts.runs;
        self.windows += counts.windows;
        self.window_losses += counts.window_losses;
        self.window_squares += counts.window_squares;
    }
}

impl Model {
    /// No losses.
    pub const CLEAR: Self = Self { loss: 0.0, loss_in_bad: 1.0, memory: 0.0 };

    /// Each chunk on its own.
    #[must_use]
    pub fn independent(loss: f64) -> Self {
        Self { loss: share(loss), ..Self::CLEAR }
    }

    /// Fits the chain to share lost, chance that a loss follows a loss, and spread of the losses
    /// over windows.
    #[must_use]
    pub fn fit(counts: &Counts, belief: &Belief) -> Self {
        let Counts { judged, lost, runs, .. } = *counts;
        if judged < 1.0 || lost <= 0.0 {
            return Self::CLEAR;
        }
        let loss = share(lost / judged);
        if lost < 2.0 || loss >= 1.0 {
            return Self::independent(loss);
        }
        // Correlation of neighbours, less what chance alone shows with so few losses.
        let again = share(1.0 - runs / lost);
        let error = (loss * (1.0 - loss) / lost).sqrt();
        let neighbours = ((again - loss - error) / (1.0 - loss)).clamp(0.0, belief.memory_max);
        // Spread of window sums: 1 for independent losses, 1 + 2 c / (1 - memory) for a chain.
        let spread = spread(counts, belief.windows_min).unwrap_or(1.0);
        if neighbours <= 0.0 || spread <= 1.0 {
            return Self { memory: neighbours, ..Self::independent(loss) };
        }
        let memory = (1.0 - 2.0 * neighbours / (spread - 1.0)).clamp(neighbours, belief.memory_max);
        let loss_in_bad = loss + neighbours * (1.0 - loss) / memory;
        Self { loss, loss_in_bad: loss_in_bad.clamp(again.max(loss), 1.0), memory }
    }

    /// The same weather with another share of loss: bursts keep their shape and come more or less
    /// often.
    #[must_use]
    pub fn with_loss(self, loss: f64) -> Self {
        let loss = share(loss);
        Self { loss, loss_in_bad: self.loss_in_bad.max(loss), ..self }
    }

    /// What is left of it between chunks of one block when `depth` blocks are sent in turns.
    #[must_use]
    pub fn interleaved(self, depth: usize) -> Self {
        let memory = (0..depth.max(1)).fold(1.0, |product, _| product * self.memory);
        Self { memory, ..self }
    }

    /// Mean length of a run of losses, chunks; 100 at most.
    #[must_use]
    pub fn burst(&self) -> f64 {
        let repeat = self.loss + (self.loss_in_bad - self.loss) * self.memory;
        1.0 / (1.0 - repeat.clamp(0.0, 0.99))
    }
}

/// Index of dispersion of the losses in windows; nothing below so many windows.
fn spread(counts: &Counts, windows_min: f64) -> Option<f64> {
    let Counts { windows, window_losses, window_squares, .. } = *counts;
    if windows < windows_min || window_losses <= 0.0 {
        return None;
    }
    let mean = window_losses / windows;
    let variance = window_squares / windows - mean * mean;
    let single = mean * (1.0 - mean / f64::from(WINDOW_CHUNKS));
    (single > 0.0).then(|| variance / single)
}

fn share(value: f64) -> f64 {
    value.clamp(0.0, 1.0)
}

/// Residual loss for every number of chunks and of repair chunks among them.
pub struct Residuals {
    /// By chunks in all, then by losses: share of chunks that are lost in blocks with more losses
    /// than that.
    above: Vec<[f64; BLOCK_MAX + 1]>,
}

impl Residuals {
    /// Runs the chain over [`BLOCK_MAX`] chunks once; some 20,000 steps.
    #[must_use]
    pub fn new(model: &Model) -> Self {
        let bad_share = share(model.loss / model.loss_in_bad.max(f64::MIN_POSITIVE));
        let enter = bad_share * (1.0 - model.memory);
        let leave = (1.0 - bad_share) * (1.0 - model.memory);
        let mut good = [0.0; BLOCK_MAX + 1];
        let mut bad = [0.0; BLOCK_MAX + 1];
        good[0] = 1.0 - bad_share;
        bad[0] = bad_share;
        let mut above = vec![[0.0; BLOCK_MAX + 1]];
        for chunks in 1..=BLOCK_MAX {
            for lost in (0..=chunks).rev() {
                let fewer = if lost == 0 { 0.0 } else { bad[lost - 1] };
                let stays = bad[lost] * (1.0 - model.loss_in_bad) + fewer * model.loss_in_bad;
                bad[lost] = stays * (1.0 - leave) + good[lost] * enter;
                good[lost] = good[lost] * (1.0 - enter) + stays * leave;
            }
            let mut sums = [0.0; BLOCK_MAX + 1];
            let mut sum = 0.0;
            for lost in (0..chunks).rev() {
                sum += (good[lost + 1] + bad[lost + 1]) * (lost + 1) as f64;
                sums[lost] = sum / chunks as f64;
            }
            above.push(sums);
        }
        Self { above }
    }

    /// Share of data chunks lost for good, of blocks with `data` data and `repair` repair chunks.
    #[must_use]
    pub fn residual(&self, data: usize, repair: usize) -> f64 {
        self.above.get(data + repair).and_then(|sums| sums.get(repair)).copied().unwrap_or(0.0)
    }

    /// The fewest repair chunks, up to `most`, that leave at most `target`; `most` if none do.
    #[must_use]
    pub fn fewest(&self, data: usize, most: usize, target: f64) -> usize {
        (0..most).find(|&repair| self.residual(data, repair) <= target).unwrap_or(most)
    }
}

impl std::fmt::Debug for Residuals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residuals").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;
    use sim::rng::Rng;

    fn fit(counts: &Counts) -> Model {
        Model::fit(counts, &Tuning::DEFAULT.belief)
    }

    /// Draws `chunks` losses from a chain.
    fn draw(model: &Model, chunks: usize, seed: u64) -> Vec<bool> {
        let bad_share = model.loss / model.loss_in_bad;
        let mut rng = Rng::new(seed);
        let mut bad = rng.chance(bad_share);
        let step = |_| {
            let lost = bad && rng.chance(model.loss_in_bad);
            let away = if bad { 1.0 - bad_share } else { bad_share };
            bad ^= rng.chance(away * (1.0 - model.memory));
            lost
        };
        (0..chunks).map(step).collect()
    }

    fn count(losses: &[bool]) -> Counts {
        let mut counts = Counts::default();
        let mut before = false;
        for &lost in losses {
            counts.judged += 1.0;
            counts.lost += f64::from(lost);
            counts.runs += f64::from(lost && !before);
            before = lost;
        }
        for window in losses.chunks_exact(WINDOW_CHUNKS as usize) {
            let lost = window.iter().filter(|&&lost| lost).count() as f64;
            counts.windows += 1.0;
            counts.window_losses += lost;
            counts.window_squares += lost * lost;
        }
        counts
    }

    #[test]
    fn independent_losses_follow_the_binomial_tail() {
        let residuals = Residuals::new(&Model::independent(0.02));
        for (data, repair) in [(1, 0), (10, 2), (45, 3), (45, 6), (64, 32)] {
            let n = data + repair;
            let mut term = 0.98f64.powi(n as i32);
            let mut expected = 0.0;
            for lost in 0..=n {
                if lost > repair {
                    expected += term * lost as f64 / n as f64;
                }
                term *= 0.02 / 0.98 * (n - lost) as f64 / (lost + 1) as f64;
            }
            let found = residuals.residual(data, repair);
            assert!((found - expected).abs() < 1e-12, "{data}+{repair}: {found} {expected}");
        }
    }

    #[test]
    fn a_chain_loses_what_drawing_from_it_loses() {
        for (loss, loss_in_bad, memory) in [(0.02, 1.0, 0.7), (0.05, 0.5, 0.9), (0.1, 0.8, 0.5)] {
            let model = Model { loss, loss_in_bad, memory };
            let residuals = Residuals::new(&model);
            let losses = draw(&model, 2_000_000, 1);
            for repair in [0, 4, 10] {
                let (mut gone, mut data) = (0usize, 0usize);
                for block in losses.chunks_exact(45 + repair) {
                    let lost = block.iter().filter(|&&lost| lost).count();
                    data += 45;
                    if lost > repair {
                        gone += block[..45].iter().filter(|&&lost| lost).count();
                    }
                }
                let (found, expected) = (gone as f64 / data as f64, residuals.residual(45, repair));
                let ratio = found / expected;
                assert!((0.85..1.15).contains(&ratio), "{model:?} {repair}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_fit_finds_the_chain_again() {
        for (loss, loss_in_bad, memory) in [(0.01, 1.0, 0.6), (0.03, 0.5, 0.9), (0.1, 0.8, 0.8)] {
            let model = Model { loss, loss_in_bad, memory };
            let fit = fit(&count(&draw(&model, 1_000_000, 3)));
            assert!((fit.loss / loss - 1.0).abs() < 0.05, "{model:?} {fit:?}");
            assert!((fit.loss_in_bad - loss_in_bad).abs() < 0.15, "{model:?} {fit:?}");
            assert!((fit.memory - memory).abs() < 0.1, "{model:?} {fit:?}");
            let ratio = fit.burst() / model.burst();
            assert!((0.9..1.1).contains(&ratio), "{model:?} {fit:?}");
        }
        let fit = fit(&count(&draw(&Model::independent(0.02), 1_000_000, 4)));
        assert!(fit.memory < 0.02, "{fit:?}");
        assert!((fit.burst() - 1.02).abs() < 0.02, "{fit:?}");
    }

    #[test]
    fn nothing_counted_is_no_loss_and_absurd_counts_stay_within_bounds() {
        assert_eq!(fit(&Counts::default()), Model::CLEAR);
        let mut rng = Rng::new(9);
        for _ in 0..10_000 {
            let mut draw = || (rng.next_u64() >> rng.below(64)) as f64;
            let counts = Counts {
                judged: draw(),
                lost: draw(),
                runs: draw(),
                windows: draw(),
                window_losses: draw(),
                window_squares: draw(),
            };
            let model = fit(&counts);
            for value in [model.loss, model.loss_in_bad, model.memory] {
                assert!((0.0..=1.0).contains(&value), "{counts:?} {model:?}");
            }
            let residuals = Residuals::new(&model);
            assert!((0.0..=1.0 + 1e-9).contains(&residuals.residual(45, 3)));
        }
    }

    #[test]
    fn interleaving_weakens_bursts() {
        let model = Model { loss: 0.01, loss_in_bad: 1.0, memory: 0.5 };
        let needed = |depth| Residuals::new(&model.interleaved(depth)).fewest(45, 22, 1e-5);
        assert!(needed(4) < needed(2) && needed(2) < needed(1));
        assert_eq!(Residuals::new(&Model::CLEAR).fewest(45, 22, 1e-5), 0);
    }
}
