//! Datagrams of ours that come back to be sealed once more: routes lead a link into itself, or into
//! another one that leads back (threat NT-07). Each turn would add a header, without end.
//!
//! That a peer's endpoint lies inside another peer's link is no fault, and allowed IPs do not tell
//! the two apart, since routes decide. So what was seen decides: which endpoint's datagrams were
//! lately sealed for which other endpoint. The one that would close a circle is dropped.

use std::net::SocketAddr;
use std::time::Duration;

use noise::Instant;

/// Endpoints that are remembered, and so the longest circle that is found.
const SEEN_MAX: usize = 16;
/// How long it counts: a route that was mended carries again after that.
const SEEN_TIME: Duration = Duration::from_secs(1);

/// A datagram for `to` was sealed for the peer at `via`.
#[derive(Clone, Copy, Debug)]
struct Seen {
    to: SocketAddr,
    via: SocketAddr,
    at: Instant,
}

/// What was sealed twice lately.
#[derive(Debug, Default)]
pub(crate) struct Circles {
    seen: [Option<Seen>; SEEN_MAX],
    /// Where the next one goes; the oldest is overwritten.
    next: usize,
}

impl Circles {
    /// Tells that a datagram of ours for `to` is about to be sealed for the peer at `via`; whether
    /// that closes a circle.
    pub(crate) fn handle_own(&mut self, to: SocketAddr, via: SocketAddr, now: Instant) -> bool {
        let mut way = Some(via);
        for _ in 0..=SEEN_MAX {
            let Some(at) = way else { break };
            if at == to {
                break;
            }
            way = self.via(at, now);
        }
        self.note(Seen { to, via, at: now });
        way == Some(to)
    }

    /// Through whom datagrams for `to` were sealed lately.
    fn via(&self, to: SocketAddr, now: Instant) -> Option<SocketAddr> {
        let fresh = |seen: &&Seen| seen.to == to && !seen.at.is_older_than(SEEN_TIME, now);
        self.seen.iter().flatten().find(fresh).map(|seen| seen.via)
    }

    fn note(&mut self, new: Seen) {
        let same = |seen: &&mut Option<Seen>| seen.is_some_and(|seen| seen.to == new.to);
        if let Some(place) = self.seen.iter_mut().find(same) {
            *place = Some(new);
            return;
        }
        self.seen[self.next] = Some(new);
        self.next = (self.next + 1) % SEEN_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn after_ms(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn nt_07_a_circle_of_any_length_up_to_the_bound_is_found() {
        for len in 1..=16 {
            let mut circles = Circles::default();
            // A datagram for 1 goes to 2, that for 2 goes to 3, and that for the last to 1 again.
            for to in 1..len {
                assert!(!circles.handle_own(at(to), at(to + 1), after_ms(5)), "{to} of {len}");
            }
            for _ in 0..3 {
                assert!(circles.handle_own(at(len), at(1), after_ms(6)), "{len}");
            }
        }
    }

    #[test]
    fn nt_07_peers_inside_peers_are_no_circle() {
        let mut circles = Circles::default();
        for ms in 0..3000 {
            for to in 1..=10 {
                assert!(!circles.handle_own(at(to), at(to + 1), after_ms(ms)));
            }
        }
    }

    #[test]
    fn nt_07_a_mended_route_carries_after_a_second() {
        let mut circles = Circles::default();
        assert!(!circles.handle_own(at(1), at(2), after_ms(0)));
        assert!(circles.handle_own(at(2), at(1), after_ms(10)));
        // Now 1 leaves by another way, and 2 may be inside it.
        assert!(circles.handle_own(at(2), at(1), after_ms(900)));
        assert!(!circles.handle_own(at(2), at(1), after_ms(1100)));
    }

    #[test]
    fn nt_07_a_circle_beside_and_many_strangers_neither_hang_nor_drop() {
        let mut circles = Circles::default();
        assert!(!circles.handle_own(at(1), at(2), after_ms(0)));
        assert!(circles.handle_own(at(2), at(1), after_ms(0)));
        assert!(!circles.handle_own(at(3), at(1), after_ms(0)), "3 is not on the circle");
        for port in 100..300 {
            assert!(!circles.handle_own(at(port), at(9), after_ms(1)));
        }
    }
}
