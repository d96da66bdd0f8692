//! The limiter's timing table, its keys, its bound (threats DP-02, DP-03, DP-04).

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn limiter() -> Limiter {
    Limiter::new(FORGET_AFTER, &[7; 16])
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Milliseconds to wait before each attempt, and what becomes of it.
const TABLE: [(u64, bool); 11] = [
    (0, true),
    (0, true),
    (0, true),
    (0, true),
    (0, true),
    (0, false),
    (50, true),
    (0, false),
    (100, true),
    (0, true),
    (0, false),
];

#[test]
fn dp_02_the_timing_table_holds_for_v4_and_for_each_64_of_v6() {
    let mut limiter = limiter();
    let mut now = Instant(1_000_000_000);
    for (step, (wait_ms, allowed)) in TABLE.into_iter().enumerate() {
        now += Duration::from_millis(wait_ms);
        let low = step + 1;
        for source in ["172.16.1.1", "172.16.1.2", &format!("2001:db8:1:2::{low:x}")] {
            let result = limiter.handle_handshake(address(source), now);
            assert_eq!(result.is_ok(), allowed, "step {step}, {source}");
        }
        // One that comes for the first time passes at every step.
        let fresh = limiter.handle_handshake(address(&format!("2001:db8:2:{low:x}::1")), now);
        assert_eq!(fresh, Ok(()), "step {step}");
    }
}

#[test]
fn dp_02_neighbours_in_a_64_share_a_bucket_and_others_do_not() {
    let mut limiter = limiter();
    let now = Instant(5);
    for low in 0..5 {
        let source = address(&format!("2001:db8:1:2:{low}:7:8:9"));
        assert_eq!(limiter.handle_handshake(source, now), Ok(()));
    }
    let mut attempt = |text| limiter.handle_handshake(address(text), now);
    assert_eq!(attempt("2001:db8:1:2:ffff::"), Err(Drop::RateLimited));
    assert_eq!(attempt("2001:db8:1:3:ffff::"), Ok(()));
    assert_eq!(attempt("2001:db9:1:2:ffff::"), Ok(()));
    // The bits that both families' keys could share: no family touches the other's bucket.
    for _ in 0..5 {
        assert_eq!(attempt("10.0.0.1"), Ok(()));
    }
    assert_eq!(attempt("10.0.0.1"), Err(Drop::RateLimited));
    assert_eq!(attempt("::ffff:10.0.0.1"), Err(Drop::RateLimited));
    assert_eq!(attempt("0:0:a00:1::"), Ok(()));
    assert_eq!(attempt("10.0.0.2"), Ok(()));
}

#[test]
fn dp_04_one_greedy_source_does_not_starve_another() {
    let mut limiter = limiter();
    let mut now = Instant(0);
    let (mut greedy, mut modest) = (0, 0);
    for _ in 0..10_000 {
        now += Duration::from_millis(1);
        greedy += u32::from(limiter.handle_handshake(address("10.0.0.1"), now).is_ok());
        if now.0.is_multiple_of(100_000_000) {
            modest += u32::from(limiter.handle_handshake(address("10.0.0.2"), now).is_ok());
        }
    }
    assert_eq!(modest, 100);
    assert!((200..=205).contains(&greedy), "{greedy}");
}

#[test]
fn dp_03_a_full_table_refuses_newcomers_and_empties_after_a_second() {
    let mut limiter = limiter();
    let now = Instant(9);
    let source = |i: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(i));
    for i in 0..SOURCES_MAX as u32 {
        assert_eq!(limiter.handle_handshake(source(i), now), Ok(()));
    }
    let newcomer = source(u32::MAX);
    assert_eq!(limiter.handle_handshake(newcomer, now), Err(Drop::LimiterFull));
    assert_eq!(limiter.handle_handshake(source(3), now), Ok(()), "known sources still pass");
    assert_eq!(limiter.buckets.len(), SOURCES_MAX);
    let later = limiter.poll_timeout().expect("a sweep is due");
    assert_eq!(later, now + FORGET_AFTER);
    assert_eq!(limiter.handle_handshake(newcomer, later), Ok(()));
    assert_eq!(limiter.buckets.len(), 1);
    limiter.sweep(later + FORGET_AFTER);
    assert_eq!((limiter.buckets.len(), limiter.poll_timeout()), (0, None));
}

/// What was granted, source by source, and no bucket: slow, and plainly right.
#[derive(Default)]
struct Model(BTreeMap<(bool, u64), Vec<u64>>);

impl Model {
    /// A source that was silent for a second begins anew; otherwise every grant costs 50 ms, which
    /// five grants may be behind.
    fn take(&mut self, source: IpAddr, now_ns: u64) -> bool {
        let key = match source {
            IpAddr::V4(v4) => (true, u64::from(v4.to_bits())),
            IpAddr::V6(v6) => (false, (v6.to_bits() >> 64) as u64),
        };
        let grants = self.0.entry(key).or_default();
        // The time at which all that was granted is paid for.
        let paid = grants.iter().fold(0, |paid: u64, &at| paid.max(at) + 50_000_000);
        let granted = paid.max(now_ns) + 50_000_000 <= now_ns + 250_000_000;
        if granted {
            grants.push(now_ns);
        }
        granted
    }
}

proptest! {
    /// Whatever the mix of sources and waits, the limiter grants what the model does.
    #[test]
    fn dp_04_every_source_has_what_its_own_history_allows(
        steps in prop::collection::vec(
            (0_u128..6, 0_u128..3, prop_oneof![
                3 => Just(0_u64),
                3 => 0_u64..60_000_000,
                2 => 49_999_990_u64..50_000_010,
                1 => 0_u64..2_000_000_000,
            ]),
            1..400,
        ),
    ) {
        let (mut limiter, mut model) = (Limiter::new(FORGET_AFTER, &[7; 16]), Model::default());
        let mut now = Instant(7_000_000_000);
        for (number, low, wait_ns) in steps {
            now += Duration::from_nanos(wait_ns);
            let source = if number < 3 {
                IpAddr::V4(std::net::Ipv4Addr::from_bits(number as u32))
            } else {
                IpAddr::V6(std::net::Ipv6Addr::from_bits(0x2001 << 112 | number << 64 | low))
            };
            let granted = limiter.handle_handshake(source, now).is_ok();
            prop_assert_eq!(granted, model.take(source, now.0), "{} at {}", source, now.0);
            prop_assert!(limiter.buckets.len() <= 6);
        }
    }

    /// Never more than the burst and the rate, over any stretch of time.
    #[test]
    fn dp_04_no_stretch_of_time_holds_more_than_burst_and_rate(
        waits_ns in prop::collection::vec(0_u64..40_000_000, 1..600),
    ) {
        let mut limiter = Limiter::new(FORGET_AFTER, &[7; 16]);
        let (mut now, mut grants) = (Instant(1), Vec::new());
        for wait_ns in waits_ns {
            now += Duration::from_nanos(wait_ns);
            if limiter.handle_handshake(address("192.0.2.1"), now).is_ok() {
                grants.push(now.0);
            }
        }
        for (first, from) in grants.iter().enumerate() {
            for (last, to) in grants.iter().enumerate().skip(first) {
                let most = u64::from(BURST) + (to - from) / COST_NS;
                let count = (last - first) as u64 + 1;
                prop_assert!(count <= most, "{} in {} ns", count, to - from);
            }
        }
    }
}
