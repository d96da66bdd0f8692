//! What we lose: every figure in which somebody else is better, and by how much.

use std::cmp::Ordering::Equal;

use super::Run;
use crate::page::sections::{Cell, Section, Table};
use crate::page::{number, standing};
use crate::ratio::Spread;
use crate::ring::metric::{self, Better};
use crate::ring::sample::Figure;
use crate::vpn::{WARREN, WARREN_NETWORK, WARREN_PLAIN};

/// Nobody's rivals.
const OURS: [&str; 3] = [WARREN, WARREN_PLAIN, WARREN_NETWORK];
/// Rows that are shown at once; all others are folded away.
const SHOWN: usize = 20;
/// What two measurements of the same differ by.
const NOISE: f64 = 0.01;

/// A figure in which another is better.
pub(super) struct Loss<'a> {
    pub(super) ours: &'a Figure,
    pub(super) best: &'a Figure,
    /// How many times better, above 1; without bound where one of the two is zero.
    pub(super) times: f64,
}

/// Whether two ranges do not overlap.
fn is_proven(loss: &Loss<'_>) -> bool {
    standing(&spread(loss.ours), &spread(loss.best)) == "apart"
}

fn spread(f: &Figure) -> Spread {
    Spread { median: f.median, min: f.min, max: f.max, n: f.n }
}

/// All of a run: those whose ranges are apart before others, and of each kind the largest first.
pub(super) fn losses(run: &Run) -> Vec<Loss<'_>> {
    let mut all = Vec::new();
    for ours in run.figures.iter().filter(|figure| figure.peer == WARREN) {
        let Some(metric) = metric::named(&ours.figure) else { continue };
        let is_like = |other: &&Figure| {
            (&other.test, &other.profile, &other.figure)
                == (&ours.test, &ours.profile, &ours.figure)
                && !OURS.contains(&&*other.peer)
        };
        let others = run.figures.iter().filter(is_like);
        let best = match metric.better {
            Better::High => others.max_by(|a, b| a.median.total_cmp(&b.median)),
            Better::Low => others.min_by(|a, b| a.median.total_cmp(&b.median)),
        };
        let Some(best) = best else { continue };
        let times = match metric.better {
            Better::High => best.median / ours.median,
            Better::Low => ours.median / best.median,
        };
        // Nothing beside nothing is no loss.
        if times > 1.0 + NOISE {
            all.push(Loss { ours, best, times });
        }
    }
    let rank = |loss: &Loss<'_>| (is_proven(loss), loss.times);
    all.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(Equal));
    all
}

/// The section of a run.
pub(super) fn section(run: &Run, is_named: bool) -> Section {
    let losses = losses(run);
    let compared = run.figures.iter().filter(|figure| figure.peer == WARREN).count();
    let mut paragraphs = Vec::new();
    let of_run = if is_named { format!("In the run {}: of", run.name) } else { "Of".to_owned() };
    paragraphs.push(format!(
        "{of_run} {compared} figures of Warren, somebody else is better in {}. Those whose \
         ranges are apart come first. Where ranges overlap or values are few, the order of two \
         medians proves nothing.",
        losses.len()
    ));
    if run.has_samples {
        let failed = run.samples.iter().filter(|s| s.key.peer == WARREN && s.failed.is_some());
        paragraphs.push(match failed.count() {
            0 => "No measurement of Warren failed.".to_owned(),
            n => format!("{n} measurements of Warren failed; they stand under “What is required”."),
        });
    }
    let head =
        ["test", "weather", "figure", "Warren", "the best other", "who", "times better", "ranges"];
    let head: Vec<String> = head.map(str::to_owned).to_vec();
    let (shown, folded) = losses.split_at(losses.len().min(SHOWN));
    let rows = |losses: &[Loss<'_>]| losses.iter().map(row).collect::<Vec<_>>();
    let tables = vec![
        Table { head: head.clone(), rows: rows(shown), ..Table::default() },
        Table { title: "Smaller ones".to_owned(), head, rows: rows(folded), is_folded: true },
    ];
    Section { paragraphs, tables, ..Section::default() }
}

fn row(loss: &Loss<'_>) -> Vec<Cell> {
    let metric = metric::named(&loss.ours.figure);
    let figure = metric.map_or("", |metric| metric.title);
    let unit = metric.map_or("", |metric| metric.unit);
    let times = if loss.times.is_finite() { number(loss.times) } else { "–".to_owned() };
    vec![
        Cell::text(&*loss.ours.test),
        Cell::text(&*loss.ours.profile),
        Cell::text(format!("{figure}, {unit}")),
        Cell::text(number(loss.ours.median)),
        Cell::text(number(loss.best.median)),
        Cell::text(&*loss.best.peer),
        Cell::text(times),
        Cell::text(standing(&spread(loss.ours), &spread(loss.best))),
    ]
}
