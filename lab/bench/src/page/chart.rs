//! The chart of the front page: one TCP stream in each weather, as bars, from what runs found.
//!
//! It is a file of its own, so it brings its colours with it, and a ground to stand on: a page
//! that shows it need not know whether its reader has light or dark.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use sim::profile;

use super::svg::{self, escape};
use super::{cells, number};
use crate::ring::Test;
use crate::ring::sample::{self, Figure, Note};
use crate::vpn::{EASYTIER_KCP, NO_VPN, WARREN, WIREGUARD_GO};

/// Who is shown, from above.
const PEERS: [&str; 4] = [NO_VPN, WIREGUARD_GO, EASYTIER_KCP, WARREN];
const WIDTH: f64 = 760.0;
/// Where bars begin and where the longest may end; a number stands behind it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 70.0;
/// What the line takes, Mbit/s.
const FULL: f64 = 1_000.0;
const TICKS: [f64; 5] = [0.0, 250.0, 500.0, 750.0, FULL];
const TOP: f64 = 66.0;
const ROW: f64 = 19.0;
const BAR: f64 = 13.0;
/// A weather: its heading, its bars, and room below them.
const GROUP: f64 = 24.0 + ROW * PEERS.len() as f64 + 12.0;
const STYLE: &str = "
:root{color-scheme:light dark}
text{font:13px system-ui,sans-serif;fill:#1c1e21}
.title{font-size:16px;font-weight:600}.weather{font-weight:600}
.note{font-size:12px;fill:#5b6068}.ours{font-weight:600;fill:#0b6bcb}
.ground{fill:#fff;stroke:#d5d8dd}.grid{stroke:#d5d8dd}
.bar{fill:#9aa2ad}.bar.mark{fill:#0b6bcb}.range{stroke:#1c1e21;stroke-opacity:.55}
@media(prefers-color-scheme:dark){
text{fill:#e6e8eb}.note{fill:#a2a8b1}.ours{fill:#6cb2ff}
.ground{fill:#15171a;stroke:#3a3f46}.grid{stroke:#3a3f46}
.bar{fill:#6f7784}.bar.mark{fill:#3d94f0}.range{stroke:#e6e8eb}
}
";

/// Draws one TCP stream in each named weather, of all who are shown: medians of what the runs in
/// these folders found, each from the first run that has it. The samples need not be there.
///
/// # Errors
/// Returns an error when a folder holds no run, or one that proves nothing, or no figure.
pub fn chart(runs: &[PathBuf]) -> Result<String> {
    let mut notes = Vec::new();
    for dir in runs {
        let note = sample::read_note(dir)?;
        let place = dir.display();
        ensure!(note.marks.is_empty(), "{place} proves nothing, as its report says: draw another");
        ensure!(!note.figures.is_empty(), "{place} has no figures: write its report again");
        notes.push(note);
    }
    Ok(draw(&notes))
}

/// The figure that is drawn, and the run that it is of.
fn found<'a>(notes: &'a [Note], profile: &str, peer: &str) -> Option<(&'a Note, &'a Figure)> {
    notes.iter().find_map(|note| {
        let is_it = |figure: &&Figure| {
            (&*figure.test, &*figure.figure) == (Test::Tcp.word(), cells::FORTH)
                && (&*figure.profile, &*figure.peer) == (profile, peer)
        };
        note.figures.iter().find(is_it).map(|figure| (note, figure))
    })
}

fn draw(notes: &[Note]) -> String {
    let bottom = TOP + GROUP * profile::PROFILES.len() as f64;
    let used: Vec<String> = notes.iter().filter_map(|note| source(notes, note)).collect();
    let height = bottom + 30.0 + 17.0 * used.len() as f64;
    let mut svg = open(height);
    for tick in TICKS {
        let x = across(tick);
        let y = bottom + 12.0;
        let _ = writeln!(
            svg,
            "<text class='note' x='{x:.1}' y='{y:.0}' text-anchor='middle'>{tick:.0}</text>"
        );
    }
    for (i, weather) in profile::PROFILES.iter().enumerate() {
        let top = TOP + GROUP * i as f64;
        let _ = writeln!(
            svg,
            "<text class='weather' x='14' y='{:.0}'>{}</text>",
            top + 16.0,
            escape(&heading(weather))
        );
        let [above, below] = [top + 20.0, top + GROUP - 10.0];
        for x in TICKS.map(across) {
            let _ = writeln!(
                svg,
                "<line class='grid' x1='{x:.1}' x2='{x:.1}' y1='{above:.0}' y2='{below:.0}'/>"
            );
        }
        for (row, peer) in PEERS.iter().enumerate() {
            bar(&mut svg, peer, found(notes, weather, peer), top + 24.0 + ROW * row as f64);
        }
    }
    for (i, text) in used.iter().enumerate() {
        let y = bottom + 38.0 + 17.0 * i as f64;
        let text = escape(text);
        let _ = writeln!(svg, "<text class='note' x='14' y='{y:.0}'>{text}</text>");
    }
    svg + "</svg>\n"
}

fn open(height: f64) -> String {
    let title = "One TCP stream over an impaired line of 1 Gbit/s, Mbit/s";
    svg::file(title, WIDTH, height, STYLE)
        + "<text class='note' x='14' y='46'>Longer is better. A bar is the median of three links, \
           the thin line reaches from the worst to the best.</text>\n"
}

/// A weather in few words.
fn heading(name: &str) -> String {
    let Some(weather) = profile::named(name) else { return name.to_owned() };
    let lost = format!("{} % of packets lost", weather.loss * 100.0);
    match weather.delay_us {
        0 => lost,
        delay => {
            let [delay, jitter] = [delay, weather.jitter_us].map(|us| us / 1_000);
            format!(
                "{lost}, {delay} ± {jitter} ms each way, {} % out of order",
                weather.reorder * 100.0
            )
        }
    }
}

fn bar(svg: &mut String, peer: &str, found: Option<(&Note, &Figure)>, top: f64) {
    let (text, class) = if peer == WARREN { ("ours", "bar mark") } else { ("", "bar") };
    let base = top + BAR - 2.0;
    let _ = writeln!(
        svg,
        "<text class='{text}' x='{:.0}' y='{base:.0}' text-anchor='end'>{}</text>",
        LEFT - 8.0,
        escape(peer)
    );
    let Some((_, figure)) = found else {
        let x = LEFT + 6.0;
        let _ = writeln!(svg, "<text class='note' x='{x:.0}' y='{base:.0}'>not measured</text>");
        return;
    };
    let [median, min, max] = [figure.median, figure.min, figure.max].map(across);
    let width = (median - LEFT).max(1.0);
    let middle = top + BAR / 2.0;
    let _ = writeln!(
        svg,
        "<rect class='{class}' x='{LEFT:.0}' y='{top:.0}' width='{width:.1}' height='{BAR:.0}'/>\n\
         <line class='range' x1='{min:.1}' x2='{max:.1}' y1='{middle:.1}' y2='{middle:.1}'/>\n\
         <text class='{text}' x='{:.1}' y='{base:.0}'>{}</text>",
        max.max(LEFT + width) + 6.0,
        number(figure.median)
    );
}

/// Where a throughput stands.
fn across(mbit_s: f64) -> f64 {
    LEFT + (mbit_s / FULL).clamp(0.0, 1.0) * (RIGHT - LEFT)
}

/// Of which losses a run is drawn, and which run it is, in a line; none if it is not drawn.
fn source(notes: &[Note], note: &Note) -> Option<String> {
    let is_drawn = |weather: &&str| {
        let mut all = PEERS.iter().filter_map(|peer| found(notes, weather, peer));
        all.any(|(of, _)| std::ptr::eq(of, note))
    };
    let drawn = profile::PROFILES.into_iter().filter(is_drawn).filter_map(profile::named);
    let losses: Vec<String> = drawn.map(|it| format!("{}", it.loss * 100.0)).collect();
    let facts = &note.facts;
    let seconds = note.settings.seconds;
    let date = facts.date.split(' ').next().unwrap_or_default();
    (!losses.is_empty()).then(|| {
        format!(
            "{} % lost: {seconds} s a stream, {date}, commit {}; {}, {} cores, which all share",
            losses.join(", "),
            facts.commit,
            facts.cpu,
            facts.cores
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::sample::tests::note;

    fn figure(profile: &str, peer: &str, median: f64) -> Figure {
        Figure {
            test: "tcp".to_owned(),
            profile: profile.to_owned(),
            peer: peer.to_owned(),
            figure: cells::FORTH.to_owned(),
            median,
            min: median / 2.0,
            max: median * 1.1,
            n: 3,
        }
    }

    /// A bar begins at the left and ends at its share of the line's rate.
    #[test]
    fn a_bar_is_as_long_as_its_median() {
        let found = vec![figure("low", WARREN, 500.0), figure("low", NO_VPN, 62.1)];
        let svg = draw(&[Note { figures: found, ..note(&[WARREN]) }]);
        let width = (RIGHT - LEFT) / 2.0;
        assert!(svg.contains(&format!("class='bar mark' x='{LEFT:.0}'")), "{svg}");
        assert!(svg.contains(&format!("width='{width:.1}' height='13'")), "{svg}");
        assert!(svg.contains(">62.1</text>") && svg.contains("0.25 % of packets lost"), "{svg}");
        assert_eq!(svg.matches("not measured").count(), 14, "sixteen bars but two");
    }

    /// The first run that has a figure is taken, and only runs that are drawn are named.
    #[test]
    fn the_first_run_that_has_a_figure_is_drawn() {
        let of = |median, commit: &str| {
            let mut note = note(&[WARREN]);
            note.facts.commit = commit.to_owned();
            Note { figures: vec![figure("high", WARREN, median)], ..note }
        };
        let svg = draw(&[of(511.0, "first"), of(400.0, "second")]);
        assert!(svg.contains(">511</text>") && !svg.contains(">400</text>"), "{svg}");
        assert!(svg.contains("commit first") && !svg.contains("commit second"), "{svg}");
    }

    /// What the front page shows is what the committed runs say.
    #[test]
    fn the_committed_chart_is_what_the_committed_runs_draw() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let runs = [root.join("docs/measurements/all")];
        let drawn = chart(&runs).expect("committed runs");
        let kept = std::fs::read_to_string(root.join("docs/measurements/stream.svg"));
        assert!(kept.expect("the chart") == drawn, "draw it again: make chart");
    }
}
