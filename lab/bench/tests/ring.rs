//! Very short runs of the ring on the kernel: what is on the disk, what a report says of it, and
//! that an interrupted run goes on. They need root, and claim no figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench::facts::Origin;
use bench::page;
use bench::ring::{self, BASELINE, SLOW_LINE, Test, sample};
use bench::vpn::{Address, Daemon, End, Member, NoVpn, Vpn, WARREN, WireGuard};

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

/// A folder that is new and goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("warren-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(profiles: &[&str], tests: &[Test]) -> sample::Settings {
    sample::Settings {
        profiles: profiles.iter().map(|profile| (*profile).to_owned()).collect(),
        tests: tests.iter().map(|test| test.word().to_owned()).collect(),
        rounds: 1,
        seconds: 1,
        links: 1,
        seed: 7,
        grid: false,
        tuning: "reorder".to_owned(),
        https: false,
    }
}

fn namespaces(prefix: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

fn run(
    settings: sample::Settings,
    peers: &[Box<dyn Vpn>],
    dir: &Path,
    prefix: &str,
) -> (sample::Note, Vec<sample::Sample>) {
    let origin = Origin { command: "warren-lab bench run".to_owned(), program: warren() };
    ring::run(settings, peers, dir, prefix, &origin).expect("a run");
    assert_eq!(namespaces(prefix), [""; 0]);
    sample::read(dir).expect("it can be read")
}

/// Says that it is there; its daemon says why it is not, and ends.
#[derive(Debug)]
struct Broken;

const LAST_WORDS: &str = "echo 'it does not start'; echo 'and says <b>why</b>' >&2; exit 3";

impl Vpn for Broken {
    fn name(&self) -> &str {
        "<broken>"
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

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let daemon = Daemon { ready: "false".to_owned(), ..Daemon::new(&["sh", "-c", LAST_WORDS]) };
        let member = Member {
            ifname: "none".to_owned(),
            daemons: vec![daemon],
            address: Address::Known("10.9.9.9".to_owned()),
            settled: String::new(),
        };
        Ok(vec![member; ends.len()])
    }
}

/// Is not installed.
#[derive(Debug)]
struct Absent;

impl Vpn for Absent {
    fn name(&self) -> &str {
        "<absent>"
    }

    fn word(&self) -> &str {
        "absent"
    }

    fn version(&self) -> Result<String> {
        bail!("it is nowhere")
    }

    fn install_hint(&self) -> &str {
        "look for it"
    }

    fn prepare(&self, _ends: &[End]) -> Result<Vec<Member>> {
        bail!("it was asked to run")
    }
}

/// What a report must have beside its figures.
fn has_all_parts(text: &str, is_html: bool) {
    let columns = ["smallest", "largest", "÷ no VPN", "÷ wireguard-go", "log-change, log %"];
    let back = ["down, Mbit/s", "÷ no VPN, down", "In short"];
    let said = ["Who did not", "it is nowhere", "look for it", "over UDP, with frames and repair"];
    for part in [&columns[..], &back, &said].concat() {
        assert!(text.contains(part), "{part:?} is not in the report");
    }
    if is_html {
        let (tcp, download) = (": up</text>", ": download</text>");
        let planes =
            [": retransmits against throughput", ": latency under load against throughput"];
        // Folded away here, and in `run.json` beside a report of text.
        let folded = "what else was read";
        let daemons = ["processor time and memory of each daemon", "daemon 1, MiB", folded];
        let drawn = [tcp, download, planes[0], planes[1], "style='background:rgba(", "<svg"];
        for part in [&drawn[..], &daemons].concat() {
            assert!(text.contains(part), "{part:?} is not in the page");
        }
    }
}

/// What a test must yield.
fn figures(test: Test) -> &'static [&'static str] {
    match test {
        Test::Connect => &["connect_ms", "mtu_bytes"],
        Test::Tcp | Test::Six => &[
            "forward_mbit_s",
            "back_mbit_s",
            "forward_cwnd_kb",
            "back_cwnd_kb",
            "loaded_rtt_mean_ms",
        ],
        Test::Both => &["forward_mbit_s", "back_mbit_s", "sum_mbit_s"],
        Test::Parallel => &["sum_mbit_s", "forward_sum_mbit_s"],
        Test::Udp => &["forward_mbit_s", "back_mbit_s", "sent_mbit_s", "wire_bytes_per_byte"],
        Test::Flood => &["forward_mbit_s", "wire_bytes_per_byte", "machine_cpu_s_per_gb"],
        Test::Download => &["download_s", "machine_cpu_s_per_gb"],
        Test::Reconnect => &["reconnect_s"],
        Test::Shared => &["inside_mbit_s", "outside_mbit_s", "inside_percent"],
        Test::Quic => &["forward_mbit_s", "back_mbit_s", "ipv6_mbit_s", "handshake_ms"],
        Test::Video => &["video_quality_percent", "session_rtt_p99_ms", "loaded_rtt_mean_ms"],
        Test::Ping | Test::Grid => &[],
    }
}

/// What a test must tell, if only that there was none of it.
fn counts(test: Test) -> &'static [&'static str] {
    match test {
        Test::Tcp | Test::Six => &["forward_retransmits", "back_retransmits", "back_again_percent"],
        Test::Udp => &["lost_percent", "unread_percent"],
        Test::Flood => &["ping_lost_percent", "unanswered_percent", "unread_percent"],
        Test::Quic => &["handshakes_failed", "ipv6_handshakes_failed"],
        Test::Video => &["video_lost_packets", "video_recovered_packets", "frames_missing_percent"],
        _ => &[],
    }
}

/// Source 002.5 (1): every test runs on three hosts, for us and for no VPN, and yields what the
/// tables need; and source 002.4: one that fails is named with its log and averaged nowhere.
#[test]
fn source_002_1_every_test_yields_its_figures_and_failures_are_named() {
    let folder = Folder::new("ring-all");
    let all = Test::ALL.into_iter().filter(|test| *test != Test::Ping).collect::<Vec<_>>();
    let peers: Vec<Box<dyn Vpn>> = vec![
        Box::new(NoVpn),
        Box::new(WireGuard::warren(&warren())),
        Box::new(Broken),
        Box::new(Absent),
    ];
    let profile = "baseline+delay=1ms";
    let (note, samples) = run(settings(&[profile], &all), &peers, &folder.0, "wt-ring-all");
    assert_eq!(samples.len(), all.len() * 3);
    assert!(note.marks.iter().any(|(word, _)| word == "short"));
    assert_eq!(note.skipped.iter().map(|absent| &*absent.name).collect::<Vec<_>>(), ["<absent>"]);
    for sample in &samples {
        let (key, failed) = (&sample.key, sample.failed.as_deref());
        if key.peer == "<broken>" {
            let log = "<broken> ended at once; its log:\nit does not start\nand says <b>why</b>";
            assert!(failed.is_some_and(|why| why.starts_with(log)), "{failed:?}");
            continue;
        }
        assert_eq!(failed, None, "{key:?}");
        let positive = |name: &str| sample.metrics.get(name).is_some_and(|value| *value > 0.0);
        let test = Test::named(&key.test).expect("known");
        let told = |name: &&str| sample.metrics.contains_key(*name);
        assert!(counts(test).iter().all(told), "{key:?}: {:?}", sample.metrics);
        for name in figures(test) {
            // The kernel counts a processor's time in hundredths of a second.
            let is_short = *name == "machine_cpu_s_per_gb" && key.peer == NoVpn.name();
            let is_there = is_short && sample.metrics.contains_key(*name);
            assert!(positive(name) || is_there, "{key:?} lacks {name}: {:?}", sample.metrics);
        }
        let is_wired =
            matches!(test, Test::Tcp | Test::Udp | Test::Flood | Test::Download | Test::Parallel);
        let wire = sample.wire.unwrap_or_default();
        let least = if is_wired { 500 } else { 1 };
        // The narrow queue is the kernel's own, and a link that is cut refuses what is sent.
        assert!(test == Test::Shared || wire.offered > least, "{key:?}: {wire:?}");
        assert!(test == Test::Reconnect || wire.failed == 0, "{key:?}: {wire:?}");
        let has_daemon = key.peer == WARREN && is_wired;
        assert!(!has_daemon || (positive("cpu_s_per_gb") && positive("rss_mib")), "{key:?}");
    }
    for path in page::write(&folder.0).expect("a report") {
        let text = fs::read_to_string(&path).expect("written");
        assert!(text.contains("failed 1 of 1") && text.contains("it does not start"));
        has_all_parts(&text, path.extension().is_some_and(|e| e == "html"));
        assert!(text.contains("not measured") && text.contains("holds"));
        assert!(!text.contains("<b>why") || path.extension().is_some_and(|e| e == "md"));
        assert!(text.contains("Proves nothing (short)"), "{}", path.display());
    }
    let text = page::compare(&folder.0, &folder.0, true).expect("comparable");
    assert!(text.contains("| tcp | baseline+delay=1ms | Warren | daemons' processor time, s/GB |"));
    let text = page::compare(&folder.0, &folder.0, false).expect("comparable");
    assert!(!text.contains("processor time"), "{text}");
    assert!(text.contains("| tcp | baseline+delay=1ms | Warren | up, Mbit/s |"), "{text}");
    assert!(text.contains("| tcp | baseline+delay=1ms | Warren | down, Mbit/s |"), "{text}");
    assert!(text.contains(" (1) | ") && text.contains("| too few to tell |"), "{text}");
    assert!(text.contains("tuning reorder"), "{text}");
}

/// What is downloaded may come over HTTPS, and then a comparison says so.
#[test]
fn a_download_over_https_arrives_whole_and_is_told_apart() {
    let folder = Folder::new("ring-https");
    let peers: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn)];
    let profile = ["baseline+delay=1ms+loss=1%"];
    let settings = sample::Settings { https: true, ..settings(&profile, &[Test::Download]) };
    let (note, samples) = run(settings, &peers, &folder.0, "wt-ring-https");
    assert!(note.settings.https);
    assert_eq!(samples[0].failed, None);
    assert!(samples[0].metrics["download_s"] > 0.0, "{:?}", samples[0].metrics);
    let text = page::compare(&folder.0, &folder.0, false).expect("comparable");
    assert!(text.contains("download over HTTPS"), "{text}");
}

/// Source 002.5 (12): its download lasts for seconds on a clear line, and is not the first.
#[test]
fn source_002_12_a_line_without_weather_has_a_long_download_too() {
    let folder = Folder::new("ring-long");
    let peers: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn)];
    let settings = settings(&[BASELINE], &[Test::Download]);
    let (_, samples) = run(settings, &peers, &folder.0, "wt-ring-long");
    let of = |profile: &str| samples.iter().find(|sample| sample.key.profile == profile);
    let quick = of(BASELINE).expect("measured");
    assert_eq!(quick.failed, None);
    let metrics = &quick.metrics;
    assert!(metrics["long_download_s"] > 3.0 * metrics["download_s"], "{metrics:?}");
    let slow = &of(SLOW_LINE).expect("measured, too").metrics;
    assert!(!slow.contains_key("long_download_s"), "{slow:?}");
}

/// The weather of a profile is on the wire in both directions, and pings tell of it.
#[test]
fn the_weather_is_on_each_hosts_way_out() {
    let folder = Folder::new("ring-weather");
    let peers: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn)];
    let settings = settings(&["delay=60ms+loss=10%"], &[Test::Ping]);
    let (_, samples) = run(settings, &peers, &folder.0, "wt-ring-weather");
    let metrics = &samples[0].metrics;
    let (rtt, lost) = (metrics["rtt_median_ms"], metrics["ping_lost_percent"]);
    assert!((120.0..125.0).contains(&rtt), "once each way: {metrics:?}");
    // 19 % in the mean; a hundred pings that differ this much are seen once in 10^5.
    assert!((3.0..38.0).contains(&lost), "{metrics:?}");
    assert!(samples[0].series["rtt_us"].len() > 60);
    // Ping tells times of 100 ms and more in whole milliseconds.
    assert!(metrics["rtt_p99_ms"] >= rtt && metrics["jitter_ms"] < 5.0, "{metrics:?}");
}

#[test]
fn an_interrupted_run_goes_on_where_it_stopped() {
    let folder = Folder::new("ring-resume");
    let dir = folder.0.to_str().expect("UTF-8");
    let tests = ["--tests", "connect,reconnect", "--profiles", "baseline,low,medium"];
    let words = ["bench", "run", "--peers", "none", "--seconds", "1", "--out", dir];
    let start = || {
        let mut command = Command::new(program("warren-lab"));
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let mut child = start().args(tests).spawn().expect("it starts");
    let begin = Instant::now();
    let path = folder.0.join("samples.jsonl");
    let lines = || fs::read_to_string(&path).unwrap_or_default().lines().count();
    while lines() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is measured");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    let interrupted = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(interrupted.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it ended");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--resume goes on from here"), "{error}");
    assert_eq!(namespaces("warren-bench"), [""; 0]);
    let before = lines();
    assert!((2..6).contains(&before), "{before}");

    let again = start().args(tests).output().expect("it runs");
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && error.contains("already holds a run"), "{error}");

    let resumed = start().arg("--resume").output().expect("it runs");
    let error = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{error}");
    assert!(error.contains(&format!("{before} measurements are there already")), "{error}");
    let (note, samples) = sample::read(&folder.0).expect("a run");
    assert_eq!((samples.len(), note.resumed.len()), (6, 1));
    let mut keys: Vec<_> = samples.iter().map(|sample| sample.key.clone()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6, "nothing was measured twice");
}

/// Source 002.5 (10) and (11): its datagrams have 1,340 bytes, and what was sent comes, frame by
/// frame. What weather makes of it a row of a run says.
#[test]
fn source_002_5_11_a_video_comes_as_it_was_sent() {
    let folder = Folder::new("ring-video");
    let peers: Vec<Box<dyn Vpn>> = vec![Box::new(NoVpn), Box::new(WireGuard::warren(&warren()))];
    let settings = sample::Settings { seconds: 3, ..settings(&[BASELINE], &[Test::Video]) };
    let (_, samples) = run(settings, &peers, &folder.0, "wt-ring-video");
    assert_eq!(samples.len(), 2);
    for sample in samples {
        assert_eq!(sample.failed, None, "{:?}", sample.key);
        let metrics = &sample.metrics;
        let of = |name: &str| metrics[name];
        assert_eq!(of("video_quality_percent"), 100.0, "{metrics:?}");
        assert_eq!(of("frames_missing_percent"), 0.0, "{metrics:?}");
        assert_eq!(of("frames_damaged_percent"), 0.0, "{metrics:?}");
        assert!(sample.series["session_rtt_ms"].len() >= 3, "a count each second");
    }
    let left = fs::read_dir(&folder.0).expect("a folder").filter_map(Result::ok);
    let clips = left.filter(|one| one.file_name().to_string_lossy().starts_with("clip"));
    assert_eq!(clips.count(), 0, "the clip goes with the run");
}
