//! Very short runs on the kernel: what is in the report, what a failure leaves, and that an
//! interrupt leaves nothing. They need root, and claim no figure.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench::facts::Origin;
use bench::link::{self, Settings, run};
use bench::scenario::Scenario;
use bench::vpn::{End, Member, NO_VPN, NoVpn, Vpn, WARREN, contestants};
use serde_json::Value;

/// A program, which cargo builds beside the tests of the whole project.
fn warren() -> PathBuf {
    program("warren")
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("a folder of the profile");
    let program = folder.join(name);
    assert!(program.is_file(), "build {} first: cargo build", program.display());
    program
}

fn settings(prefix: &str, scenarios: &[Scenario]) -> Settings {
    Settings {
        prefix: prefix.to_owned(),
        seconds: 1,
        rounds: 1,
        scenarios: scenarios.to_vec(),
        origin: Origin { command: "the test".to_owned(), program: warren() },
        frames: false,
    }
}

fn namespaces(prefix: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

#[test]
fn a_short_run_yields_a_complete_report() {
    let scenarios = [Scenario::Ping, Scenario::NoOffloads, Scenario::Line];
    let all = contestants(&warren(), false);
    let report = run(&settings("wt-bench-short", &scenarios), &all).expect("a report");
    let failures: Vec<_> = report.failures().map(|(_, why)| why).collect();
    assert!(failures.is_empty(), "{failures:?}");
    let json = report.to_json().expect("JSON");
    let json: Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["settings"]["scenarios"][1], "no-offloads");
    let took_part = report.contestants.len();
    assert!(took_part + report.skipped.len() == all.len() && report.took_part(WARREN));
    let samples = json["samples"].as_array().expect("samples");
    assert_eq!(samples.len(), scenarios.len() * took_part);
    for sample in samples {
        let (measured, bare) = (&sample["measured"], sample["contestant"] == NO_VPN);
        let positive = |key: &str| measured[key].as_f64().is_some_and(|value| value > 0.0);
        assert!(bare || measured["rss_kib"].as_array().is_some_and(|rss| rss.len() == 2));
        match sample["scenario"].as_str() {
            Some("ping") => {
                assert!(positive("ping_us"), "{sample}");
                assert!(measured["pings_us"].as_array().is_some_and(|all| all.len() >= 180));
            }
            Some("no-offloads") => {
                // On a busy machine a second's work may be less than a tick of the clock of CPU.
                let has_cpu = measured["cpu_s_per_gb"].is_number();
                assert!(positive("mbit_s") && (bare || has_cpu), "{sample}");
                assert_eq!(measured["sizes"]["oversize_frames"], 0);
            }
            Some("line") => {
                let mbit_s = measured["mbit_s"].as_f64().expect("a rate");
                assert!(mbit_s > 0.0 && mbit_s < 1_000.0, "{sample}");
                assert!(measured["wire"]["offered"].as_u64().is_some_and(|n| n > 100));
            }
            other => panic!("{other:?} was not asked for"),
        }
    }
    assert!(report.marks.iter().any(|mark| mark.mark == "short"));
    assert!(link::render(&report).contains("≥ 0.95×"));
    assert_eq!(namespaces("wt-bench-short"), [""; 0]);
}

/// Source 002.5 (4): on the impaired interface offloads are off, and the wire's model counts wire
/// packets; the report says which. A superpacket of 64 KiB that entered as one would show as far
/// fewer frames than the payload needs.
#[test]
fn source_002_4_the_line_counts_wire_packets_and_the_report_says_so() {
    let contestants: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn)];
    let mut settings = settings("wt-bench-count", &[Scenario::Line, Scenario::NoOffloads]);
    settings.seconds = 2;
    let report = run(&settings, &contestants).expect("a report");
    let sample = |scenario| report.samples.iter().find(|s| s.scenario == scenario);
    let line = sample(Scenario::Line).and_then(|s| s.measured.clone()).expect("measured");
    let (bytes, wire) = (line.received_bytes.expect("a transfer"), line.wire.expect("a wire"));
    let full = bytes / (1_500 - 40);
    assert!(wire.offered >= full, "{} frames for {full} full segments", wire.offered);
    assert_eq!(wire.failed, 0, "nothing too large reached the wire: {wire:?}");
    let off = sample(Scenario::NoOffloads).and_then(|s| s.measured.clone()).expect("measured");
    assert_eq!(off.sizes.expect("checked").oversize_frames, 0);
    let page = link::render(&report);
    assert!(page.contains("line of 1 Gbit/s, packet by packet"), "{page}");
    assert!(page.contains("On the line the ends have no offloads and its model counts packets"));
    assert!(page.contains("veth, offloads off"), "{page}");
    assert!(page.contains("With offloads off, a capture at both ends checks"), "{page}");
    assert_eq!(namespaces("wt-bench-count"), [""; 0]);
}

/// Says that it is there, and then is not.
#[derive(Debug)]
struct Broken;

impl Vpn for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn word(&self) -> &str {
        "broken"
    }

    fn version(&self) -> Result<String> {
        Ok("1".to_owned())
    }

    fn install_hint(&self) -> &str {
        "do not"
    }

    fn prepare(&self, _ends: &[End]) -> Result<Vec<Member>> {
        bail!("it does not start")
    }
}

#[test]
fn one_that_fails_is_in_the_report_and_the_others_go_on() {
    let contestants: Vec<Box<dyn Vpn>> = vec![Box::new(Broken), Box::new(NoVpn)];
    let settings = settings("wt-bench-broken", &[Scenario::Ping]);
    let report = run(&settings, &contestants).expect("a report");
    let failures: Vec<_> = report.failures().map(|(s, why)| (&s.contestant[..], why)).collect();
    assert_eq!(failures, [("broken", "it does not start")]);
    assert!(report.samples[1].measured.is_some(), "{:?}", report.samples[1]);
    assert_eq!(namespaces("wt-bench-broken"), [""; 0]);
}

#[test]
fn an_interrupt_ends_a_run_and_leaves_nothing() {
    let mut child = Command::new(program("warren-lab"))
        .args(["bench", "link", "--scenario", "tcp1", "--seconds", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let start = Instant::now();
    while namespaces("warren-bench").len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(10), "no lab was made");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let interrupted = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(interrupted.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it ended");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(namespaces("warren-bench"), [""; 0]);
}
