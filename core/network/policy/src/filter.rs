//! The stateful filter that both ends of a link ask about every packet.
//!
//! A packet of a known flow passes, whichever way it goes. Anything else needs a rule for the
//! direction it goes in, and begins a flow; so a reply passes because its question did, and for no
//! other reason (PF-11, TS-2024-005). Two kinds of packet belong to another's flow: an ICMP error,
//! which must quote a packet of a living flow with the same peer (PF-03), and a later fragment,
//! whose first one must have passed (PF-04).
//!
//! One relief: a TCP segment in the middle of a connection passes without a flow if a rule would
//! have let this connection begin. It opens nothing, for it is no SYN; and a node that was started
//! again, or had to forget, does not break connections that are quiet on one side.

use wire::ip::protocol;
use wire::packet::{Fragment, Packet};
use wire::tcp::Flags;

use crate::address;
use crate::flows::{FLOWS_MAX, FRAGMENTS_MAX, Flow, Flows, Key, PEERS_MAX, Phase};
use crate::judged::{Direction, Reason};
use crate::multicast::Casts;
use crate::ranges::number;
use crate::rules::{Multicast, Rule, Rules, has_ports};
use crate::subject::{Hint, Subject, fragments_key, halves, joined, subject};

/// Names a peer, as the node does: small and dense, below [`PEERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It goes no further, and was counted.
    Drop(Reason),
}

/// The filter of one node.
#[derive(Clone, Debug)]
pub struct Filter {
    rules: Rules,
    flows: Flows,
    casts: Casts,
    /// Whether any rule lets flows be compressed, and whether the packet judged last may be.
    compresses: bool,
    compress: bool,
    passed: u64,
    drops: [u64; Reason::COUNT],
}

impl Filter {
    /// A filter that lets nothing pass until it is given rules (PF-08). `secret` is random, and
    /// keeps outsiders from choosing packets that collide in the table of flows.
    #[must_use]
    pub fn new(secret: [u64; 2]) -> Self {
        Self::with_flows_max(secret, FLOWS_MAX)
    }

    /// A filter that knows fewer flows, at least one and at most [`FLOWS_MAX`].
    #[must_use]
    pub fn with_flows_max(secret: [u64; 2], flows_max: usize) -> Self {
        let flows = Flows::new(secret, flows_max.clamp(1, FLOWS_MAX));
        Self {
            rules: Rules::default(),
            flows,
            casts: Casts::default(),
            compresses: false,
            compress: false,
            passed: 0,
            drops: [0; Reason::COUNT],
        }
    }

    /// Sets the rules, and cuts every flow that they would not let begin; how many those are
    /// (PF-07). Datagrams of which fragments are missing are cut with any change.
    pub fn set_rules(&mut self, rules: Rules) -> usize {
        if rules == self.rules {
            return 0;
        }
        self.casts.set(&rules.multicast);
        let mut all = rules.inward.iter().chain(&rules.outward);
        let compresses = all.any(|rule| rule.compress);
        self.rules = rules;
        self.compresses = compresses;
        let rules = &self.rules;
        self.flows.retain(|flow| {
            flow.compress = compresses && may_compress(rules, &flow.key, flow.began);
            !flow.key.is_fragments() && may_begin(rules, &flow.key, flow.began)
        })
    }

    /// Forgets every flow with a peer, whose number may be another's soon; how many those were.
    pub fn forget(&mut self, peer: Peer) -> usize {
        self.casts.forget(peer.0);
        self.flows.retain(|flow| flow.peer != peer.0)
    }

    /// Whether there are rules of multicast.
    #[inline]
    #[must_use]
    pub fn has_multicast(&self) -> bool {
        !self.casts.is_empty()
    }

    /// The rules of multicast, in the order of the numbers that [`Filter::judge_multicast`] tells.
    #[must_use]
    pub fn multicast(&self) -> &[Multicast] {
        self.casts.rules()
    }

    /// Judges a packet of `len` bytes to a group, or a superpacket by its first header: the number
    /// of the rule that lets it pass, and whose rate it was charged to. `peer` is who sealed it;
    /// what this node sends is of no peer.
    ///
    /// # Errors
    /// Why it goes no further; it was counted.
    pub fn judge_multicast(
        &mut self,
        direction: Direction,
        peer: Option<Peer>,
        packet: &Packet<'_>,
        len: usize,
        now_ms: u64,
    ) -> Result<usize, Reason> {
        self.compress = false;
        let peer = peer.map(|peer| peer.0);
        let judged = self.casts.judge(direction, peer, packet, len, now_ms);
        match judged {
            Ok(_) => self.passed += 1,
            Err(reason) => self.drops[reason.number()] += 1,
        }
        judged
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Flows that are remembered, those included that nobody asked for since they timed out.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Flows that gave way to others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.flows.evicted()
    }

    /// Whether the packet that was judged last, and passed, is of a flow that a rule lets be
    /// compressed. Of what belongs to no flow that is remembered, none is.
    #[inline]
    #[must_use]
    pub fn lets_compress(&self) -> bool {
        self.compress
    }

    /// Packets that passed; a superpacket counts once.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Packets dropped for a reason; a superpacket counts once.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.drops[reason.number()]
    }

    /// Judges one packet, or one superpacket by its first header. `peer` is who sealed it, or for
    /// whom it would be sealed; that the source is the peer's is for the caller to have checked
    /// (PF-01). `now_ms` is milliseconds since boot.
    #[inline]
    pub fn judge(
        &mut self,
        direction: Direction,
        peer: Peer,
        packet: &Packet<'_>,
        now_ms: u64,
    ) -> Verdict {
        self.compress = false;
        match self.decide(direction, peer, packet, now_ms) {
            Ok(()) => {
                self.passed += 1;
                Verdict::Pass
            }
            Err(reason) => {
                self.drops[reason.number()] += 1;
                Verdict::Drop(reason)
            }
        }
    }

    #[inline]
    fn decide(
        &mut self,
        direction: Direction,
        peer: Peer,
        packet: &Packet<'_>,
        now_ms: u64,
    ) -> Result<(), Reason> {
        let (key, hint) = match subject(direction, packet)? {
            Subject::Flow(key, hint) => (key, hint),
            Subject::Fragment(key) => return self.handle_fragment(&key, peer, now_ms),
            Subject::Error(key) => {
                return self.handle_error(&key, direction, peer, packet, now_ms);
            }
        };
        match self.flows.find(&key, now_ms) {
            Some(at) if self.flows.flow(at).peer == peer.0 => {
                self.handle_known(at, direction, hint, now_ms)?;
            }
            known => self.handle_unknown(key, known, direction, peer, packet, hint, now_ms)?,
        }
        if packet.fragment() == Fragment::First {
            self.expect_fragments(direction, peer, packet, now_ms);
        }
        Ok(())
    }

    /// A packet of a flow that is known, with the peer that it is known with.
    #[inline]
    fn handle_known(
        &mut self,
        at: u32,
        direction: Direction,
        hint: Hint,
        now_ms: u64,
    ) -> Result<(), Reason> {
        let flow = *self.flows.flow(at);
        if let Hint::Tcp(flags) = hint
            && is_opening(flags)
            && direction != flow.began
            && !may_begin(&self.rules, &flow.key, direction)
        {
            return Err(Reason::ReplyOpens);
        }
        self.compress = flow.compress;
        self.flows.note(at, advance(&flow, direction, hint), now_ms);
        Ok(())
    }

    /// A packet of no flow, or of one that was with another peer: a rule must let it begin one.
    #[expect(clippy::too_many_arguments, reason = "one call, on the path of a first packet")]
    fn handle_unknown(
        &mut self,
        key: Key,
        known: Option<u32>,
        direction: Direction,
        peer: Peer,
        packet: &Packet<'_>,
        hint: Hint,
        now_ms: u64,
    ) -> Result<(), Reason> {
        examine(packet)?;
        if peer.0 >= PEERS_MAX {
            return Err(Reason::PeerNumber);
        }
        if matches!(hint, Hint::EchoReply) {
            return Err(Reason::EchoUnasked);
        }
        if may_begin(&self.rules, &key, direction) {
            if let Some(at) = known {
                self.flows.remove(at);
            }
            self.compress = self.compresses && may_compress(&self.rules, &key, direction);
            let phase = first_phase(&key, hint);
            self.flows.insert(key, peer.0, direction, phase, self.compress, now_ms);
            return Ok(());
        }
        match hint {
            Hint::Tcp(flags)
                if flags.any(Flags::ACK)
                    && !flags.any(Flags::SYN.with(Flags::RST))
                    && may_begin(&self.rules, &key, direction.opposite()) =>
            {
                Ok(())
            }
            _ => Err(Reason::Denied),
        }
    }

    fn handle_error(
        &mut self,
        key: &Key,
        direction: Direction,
        peer: Peer,
        packet: &Packet<'_>,
        now_ms: u64,
    ) -> Result<(), Reason> {
        examine(packet)?;
        // The error goes to whoever sent what it quotes.
        let sender = if direction == Direction::In { key.local } else { key.remote };
        if halves(number(packet.destination())) != sender {
            return Err(Reason::ErrorUnrelated);
        }
        let at = self.flows.find(key, now_ms).ok_or(Reason::ErrorUnrelated)?;
        if self.flows.flow(at).peer == peer.0 { Ok(()) } else { Err(Reason::ErrorUnrelated) }
    }

    fn handle_fragment(&mut self, key: &Key, peer: Peer, now_ms: u64) -> Result<(), Reason> {
        let at = self.flows.find(key, now_ms).ok_or(Reason::FragmentUnknown)?;
        let datagram = self.flows.flow(at);
        if datagram.peer != peer.0 {
            return Err(Reason::FragmentUnknown);
        }
        if datagram.pieces >= FRAGMENTS_MAX {
            return Err(Reason::FragmentSurplus);
        }
        datagram.pieces += 1;
        Ok(())
    }

    /// A first fragment passed: those behind it may follow.
    fn expect_fragments(
        &mut self,
        direction: Direction,
        peer: Peer,
        packet: &Packet<'_>,
        now_ms: u64,
    ) {
        if peer.0 >= PEERS_MAX {
            return;
        }
        let key = fragments_key(direction, packet);
        if let Some(at) = self.flows.find(&key, now_ms) {
            self.flows.remove(at);
        }
        self.flows.insert(key, peer.0, direction, Phase::Fragments, false, now_ms);
    }
}

/// What no rule can allow, looked at once a flow.
fn examine(packet: &Packet<'_>) -> Result<(), Reason> {
    address::class(packet.source())?;
    address::class(packet.destination())
}

#[inline]
fn is_opening(flags: Flags) -> bool {
    flags.any(Flags::SYN) && !flags.any(Flags::ACK)
}

/// How far a flow has come with this packet.
#[inline]
fn advance(flow: &Flow, direction: Direction, hint: Hint) -> Phase {
    let is_reply = direction != flow.began;
    let Hint::Tcp(flags) = hint else {
        return match flow.phase {
            Phase::UdpOneWay if is_reply => Phase::Udp,
            phase => phase,
        };
    };
    if flags.any(Flags::RST) {
        return Phase::TcpClosing;
    }
    if is_opening(flags) && !is_reply {
        return match flow.phase {
            Phase::TcpClosing => Phase::TcpOpening,
            phase => phase,
        };
    }
    let fin = flags.any(Flags::FIN);
    match (flow.phase, direction) {
        (Phase::TcpOpening, _) if !is_reply && !fin => Phase::TcpOpening,
        (Phase::TcpOpening | Phase::TcpOpen, Direction::Out) if fin => Phase::TcpHalfLocal,
        (Phase::TcpOpening | Phase::TcpOpen, Direction::In) if fin => Phase::TcpHalfRemote,
        (Phase::TcpHalfLocal, Direction::In) | (Phase::TcpHalfRemote, Direction::Out) if fin => {
            Phase::TcpClosing
        }
        (Phase::TcpOpening, _) => Phase::TcpOpen,
        (phase, _) => phase,
    }
}

fn first_phase(key: &Key, hint: Hint) -> Phase {
    match (key.protocol, hint) {
        (protocol::TCP, Hint::Tcp(flags)) if flags.any(Flags::SYN) => Phase::TcpOpening,
        (protocol::TCP, Hint::Tcp(flags)) if flags.any(Flags::RST) => Phase::TcpClosing,
        (protocol::TCP, _) => Phase::TcpOpen,
        (protocol::UDP, _) => Phase::UdpOneWay,
        (protocol::ICMP | protocol::ICMPV6, _) => Phase::Icmp,
        _ => Phase::Other,
    }
}

/// Whether a rule lets a flow begin in `direction`.
fn may_begin(rules: &Rules, key: &Key, direction: Direction) -> bool {
    allowing(rules, key, direction).next().is_some()
}

/// Whether one of the rules that let it begin lets it be compressed, too.
fn may_compress(rules: &Rules, key: &Key, direction: Direction) -> bool {
    allowing(rules, key, direction).any(|rule| rule.compress)
}

fn allowing<'a>(
    rules: &'a Rules,
    key: &Key,
    direction: Direction,
) -> impl Iterator<Item = &'a Rule> + use<'a> {
    let port = |half: u32| if has_ports(key.protocol) { half as u16 } else { 0 };
    let local = joined(key.local);
    let remote = joined(key.remote);
    let (list, source, destination, port): (&[Rule], _, _, _) = match direction {
        Direction::In => (&rules.inward, remote, local, port(key.ports >> 16)),
        Direction::Out => (&rules.outward, local, remote, port(key.ports & 0xffff)),
    };
    let protocol = key.protocol;
    list.iter().filter(move |rule| rule.allows_numbers(source, destination, protocol, port))
}

#[cfg(test)]
mod tests;
