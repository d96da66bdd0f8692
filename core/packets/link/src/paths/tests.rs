//! A set of paths by itself: what it asks, believes and chooses.

use proptest::prelude::*;
use wire::frame::{Candidates, Frame, ProbeAnswer, parse};

use super::*;

const PEER: PublicKey = PublicKey([7; 32]);
const MTU: usize = 1_420;

/// Another number each time.
struct Counting(u64);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 += 1;
        for (byte, value) in bytes.iter_mut().zip(self.0.to_le_bytes().into_iter().cycle()) {
            *byte = value;
        }
    }
}

/// Paths, their clock, and which destinations answer after how many milliseconds.
struct Bench {
    paths: Paths,
    random: Counting,
    now: Instant,
    open: Vec<(Destination, u64)>,
    answers: Vec<(Instant, Destination, ProbeAnswer)>,
    asked: Vec<(Instant, Destination)>,
    traffic: bool,
}

fn udp(text: &str) -> Destination {
    Endpoint::new(text.parse().expect("an address")).into()
}

fn relay(relay: u32) -> Destination {
    Destination::Relay(Relayed { relay, peer: PEER })
}

impl Bench {
    fn new(candidates: &[Candidate]) -> Self {
        let mut paths = Paths::new(PEER);
        let now = Instant(1_000_000_000);
        paths.set_candidates(candidates, now);
        paths.set_speaks(true, now);
        let (open, answers, asked) = (Vec::new(), Vec::new(), Vec::new());
        Self { paths, random: Counting(0), now, open, answers, asked, traffic: true }
    }

    /// A peer at these UDP endpoints and at relay 1, which answers after 40 ms.
    fn with_relay(remotes: &[&str]) -> Self {
        let udp = remotes.iter().map(|text| Candidate::Udp(text.parse().expect("an address")));
        let candidates: Vec<Candidate> = udp.chain([Candidate::Relay(1)]).collect();
        let mut bench = Self::new(&candidates);
        bench.open.push((relay(1), 40));
        bench.paths.handle_agreed(&relay(1), bench.now);
        bench
    }

    fn set_open(&mut self, to: &Destination, rtt_ms: Option<u64>) {
        self.open.retain(|(open, _)| open != to);
        self.open.extend(rtt_ms.map(|ms| (*to, ms)));
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 5 {
            self.now += Duration::from_millis(5);
            if self.traffic {
                self.paths.note_data(self.now);
            }
            let now = self.now;
            let due: Vec<_> = self.answers.extract_if(.., |answer| answer.0 <= now).collect();
            for (_, from, answer) in due {
                self.paths.handle_heard(&from, now);
                self.paths.handle_answer(&from, &answer, now);
            }
            self.paths.set_speaks(true, now);
            if self.paths.poll_timeout().is_none_or(|at| at > now) {
                continue;
            }
            if self.paths.handle_timeout(now) {
                while let Some(ask) = self.paths.poll_probe(MTU, &mut self.random, now) {
                    self.asked.push((now, ask.to));
                    if let Some((_, rtt_ms)) = self.open.iter().find(|(to, _)| *to == ask.to) {
                        let answer = ProbeAnswer {
                            nonce: ask.probe.nonce,
                            len: ask.probe.len,
                            observed: None,
                        };
                        let at = now + Duration::from_millis(*rtt_ms);
                        self.answers.push((at, ask.to, answer));
                    }
                }
                self.paths.settle(true, now);
            }
        }
    }

    /// Milliseconds until packets go to `to`.
    fn until(&mut self, to: &Destination) -> u64 {
        for ms in (0..120_000).step_by(5) {
            if self.paths.to() == Some(*to) {
                return ms;
            }
            self.run(5);
        }
        panic!("never: {:?}", self.paths);
    }
}

#[test]
fn a_new_session_is_used_where_it_was_answered_though_that_was_heard_last() {
    let near = udp("10.1.0.2:5000");
    let mut bench = Bench::with_relay(&["10.1.0.2:5000"]);
    bench.set_open(&near, Some(2));
    bench.until(&near);
    // The relay was heard last, and then nothing for long; the peer has moved meanwhile, and its
    // session is over.
    bench.paths.handle_heard(&relay(1), bench.now);
    bench.now += Duration::from_secs(60);
    bench.paths.set_speaks(false, bench.now);
    assert_eq!(bench.paths.to(), Some(near));
    bench.paths.handle_agreed(&relay(1), bench.now);
    assert_eq!(bench.paths.to(), Some(relay(1)), "or the peer never hears that it was answered");
}

#[test]
fn the_best_of_all_is_used_by_the_order_of_rank() {
    let mut bench = Bench::with_relay(&["192.0.2.1:9", "[2001:db8::1]:9", "10.0.0.1:9"]);
    assert_eq!(bench.paths.to(), Some(relay(1)));
    // Direct before a relay, however slow.
    bench.set_open(&udp("192.0.2.1:9"), Some(90));
    assert!(bench.until(&udp("192.0.2.1:9")) <= 500);
    // A much quicker one, at the next round.
    bench.set_open(&udp("[2001:db8::1]:9"), Some(20));
    assert!(bench.until(&udp("[2001:db8::1]:9")) <= 61_000);
    // What is near.
    bench.set_open(&udp("10.0.0.1:9"), Some(25));
    assert!(bench.until(&udp("10.0.0.1:9")) <= 61_000);
    // The status says so.
    bench.run(1_000);
    let status = bench.paths.status(MTU, bench.now).expect("a path");
    assert_eq!((status.to, status.is_alive), (udp("10.0.0.1:9"), true));
    assert!(status.rtt_us.is_some_and(|us| (20_000..=30_000).contains(&us)), "{status:?}");
    assert!(status.since < bench.now);
}

#[test]
fn two_that_are_as_good_do_not_take_turns() {
    let mut bench = Bench::with_relay(&["192.0.2.1:9", "192.0.2.2:9"]);
    bench.set_open(&udp("192.0.2.1:9"), Some(30));
    bench.set_open(&udp("192.0.2.2:9"), Some(34));
    bench.run(3_000);
    let used = bench.paths.to();
    let since = bench.paths.since;
    for ms in [34, 30, 28, 36, 31] {
        bench.set_open(&used.expect("a path"), Some(ms));
        bench.run(70_000);
    }
    assert_eq!((bench.paths.to(), bench.paths.since), (used, since));
}

#[test]
fn a_path_without_answers_is_left_within_two_seconds() {
    let direct = udp("192.0.2.1:9");
    for offset in (0..700).step_by(50) {
        let mut bench = Bench::with_relay(&["192.0.2.1:9"]);
        bench.set_open(&direct, Some(20));
        bench.run(30_000 + offset);
        assert_eq!(bench.paths.to(), Some(direct));
        bench.set_open(&direct, None);
        let ms = bench.until(&relay(1));
        assert!(ms <= 1_500, "{ms} ms");
        bench.run(20_000);
        assert_eq!(bench.paths.to(), Some(relay(1)), "and not gone back to");
        bench.set_open(&direct, Some(20));
        assert!(bench.until(&direct) <= 60_000);
    }
    // The relay is taken also if it does not answer: it may soon.
    let mut bench = Bench::with_relay(&["192.0.2.1:9"]);
    bench.set_open(&direct, Some(20));
    bench.run(30_000);
    bench.open.clear();
    let ms = bench.until(&relay(1));
    assert!(ms <= 2_000, "{ms} ms");
}

/// A way on which datagrams come, but none arrives.
#[test]
fn a_path_that_leads_one_way_only_is_left_too() {
    let direct = udp("192.0.2.1:9");
    let mut bench = Bench::with_relay(&["192.0.2.1:9"]);
    bench.set_open(&direct, Some(20));
    bench.run(30_000);
    bench.set_open(&direct, None);
    let mut ms = 0;
    while bench.paths.to() == Some(direct) {
        bench.run(5);
        ms += 5;
        let now = bench.now;
        bench.paths.handle_heard(&direct, now);
    }
    assert!(ms <= 2_000, "{ms} ms");
}

#[test]
fn nt_06_only_the_answer_to_a_probe_on_its_path_counts_and_once() {
    let (a, b) = (udp("192.0.2.1:9"), udp("192.0.2.2:9"));
    let mut bench = Bench::with_relay(&["192.0.2.1:9", "192.0.2.2:9"]);
    bench.run(100);
    let now = bench.now;
    // What was asked of a is not answered by b, nor what nobody asked.
    bench.paths.list.iter_mut().for_each(|path| path.due = Some(now));
    bench.run(1_200);
    let flight = |paths: &mut Paths, to: &Destination| {
        let place = paths.place_of(to).expect("a path");
        let path = &mut paths.list[place];
        path.handle_asked(now);
        let nonce = 1_000_000 + u64::from(path.id);
        paths.flights.insert(flights::Flight { nonce, path: path.id, sent: now, len: 32 });
        ProbeAnswer { nonce, len: 32, observed: None }
    };
    let answer = flight(&mut bench.paths, &a);
    let unasked = ProbeAnswer { nonce: answer.nonce + 9, ..answer };
    let later = now + Duration::from_millis(50);
    let rtt = |bench: &Bench, to| bench.paths.list[bench.paths.place_of(to).unwrap_or(9)].rtt_us;
    bench.paths.handle_answer(&b, &answer, later);
    bench.paths.handle_answer(&relay(2), &answer, later);
    bench.paths.handle_answer(&a, &unasked, later);
    assert_eq!((rtt(&bench, &a), rtt(&bench, &b)), (None, None));
    bench.paths.handle_answer(&a, &answer, later);
    assert_eq!(rtt(&bench, &a), Some(50_000));
    bench.paths.handle_answer(&a, &answer, later + Duration::from_secs(5));
    assert_eq!(rtt(&bench, &a), Some(50_000), "a replay");
    assert_eq!(rtt(&bench, &b), None);
}

#[test]
fn nt_05_ten_thousand_candidates_cost_a_victim_little() {
    let many = |third: u8, count: usize| -> Vec<SocketAddr> {
        (0..count).map(|i| SocketAddr::from(([198, 51, third, i as u8], 9))).collect()
    };
    let told: Vec<Candidate> = many(100, 200).into_iter().map(Candidate::Udp).collect();
    let mut bench = Bench::new(&told);
    assert_eq!(bench.paths.list.len(), CANDIDATES_MAX);
    // A hostile peer calls again and again, with others each time, and varying ports.
    for third in 0..60 {
        let mut bytes = [0; Candidates::len_of(Candidates::COUNT_MAX)];
        Candidates::write(&many(third, 32), true, &mut bytes);
        let Ok(Frame::Candidates(call)) = parse(&bytes) else { panic!("it is a call") };
        bench.paths.handle_called(&call, bench.now);
        assert!(bench.paths.list.len() <= CANDIDATES_MAX);
        bench.run(1_000);
    }
    let times: Vec<u64> = bench.asked.iter().map(|(at, _)| at.0 / 1_000_000).collect();
    assert!(times.len() > 100);
    let most = budget::PROBES_MAX;
    assert!(times.windows(most + 1).all(|window| window[most] - window[0] >= 1_000));
}

#[test]
fn nt_05_calls_do_not_displace_what_the_map_says_or_what_works() {
    let mut bench = Bench::with_relay(&["192.0.2.1:9", "192.0.2.2:9"]);
    bench.set_open(&udp("192.0.2.1:9"), Some(20));
    bench.run(3_000);
    for third in 0..20_u8 {
        for i in 0..40_u8 {
            let from = Endpoint::new(SocketAddr::from(([203, 0, third, i], 9))).into();
            bench.paths.insert(from, Origin::Called);
        }
    }
    assert!(bench.paths.list.len() <= UNTOLD_MAX + 3);
    for to in [udp("192.0.2.1:9"), udp("192.0.2.2:9"), relay(1)] {
        assert!(bench.paths.place_of(&to).is_some(), "{to:?}");
    }
    // The map takes one back: what works stays.
    bench.paths.set_candidates(&[Candidate::Relay(1)], bench.now);
    assert!(bench.paths.place_of(&udp("192.0.2.1:9")).is_some());
    assert!(bench.paths.place_of(&udp("192.0.2.2:9")).is_none());
    assert_eq!(bench.paths.to(), Some(udp("192.0.2.1:9")));
}

#[test]
fn nt_07_what_is_carried_is_no_way_to_carry() {
    let mut bench = Bench::with_relay(&["192.0.2.1:9"]);
    bench.paths.set_overlay(&["100.64.0.0/10".parse().expect("a prefix")]);
    let inside = udp("100.64.0.9:9");
    assert!(!bench.paths.handle_heard(&inside, bench.now));
    bench.paths.set_candidates(
        &[Candidate::Udp("100.64.0.9:9".parse().expect("an address")), Candidate::Relay(1)],
        bench.now,
    );
    assert!(bench.paths.place_of(&inside).is_none());
    // Also what was there before the overlay was known.
    let mut bench = Bench::with_relay(&["100.64.0.9:9"]);
    bench.set_open(&inside, Some(5));
    bench.run(3_000);
    assert_eq!(bench.paths.to(), Some(inside));
    bench.paths.set_overlay(&["100.64.0.0/10".parse().expect("a prefix")]);
    bench.run(100);
    assert_eq!(bench.paths.to(), Some(relay(1)));
}

#[test]
fn dp_17_a_new_place_must_answer_before_packets_go_there() {
    let (old, new) = (udp("192.0.2.1:9"), udp("192.0.2.200:9"));
    let mut bench = Bench::with_relay(&["192.0.2.1:9"]);
    bench.set_open(&old, Some(20));
    bench.run(5_000);
    assert_eq!(bench.paths.to(), Some(old));
    // One datagram from elsewhere, replayed by nobody, but no answer from there.
    let now = bench.now;
    assert!(!bench.paths.handle_heard(&new, now));
    bench.run(5_000);
    assert_eq!(bench.paths.to(), Some(old));
    // It does move.
    bench.set_open(&old, None);
    bench.set_open(&new, Some(20));
    bench.paths.handle_heard(&new, bench.now);
    let ms = bench.until(&new);
    assert!(ms <= 500, "{ms} ms");
}

#[test]
fn without_traffic_nothing_is_asked() {
    let mut bench = Bench::with_relay(&["192.0.2.1:9", "192.0.2.2:9"]);
    bench.set_open(&udp("192.0.2.1:9"), Some(20));
    bench.run(10_000);
    bench.traffic = false;
    bench.run(150_000);
    bench.asked.clear();
    bench.run(3_600_000);
    assert!(bench.asked.is_empty(), "{:?}", bench.asked);
    bench.traffic = true;
    bench.run(1_000);
    assert!(bench.asked.len() >= 2);
}

proptest! {
    /// Whatever happens: within bounds, and never due without end.
    #[test]
    fn any_course_keeps_its_bounds(
        steps in prop::collection::vec((0..9u8, 0..12u8, 0..3_000u64), 1..60),
    ) {
        let mut bench = Bench::with_relay(&["192.0.2.1:9", "192.0.2.2:9"]);
        for (what, which, ms) in steps {
            let to = match which {
                0 => relay(1),
                1 => relay(2),
                which => Endpoint::new(SocketAddr::from(([192, 0, 2, which], 9))).into(),
            };
            match what {
                0 => bench.set_open(&to, Some(5 + ms % 400)),
                1 => bench.set_open(&to, None),
                2 => { bench.paths.handle_heard(&to, bench.now); }
                3 => bench.traffic = !bench.traffic,
                4 => bench.paths.handle_network_change(bench.now),
                5 => bench.paths.set_candidates(&[Candidate::Relay(u32::from(which))], bench.now),
                6 => bench.paths.handle_agreed(&to, bench.now),
                7 => bench.paths.begin_fan([0; INITIATION_LEN], bench.now),
                _ => bench.paths.set_overlay(&["192.0.2.0/30".parse().expect("a prefix")]),
            }
            while bench.paths.poll_fan(bench.now).is_some() {}
            bench.run(ms);
            prop_assert!(bench.paths.list.len() <= CANDIDATES_MAX);
            prop_assert!(bench.paths.best.is_none_or(|best| best < bench.paths.list.len()));
        }
        let times: Vec<u64> = bench.asked.iter().map(|(at, _)| at.0 / 1_000_000).collect();
        // Sizes are tried on a path that works, beside the ten.
        prop_assert!(times.windows(21).all(|window| window[20] - window[0] >= 1_000));
    }
}

#[test]
fn a_peer_that_came_back_without_paths_is_followed_where_it_was_heard() {
    let mut bench = Bench::with_relay(&[]);
    bench.run(1_000);
    assert_eq!(bench.paths.to(), Some(relay(1)));
    // Its Hello goes by the relay, where it is no more, so it says nothing of paths.
    let direct = udp("192.0.2.9:7");
    bench.open.clear();
    for second in 1..=8 {
        bench.now += Duration::from_secs(1);
        bench.paths.set_speaks(false, bench.now);
        bench.paths.handle_heard(&direct, bench.now);
        let is_followed = bench.paths.to() == Some(direct);
        assert!(is_followed || second <= 4, "after {second} s");
    }
    assert_eq!(bench.paths.to(), Some(direct));
}

#[test]
fn what_fits_through_a_relay_in_use_is_what_was_told_of_it() {
    let mut bench = Bench::with_relay(&[]);
    bench.run(100);
    assert_eq!(bench.paths.to(), Some(relay(1)));
    assert_eq!(bench.paths.room(&[]), usize::MAX, "a stream takes all");
    assert_eq!(bench.paths.room(&[(0, 1_280), (1, 1_347)]), 1_347);
    assert_eq!(bench.paths.room(&[(2, 1_280)]), usize::MAX);
}

#[test]
fn a_relay_to_which_we_are_connected_again_is_asked_at_once() {
    let mut bench = Bench::with_relay(&[]);
    bench.run(500);
    let is_alive =
        |bench: &Bench| bench.paths.status(MTU, bench.now).is_some_and(|status| status.is_alive);
    assert!(is_alive(&bench));
    bench.set_open(&relay(1), None);
    bench.run(3_100);
    assert!(!is_alive(&bench));
    bench.set_open(&relay(1), Some(40));
    bench.paths.handle_relay_up(1);
    let begin = bench.now;
    bench.run(60);
    assert!(is_alive(&bench), "{:?}", bench.asked.last());
    let asked = bench.asked.iter().filter(|(at, _)| *at > begin).count();
    assert_eq!(asked, 1, "once, and then as ever");
}
