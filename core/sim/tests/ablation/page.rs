//! The page of what was found.

use std::fmt::Write as _;

use super::Cells;
use crate::lines::{Cell, Lines, Over};
use crate::numbers::{Change, How, Number};

/// Worth less than this, in the geometric means, is worth nothing.
const MEAN: f64 = 0.01;

/// A change beside today.
pub(crate) struct Beside {
    /// Goodput over lossy and over clear lines, geometric means.
    pub(crate) lossy: f64,
    pub(crate) clear: f64,
    /// Bytes on the wire, geometric mean.
    wire: f64,
    /// Least goodput of any line.
    worst: f64,
    /// Whether nothing changed, to the bit: these lines do not see the number.
    is_unseen: bool,
}

impl Beside {
    pub(crate) fn of(lines: &Lines, over: Over, found: &Cells, today: &Cells) -> Self {
        let mut sums = [(0.0, 0.0); 3];
        let mut worst = f64::INFINITY;
        for (line, (cell, before)) in lines.over(over).zip(found.iter().zip(today)) {
            let ratio = cell.mbit_s / before.mbit_s;
            let of = &mut sums[usize::from(!line.is_lossy)];
            *of = (of.0 + ratio.ln(), of.1 + 1.0);
            sums[2] = (sums[2].0 + (cell.wire / before.wire).ln(), sums[2].1 + 1.0);
            // What failed is the worst.
            worst = if ratio.is_nan() { 0.0 } else { worst.min(ratio) };
        }
        let [lossy, clear, wire] = sums.map(|(sum, of): (f64, f64)| (sum / of.max(1.0)).exp());
        let is_same = |(a, b): (&Cell, &Cell)| a == b;
        Self { lossy, clear, wire, worst, is_unseen: found.iter().zip(today).all(is_same) }
    }

    /// Whether the means say that the number is worth nothing.
    fn is_idle(&self) -> bool {
        self.lossy > 1.0 - MEAN && self.clear > 1.0 - MEAN && self.wire < 1.0 + MEAN
    }

    pub(crate) fn written(&self) -> String {
        let Self { lossy, clear, wire, worst, is_unseen } = self;
        if *is_unseen {
            return "unseen".to_owned();
        }
        format!("{lossy:.3} {clear:.3} {wire:.3} {worst:.2}")
    }
}

/// Whether a change is worth a run over all lines: it seems to cost nothing, but the lines see it.
pub(crate) fn seems_idle(lines: &Lines, over: Over, found: &Cells, today: &Cells) -> bool {
    let beside = Beside::of(lines, over, found, today);
    beside.is_idle() && !beside.is_unseen
}

/// The page.
pub(crate) fn write(
    lines: &Lines,
    numbers: &[Number],
    of: impl Fn(Over, &str) -> Option<Cells>,
) -> String {
    let mut text = String::from(include_str!("head.md"));
    for (over, title) in [(Over::All, "All lines"), (Over::Sample, "The sample")] {
        let Some(today) = of(over, "today") else { continue };
        let shown = |change: &Change| {
            let found = of(over, &change.name);
            found.map(|found| Beside::of(lines, over, &found, &today).written())
        };
        let _ = writeln!(
            text,
            "\n## {title}\n\n| number | file | off | × 0.5 | × 2 |\n|---|---|---|---|---|"
        );
        for chance in Change::chances() {
            if let Some(found) = shown(&chance) {
                let _ = writeln!(text, "| chance, seeds from {} | | {found} | | |", chance.seed);
            }
        }
        for number in numbers {
            let hows = [How::Off, How::Times(0.5), How::Times(2.0)];
            let found = hows.map(|how| Change::of(number, how).as_ref().and_then(&shown));
            if found.iter().any(Option::is_some) {
                let [off, half, twice] = found.map(Option::unwrap_or_default);
                let (name, file) = (number.name(), number.file());
                let _ = writeln!(text, "| {name} | {file} | {off} | {half} | {twice} |");
            }
        }
    }
    text
}
