//! The paths of managed peers: where they may be, and where this machine may be.

use link::{Candidate, Carrier, PathStatus};
use noise::PublicKey;
use wire::{ping, tcp, too_big, wireguard};

use super::*;
use crate::reach::{Reach, ReachStatus};

/// Errors to our own machine that wait, at most; more are not told.
const REPLIES_MAX: usize = 16;
/// Peers of one address to which a handshake is begun for one datagram, at most.
const HINTED_MAX: usize = 4;

impl Node {
    /// Says where a peer may be. From the first time on it is a managed peer: its paths are probed
    /// and chosen here, and it is no longer simply followed. An unknown peer is ignored.
    pub fn set_candidates(&mut self, peer: &PublicKey, candidates: &[Candidate], now: Instant) {
        let Some(id) = self.peers.id(peer) else { return };
        let Some(link) = self.peers.link(id) else { return };
        link.set_candidates(Some(candidates), self.reach.overlay(), now);
        self.touch(id);
    }

    /// The path in use to a managed peer; none while it was not heard yet.
    #[must_use]
    pub fn path(&self, peer: &PublicKey, now: Instant) -> Option<PathStatus> {
        self.peers.link_ref(self.peers.id(peer)?)?.path(self.mtu, now)
    }

    /// What this machine may be reached at, as far as the daemon knows. STUN servers are asked.
    pub fn set_reach(&mut self, reach: Reach, now: Instant) {
        self.reach.set(reach, now);
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                link.set_overlay(self.reach.overlay());
            }
        }
    }

    /// We are connected to this relay from now on: handshakes that wait for an answer are sent to
    /// it at once.
    pub fn handle_relay_up(&mut self, relay: u32) {
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id).filter(|link| link.is_managed()) {
                link.handle_relay_up(relay);
                self.touch(id);
            }
        }
    }

    /// Through which relays not everything fits: the number of each, and bytes of the largest
    /// packet. All others take all sizes.
    pub fn set_relay_rooms(&mut self, rooms: &[(u32, usize)]) {
        self.reach.set_rooms(rooms);
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                link.handle_rooms(rooms);
            }
        }
    }

    /// What this machine may be reached at, as far as is known.
    #[must_use]
    pub fn reach(&self) -> ReachStatus {
        self.reach.status()
    }

    /// Whether [`Node::reach`] has changed since this was last asked.
    pub fn poll_reach(&mut self) -> bool {
        self.reach.take_changed()
    }

    /// Our addresses or routes changed, or the machine was suspended: everything is asked again. Of
    /// changes that follow each other the later ones wait for up to a second.
    pub fn handle_network_change(&mut self, now: Instant) {
        self.forget_sources();
        if self.reach.may_restart(now) {
            self.restart_paths(now);
        }
    }

    /// What [`Node::handle_network_change`] put off is done.
    pub(super) fn handle_put_off(&mut self, now: Instant) {
        if self.reach.is_put_off(now) && self.reach.may_restart(now) {
            self.restart_paths(now);
        }
    }

    fn restart_paths(&mut self, now: Instant) {
        self.reach.restart(now);
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                link.handle_network_change(now);
            }
            self.touch(id);
        }
    }

    /// A datagram came that belongs to no session. We may have been started anew, and a peer that
    /// has not go on by a mapping of its translator that no map names: that address is a hint to
    /// begin a handshake there, for peers that may be at it, and to nobody else. Anybody may send
    /// one, so of many few are looked at.
    #[cold]
    pub(super) fn handle_stray(&mut self, from: &Destination, now: Instant) {
        if !self.reach.may_heed(now) {
            return;
        }
        let mut left = HINTED_MAX;
        for id in self.peers.ids() {
            if self.peers.link(id).is_some_and(|link| link.handle_hint(from)) {
                self.touch(id);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Peers are told of our new endpoints.
    pub(super) fn call_peers(&mut self, now: Instant) {
        if !self.reach.take_moved() {
            return;
        }
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id).filter(|link| link.is_managed()) {
                link.handle_reach_change(now);
                self.touch(id);
            }
        }
    }

    /// Tells our machine that a packet to a peer, or into a circuit, does not fit, and what does.
    pub(super) fn refuse_size(&mut self, to: Option<PeerId>, packet: &[u8], room: usize) {
        if self.replies.len() >= REPLIES_MAX {
            return;
        }
        let mut reply = vec![0; too_big::TOO_BIG_LEN_MAX];
        if let Some(len) = too_big::write_too_big(packet, room, &mut reply) {
            reply.truncate(len);
            // What is quoted was rewritten for the peer.
            if to.is_some_and(|id| self.tables.has(id) && !self.tables.inward(id, &mut reply)) {
                return;
            }
            self.replies.push_back(reply);
        }
    }

    /// Tells our machine that nothing leads where a packet of it goes.
    pub(super) fn refuse_route(&mut self, packet: &[u8]) {
        let mut reply = vec![0; too_big::TOO_BIG_LEN_MAX];
        if self.replies.len() < REPLIES_MAX
            && let Some(len) = too_big::write_no_route(packet, &mut reply)
        {
            reply.truncate(len);
            self.replies.push_back(reply);
        }
    }

    /// Moves what our machine is told into `inbox`.
    #[inline]
    pub(super) fn poll_replies(&mut self, inbox: &mut Inbox) {
        while let Some(reply) = self.replies.front() {
            if !inbox.push_own(reply) {
                return;
            }
            self.replies.pop_front();
        }
    }
}

/// Where this packet goes if it may be a datagram that we sealed: by the port that it comes from,
/// as a ping with our marker, or as what the link's own carrier makes.
#[inline]
pub(super) fn own_datagram(
    packet: &Packet<'_>,
    listen_port: u16,
    carrier: Option<Carrier>,
) -> Option<SocketAddr> {
    match packet.protocol() {
        protocol::TCP => None,
        protocol::UDP => match packet.transport() {
            Ok(Transport::Udp(udp)) if udp.source_port() == listen_port => {
                Some(SocketAddr::new(packet.destination(), udp.destination_port()))
            }
            _ => None,
        },
        number => own_carried(packet, number, carrier),
    }
}

/// The same of what is no UDP. An address with a port is a requester's, with its identifier.
fn own_carried(packet: &Packet<'_>, number: u8, carrier: Option<Carrier>) -> Option<SocketAddr> {
    let bytes = packet.payload();
    let port = match (number, carrier) {
        (protocol::ICMP | protocol::ICMPV6, _) => {
            let (head, body) = bytes.split_at_checked(ping::ICMP_LEN)?;
            let is_request = matches!(head[0], 8 | 128) && body.starts_with(&ping::MARKER);
            let is_reply = matches!(head[0], 0 | 129) && carrier == Some(Carrier::IcmpReply);
            match (is_request, is_reply) {
                (true, _) => 0,
                (_, true) => u16::from_be_bytes([head[4], head[5]]),
                _ => return None,
            }
        }
        (_, Some(Carrier::Ip(ours))) if ours == number => {
            wireguard::classify(bytes).is_ok().then_some(0)?
        }
        _ => return None,
    };
    Some(SocketAddr::new(packet.destination(), port))
}

/// Bytes of the largest packet to or from a managed peer, for the TCP connections that it is part
/// of; `None` where nothing is to be changed.
#[inline]
pub(super) fn clamp(link: &Link, mtu: usize, packet: &mut [u8]) {
    if link.is_managed() && mtu != 0 && tcp::is_syn(packet) {
        tcp::clamp_mss(packet, mtu.min(link.room()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet to 192.0.2.9.
    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&((20 + body.len()) as u16).to_be_bytes());
        bytes[8] = 64;
        bytes[9] = number;
        bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        bytes[16..20].copy_from_slice(&[192, 0, 2, 9]);
        bytes.extend(body);
        bytes
    }

    fn owned(number: u8, body: &[u8], carrier: Option<Carrier>) -> Option<u16> {
        let bytes = packet(number, body);
        let parsed = packet::parse(&bytes).expect("a packet");
        own_datagram(&parsed, 51820, carrier).map(|to| to.port())
    }

    #[test]
    fn nt_07_datagrams_of_every_carrier_are_known_again_and_others_pings_are_not() {
        let ours = [&[8, 0, 0, 0, 0, 9, 0, 1][..], b"WRN1", &[0; 20]].concat();
        let plain = [&[8, 0, 0, 0, 0, 9, 0, 1][..], &[0x55; 24]].concat();
        let reply = [&[0, 0, 0, 0, 0, 9, 0, 1][..], &[0x55; 24]].concat();
        let mut message = vec![0; 148];
        message[0] = 1;
        for carrier in [None, Some(Carrier::IcmpRequest), Some(Carrier::IcmpReply)] {
            assert_eq!(owned(protocol::ICMP, &ours, carrier), Some(0), "from any link");
            assert_eq!(owned(protocol::ICMP, &plain, carrier), None);
            assert_eq!(owned(99, &message, carrier), None);
            let is_answerer = carrier == Some(Carrier::IcmpReply);
            assert_eq!(owned(protocol::ICMP, &reply, carrier), is_answerer.then_some(9));
        }
        assert_eq!(owned(99, &message, Some(Carrier::Ip(99))), Some(0));
        assert_eq!(owned(99, &message, Some(Carrier::Ip(98))), None);
        assert_eq!(owned(99, &[7; 148], Some(Carrier::Ip(99))), None, "another program's");
        assert_eq!(owned(protocol::ICMP, &ours[..9], None), None, "cut off");
    }
}
