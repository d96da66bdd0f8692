//! What may go wrong in hours of measuring: peers that hang, crash, never get ready or fill their
//! logs, a disk that is full, an interrupt at any moment, and two runs at once. Each peer here is a
//! real program in a real host. They need root, and claim no figure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use bench::facts::Origin;
use bench::ring::{self, Test, sample};
use bench::vpn::{Address, Daemon, End, Member, NoVpn, Vpn};

/// A program, which cargo builds beside the tests of the whole project.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("a folder of the profile");
    let program = folder.join(name);
    assert!(program.is_file(), "build {} first: cargo build", program.display());
    program
}

/// A folder that is new and goes with the test, and with it what is mounted there.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("warren-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        Self(dir)
    }

    /// A disk of its own, with so little room.
    fn small(name: &str, kib: u32) -> Self {
        let folder = Self::new(name);
        let size = format!("size={kib}k");
        let words = ["-t", "tmpfs", "-o", &size, "warren-test"];
        let mounted = Command::new("mount").args(words).arg(&folder.0).status();
        assert!(mounted.expect("mount runs").success(), "a small disk");
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn namespaces(prefix: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

/// What a peer does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It runs, says that it is ready, and carries nothing.
    Hangs,
    /// A question to it is never answered.
    NeverAnswers,
    /// It runs, and is never ready.
    NeverReady,
    /// It carries packets, and ends while they are measured.
    Crashes,
    /// It carries packets, and writes without end.
    FillsItsLog,
}

impl Vpn for Fault {
    fn name(&self) -> &str {
        match self {
            Self::Hangs => "hangs",
            Self::NeverAnswers => "never answers",
            Self::NeverReady => "never ready",
            Self::Crashes => "crashes",
            Self::FillsItsLog => "fills its log",
        }
    }

    fn word(&self) -> &str {
        self.name()
    }

    fn version(&self) -> Result<String> {
        Ok("1".to_owned())
    }

    fn install_hint(&self) -> &str {
        "do not"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let stays = ["sleep", "600"].as_slice();
        let shell = |script| Daemon::new(&["sh", "-c", script]);
        let daemon = match self {
            Self::Hangs => Daemon::new(stays),
            Self::NeverAnswers => Daemon { ready: "sleep 600".to_owned(), ..Daemon::new(stays) },
            Self::NeverReady => Daemon { ready: "false".to_owned(), ..Daemon::new(stays) },
            Self::Crashes => shell("sleep 4; echo 'out of luck' >&2; kill -SEGV $$"),
            Self::FillsItsLog => shell("exec yes 'there is much to say about nothing at all'"),
        };
        let member = |end: &End| Member {
            ifname: if *self == Self::Hangs { "none" } else { bench::ground::IFNAME }.to_owned(),
            daemons: vec![daemon.clone()],
            // Nobody has that one.
            address: Address::Known(match self {
                Self::Hangs => "10.99.0.99".to_owned(),
                _ => end.outer.clone(),
            }),
            settled: String::new(),
        };
        Ok(ends.iter().map(member).collect())
    }
}

fn settings(seconds: u32) -> sample::Settings {
    sample::Settings {
        profiles: vec!["baseline+rate=50mbit".to_owned()],
        tests: vec![Test::Tcp.word().to_owned()],
        rounds: 1,
        seconds,
        links: 1,
        seed: 7,
        grid: false,
        tuning: "default".to_owned(),
        https: false,
    }
}

/// Each is a failure with its reason, in its time, and whoever comes after is measured.
fn fails(faults: &[Fault], prefix: &str) -> Vec<(String, String)> {
    let folder = Folder::new(prefix);
    let mut peers: Vec<Box<dyn Vpn>> = Vec::new();
    for fault in faults {
        peers.push(Box::new(*fault));
    }
    peers.push(Box::new(NoVpn));
    let origin = Origin { command: "test".to_owned(), program: program("warren") };
    let dir = folder.0.join("run");
    ring::run(settings(3), &peers, &dir, prefix, &origin).expect("a run");
    assert_eq!(namespaces(prefix), [""; 0]);
    let (_, samples) = sample::read(&dir).expect("it can be read");
    assert_eq!(samples.len(), peers.len());
    let last = samples.last().expect("the one without a fault");
    assert_eq!((&*last.key.peer, last.failed.as_deref()), (NoVpn.name(), None));
    let size = fs::metadata(dir.join("samples.jsonl")).expect("samples").len();
    assert!(size < 100_000, "{size} bytes: a log is told by its end");
    // What failed is not measured again.
    ring::resume(&peers, &dir, prefix, &origin).expect("it goes on, with nothing");
    let (_, again) = sample::read(&dir).expect("it can be read");
    assert_eq!(again.len(), samples.len());
    let told = |s: sample::Sample| Some((s.key.peer.clone(), s.failed?));
    samples.into_iter().filter_map(told).collect()
}

#[test]
fn source_002_5_2_a_peer_that_crashes_or_fills_its_log_is_a_failure_with_its_last_words() {
    let told = fails(&[Fault::Crashes, Fault::FillsItsLog], "wt-bad-ends");
    let [(_, crashed), (_, filled)] = told.as_slice() else { panic!("{told:?}") };
    assert!(crashed.contains("ended early") && crashed.contains("out of luck"), "{crashed}");
    assert!(filled.contains("ended early"), "{filled}");
    assert!(filled.contains("there is much to say") && filled.len() < 40_000, "{filled}");
}

/// Half a minute: as long as the slowest rival may take.
#[test]
fn source_002_5_2_a_peer_that_is_never_ready_costs_its_time_and_no_more() {
    let begin = Instant::now();
    let told = fails(&[Fault::NeverReady], "wt-bad-unready");
    let [(_, unready)] = told.as_slice() else { panic!("{told:?}") };
    assert!(unready.contains("was not ready within 30s"), "{unready}");
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
}

#[test]
#[ignore = "soak: 120 s"]
fn a_peer_that_answers_nothing_or_carries_no_echo_costs_its_time_and_no_more() {
    let begin = Instant::now();
    let told = fails(&[Fault::NeverAnswers, Fault::Hangs], "wt-bad-hangs");
    let [(_, mute), (_, hung)] = told.as_slice() else { panic!("{told:?}") };
    assert!(mute.contains("was not ready within 30s"), "{mute}");
    assert!(hung.contains("carried no echo") && hung.contains("within 90s"), "{hung}");
    assert!(begin.elapsed() < Duration::from_secs(300), "{:?}", begin.elapsed());
}

/// `warren-lab bench run` with these words, under a prefix that the whole program shares: tests
/// that call it wait for each other.
struct Bench {
    words: Vec<String>,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Bench {
    fn new(words: &str) -> Self {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self { words: words.split(' ').map(str::to_owned).collect(), _turn: turn }
    }

    fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(program("warren-lab"));
        command.args(["bench", "run"]).args(&self.words).args(["--out", out]).args(more);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(&self, out: &str, more: &[&str]) -> Child {
        self.command(out, more).spawn().expect("it starts")
    }

    /// Another test program may hold the prefix for a while.
    fn run(&self, out: &str, more: &[&str]) -> Output {
        let begin = Instant::now();
        loop {
            let output = self.command(out, more).output().expect("it runs");
            let text = said(&output);
            if !text.contains("uses the prefix") || begin.elapsed() > Duration::from_secs(120) {
                return output;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn end_of(mut child: Child, limit: Duration) -> Output {
    let begin = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(begin.elapsed() < limit, "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it ended")
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(90), "not within 90 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn all_are_there_once(dir: &Path, count: usize) {
    let (_, samples) = sample::read(dir).expect("a run");
    let keys: BTreeSet<_> = samples.iter().map(|sample| sample.key.clone()).collect();
    assert_eq!((samples.len(), keys.len()), (count, count), "in {}", dir.display());
    let failed: Vec<_> = samples.iter().filter_map(|sample| sample.failed.as_ref()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_full_disk_ends_a_run_with_its_reason_and_it_goes_on_when_there_is_room() {
    let bench =
        Bench::new("--peers none --tests connect --profiles baseline --seconds 1 --repeat 40");
    let folder = Folder::small("bad-disk", 64);
    let run = folder.0.join("run");
    let out = run.to_str().expect("UTF-8");
    let child = bench.start(out, &[]);
    wait_until("a measurement", || {
        fs::metadata(run.join("samples.jsonl")).is_ok_and(|m| m.len() > 0)
    });
    let ballast = folder.0.join("ballast");
    // As much as there is; that it ends with an error is what is wanted.
    let mut filling = Command::new("dd");
    filling.args(["if=/dev/zero", "bs=1k", "status=none"]).arg(format!("of={}", ballast.display()));
    let filled = filling.stderr(Stdio::null()).status();
    assert!(!filled.expect("dd runs").success(), "the disk is full");
    let output = end_of(child, Duration::from_secs(120));
    let text = said(&output);
    assert!(!output.status.success() && text.contains("cannot write a sample"), "{text}");
    assert!(text.contains("No space left"), "{text}");
    assert_eq!(namespaces("warren-bench"), [""; 0]);
    fs::remove_file(ballast).expect("room again");
    let again = bench.run(out, &["--resume"]);
    assert!(again.status.success(), "{}", said(&again));
    all_are_there_once(&run, 40);
}

/// Before anything is there, while a lab is made, in a handshake, in a load, while a clip is
/// encoded: whenever it is, the run ends soon, leaves nothing behind, and goes on.
#[test]
fn an_interrupt_at_any_moment_leaves_nothing_behind_and_the_run_goes_on() {
    let words =
        "--peers none,warren --tests connect,quic,video --profiles low --links 1 --seconds 2";
    let bench = Bench::new(words);
    let folder = Folder::new("bad-interrupt");
    let run = folder.0.join("run");
    let out = run.to_str().expect("UTF-8");
    let resume = || if run.join("run.json").exists() { vec!["--resume"] } else { Vec::new() };
    for (i, after_ms) in [20, 300, 900, 2_000, 3_700, 6_100, 9_300].into_iter().enumerate() {
        let child = bench.start(out, &resume());
        std::thread::sleep(Duration::from_millis(after_ms));
        let signal = if i % 2 == 0 { "-INT" } else { "-TERM" };
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
        let interrupted = Instant::now();
        let output = end_of(child, Duration::from_secs(20));
        let text = said(&output);
        // By itself it ends in a minute; nothing here waits for that.
        assert!(!output.status.success(), "after {after_ms} ms: {text}");
        assert!(!text.contains("panicked"), "after {after_ms} ms: {text}");
        assert_eq!(namespaces("warren-bench"), [""; 0], "after {after_ms} ms");
        eprintln!("after {after_ms} ms it ended in {:?}", interrupted.elapsed());
    }
    let last = bench.run(out, &resume());
    assert!(last.status.success() || said(&last).contains("already holds"), "{}", said(&last));
    all_are_there_once(&run, 6);
    let left: Vec<_> = fs::read_dir(&run).expect("a folder").filter_map(Result::ok).collect();
    let left: BTreeSet<_> = left.iter().map(|one| one.file_name()).collect();
    assert_eq!(left, BTreeSet::from(["run.json".into(), "samples.jsonl".into()]), "and no clip");
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let bench =
        Bench::new("--peers none --tests connect --profiles baseline --seconds 1 --repeat 30");
    let folder = Folder::new("bad-two");
    let paths = ["one", "two"].map(|name| folder.0.join(name).to_str().expect("UTF-8").to_owned());
    let [one, two] = &paths;
    let child = bench.start(one, &[]);
    let samples = Path::new(one).join("samples.jsonl");
    wait_until("a measurement", || fs::metadata(&samples).is_ok_and(|m| m.len() > 0));
    let same = bench.command(one, &["--resume"]).output().expect("it runs");
    assert!(said(&same).contains("another run is writing into"), "{}", said(&same));
    // Between two measurements nobody has the hosts, so the other may begin, or not.
    let other = bench.command(two, &[]).output().expect("it runs");
    let first = end_of(child, Duration::from_secs(180));
    let texts = [said(&first), said(&other)];
    let stopped = texts.iter().filter(|text| text.contains("uses the prefix")).count();
    assert!(stopped > 0 || (first.status.success() && other.status.success()), "{texts:?}");
    assert_eq!(namespaces("warren-bench"), [""; 0]);
    let more: &[&str] = if first.status.success() { &[] } else { &["--resume"] };
    if !more.is_empty() {
        let again = bench.run(one, more);
        assert!(again.status.success(), "{}", said(&again));
    }
    all_are_there_once(Path::new(one), 30);
}
