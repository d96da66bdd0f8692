//! Estimates of what a path has left, as two nodes make them: streams go sealed in their session
//! over a line whose truth is known, arrivals are told inside it.

use std::net::SocketAddr;

use link::{Destination, Endpoint, Inbox, Outbox};
use node::{AllowedIp, Clock, Node, PeerChange, Prefix};
use noise::{Identity, Instant, PrivateKey, PublicKey, Tai64n};
use quality::{Arrival, Estimator, Limits, Outcome, Probe, StreamPlan};
use sim::impair::{Impairment, Pipe, Verdict};
use sim::rng::Rng;

const RUNS: u64 = 5;
/// Bytes of IP and UDP around a datagram.
const OUTER_LEN: usize = 28;
/// Bytes of a packet of others.
const CROSS_LEN: usize = 1200;
/// The other end's clock is ahead by so much.
const AHEAD_NS: u64 = 5_000_000_000_000;

/// Memory for datagrams.
#[derive(Default)]
struct Tray {
    slot: Vec<u8>,
    sent: Vec<Vec<u8>>,
}

impl Outbox for Tray {
    fn reserve(&mut self, _: &Destination, len: usize) -> Option<&mut [u8]> {
        self.slot = vec![0; len];
        Some(&mut self.slot)
    }

    fn commit(&mut self) {
        self.sent.push(std::mem::take(&mut self.slot));
    }
}

/// One of the two machines.
struct End {
    node: Node,
    key: PublicKey,
    address: SocketAddr,
    random: Rng,
    out: Tray,
    ahead_ns: u64,
}

impl End {
    fn new(number: u8, ahead_ns: u64, seed: u64) -> Self {
        let mut random = Rng::new(seed << 8 | u64::from(number));
        let key = PrivateKey::generate(&mut random);
        let public = key.public();
        let mut node = Node::new();
        node.set_mtu(1420);
        node.set_frames(true);
        node.set_identity(Some(Identity::new(key)), &mut random);
        node.set_up(true, &mut random);
        let address = SocketAddr::from(([192, 0, 2, number], 9));
        Self { node, key: public, address, random, out: Tray::default(), ahead_ns }
    }

    fn knows(&mut self, other: &Self, prefix: &str) {
        let prefix: Prefix = prefix.parse().expect("a prefix");
        let change = PeerChange {
            endpoint: Some(other.address),
            allowed_ips: vec![AllowedIp::give(prefix)],
            ..PeerChange::new(other.key)
        };
        self.node.change_peer(&change, &mut self.random).expect("there is room");
    }

    fn clock(&self, now: Instant) -> Clock {
        let now = Instant(now.0 + self.ahead_ns);
        Clock { now, wall: Tai64n::from_unix(1_800_000_000 + now.0 / 1_000_000_000, 0) }
    }

    fn act(&mut self, now: Instant) {
        let clock = self.clock(now);
        self.node.handle_handshakes(usize::MAX, clock, &mut self.random, &mut self.out);
        self.node.handle_timeout(clock.now);
        self.node.handle_actions(clock, &mut self.random, &mut self.out);
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) {
        let mut memory = datagram.to_vec();
        let range = 0..memory.len();
        let clock = self.clock(now);
        let mut inbox = Inbox::default();
        let Self { node, random, out, .. } = self;
        let from = Endpoint::new(from).into();
        node.handle_datagram(from, &mut memory, range, clock, random, &mut inbox, out);
        self.act(now);
    }
}

/// Both, and the line from the first to the second.
struct World {
    ends: [End; 2],
    pipe: Pipe,
    cross_gap_ns: f64,
    next_cross_ns: f64,
    rng: Rng,
    now: Instant,
}

impl World {
    fn new(rate_bps: u64, share: f64, seed: u64) -> Self {
        let mut ends = [End::new(1, 0, seed), End::new(2, AHEAD_NS, seed)];
        let [a, b] = &mut ends;
        a.knows(b, "10.0.0.2/32");
        b.knows(a, "10.0.0.1/32");
        let line =
            Impairment { rate_bps, delay_us: 10_000, limit_packets: 1000, ..Impairment::NONE };
        let pipe = Pipe::new(line, seed).expect("a line that can be");
        let cross_gap_ns = (CROSS_LEN * 8) as f64 * 1e9 / (rate_bps as f64 * share);
        let now = Instant(1_000_000_000);
        let next_cross_ns = now.0 as f64 + cross_gap_ns / 2.0;
        Self { ends, pipe, cross_gap_ns, next_cross_ns, rng: Rng::new(seed), now }
    }

    /// Carries what both have to say beside streams.
    fn settle(&mut self) {
        loop {
            let [a, b] = &mut self.ends;
            a.act(self.now);
            b.act(self.now);
            let [to_b, to_a] = [&mut *a, &mut *b].map(|end| std::mem::take(&mut end.out.sent));
            if to_a.is_empty() && to_b.is_empty() {
                return;
            }
            to_b.iter().for_each(|datagram| b.receive(a.address, datagram, self.now));
            to_a.iter().for_each(|datagram| a.receive(b.address, datagram, self.now));
        }
    }

    /// When a packet of ours arrives, if it does; others send beside it.
    fn pass(&mut self, at_ns: u64, len: usize) -> Option<u64> {
        while self.next_cross_ns <= at_ns as f64 {
            self.pipe.offer(self.next_cross_ns as u64, CROSS_LEN);
            self.next_cross_ns += self.cross_gap_ns;
        }
        match self.pipe.offer(at_ns, len) {
            Verdict::Deliver { at_ns, .. } => Some(at_ns),
            Verdict::Lost | Verdict::QueueDropped => None,
        }
    }

    fn stream(&mut self, plan: &StreamPlan) -> (Vec<Probe>, Vec<Arrival>) {
        let mut tray = Tray::default();
        let packets = plan.packets as u16;
        let to = self.ends[1].key;
        let clock = self.ends[0].clock(self.now);
        let sealed = self.ends[0].node.send_stream(&to, packets, plan.len, clock.now, &mut tray);
        sealed.expect("there is a session");
        self.settle();
        let (mut sent, mut coming) = (Vec::new(), Vec::new());
        let begin_ns = self.now.0;
        let mut last_ns = begin_ns;
        for (sequence, datagram) in (0..plan.packets).zip(tray.sent) {
            assert_eq!(datagram.len() + OUTER_LEN, plan.len);
            let bulk_at = u64::from(sequence / plan.bulk * plan.bulk);
            let late_ns = self.rng.below(3_000);
            let behind = bulk_at.saturating_sub(u64::from(plan.lead));
            let due_ns = begin_ns + plan.gap.as_nanos() as u64 * behind + late_ns;
            // What leaves at once has one time.
            if sequence % plan.bulk == 0 {
                last_ns = last_ns.max(due_ns) + 100;
            }
            sent.push(Probe { sequence, sent_ns: last_ns });
            if let Some(at_ns) = self.pass(last_ns, plan.len) {
                coming.push((at_ns, datagram));
            }
        }
        let from = self.ends[0].address;
        for (at_ns, datagram) in &coming {
            self.ends[1].receive(from, datagram, Instant(*at_ns));
        }
        let last_ns = coming.last().map_or(last_ns, |(at_ns, _)| last_ns.max(*at_ns));
        self.now = Instant(last_ns + 10_000_000);
        let clock = self.ends[0].clock(self.now);
        let End { node, out, .. } = &mut self.ends[0];
        node.ask_arrivals(clock.now, out).expect("there is a session");
        self.settle();
        let told = self.ends[0].node.arrivals().expect("it was told");
        let arrival = |&(sequence, received_ns): &(u16, u64)| Arrival {
            sequence: sequence.into(),
            received_ns,
        };
        (sent, told.iter().map(arrival).collect())
    }

    fn estimate(&mut self) -> (Outcome, u64) {
        // Whoever has no session yet asks for one.
        let to = self.ends[1].key;
        let clock = self.ends[0].clock(self.now);
        let End { node, out, .. } = &mut self.ends[0];
        assert!(node.send_stream(&to, 100, 300, clock.now, out).is_err(), "no session yet");
        self.settle();
        let mut estimator = Estimator::new(Limits::default(), self.now);
        loop {
            if let Some(plan) = estimator.poll_stream(self.now) {
                let (sent, arrivals) = self.stream(&plan);
                estimator.handle_stream(plan.number, &sent, &arrivals, self.now);
            }
            if let Some(outcome) = estimator.outcome() {
                return (outcome, estimator.cost_bytes());
            }
            let due = estimator.poll_timeout().expect("something is due until the end");
            self.now = self.now.max(due);
            self.settle();
        }
    }
}

#[test]
fn source_001_11_two_nodes_find_what_their_line_has_left() {
    let mut ranges = 0;
    for rate_bps in [10_000_000, 100_000_000] {
        for share in [0.0, 0.4] {
            let truth = rate_bps as f64 * (1.0 - share);
            for run in 0..RUNS {
                // Another one each time, or keys would be used twice.
                let seed = rate_bps + (share * 100.0) as u64 + run;
                let mut world = World::new(rate_bps, share, seed);
                let (outcome, cost_bytes) = world.estimate();
                let Outcome::Range { low_bps, high_bps } = outcome else {
                    assert_eq!(outcome, Outcome::NotConverged, "{rate_bps} {share} {seed}");
                    continue;
                };
                ranges += 1;
                let what = format!("{low_bps} to {high_bps} of {truth}, seed {seed}");
                assert!(low_bps <= truth * 1.005 && truth * 0.995 <= high_bps, "{what}");
                assert!(cost_bytes as f64 <= truth * 10.0 / 8.0 * 0.15, "{what}: {cost_bytes}");
                // Streams are no weather: nobody repairs for what they lose.
                let weather = world.ends[1].node.weather(&world.ends[0].key);
                assert!(weather.is_none_or(|weather| weather.loss_in == 0.0), "{what}");
            }
        }
    }
    assert!(ranges * 10 >= 4 * RUNS * 8, "{ranges} ranges of {}", 4 * RUNS);
}
