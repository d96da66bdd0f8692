//! A page for people, in Markdown: what the pages of all kinds of runs have in common.

use std::fmt::Write as _;
use std::ops::Range;

use crate::facts::Facts;
use crate::ratio::Spread;
use crate::report::{Mark, Skipped};
use crate::row::Row;

/// A page as it is written, from above to below. What is written into a String cannot fail, so the
/// results of `write!` are dropped.
#[derive(Debug)]
pub(crate) struct Sheet(String);

impl Sheet {
    pub(crate) fn new(title: &str) -> Self {
        Self(format!("# {title}\n"))
    }

    /// The page.
    pub(crate) fn text(self) -> String {
        self.0
    }

    pub(crate) fn heading(&mut self, title: &str) {
        let _ = write!(self.0, "\n## {title}\n");
    }

    pub(crate) fn subheading(&mut self, title: &str) {
        let _ = write!(self.0, "\n### {title}\n");
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        let _ = write!(self.0, "\n{text}\n");
    }

    /// Text as it was printed.
    pub(crate) fn code(&mut self, text: &str) {
        self.0.push('\n');
        for line in text.lines() {
            let _ = writeln!(self.0, "    {line}");
        }
    }

    /// Why the run proves nothing, if it does not.
    pub(crate) fn marks(&mut self, marks: &[Mark]) {
        let mark = |mark: &Mark| {
            format!("> **{}**: {}. Not to be used for a claim.\n", mark.mark, mark.why)
        };
        let all: Vec<String> = marks.iter().map(mark).collect();
        if !all.is_empty() {
            let _ = write!(self.0, "\n{}", all.join(">\n"));
        }
    }

    /// The command, the machine, and `more` of what a reader must know.
    pub(crate) fn facts(&mut self, facts: &Facts, more: &str) {
        let [one, five, fifteen] = facts.load_before;
        self.code(&facts.command);
        let _ = write!(
            self.0,
            "\n{}, commit {}. {}, {} cores, {}; load average before: {one} {five} {fifteen}.\n\
             {more}\n",
            facts.date, facts.commit, facts.cpu, facts.cores, facts.kernel
        );
    }

    /// A table: words stand on the left of a column, `figures` on the right.
    pub(crate) fn table(&mut self, head: &[&str], figures: Range<usize>, rows: &[Vec<String>]) {
        let side = |column| if figures.contains(&column) { "---:|" } else { "---|" };
        let sides = (0..head.len()).map(side);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head: Vec<String> = head.iter().map(|text| inline(text)).collect();
        let _ = write!(self.0, "\n{}|{}\n", line(&head), sides.collect::<String>());
        for row in rows {
            let cells: Vec<String> = row.iter().map(|text| inline(text)).collect();
            self.0.push_str(&line(&cells));
        }
    }

    /// What is required, and what was found.
    pub(crate) fn rows(&mut self, rows: &[Row]) {
        let head = ["what", "required", "median", "min", "max", "rounds", "met"];
        self.table(&head, 2..5, &rows.iter().map(cells).collect::<Vec<_>>());
    }

    pub(crate) fn skipped(&mut self, all: &[Skipped]) {
        for one in all {
            let Skipped { name, why, hint } = one;
            self.paragraph(&inline(&format!("**Not here**: {name} ({why}). To have it: {hint}.")));
        }
    }

    /// What failed, a line each.
    pub(crate) fn failures(&mut self, all: &[String]) {
        if all.is_empty() {
            return;
        }
        self.heading("What failed");
        self.0.push('\n');
        for one in all {
            let _ = writeln!(self.0, "- {}", inline(one));
        }
    }
}

fn cells(row: &Row) -> Vec<String> {
    let places = match &*row.unit {
        "×" | "s" => 2,
        "MiB" | "%" | "s/GB" | "ms" => 1,
        _ => 0,
    };
    let value = |pick: fn(Spread) -> f64| number(row.found.map(pick), places);
    let required = match row.required {
        Some(bound) => format!("{bound} {}", row.unit).replace(" ×", "×"),
        None => String::new(),
    };
    let met = match (row.met, row.found) {
        (Some(true), _) => "yes",
        (Some(false), _) => "**no**",
        (None, None) => "not measured",
        (None, Some(_)) => "",
    };
    vec![
        row.what.clone(),
        required,
        value(|s| s.median),
        value(|s| s.min),
        value(|s| s.max),
        format!("{} of {}", row.found.map_or(0, |s| s.n), row.rounds),
        met.to_owned(),
    ]
}

/// A figure with so many places, or a dash.
pub(crate) fn number(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// Text that cannot break out of its place: one line, no bar.
pub(crate) fn inline(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Bound;

    #[test]
    fn a_table_has_words_on_the_left_and_figures_on_the_right() {
        let mut sheet = Sheet::new("a");
        sheet.table(&["who", "how much"], 1..2, &[vec!["a|b\nc".to_owned(), "1".to_owned()]]);
        assert_eq!(sheet.text(), "# a\n\n| who | how much |\n|---|---:|\n| a\\|b c | 1 |\n");
    }

    #[test]
    fn a_bound_stands_beside_what_was_found() {
        let mut sheet = Sheet::new("a");
        let found = Spread::of(&[1.1, 1.3, 1.5]);
        sheet.rows(&[
            Row::new("rate", "×", Some(Bound::AtLeast(1.3)), found, 3),
            Row::new("memory", "MiB", Some(Bound::AtMost(1.0)), Spread::of(&[2.0]), 1),
            Row::new("time", "s", Some(Bound::AtMost(1.0)), None, 3),
            Row::new("more", "", None, Spread::of(&[2.0]), 1),
        ]);
        let page = sheet.text();
        for line in [
            "| rate | ≥ 1.3× | 1.30 | 1.10 | 1.50 | 3 of 3 | yes |",
            "| memory | ≤ 1 MiB | 2.0 | 2.0 | 2.0 | 1 of 1 | **no** |",
            "| time | ≤ 1 s | – | – | – | 0 of 3 | not measured |",
            "| more |  | 2 | 2 | 2 | 1 of 1 |  |",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn marks_the_skipped_and_failures_are_named() {
        let mut sheet = Sheet::new("a");
        let mark = |mark| Mark { mark, why: "it was".to_owned() };
        sheet.marks(&[mark("busy"), mark("short")]);
        let [name, why, hint] = ["other", "no\nPATH", "get it"].map(str::to_owned);
        sheet.skipped(&[Skipped { name, why, hint }]);
        sheet.failures(&["it | failed\nbadly".to_owned()]);
        let page = sheet.text();
        let claim = "it was. Not to be used for a claim.\n";
        assert!(page.contains(&format!("> **busy**: {claim}>\n> **short**: {claim}")), "{page}");
        assert!(page.contains("**Not here**: other (no PATH). To have it: get it.\n"), "{page}");
        assert!(page.ends_with("\n## What failed\n\n- it \\| failed badly\n"), "{page}");
    }
}
