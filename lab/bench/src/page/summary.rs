//! What a run found, in three figures: the top of its pages, and what the program prints last.

use std::fmt::Write as _;

use super::cells::{BACK, Cells, FORTH};
use super::claims;
use super::sections::{Cell, Section, Table, heat, value};
use crate::ring::Test;
use crate::ring::metric::{self, Metric};

/// Figures that are shown.
const FIGURES: usize = 3;
/// What says most, first.
const WANTED: [(Test, &str); 12] = [
    (Test::Tcp, FORTH),
    (Test::Tcp, BACK),
    (Test::Ping, "rtt_median_ms"),
    (Test::Download, "download_s"),
    (Test::Udp, FORTH),
    (Test::Six, FORTH),
    (Test::Both, "sum_mbit_s"),
    (Test::Connect, "connect_ms"),
    (Test::Reconnect, "reconnect_s"),
    (Test::Parallel, "sum_mbit_s"),
    (Test::Flood, "ping_lost_percent"),
    (Test::Shared, "inside_mbit_s"),
];
/// The weather that is neither clear nor the worst.
const USUAL: &str = "medium";

/// The three figures, each in one weather.
fn figures<'a>(cells: &Cells<'a>) -> Vec<(Test, &'static Metric, &'a str)> {
    let of = |(test, name): (Test, &str)| {
        let profiles = cells.profiles(test);
        let profile =
            profiles.iter().find(|profile| **profile == USUAL).or_else(|| profiles.first())?;
        Some((test, metric::named(name)?, *profile))
    };
    WANTED.into_iter().filter_map(of).take(FIGURES).collect()
}

fn table(cells: &Cells<'_>) -> Table {
    let figures = figures(cells);
    let mut head = vec!["peer".to_owned()];
    head.extend(figures.iter().map(|(test, metric, profile)| {
        format!("{}: {}, {} ({profile})", test.title(), metric.title, metric.unit)
    }));
    let row = |peer: &str| {
        let mut row = vec![Cell::text(peer)];
        row.extend(figures.iter().map(|(test, metric, profile)| {
            let mut cell = value(cells, profile, *test, peer, metric);
            cell.heat = heat(cells, profile, *test, peer, metric);
            cell
        }));
        row
    };
    Table { head, rows: cells.peers().map(row).collect(), ..Table::default() }
}

/// What holds and what does not, in a sentence.
fn verdict(cells: &Cells<'_>) -> String {
    let verdicts = claims::verdicts(cells);
    let count = |holds| verdicts.iter().filter(|verdict| verdict.holds == holds).count();
    format!(
        "Of what is required {} hold, {} do not, and {} were not measured.",
        count(Some(true)),
        count(Some(false)),
        count(None)
    )
}

fn marks(cells: &Cells<'_>) -> impl Iterator<Item = String> {
    let marks = cells.note.marks.iter();
    marks.map(|(word, why)| format!("Proves nothing ({word}): {why}. Not to be used for a claim."))
}

/// The first section of the pages.
pub(crate) fn section(cells: &Cells<'_>) -> Section {
    let mut paragraphs: Vec<String> = marks(cells).collect();
    paragraphs.push(format!("Medians of everybody who took part. {}", verdict(cells)));
    let title = "In short".to_owned();
    Section { title, paragraphs, tables: vec![table(cells)], ..Section::default() }
}

/// The same for a terminal.
pub(crate) fn text(cells: &Cells<'_>) -> String {
    let mut text = String::new();
    let table = table(cells);
    for (at, head) in table.head.iter().enumerate().skip(1) {
        let _ = writeln!(text, "{head}");
        let width = cells.peers().map(|peer| peer.chars().count()).max().unwrap_or(0);
        for row in &table.rows {
            let cell = |at: usize| row.get(at).map(|cell| cell.text.as_str()).unwrap_or_default();
            let _ = writeln!(text, "  {:<width$}  {:>10}", cell(0), cell(at));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", verdict(cells));
    for mark in marks(cells) {
        let _ = writeln!(text, "{mark}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::sample::tests::{note, sample};

    #[test]
    fn three_figures_stand_for_everybody_and_what_was_not_measured_for_none() {
        let mut note = note(&["Warren", "no VPN"]);
        note.settings.links = 1;
        note.marks = vec![("short".to_owned(), "of one second".to_owned())];
        let samples = [
            sample("Warren", "medium", "tcp", "a-b", &[(FORTH, 404.0), (BACK, 380.0)]),
            sample("no VPN", "medium", "tcp", "a-b", &[(FORTH, 4.3), (BACK, 4.0)]),
            sample("Warren", "low", "download", "a-b", &[("download_s", 8.0)]),
        ];
        let cells = Cells::new(&note, &samples);
        let section = section(&cells);
        assert_eq!(section.tables[0].head.len(), 1 + FIGURES, "{:?}", section.tables[0].head);
        assert!(section.tables[0].head[1].ends_with(": up, Mbit/s (medium)"));
        assert!(section.tables[0].head[3].contains("download, s (low)"));
        assert!(section.paragraphs[0].starts_with("Proves nothing (short)"));
        let text = text(&cells);
        assert!(text.contains("\n  Warren         404\n  no VPN         4.3\n"), "{text}");
        assert!(text.contains("were not measured."), "{text}");
    }
}
