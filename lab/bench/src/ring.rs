//! `warren-lab bench run`: three hosts in a ring, every test in every profile for every peer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::netns::{InUse, Net};
use lab::sys;
use sim::impair::Impairment;
use sim::profile;

use crate::facts::{BUSY_LOAD, Facts, Origin, load_averages_now};
use crate::progress::Progress;
use crate::report::Mark;
use crate::vpn::Vpn;

pub mod download;
pub mod grid;
mod measure;
pub mod metric;
mod quic;
mod rist;
pub mod sample;
mod stream;
mod test;

pub use test::Test;

use sample::{Absent, Key, Note, Peer, SCHEMA, Sample, Settings, Store};

/// The three links: name, and the places of their hosts.
pub const LINKS: [(&str, usize, usize); 3] = [("a-b", 0, 1), ("b-c", 1, 2), ("c-a", 2, 0)];
/// The link's name of a test that needs all hosts.
pub const RING: &str = "ring";
/// Kernel settings that a run can have.
pub const TUNINGS: [&str; 4] = ["default", "reorder", "full", "latest-rtt"];
/// The profile's name of the bottleneck that two flows share.
pub const BOTTLENECK: &str = "bottleneck";
/// The profile of a line without weather, 1 Gbit/s.
pub const BASELINE: &str = "baseline";
/// The profile of the download on a line that leaves two processors time: at 1 Gbit/s hosts,
/// daemons and wire together take nearly all that they have.
pub const SLOW_LINE: &str = "baseline+rate=200mbit";
/// The profile of six flows at once that leave two processors time.
pub const SLOW_RING: &str = "baseline+rate=50mbit";
/// The word of a profile that lets superpackets enter the wire whole.
pub const SUPERPACKETS: &str = "superpackets";
/// Seconds of a transfer and measurements of one thing below which a run is marked short.
pub const HONEST_SECONDS: u32 = 10;
/// As [`HONEST_SECONDS`].
pub const HONEST_COUNT: u32 = 3;
/// For so long a run that may claim something waits for the machine to be calm.
const CALM_WAIT: Duration = Duration::from_secs(300);
/// Two flows on one queue run so many times as long as others, twice: what the queue drops is
/// counted, and of a flow's it is one or two a second.
pub(crate) const SHARED_TIMES: u32 = 3;
/// What making and removing a lab and starting daemons takes, about.
const OVERHEAD_S: f64 = 3.0;

/// One measurement that is to be made.
struct Turn<'a> {
    vpn: &'a dyn Vpn,
    test: Test,
    key: Key,
    impairment: Impairment,
    superpackets: bool,
    from: usize,
    to: usize,
    seconds: u32,
    seed: u64,
    https: bool,
}

/// Where measurements are made.
struct Place<'a> {
    /// Namespaces begin with it.
    prefix: &'a str,
    tuning: &'a str,
    /// The run's folder.
    dir: &'a Path,
}

/// Whether a profile impairs superpackets as one, as netem does on an interface with offloads.
#[must_use]
pub fn takes_superpackets(profile: &str) -> bool {
    profile.split('+').any(|word| word == SUPERPACKETS)
}

/// What a profile of a run does to frames: a name, or words joined by `+`.
///
/// # Errors
/// Says which word is not known.
pub fn impairment(profile: &str) -> Result<Impairment> {
    let mut impairment = Impairment::LINE;
    if profile != BOTTLENECK {
        for word in profile.split('+').filter(|word| *word != SUPERPACKETS) {
            profile::apply(&mut impairment, word)?;
        }
    }
    Ok(impairment)
}

/// What each word of `--tuning` sets in the kernel of a host; nothing for `default`. Since Linux
/// 6.17 TCP cannot be told to do without RACK, so `tcp_recovery=0` does little there. RACK bears
/// disorder by a share of the shortest round trip, which is the latest one with `latest-rtt`.
#[must_use]
pub fn sysctls(tuning: &str) -> &'static [&'static str] {
    const ALL: [&str; 5] = [
        "net.ipv4.tcp_reordering=10",
        "net.ipv4.tcp_recovery=0",
        "net.ipv4.tcp_early_retrans=0",
        "net.ipv4.tcp_rmem=4096 2097152 8388608",
        "net.ipv4.tcp_wmem=4096 1572864 6291456",
    ];
    match tuning {
        "full" => &ALL,
        "reorder" => &ALL[..3],
        "latest-rtt" => &["net.ipv4.tcp_min_rtt_wlen=0"],
        _ => &[],
    }
}

/// Begins a run in `dir` and measures everything.
///
/// # Errors
/// Returns an error when a setting is wrong, the folder already holds a run, the prefix is in
/// use, or a signal asks this process to end; what was finished is kept, all else removed. What
/// fails for one peer is a sample.
pub fn run(
    settings: Settings,
    peers: &[Box<dyn Vpn>],
    dir: &Path,
    prefix: &str,
    origin: &Origin,
) -> Result<()> {
    check(&settings)?;
    let (present, skipped) = call(peers);
    ensure!(!present.is_empty(), "none of these peers is on this machine: {}", absent(&skipped));
    ensure!(sys::is_root(), "network namespaces need root: run this with sudo");
    let store = Store::create(dir)?;
    make_ready(&settings, prefix)?;
    let facts = Facts::gather(origin);
    let note = Note {
        schema: SCHEMA,
        kind: "ring".to_owned(),
        resumed: Vec::new(),
        marks: marks(&settings, &facts),
        facts,
        settings,
        peers: present,
        skipped,
        figures: Vec::new(),
    };
    store.write_note(&note)?;
    go_on(store, &note, Vec::new(), peers, prefix)
}

/// Who is on this machine, and who is not.
fn call(peers: &[Box<dyn Vpn>]) -> (Vec<Peer>, Vec<Absent>) {
    let mut present = Vec::new();
    let mut skipped = Vec::new();
    for vpn in peers {
        let name = vpn.name().to_owned();
        match vpn.version() {
            Ok(version) => {
                let remark = vpn.remark(&version).to_owned();
                present.push(Peer { name, version, remark });
            }
            Err(error) => {
                let why = format!("{error:#}");
                let hint = vpn.install_hint().to_owned();
                skipped.push(Absent { name, why, hint });
            }
        }
    }
    (present, skipped)
}

/// Goes on with the run in `dir`, with the settings that it began with.
///
/// # Errors
/// As [`run`]; also when a peer that takes part is gone or has another version, or this program
/// or the machine is another one.
pub fn resume(peers: &[Box<dyn Vpn>], dir: &Path, prefix: &str, origin: &Origin) -> Result<()> {
    let (store, mut note, samples) = Store::resume(dir)?;
    check(&note.settings)?;
    let mut facts = Facts::gather(origin);
    note.facts.ensure_same(&facts)?;
    for peer in &note.peers {
        let vpn = peers.iter().find(|vpn| vpn.name() == peer.name);
        let version = vpn.with_context(|| format!("unknown peer {}", peer.name))?.version()?;
        ensure!(
            version == peer.version,
            "{} was {} and is now {version}: begin a new run",
            peer.name,
            peer.version
        );
    }
    make_ready(&note.settings, prefix)?;
    facts.load_before = load_averages_now();
    for mark in marks(&note.settings, &facts) {
        if !note.marks.iter().any(|(word, _)| *word == mark.0) {
            note.marks.push(mark);
        }
    }
    note.resumed.push(facts.date);
    note.figures.clear();
    store.write_note(&note)?;
    go_on(store, &note, samples, peers, prefix)
}

fn go_on(
    mut store: Store,
    note: &Note,
    samples: Vec<Sample>,
    peers: &[Box<dyn Vpn>],
    prefix: &str,
) -> Result<()> {
    sys::catch_interrupts();
    let present: Vec<&dyn Vpn> = note
        .peers
        .iter()
        .filter_map(|peer| peers.iter().find(|vpn| vpn.name() == peer.name))
        .map(AsRef::as_ref)
        .collect();
    let done: BTreeSet<Key> = samples.into_iter().map(|sample| sample.key).collect();
    let mut turns = turns(&note.settings, &present)?;
    turns.retain(|turn| !done.contains(&turn.key));
    let expected = |turn: &Turn<'_>| turn.test.expected_s(turn.seconds) + OVERHEAD_S;
    let mut progress = Progress::new(turns.iter().map(expected).sum());
    for absent in &note.skipped {
        progress.note(&format!("skipped: {} ({}); {}", absent.name, absent.why, absent.hint));
    }
    if !done.is_empty() {
        progress.note(&format!("{} measurements are there already", done.len()));
    }
    let dir = store.dir().to_owned();
    let place = Place { prefix, tuning: &note.settings.tuning, dir: &dir };
    let clip = clip(&turns, &dir, &progress)?;
    for turn in &turns {
        let Key { round, profile, test, link, peer } = &turn.key;
        let what = format!("round {round}, {profile}, {test}, {link}: {peer}");
        progress.begin_step(&what);
        let sample = sample(turn, &place)?;
        // What was interrupted is no failure of the one whose turn it was.
        sys::check_interrupted().context("stopped; --resume goes on from here")?;
        if let Some(why) = &sample.failed {
            let first = why.lines().next().unwrap_or_default();
            progress.note(&format!("failed: {what}: {first}"));
        }
        store.add(&sample)?;
        progress.end_step(expected(turn));
    }
    if let Some(clip) = clip {
        // Whoever looks at the folder misses nothing: a clip is made again in a minute.
        let _ = std::fs::remove_file(clip);
    }
    Ok(())
}

/// The clip that is sent, where one is: made before anything is measured, and there until the end.
fn clip(turns: &[Turn<'_>], dir: &Path, progress: &Progress) -> Result<Option<PathBuf>> {
    let Some(turn) = turns.iter().find(|turn| turn.test == Test::Video) else { return Ok(None) };
    if !rist::clip_path(dir, turn.seconds).exists() {
        progress.note(&format!("encoding {} s of video, once for this run", turn.seconds));
    }
    rist::make_clip(dir, turn.seconds).map(Some).context("stopped; --resume goes on from here")
}

/// One measurement, or its failure; what nobody's VPN can help is an error.
fn sample(turn: &Turn<'_>, place: &Place<'_>) -> Result<Sample> {
    let load_before = load_averages_now()[0];
    let mut wire = None;
    let (outcome, failed) = match measure::measure(turn, place, &mut wire) {
        Ok(outcome) => (outcome, None),
        Err(error) if error.is::<InUse>() => {
            return Err(error.context("stopped; --resume goes on from here"));
        }
        Err(error) => (measure::Outcome::default(), Some(format!("{error:#}"))),
    };
    let measure::Outcome { metrics, series } = outcome;
    let key = turn.key.clone();
    let seed = turn.seed;
    Ok(Sample { schema: SCHEMA, key, seed, load_before, metrics, series, wire, failed })
}

/// Everybody in turn for each link of each test of each profile, all of that in each round.
fn turns<'a>(settings: &Settings, present: &[&'a dyn Vpn]) -> Result<Vec<Turn<'a>>> {
    let mut turns = Vec::new();
    let mut plan: Vec<(String, Test)> = Vec::new();
    for profile in &settings.profiles {
        for word in &settings.tests {
            let test = Test::named(word).with_context(|| format!("unknown test {word:?}"))?;
            if test != Test::Shared {
                plan.push((profile.clone(), test));
            }
            let slower = match test {
                Test::Download => Some(SLOW_LINE),
                Test::Both | Test::Parallel => Some(SLOW_RING),
                _ => None,
            };
            if let Some(slower) = slower.filter(|_| profile == BASELINE) {
                plan.push((slower.to_owned(), test));
            }
        }
    }
    if settings.tests.iter().any(|word| word == Test::Shared.word()) {
        plan.push((BOTTLENECK.to_owned(), Test::Shared));
    }
    if settings.grid {
        plan.extend(grid::cells().into_iter().map(|profile| (profile, Test::Grid)));
    }
    for round in 1..=settings.rounds {
        for (profile, test) in &plan {
            let links = if test.is_once() { 1 } else { settings.links as usize };
            for (place, (name, from, to)) in LINKS.into_iter().enumerate().take(links) {
                let link = if test.needs_whole_ring() { RING } else { name };
                for vpn in present {
                    let key = Key {
                        round,
                        profile: profile.clone(),
                        test: test.word().to_owned(),
                        link: link.to_owned(),
                        peer: vpn.name().to_owned(),
                    };
                    // The same weather for everybody, another for each round and link.
                    let seed = settings.seed.wrapping_add(u64::from(round) << 32)
                        ^ (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let test = *test;
                    let mut seconds = settings.seconds;
                    if test == Test::Grid {
                        seconds = grid::seconds_of(profile, seconds);
                    }
                    turns.push(Turn {
                        vpn: *vpn,
                        test,
                        key,
                        impairment: impairment(profile)?,
                        superpackets: takes_superpackets(profile),
                        from,
                        to,
                        seconds,
                        seed,
                        https: settings.https,
                    });
                }
            }
        }
    }
    Ok(turns)
}

fn check(settings: &Settings) -> Result<()> {
    ensure!((1..=600).contains(&settings.seconds), "a transfer must take 1 to 600 seconds");
    ensure!((1..=100).contains(&settings.rounds), "there must be 1 to 100 rounds");
    ensure!((1..=3).contains(&settings.links), "a ring has 1 to 3 links");
    ensure!(TUNINGS.contains(&&*settings.tuning), "unknown tuning {:?}", settings.tuning);
    ensure!(
        settings.grid || !(settings.tests.is_empty() || settings.profiles.is_empty()),
        "there is nothing to measure: name tests and profiles"
    );
    for profile in &settings.profiles {
        impairment(profile).with_context(|| format!("the profile {profile:?}"))?;
    }
    for test in &settings.tests {
        let known = Test::ALL.map(Test::word).join(", ");
        ensure!(Test::named(test).is_some(), "unknown test {test:?}: use {known}");
    }
    Ok(())
}

/// Fails without rights, without a test's programs or beside another run, as each measurement
/// would; waits for a calm machine.
fn make_ready(settings: &Settings, prefix: &str) -> Result<()> {
    drop(Net::new(prefix)?);
    if settings.tests.iter().any(|word| word == Test::Video.word()) {
        rist::ensure_programs().context("the test video, which --tests may leave out")?;
    }
    if !settings.is_short() {
        wait_until_calm();
    }
    Ok(())
}

/// What was done just before, a build for instance, is not to take part.
fn wait_until_calm() {
    let begin = Instant::now();
    let progress = Progress::new(0.0);
    let load = load_averages_now()[0];
    if load > BUSY_LOAD {
        progress.note(&format!("the load average is {load}: waiting for 1, up to 5 minutes"));
    }
    while load_averages_now()[0] > BUSY_LOAD && begin.elapsed() < CALM_WAIT {
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Why a run proves nothing, if it does not.
fn marks(settings: &Settings, facts: &Facts) -> Vec<(String, String)> {
    let short = settings.is_short().then(|| {
        let times = match settings.count_max() {
            1 => "once".to_owned(),
            count => format!("{count} times at most"),
        };
        format!(
            "a transfer took {} s and was made {times}; a claim takes {HONEST_SECONDS} s and \
             {HONEST_COUNT} times",
            settings.seconds
        )
    });
    let marks = Mark::all(facts, short).into_iter();
    marks.map(|Mark { mark, why }| (mark.to_owned(), why)).collect()
}

fn absent(skipped: &[Absent]) -> String {
    let said = skipped.iter().map(|a| format!("{} ({}); {}", a.name, a.why, a.hint));
    said.collect::<Vec<_>>().join("\n")
}

/// The peers called so, in the order of `all`; everybody where no word is given.
///
/// # Errors
/// Says which words are known.
pub fn select(all: Vec<Box<dyn Vpn>>, words: &[String]) -> Result<Vec<Box<dyn Vpn>>> {
    let known: Vec<&str> = all.iter().map(|vpn| vpn.word()).collect();
    if let Some(unknown) = words.iter().find(|word| !known.contains(&&***word)) {
        bail!("unknown peer {unknown:?}: use {}", known.join(", "));
    }
    let wanted = |word: &str| words.is_empty() || words.iter().any(|w| w == word);
    Ok(all.into_iter().filter(|vpn| wanted(vpn.word())).collect())
}

#[cfg(test)]
mod tests {
    use super::sample::tests::note;
    use super::*;
    use crate::vpn::{self, NoVpn};

    #[test]
    fn everybody_meets_the_same_weather_in_turn() {
        let (one, two) = (NoVpn, NoVpn);
        let settings = Settings { rounds: 2, ..note(&[]).settings };
        let turns = turns(&settings, &[&one, &two]).expect("turns");
        assert_eq!(turns.len(), 2 * 4 * 2 * 3 * 2);
        assert_eq!((turns[0].seed, &turns[0].key.link), (turns[1].seed, &turns[1].key.link));
        assert_ne!(turns[0].seed, turns[2].seed, "another link");
        assert_eq!(turns.last().map(|turn| turn.key.round), Some(2));
        let tests = ["download", "bidir", "parallel"].map(str::to_owned).to_vec();
        let slower = Settings { tests, ..settings.clone() };
        let slower = super::turns(&slower, &[&one]).expect("turns");
        let slower = slower.iter().filter(|turn| turn.key.profile.contains("rate="));
        let slower: Vec<_> = slower.map(|t| (t.test, t.impairment.rate_bps / 1_000_000)).collect();
        let once = [[(Test::Download, 200); 3].as_slice(), &[(Test::Both, 50); 3]].concat();
        assert_eq!(slower[..6], once, "beside the baseline alone");
        assert_eq!((slower[6], slower.len()), ((Test::Parallel, 50), 14));
        let low = &turns[12];
        assert_eq!((&low.key.profile[..], low.impairment.delay_us), ("low", 2_000));
    }

    #[test]
    fn what_needs_all_hosts_is_measured_once_a_round() {
        let tests = ["connect", "parallel", "shared", "udp"].map(str::to_owned).to_vec();
        let profiles = vec!["high".to_owned()];
        let settings = Settings { tests, profiles, grid: true, ..note(&[]).settings };
        let turns = turns(&settings, &[&NoVpn]).expect("turns");
        let links: Vec<_> = turns.iter().map(|turn| &turn.key.link[..]).take(6).collect();
        assert_eq!(links, ["ring", "ring", "a-b", "b-c", "c-a", "a-b"]);
        assert_eq!(turns[5].key.profile, BOTTLENECK);
        assert_eq!(turns.len(), 6 + 48);
        let seconds = turns.iter().map(|turn| turn.seconds / settings.seconds);
        assert_eq!(seconds.collect::<Vec<_>>(), [[1; 6].as_slice(), &[3; 16], &[1; 32]].concat());
    }

    #[test]
    fn settings_out_of_bounds_are_refused_with_what_is_known() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = note(&[]).settings;
            change(&mut settings);
            check(&settings).err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert_eq!(refused(|_| ()), "");
        assert!(refused(|s| s.tests.push("quick".to_owned())).contains("udp, flood"));
        assert!(refused(|s| s.profiles.push("bad".to_owned())).contains("baseline, low"));
        for change in [
            |s: &mut Settings| s.seconds = 0,
            |s: &mut Settings| s.links = 4,
            |s: &mut Settings| s.rounds = 0,
            |s: &mut Settings| s.tests.clear(),
            |s: &mut Settings| s.tuning = "fast".to_owned(),
        ] {
            assert_ne!(refused(change), "");
        }
        let error = select(vpn::all(Path::new("/x")), &["nobody".to_owned()]).expect_err("none");
        assert!(error.to_string().contains("wireguard-go, wireguard, tinc"), "{error}");
    }
}
