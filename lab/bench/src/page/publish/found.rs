//! What was found: a chart for each claim, and everything as heat maps.

use std::fmt::Write as _;

use super::Run;
use crate::page::about;
use crate::page::bars::{self, Bar};
use crate::page::number;
use crate::page::sections::{Cell, Section, Table};
use crate::page::svg::escape;
use crate::ring::Test;
use crate::ring::metric::{self, Better, Metric};
use crate::ring::sample::Figure;
use crate::vpn::{NO_VPN, WARREN};

/// Profiles that stand side by side.
const COLUMNS_MAX: usize = 8;
/// Tests whose cells are too many for a chart each.
const TABLES_ONLY: [Test; 1] = [Test::Grid];

impl Run {
    fn figure(&self, test: Test, profile: &str, peer: &str, name: &str) -> Option<&Figure> {
        let is_it = |figure: &&Figure| {
            (&*figure.test, &*figure.profile) == (test.word(), profile)
                && (&*figure.peer, &*figure.figure) == (peer, name)
        };
        self.figures.iter().find(is_it)
    }

    /// Profiles in which a test has a figure, in the order of the run.
    fn profiles(&self, test: Test, name: &str) -> Vec<&str> {
        let mut profiles: Vec<&str> = Vec::new();
        let has = |figure: &&Figure| figure.test == test.word() && figure.figure == name;
        for figure in self.figures.iter().filter(has) {
            if !profiles.contains(&&*figure.profile) {
                profiles.push(&figure.profile);
            }
        }
        profiles
    }

    /// The first figure of a test, and its two directions, as far as they were found.
    fn shown(&self, test: Test) -> Vec<&'static Metric> {
        let first = about::primary(test);
        let ways = about::ways(test).into_iter().filter(|way| *way != first);
        let more = about::beside(test).iter().copied();
        let all = [first].into_iter().chain(ways).chain(more).filter_map(metric::named);
        all.filter(|metric| !self.profiles(test, metric.name).is_empty()).collect()
    }
}

/// A chart for each claim of a run, and below it the claim in a sentence.
pub(super) fn claims(page: &mut String, run: &Run, is_named: bool) {
    for test in Test::ALL {
        let shown = run.shown(test);
        if shown.is_empty() {
            continue;
        }
        let of = if is_named { format!(" ({})", run.name) } else { String::new() };
        let _ = writeln!(page, "<h3>{}{}</h3>", escape(test.title()), escape(&of));
        *page += "<div class='claims'>";
        for metric in shown {
            for profile in run.profiles(test, metric.name) {
                claim(page, run, test, profile, metric);
            }
        }
        *page += "</div>\n";
    }
}

fn claim(page: &mut String, run: &Run, test: Test, profile: &str, metric: &Metric) {
    let bar = |peer: &crate::ring::sample::Peer| {
        let figure = run.figure(test, profile, &peer.name, metric.name);
        Bar {
            label: peer.name.clone(),
            found: figure.map(|f| [f.median, f.min, f.max]),
            n: figure.map_or(0, |f| f.n),
            marked: peer.name == WARREN,
        }
    };
    let all: Vec<Bar> = run.note.peers.iter().map(bar).collect();
    let better =
        if metric.better == Better::High { "longer is better" } else { "shorter is better" };
    let title = format!("{profile}: {}", metric.title);
    let chart = bars::bars(&title, &format!("{}, {better}", metric.unit), &all);
    let said = escape(&sentence(profile, metric, &all));
    let _ = writeln!(page, "<figure>{chart}<figcaption>{said}</figcaption></figure>");
}

/// A claim in words, out of the same figures as its chart.
fn sentence(profile: &str, metric: &Metric, all: &[Bar]) -> String {
    let unit = metric.unit;
    let with =
        |bar: &Bar, [median, ..]: [f64; 3]| format!("{} with {} {unit}", bar.label, number(median));
    let found: Vec<(&Bar, [f64; 3])> =
        all.iter().filter_map(|bar| Some((bar, bar.found?))).collect();
    let of = |name: &str| found.iter().find(|(bar, _)| bar.label == name);
    let mut text = match of(WARREN) {
        Some((bar, [median, min, max])) => {
            let spread = match min < max {
                true => format!(" ({} to {}, n = {})", number(*min), number(*max), bar.n),
                false => format!(" (n = {})", bar.n),
            };
            format!("{profile}: Warren has {} {unit}{spread}.", number(*median))
        }
        None => format!("{profile}: Warren has no figure here: it failed, or did not take part."),
    };
    let rivals =
        found.iter().filter(|(bar, _)| !bar.label.starts_with(WARREN) && bar.label != NO_VPN);
    let best = match metric.better {
        Better::High => rivals.max_by(|(_, a), (_, b)| a[0].total_cmp(&b[0])),
        Better::Low => rivals.min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0])),
    };
    if let Some((bar, values)) = best {
        text += &format!(" The best other VPN is {}.", with(bar, *values));
    }
    if let Some((_, [median, ..])) = of(NO_VPN) {
        text += &format!(" Without a VPN it is {} {unit}.", number(*median));
    }
    text
}

/// Peers by profiles, for each figure that has a chart, and the grid.
pub(super) fn heat_maps(run: &Run, is_named: bool) -> Section {
    let mut tables = Vec::new();
    for test in Test::ALL.into_iter().chain(TABLES_ONLY) {
        for metric in run.shown(test) {
            let of = if is_named { format!("{}: ", run.name) } else { String::new() };
            let title = format!("{of}{}: {}, {}", test.title(), metric.title, metric.unit);
            tables.push(Table { title, ..heat_map(run, test, metric) });
        }
    }
    let text = "Medians; the colour compares within a column, on a scale of powers of ten, from \
                the worst to the best. A dash is a failure, or was not measured.";
    let paragraphs = if tables.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    Section { paragraphs, tables, narrow: true, ..Section::default() }
}

fn heat_map(run: &Run, test: Test, metric: &Metric) -> Table {
    let profiles = run.profiles(test, metric.name);
    let names: Vec<&str> = run.note.peers.iter().map(|peer| &*peer.name).collect();
    let median = |peer: &str, profile: &str| {
        run.figure(test, profile, peer, metric.name).map(|figure| figure.median)
    };
    let cell = |peer: &str, profile: &str| {
        let all: Vec<f64> = names.iter().filter_map(|peer| median(peer, profile)).collect();
        match median(peer, profile) {
            Some(own) => {
                let heat = about::heat_of(own, &all, metric.better);
                Cell { text: number(own), heat: Some(heat), bad: false }
            }
            None => Cell::text("–"),
        }
    };
    let mut head = vec!["peer".to_owned()];
    // A table of 48 lines is read down, not across.
    if profiles.len() > COLUMNS_MAX {
        head[0] = "line".to_owned();
        head.extend(names.iter().map(|name| (*name).to_owned()));
        let row = |profile: &&str| {
            let mut row = vec![Cell::text(*profile)];
            row.extend(names.iter().map(|peer| cell(peer, profile)));
            row
        };
        return Table { head, rows: profiles.iter().map(row).collect(), ..Table::default() };
    }
    head.extend(profiles.iter().map(|profile| (*profile).to_owned()));
    let row = |peer: &&str| {
        let mut row = vec![Cell::text(*peer)];
        row.extend(profiles.iter().map(|profile| cell(peer, profile)));
        row
    };
    Table { head, rows: names.iter().map(row).collect(), ..Table::default() }
}
