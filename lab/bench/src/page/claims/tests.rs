//! Verdicts on runs that are made up.

use super::*;
use crate::ring::grid;
use crate::ring::sample::tests::{note, sample};
use crate::ring::sample::{Key, Note, Sample};

fn run(ours: f64, theirs: f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for profile in ALL {
        for link in ["a-b", "b-c", "c-a"] {
            let rate = |rate: f64| [(RATE, rate), ("forward_retransmits", 5.0)];
            samples.push(sample(WARREN, profile, "tcp", link, &rate(ours)));
            samples.push(sample(WIREGUARD_GO, profile, "tcp", link, &rate(theirs)));
        }
    }
    samples
}

fn about<'a>(verdicts: &'a [Verdict], of: &str, what: &str) -> &'a Verdict {
    let found = verdicts.iter().find(|v| v.of == of && v.what.contains(what));
    found.unwrap_or_else(|| panic!("no verdict on {what}"))
}

/// Source 002.5 (6), and (2) where something was not measured.
#[test]
fn source_002_6_every_verdict_is_one_of_three() {
    let note = note(&[WARREN, WIREGUARD_GO]);
    let good = run(900.0, 8.0);
    let verdicts = verdicts(&Cells::new(&note, &good));
    let high = about(&verdicts, "bound", "high, tcp: up, Warren ÷ wireguard-go");
    assert_eq!((high.holds, &high.found[..]), (Some(true), "112 × (n = 3)"));
    assert!(!high.is_of_few());
    assert_eq!(about(&verdicts, "bound", "high, tcp: up").required, "≥ 400 Mbit/s");
    assert_eq!(about(&verdicts, "bound", "EasyTier").holds, None, "it took no part");
    assert_eq!(about(&verdicts, "002.5 (6)", "high").holds, Some(true));
    assert_eq!(about(&verdicts, "002.5 (2)", "all tests").holds, None, "not all measured");
    let bad = run(9.0, 8.0);
    let verdicts = super::verdicts(&Cells::new(&note, &bad));
    assert_eq!(about(&verdicts, "bound", "high, tcp: up").holds, Some(false));
}

/// Source 002.5 (1) and (2): all tests on all links, and one that fails is named.
#[test]
fn source_002_2_what_warren_does_not_get_through_is_named() {
    let mut note = note(&[WARREN, WIREGUARD_GO]);
    note.settings.tests = Test::ALL.map(|test| test.word().to_owned()).to_vec();
    let mut samples = Vec::new();
    for test in Test::ALL {
        let once = test.needs_whole_ring() || test == Test::Shared;
        let links: &[&str] = if once { &["ring"] } else { &["a-b", "b-c", "c-a"] };
        let profiles: &[&str] =
            if test == Test::Shared { &[crate::ring::BOTTLENECK] } else { &ALL };
        for profile in profiles {
            for peer in [WARREN, WIREGUARD_GO] {
                let one = |link: &&str| sample(peer, profile, test.word(), link, &[]);
                samples.extend(links.iter().map(one));
            }
        }
    }
    let judged = |note: &Note, samples: &[Sample]| {
        let verdicts = verdicts(&Cells::new(note, samples));
        let of = |of: &str, what: &str| {
            let verdict = about(&verdicts, of, what);
            (verdict.holds, verdict.found.clone())
        };
        (of("002.5 (1)", "one command").0, of("002.5 (2)", "all tests"))
    };
    let (everything, completes) = judged(&note, &samples);
    assert_eq!((everything, completes.0), (Some(true), Some(true)), "{}", completes.1);
    assert_eq!(judged(&note, &samples[1..]).0, None, "it is not finished");
    let alone = Note { peers: note.peers[..1].to_vec(), ..note.clone() };
    assert_eq!(judged(&alone, &samples).0, None, "beside nobody");
    let failed = samples.iter_mut().find(|sample| sample.key.profile == "high").expect("one");
    failed.failed = Some("it broke".to_owned());
    let test = failed.key.test.clone();
    let (_, completes) = judged(&note, &samples);
    assert_eq!(completes.0, Some(false));
    assert!(completes.1.contains(&format!("high, {test}: 1 of")), "{}", completes.1);
    samples.retain(|sample| sample.key.profile != "high");
    note.settings.tests.pop();
    let (everything, completes) = judged(&note, &samples);
    assert_eq!((everything, completes.0), (None, None), "{}", completes.1);
}

/// Source 002.5 (12).
#[test]
fn source_002_12_a_download_that_the_processors_decide_is_judged_on_a_slower_line() {
    let note = note(&[NO_VPN, WARREN, WIREGUARD_GO]);
    let verdict = |busy: f64, theirs: f64, slow: f64| {
        let took = |peer, profile, s| {
            let metrics = [("download_s", s), ("long_download_s", s), ("busy_percent", busy)];
            ["a-b", "b-c", "c-a"].map(|link| sample(peer, profile, "download", link, &metrics))
        };
        let samples = [
            took(NO_VPN, CLEAN, 1.0),
            took(WARREN, CLEAN, 1.2),
            took(WIREGUARD_GO, CLEAN, theirs),
            took(NO_VPN, SLOW_LINE, 2.0),
            took(WARREN, SLOW_LINE, slow),
        ];
        let samples = samples.concat();
        let verdicts = verdicts(&Cells::new(&note, &samples));
        let of = |rate: &str| {
            about(&verdicts, "002.5 (12)", &format!("{rate}, download: download")).clone()
        };
        (of(CLEAN), of(SLOW_LINE))
    };
    let (full, slow) = verdict(92.0, 2.0, 2.1);
    assert_eq!((full.holds, slow.holds), (None, Some(true)));
    let found = "1.2 × (n = 3); the processors were busy for 92 % of it and decide";
    assert_eq!(&full.found[..], found);
    assert_eq!(verdict(92.0, 1.1, 2.3).0.holds, Some(false), "slower than wireguard-go");
    let (full, slow) = verdict(60.0, 2.0, 2.3);
    assert_eq!((full.holds, slow.holds), (Some(false), Some(false)), "there was time left");
}

#[test]
fn the_worst_cell_of_the_grid_decides() {
    let note = note(&[NO_VPN, WARREN]);
    let profiles = grid::cells();
    let ours = |i: usize, round: u32| match i {
        7 => 0.5,
        8 if round == 1 => 0.55,
        _ => 1.2,
    };
    let cell = |(i, profile): (usize, &String), round: u32| {
        let bytes = |peer| if i < 3 && peer == WARREN { 1.8 } else { 1.1 };
        let rate = |peer, rate| Sample {
            key: Key { round, ..sample(peer, profile, "grid", "a-b", &[]).key },
            ..sample(peer, profile, "grid", "a-b", &[(RATE, rate), (BYTES, bytes(peer))])
        };
        [rate(NO_VPN, 1.0), rate(WARREN, ours(i, round))]
    };
    let round = |round| profiles.iter().enumerate().flat_map(move |at| cell(at, round));
    let samples: Vec<Sample> = (1..=2).flat_map(round).collect();
    let verdicts = verdicts(&Cells::new(&note, &samples));
    let verdict = about(&verdicts, "bound", "grid: up");
    assert_eq!(verdict.holds, Some(false));
    let found =
        format!(" at {}; beyond the bound in 2 of 48 cells, in all rounds in 1", profiles[7]);
    assert!(
        verdict.found.starts_with("0.5 × (n = 2)") && verdict.found.ends_with(&found),
        "{}",
        verdict.found
    );
    assert!(verdict.is_of_few());
    let bytes = about(&verdicts, "bound", "grid: bytes on the wire");
    assert_eq!(bytes.holds, Some(false));
    let found = "in 3 of 48 cells, in all rounds in 3; above 1.35 in 3 of 48 cells";
    assert!(bytes.found.ends_with(found), "{}", bytes.found);
    let verdicts = super::verdicts(&Cells::new(&note, &[]));
    assert_eq!(about(&verdicts, "bound", "grid: up").holds, None);
    for (ours, holds) in [(1.13, Some(false)), (1.115, Some(true))] {
        let sent = |peer, clear: f64, lossy: f64| {
            let each = profiles.iter().map(move |profile| {
                let bytes = if profile.contains("loss=0%") { clear } else { lossy };
                sample(peer, profile, "grid", "a-b", &[("wire_bytes_per_byte", bytes)])
            });
            each.collect::<Vec<Sample>>()
        };
        let both = [sent(WARREN, ours, 1.7), sent(WARREN_PLAIN, 1.11, 1.11)].concat();
        let verdicts = super::verdicts(&Cells::new(&note, &both));
        let without = about(&verdicts, "bound", "without loss, Warren ÷ Warren without repair");
        assert_eq!(without.holds, holds, "{}", without.found);
    }
}

#[test]
fn a_grid_with_a_failure_or_without_a_cell_does_not_hold() {
    let note = note(&[NO_VPN, WARREN]);
    let profiles = grid::cells();
    let cell = |profile: &String| {
        let metrics = |rate| [(RATE, rate), (BYTES, 1.2), ("rss_mib", 9.0)];
        [(NO_VPN, 1.0), (WARREN, 2.0)].map(|(p, r)| sample(p, profile, "grid", "a-b", &metrics(r)))
    };
    let mut samples: Vec<Sample> = profiles.iter().flat_map(cell).collect();
    let judged = |samples: &[Sample]| {
        let verdicts = verdicts(&Cells::new(&note, samples));
        let bytes = "grid: bytes on the wire for each that arrived, Warren ÷ no VPN";
        ["grid: up", bytes, "largest daemon"].map(|what| about(&verdicts, "bound", what).holds)
    };
    assert_eq!(judged(&samples), [Some(true); 3]);
    assert_eq!(judged(&samples[2..]), [None, None, Some(true)], "one cell is not there");
    assert_eq!(judged(&samples[1..]), [None, None, Some(true)], "nor what it is held against");
    samples[0].failed = Some("no VPN broke".to_owned());
    assert_eq!(judged(&samples), [Some(true); 3], "there is nothing to compare with in one");
    samples[1].failed = Some("it broke".to_owned());
    assert_eq!(judged(&samples), [Some(false), Some(false), None]);
}

/// Source 002.5 (5).
#[test]
fn source_002_5_what_a_short_stream_sends_again_is_not_shown_to_be_little() {
    let verdict = |seconds: u32, again: f64| {
        let mut note = note(&[WARREN]);
        note.settings.seconds = seconds;
        let samples = ["a-b", "b-c", "c-a"]
            .map(|link| sample(WARREN, CLEAN, "tcp", link, &[("forward_retransmits", again)]));
        let verdicts = verdicts(&Cells::new(&note, &samples));
        about(&verdicts, "002.5 (5)", "retransmits, up").holds
    };
    assert_eq!([verdict(30, 60.0), verdict(30, 110.0)], [Some(true), Some(false)]);
    assert_eq!([verdict(10, 60.0), verdict(10, 110.0)], [None, Some(false)]);
}

/// Source 002.5 (6).
#[test]
fn source_002_6_nobody_is_a_rival_of_its_own() {
    let note = note(&[WARREN, WARREN_NETWORK, WIREGUARD_GO]);
    let mut samples = run(700.0, 8.0);
    for link in ["a-b", "b-c", "c-a"] {
        samples.push(sample(WARREN_NETWORK, "low", "tcp", link, &[(RATE, 800.0)]));
    }
    let verdicts = verdicts(&Cells::new(&note, &samples));
    let low = about(&verdicts, "002.5 (6)", "low");
    assert_eq!((low.holds, &low.found[..]), (Some(true), "87.5 × (n = 3)"));
    assert!(low.what.contains("÷ wireguard-go, the best of all others"), "{}", low.what);
}

/// Source 002.5 (7).
#[test]
fn source_002_7_six_flows_are_judged_where_no_vpn_has_more_of_three_links() {
    let note = note(&[NO_VPN, WARREN]);
    let verdict = |profile: &str, bare: f64, ours: f64| {
        let sum = |peer, test, link, sum| sample(peer, profile, test, link, &[("sum_mbit_s", sum)]);
        let mut samples = Vec::new();
        for (peer, six) in [(NO_VPN, bare), (WARREN, ours)] {
            samples.extend(["a-b", "b-c", "c-a"].map(|link| sum(peer, "bidir", link, 100.0)));
            samples.push(sum(peer, "parallel", "ring", six));
        }
        let verdicts = verdicts(&Cells::new(&note, &samples));
        about(&verdicts, "002.5 (7)", &format!("{profile}: six flows")).clone()
    };
    let crowded = verdict(CLEAN, 110.0, 105.0);
    assert_eq!(crowded.holds, None);
    let found = "1.05 × (n = 1); without a VPN 1.1 ×: the processors decide";
    assert_eq!(&crowded.found[..], found);
    assert_eq!(verdict(CLEAN, 290.0, 105.0).holds, Some(false));
    assert_eq!(verdict(SLOW_RING, 290.0, 288.0).holds, Some(true));
    assert_eq!(verdict("medium", 120.0, 90.0).holds, Some(false), "no VPN has more");
}

/// Source 002.5 (7).
#[test]
fn source_002_7_six_flows_that_the_processors_decide_are_not_judged() {
    let note = note(&[NO_VPN, WARREN, WIREGUARD_GO]);
    let verdict = |busy: f64, theirs: f64| {
        let mut samples = Vec::new();
        for (peer, six) in [(NO_VPN, 120.0), (WARREN, 90.0), (WIREGUARD_GO, theirs)] {
            for link in ["a-b", "b-c", "c-a"] {
                samples.push(sample(peer, "medium", "bidir", link, &[("sum_mbit_s", 100.0)]));
            }
            let metrics = [("sum_mbit_s", six), ("busy_percent", busy)];
            samples.push(sample(peer, "medium", "parallel", "ring", &metrics));
        }
        let verdicts = verdicts(&Cells::new(&note, &samples));
        about(&verdicts, "002.5 (7)", "medium: six flows").clone()
    };
    let full = verdict(97.0, 40.0);
    assert_eq!(full.holds, None);
    assert_eq!(full.found, "0.9 × (n = 1); the processors were busy for 97 % of it and decide");
    assert_eq!(verdict(97.0, 95.0).holds, Some(false), "who needs less processor had more");
    assert_eq!(verdict(60.0, 40.0).holds, Some(false), "there was time left");
}

#[test]
fn slow_pings_are_judged_of_all_links_together_and_where_chance_leaves_room() {
    let note = note(&[NO_VPN, WARREN]);
    // 400 round trips a link, evenly from 10 ms on: the last in a hundred begin at 10 + 0.99 width
    let verdict = |late: f64, width: f64| {
        let mut samples = Vec::new();
        for (peer, late) in [(NO_VPN, 0.0), (WARREN, late)] {
            for link in ["a-b", "b-c", "c-a"] {
                let mut sample = sample(peer, "high", "ping", link, &[("rtt_p99_ms", 1.0)]);
                let at = |i: u32| (10.0 + late + width * f64::from(i) / 400.0) * 1e3;
                sample.series.insert("rtt_us".to_owned(), (1..=400).map(at).collect());
                samples.push(sample);
            }
        }
        let verdicts = verdicts(&Cells::new(&note, &samples));
        about(&verdicts, "bound", "high, ping: round trip, 99th").clone()
    };
    assert_eq!(verdict(0.9, 30.0).holds, Some(true));
    assert_eq!(verdict(0.9, 30.0).found, "0.9 ms (n = 1200); chance alone makes ± 0.159 ms of it");
    assert_eq!(verdict(0.5, 30.0).found, "0.5 ms (n = 1200)");
    assert_eq!(verdict(1.5, 1.0).holds, Some(false), "chance makes 0.004 ms");
    let wide = verdict(1.2, 40.0);
    assert_eq!(wide.holds, None);
    assert_eq!(wide.found, "1.2 ms (n = 1200); chance alone makes ± 0.212 ms of it");
    assert_eq!(verdict(1.5, 40.0).holds, Some(false), "chance does not make half a millisecond");
}

#[test]
fn what_is_counted_is_judged_over_all_rounds_and_where_chance_leaves_room() {
    let mut note = note(&[WARREN, WARREN_PLAIN]);
    note.settings.rounds = 2;
    let verdict = |ours: [f64; 2], theirs: [f64; 2]| {
        let mut samples = Vec::new();
        for (peer, counts) in [(WARREN, ours), (WARREN_PLAIN, theirs)] {
            for (round, count) in (1..).zip(counts) {
                let counted = [("outside_queue_drops", count)];
                let mut sample = sample(peer, crate::ring::BOTTLENECK, "shared", "a-b", &counted);
                sample.key.round = round;
                samples.push(sample);
            }
        }
        let verdicts = verdicts(&Cells::new(&note, &samples));
        about(&verdicts, "bound", "bottleneck, shared: of the flow outside dropped by the queue")
            .clone()
    };
    let level = verdict([10.0, 32.0], [20.0, 20.0]);
    let found = "1.05 × (0.5 to 1.6, n = 2); chance alone makes ± 0.232 of it";
    assert_eq!((level.holds, &level.found[..]), (Some(true), found));
    let unclear = verdict([20.0, 28.0], [20.0, 20.0]);
    assert_eq!(unclear.holds, None);
    assert_eq!(unclear.found, "1.2 × (1 to 1.4, n = 2); chance alone makes ± 0.257 of it");
    assert_eq!(verdict([300.0, 300.0], [200.0, 200.0]).holds, Some(false), "too much for chance");
    assert_eq!(verdict([1.0, 1.0], [0.0, 0.0]).holds, None, "nothing to compare with");
}

#[test]
fn a_failure_of_ours_holds_nothing_and_one_of_theirs_leaves_nothing_to_compare() {
    let note = note(&[WARREN, WIREGUARD_GO]);
    let ratio = "high, tcp: up, Warren ÷ wireguard-go";
    for (broken, expected) in [(WARREN, Some(false)), (WIREGUARD_GO, None)] {
        let mut samples = run(900.0, 8.0);
        for sample in &mut samples {
            if (&*sample.key.peer, &*sample.key.profile) == (broken, "high") {
                sample.failed = Some("it broke".to_owned());
            }
        }
        let verdicts = verdicts(&Cells::new(&note, &samples));
        let verdict = about(&verdicts, "bound", ratio);
        assert_eq!(verdict.holds, expected);
        let medians = about(&verdicts, "002.5 (3)", "in no median");
        assert_eq!(&medians.found[..], "1 cells with a failure, 0 of them with a median");
        assert!(verdict.found.contains(&format!("{broken} failed 3 of 3")), "{verdict:?}");
    }
}
