//! The two clocks of the protocol, both given by the caller.
//!
//! `Instant` is monotonic and drives every timer; it should keep counting while the machine sleeps
//! (Linux `CLOCK_BOOTTIME`). `Tai64n` is wall time and serves one purpose: an initiation carries it
//! so that a responder can refuse replays.

use core::time::Duration;

/// Nanoseconds since an arbitrary start, normally boot. Never goes backwards.
///
/// Arithmetic saturates at both ends, so that no input can make it panic or wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than any instant a clock reports.
    pub const MAX: Self = Self(u64::MAX);

    /// Time from `earlier` to `self`; zero if `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `true` once `age` has passed since `self`, that is if `now >= self + age`.
    #[must_use]
    pub const fn is_older_than(self, age: Duration, now: Self) -> bool {
        now.0 >= self.after(age).0
    }

    /// `self + duration`, saturating, usable in constants.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(duration)))
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.after(duration)
    }
}

impl core::ops::AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = self.after(duration);
    }
}

impl core::ops::Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(duration)))
    }
}

impl core::ops::Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A duration in nanoseconds, saturating at 584 years.
const fn nanoseconds(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// A TAI64N label: 8 bytes of seconds since 1970 TAI plus 2^62, 4 bytes of nanoseconds, big endian.
///
/// Ordering of the bytes is ordering in time. (TAI64N: cr.yp.to/libtai/tai64.html; its use here:
/// WireGuard paper, section 5.1.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tai64n(pub [u8; 12]);

/// The label of 1970-01-01 00:00:00 TAI.
const TAI_EPOCH: u64 = 1 << 62;
/// Offset of TAI from Unix time in 1970, as every WireGuard uses it. Leap seconds are ignored.
const TAI_MINUS_UNIX_S: u64 = 10;
/// Low bits of the nanoseconds that do not leave this machine: 2^24 ns is the largest power of two
/// that still lets 50 initiations a second differ.
const WHITENED_BITS: u32 = 24;
const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

impl Tai64n {
    /// Earlier than every label sent by anyone.
    pub const ZERO: Self = Self([0; 12]);
    /// Length on the wire in bytes.
    pub const LEN: usize = 12;

    /// From Unix time. `nanos` of a second or more are cut to 999,999,999.
    #[must_use]
    pub fn from_unix(secs: u64, nanos: u32) -> Self {
        let nanos = nanos.min(NANOSECONDS_PER_SECOND - 1);
        Self::from_parts(TAI_EPOCH.wrapping_add(TAI_MINUS_UNIX_S).wrapping_add(secs), nanos)
    }

    /// The time since 1970 of Unix clocks; zero for labels of before.
    #[must_use]
    pub fn since_unix_epoch(self) -> Duration {
        let secs = self.seconds().saturating_sub(TAI_EPOCH + TAI_MINUS_UNIX_S);
        Duration::new(secs, self.nanoseconds().min(NANOSECONDS_PER_SECOND - 1))
    }

    /// The same time with the low 24 bits of its nanoseconds cleared, so that it tells a peer
    /// little about this machine's clock.
    #[must_use]
    pub fn whitened(self) -> Self {
        Self::from_parts(self.seconds(), self.nanoseconds() >> WHITENED_BITS << WHITENED_BITS)
    }

    /// The next whitened label after `self`: at most 2^24 ns later, or the start of the next
    /// second.
    #[must_use]
    pub fn next_whitened(self) -> Self {
        let nanos = (u64::from(self.nanoseconds() >> WHITENED_BITS) + 1) << WHITENED_BITS;
        match u32::try_from(nanos) {
            Ok(nanos) if nanos < NANOSECONDS_PER_SECOND => Self::from_parts(self.seconds(), nanos),
            _ => Self::from_parts(self.seconds().saturating_add(1), 0),
        }
    }

    /// What to send at `wall` after having sent `self` before: whitened and strictly greater, even
    /// if the wall clock has gone backwards (threat LC-05).
    #[must_use]
    pub fn successor(self, wall: Self) -> Self {
        wall.whitened().max(self.next_whitened())
    }

    /// The low 24 bits of the nanoseconds: zero in a whitened label, or a word that stands there in
    /// place of time.
    #[must_use]
    pub fn word(self) -> u32 {
        self.nanoseconds() & ((1 << WHITENED_BITS) - 1)
    }

    /// A whitened label with `word` (24 bits) in place of its low bits. Order among labels with
    /// any words is that of the labels without them, unless those are equal.
    #[must_use]
    pub fn with_word(self, word: u32) -> Self {
        let word = word & ((1 << WHITENED_BITS) - 1);
        Self::from_parts(self.seconds(), self.whitened().nanoseconds() | word)
    }

    fn from_parts(seconds: u64, nanos: u32) -> Self {
        let mut label = [0; 12];
        label[..8].copy_from_slice(&seconds.to_be_bytes());
        label[8..].copy_from_slice(&nanos.to_be_bytes());
        Self(label)
    }

    fn seconds(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(bytes)
    }

    fn nanoseconds(self) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[8..]);
        u32::from_be_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(Instant(5) - Duration::from_nanos(9), Instant::ZERO);
        assert_eq!(Instant(5) - Instant(9), Duration::ZERO);
        assert_eq!(Instant(5) + Duration::MAX, Instant::MAX);
        assert!(Instant(5).is_older_than(Duration::from_nanos(4), Instant(9)));
        assert!(!Instant(5).is_older_than(Duration::from_nanos(5), Instant(9)));
    }

    #[test]
    fn unix_time_becomes_the_label_other_implementations_write() {
        // 2^62 + 10 + 1_600_000_000, worked out by hand.
        let label = Tai64n::from_unix(1_600_000_000, 0x1234_5678);
        assert_eq!(label.0, [0x40, 0, 0, 0, 0x5f, 0x5e, 0x10, 0x0a, 0x12, 0x34, 0x56, 0x78],);
        assert_eq!(label.whitened().0[8..], [0x12, 0, 0, 0]);
        assert_eq!(label.since_unix_epoch(), Duration::new(1_600_000_000, 0x1234_5678));
        assert_eq!(Tai64n::ZERO.since_unix_epoch(), Duration::ZERO);
        assert!(Tai64n([0xff; 12]).since_unix_epoch() > Duration::from_secs(1 << 62));
    }

    #[test]
    fn fifty_labels_a_second_differ_after_whitening() {
        let labels: std::collections::BTreeSet<_> =
            (0..50).map(|i| Tai64n::from_unix(7, i * 20_000_000).whitened()).collect();
        assert_eq!(labels.len(), 50);
    }

    #[test]
    fn a_word_rides_in_the_low_bits_and_the_next_label_is_greater() {
        let wall = Tai64n::from_unix(1000, 5);
        let mut sent = Tai64n::ZERO;
        for word in [0x57_6e01, 0xff_ffff, 0, 1, 0xff_ffff] {
            let next = sent.successor(wall).with_word(word);
            assert!(next > sent && next.word() == word);
            sent = next;
        }
        assert_eq!(wall.whitened().word(), 0);
    }

    #[test]
    fn successor_is_greater_whatever_the_wall_clock_does() {
        let sent = Tai64n::from_unix(1000, 999_999_999).whitened();
        for wall in [0, 999, 1000, 1001, u64::MAX / 4] {
            let next = sent.successor(Tai64n::from_unix(wall, 500));
            assert!(next > sent, "wall {wall}");
            assert_eq!(next, next.whitened());
        }
        assert_eq!(sent.next_whitened(), Tai64n::from_unix(1001, 0));
        let far = Tai64n([0xff; 12]);
        assert_eq!(far.next_whitened().seconds(), u64::MAX);
    }
}
