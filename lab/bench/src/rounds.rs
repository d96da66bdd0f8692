//! Rounds in turn: each measures every way once, so that what changes on the machine meanwhile
//! meets all of them. Steps that take long are told of before they begin, with the time that is
//! left; ways that are soon over are told of afterwards.

use anyhow::{Result, ensure};
use lab::sys;

use crate::progress::Progress;
use crate::report::Skipped;

/// One measurement of each round, as it is told of.
pub(crate) trait Step {
    /// What is measured.
    fn title(&self) -> String;

    /// About how long it takes, for the time that is left.
    fn expected_s(&self) -> f64;
}

/// What steps found in all rounds.
#[derive(Debug)]
pub(crate) struct Findings<V> {
    /// In the order in which it was found.
    pub(crate) values: Vec<V>,
    /// What failed, and why.
    pub(crate) failures: Vec<String>,
}

/// Takes every step, round after round, and tells of each, and of who is `skipped`.
///
/// # Errors
/// The number of rounds is none, or a signal asks this process to end. A step that fails is among
/// the failures.
pub(crate) fn steps<S: Step, V>(
    rounds: u32,
    steps: &[S],
    skipped: &[Skipped],
    measure: impl Fn(&S) -> Result<Vec<V>>,
) -> Result<Findings<V>> {
    ensure!((1..=100).contains(&rounds), "there must be 1 to 100 rounds");
    sys::catch_interrupts();
    let whole_s: f64 = steps.iter().map(S::expected_s).sum();
    let mut progress = Progress::new(whole_s * f64::from(rounds));
    for Skipped { name, why, hint } in skipped {
        progress.note(&format!("skipped: {name} ({why}); {hint}"));
    }
    let mut found = Findings { values: Vec::new(), failures: Vec::new() };
    for round in 1..=rounds {
        for step in steps {
            let title = step.title();
            progress.begin_step(&format!("round {round} of {rounds}: {title}"));
            let measured = measure(step);
            // What was interrupted is no failure of the step.
            sys::check_interrupted()?;
            match measured {
                Ok(values) => found.values.extend(values),
                Err(why) => {
                    progress.note(&format!("failed: {title}: {why:#}"));
                    found.failures.push(format!("round {round}, {title}: {why:#}"));
                }
            }
            progress.end_step(step.expected_s());
        }
    }
    Ok(found)
}

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

    impl Step for u32 {
        fn title(&self) -> String {
            format!("way {self}")
        }

        fn expected_s(&self) -> f64 {
            1.0
        }
    }

    #[test]
    fn every_step_is_taken_in_each_round_and_what_fails_is_told_with_its_round() {
        let turn = std::cell::Cell::new(0);
        let measure = |step: &u32| {
            turn.set(turn.get() + 1);
            ensure!(turn.get() != 4, "it broke");
            Ok(vec![("a", step + turn.get()), ("b", turn.get())])
        };
        let found = steps(3, &[10, 20], &[], measure).unwrap();
        let of = |name: &str| -> Vec<u32> {
            found.values.iter().filter(|(known, _)| *known == name).map(|(_, v)| *v).collect()
        };
        assert_eq!((of("a"), of("b")), (vec![11, 22, 13, 15, 26], vec![1, 2, 3, 5, 6]));
        assert_eq!(found.failures, ["round 2, way 20: it broke"]);
        let none = steps(0, &[10], &[], measure);
        assert!(none.unwrap_err().to_string().contains("1 to 100"));
    }

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
