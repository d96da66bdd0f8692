//! Inner packets: how they are made, and what is known of each.
//!
//! Every packet carries a marker that no other has, and bytes that follow from it. What a host
//! delivers must be such a packet, unharmed, at the host it was meant for, from the source it was
//! sent with, and only once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use noise::Instant;
use wire::checksum::{self, Sum};
use wire::{packet, virtio};

use super::HostId;
use crate::rng::Rng;

/// Bytes of a marker, and the least payload of a packet.
pub const PAYLOAD_MIN: usize = 8;
/// The protocol number for experiments (RFC 3692): nothing looks behind the IP header.
const EXPERIMENT: u8 = 253;
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
const TCP: u8 = 6;
const TCP_HEADER_LEN: usize = 20;
/// TCP's flags for data: acknowledged, and pushed at the end.
const ACK_PSH: u8 = 0x18;

/// One packet that was handed to a host.
#[derive(Clone, Copy, Debug)]
struct Entry {
    from: HostId,
    to: HostId,
    source: IpAddr,
    len: usize,
    /// Whether its source is the sender's own; others must never arrive (threat PF-01).
    genuine: bool,
    delivered: Option<Instant>,
}

/// What passed between two hosts in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Genuine packets handed to the sender.
    pub sent: u64,
    /// Packets that the receiver delivered.
    pub delivered: u64,
    /// When the latest was delivered.
    pub latest: Option<Instant>,
    /// When the first was delivered that was sent after [`Ledger::mark`].
    pub first_marked: Option<Instant>,
    /// Packets that were delivered behind one that was sent later.
    pub overtaken: u64,
    /// The youngest that was delivered.
    youngest: u64,
}

/// Every packet of a world.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    passed: BTreeMap<(HostId, HostId), Passed>,
    marked: usize,
    /// TCP's next sequence number, of all flows.
    sequence: u32,
}

/// A packet as a host's kernel would hand it over.
#[derive(Debug)]
pub struct Made {
    /// What the kernel says of it.
    pub header: virtio::Header,
    /// The packet or superpacket.
    pub bytes: Vec<u8>,
    /// IP packets in it.
    pub segments: u64,
}

impl Ledger {
    /// What passed from one host to another.
    #[must_use]
    pub fn passed(&self, from: HostId, to: HostId) -> Passed {
        self.passed.get(&(from, to)).copied().unwrap_or_default()
    }

    /// What passed between all.
    #[must_use]
    pub fn total(&self) -> Passed {
        self.passed.values().fold(Passed::default(), |mut sum, passed| {
            sum.sent += passed.sent;
            sum.delivered += passed.delivered;
            sum
        })
    }

    /// The marker that the next packet will have.
    #[must_use]
    pub fn next_marker(&self) -> u64 {
        self.entries.len() as u64
    }

    /// When the packet with this marker was delivered, if it was.
    #[must_use]
    pub fn delivered_at(&self, marker: u64) -> Option<Instant> {
        self.entries.get(usize::try_from(marker).ok()?)?.delivered
    }

    /// From now on [`Passed::first_marked`] waits for a packet that is sent from now on.
    pub fn mark(&mut self) {
        self.marked = self.entries.len();
        for passed in self.passed.values_mut() {
            passed.first_marked = None;
        }
    }

    /// A lone packet with `len` bytes of payload.
    pub fn packet(&mut self, route: Route, len: usize) -> Made {
        let mut payload = vec![0; len.max(PAYLOAD_MIN)];
        self.enter(&route, &mut payload);
        let bytes = ip_packet(route.source, route.destination, EXPERIMENT, &payload);
        Made { header: virtio::Header::default(), bytes, segments: 1 }
    }

    /// A lone datagram of UDP with `len` bytes of payload.
    pub fn datagram(&mut self, route: Route, ports: (u16, u16), len: usize) -> Made {
        let mut made = self.superpacket(route, 1, len);
        let at = made.bytes.len() - len.max(PAYLOAD_MIN) - UDP_HEADER_LEN;
        let both = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        made.bytes[at..at + 4].copy_from_slice(&both);
        // As a kernel leaves it to its device: the sum of the pseudo header stands in the field.
        let upper_len = (made.bytes.len() - at) as u32;
        let pseudo = checksum::pseudo(route.source, route.destination, UDP, upper_len);
        let sum = (!pseudo.checksum()).to_be_bytes();
        made.bytes[at + 6..at + 8].copy_from_slice(&sum);
        made.header.gso_type = virtio::GSO_NONE;
        made.header.gso_size = 0;
        made
    }

    /// A superpacket with `len` bytes of payload a segment: of TCP if the segments are even in
    /// number and more than two, of UDP otherwise.
    pub fn superpacket(&mut self, route: Route, segments: usize, len: usize) -> Made {
        let len = len.max(PAYLOAD_MIN);
        let is_tcp = segments > 2 && segments.is_multiple_of(2);
        let mut upper = vec![0; if is_tcp { TCP_HEADER_LEN } else { UDP_HEADER_LEN }];
        for _ in 0..segments {
            let mut payload = vec![0; len];
            self.enter(&route, &mut payload);
            upper.extend_from_slice(&payload);
        }
        let upper_len = u16::try_from(upper.len()).expect("a superpacket is below 64 KiB");
        upper[..2].copy_from_slice(&7_u16.to_be_bytes());
        upper[2..4].copy_from_slice(&9_u16.to_be_bytes());
        let is_v4 = route.source.is_ipv4();
        let (protocol, gso_type, csum_offset) = if is_tcp {
            upper[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            upper[12] = 5 << 4;
            upper[13] = ACK_PSH;
            self.sequence = self.sequence.wrapping_add((len * segments) as u32);
            (TCP, if is_v4 { virtio::GSO_TCPV4 } else { virtio::GSO_TCPV6 }, 16)
        } else {
            upper[4..6].copy_from_slice(&upper_len.to_be_bytes());
            (UDP, virtio::GSO_UDP_L4, 6)
        };
        let bytes = ip_packet(route.source, route.destination, protocol, &upper);
        let header_len = u16::try_from(bytes.len() - upper.len()).expect("20 or 40");
        let header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            gso_type,
            hdr_len: header_len,
            gso_size: u16::try_from(len).expect("a segment is below 64 KiB"),
            csum_start: header_len,
            csum_offset,
        };
        Made { header, bytes, segments: segments as u64 }
    }

    fn enter(&mut self, route: &Route, payload: &mut [u8]) {
        let marker = self.entries.len() as u64;
        fill(marker, payload);
        let Route { from, to, source, genuine, .. } = *route;
        let entry = Entry { from, to, source, len: payload.len(), genuine, delivered: None };
        self.entries.push(entry);
        if genuine {
            self.passed.entry((from, to)).or_default().sent += 1;
        }
    }

    /// Judges a packet that `host` delivers; returns its marker.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn deliver(&mut self, host: HostId, bytes: &[u8], now: Instant) -> Result<u64, String> {
        let parsed =
            packet::parse(bytes).map_err(|e| format!("{host} delivered no packet: {e:?}"))?;
        if parsed.bytes().len() != bytes.len() {
            return Err(format!("{host} delivered a packet with {} bytes around it", bytes.len()));
        }
        let payload = match parsed.protocol() {
            UDP | TCP if !parsed.checksums_hold() => {
                return Err(format!("{host}: a wrong checksum"));
            }
            UDP => &parsed.payload()[UDP_HEADER_LEN..],
            TCP => &parsed.payload()[TCP_HEADER_LEN..],
            _ => parsed.payload(),
        };
        let marker = payload.first_chunk().ok_or("a packet without marker")?;
        let marker = u64::from_be_bytes(*marker);
        let slot = usize::try_from(marker).ok().and_then(|at| self.entries.get_mut(at));
        let Some(entry) = slot else { return Err(format!("{host} delivered unknown {marker}")) };
        let mut expected = vec![0; entry.len];
        fill(marker, &mut expected);
        if expected != payload {
            return Err(format!("{host} delivered packet {marker} with other bytes"));
        }
        if entry.to != host || entry.source != parsed.source() {
            return Err(format!("{host} delivered packet {marker}, which is {entry:?}"));
        }
        if !entry.genuine {
            return Err(format!("{host} delivered packet {marker} from a source not allowed"));
        }
        if entry.delivered.is_some() {
            return Err(format!("{host} delivered packet {marker} twice"));
        }
        entry.delivered = Some(now);
        let passed = self.passed.entry((entry.from, entry.to)).or_default();
        passed.delivered += 1;
        passed.overtaken += u64::from(marker < passed.youngest);
        passed.youngest = passed.youngest.max(marker);
        passed.latest = Some(now);
        if marker >= self.marked as u64 && passed.first_marked.is_none() {
            passed.first_marked = Some(now);
        }
        Ok(marker)
    }
}

/// Whose packet it is and what it says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The host that sends it.
    pub from: HostId,
    /// The host that shall get it.
    pub to: HostId,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Whether the source is the sender's.
    pub genuine: bool,
}

/// A marker, and bytes that follow from it: as random as they can be, or what can be compressed,
/// all of it or the second half.
fn fill(marker: u64, payload: &mut [u8]) {
    Rng::new(marker).fill(payload);
    let plain = match marker % 4 {
        0 => 0..payload.len(),
        1 => payload.len() / 2..payload.len(),
        _ => 0..0,
    };
    for (at, byte) in payload[plain].iter_mut().enumerate() {
        *byte = (marker.rotate_left(8) as usize + at % 23) as u8;
    }
    payload[..PAYLOAD_MIN].copy_from_slice(&marker.to_be_bytes());
}

/// An IP packet without options.
pub(crate) fn ip_packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    upper: &[u8],
) -> Vec<u8> {
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
            let len = u16::try_from(header.len() + upper.len()).expect("below 64 KiB");
            header[2..4].copy_from_slice(&len.to_be_bytes());
            let sum = Sum::of(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let len = u16::try_from(upper.len()).expect("below 64 KiB").to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, len[0], len[1], protocol, 64];
            header.extend_from_slice(&octets(source));
            header.extend_from_slice(&octets(destination));
            header
        }
    };
    bytes.extend_from_slice(upper);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::inner;

    const A: HostId = HostId(0);
    const B: HostId = HostId(1);
    const NOW: Instant = Instant(5);

    fn route(genuine: bool) -> Route {
        Route { from: A, to: B, source: inner(A).0, destination: inner(B).0, genuine }
    }

    fn refused(ledger: &mut Ledger, host: HostId, bytes: &[u8], why: &str) {
        let what = ledger.deliver(host, bytes, NOW).expect_err(why);
        assert!(what.contains(why), "{what}");
    }

    #[test]
    fn a_packet_is_taken_once_where_it_was_meant_for_and_as_it_was() {
        let mut ledger = Ledger::default();
        let made = ledger.packet(route(true), 100);
        let mut harmed = made.bytes.clone();
        harmed[60] ^= 1;
        refused(&mut ledger, B, &harmed, "other bytes");
        refused(&mut ledger, B, &made.bytes[..90], "no packet");
        refused(&mut ledger, B, &[&made.bytes[..], &[0]].concat(), "around it");
        refused(&mut ledger, A, &made.bytes, "which is");
        assert_eq!((ledger.next_marker(), ledger.delivered_at(0)), (1, None));
        assert_eq!(ledger.deliver(B, &made.bytes, NOW), Ok(0));
        assert_eq!((ledger.delivered_at(0), ledger.delivered_at(1)), (Some(NOW), None));
        refused(&mut ledger, B, &made.bytes, "twice");
        let foreign = Ledger::default().packet(route(true), 100).bytes;
        refused(&mut Ledger::default(), B, &foreign, "unknown");
        let passed = ledger.passed(A, B);
        assert_eq!((passed.sent, passed.delivered), (1, 1));
    }

    #[test]
    fn a_spoofed_packet_is_never_taken() {
        let mut ledger = Ledger::default();
        let made = ledger.packet(route(false), 100);
        refused(&mut ledger, B, &made.bytes, "not allowed");
        assert_eq!(ledger.passed(A, B), Passed::default());
    }

    #[test]
    fn only_packets_sent_after_the_mark_are_waited_for() {
        let mut ledger = Ledger::default();
        let (before, _) = (ledger.packet(route(true), 8), ledger.mark());
        let after = ledger.packet(route(true), 8);
        ledger.deliver(B, &before.bytes, NOW).expect("sent");
        assert_eq!(ledger.passed(A, B).first_marked, None);
        ledger.deliver(B, &after.bytes, NOW).expect("sent");
        assert_eq!(ledger.passed(A, B).first_marked, Some(NOW));
    }
}
