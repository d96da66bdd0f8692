//! `warren-lab bench link`: a static link, round after round.

mod page;
mod required;

use anyhow::{Context, Result, ensure};
use lab::sys;

use crate::facts::{Facts, Origin};
use crate::ground::{Ground, INNER_MTU, OUTER_MTU};
use crate::load::{self, Outcome, PINGS, UDP_BYTES};
use crate::progress::Progress;
use crate::report::{Contestant, Mark, Measured, Report, SCHEMA, Sample, SettingsNote, Skipped};
use crate::scenario::{Load, Scenario, Underlay};
use crate::vpn::{Running, Vpn, WARREN};
pub use page::render;

/// Rounds from which on a median may stand for a claim.
pub const HONEST_ROUNDS: u32 = 5;
/// Seconds of a transfer from which on it may.
pub const HONEST_SECONDS: u32 = 5;
/// Seconds of the transfer that is captured to check sizes.
const CHECK_S: u32 = 1;
/// What making and removing a lab and starting daemons takes, about.
const OVERHEAD_S: f64 = 1.0;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the namespaces begin with it.
    pub prefix: String,
    /// Length of one transfer, 1 to 600.
    pub seconds: u32,
    /// Rounds, 1 to 100.
    pub rounds: u32,
    /// What is measured; each once.
    pub scenarios: Vec<Scenario>,
    /// Whether Warren speaks frames with itself.
    pub frames: bool,
    /// What was typed, and what is measured.
    pub origin: Origin,
}

/// Measures every scenario for each contestant, round after round.
///
/// # Errors
/// Returns an error when a setting is out of bounds, Warren itself cannot be run, the prefix is
/// in use, or a signal asks this process to end; in every case all that was made is removed.
/// What fails for one contestant is in the report.
pub fn run(settings: &Settings, contestants: &[Box<dyn Vpn>]) -> Result<Report> {
    settings.check()?;
    sys::catch_interrupts();
    let facts = Facts::gather(&settings.origin);
    let (present, skipped) = attendance(contestants);
    if let Some(absent) = skipped.iter().find(|skipped| skipped.name == WARREN) {
        anyhow::bail!("Warren itself cannot be measured: {}; {}", absent.why, absent.hint);
    }
    let turns: Vec<Turn<'_>> = settings.turns(&present);
    let mut progress = Progress::new(turns.iter().map(|turn| turn.expected_s(settings)).sum());
    for skipped in &skipped {
        progress.note(&format!("skipped: {} ({}); {}", skipped.name, skipped.why, skipped.hint));
    }
    let mut samples = Vec::with_capacity(turns.len());
    for turn in &turns {
        progress.begin_step(&format!(
            "round {} of {}: {}, {}",
            turn.round,
            settings.rounds,
            turn.scenario.title(),
            turn.vpn.name()
        ));
        let sample = turn.sample(settings);
        // What was interrupted is no failure of the one whose turn it was.
        sys::check_interrupted()?;
        if let Some(why) = &sample.failed {
            progress.note(&format!(
                "failed: {}, {}: {why}",
                turn.scenario.title(),
                turn.vpn.name()
            ));
        }
        samples.push(sample);
        progress.end_step(turn.expected_s(settings));
    }
    drop(progress);
    let mut report = Report {
        schema: SCHEMA,
        kind: "link",
        marks: marks(settings, &facts),
        facts,
        settings: settings.note(),
        contestants: present.into_iter().map(|(_, contestant)| contestant).collect(),
        skipped,
        rows: Vec::new(),
        samples,
    };
    report.rows = required::rows(&report);
    Ok(report)
}

/// One measurement that is to be made.
struct Turn<'a> {
    scenario: Scenario,
    round: u32,
    vpn: &'a dyn Vpn,
}

type Present<'a> = (&'a dyn Vpn, Contestant);

/// Who is here and who is not.
fn attendance(contestants: &[Box<dyn Vpn>]) -> (Vec<Present<'_>>, Vec<Skipped>) {
    let mut present = Vec::new();
    let mut skipped = Vec::new();
    for vpn in contestants {
        let name = vpn.name().to_owned();
        match vpn.version() {
            Ok(version) => present.push((vpn.as_ref(), Contestant { name, version })),
            Err(error) => {
                let hint = vpn.install_hint().to_owned();
                skipped.push(Skipped { name, why: format!("{error:#}"), hint });
            }
        }
    }
    (present, skipped)
}

/// Why a run proves nothing, if it does not.
fn marks(settings: &Settings, facts: &Facts) -> Vec<Mark> {
    let rounds = settings.rounds;
    let seconds = settings.seconds;
    let is_short = rounds < HONEST_ROUNDS || seconds < HONEST_SECONDS;
    let short = is_short.then(|| {
        format!(
            "{rounds} rounds of {seconds} s; a claim takes {HONEST_ROUNDS} of {HONEST_SECONDS} s"
        )
    });
    Mark::all(facts, short)
}

impl Settings {
    fn check(&self) -> Result<()> {
        ensure!(
            (1..=600).contains(&self.seconds),
            "a transfer must take 1 to 600 seconds, not {}",
            self.seconds
        );
        ensure!((1..=100).contains(&self.rounds), "there must be 1 to 100 rounds");
        ensure!(!self.scenarios.is_empty(), "there is nothing to measure: name a scenario");
        Ok(())
    }

    /// Everybody in turn for each scenario, all scenarios in each round.
    fn turns<'a>(&self, present: &[Present<'a>]) -> Vec<Turn<'a>> {
        let mut turns = Vec::new();
        for round in 1..=self.rounds {
            for &scenario in &self.scenarios {
                turns.extend(present.iter().map(|(vpn, _)| Turn { scenario, round, vpn: *vpn }));
            }
        }
        turns
    }

    fn note(&self) -> SettingsNote {
        SettingsNote {
            seconds: self.seconds,
            rounds: self.rounds,
            pings: PINGS,
            udp_bytes: UDP_BYTES,
            mtu_inner: INNER_MTU,
            mtu_outer: OUTER_MTU,
            frames: self.frames,
            scenarios: self.scenarios.clone(),
        }
    }
}

impl Turn<'_> {
    /// How long it should take, for the time left.
    fn expected_s(&self, settings: &Settings) -> f64 {
        let check_s = f64::from(CHECK_S) + OVERHEAD_S;
        let load_s = match (self.scenario.load(), self.scenario.underlay()) {
            (Load::Ping, _) => 1.5,
            (_, Underlay::VethNoOffloads) => f64::from(settings.seconds) + check_s,
            _ => f64::from(settings.seconds),
        };
        load_s + OVERHEAD_S
    }

    fn sample(&self, settings: &Settings) -> Sample {
        let (measured, failed) = match self.measure(settings) {
            Ok(measured) => (Some(measured), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let contestant = self.vpn.name().to_owned();
        Sample { scenario: self.scenario, round: self.round, contestant, measured, failed }
    }

    /// Measures on new ground; everything that runs there ends when this returns.
    fn measure(&self, settings: &Settings) -> Result<Measured> {
        let ground = Ground::lay(&settings.prefix, self.scenario.underlay())?;
        let ends = &ground.ends;
        let vpn = Running::start(self.vpn, ends)?;
        let hosts = [&ends[0].host, &ends[1].host];
        let address = vpn.address(1);
        let cpu_before_s = vpn.cpu_s();
        let wire_before = ground.wire_count();
        let outcome = load::run(hosts, address, self.scenario.load(), settings.seconds)?;
        let rss_kib = vpn.rss_kib();
        let cpu_s = (!rss_kib.is_empty()).then(|| rounded_ms(vpn.cpu_s() - cpu_before_s));
        vpn.check()?;
        let mut measured = measured(outcome, self.scenario.load(), cpu_s);
        measured.rss_kib = rss_kib;
        measured.wire = wire_before.zip(ground.wire_count()).map(|(a, b)| b.since(a));
        if self.scenario.underlay() == Underlay::VethNoOffloads {
            let traffic = || load::run(hosts, address, self.scenario.load(), CHECK_S).map(drop);
            let sizes = ground.check_sizes(traffic).context("the check of sizes")?;
            measured.sizes = Some(sizes);
        }
        Ok(measured)
    }
}

/// Processor time is counted in ticks of 10 ms; what a float adds to them is noise.
fn rounded_ms(s: f64) -> f64 {
    (s * 1e3).round() / 1e3
}

fn measured(outcome: Outcome, load: Load, cpu_s: Option<f64>) -> Measured {
    match outcome {
        Outcome::Transfer(transfer) => Measured {
            mbit_s: Some(transfer.mbit_s()),
            received_bytes: Some(transfer.received_bytes),
            sent_bytes: Some(transfer.sent_bytes),
            lost_percent: (load == Load::Udp).then(|| transfer.lost_percent()),
            unread_percent: (load == Load::Udp).then(|| transfer.unread_percent()),
            retransmits: transfer.retransmits,
            cpu_s,
            cpu_s_per_gb: cpu_s.map(|s| s / (transfer.received_bytes as f64 / 1e9)),
            ..Measured::default()
        },
        Outcome::Pings(pings_us) => Measured {
            ping_us: crate::ratio::Spread::of(&pings_us).map(|spread| spread.median),
            cpu_s,
            pings_us,
            ..Measured::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::vpn::{NoVpn, WireGuard};

    fn settings() -> Settings {
        Settings {
            prefix: "wt-bench-unit".to_owned(),
            seconds: 5,
            rounds: 5,
            frames: false,
            scenarios: Scenario::ALL.to_vec(),
            origin: Origin::of_nothing(),
        }
    }

    fn facts(load: f64) -> Facts {
        Facts { load_before: [load, 0.0, 0.0], ..Facts::gather(&Origin::of_nothing()) }
    }

    fn words(settings: &Settings, load: f64) -> Vec<&'static str> {
        let marks = marks(settings, &facts(load)).into_iter().map(|mark| mark.mark);
        marks.filter(|mark| *mark != "unfit build").collect()
    }

    #[test]
    fn settings_out_of_bounds_are_refused_before_anything_is_made() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            run(&settings, &[]).is_err()
        };
        assert!(refused(|s| s.seconds = 0) && refused(|s| s.seconds = 601));
        assert!(refused(|s| s.rounds = 0) && refused(|s| s.rounds = 101));
        assert!(refused(|s| s.scenarios.clear()));
    }

    #[test]
    fn without_warren_there_is_nothing_to_measure() {
        let nowhere = WireGuard::warren(Path::new("/nowhere/warren"));
        let contestants: Vec<Box<dyn Vpn>> = vec![Box::new(nowhere), Box::new(NoVpn)];
        let (present, skipped) = attendance(&contestants);
        assert_eq!((present.len(), skipped.len()), (1, 1));
        assert_eq!(skipped[0].hint, "build it: make build");
        let error = run(&settings(), &contestants).expect_err("refused").to_string();
        assert!(error.contains("cannot run /nowhere/warren"), "{error}");
    }

    #[test]
    fn a_busy_machine_and_a_short_run_are_marked() {
        assert_eq!(words(&settings(), 1.0), [""; 0]);
        assert_eq!(words(&settings(), 1.01), ["busy"]);
        assert_eq!(words(&Settings { rounds: 4, ..settings() }, 0.0), ["short"]);
        assert_eq!(words(&Settings { seconds: 4, ..settings() }, 2.0), ["busy", "short"]);
    }

    #[test]
    fn contestants_take_turns_within_each_scenario_of_each_round() {
        let contestants: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn), Box::new(NoVpn)];
        let (present, skipped) = attendance(&contestants);
        assert!(skipped.is_empty());
        let turns = settings().turns(&present);
        assert_eq!(turns.len(), 5 * 6 * 2);
        let heads: Vec<_> = turns.iter().take(4).map(|t| (t.round, t.scenario)).collect();
        let [one, four] = [Scenario::Tcp1, Scenario::Tcp4];
        assert_eq!(heads, [(1, one), (1, one), (1, four), (1, four)]);
        assert_eq!(turns[12].round, 2);
    }
}
