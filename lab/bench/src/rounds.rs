//! Rounds in turn: each measures every way once, so that what changes on the machine meanwhile
//! meets all of them.

use anyhow::{Result, ensure};
use lab::sys;

/// What one way gave in one round.
#[derive(Debug, Clone)]
pub(crate) struct Sample<W, F> {
    pub(crate) way: W,
    pub(crate) round: u32,
    /// What was found, or why nothing was.
    pub(crate) found: Result<F, String>,
}

/// Has every way measured, round after round, and tells of each as `name` and `shown` write it.
///
/// # Errors
/// The number of rounds is none, or a signal asks this process to end.
pub(crate) fn all<W: Copy, F>(
    rounds: u32,
    ways: &[W],
    name: impl Fn(W) -> String,
    shown: impl Fn(&F) -> String,
    mut measure: impl FnMut(W, u32) -> Result<F>,
) -> Result<Vec<Sample<W, F>>> {
    ensure!((1..=100).contains(&rounds), "there must be 1 to 100 rounds");
    sys::catch_interrupts();
    let mut samples = Vec::new();
    for round in 1..=rounds {
        for &way in ways {
            let found = measure(way, round);
            sys::check_interrupted()?;
            let found = found.map_err(|error| format!("{error:#}"));
            let told = match &found {
                Ok(found) => shown(found),
                Err(why) => format!("failed: {why}"),
            };
            eprintln!("round {round}, {}: {told}", name(way));
            samples.push(Sample { way, round, found });
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_turn_in_each_round_and_what_fails_is_found_too() {
        let measure = |way: u32, round: u32| {
            ensure!((way, round) != (7, 2), "it broke");
            Ok(way * round)
        };
        let name = |way: u32| way.to_string();
        let samples = all(2, &[3, 7], name, u32::to_string, measure).unwrap();
        let found: Vec<_> = samples.iter().map(|s| (s.way, s.round, s.found.clone())).collect();
        let broken = Err("it broke".to_owned());
        assert_eq!(found, [(3, 1, Ok(3)), (7, 1, Ok(7)), (3, 2, Ok(6)), (7, 2, broken)]);
        let none = all(0, &[3], name, u32::to_string, measure);
        assert!(none.unwrap_err().to_string().contains("1 to 100"));
    }
}
