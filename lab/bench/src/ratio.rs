//! Medians, and ratios of what was measured in the same round.

use serde::{Deserialize, Serialize};

/// To so many digits: what is kept in files has more than a measurement is good for.
pub(crate) fn rounded(value: f64, digits: usize) -> f64 {
    let behind = digits.saturating_sub(1);
    format!("{value:.behind$e}").parse().unwrap_or(value)
}

/// The middle of some values, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub n: usize,
}

impl Spread {
    /// Of these values; none when there are none, or one is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = *sorted.first()?;
        let max = *sorted.last()?;
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Self { median, min, max, n })
    }

    /// Of those rounds of a series that have a value.
    #[must_use]
    pub fn of_rounds(series: &[Option<f64>]) -> Option<Self> {
        Self::of(&series.iter().flatten().copied().collect::<Vec<_>>())
    }

    /// Of the ratios of two series, round by round. A round in which either is missing gives no
    /// ratio; one in which theirs is zero gives none either.
    #[must_use]
    pub fn of_ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<Self> {
        let both = ours.iter().zip(theirs);
        let ratios: Vec<f64> = both
            .filter_map(|(ours, theirs)| match (ours, theirs) {
                (Some(ours), Some(theirs)) if *theirs != 0.0 => Some(ours / theirs),
                _ => None,
            })
            .collect();
        Self::of(&ratios)
    }
}

/// A ratio as source 000 has it, in log %: 100 times its natural logarithm, so that half and twice
/// are as far from none. There is none of what is not positive.
pub(crate) fn log_percent(ratio: f64) -> Option<f64> {
    (ratio > 0.0).then(|| 100.0 * ratio.ln())
}

/// The value that a share of all does not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentile {
    pub(crate) value: f64,
    /// What chance may move it by: half of what lies between the values whose ranks are a standard
    /// deviation below and above, by the binomial distribution of ranks. It assumes nothing of how
    /// the values are distributed, only that there is no memory in them.
    pub(crate) error: f64,
}

impl Percentile {
    /// Of these values, none of which is NaN; none where there are none.
    pub(crate) fn of(values: &[f64], share: f64) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let at = |share: f64| {
            let rank = ((n * share).ceil() as usize).clamp(1, sorted.len().max(1));
            sorted.get(rank - 1).copied()
        };
        let deviation = (share * (1.0 - share) / n).sqrt();
        let value = at(share)?;
        let error = (at(share + deviation)? - at(share - deviation)?) / 2.0;
        Some(Self { value, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_000_a_loss_of_37_02_percent_is_one_of_46_23_log_percent() {
        let of = |ratio| log_percent(ratio).expect("a positive ratio");
        assert_eq!(of(1.0), 0.0);
        assert!((of(1.0 - 0.3702) + 46.23).abs() < 0.01);
        assert!((of(0.5) + 69.31).abs() < 0.01 && (of(2.0) + of(0.5)).abs() < 1e-9);
        assert_eq!([0.0, -1.0, f64::NAN].map(log_percent), [None; 3]);
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let spread = Spread::of(&[3.0, 100.0, 1.0, 2.0, -5.0]).expect("values");
        assert_eq!(spread, Spread { median: 2.0, min: -5.0, max: 100.0, n: 5 });
        assert_eq!(Spread::of(&[1.0, 2.0]).expect("values").median, 1.5);
        assert_eq!(Spread::of(&[7.0]).expect("values").median, 7.0);
    }

    #[test]
    fn the_median_of_ratios_is_not_the_ratio_of_medians() {
        let ours = [Some(10.0), Some(20.0), Some(90.0)];
        let theirs = [Some(1.0), Some(10.0), Some(100.0)];
        let spread = Spread::of_ratios(&ours, &theirs).expect("ratios");
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 0.9, 10.0));
    }

    #[test]
    fn a_round_without_both_values_gives_no_ratio() {
        let spread = Spread::of_ratios(
            &[Some(2.0), None, Some(8.0), Some(1.0)],
            &[Some(1.0), Some(1.0), None, Some(0.0)],
        );
        assert_eq!(spread, Some(Spread { median: 2.0, min: 2.0, max: 2.0, n: 1 }));
    }

    #[test]
    fn a_percentile_is_a_value_with_what_chance_may_move_it_by() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let of = |share| Percentile::of(&values, share).expect("values");
        assert_eq!((of(0.5).value, of(0.99).value, of(1.0).value), (50.0, 99.0, 100.0));
        // a deviation is 5 ranks of 100, and 1: from 45 (or 46) to 55, from 98 to 100
        assert!((5.0..=5.5).contains(&of(0.5).error), "{:?}", of(0.5));
        assert!((0.5..=1.0).contains(&of(0.99).error), "{:?}", of(0.99));
        let one = Percentile::of(&[7.0], 0.99).expect("a value");
        assert_eq!(one, Percentile { value: 7.0, error: 0.0 });
        assert_eq!(Percentile::of(&[], 0.5), None);
    }

    #[test]
    fn nothing_and_nonsense_have_no_median() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of_ratios(&[None], &[Some(1.0)]), None);
        assert_eq!(Spread::of_ratios(&[], &[Some(1.0)]), None);
    }
}
