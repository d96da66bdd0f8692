//! The figures of source 003 that hold curves, drawn out of a run of ours: 2, 4 and 6 over losses
//! and over the rate of the line, 8 and 9 of a page, 10 of processors, 11 of a hop under stress.

use std::fmt::Write as _;

use super::STRESS;
use super::page::{CPU_SUM, Found};
use super::store::Note;
use super::system::Kind;
use crate::page::svg::{self, Axis, escape};

const WIDTH: f64 = 760.0;
/// A panel is half of the page.
const PANEL: f64 = WIDTH / 2.0;
const HEIGHT: f64 = 210.0;
const HEAD: f64 = 74.0;
/// From a panel's edge to its axes, where numbers stand.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
const ROW: f64 = 24.0;
/// Names of bars end here.
const NAMES: f64 = 140.0;
const STYLE: &str = "
:root{color-scheme:light dark}
text{font:12px system-ui,sans-serif;fill:#1c1e21}
.title{font-size:16px;font-weight:600}.panel{font-size:13px;font-weight:600}
.note{font-size:11px;fill:#5b6068}.ground{fill:#fff;stroke:#d5d8dd}.grid{stroke:#e3e6ea}
polyline{fill:none;stroke-width:2}
.c0{stroke:#6f7784;fill:#6f7784}.c1{stroke:#0b6bcb;fill:#0b6bcb}.c2{stroke:#1d9a6c;fill:#1d9a6c}
.c3{stroke:#8e44ad;fill:#8e44ad}.c4{stroke:#d9822b;fill:#d9822b}
polyline.c0,polyline.c1,polyline.c2,polyline.c3,polyline.c4{fill:none}
@media(prefers-color-scheme:dark){
text{fill:#e6e8eb}.note{fill:#a2a8b1}.ground{fill:#15171a;stroke:#3a3f46}.grid{stroke:#2c3036}
.c0{stroke:#a2a8b1;fill:#a2a8b1}.c1{stroke:#3d94f0;fill:#3d94f0}.c3{stroke:#c07be0;fill:#c07be0}}
";

/// What is one colour: a system's points, from left to right.
#[derive(Debug)]
struct Line {
    kind: Kind,
    points: Vec<[f64; 2]>,
}

/// Where a panel stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
}

/// Draws them; what was not measured is left out.
pub(super) fn draw(note: &Note, found: &Found<'_>) -> String {
    let mut panels: Vec<String> = Vec::new();
    let mut place = Place { x: 0.0, y: HEAD };
    let mut add = |panel: &dyn Fn(Place) -> Option<String>| {
        let Some(text) = panel(place) else { return };
        panels.push(text);
        place = match place.x > 0.0 {
            false => Place { x: PANEL, ..place },
            true => Place { x: 0.0, y: place.y + HEIGHT },
        };
    };
    for flows in [1, 5] {
        let step = format!("down {flows}");
        let streams = if flows == 1 { "one stream" } else { "five streams" };
        for (name, what) in [("mbit_s", "goodput, Mbit/s"), ("echo_p50_ms", "echo, ms")] {
            let lines = over_losses(found, &step, name);
            let title = format!("Figures 2, 4: {streams}, {what}");
            add(&|place| curves(place, &title, "% lost, 10 Mbit/s", &lines));
            let lines = over_rates(found, &step, name);
            let title = format!("Figure 6: {streams}, {what}");
            add(&|place| curves(place, &title, "Mbit/s of the line, 3 % lost", &lines));
        }
    }
    let clear = (Some(10), 0);
    for (title, value) in [
        ("Figure 8: kB received for a page of 602 kB", of(found, clear, "page", "page_kb")),
        ("Figure 9: the page at 10 Mbit/s, s", of(found, clear, "page", "page_s")),
        ("Figure 9: the page at 1 Gbit/s, s", of(found, (Some(1000), 0), "page", "page_s")),
        ("Figure 10: processor s/GB, four roles", of(found, (Some(1000), 0), "down 5", CPU_SUM)),
        ("Figure 11: Mbit/s while a hop is under stress", of(found, clear, STRESS, "mbit_s")),
    ] {
        add(&|place| bars(place, title, &value));
    }
    let height = place.y + if place.x > 0.0 { HEIGHT } else { 0.0 } + 24.0;
    let facts = &note.facts;
    let date = facts.date.split(' ').next().unwrap_or_default();
    let source = format!(
        "{} s, {} rounds, {date}, commit {}; {}, {} cores, which all share",
        note.settings.seconds, note.settings.rounds, facts.commit, facts.cpu, facts.cores
    );
    let foot = height - 10.0;
    let source = escape(&source);
    format!(
        "{}{}<text class='note' x='14' y='{foot:.0}'>{source}</text></svg>\n",
        open(height),
        panels.concat()
    )
}

/// A figure of each system that has it.
fn of(found: &Found<'_>, line: (Option<u64>, u32), step: &str, name: &str) -> Vec<(Kind, f64)> {
    let one = |kind| Some((kind, found.get(kind, line, step, name)?));
    Kind::ALL.into_iter().filter_map(one).filter(|(_, value)| *value > 0.0).collect()
}

fn over_losses(found: &Found<'_>, step: &str, name: &str) -> Vec<Line> {
    let at = |loss: &u32| ((Some(10), *loss), f64::from(*loss));
    lines(found, step, name, &[0, 1, 3, 5].each_ref().map(at))
}

fn over_rates(found: &Found<'_>, step: &str, name: &str) -> Vec<Line> {
    let at = |mbit: &u64| ((Some(*mbit), 3), *mbit as f64);
    lines(found, step, name, &[1, 2, 5, 10].each_ref().map(at))
}

type At = ((Option<u64>, u32), f64);

fn lines(found: &Found<'_>, step: &str, name: &str, places: &[At]) -> Vec<Line> {
    let line = |kind| {
        let point = |(line, x): &At| Some([*x, found.get(kind, *line, step, name)?]);
        Line { kind, points: places.iter().filter_map(point).collect() }
    };
    Kind::ALL.into_iter().map(line).filter(|line| line.points.len() > 1).collect()
}

fn class(kind: Kind) -> usize {
    Kind::ALL.iter().position(|one| *one == kind).unwrap_or(0)
}

fn open(height: f64) -> String {
    let title = "Circuits, Tor and tunnels in a chain of three hops";
    let mut svg = svg::file(title, WIDTH, height, STYLE);
    let mut x = 14.0;
    for kind in Kind::ALL {
        let name = kind.name();
        let _ = writeln!(
            svg,
            "<line class='c{}' x1='{x:.0}' x2='{:.0}' y1='46' y2='46' stroke-width='3'/>\
             <text x='{:.0}' y='50'>{}</text>",
            class(kind),
            x + 18.0,
            x + 24.0,
            escape(name)
        );
        x += 44.0 + 6.6 * name.len() as f64;
    }
    svg
}

/// A panel with a line for each system; none if nobody has two points.
fn curves(place: Place, title: &str, below: &str, lines: &[Line]) -> Option<String> {
    let values = lines.iter().flat_map(|line| line.points.iter().map(|point| point[1]));
    let most = lines.iter().flat_map(|line| line.points.iter().map(|point| point[0]));
    let most = most.fold(0.0, f64::max);
    if lines.is_empty() || most == 0.0 {
        return None;
    }
    let from = place.x + LEFT;
    let to = place.x + PANEL - RIGHT;
    let bottom = place.y + HEIGHT - BOTTOM;
    let y = Axis::over(values, bottom, place.y + TOP);
    let x = |value: f64| from + value / most * (to - from);
    let mut svg = heading(place, title);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(
            svg,
            "<line class='grid' x1='{from:.0}' x2='{to:.0}' y1='{at:.1}' y2='{at:.1}'/>\
             <text class='note' x='{:.0}' y='{:.1}' text-anchor='end'>{tick}</text>",
            from - 6.0,
            at + 4.0
        );
    }
    for point in
        lines.iter().max_by_key(|line| line.points.len()).into_iter().flat_map(|l| &l.points)
    {
        let _ = writeln!(
            svg,
            "<text class='note' x='{:.1}' y='{:.0}' text-anchor='middle'>{}</text>",
            x(point[0]),
            bottom + 15.0,
            point[0]
        );
    }
    let _ = writeln!(
        svg,
        "<text class='note' x='{to:.0}' y='{:.0}' text-anchor='end'>{}</text>",
        bottom + 29.0,
        escape(below)
    );
    for line in lines {
        let class = class(line.kind);
        let points: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point[0]), y.at(point[1])))
            .collect();
        let name = escape(line.kind.name());
        let _ = writeln!(
            svg,
            "<polyline class='c{class}' points='{}'><title>{name}</title></polyline>",
            points.join(" ")
        );
    }
    Some(svg)
}

/// A panel with a bar for each system; none if nobody has a value.
fn bars(place: Place, title: &str, values: &[(Kind, f64)]) -> Option<String> {
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if values.is_empty() {
        return None;
    }
    let mut svg = heading(place, title);
    for (i, (kind, value)) in values.iter().enumerate() {
        let y = place.y + TOP + ROW * i as f64;
        let from = place.x + NAMES;
        let width = (value / most * (PANEL - NAMES - 64.0)).max(1.0);
        let _ = writeln!(
            svg,
            "<text x='{:.0}' y='{:.0}' text-anchor='end'>{}</text>\
             <rect class='c{}' x='{from:.0}' y='{:.0}' width='{width:.1}' height='12'/>\
             <text x='{:.0}' y='{:.0}'>{}</text>",
            from - 8.0,
            y + 11.0,
            escape(kind.name()),
            class(*kind),
            y,
            from + width + 6.0,
            y + 11.0,
            crate::page::number(*value)
        );
    }
    Some(svg)
}

fn heading(place: Place, title: &str) -> String {
    let Place { x, y } = place;
    format!(
        "<text class='panel' x='{:.0}' y='{:.0}'>{}</text>\n",
        x + 14.0,
        y + 14.0,
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_what_was_measured_and_nobody_is_drawn_who_was_not() {
        let place = Place { x: 0.0, y: 0.0 };
        let line = Line { kind: Kind::Warren, points: vec![[0.0, 10.0], [5.0, 5.0]] };
        let svg = curves(place, "goodput <b>", "% lost", &[line]).expect("a panel");
        let right = PANEL - RIGHT;
        assert!(svg.contains(&format!("points='{LEFT:.1},")), "{svg}");
        assert!(svg.contains(&format!(" {right:.1},")) && !svg.contains("<b>"), "{svg}");
        assert!(curves(place, "t", "x", &[]).is_none() && bars(place, "t", &[]).is_none());
        let svg = bars(place, "t", &[(Kind::Tor, 4.0), (Kind::Warren, 2.0)]).expect("a panel");
        let full = PANEL - NAMES - 64.0;
        assert!(svg.contains(&format!("width='{full:.1}'")), "{svg}");
        assert!(svg.contains(&format!("width='{:.1}'", full / 2.0)), "{svg}");
    }
}
