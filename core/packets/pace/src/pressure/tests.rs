//! The controller against a model of ring, bucket and link.

use super::*;

/// A link of a certain rate behind a ring, fed through a bucket by a sender that would send
/// without limit.
struct Model {
    pressure: Pressure,
    now_ns: u64,
    /// Bytes a second that the link carries.
    link: u64,
    /// Bytes a second that the sender would send.
    sender: u64,
    unit: u64,
    allowance: Allowance,
    /// Bytes that may pass the bucket, and that the link may carry, now.
    tokens: f64,
    credit: f64,
    /// Whether the socket below has room.
    open: bool,
    /// Whether it is TCP, which has no more than its window in the ring.
    window: Option<f64>,
    /// The peer, if it is slower than the link.
    peer: Option<Peer>,
    /// Units in the ring, and the most there were.
    ring: f64,
    ring_max: f64,
    dropped: f64,
    carried: u64,
}

/// A machine that reads so many bytes a second out of a buffer, and says each 100 ms what share of
/// what came found no room.
#[derive(Default)]
struct Peer {
    rate: f64,
    buffered: f64,
    came: f64,
    lost: f64,
    lost_in_all: f64,
    reported_ns: u64,
}

const PEER_BUFFER: f64 = 5e6;

impl Peer {
    fn take(&mut self, bytes: f64, turn_s: f64, now_ns: u64) -> Option<f64> {
        self.buffered = (self.buffered - self.rate * turn_s).max(0.0) + bytes;
        let lost = (self.buffered - PEER_BUFFER).max(0.0);
        self.buffered -= lost;
        (self.came, self.lost) = (self.came + bytes, self.lost + lost);
        self.lost_in_all += lost;
        if now_ns < self.reported_ns + 100_000_000 {
            return None;
        }
        self.reported_ns = now_ns;
        let share = self.lost / self.came.max(1.0);
        (self.came, self.lost) = (0.0, 0.0);
        Some(share)
    }
}

const RING: f64 = 4096.0;
const TURN_NS: u64 = 200_000;

impl Model {
    fn new(link: u64, sender: u64, unit: u64) -> Self {
        let pressure = Pressure::default();
        Self {
            pressure,
            now_ns: 1,
            link,
            sender,
            unit,
            allowance: FREE,
            tokens: 0.0,
            credit: 2.0 * BELOW_LEN_MAX as f64,
            open: true,
            window: None,
            peer: None,
            ring: 0.0,
            ring_max: 0.0,
            dropped: 0.0,
            carried: 0,
        }
    }

    /// Runs for ten seconds; returns what share of what the link could carry it did, in which
    /// `ring_max` is of these alone.
    fn share_of_ten_seconds(&mut self) -> f64 {
        (self.carried, self.ring_max) = (0, 0.0);
        self.run(10_000_000_000);
        self.carried as f64 / (self.link as f64 * 10.0)
    }

    /// What the peer is believed to have room for once it had none for `share`.
    fn ceiling_after(&mut self, share: f64) -> u64 {
        self.pressure.handle_overrun(self.now_ns, share);
        self.pressure.ceiling.unwrap().rate
    }

    fn run(&mut self, time_ns: u64) {
        let end = self.now_ns + time_ns;
        while self.now_ns < end {
            self.now_ns += TURN_NS;
            let turn_s = TURN_NS as f64 / 1e9;
            let unit = self.unit as f64;
            let Allowance { rate, burst_len, below_len } = self.allowance;
            let quantum = below_len as f64;
            // The kernel looks after it more often than we do.
            self.tokens = self.tokens.min(burst_len as f64) + rate as f64 * turn_s;
            if self.allowance == FREE {
                self.tokens = f64::INFINITY;
            }
            let room = self.window.map_or(f64::INFINITY, |window| window - self.ring * unit);
            let offered = (self.sender as f64 * turn_s).min(self.tokens).min(room.max(0.0));
            self.tokens -= offered;
            self.ring += offered / unit;
            self.dropped += (self.ring - RING).max(0.0);
            self.ring = self.ring.min(RING);
            self.credit = (self.credit + self.link as f64 * turn_s).min(2.0 * quantum);
            if self.credit > quantum {
                self.open = true;
            }
            let taken = if self.open { self.ring.min(self.credit / unit).floor() } else { 0.0 };
            self.open &= self.credit >= unit;
            self.ring -= taken;
            self.credit -= taken * unit;
            let bytes = (taken * unit) as u64;
            self.carried += bytes;
            if let Some(peer) = &mut self.peer {
                let report = peer.take(bytes as f64, turn_s, self.now_ns);
                let told = report.and_then(|s| self.pressure.handle_overrun(self.now_ns, s));
                self.allowance = told.unwrap_or(self.allowance);
            }
            let emptied = self.open && self.ring < 1.0;
            self.ring_max = self.ring_max.max(self.ring);
            let units = if self.window.is_some() { 0 } else { taken as u64 };
            let blocked = !self.open || self.credit < unit;
            let told =
                self.pressure.handle_turn(self.now_ns, Taken { units, bytes, emptied, blocked });
            if let Some(told) = told {
                // The kernel fills the bucket when its rate is changed.
                (self.allowance, self.tokens) = (told, told.burst_len as f64);
            }
        }
    }
}

#[test]
fn a_flood_of_datagrams_is_held_to_what_the_link_carries_without_a_loss() {
    for link in [1_000_000, 12_500_000, 125_000_000] {
        // A socket sends some hundreds of thousands of datagrams a second, whatever the link.
        let mut model = Model::new(link, 400_000_000, 1200);
        model.run(2_000_000_000);
        assert_eq!(model.dropped, 0.0, "{link}");
        let share = model.share_of_ten_seconds();
        assert_eq!(model.dropped, 0.0, "{link}");
        assert!(share > 0.93, "{link}: only {share} of it is used");
    }
}

/// On 5 Mbit/s a flood stood in the ring for six seconds, and all else behind it.
#[test]
fn a_flood_on_a_slow_line_stands_in_the_ring_at_first_only() {
    for link in [300_000, 625_000, 2_500_000] {
        let mut model = Model::new(link, 400_000_000, 1231);
        model.run(6_000_000_000);
        assert_eq!(model.dropped, 0.0, "{link}");
        let share = model.share_of_ten_seconds();
        assert!(share > 0.93, "{link}: only {share} of it is used");
        let wait_s = model.ring_max * model.unit as f64 / link as f64;
        assert!(wait_s < 0.2, "{link}: {wait_s} s in the ring");
        // Nor does it wait below, in the socket.
        let below_s = model.allowance.below_len as f64 / link as f64;
        assert!(below_s < 0.06, "{link}: {below_s} s in the socket");
    }
}

/// What a peer has no room for is told while the ring is let run empty, too, when the bucket lets
/// pass a quarter of what arrives.
#[test]
fn the_ceiling_is_what_arrives_and_not_what_the_bucket_lets_pass() {
    let mut model = Model::new(625_000, 400_000_000, 1231);
    model.run(1_000_000_000);
    assert!(model.allowance.rate < 200_000, "the ring runs empty: {:?}", model.allowance);
    let ceiling = model.ceiling_after(0.02);
    assert!((400_000..700_000).contains(&ceiling), "{ceiling}");
}

#[test]
fn a_link_that_changes_its_rate_is_followed() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    model.link = 30_000_000;
    model.run(1_000_000_000);
    assert_eq!(model.dropped, 0.0);
    model.link = 125_000_000;
    model.run(1_500_000_000);
    assert!(model.allowance.rate > 100_000_000, "{:?}", model.allowance);
}

#[test]
fn who_stays_within_the_link_never_meets_a_bucket() {
    let mut model = Model::new(125_000_000, 100_000_000, 1200);
    model.run(1_000_000_000);
    assert_eq!(model.allowance, FREE);
}

/// A sender of TCP whose window of 4 MB would be in the ring.
fn stream(link: u64, unit: u64) -> Model {
    let mut model = Model::new(link, 2_000_000_000, unit);
    model.window = Some(4e6);
    model
}

#[test]
fn a_stream_hardly_stands_in_the_ring_and_the_link_lacks_nothing() {
    for (link, unit, wait_s_max) in
        [(2_500_000, 2_840, 0.2), (12_500_000, 2_840, 0.12), (50_000_000, 60_000, 0.02)]
    {
        let mut model = stream(link, unit);
        model.run(10_000_000_000);
        let share = model.share_of_ten_seconds();
        assert!(share > 0.98, "{link}: only {share} of it is used");
        // It was the window's: 1.6 s, 320 ms, 80 ms.
        let wait_s = model.ring_max * unit as f64 / link as f64;
        assert!(wait_s < wait_s_max, "{link}: {wait_s} s in the ring");
    }
}

#[test]
fn a_stream_on_a_fast_link_is_left_alone() {
    let mut model = stream(125_000_000, 60_000);
    model.run(1_000_000_000);
    assert_eq!(model.allowance, FREE);
}

/// The rate began at a third of what the link carried where its first ten milliseconds took one
/// unit, and a stream had two thirds of its line for seconds.
#[test]
fn a_stream_on_a_narrow_line_begins_near_what_it_carries() {
    // A unit of 45 kB and one of 60 kB leave in turn, as the line has room: 12.5 MB a second.
    let mut pressure = Pressure::default();
    pressure.handle_turn(1, Taken { emptied: true, ..Taken::default() });
    let (mut now_ns, mut rate) = (1, None);
    for bytes in [45_000, 60_000].into_iter().cycle().take(100) {
        now_ns += bytes * 80;
        rate = pressure.handle_turn(now_ns, Taken { bytes, blocked: true, ..Taken::default() });
        if rate.is_some() {
            break;
        }
    }
    let rate = rate.expect("held back").rate;
    assert!((11_000_000..14_000_000).contains(&rate), "{rate}");
    // What goes on is measured for a tenth of a second at most.
    let mut pressure = Pressure::default();
    pressure.handle_turn(1, Taken { emptied: true, ..Taken::default() });
    let slow = Taken { bytes: 2_840, blocked: true, ..Taken::default() };
    let told = (1..200).find_map(|ms| Some((ms, pressure.handle_turn(ms * 1_000_000, slow)?)));
    assert!(told.is_some_and(|(ms, _)| (100..=102).contains(&ms)), "{told:?}");
}

/// A unit that waits while the burst gets shorter than itself would wait for ever.
#[test]
fn a_manner_has_one_burst_which_every_whole_unit_fits() {
    for (link, unit) in [(2_500_000, 1_420), (125_000_000, 1_420), (12_500_000, 60_000)] {
        let mut model =
            if unit < 60_000 { Model::new(link, 400_000_000, unit) } else { stream(link, unit) };
        let mut bursts = Vec::new();
        for _ in 0..2_000 {
            model.run(2_000_000);
            bursts.push(model.allowance.burst_len);
        }
        bursts.retain(|len| *len != FREE.burst_len);
        bursts.dedup();
        assert_eq!(bursts.len(), 1, "{link} {unit}: {bursts:?}");
    }
    // The longest, and as many headers as the kernel counts with it.
    assert!(STREAMS.burst_len > 65_535 + 14 + 48 * (14 + 60));
}

#[test]
fn what_a_slower_peer_has_no_room_for_makes_the_sender_wait() {
    for rate in [20e6, 60e6, 100e6] {
        let mut model = Model::new(125_000_000, 400_000_000, 1200);
        model.peer = Some(Peer { rate, ..Peer::default() });
        model.run(2_000_000_000);
        let before = model.peer.as_ref().map_or(0.0, |peer| peer.lost_in_all);
        model.carried = 0;
        model.run(10_000_000_000);
        let lost = model.peer.as_ref().map_or(0.0, |peer| peer.lost_in_all) - before;
        let (share, lost) = (model.carried as f64 / rate / 10.0, lost / model.carried as f64);
        assert!(lost < 0.01 && model.dropped == 0.0, "{rate}: {lost} of it is lost");
        assert!(share > 0.85, "{rate}: only {share} of it is used");
    }
}

/// A peer that reads nothing for 150 ms now and then cost a flow half of its rate for seconds.
#[test]
fn what_a_peer_had_no_room_for_in_a_moment_costs_no_seconds() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.peer = Some(Peer { rate: 100e6, ..Peer::default() });
    model.run(10_000_000_000);
    model.carried = 0;
    for _ in 0..4 {
        model.peer.as_mut().unwrap().rate = 0.0;
        model.run(150_000_000);
        model.peer.as_mut().unwrap().rate = 100e6;
        model.run(2_350_000_000);
    }
    let share = model.carried as f64 / 100e6 / 9.4;
    assert!(share > 0.8, "only {share} of it is used");
}

/// The first report of a flood tells of what came before it was held back, at a rate that says
/// nothing: it had 30 Mbit/s in its second second, and 140 in its tenth.
#[test]
fn what_a_flood_overran_at_its_begin_is_not_held_against_the_first_rate() {
    let mut model = Model::new(50_000_000, 400_000_000, 1200);
    while model.allowance == FREE || model.allowance.rate > 2 * RATE_FIRST {
        model.run(TURN_NS);
    }
    let ceiling = model.ceiling_after(0.3);
    assert!(ceiling > 25_000_000, "{ceiling}");
    assert!(model.share_of_ten_seconds() > 0.9);
}

/// A report may come when a loop that shares its processor has just taken little.
#[test]
fn what_was_too_much_is_what_was_sent_lately_and_not_in_the_last_tick() {
    let mut model = Model::new(50_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    model.link = 5_000_000;
    model.run(60_000_000);
    let ceiling = model.ceiling_after(0.2);
    assert!((28_000_000..39_000_000).contains(&ceiling), "{ceiling}");
}

#[test]
fn a_peer_that_complains_no_more_is_soon_forgotten() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    assert!(model.pressure.handle_overrun(model.now_ns, 0.4).is_some());
    for _ in 0..10_000 {
        model.now_ns += 100_000_000;
        assert_eq!(model.pressure.handle_overrun(model.now_ns, 0.0), None);
    }
    assert_eq!(model.pressure.ceiling, None);
    assert_eq!(Pressure::default().handle_overrun(1, 1.0), None, "nobody is held back");
}

/// Where nothing comes at all there is no turn: the look of each second ends the rate.
#[test]
fn a_silence_ends_the_rate() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    let (pressure, mut now_ns) = (&mut model.pressure, model.now_ns + 1_000);
    pressure.handle_turn(now_ns, Taken { emptied: true, ..Taken::default() });
    let told: Vec<_> = (0..3)
        .filter_map(|_| {
            now_ns += 1_000_000_000;
            pressure.handle_look(now_ns)
        })
        .collect();
    assert_eq!(told, [FREE]);
}

#[test]
fn a_stream_that_the_processor_limits_is_left_alone() {
    let mut pressure = Pressure::default();
    for ms in 1..2000 {
        // The socket is full now and then.
        let blocked = ms % 6 == 0;
        let taken = Taken { units: 1, bytes: 500_000, emptied: false, blocked };
        assert_eq!(pressure.handle_turn(ms * 1_000_000, taken), None, "{ms}");
    }
}

#[test]
fn small_packets_of_tcp_are_left_alone_too() {
    // On a slow line TCP sends two packets at a time: no more are due within a millisecond.
    let mut pressure = Pressure::default();
    for ms in 1..2000 {
        // Now and then something else is among them.
        let others = u64::from(ms % 4 == 0);
        let taken = Taken { units: others, bytes: 3000, ..Taken::default() };
        assert_eq!(pressure.handle_turn(ms * 1_000_000, taken), None, "{ms}");
    }
}

#[test]
fn after_the_flood_the_rate_is_out_of_reach_again() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    assert_ne!(model.allowance, FREE);
    model.sender = 10_000_000;
    model.run(1_000_000_000);
    assert_eq!(model.allowance, FREE);
}

#[test]
fn a_burst_after_a_silence_meets_no_bucket() {
    // As many packets as a turn takes are in the ring when the loop wakes, and some more.
    for silence_ns in [4_000_000, 100_000_000, 10_000_000_000, 3_600_000_000_000] {
        let mut pressure = Pressure::default();
        let mut now_ns = 1_000_000_000;
        let taken = |units, emptied| Taken { units, bytes: units * 1400, emptied, blocked: false };
        assert_eq!(pressure.handle_turn(now_ns, taken(1, true)), None);
        for _ in 0..3 {
            now_ns += silence_ns;
            for (units, emptied) in [(64, false), (64, false), (20, true)] {
                let told = pressure.handle_turn(now_ns, taken(units, emptied));
                assert_eq!(told, None, "after {silence_ns} ns");
                now_ns += 100_000;
            }
        }
    }
}

#[test]
fn a_burst_that_ends_a_silence_under_a_rate_does_not_lower_it() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    assert_ne!(model.allowance, FREE);
    // The ring is found empty at the very end of a tick; then nothing is sent for a while.
    let pressure = &mut model.pressure;
    let mut now_ns = model.now_ns;
    for _ in 0..2 {
        now_ns += 6_000_000;
        let taken = Taken { units: 400, bytes: 480_000, emptied: true, blocked: false };
        if let Some(told) = pressure.handle_turn(now_ns, taken) {
            model.allowance = told;
        }
    }
    let before = model.allowance.rate;
    now_ns += 400_000_000;
    let taken = Taken { units: 64, bytes: 64 * 1200, ..Taken::default() };
    let told = pressure.handle_turn(now_ns, taken).map_or(before, |told| told.rate);
    assert!(told >= before, "{told} after {before}");
}
