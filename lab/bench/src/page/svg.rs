//! Charts as inline SVG: no script, no font of their own, colours from the page's style sheet.

use std::fmt::Write as _;

use super::number;

const WIDTH: f64 = 720.0;
const LABEL_WIDTH: f64 = 180.0;
const ROW: f64 = 24.0;
const MARGIN: f64 = 34.0;
/// A number that is zero or less has its place here on an axis of powers of ten.
const LOG_FLOOR: f64 = 1e-3;

/// Text that cannot be taken for markup.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c if c.is_control() && c != '\n' && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Values of one peer.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) values: Vec<f64>,
    /// Ours.
    pub(crate) marked: bool,
}

/// A place in a plane.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) label: String,
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Ours.
    pub(crate) marked: bool,
}

/// An axis: values to pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    min: f64,
    max: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis that shows all of them; by powers of ten where they span more than one.
    pub(crate) fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let max = values.clone().fold(f64::MIN, f64::max);
        let min = values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(max);
        let is_log = min > 0.0 && max / min > 10.0;
        let (min, max) = match is_log {
            true => (10f64.powf(min.log10().floor()), 10f64.powf((max * 1.02).log10().ceil())),
            false => (0.0, if max > 0.0 { max * 1.08 } else { 1.0 }),
        };
        Self { min, max, is_log, from, to }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => {
                let min = self.min.log10();
                let max = self.max.log10();
                (value.max(self.min.max(LOG_FLOOR)).log10() - min) / (max - min)
            }
            false => (value - self.min) / (self.max - self.min),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let min = self.min.log10().round() as i32;
            let max = self.max.log10().round() as i32;
            return (min..=max).map(|power| 10f64.powi(power)).collect();
        }
        let rough = self.max / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        (0..=6).map(|i| f64::from(i) * step).filter(|tick| *tick <= self.max).collect()
    }
}

/// A box for each peer: the middle half, the median, and whiskers to the smallest and largest.
pub(crate) fn boxes(title: &str, unit: &str, rows: &[Row]) -> String {
    let all = rows.iter().flat_map(|row| row.values.iter().copied());
    if all.clone().next().is_none() {
        return String::new();
    }
    let axis = Axis::over(all, LABEL_WIDTH, WIDTH - 16.0);
    let height = MARGIN + rows.len() as f64 * ROW + MARGIN;
    let mut svg = open(height, title);
    let bottom = height - MARGIN;
    vertical_ticks(&mut svg, &axis, 28.0, bottom);
    for (i, row) in rows.iter().enumerate() {
        let y = 28.0 + (i as f64 + 0.5) * ROW;
        let class = if row.marked { "mark" } else { "plain" };
        let _ = write!(
            svg,
            "<text class='{class}' x='{:.0}' y='{:.1}' text-anchor='end'>{}</text>",
            LABEL_WIDTH - 8.0,
            y + 4.0,
            escape(&row.label)
        );
        let mut sorted = row.values.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            let _ = write!(
                svg,
                "<text class='note' x='{:.0}' y='{:.1}'>failed or not measured</text>",
                LABEL_WIDTH + 6.0,
                y + 4.0
            );
            continue;
        };
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| axis.at(quantile(&sorted, share)));
        let min = axis.at(*min);
        let max = axis.at(*max);
        let width = (high - low).max(2.0);
        let _ = write!(
            svg,
            "<g class='{class}'><line x1='{min:.1}' x2='{max:.1}' y1='{y:.1}' y2='{y:.1}'/>\
             <rect x='{low:.1}' y='{:.1}' width='{width:.1}' height='12' rx='2'/>\
             <line class='median' x1='{middle:.1}' x2='{middle:.1}' y1='{:.1}' y2='{:.1}'/></g>",
            y - 6.0,
            y - 8.0,
            y + 8.0
        );
    }
    let _ = write!(
        svg,
        "<text class='note' x='{:.0}' y='{:.0}' text-anchor='end'>{}</text></svg>",
        WIDTH - 16.0,
        height - 4.0,
        escape(unit)
    );
    svg
}

/// A point for each peer.
pub(crate) fn scatter(title: &str, x_unit: &str, y_unit: &str, points: &[Point]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let height = 340.0;
    let left = 64.0;
    let bottom = height - 44.0;
    let x = Axis::over(points.iter().map(|p| p.x), left, WIDTH - 130.0);
    let y = Axis::over(points.iter().map(|p| p.y), bottom, 36.0);
    let mut svg = open(height, title);
    vertical_ticks(&mut svg, &x, 36.0, bottom);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class='grid' x1='{left}' x2='{:.0}' y1='{at:.1}' y2='{at:.1}'/>\
             <text class='note' x='{:.0}' y='{:.1}' text-anchor='end'>{}</text>",
            WIDTH - 130.0,
            left - 6.0,
            at + 4.0,
            number(tick)
        );
    }
    let mut labels: Vec<(f64, f64)> = Vec::new();
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| b.y.total_cmp(&a.y));
    for point in sorted {
        let px = x.at(point.x);
        let py = y.at(point.y);
        // A label that would lie on another, or on a point, moves down until it does not.
        let mut label_y = py + 4.0;
        let dots = points.iter().map(|p| (x.at(p.x), y.at(p.y) + 4.0));
        let dots: Vec<(f64, f64)> =
            dots.filter(|(dx, _)| (4.0..110.0).contains(&(dx - px))).collect();
        let lies_on = |label_y: f64| {
            labels.iter().any(|(lx, ly)| (lx - px).abs() < 120.0 && (ly - label_y).abs() < 13.0)
                || dots.iter().any(|(_, dy)| (dy - label_y).abs() < 10.0)
        };
        while lies_on(label_y) {
            label_y += 13.0;
        }
        labels.push((px, label_y));
        let class = if point.marked { "mark" } else { "plain" };
        let _ = write!(
            svg,
            "<g class='{class}'><circle cx='{px:.1}' cy='{py:.1}' r='5'/></g>\
             <text class='{class}' x='{:.1}' y='{label_y:.1}'>{}</text>",
            px + 9.0,
            escape(&point.label)
        );
    }
    let _ = write!(
        svg,
        "<text class='note' x='{:.0}' y='{:.0}' text-anchor='end'>{}</text>\
         <text class='note' x='4' y='30'>{}</text></svg>",
        WIDTH - 130.0,
        height - 8.0,
        escape(x_unit),
        escape(y_unit)
    );
    svg
}

/// The beginning of a chart that is a file: it brings its style and a ground to stand on.
pub(crate) fn file(title: &str, width: f64, height: f64, style: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height:.0}' \
         width='{width}' height='{height:.0}' role='img' aria-label='{title}'>\n\
         <style>{style}</style>\n\
         <rect class='ground' x='0.5' y='0.5' width='{:.0}' height='{:.0}' rx='6'/>\n\
         <text class='title' x='14' y='26'>{title}</text>\n",
        width - 1.0,
        height - 1.0
    )
}

fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox='0 0 {WIDTH} {height:.0}' role='img' aria-label='{title}'>\
         <text class='title' x='4' y='14'>{title}</text>"
    )
}

fn vertical_ticks(svg: &mut String, axis: &Axis, top: f64, bottom: f64) {
    for tick in axis.ticks() {
        let at = axis.at(tick);
        let _ = write!(
            svg,
            "<line class='grid' x1='{at:.1}' x2='{at:.1}' y1='{top}' y2='{bottom:.0}'/>\
             <text class='note' x='{at:.1}' y='{:.0}' text-anchor='middle'>{}</text>",
            bottom + 15.0,
            number(tick)
        );
    }
}

/// Between the values around a share of a sorted list.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let low = at.floor() as usize;
    let part = at.fract();
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_can_become_markup() {
        let evil = "<script>alert('&\"')</script>\u{1b}[0m";
        let row = Row { label: evil.to_owned(), values: vec![1.0, 5.0], marked: false };
        let point = Point { label: evil.to_owned(), x: 1.0, y: 2.0, marked: true };
        for svg in [boxes(evil, evil, &[row]), scatter(evil, evil, evil, &[point])] {
            assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
            assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
        }
    }

    #[test]
    fn odd_values_stay_within_the_chart() {
        for values in [vec![0.0], vec![0.0, 0.0], vec![1e-9, 1e9], vec![5.0; 3], vec![]] {
            let axis = Axis::over(values.iter().copied(), 100.0, 200.0);
            for value in &values {
                assert!((100.0..=200.0).contains(&axis.at(*value)), "{values:?}");
            }
            assert!(axis.ticks().len() < 40 || values.is_empty());
        }
        let row = Row { label: "x".to_owned(), values: Vec::new(), marked: false };
        assert_eq!(boxes("t", "s", &[row]), "");
    }

    /// From 0 to 108 over 524 pixels: the middle half is the box, the ends are the whiskers.
    #[test]
    fn a_box_is_the_middle_half_of_its_values() {
        let row = Row {
            label: "x".to_owned(),
            values: vec![100.0, 20.0, 40.0, 60.0, 80.0],
            marked: true,
        };
        let svg = boxes("t", "s", &[row]);
        let x = |value: f64| LABEL_WIDTH + value / 108.0 * (WIDTH - 16.0 - LABEL_WIDTH);
        let (low, middle, high) = (x(40.0), x(60.0), x(80.0));
        let [line, rect, median] = [
            format!("<line x1='{:.1}' x2='{:.1}'", x(20.0), x(100.0)),
            format!("<rect x='{low:.1}' y='34.0' width='{:.1}'", high - low),
            format!("<line class='median' x1='{middle:.1}' x2='{middle:.1}'"),
        ];
        for part in [line, rect, median] {
            assert!(svg.contains(&part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
