//! The report on a link as a page for people.

use crate::ratio::Spread;
use crate::report::{Measured, Report, Sample};
use crate::scenario::{Load, Scenario, Underlay};
use crate::sheet::{Sheet, number};

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Sheet::new("A link, beside wireguard-go and beside no VPN");
    page.marks(&report.marks);
    facts(&mut page, report);
    page.heading("What is required");
    page.paragraph("Ratios are taken within each round; the median of them decides.");
    page.rows(&report.rows);
    measured(&mut page, report);
    page.skipped(&report.skipped);
    let failure = |(sample, why): (&Sample, &str)| {
        format!("round {}, {}, {}: {why}", sample.round, sample.scenario.title(), sample.contestant)
    };
    page.failures(&report.failures().map(failure).collect::<Vec<_>>());
    page.text()
}

fn facts(page: &mut Sheet, report: &Report) {
    let settings = &report.settings;
    let versions: Vec<String> =
        report.contestants.iter().map(|c| format!("{}: {}", c.name, c.version)).collect();
    page.facts(&report.facts, &format!("{}; {}.", versions.join("; "), report.facts.iperf3));
    page.paragraph(&format!(
        "{} rounds, in each of which everybody is measured in turn; {} s a transfer, CUBIC; \
         {} pings at 5 ms.\nMTU {} inside, {} outside. Both ends share the machine's cores. How \
         a figure is made: [README](README.md).",
        settings.rounds, settings.seconds, settings.pings, settings.mtu_inner, settings.mtu_outer
    ));
}

fn measured(page: &mut Sheet, report: &Report) {
    page.heading("What was measured");
    page.paragraph(
        "Medians over the rounds. CPU is user and system time of both daemons in seconds per \
         10^9 bytes received;\nmemory that of the larger daemon at the load's end. Unread is \
         what arrived and found the buffer of the program that should\nread it full.",
    );
    let head = [
        "load",
        "ground",
        "who",
        "Mbit/s",
        "lost %",
        "unread %",
        "retransmits",
        "CPU s/GB",
        "memory MiB",
        "ping µs",
    ];
    let lines = report.settings.scenarios.iter().flat_map(|scenario| {
        let names = report.contestants.iter().map(|contestant| &contestant.name);
        names.map(|name| measured_line(report, *scenario, name))
    });
    page.table(&head, 3..10, &lines.collect::<Vec<_>>());
    if report.settings.scenarios.contains(&Scenario::Line) {
        let frames = report.samples.iter().filter_map(|s| Some(s.measured.as_ref()?.wire?.offered));
        page.paragraph(&format!(
            "On the line the ends have no offloads and its model counts packets as a wire does: \
             {} frames entered,\nnone above {} bytes and its Ethernet header, and {} were \
             refused.",
            frames.sum::<u64>(),
            report.settings.mtu_outer,
            refused(report)
        ));
    }
    if report.settings.scenarios.contains(&Scenario::NoOffloads) {
        let checked =
            report.samples.iter().filter_map(|sample| sample.measured.as_ref()?.sizes.as_ref());
        page.paragraph(&format!(
            "With offloads off, a capture at both ends checks after each measurement that no \
             frame exceeds {} bytes\nand its Ethernet header; it held in {} of {}.",
            report.settings.mtu_outer,
            checked.count(),
            report.settings.rounds as usize * report.contestants.len()
        ));
    }
}

/// Frames that a line would not take, too large ones among them.
fn refused(report: &Report) -> u64 {
    report.samples.iter().filter_map(|s| Some(s.measured.as_ref()?.wire?.failed)).sum()
}

fn measured_line(report: &Report, scenario: Scenario, name: &str) -> Vec<String> {
    let middle = |value: fn(&Measured) -> Option<f64>, places: usize| {
        let spread = Spread::of_rounds(&report.series(scenario, name, value));
        number(spread.map(|spread| spread.median), places)
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
    vec![
        load,
        ground.to_owned(),
        name.to_owned(),
        middle(|m| m.mbit_s, 0),
        middle(|m| m.lost_percent, 1),
        middle(|m| m.unread_percent, 1),
        middle(|m| m.retransmits.map(|n| n as f64), 0),
        middle(|m| m.cpu_s_per_gb, 2),
        middle(Measured::rss_mib, 1),
        middle(|m| m.ping_us, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::required;
    use crate::report::tests::report;
    use crate::vpn::{NO_VPN, WARREN, WIREGUARD_GO};

    fn page(names: &[&str], measured: impl Fn(u32, &str) -> Option<Measured>) -> String {
        let mut report = report(5, names, |_, round, name| measured(round, name));
        report.rows = required::rows(&report);
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
    fn every_table_line_has_the_columns_of_its_head() {
        let page = page(&[WARREN, WIREGUARD_GO, NO_VPN], |_, _| rate(1.0));
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), 2 + 20 + 2 + 18);
        assert!(lines.iter().all(|line| [8, 11].contains(&bars(line))), "{page}");
    }
}
