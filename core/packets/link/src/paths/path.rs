//! One path to a peer: what was asked and answered on it, how alive it is, how good it is.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noise::Instant;
use wire::prefix::Prefix;

use super::mtu::Mtu;
use crate::outbox::{Destination, Endpoint};

/// Without an answer for so long a path has failed, unless three round trips are longer: with the
/// time to the next probe ([`super::ASK_QUIET`], [`super::ASK_BUSY`]) less than the promised 2 s.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_200);
/// A path has failed only after so many probes without an answer: at 20 % of loss each way, four
/// in a row are lost in 2 of 100 cases and the next ones mend it.
const ASKS_MIN: u32 = 4;
/// A path on which nothing came for so long after the first of two probes is doubted: another that
/// answers is taken before this one has failed.
const DOUBT: Duration = Duration::from_millis(300);
/// The same where the peer was heard from a place that is new: it has most likely moved.
const DOUBT_MOVED: Duration = Duration::from_millis(100);
/// So long after its last answer a path in use is believed to be open.
const FRESH_BEST: Duration = Duration::from_secs(30);
/// And one that is not in use: it must have answered lately to be changed to.
const FRESH_OTHER: Duration = Duration::from_secs(5);
/// What a new path must be better by, in part and in microseconds, to be worth a change.
const RTT_GAIN_SHIFT: u32 = 2;
const RTT_GAIN_US: u32 = 2_000;

/// Where a path was learnt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// An authentic datagram came from there.
    Heard,
    /// The peer said so.
    Called,
    /// The map says so.
    Told,
}

/// How far a path is believed to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Liveness {
    /// It failed, or nothing was ever heard on it.
    Unusable,
    /// It worked, or a relay that was not asked yet.
    Possible,
    /// It worked a moment ago, and now probes have no answer.
    Doubted,
    /// It answers.
    Alive,
}

/// What paths are compared by: the order is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) liveness: Liveness,
    /// Without a relay.
    is_direct: bool,
    /// To a private address: on the same network, or at the same site.
    is_near: bool,
    /// The round trip's power of two.
    quickness: Reverse<u32>,
    is_v6: bool,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: u16,
    pub(crate) to: Destination,
    pub(crate) origin: Origin,
    pub(crate) rtt_us: Option<u32>,
    /// When it was measured last.
    pub(crate) rtt_at: Option<Instant>,
    /// When a probe, or a handshake of ours, was last answered.
    pub(crate) answered: Option<Instant>,
    /// When an authentic datagram came last.
    pub(crate) heard: Option<Instant>,
    /// The first probe since the last answer, and how many there were.
    pub(crate) asked: Option<Instant>,
    pub(crate) asks: u32,
    pub(crate) probed: Option<Instant>,
    /// When the next probe is due.
    pub(crate) due: Option<Instant>,
    /// The peer was heard from a new place while this was in use.
    pub(crate) is_suspect: bool,
    pub(crate) mtu: Mtu,
}

impl Path {
    pub(crate) fn new(id: u16, to: Destination, origin: Origin) -> Self {
        Self {
            id,
            to,
            origin,
            rtt_us: None,
            rtt_at: None,
            answered: None,
            heard: None,
            asked: None,
            asks: 0,
            probed: None,
            due: None,
            is_suspect: false,
            mtu: Mtu::new(&to),
        }
    }

    /// Whether it is the path to `to`, whichever of our addresses that leaves from.
    pub(crate) fn leads_to(&self, to: &Destination) -> bool {
        match (&self.to, to) {
            (Destination::Udp(a), Destination::Udp(b)) => a.remote == b.remote,
            (Destination::Carried(a), Destination::Carried(b)) => {
                (a.by, a.at.remote) == (b.by, b.at.remote)
            }
            (Destination::Relay(a), Destination::Relay(b)) => a == b,
            _ => false,
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        matches!(self.to, Destination::Udp(_))
    }

    /// A probe was sent.
    pub(crate) fn handle_asked(&mut self, now: Instant) {
        self.probed = Some(now);
        self.asked.get_or_insert(now);
        self.asks += 1;
        self.due = None;
    }

    /// The answer came; `rtt_us` unless it answers a handshake.
    pub(crate) fn handle_answered(&mut self, rtt_us: Option<u32>, now: Instant) {
        self.answered = Some(now);
        self.heard = Some(now);
        self.asked = None;
        self.asks = 0;
        self.is_suspect = false;
        if let Some(sample) = rtt_us {
            let smooth = |before: u32| before - before / 4 + sample / 4;
            self.rtt_us = Some(self.rtt_us.map_or(sample, smooth));
            self.rtt_at = Some(now);
        }
    }

    /// Forgets what was measured where we were before.
    pub(crate) fn handle_network_change(&mut self) {
        if let Destination::Udp(endpoint) = &mut self.to {
            endpoint.source = None;
        }
        self.is_suspect = true;
        self.rtt_us = None;
        self.mtu = Mtu::new(&self.to);
    }

    /// Says from which of our addresses the peer answers here.
    pub(crate) fn learn_source(&mut self, from: &Destination) {
        if let (Destination::Udp(own), Destination::Udp(Endpoint { source, .. })) =
            (&mut self.to, from)
        {
            own.source = *source;
        }
    }

    pub(crate) fn is_failed(&self, now: Instant) -> bool {
        self.asks >= ASKS_MIN && self.asked.is_some_and(|at| now.since(at) >= self.patience())
    }

    /// Whether probes have gone unanswered for a while, and nothing else came.
    pub(crate) fn is_doubted(&self, now: Instant) -> bool {
        let Some(asked) = self.asked else { return false };
        let silent = self.heard.is_none_or(|heard| heard <= asked);
        silent && self.asks >= self.asks_to_doubt() && now.since(asked) >= self.doubt()
    }

    /// When what is believed of it changes next if no answer comes.
    pub(crate) fn poll_change(&self, now: Instant) -> Option<Instant> {
        let asked = self.asked?;
        [asked + self.doubt(), asked + self.patience()].into_iter().find(|at| *at > now)
    }

    pub(crate) fn liveness(&self, is_best: bool, now: Instant) -> Liveness {
        if self.is_failed(now) {
            return Liveness::Unusable;
        }
        let fresh = if is_best { FRESH_BEST } else { FRESH_OTHER };
        let doubted = self.is_doubted(now);
        match self.answered {
            Some(at) if now.since(at) < fresh && !doubted => Liveness::Alive,
            Some(at) if now.since(at) < fresh => Liveness::Doubted,
            Some(_) if is_best || !doubted => Liveness::Possible,
            None if !self.is_direct() => Liveness::Possible,
            None if is_best => Liveness::Possible,
            _ => Liveness::Unusable,
        }
    }

    /// Its rank; the path in use is favoured a little, so that two that are equal do not take
    /// turns.
    pub(crate) fn rank(&self, is_best: bool, now: Instant) -> Rank {
        let mut rtt_us = self.rtt_us.unwrap_or(u32::MAX);
        if is_best && self.rtt_us.is_some() {
            rtt_us = rtt_us.saturating_sub((rtt_us >> RTT_GAIN_SHIFT) + RTT_GAIN_US);
        }
        let ip = self.to.udp().map(|endpoint| endpoint.remote.ip());
        Rank {
            liveness: self.liveness(is_best, now),
            is_direct: self.is_direct(),
            is_near: ip.is_some_and(is_near),
            quickness: Reverse(rtt_us.max(1).ilog2()),
            is_v6: ip.is_some_and(|ip| ip.is_ipv6()),
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE.max(self.rtt() * 3)
    }

    fn doubt(&self) -> Duration {
        if self.is_suspect {
            DOUBT_MOVED.max(self.rtt() * 3 / 2)
        } else {
            DOUBT.max(self.rtt() * 2)
        }
    }

    fn asks_to_doubt(&self) -> u32 {
        if self.is_suspect { 1 } else { 2 }
    }

    fn rtt(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us.unwrap_or(0)))
    }
}

/// Whether datagrams may be sent to an address that a stranger could have named (threats NT-05,
/// NT-07): it is one machine's, beyond this one, and not inside the overlay itself.
pub(crate) fn is_sound(remote: SocketAddr, overlay: &[Prefix]) -> bool {
    let ip = remote.ip().to_canonical();
    let refused = match ip {
        IpAddr::V4(ip) => {
            // 169.254.0.0/16 needs an interface, which IPv4 cannot name.
            ip.is_broadcast() || ip.is_link_local() || ip.octets()[0] == 0
        }
        IpAddr::V6(ip) => {
            let scope = match remote {
                SocketAddr::V6(remote) => remote.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            ip.is_unicast_link_local() && scope == 0
        }
    };
    let refused = refused || ip.is_loopback() || ip.is_multicast() || ip.is_unspecified();
    !refused && remote.port() != 0 && !overlay.iter().any(|prefix| prefix.contains(ip))
}

/// Whether an address is only known nearby (RFC 1918, RFC 4193).
pub(crate) fn is_near(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nt_05_nt_07_addresses_that_no_peer_can_have_are_refused() {
        let overlay = ["100.64.0.0/10", "fd77::/16"].map(|text| text.parse().expect("a prefix"));
        for (text, sound) in [
            ("192.0.2.1:9", true),
            ("10.0.0.1:9", true),
            ("[2001:db8::1]:9", true),
            ("[fe80::1%3]:9", true),
            ("192.0.2.1:0", false),
            ("127.0.0.1:9", false),
            ("[::1]:9", false),
            ("[::ffff:127.0.0.1]:9", false),
            ("0.0.0.0:9", false),
            ("0.1.2.3:9", false),
            ("[::]:9", false),
            ("224.0.0.1:9", false),
            ("[ff02::1]:9", false),
            ("255.255.255.255:9", false),
            ("169.254.1.1:9", false),
            ("[fe80::1]:9", false),
            ("100.64.0.1:9", false),
            ("100.127.255.255:9", false),
            ("[fd77::1]:9", false),
            ("[::ffff:100.64.0.1]:9", false),
        ] {
            let remote: SocketAddr = text.parse().expect("an address");
            assert_eq!(is_sound(remote, &overlay), sound, "{text}");
        }
    }
}
