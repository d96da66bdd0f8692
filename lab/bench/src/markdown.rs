//! A report as a page for people.

use std::fmt::Write as _;

use crate::ratio::Spread;
use crate::report::{Measured, Report};
use crate::scenario::{Load, Scenario, Underlay};
use crate::verdict::Row;

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = String::from("# A link, beside wireguard-go and beside no VPN\n\n");
    marks(&mut page, report);
    facts(&mut page, report);
    bounds(&mut page, report);
    measured(&mut page, report);
    troubles(&mut page, report);
    page
}

// Writing into a String cannot fail, so the results of `writeln!` below are dropped.

fn marks(page: &mut String, report: &Report) {
    for mark in &report.marks {
        let _ = writeln!(page, "> **{}**: {}. Not to be used for a claim.\n>", mark.mark, mark.why);
    }
    if !report.marks.is_empty() {
        page.truncate(page.len() - 2);
        page.push('\n');
    }
}

fn facts(page: &mut String, report: &Report) {
    let (facts, settings) = (&report.facts, &report.settings);
    let [one, five, fifteen] = facts.load_before;
    let versions: Vec<String> =
        report.contestants.iter().map(|c| format!("{}: {}", c.name, c.version)).collect();
    let _ = writeln!(page, "    {}\n", facts.command);
    let _ = writeln!(
        page,
        "{}, commit {}. {}, {} cores, {}; load average before: {one} {five} {fifteen}.\n\
         {}; {}.\n",
        facts.date,
        facts.commit,
        facts.cpu,
        facts.cores,
        facts.kernel,
        versions.join("; "),
        facts.iperf3
    );
    let _ = writeln!(
        page,
        "{} rounds, in each of which everybody is measured in turn; {} s a transfer, CUBIC; \
         {} pings at 5 ms.\nMTU {} inside, {} outside. Both ends share the machine's cores. How \
         a figure is made: [README](README.md).\n",
        settings.rounds, settings.seconds, settings.pings, settings.mtu_inner, settings.mtu_outer
    );
}

fn bounds(page: &mut String, report: &Report) {
    page.push_str(
        "## What is required\n\n\
         Ratios are taken within each round; the median of them decides.\n\n\
         | what | required | median | min | max | rounds | met |\n\
         |---|---|---:|---:|---:|---:|---|\n",
    );
    for row in &report.rows {
        page.push_str(&bound_line(row));
    }
    page.push('\n');
}

pub(crate) fn bound_line(row: &Row) -> String {
    let places = match row.unit {
        "×" | "s" => 2,
        "MiB" | "%" | "s/GB" => 1,
        _ => 0,
    };
    let value = |pick: fn(Spread) -> f64| match row.found {
        Some(found) => format!("{:.places$}", pick(found)),
        None => "–".to_owned(),
    };
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
    format!(
        "| {} | {required} | {} | {} | {} | {} of {} | {met} |\n",
        cell(&row.what),
        value(|s| s.median),
        value(|s| s.min),
        value(|s| s.max),
        row.found.map_or(0, |s| s.n),
        row.rounds
    )
}

fn measured(page: &mut String, report: &Report) {
    page.push_str(
        "## What was measured\n\n\
         Medians over the rounds. CPU is user and system time of both daemons in seconds per \
         10^9 bytes received;\nmemory that of the larger daemon at the load's end. Unread is \
         what arrived and found the buffer of the program that should\nread it full.\n\n\
         | load | ground | who | Mbit/s | lost % | unread % | retransmits | CPU s/GB | \
         memory MiB | ping µs |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for scenario in &report.settings.scenarios {
        for contestant in &report.contestants {
            page.push_str(&measured_line(report, *scenario, &contestant.name));
        }
    }
    page.push('\n');
    if report.settings.scenarios.contains(&Scenario::Line) {
        let frames = report.samples.iter().filter_map(|s| Some(s.measured.as_ref()?.wire?.offered));
        let _ = writeln!(
            page,
            "On the line the ends have no offloads and its model counts packets as a wire does: \
             {} frames entered,\nnone above {} bytes and its Ethernet header, and {} were \
             refused.\n",
            frames.sum::<u64>(),
            report.settings.mtu_outer,
            refused(report)
        );
    }
    if report.settings.scenarios.contains(&Scenario::NoOffloads) {
        let checked =
            report.samples.iter().filter_map(|sample| sample.measured.as_ref()?.sizes.as_ref());
        let _ = writeln!(
            page,
            "With offloads off, a capture at both ends checks after each measurement that no \
             frame exceeds {} bytes\nand its Ethernet header; it held in {} of {}.\n",
            report.settings.mtu_outer,
            checked.count(),
            report.settings.rounds as usize * report.contestants.len()
        );
    }
}

/// Frames that a line would not take, too large ones among them.
fn refused(report: &Report) -> u64 {
    report.samples.iter().filter_map(|s| Some(s.measured.as_ref()?.wire?.failed)).sum()
}

fn measured_line(report: &Report, scenario: Scenario, name: &str) -> String {
    let middle = |value: fn(&Measured) -> Option<f64>, places: usize| {
        let values: Vec<f64> = report.series(scenario, name, value).into_iter().flatten().collect();
        Spread::of(&values).map_or_else(|| "–".to_owned(), |s| format!("{:.places$}", s.median))
    };
    let load = match scenario.load() {
        Load::Tcp(1) => "one TCP stream".to_owned(),
        Load::Tcp(streams) => format!("{streams} TCP streams"),
        Load::Udp => format!("UDP, {} bytes", report.settings.udp_bytes),
        Load::Ping => "ping".to_owned(),
    };
    let ground = match scenario.underlay() {
        Underlay::Veth => "veth, offloads on",
        Underlay::VethNoOffloads => "veth, offloads off",
        Underlay::Line => "line of 1 Gbit/s, packet by packet",
    };
    format!(
        "| {load} | {ground} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        cell(name),
        middle(|m| m.mbit_s, 0),
        middle(|m| m.lost_percent, 1),
        middle(|m| m.unread_percent, 1),
        middle(|m| m.retransmits.map(|n| n as f64), 0),
        middle(|m| m.cpu_s_per_gb, 2),
        middle(Measured::rss_mib, 1),
        middle(|m| m.ping_us, 0),
    )
}

fn troubles(page: &mut String, report: &Report) {
    for skipped in &report.skipped {
        let _ = writeln!(
            page,
            "**Skipped**: {}, because: {}. To have it: {}.\n",
            skipped.name,
            cell(&skipped.why),
            cell(&skipped.hint)
        );
    }
    let failures: Vec<String> = report
        .failures()
        .map(|(sample, why)| {
            let name = &sample.contestant;
            format!(
                "- round {}, {}, {name}: {}\n",
                sample.round,
                sample.scenario.title(),
                cell(why)
            )
        })
        .collect();
    if !failures.is_empty() {
        let _ = writeln!(page, "## What failed\n\n{}", failures.concat());
    }
    while page.ends_with("\n\n") {
        page.pop();
    }
}

/// Text that cannot break out of its place: one line, no bar.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use crate::report::{Mark, Skipped};
    use crate::verdict;
    use crate::vpn::{NO_VPN, WARREN, WIREGUARD_GO};

    fn page(names: &[&str], measured: impl Fn(u32, &str) -> Option<Measured>) -> String {
        let mut report = report(5, names, |_, round, name| measured(round, name));
        report.rows = verdict::rows(&report);
        render(&report)
    }

    fn rate(mbit_s: f64) -> Option<Measured> {
        Some(Measured { mbit_s: Some(mbit_s), rss_kib: vec![2_048], ..Measured::default() })
    }

    #[test]
    fn a_bound_stands_beside_what_was_found() {
        let page = page(&[WARREN, WIREGUARD_GO, NO_VPN], |round, name| {
            rate(if name == WARREN { 1_000.0 + f64::from(round) * 100.0 } else { 1_000.0 })
        });
        let line = "| one TCP stream: throughput, Warren ÷ wireguard-go | ≥ 1.3× | 1.30 | 1.10 | \
                    1.50 | 5 of 5 | yes |";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("| ≤ 40 MiB | 2.0 | 2.0 | 2.0 | 25 of 25 | yes |"), "{page}");
        assert!(page.contains("| one TCP stream | veth, offloads on | Warren | 1300 |"), "{page}");
        assert!(!page.contains("Not to be used"), "{page}");
        assert!(page.ends_with(".\n") && !page.ends_with("\n\n"), "{page:?}");
    }

    #[test]
    fn a_missed_bound_a_failure_and_an_absent_rival_are_all_said() {
        let page = page(&[WARREN, NO_VPN], |round, name| {
            if round == 2 && name == WARREN { None } else { rate(1_000.0) }
        });
        assert!(page.contains("| 1.00 | 1.00 | 1.00 | 4 of 5 | **no** |"), "{page}");
        assert!(page.contains("| – | – | – | 0 of 5 | not measured |"), "{page}");
        let failure = "- round 2, ping on an idle link, Warren: it \\| failed badly\n";
        assert!(page.contains("## What failed") && page.contains(failure), "{page}");
    }

    #[test]
    fn marks_and_the_skipped_are_named() {
        let mut report = report(1, &[WARREN], |_, _, _| rate(1.0));
        report.marks.push(Mark { mark: "busy", why: "load 3".to_owned() });
        report.marks.push(Mark { mark: "short", why: "one round".to_owned() });
        let (name, why, hint) = ("other".to_owned(), "no\nPATH".to_owned(), "get it".to_owned());
        report.skipped.push(Skipped { name, why, hint });
        let page = render(&report);
        assert!(page.contains("> **busy**: load 3. Not to be used for a claim.\n>\n> **short**"));
        assert!(page.contains("claim.\n\n    warren-lab bench link\n"), "{page}");
        assert!(page.contains("**Skipped**: other, because: no PATH. To have it: get it."));
    }

    #[test]
    fn every_table_line_has_the_columns_of_its_head() {
        let page = page(&[WARREN, WIREGUARD_GO, NO_VPN], |_, _| rate(1.0));
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 2 + 20 + 2 + 18);
        assert!(lines.iter().all(|line| [8, 11].contains(&bars(line))), "{page}");
    }
}
