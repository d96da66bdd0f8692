//! Keys against clocks, and what a link is told of both.

use super::*;
use noise::{PeerId, PrivateKey, Random};

const HOUR: Duration = Duration::from_secs(3600);

struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

fn material() -> KeyMaterial {
    let bytes = (0..10).flat_map(|block| [block; KeyMaterial::BLOCK_LEN]).collect();
    KeyMaterial::new(bytes).expect("ten blocks")
}

fn daily(overlap_s: u64) -> Schedule {
    Schedule::new(material(), 24 * HOUR, Duration::from_secs(overlap_s)).expect("short enough")
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn peer() -> Peer {
    let key = PrivateKey::generate(&mut Counting(3)).public();
    Peer::new(PeerId(1), key, &mut Counting(9))
}

/// Source 004, "Key management": block = (epoch / 86400) mod blocks.
#[test]
fn source_004_13_the_block_is_the_period_since_1970_modulo_the_blocks() {
    let schedule = daily(60);
    for (wall, block) in [(0, 0), (86_399, 0), (86_400, 1), (864_000, 0), (1_800_000_000, 3)] {
        assert_eq!(1_800_000_000_u64 / 86_400 % 10, 3);
        assert_eq!(schedule.key(s(wall)), material().key(block), "at {wall} s");
        assert_eq!(schedule.number(s(wall)) % 10, block);
    }
}

/// Whatever two clocks show, no further apart than the overlap: the key of one holds at the other.
#[test]
fn source_004_13_clocks_an_overlap_apart_never_disagree_and_others_do_at_a_change() {
    for overlap in [1, 60, 3600, 43_200] {
        let schedule = daily(overlap);
        let holds = |at: Duration, key: &PresharedKey| {
            let others = schedule.others(at);
            schedule.key(at) == *key || others.iter().flatten().any(|other| other == key)
        };
        for wall in (0..3 * 86_400).step_by(997).chain([86_399, 86_400, 86_401]) {
            let wall = 10 * 86_400 + wall;
            for apart in [0, 1, overlap / 2, overlap] {
                assert!(holds(s(wall), &schedule.key(s(wall + apart))), "{wall} + {apart}");
                assert!(holds(s(wall), &schedule.key(s(wall - apart))), "{wall} - {apart}");
            }
        }
        let change = 20 * 86_400;
        assert!(!holds(s(change - overlap - 1), &schedule.key(s(change))));
        assert!(!holds(s(change + overlap), &schedule.key(s(change - 1))), "an old key ends");
    }
}

#[test]
fn no_more_than_half_a_period_may_overlap() {
    for (period, overlap, fits) in [(10, 5, true), (10, 6, false), (0, 0, false), (1, 0, true)] {
        let schedule = Schedule::new(material(), s(period), s(overlap));
        assert_eq!(schedule.is_ok(), fits, "{period} {overlap}");
    }
}

#[test]
fn a_link_wakes_when_a_key_changes_and_when_the_one_before_ends() {
    let keys = Preshared::Scheduled(Arc::new(daily(60)));
    let mut keys = Keys::new(keys, None);
    let mut peer = peer();
    let wall = |seconds: u64| Tai64n::from_unix(864_000 + seconds, 0);
    let after = |seconds: u64| Instant::ZERO + s(seconds);
    keys.refresh(&mut peer, after(0), wall(0));
    assert_eq!(*peer.preshared_key(), material().key(0));
    assert_eq!(keys.due(), after(60), "yesterday's ends");
    keys.refresh(&mut peer, after(60), wall(60));
    assert_eq!(keys.due(), after(86_400), "tomorrow's begins");
    keys.refresh(&mut peer, after(86_400), wall(86_400));
    assert_eq!(*peer.preshared_key(), material().key(1));
    // A clock that was set shows in the next look, whenever that is.
    keys.refresh(&mut peer, after(86_401), wall(4 * 86_400));
    assert_eq!(*peer.preshared_key(), material().key(4));
    assert!(!keys.is_settled());
}

#[test]
fn source_004_14_a_key_changed_by_hand_is_used_after_one_overlap_and_alone_after_two() {
    let [old, new] = [7, 8].map(|n| PresharedKey::from_bytes([n; 32]));
    let mut peer = peer();
    peer.set_preshared_key(old.clone());
    let mut keys = Keys::new(Preshared::Key(new.clone(), s(60)), Some(old.clone()));
    let at = |seconds: u64| Instant::ZERO + s(1000 + seconds);
    for (seconds, used, due) in [(0, &old, 60), (59, &old, 60), (60, &new, 120), (119, &new, 120)] {
        keys.refresh(&mut peer, at(seconds), Tai64n::ZERO);
        assert_eq!(peer.preshared_key(), used, "{seconds} s");
        assert!(keys.due() == at(due) && !keys.is_settled(), "{seconds} s");
    }
    keys.refresh(&mut peer, at(120), Tai64n::ZERO);
    assert!(keys.is_settled() && *peer.preshared_key() == new);
    // The same key is no change, and without an overlap there is nothing to wait for.
    assert!(Keys::new(Preshared::Key(new.clone(), s(60)), Some(new.clone())).is_settled());
    assert!(Keys::new(Preshared::Key(new, s(0)), Some(old)).is_settled());
}

#[test]
fn clocks_that_are_apart_are_told_with_their_distance() {
    let mut keys = Keys::new(Preshared::Scheduled(Arc::new(daily(60))), None);
    let wall = |seconds: u64| Tai64n::from_unix(864_000 + seconds, 0);
    let status = |keys: &Keys| keys.status(s(864_000 + 100)).expect("a schedule");
    let told = status(&keys);
    assert_eq!((told.block, told.blocks, told.next), (0, 10, s(86_300)));
    assert!(told.ahead_ms.is_none() && !told.are_clocks_apart());
    for (made, ahead_ms, apart) in
        [(100, 0, false), (160, 60_000, false), (161, 61_000, true), (30, -70_000, true)]
    {
        keys.note_initiation(wall(made), (Instant::ZERO, wall(100)));
        let told = status(&keys);
        assert_eq!((told.ahead_ms, told.are_clocks_apart()), (Some(ahead_ms), apart));
    }
    keys.note_response(&Err(Drop::BadHandshake));
    assert!(status(&keys).is_refused);
    keys.note_response(&Err(Drop::UnexpectedResponse));
    assert!(status(&keys).is_refused, "that was another one");
    keys.note_response(&Ok(()));
    assert!(!status(&keys).is_refused);
}

#[test]
fn a_response_that_led_nowhere_is_followed_by_one_with_another_key_that_holds() {
    let [old, new] = [7, 8].map(|n| PresharedKey::from_bytes([n; 32]));
    let mut peer = peer();
    let mut keys = Keys::new(Preshared::Key(new.clone(), s(60)), Some(old.clone()));
    for (seconds, used) in [(0, &old), (5, &new), (10, &old), (15, &new)] {
        let now = Instant::ZERO + s(seconds);
        keys.refresh(&mut peer, now, Tai64n::ZERO);
        assert_eq!(peer.preshared_key(), used, "{seconds} s");
        keys.note_initiation(Tai64n::ZERO, (now, Tai64n::ZERO));
    }
}
