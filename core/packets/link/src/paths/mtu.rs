//! The size that fits through a path: asked with probes of it, and doubted when they vanish.
//!
//! Datagrams may be fragmented on their way, so at first all sizes are believed to pass; a path
//! that swallows large ones shows it within a second (RFC 8899 calls that black hole detection),
//! and is then searched upwards from what passes nearly everywhere. Only paths that answer small
//! probes are asked, so that silence means size.
//!
//! Up to [`USUAL`] a size is believed until it fails; above it, as on links with jumbo frames, only
//! what passed is used. The shell sends datagrams above
//! that size whole or not at all, so that such a probe shows what the links carry.

use std::time::Duration;

use noise::Instant;

use crate::outbox::Destination;

/// Plaintexts that are tried, in bytes, below what the interface has: what is left of 576, 1280,
/// and usual links behind IPv6, UDP and our own headers.
const LADDER: [usize; 8] = [496, 1_200, 1_280, 1_360, USUAL, 2_920, 3_820, 8_820];
/// What is used from the first suspicion on.
const SAFE: usize = 1;
/// What every WireGuard sends, and the rung that it is.
pub(crate) const USUAL: usize = 1_420;
const USUAL_RUNG: usize = 4;
/// So many probes of one size without an answer, and it does not pass: where half of all are lost
/// anyway, that is mistaken once in 256 times, and mended at once by the search upwards.
const TRIES_MAX: u32 = 8;
/// Time between two of them, at least; twice the round trip where that is longer.
const AGAIN: Duration = Duration::from_millis(200);
/// What passed is asked again after so long.
pub(crate) const CHECK: Duration = Duration::from_secs(5);
/// What did not pass is tried again after so long (RFC 8899, PMTU_RAISE_TIMER).
pub(crate) const RAISE: Duration = Duration::from_secs(600);

/// The search on one path.
#[derive(Debug)]
pub(crate) struct Mtu {
    /// Bytes of the largest plaintext; `None` for all up to [`USUAL`].
    limit: Option<usize>,
    /// The rung that is being tried; beyond the ladder is what the interface has.
    rung: usize,
    tries: u32,
    /// The size that is being asked.
    asked: Option<usize>,
    /// When a rung is tried next.
    next: Instant,
    /// Through a stream everything fits.
    is_stream: bool,
}

impl Mtu {
    pub(crate) fn new(to: &Destination) -> Self {
        Self {
            limit: None,
            rung: LADDER.len(),
            tries: 0,
            asked: None,
            next: Instant::ZERO,
            is_stream: matches!(to, Destination::Relay(_)),
        }
    }

    /// Bytes of the largest plaintext that may be sent where the interface has `mtu`.
    pub(crate) fn room(&self, mtu: usize) -> usize {
        self.limit.unwrap_or(USUAL).min(mtu)
    }

    /// The size of the probe that is due on a path that works, at an interface with `mtu`.
    pub(crate) fn poll_probe(&mut self, mtu: usize, rtt: Duration, now: Instant) -> Option<usize> {
        if self.is_stream || now < self.next {
            return None;
        }
        if self.tries >= TRIES_MAX {
            self.handle_silence(now);
        }
        if now < self.next {
            return None;
        }
        if self.rung > USUAL_RUNG && LADDER.get(self.rung).is_some_and(|&size| size >= mtu) {
            self.rung = LADDER.len();
        }
        self.tries += 1;
        self.asked = Some(self.size(mtu));
        self.next = now + AGAIN.max(rtt * 2);
        self.asked
    }

    /// When [`Mtu::poll_probe`] has one.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_stream).then_some(self.next)
    }

    /// A probe with `len` bytes was answered.
    pub(crate) fn handle_passed(&mut self, len: usize, now: Instant) {
        if self.asked.is_none_or(|asked| len < asked) {
            return;
        }
        self.tries = 0;
        self.asked = None;
        if self.rung >= LADDER.len() {
            self.limit = Some(len).filter(|&len| len > USUAL);
            self.next = now + CHECK;
        } else {
            self.limit = Some(len);
            self.rung += 1;
            self.next = now;
        }
    }

    /// What was asked did not pass.
    fn handle_silence(&mut self, now: Instant) {
        let asked = self.asked.take().unwrap_or(0);
        self.tries = 0;
        let is_used = |limit: Option<usize>| limit.is_none_or(|limit| limit >= asked);
        if asked > USUAL && self.rung >= LADDER.len() && is_used(self.limit) {
            // What is usual is believed again, but asked first.
            self.limit = None;
            self.rung = USUAL_RUNG;
            self.next = now;
            return;
        }
        match self.limit {
            // The first suspicion: less, and then upwards.
            None => {
                self.limit = Some(LADDER[SAFE]);
                self.rung = SAFE;
                self.next = now;
            }
            Some(limit) if self.rung <= SAFE && limit > LADDER[0] => {
                self.limit = Some(LADDER[0]);
                self.rung = 0;
                self.next = now;
            }
            // What passed before this one is it.
            Some(_) => {
                self.rung = LADDER.len();
                self.next = now + RAISE;
            }
        }
    }

    fn size(&self, mtu: usize) -> usize {
        LADDER.get(self.rung).map_or(mtu, |&size| size.min(mtu))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::outbox::Endpoint;

    fn to() -> Destination {
        Endpoint::new(SocketAddr::from(([192, 0, 2, 1], 9))).into()
    }

    /// Runs the search over a path with room for `room`; returns when it came to rest, and sizes
    /// asked.
    fn search(mtu: &mut Mtu, room: usize, from: Instant) -> (u64, Vec<usize>) {
        let (mut now, mut asked) = (from, Vec::new());
        while now.since(from) < Duration::from_secs(20) {
            if let Some(len) = mtu.poll_probe(1_420, Duration::from_millis(20), now) {
                asked.push(len);
                if len <= room {
                    mtu.handle_passed(len, now + Duration::from_millis(20));
                }
            }
            if mtu.poll_timeout().is_some_and(|at| at > now + Duration::from_secs(4)) {
                return ((now.since(from)).as_millis() as u64, asked);
            }
            now += Duration::from_millis(10);
        }
        panic!("no rest: {mtu:?}");
    }

    #[test]
    fn nt_08_lc_10_what_fits_is_found_and_a_black_hole_left_in_two_seconds() {
        for (room, found) in [(2_000, 1_420), (1_419, 1_360), (1_300, 1_280), (1_279, 1_200)] {
            let mut mtu = Mtu::new(&to());
            assert_eq!(mtu.room(1_420), 1_420);
            let (ms, asked) = search(&mut mtu, room, Instant(1));
            assert_eq!(mtu.room(1_420), found, "{asked:?}");
            assert!(ms < 6_000, "{ms} ms: {asked:?}");
        }
        let mut mtu = Mtu::new(&to());
        search(&mut mtu, 600, Instant(1));
        assert_eq!(mtu.room(1_420), 496);
        // Suspicion alone lowers it.
        let mut mtu = Mtu::new(&to());
        let lowered = (0..).find(|ms| {
            let now = Instant(ms * 1_000_000);
            mtu.poll_probe(1_420, Duration::ZERO, now);
            mtu.room(1_420) < 1_420
        });
        assert_eq!(lowered, Some(1_600));
    }

    /// As [`search`] at an interface with jumbo frames: sizes asked until it rests.
    fn jumbo(mtu: &mut Mtu, room: usize, from: Instant) -> Vec<usize> {
        let (mut now, mut asked) = (from, Vec::new());
        while mtu.poll_timeout().is_some_and(|at| at < now + Duration::from_secs(4)) {
            if let Some(len) = mtu.poll_probe(8_920, Duration::from_millis(20), now) {
                asked.push(len);
                if len <= room {
                    mtu.handle_passed(len, now + Duration::from_millis(20));
                }
            }
            now += Duration::from_millis(10);
        }
        asked
    }

    #[test]
    fn nt_08_jumbo_frames_are_used_where_they_passed_and_nowhere_else() {
        for (room, found) in
            [(9_000, 8_920), (8_900, 8_820), (4_000, 3_820), (1_500, 1_420), (1_300, 1_280)]
        {
            let mut mtu = Mtu::new(&to());
            assert_eq!(mtu.room(8_920), 1_420, "nothing is believed");
            let asked = jumbo(&mut mtu, room, Instant(1));
            assert_eq!(mtu.room(8_920), found, "{asked:?}");
            assert_eq!(mtu.room(1_420), found.min(1_420), "another interface");
        }
        let mut mtu = Mtu::new(&to());
        assert_eq!(jumbo(&mut mtu, 9_000, Instant(1)), [8_920], "one probe is enough");
        // The path has no jumbo frames any more, and then again.
        let at = mtu.poll_timeout().expect("it is asked again");
        jumbo(&mut mtu, 1_500, at);
        assert_eq!(mtu.room(8_920), 1_420);
        let at = mtu.poll_timeout().expect("it is asked again");
        jumbo(&mut mtu, 9_000, at);
        assert_eq!(mtu.room(8_920), 8_920);
    }

    #[test]
    fn nt_08_a_path_that_shrinks_is_noticed_and_one_that_grows_too() {
        let mut mtu = Mtu::new(&to());
        search(&mut mtu, 2_000, Instant(1));
        let at = mtu.poll_timeout().expect("it is asked again");
        assert_eq!(at.since(Instant(1)).as_secs(), 5);
        search(&mut mtu, 1_300, at);
        assert_eq!(mtu.room(1_420), 1_280);
        let at = mtu.poll_timeout().expect("it is asked again");
        search(&mut mtu, 2_000, at);
        assert_eq!(mtu.room(1_420), 1_420);
    }
}
