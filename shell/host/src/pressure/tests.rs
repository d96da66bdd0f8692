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
    rate: u64,
    /// Bytes that may pass the bucket, and that the link may carry, now.
    tokens: f64,
    credit: f64,
    /// Whether the socket below has room.
    open: bool,
    /// Units in the ring.
    ring: f64,
    dropped: f64,
    carried: u64,
}

fn burst(rate: u64) -> f64 {
    (rate / 2000).max(BURST_LEN_MIN) as f64
}

/// What the socket below takes at once.
const QUANTUM: f64 = 128.0 * 1024.0;
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
            rate: RATE_FREE,
            tokens: 0.0,
            credit: 2.0 * QUANTUM,
            open: true,
            ring: 0.0,
            dropped: 0.0,
            carried: 0,
        }
    }

    fn run(&mut self, time_ns: u64) {
        let end = self.now_ns + time_ns;
        while self.now_ns < end {
            self.now_ns += TURN_NS;
            let turn_s = TURN_NS as f64 / 1e9;
            let unit = self.unit as f64;
            self.tokens = (self.tokens + self.rate as f64 * turn_s).min(burst(self.rate));
            if self.rate == RATE_FREE {
                self.tokens = f64::INFINITY;
            }
            let offered = (self.sender as f64 * turn_s).min(self.tokens);
            self.tokens -= offered;
            self.ring += offered / unit;
            self.dropped += (self.ring - RING).max(0.0);
            self.ring = self.ring.min(RING);
            self.credit = (self.credit + self.link as f64 * turn_s).min(2.0 * QUANTUM);
            if self.credit > QUANTUM {
                self.open = true;
            }
            let taken = if self.open { self.ring.min(self.credit / unit).floor() } else { 0.0 };
            self.open &= self.credit >= unit;
            self.ring -= taken;
            self.credit -= taken * unit;
            let bytes = (taken * unit) as u64;
            self.carried += bytes;
            let emptied = self.open && self.ring < 1.0;
            let told = self.pressure.handle_turn(self.now_ns, taken as u64, bytes, emptied);
            if let Some(rate) = told {
                // The kernel fills the bucket when its rate is changed.
                (self.rate, self.tokens) = (rate, burst(rate));
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
        model.carried = 0;
        model.run(10_000_000_000);
        assert_eq!(model.dropped, 0.0, "{link}");
        let share = model.carried as f64 / (link as f64 * 10.0);
        assert!(share > 0.93, "{link}: only {share} of it is used");
    }
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
    assert!(model.rate > 100_000_000, "{}", model.rate);
}

#[test]
fn who_stays_within_the_link_never_meets_a_bucket() {
    let mut model = Model::new(125_000_000, 100_000_000, 1200);
    model.run(1_000_000_000);
    assert_eq!(model.rate, RATE_FREE);
}

#[test]
fn superpackets_of_tcp_are_left_alone() {
    let mut model = Model::new(400_000_000, 450_000_000, 60_000);
    model.run(1_000_000_000);
    assert_eq!(model.rate, RATE_FREE);
}

#[test]
fn small_packets_of_tcp_are_left_alone_too() {
    // On a slow line TCP sends two packets at a time: no more are due within a millisecond.
    let mut pressure = Pressure::default();
    for ms in 1..2000 {
        // Now and then something else is among them.
        let others = u64::from(ms % 4 == 0);
        assert_eq!(pressure.handle_turn(ms * 1_000_000, others, 3000, false), None, "{ms}");
    }
}

#[test]
fn after_the_flood_the_rate_is_out_of_reach_again() {
    let mut model = Model::new(125_000_000, 400_000_000, 1200);
    model.run(1_000_000_000);
    assert!(model.rate < RATE_FREE);
    model.sender = 10_000_000;
    model.run(1_000_000_000);
    assert_eq!(model.rate, RATE_FREE);
}

#[test]
fn a_burst_after_a_silence_meets_no_bucket() {
    // As many packets as a turn takes are in the ring when the loop wakes, and some more.
    for silence_ns in [4_000_000, 100_000_000, 10_000_000_000, 3_600_000_000_000] {
        let mut pressure = Pressure::default();
        let mut now_ns = 1_000_000_000;
        assert_eq!(pressure.handle_turn(now_ns, 1, 1400, true), None);
        for _ in 0..3 {
            now_ns += silence_ns;
            for (units, emptied) in [(64, false), (64, false), (20, true)] {
                let told = pressure.handle_turn(now_ns, units, units * 1400, emptied);
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
    let rate = model.rate;
    assert!(rate < RATE_FREE);
    // The ring is found empty at the very end of a tick; then nothing is sent for a while.
    let pressure = &mut model.pressure;
    let mut now_ns = model.now_ns;
    for _ in 0..2 {
        now_ns += 6_000_000;
        if let Some(told) = pressure.handle_turn(now_ns, 400, 480_000, true) {
            model.rate = told;
        }
    }
    let before = model.rate;
    now_ns += 400_000_000;
    let told = pressure.handle_turn(now_ns, 64, 64 * 1200, false).unwrap_or(before);
    assert!(told >= before, "{told} after {before}");
}
