//! Medians, and ratios of what was measured in the same round.

use serde::Serialize;

/// The middle of some values, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Self { median, min, max, n })
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn nothing_and_nonsense_have_no_median() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of_ratios(&[None], &[Some(1.0)]), None);
        assert_eq!(Spread::of_ratios(&[], &[Some(1.0)]), None);
    }
}
