//! The report: what is required beside what was found, and a table for each line.

use std::collections::{BTreeMap, BTreeSet};

use super::STRESS;
use super::store::{Key, Note, Sample};
use super::system::Kind;
use crate::ratio::Spread;
use crate::row::{Bound, Row};
use crate::sheet::{Sheet, number};

const ROLES: [&str; 4] = ["client", "a", "b", "c"];
/// All of them together.
pub(super) const CPU_SUM: &str = "cpu_sum_s_gb";

/// A system, Mbit/s of its line, percent lost there, and what was measured.
type Cell<'s> = (&'s str, Option<u64>, u32, &'s str);

/// Medians over the rounds.
pub(super) struct Found<'s>(BTreeMap<Cell<'s>, BTreeMap<&'s str, f64>>);

impl<'s> Found<'s> {
    pub(super) fn of(samples: &'s [Sample]) -> Self {
        let mut lists: BTreeMap<_, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
        for Sample { key, values, .. } in samples.iter().filter(|one| one.failed.is_none()) {
            let Key { system, mbit, loss_percent, step, .. } = key;
            let cell = lists.entry((&system[..], *mbit, *loss_percent, &step[..])).or_default();
            for (name, value) in values {
                cell.entry(name).or_default().push(*value);
            }
        }
        let middle = |mut list: Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let cell = |cell: BTreeMap<&'s str, Vec<f64>>| {
            let mut cell: BTreeMap<&'s str, f64> =
                cell.into_iter().map(|(name, list)| (name, middle(list))).collect();
            let of = |role: &&str| cell.get(format!("cpu_{role}_s_gb").as_str()).copied();
            if let Some(sum) = ROLES.iter().map(of).sum() {
                cell.insert(CPU_SUM, sum);
            }
            cell
        };
        Self(lists.into_iter().map(|(key, values)| (key, cell(values))).collect())
    }

    pub(super) fn get(
        &self,
        kind: Kind,
        line: (Option<u64>, u32),
        step: &str,
        name: &str,
    ) -> Option<f64> {
        self.0.get(&(kind.name(), line.0, line.1, step))?.get(name).copied()
    }

    /// Those with one of these names: system, line, step, name and median.
    pub(super) fn figures<'f>(
        &'f self,
        names: &'f [&'f str],
    ) -> impl Iterator<Item = (&'s str, String, &'s str, &'s str, f64)> {
        self.0.iter().flat_map(|((system, mbit, loss, step), values)| {
            let line = format!("{}:{loss}", mbit.unwrap_or(0));
            let kept = values.iter().filter(|(name, _)| names.contains(*name));
            kept.map(move |(name, value)| {
                let rounded = (value * 1000.0).round() / 1000.0;
                (*system, line.clone(), *step, *name, rounded)
            })
        })
    }

    /// A figure over another's, for every line and step where both are.
    fn ratios(&self, mbit: Option<u64>, name: &str, to: Kind) -> Vec<f64> {
        let cells = self.0.keys().filter(|key| key.0 == Kind::Warren.name() && key.1 == mbit);
        let ratio = |key: &(&str, Option<u64>, u32, &str)| {
            let own = self.get(Kind::Warren, (key.1, key.2), key.3, name)?;
            let theirs = self.get(to, (key.1, key.2), key.3, name)?;
            (theirs > 0.0).then(|| own / theirs)
        };
        cells.filter_map(ratio).collect()
    }

    /// The share of one stream's goodput that is left while B is under stress.
    fn kept(&self, kind: Kind, line: (Option<u64>, u32)) -> Option<f64> {
        let calm = self.get(kind, line, "down 1", "mbit_s")?;
        Some(self.get(kind, line, STRESS, "mbit_s")? / calm)
    }

    fn cpu(&self, kind: Kind, line: (Option<u64>, u32), step: &str) -> Option<f64> {
        self.get(kind, line, step, CPU_SUM)
    }
}

/// What is required. A ratio has a value for each cell, of which the worst decides.
pub(super) fn required(found: &Found<'_>) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    let ten = Some(10);
    let gigabit = (Some(1000), 0);
    let clear = (ten, 0);
    let row = |what: &str, unit, bound, values: Vec<f64>| {
        let rounds = values.len();
        let row = Row::new(what, unit, Some(bound), Spread::of(&values), rounds);
        match bound {
            AtLeast(_) => row.by(|spread| spread.min),
            AtMost(_) => row.by(|spread| spread.max),
        }
    };
    let one = |value: Option<f64>| value.into_iter().collect::<Vec<_>>();
    let ours = |line, step: &str, name: &str| one(found.get(Kind::Warren, line, step, name));
    let apart = |line, step: &str, name: &str| {
        let own = found.get(Kind::Warren, line, step, name)?;
        // Of ms to µs, of s to ms.
        Some((own - found.get(Kind::Direct, line, step, name)?) * 1e3)
    };
    let memory = found.0.iter().filter(|(key, _)| key.0 == Kind::Warren.name());
    let memory = memory.filter_map(|(_, cell)| cell.get("rss_mib").copied()).collect();
    let cpu = found.cpu(Kind::Warren, gigabit, "down 5");
    let cpu = cpu.zip(found.cpu(Kind::Tor, gigabit, "down 5")).map(|(own, tor)| own / tor);
    let control = |kind: Kind| {
        let own = found.get(kind, clear, "down 1", "echo_p50_ms")?;
        Some(own / found.get(Kind::Direct, clear, "down 1", "echo_p50_ms")?)
    };
    let goodput = found.ratios(ten, "mbit_s", Kind::Direct);
    let page = found.ratios(ten, "page_s", Kind::Direct);
    let idle_us = apart(clear, "idle", "echo_p50_ms");
    let page_ms = apart(gigabit, "page", "page_s");
    let worst_build = ours((ten, 5), "build", "build_worst_ms");
    let kept = found.kept(Kind::Warren, clear);
    vec![
        row("goodput, 10 Mbit/s, ÷ no VPN", "×", AtLeast(0.93), goodput),
        row("echo p50 under bulk, ÷ no VPN", "×", AtMost(1.05), bulk_only(found, ten)),
        row("added round trip, idle", "µs", AtMost(600.0), one(idle_us)),
        row("build, middle", "ms", AtMost(6.0), ours(clear, "build", "build_ms")),
        row("build, the worst at 5 % loss", "ms", AtMost(1000.0), worst_build),
        row("page, 10 Mbit/s, ÷ no VPN", "×", AtMost(1.1), page),
        row("page, 1 Gbit/s, more than no VPN", "ms", AtMost(10.0), one(page_ms)),
        row(
            "1 Gbit/s, five flows down",
            "Mbit/s",
            AtLeast(300.0),
            ours(gigabit, "down 5", "mbit_s"),
        ),
        row("processor, four roles, 1 Gbit/s, ÷ Tor", "×", AtMost(1.0), one(cpu)),
        row("goodput kept while B is under stress, 10 Mbit/s", "×", AtLeast(0.9), one(kept)),
        row("memory of a node after load", "MiB", AtMost(25.0), memory),
        row(
            "OpenVPN over TCP, echo p50 ÷ no VPN",
            "×",
            AtLeast(3.0),
            one(control(Kind::OpenVpnTcp)),
        ),
        row("Tor down, echo p50 ÷ no VPN", "×", AtLeast(1.5), one(control(Kind::Tor))),
    ]
}

/// The echo's ratios under bulk; the idle one is a row of its own.
fn bulk_only(found: &Found<'_>, mbit: Option<u64>) -> Vec<f64> {
    let cells = found
        .0
        .keys()
        .filter(|key| key.0 == Kind::Warren.name() && key.1 == mbit && key.3.contains(' '));
    let ratio = |key: &(&str, Option<u64>, u32, &str)| {
        let own = found.get(Kind::Warren, (key.1, key.2), key.3, "echo_p50_ms")?;
        Some(own / found.get(Kind::Direct, (key.1, key.2), key.3, "echo_p50_ms")?)
    };
    cells.filter_map(ratio).collect()
}

/// The report as a page for people.
pub(super) fn render(note: &Note, samples: &[Sample]) -> String {
    let found = Found::of(samples);
    let mut page = Sheet::new("Circuits beside Tor, nested WireGuard and TCP in TCP");
    for mark in &note.marks {
        page.paragraph(&format!("> {mark}. Not to be used for a claim."));
    }
    page.facts(
        &note.facts,
        "All hosts share the machine's cores. The chain is client, A, wire, B, C, server. The \
         echo has 1,024\nbytes on a connection of its own, one every 50 ms. Of several cells the \
         worst decides.",
    );
    page.rows(&required(&found));
    let lines: BTreeSet<(Option<u64>, u32)> =
        samples.iter().map(|one| (one.key.mbit, one.key.loss_percent)).collect();
    for line in lines {
        table(&mut page, &found, line);
    }
    for (name, why) in &note.skipped {
        page.paragraph(&format!("**Not here**: {name}: {why}."));
    }
    let failed = samples.iter().filter_map(|one| {
        let why = one.failed.as_deref()?.lines().next().unwrap_or_default();
        let Key { system, step, round, .. } = &one.key;
        Some(format!("{system}, {step}, round {round}: {why}"))
    });
    page.failures(&failed.collect::<Vec<_>>());
    page.text()
}

fn table(page: &mut Sheet, found: &Found<'_>, line: (Option<u64>, u32)) {
    page.heading(&match line.0 {
        Some(mbit) => format!("{mbit} Mbit/s, {} % lost each way", line.1),
        None => "No wire between A and B".to_owned(),
    });
    page.paragraph("Goodput in Mbit/s, then the echo's p50 and p95 in ms.");
    let steps: BTreeSet<&str> =
        found.0.keys().filter(|key| (key.1, key.2) == line).map(|key| key.3).collect();
    let bulk: Vec<&str> = steps.into_iter().filter(|step| step.contains(' ')).collect();
    let head = [
        &["system", "build ms", "idle ms", "page s"][..],
        &bulk,
        &["kept under stress", "CPU s/GB", "MiB"],
    ]
    .concat();
    let was_measured =
        |kind: &Kind| found.0.keys().any(|key| key.0 == kind.name() && (key.1, key.2) == line);
    let rows =
        Kind::ALL.into_iter().filter(was_measured).map(|kind| cells(found, kind, line, &bulk));
    page.table(&head, 1..head.len(), &rows.collect::<Vec<_>>());
}

/// The figures of a system on a line.
fn cells(found: &Found<'_>, kind: Kind, line: (Option<u64>, u32), bulk: &[&str]) -> Vec<String> {
    let one = |step: &str, name: &str, places| number(found.get(kind, line, step, name), places);
    let mut cells = vec![
        kind.name().to_owned(),
        one("build", "build_ms", 1),
        one("idle", "echo_p50_ms", 2),
        one("page", "page_s", 3),
    ];
    for step in bulk {
        let rate = one(step, "mbit_s", 2);
        let p50 = one(step, "echo_p50_ms", 0);
        let p95 = one(step, "echo_p95_ms", 0);
        cells.push(format!("{rate} ({p50} / {p95})"));
    }
    let cpu = bulk.iter().filter_map(|step| found.cpu(kind, line, step)).max_by(f64::total_cmp);
    let memory = bulk.iter().filter_map(|step| found.get(kind, line, step, "rss_mib"));
    let memory = memory.max_by(f64::total_cmp);
    cells.extend([number(found.kept(kind, line), 2), number(cpu, 1), number(memory, 1)]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: Kind, step: &str, round: u32, values: &[(&str, f64)]) -> Sample {
        Sample {
            key: Key {
                system: kind.name().to_owned(),
                mbit: Some(10),
                loss_percent: 0,
                round,
                step: step.to_owned(),
            },
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            failed: None,
        }
    }

    #[test]
    fn requirements_are_judged_by_the_worst_cell_and_nothing_is_met_that_was_not_measured() {
        let samples = [
            sample(Kind::Direct, "down 1", 1, &[("mbit_s", 9.0), ("echo_p50_ms", 90.0)]),
            sample(Kind::Warren, "down 1", 1, &[("mbit_s", 8.5), ("echo_p50_ms", 92.0)]),
            sample(Kind::Direct, "up 1", 1, &[("mbit_s", 9.0), ("echo_p50_ms", 80.0)]),
            sample(Kind::Warren, "up 1", 1, &[("mbit_s", 7.2), ("echo_p50_ms", 80.0)]),
            sample(Kind::OpenVpnTcp, "down 1", 1, &[("echo_p50_ms", 300.0)]),
        ];
        let found = Found::of(&samples);
        let all = required(&found);
        let of = |what: &str| all.iter().find(|row| row.what.starts_with(what)).expect(what);
        assert_eq!(of("goodput").found.map(|spread| spread.min), Some(0.8));
        assert_eq!(of("goodput").met, Some(false));
        assert_eq!(of("echo p50").met, Some(true));
        assert_eq!(of("OpenVPN").met, Some(true));
        assert_eq!(of("build, middle").met, None);
    }
}
