//! Bars of medians, one below the other: narrow enough that a phone shows them at their size.

use std::fmt::Write as _;

use super::number;
use super::svg::escape;

const WIDTH: f64 = 340.0;
/// The title, and the line with unit and direction below it.
const HEAD: f64 = 40.0;
const ROW: f64 = 36.0;
const BAR: f64 = 11.0;

/// One peer's bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    /// Median, smallest, largest and how many; none where it failed or was not measured.
    pub(crate) found: Option<[f64; 3]>,
    pub(crate) n: usize,
    /// Ours.
    pub(crate) marked: bool,
}

/// What the chart says, for whoever does not see it.
fn told(bar: &Bar) -> String {
    match bar.found {
        Some([median, min, max]) if min < max => {
            let [median, min, max] = [median, min, max].map(number);
            format!("{}: {median}, from {min} to {max}", bar.label)
        }
        Some([median, ..]) => format!("{}: {}", bar.label, number(median)),
        None => format!("{}: failed or not measured", bar.label),
    }
}

/// A bar from zero to each median, with a line from the smallest to the largest.
pub(crate) fn bars(title: &str, note: &str, bars: &[Bar]) -> String {
    let height = HEAD + ROW * bars.len() as f64 + 4.0;
    let all = bars.iter().filter_map(|bar| bar.found);
    let most = all.map(|[median, _, max]| max.max(median)).fold(0.0, f64::max);
    let across = |value: f64| if most > 0.0 { (value / most).clamp(0.0, 1.0) * WIDTH } else { 0.0 };
    let said: Vec<String> = bars.iter().map(told).collect();
    let alt = escape(&format!("{title}, {note}. {}.", said.join("; ")));
    let mut svg = format!(
        "<svg class='bars' viewBox='0 0 {WIDTH} {height:.0}' role='img' aria-label='{alt}'>\
         <text class='title' x='0' y='14'>{}</text><text class='note' x='0' y='30'>{}</text>",
        escape(title),
        escape(note)
    );
    for (i, bar) in bars.iter().enumerate() {
        let y = HEAD + ROW * i as f64;
        let class = if bar.marked { "mark" } else { "plain" };
        let value = match bar.found {
            Some([median, ..]) => number(median),
            None => "failed or not measured".to_owned(),
        };
        let _ = write!(
            svg,
            "<text class='{class}' x='0' y='{0:.0}'>{1}</text>\
             <text class='{class}' x='{WIDTH}' y='{0:.0}' text-anchor='end'>{value}</text>",
            y + 12.0,
            escape(&bar.label)
        );
        let Some([median, min, max]) = bar.found.map(|found| found.map(across)) else { continue };
        let middle = y + 17.0 + BAR / 2.0;
        let _ = write!(
            svg,
            "<g class='{class}'><rect x='0' y='{:.0}' width='{:.1}' height='{BAR}'/>",
            y + 17.0,
            median.max(1.0)
        );
        if min < max {
            let _ = write!(
                svg,
                "<line class='median' x1='{min:.1}' x2='{max:.1}' y1='{middle:.1}' \
                 y2='{middle:.1}'/>"
            );
        }
        svg += "</g>";
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, found: Option<[f64; 3]>) -> Bar {
        Bar { label: label.to_owned(), found, n: 3, marked: label == "Warren" }
    }

    #[test]
    fn a_bar_begins_at_zero_and_its_line_reaches_from_the_smallest_to_the_largest() {
        let all = [bar("Warren", Some([50.0, 25.0, 100.0])), bar("no VPN", Some([10.0; 3]))];
        let svg = bars("one stream", "Mbit/s", &all);
        assert!(svg.contains("<rect x='0' y='57' width='170.0'"), "{svg}");
        assert!(svg.contains("x1='85.0' x2='340.0'"), "{svg}");
        assert_eq!(svg.matches("<line").count(), 1, "one value has no spread: {svg}");
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn who_does_not_see_a_chart_is_told_all_of_it_and_nothing_becomes_markup() {
        let evil = "<b>'\"";
        let all = [bar("Warren", Some([50.0, 25.0, 100.0])), bar(evil, None)];
        let svg = bars("one stream", "Mbit/s", &all);
        let alt = "aria-label='one stream, Mbit/s. Warren: 50, from 25 to 100; \
                   &lt;b&gt;&#39;&quot;: failed or not measured.'";
        assert!(svg.contains(alt) && !svg.contains("<b>"), "{svg}");
        assert!(bars("t", "s", &[bar("x", Some([0.0; 3]))]).contains("width='1.0'"));
    }
}
