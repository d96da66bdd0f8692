//! The pages of a run: `report.html` and `report.md` in its folder, and lists.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use sim::profile;

use crate::ratio::{Spread, log_percent, rounded};
use crate::ring::{Test, grid, metric, sample};
use crate::vpn::{Vpn, WARREN};

mod about;
mod bars;
mod cells;
mod chart;
mod claims;
mod html;
mod publish;
mod sections;
mod summary;
pub(crate) mod svg;
mod text;

use cells::Cells;

/// What the pages are called, by how many kinds of weather there were.
fn title(note: &sample::Note) -> String {
    match note.settings.profiles.as_slice() {
        [] => "Warren beside other VPNs".to_owned(),
        [one] => format!("Warren beside other VPNs, in the weather {one}"),
        more => format!("Warren beside other VPNs, in {} kinds of weather", more.len()),
    }
}

pub use chart::chart;
pub use publish::publish;

/// Writes both forms into the folder of a run, and the medians into its note; returns the paths.
///
/// # Errors
/// Returns an error when there is no run, or the folder cannot be written.
pub fn write(dir: &Path) -> Result<[PathBuf; 2]> {
    let (note, samples) = sample::read(dir)?;
    let cells = Cells::new(&note, &samples);
    let sections = [vec![summary::section(&cells)], sections::all(&cells)].concat();
    sample::write_note(dir, &sample::Note { figures: medians(&cells), ..note.clone() })?;
    let title = title(&note);
    let pages = [
        (dir.join("report.html"), html::render(&title, &sections, WARREN)),
        (dir.join("report.md"), text::render(&title, &sections)),
    ];
    for (path, page) in &pages {
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(pages.map(|(path, _)| path))
}

/// What a run found in three figures, for a terminal.
///
/// # Errors
/// Returns an error when there is no run.
pub fn summary(dir: &Path) -> Result<String> {
    let (note, samples) = sample::read(dir)?;
    Ok(summary::text(&Cells::new(&note, &samples)))
}

/// The first figure of each test, its two directions and what is shown beside them, of every cell
/// that is whole.
fn medians(cells: &Cells<'_>) -> Vec<sample::Figure> {
    found(cells, false)
}

/// Every figure of every cell that is whole.
fn all_figures(cells: &Cells<'_>) -> Vec<sample::Figure> {
    found(cells, true)
}

fn found(cells: &Cells<'_>, is_all: bool) -> Vec<sample::Figure> {
    let mut all = Vec::new();
    for test in Test::ALL.into_iter().chain([Test::Grid]) {
        for (profile, peer) in
            cells.profiles(test).into_iter().flat_map(|p| cells.peers().map(move |peer| (p, peer)))
        {
            let beside = about::beside(test).iter().copied().filter(|_| !is_all);
            for figure in figures(test, is_all).chain(beside) {
                let spread = cells.spread(profile, test, peer, figure);
                all.extend(spread.map(|spread| sample::Figure {
                    test: test.word().to_owned(),
                    profile: profile.to_owned(),
                    peer: peer.to_owned(),
                    figure: figure.to_owned(),
                    median: rounded(spread.median, sample::DIGITS),
                    min: rounded(spread.min, sample::DIGITS),
                    max: rounded(spread.max, sample::DIGITS),
                    n: spread.n,
                }));
            }
        }
    }
    all
}

/// What is different between two runs: for each test, profile and peer that both have whole,
/// medians, their ranges and their ratio, with what was asked differently and who took part above
/// it. Of each test its first figure and both directions, or with `all` every one that either run
/// has.
///
/// # Errors
/// Returns an error when either folder holds no run.
pub fn compare(a: &Path, b: &Path, all: bool) -> Result<String> {
    let (note_a, samples_a) = sample::read(a)?;
    let (note_b, samples_b) = sample::read(b)?;
    let cells_a = Cells::new(&note_a, &samples_a);
    let cells_b = Cells::new(&note_b, &samples_b);
    let mut text = format!("# {} ÷ {}\n\n", b.display(), a.display());
    for (name, note) in [("A", &note_a), ("B", &note_b)] {
        let facts = &note.facts;
        let s = &note.settings;
        let marks = note.marks.iter().map(|(word, _)| word.as_str());
        let marks: Vec<&str> = marks.chain(s.https.then_some("download over HTTPS")).collect();
        let marks =
            if marks.is_empty() { String::new() } else { format!("; {}", marks.join(", ")) };
        let _ = writeln!(
            text,
            "- {name}: {}, commit {}, {}, {} cores, {}; {} s, {} rounds, {} links, seed {}, tuning \
             {}{marks}; {}",
            facts.date,
            facts.commit,
            facts.cpu,
            facts.cores,
            facts.kernel,
            s.seconds,
            s.rounds,
            s.links,
            s.seed,
            s.tuning,
            note.peers.iter().map(versioned).collect::<Vec<_>>().join("; ")
        );
    }
    text += "\nMedians, with least, most and how many there were. Where ranges overlap, or\n\
             there are less than three values, the medians rank nothing.\n";
    let mut both = String::new();
    let mut one = String::new();
    for test in Test::ALL.into_iter().chain([Test::Grid]) {
        for profile in either(cells_a.profiles(test), cells_b.profiles(test)) {
            for peer in cells_a.peers().filter(|peer| cells_b.took_part(peer)) {
                for name in figures(test, all) {
                    let line = compare_line(&cells_a, &cells_b, profile, test, peer, name);
                    let list = if line.contains(MISSING) { &mut one } else { &mut both };
                    list.push_str(&line);
                }
            }
        }
    }
    for (title, lines) in [("", both), ("What only one of them has whole:\n\n", one)] {
        if !lines.is_empty() {
            let _ = write!(text, "\n{title}{COMPARE_HEAD}{lines}");
        }
    }
    let alone = |cells: &Cells<'_>, other: &Cells<'_>| {
        let names = cells.peers().filter(|peer| !other.took_part(peer));
        names.map(str::to_owned).collect::<Vec<_>>().join(", ")
    };
    for (name, only) in [("A", alone(&cells_a, &cells_b)), ("B", alone(&cells_b, &cells_a))] {
        if !only.is_empty() {
            let _ = writeln!(text, "\nOnly in {name}: {only}.");
        }
    }
    Ok(text)
}

/// What stands for a cell that is not whole.
const MISSING: &str = "failed or missing";
const COMPARE_HEAD: &str = "| test | profile | peer | figure | A | B | B ÷ A | log-change, log % \
                            | ranges |\n|---|---|---|---|---:|---:|---:|---:|---|\n";

/// The profiles of one run, then those that only the other has.
fn either<'a>(a: Vec<&'a str>, b: Vec<&'a str>) -> Vec<&'a str> {
    let only_b: Vec<&str> = b.into_iter().filter(|profile| !a.contains(profile)).collect();
    [a, only_b].concat()
}

/// A name with its version.
fn versioned(peer: &sample::Peer) -> String {
    format!("{} ({})", peer.name, peer.version)
}

/// The figures of a test that are compared: its first one, both directions, and with `all` the
/// rest.
fn figures(test: Test, all: bool) -> impl Iterator<Item = &'static str> {
    let first = about::primary(test);
    let ways = about::ways(test).into_iter().filter(move |way| *way != first);
    let rest = metric::METRICS.iter().map(|metric| metric.name);
    let is_rest = move |name: &&str| *name != first && !about::ways(test).contains(name);
    [first].into_iter().chain(ways).chain(rest.filter(is_rest).filter(move |_| all))
}

fn compare_line(
    a: &Cells<'_>,
    b: &Cells<'_>,
    profile: &str,
    test: Test,
    peer: &str,
    name: &str,
) -> String {
    let (title, unit) = metric::named(name).map_or(("", ""), |m| (m.title, m.unit));
    let [of_a, of_b] = [a, b].map(|cells| cells.spread(profile, test, peer, name));
    if of_a.is_none() && of_b.is_none() {
        return String::new();
    }
    let both = of_a.zip(of_b);
    let medians = both.map(|(a, b)| (a.median, b.median)).filter(|(a, b)| *a > 0.0 && *b > 0.0);
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
    format!(
        "| {} | {profile} | {peer} | {title}, {unit} | {} | {} | {} | {} | {} |\n",
        test.word(),
        spread_text(of_a),
        spread_text(of_b),
        or_dash(medians.map(|(a, b)| b / a)),
        or_dash(medians.and_then(|(a, b)| log_percent(b / a))),
        both.map_or("–", |(a, b)| standing(&a, &b)),
    )
}

/// A median, what it lies between, and of how many values.
fn spread_text(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || MISSING.to_owned(),
        |s| match s.n {
            1 => format!("{} (1)", number(s.median)),
            n => format!("{} ({} to {}; {n})", number(s.median), number(s.min), number(s.max)),
        },
    )
}

/// Whether two spreads say that one is better: medians alone rank nothing.
fn standing(a: &Spread, b: &Spread) -> &'static str {
    match a.n.min(b.n) {
        0..3 => "too few to tell",
        _ if a.max < b.min || b.max < a.min => "apart",
        _ => "overlap",
    }
}

/// A number with about three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 99.95 => format!("{size:.0}"),
        _ if size >= 9.995 => format!("{size:.1}"),
        _ if size >= 0.9995 => format!("{size:.2}"),
        _ => format!("{size:.3}"),
    };
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if value < 0.0 && text != "0" { format!("−{text}") } else { text }
}

/// Peers, profiles and tests, for people.
#[must_use]
pub fn list(peers: &[Box<dyn Vpn>]) -> String {
    let mut text = String::from("Peers\n");
    for vpn in peers {
        let word = vpn.word();
        let name = vpn.name();
        let _ = match vpn.version() {
            Ok(version) => writeln!(text, "  {word:<14} {name}: {version}"),
            Err(why) => {
                let hint = vpn.install_hint();
                writeln!(text, "  {word:<14} {name}: absent, {why:#}\n{:17}get it: {hint}", "")
            }
        };
    }
    text += "\nProfiles, for each host's way out: 1 Gbit/s, a queue of 1000 packets, and\n";
    for name in profile::PROFILES {
        let _ = writeln!(text, "  {name:<14} {}", weather(name));
    }
    text += "  or words joined by +, as delay=20ms+loss=1%+burst=4+rate=50mbit+limit=83\n";
    let _ = writeln!(text, "  --grid measures {} such profiles", grid::cells().len());
    text += "\nTests\n";
    for test in Test::ALL {
        let _ = writeln!(text, "  {:<14} {}", test.word(), test.title());
    }
    text
}

/// The same as JSON, schema 1.
///
/// # Errors
/// Returns an error when it cannot be written as JSON, which does not happen.
pub fn list_json(peers: &[Box<dyn Vpn>]) -> Result<String> {
    let peer = |vpn: &dyn Vpn| {
        let version = vpn.version();
        json!({
            "word": vpn.word(),
            "name": vpn.name(),
            "version": version.as_ref().ok(),
            "absent": version.as_ref().err().map(|why| format!("{why:#}")),
            "hint": vpn.install_hint(),
            "remark": vpn.remark(version.as_deref().unwrap_or_default()),
        })
    };
    let all = json!({
        "schema": 1,
        "peers": peers.iter().map(|vpn| peer(vpn.as_ref())).collect::<Vec<_>>(),
        "profiles": profile::PROFILES.map(|n| json!({"name": n, "weather": weather(n)})),
        "tests": Test::ALL.map(|t| json!({"word": t.word(), "title": t.title()})),
    });
    Ok(serde_json::to_string_pretty(&all).context("cannot write JSON")? + "\n")
}

/// A profile in words.
fn weather(name: &str) -> String {
    let Some(i) = profile::named(name) else { return String::new() };
    if i.delay_us == 0 && i.loss == 0.0 {
        return "nothing else".to_owned();
    }
    format!(
        "{} ± {} ms, {} % lost, {} % sent at once (correlation {} %)",
        i.delay_us / 1_000,
        i.jitter_us / 1_000,
        i.loss * 100.0,
        i.reorder * 100.0,
        i.reorder_correlation * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_no_more() {
        let said = [0.0, 0.00049, 0.1234, 1.0, 9.876, 12.34, 941.4, 12_345.6, -69.3];
        let said = said.map(number);
        assert_eq!(said, ["0", "0", "0.123", "1", "9.88", "12.3", "941", "12346", "−69.3"]);
    }

    #[test]
    fn medians_rank_nothing_where_ranges_overlap_or_values_are_few() {
        let of = |values: &[f64]| Spread::of(values).expect("values");
        let (low, high) = (of(&[1.0, 2.0, 3.0]), of(&[4.0, 5.0, 6.0]));
        assert_eq!((standing(&low, &high), standing(&high, &low)), ("apart", "apart"));
        assert_eq!(standing(&low, &of(&[3.0, 9.0, 9.0])), "overlap");
        assert_eq!(standing(&low, &of(&[8.0, 9.0])), "too few to tell");
        assert_eq!(spread_text(Some(low)), "2 (1 to 3; 3)");
        assert_eq!(spread_text(Some(of(&[7.0]))), "7 (1)");
        assert_eq!(spread_text(None), "failed or missing");
    }

    #[test]
    fn both_runs_say_what_is_compared() {
        assert_eq!(either(vec!["low", "high"], vec!["high", "grid"]), ["low", "high", "grid"]);
        let of = |test| figures(test, false).collect::<Vec<_>>();
        assert_eq!(of(Test::Tcp), [cells::FORTH, cells::BACK]);
        assert_eq!(of(Test::Both), ["sum_mbit_s", cells::FORTH, cells::BACK]);
        assert_eq!(of(Test::Parallel)[1..], ["forward_sum_mbit_s", "back_sum_mbit_s"]);
        assert_eq!(figures(Test::Both, true).count(), metric::METRICS.len());
    }

    #[test]
    fn whoever_is_absent_is_in_both_lists() {
        let all = crate::vpn::all(Path::new("/nowhere/warren"));
        let text = list(&all);
        assert!(
            text.contains("warren         Warren: absent, cannot run /nowhere/warren"),
            "{text}"
        );
        assert!(text.contains("medium         4 ± 7 ms, 1 % lost"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&list_json(&all).expect("JSON")).expect("valid");
        assert_eq!(json["peers"].as_array().map(Vec::len), Some(all.len()));
        assert_eq!((&json["peers"][0]["word"], &json["schema"]), (&json!("none"), &json!(1)));
        assert!(json["peers"][1]["version"].is_null() && json["peers"][1]["absent"].is_string());
    }
}
