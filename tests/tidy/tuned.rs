//! Tuned numbers of `repair` and `link` stand in their `Tuning`, where an ablation finds them, and
//! nowhere else. What a test can see of it: a constant that is a share, a time or a rate is one of
//! those below, whose reason is that it is no tuned number.

use super::form::{code, crate_of, files, is_shipped};

/// Such constants that are left, by crate: bounds, mathematics, what an RFC says, and the times of
/// paths and their probes, which docs/paths.md explains. A number may only fall.
const LEFT: [(&str, usize); 2] = [("core/packets/repair", 10), ("core/packets/link", 35)];

/// Ends of names that say a unit of time or of a rate.
const UNITS: [&str; 4] = ["_US", "_MS", "_NS", "_RATE"];

/// Names of constants in `code` that may be tuned numbers.
fn measures(code: &str) -> impl Iterator<Item = &str> {
    code.split("const ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(':')?;
        let of = rest.split('=').next()?.trim();
        let is_name =
            name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let has_unit = UNITS.iter().any(|unit| format!("{name}_").contains(&format!("{unit}_")));
        let is_measure = has_unit || ["f32", "f64", "Duration"].iter().any(|of_| of.contains(of_));
        (is_name && is_measure).then_some(name)
    })
}

#[test]
fn tuned_numbers_of_repair_and_link_stand_in_their_tuning() {
    for (of, left) in LEFT {
        let mut found = Vec::new();
        for (name, text) in files().iter().filter(|(name, _)| is_shipped(name)) {
            if crate_of(name) == of && !name.ends_with("/tuning.rs") {
                found.extend(measures(&code(text)).map(|number| format!("{name}: {number}")));
            }
        }
        assert!(found.len() <= left, "{of} has more than {left}:\n{}", found.join("\n"));
        assert_eq!(found.len(), left, "{of} has fewer: lower its number");
    }
}

#[test]
fn a_share_a_time_and_a_rate_are_seen_and_a_bound_is_not() {
    let seen =
        "pub const GAIN: f64 = 0.5;\nconst WAIT_US: u64 = 3;\nconst ALL: [Duration; 1] = [A];";
    assert_eq!(measures(seen).collect::<Vec<_>>(), ["GAIN", "WAIT_US", "ALL"]);
    let not = "const PLACES_MAX: usize = 9;\nconst fn of(a: f64) {}\nconst US_MAX: u64 = 1;";
    assert_eq!(measures(not).count(), 0);
}
