//! Impairments by name, and their writing: `medium`, `delay=5ms`, `loss=1.5%`, `rate=100mbit`.
//!
//! The same words serve the topology file, the command line and the report.

use std::fmt;

use crate::impair::{Impairment, LossModel};

/// Names of the profiles, from mild to harsh.
pub const PROFILES: [&str; 4] = ["baseline", "low", "medium", "high"];
/// Keys that [`set`] takes.
pub const KEYS: [&str; 11] = [
    "delay",
    "jitter",
    "handover",
    "swing",
    "loss",
    "burst",
    "reorder",
    "correlation",
    "duplicate",
    "rate",
    "limit",
];

/// What was wrong with a written impairment, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// The impairment called `name`: a line of 1 Gbit/s with a queue of 1000 packets, and on it
/// nothing (`baseline`) or the weather of `low`, `medium` or `high`.
#[must_use]
pub fn named(name: &str) -> Option<Impairment> {
    let weather = |delay_us, jitter_us, loss, reorder, reorder_correlation| Impairment {
        delay_us,
        jitter_us,
        loss,
        reorder,
        reorder_correlation,
        ..Impairment::LINE
    };
    match name {
        "baseline" => Some(Impairment::LINE),
        "low" => Some(weather(2_000, 2_000, 0.0025, 0.005, 0.25)),
        "medium" => Some(weather(4_000, 7_000, 0.01, 0.025, 0.5)),
        "high" => Some(weather(6_000, 15_000, 0.025, 0.05, 0.5)),
        _ => None,
    }
}

/// Changes `impairment` as `word` says: the name of a profile replaces it, `key=value` changes
/// one number.
///
/// # Errors
/// Says which words are known, or how the value is written.
pub fn apply(impairment: &mut Impairment, word: &str) -> Result<(), Unreadable> {
    if let Some((key, value)) = word.split_once('=') {
        return set(impairment, key, value);
    }
    *impairment = named(word).ok_or_else(|| {
        let known = PROFILES.join(", ");
        Unreadable(format!("unknown profile {word:?}: use {known}, or key=value"))
    })?;
    Ok(())
}

/// Sets one number by its key, then checks the whole.
///
/// # Errors
/// Says which keys are known, or how the value is written, or what bound it breaks.
pub fn set(impairment: &mut Impairment, key: &str, value: &str) -> Result<(), Unreadable> {
    let mut new = *impairment;
    match key {
        "delay" => new.delay_us = duration_us(value)?,
        "jitter" => new.jitter_us = duration_us(value)?,
        "handover" => new.handover_us = duration_us(value)?,
        "swing" => new.swing_us = duration_us(value)?,
        "loss" => new.loss = probability(value)?,
        "burst" => {
            let burst_packets: f64 = value.parse().map_err(|_| wrong(value, "packets, as 5"))?;
            new.loss_model = if burst_packets <= 1.0 {
                LossModel::Bernoulli
            } else {
                LossModel::GilbertElliott { burst_packets, loss_in_burst: 1.0 }
            };
        }
        "reorder" => new.reorder = probability(value)?,
        "correlation" => new.reorder_correlation = probability(value)?,
        "duplicate" => new.duplicate = probability(value)?,
        "rate" => new.rate_bps = rate_bps(value)?,
        "limit" => {
            new.limit_packets = value.parse().map_err(|_| wrong(value, "packets, as 1000"))?;
        }
        _ => {
            let known = KEYS.join(", ");
            return Err(Unreadable(format!("unknown key {key:?}: use one of {known}")));
        }
    }
    new.check().map_err(|invalid| Unreadable(invalid.to_string()))?;
    *impairment = new;
    Ok(())
}

/// Reads a duration with its unit: `250us`, `1.5ms`, `2s`.
///
/// # Errors
/// Says how it is written.
pub fn duration_us(text: &str) -> Result<u64, Unreadable> {
    let us = scaled(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)]);
    us.map(|us| us.round() as u64).ok_or_else(|| wrong(text, "a time, as 250us, 1.5ms or 2s"))
}

/// Reads a rate with its unit: `64kbit`, `100mbit`, `1gbit`; `0` is no limit.
///
/// # Errors
/// Says how it is written.
pub fn rate_bps(text: &str) -> Result<u64, Unreadable> {
    if text == "0" {
        return Ok(0);
    }
    let bps = scaled(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)]);
    let bps = bps.map(|bps| bps.round() as u64);
    bps.ok_or_else(|| wrong(text, "a rate, as 64kbit, 100mbit or 1gbit, or 0 for no limit"))
}

/// Reads a share: `2.5%` or `0.025`.
///
/// # Errors
/// Says how it is written.
pub fn probability(text: &str) -> Result<f64, Unreadable> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|n| n * scale);
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| wrong(text, "a share between 0 and 1, as 2.5% or 0.025"))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    let value = number.trim().parse::<f64>().ok()? * scale;
    (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value)
}

fn wrong(text: &str, like: &str) -> Unreadable {
    Unreadable(format!("{text:?} is not {like}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_are_those_of_the_published_comparison() {
        let medium = named("medium").expect("medium");
        assert_eq!((medium.delay_us, medium.jitter_us), (4_000, 7_000));
        assert_eq!((medium.rate_bps, medium.limit_packets), (1_000_000_000, 1_000));
        let shares = |name| named(name).map(|i| (i.loss, i.reorder, i.reorder_correlation));
        assert_eq!(shares("baseline"), Some((0.0, 0.0, 0.0)));
        assert_eq!(shares("low"), Some((0.0025, 0.005, 0.25)));
        assert_eq!(shares("high"), Some((0.025, 0.05, 0.5)));
        assert!(PROFILES.iter().all(|name| named(name).is_some_and(|i| i.check().is_ok())));
        assert!(named("Medium").is_none());
    }

    #[test]
    fn numbers_are_read_with_their_units() {
        let mut line = Impairment::LINE;
        for word in ["high", "delay=1.5ms", "loss=2%", "rate=100mbit", "limit=50", "burst=4"] {
            apply(&mut line, word).expect(word);
        }
        assert_eq!((line.delay_us, line.rate_bps, line.limit_packets), (1_500, 100_000_000, 50));
        assert!((line.loss - 0.02).abs() < 1e-12);
        assert!(matches!(line.loss_model, LossModel::GilbertElliott { .. }));
        assert_eq!(line.jitter_us, 15_000, "what is not named stays");
        for word in ["handover=15s", "swing=7.5ms"] {
            apply(&mut line, word).expect(word);
        }
        assert_eq!((line.handover_us, line.swing_us), (15_000_000, 7_500));
    }

    #[test]
    fn what_cannot_be_read_says_how_it_is_written_and_changes_nothing() {
        for (word, hint) in [
            ("mid", "baseline, low"),
            ("dely=1ms", "delay, jitter"),
            ("delay=5", "1.5ms"),
            ("loss=101%", "between 0 and 1"),
            ("loss=-1%", "between 0 and 1"),
            ("loss=nan", "between 0 and 1"),
            ("rate=fast", "100mbit"),
            ("limit=0", "limit"),
            ("delay=9999999s", "delay"),
            ("swing=5ms", "handover=15s"),
            ("handover=soon", "1.5ms"),
        ] {
            let mut line = Impairment::LINE;
            let error = apply(&mut line, word).expect_err(word).to_string();
            assert!(error.contains(hint), "{word}: {error}");
            assert_eq!(line, Impairment::LINE);
        }
    }
}
