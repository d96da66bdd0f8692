//! The way in: decrypted packets of one batch, put together again into superpackets.
//!
//! Stages of a push: `classify` says whether the packet may be merged at all; the flow table
//! finds its flow's open group; `extends` compares it with that group's first packet; then both
//! checksums are verified. A flush walks the groups in the order in which they began, rewrites
//! the headers of each first packet, and hands out ranges of the arena: payload is never moved.
//!
//! **Order.** A packet joins its flow's newest group or begins a newer one, and a packet of the
//! flow that cannot be merged closes the group. So no packet overtakes another of its flow. What
//! hides its flow (a fragment, options, extension headers) closes every group. The flow table may
//! forget a group, which only closes it.
//!
//! The rules are those of Linux' GRO (`net/ipv4/tcp_offload.c`, `udp_offload.c`): everything that
//! segmentation would not restore must be equal.

use core::ops::Range;

use crate::checksum::{self, Sum};
use crate::ip::{self, protocol};
use crate::tcp::{self, Flags};
use crate::{packet, udp, virtio};

/// Packets that one superpacket is made of at most: bounds the gather list of one write, which
/// Linux limits to 1,024 parts, and covers 65,535 bytes at a payload of 536.
pub const GATHER_MAX: usize = 128;

/// Datagrams in one UDP superpacket at most (Linux: `UDP_MAX_SEGMENTS` before 6.9).
pub const UDP_SEGMENTS_MAX: usize = 64;

/// Flows whose open group is remembered; two that share a slot only merge less.
const FLOW_SLOTS: usize = 256;

/// End of a chain of packets.
const NONE: u32 = u32::MAX;

/// Merges packets of one batch; all memory is taken at construction.
#[derive(Debug)]
pub struct Coalescer {
    udp: bool,
    capacity: usize,
    members: Vec<Member>,
    groups: Vec<Group>,
    flows: Vec<Slot>,
    /// Slots of older epochs are empty. Counts from one and never wraps.
    epoch: u64,
    gather: Vec<Range<usize>>,
}

/// The batch is full: flush, then push again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// One packet of the batch, and the next of its group.
#[derive(Clone, Debug)]
struct Member {
    range: Range<usize>,
    next: u32,
}

/// What will be one packet on the queue.
#[derive(Clone, Debug)]
struct Group {
    head: u32,
    tail: u32,
    members: u32,
    /// Bytes of the whole packet so far.
    total_len: usize,
    /// Shape of the first packet; `None` when it passes alone.
    shape: Option<Shape>,
    /// The sequence number that the next member must have (TCP).
    next_sequence: u32,
    /// FIN and PSH of the last member.
    closing: Flags,
    /// Whether the first packet's checksums were verified.
    verified: bool,
}

/// Where things are in a packet that may be merged.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tcp: bool,
    v4: bool,
    /// Bytes of the IP header.
    ip_len: usize,
    /// Bytes of all headers.
    header_len: usize,
    payload_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    epoch: u64,
    group: u32,
}

/// What a packet may do with the groups of its batch.
enum Class {
    /// May join its flow's group or begin one.
    Merge(Shape),
    /// Closes its flow's group.
    Alone(Shape),
    /// Closes every group: its flow cannot be read here.
    Barrier,
    /// Belongs to no flow that is ever merged.
    Apart,
}

impl Coalescer {
    /// A coalescer for batches of at most `capacity` packets.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            udp: false,
            capacity,
            members: Vec::with_capacity(capacity),
            groups: Vec::with_capacity(capacity),
            flows: vec![Slot { epoch: 0, group: 0 }; FLOW_SLOTS],
            epoch: 1,
            gather: Vec::with_capacity(GATHER_MAX),
        }
    }

    /// Whether UDP datagrams may be merged: only when the queue accepts `GSO_UDP_L4`.
    #[must_use]
    pub fn with_udp(mut self, udp: bool) -> Self {
        self.udp = udp;
        self
    }

    /// Whether UDP datagrams are merged.
    #[must_use]
    pub fn takes_udp(&self) -> bool {
        self.udp
    }

    /// Packets in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes the packet that lies at `packet` in `arena`. Until the flush, neither it nor what
    /// was pushed before may change. Padding behind the packet's total length is left out.
    ///
    /// # Errors
    /// [`Full`] when the batch holds as many packets as it can; nothing was taken.
    ///
    /// # Panics
    /// When the range does not lie in the arena.
    pub fn push(&mut self, arena: &mut [u8], packet: Range<usize>) -> Result<(), Full> {
        if self.members.len() == self.capacity {
            return Err(Full);
        }
        let total_len = packet::total_len(&arena[packet.clone()]).unwrap_or_else(|_| packet.len());
        let range = packet.start..packet.start + total_len;
        let bytes = &arena[range.clone()];
        match classify(bytes, self.udp) {
            Class::Merge(shape) => {
                let slot = slot_of(bytes, &shape);
                match self.open_group(arena, slot, bytes, &shape) {
                    Some(group) if self.join(arena, group, &range, &shape) => {
                        if self.groups[group].is_closed(&shape) {
                            self.flows[slot].epoch = 0;
                        }
                    }
                    _ => self.begin(range, bytes, shape, slot),
                }
            }
            Class::Alone(shape) => {
                // The slot may hold another flow: closing that too does no harm.
                self.flows[slot_of(bytes, &shape)].epoch = 0;
                self.begin_alone(range);
            }
            Class::Barrier => {
                self.epoch += 1;
                self.begin_alone(range);
            }
            Class::Apart => self.begin_alone(range),
        }
        Ok(())
    }

    /// Yields everything in the batch and empties it. Each call of `emit` gets one virtio header,
    /// the arena, and the ranges that make up the packet: headers and first payload, then
    /// payloads. The order within a flow is that of the pushes.
    pub fn flush(
        &mut self,
        arena: &mut [u8],
        mut emit: impl FnMut(virtio::Header, &[u8], &[Range<usize>]),
    ) {
        for group in &self.groups {
            let head = self.members[group.head as usize].range.clone();
            self.gather.clear();
            self.gather.push(head.clone());
            let header = match group.shape {
                Some(shape) if group.members > 1 => {
                    let mut next = self.members[group.head as usize].next;
                    while next != NONE {
                        let member = &self.members[next as usize];
                        let payload = member.range.start + shape.header_len..member.range.end;
                        self.gather.push(payload);
                        next = member.next;
                    }
                    rewrite(&mut arena[head], &shape, group)
                }
                _ => virtio::Header::default(),
            };
            emit(header, arena, &self.gather);
        }
        self.members.clear();
        self.groups.clear();
        self.epoch += 1;
    }

    /// The open group of the packet's flow.
    fn open_group(&self, arena: &[u8], slot: usize, bytes: &[u8], shape: &Shape) -> Option<usize> {
        let Slot { epoch, group } = self.flows[slot];
        if epoch != self.epoch {
            return None;
        }
        let group = group as usize;
        let head = &arena[self.members[self.groups[group].head as usize].range.clone()];
        let first = self.groups[group].shape?;
        let same = first.tcp == shape.tcp
            && first.v4 == shape.v4
            && if shape.v4 { head[12..24] == bytes[12..24] } else { head[8..44] == bytes[8..44] };
        same.then_some(group)
    }

    /// Appends the packet to the group if nothing speaks against it.
    fn join(&mut self, arena: &[u8], group: usize, range: &Range<usize>, shape: &Shape) -> bool {
        let bytes = &arena[range.clone()];
        let entry = &mut self.groups[group];
        let head = &arena[self.members[entry.head as usize].range.clone()];
        if !extends(entry, head, bytes, shape) || !checksums_hold(bytes, shape) {
            return false;
        }
        if !entry.verified {
            if !checksums_hold(head, shape) {
                return false;
            }
            entry.verified = true;
        }
        let member = self.members.len() as u32;
        self.members[entry.tail as usize].next = member;
        entry.tail = member;
        entry.members += 1;
        entry.total_len += shape.payload_len;
        entry.next_sequence = entry.next_sequence.wrapping_add(shape.payload_len as u32);
        if shape.tcp {
            entry.closing = closing_flags(bytes, shape);
        }
        self.members.push(Member { range: range.clone(), next: NONE });
        true
    }

    /// Begins a group that later packets of the flow may join.
    fn begin(&mut self, range: Range<usize>, bytes: &[u8], shape: Shape, slot: usize) {
        let mut next_sequence = 0;
        let mut closing = Flags(0);
        if shape.tcp {
            let at = shape.ip_len + 4;
            let raw = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            next_sequence = u32::from_be_bytes(raw).wrapping_add(shape.payload_len as u32);
            closing = closing_flags(bytes, &shape);
        }
        let group = self.groups.len() as u32;
        // A closed group still takes the slot away from an older one of the flow.
        let epoch = if closing == Flags(0) { self.epoch } else { 0 };
        self.flows[slot] = Slot { epoch, group };
        self.begin_alone(range);
        let entry = &mut self.groups[group as usize];
        entry.shape = Some(shape);
        entry.next_sequence = next_sequence;
        entry.closing = closing;
    }

    /// Begins a group that nothing joins.
    fn begin_alone(&mut self, range: Range<usize>) {
        let member = self.members.len() as u32;
        self.groups.push(Group {
            head: member,
            tail: member,
            members: 1,
            total_len: range.len(),
            shape: None,
            next_sequence: 0,
            closing: Flags(0),
            verified: false,
        });
        self.members.push(Member { range, next: NONE });
    }
}

impl Group {
    /// Whether nothing may follow the member of this shape, which was just appended.
    fn is_closed(&self, last: &Shape) -> bool {
        let size = self.shape.map_or(0, |shape| shape.payload_len);
        let members_max = if last.tcp { GATHER_MAX } else { UDP_SEGMENTS_MAX };
        self.closing != Flags(0) || last.payload_len < size || self.members as usize >= members_max
    }
}

fn classify(bytes: &[u8], merge_udp: bool) -> Class {
    let Some((kind, v4, ip_len)) = upper(bytes) else {
        return Class::Barrier;
    };
    match kind {
        protocol::TCP => classify_tcp(bytes, v4, ip_len),
        protocol::UDP if merge_udp => classify_udp(bytes, v4, ip_len),
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => Class::Apart,
        _ => Class::Barrier,
    }
}

/// Protocol, whether it is IPv4, and bytes of the IP header; `None` when the packet is not whole
/// or its header is not plain.
fn upper(bytes: &[u8]) -> Option<(u8, bool, usize)> {
    let total_len = packet::total_len(bytes).ok()?;
    if total_len != bytes.len() {
        return None;
    }
    if bytes[0] >> 4 == 6 {
        return Some((bytes[6], false, ip::V6_HEADER_LEN));
    }
    let fragment = u16::from_be_bytes([bytes[6], bytes[7]]);
    let plain = bytes[0] == 0x45 && fragment & !DONT_FRAGMENT == 0;
    plain.then_some((bytes[9], true, ip::V4_HEADER_LEN))
}

const DONT_FRAGMENT: u16 = 0x4000;

fn classify_tcp(bytes: &[u8], v4: bool, ip_len: usize) -> Class {
    let Ok(segment) = tcp::Tcp::view(&bytes[ip_len..]) else {
        return Class::Barrier;
    };
    let header_len = ip_len + segment.header_len();
    let payload_len = bytes.len() - header_len;
    let shape = Shape { tcp: true, v4, ip_len, header_len, payload_len };
    let never = Flags::SYN.with(Flags::RST).with(Flags::URG);
    let data = segment.flags().any(Flags::ACK) && !segment.flags().any(never);
    if payload_len > 0 && data { Class::Merge(shape) } else { Class::Alone(shape) }
}

fn classify_udp(bytes: &[u8], v4: bool, ip_len: usize) -> Class {
    let Ok(datagram) = udp::Udp::view(&bytes[ip_len..], false) else {
        return Class::Barrier;
    };
    let header_len = ip_len + udp::HEADER_LEN;
    let payload_len = bytes.len() - header_len;
    let shape = Shape { tcp: false, v4, ip_len, header_len, payload_len };
    let exact = datagram.len() == bytes.len() - ip_len;
    if payload_len > 0 && exact && datagram.checksum() != 0 {
        Class::Merge(shape)
    } else {
        Class::Alone(shape)
    }
}

/// Addresses and ports, mixed: the same batch gives the same slots on every machine.
fn slot_of(bytes: &[u8], shape: &Shape) -> usize {
    let tuple = if shape.v4 { &bytes[12..24] } else { &bytes[8..44] };
    let (words, _) = tuple.as_chunks::<4>();
    let mut mixed = 0u64;
    for word in words {
        mixed = (mixed.rotate_left(23) ^ u64::from(u32::from_le_bytes(*word)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (mixed >> 56) as usize % FLOW_SLOTS
}

/// Whether segmentation of the group with this packet appended would give this packet back.
fn extends(group: &Group, head: &[u8], bytes: &[u8], shape: &Shape) -> bool {
    let Some(first) = group.shape else {
        return false;
    };
    let fits = first.header_len == shape.header_len
        && shape.payload_len <= first.payload_len
        && group.total_len + shape.payload_len <= ip::PACKET_LEN_MAX;
    fits && ip_headers_agree(group, head, bytes, shape)
        && (!shape.tcp || tcp_headers_agree(group, head, bytes, shape))
}

fn ip_headers_agree(group: &Group, head: &[u8], bytes: &[u8], shape: &Shape) -> bool {
    if !shape.v4 {
        // Version, traffic class and flow label; hop limit.
        return head[..4] == bytes[..4] && head[7] == bytes[7];
    }
    // Type of service; fragment word and time to live.
    if head[1] != bytes[1] || head[6..9] != bytes[6..9] {
        return false;
    }
    // The id of a packet that cannot be fragmented means nothing (RFC 6864 §4.1).
    let id = |bytes: &[u8]| u16::from_be_bytes([bytes[4], bytes[5]]);
    bytes[6] & 0x40 != 0 || id(bytes) == id(head).wrapping_add(group.members as u16)
}

fn tcp_headers_agree(group: &Group, head: &[u8], bytes: &[u8], shape: &Shape) -> bool {
    let head = &head[shape.ip_len..shape.header_len];
    let this = &bytes[shape.ip_len..shape.header_len];
    let varying = Flags::CWR.with(Flags::FIN).with(Flags::PSH);
    let flags = Flags(this[tcp::FLAGS_AT]);
    let differing = Flags(flags.0 ^ head[tcp::FLAGS_AT]).without(varying);
    this[4..8] == group.next_sequence.to_be_bytes()
        && differing == Flags(0)
        && !flags.any(Flags::CWR)
        // Acknowledgement, data offset; window; urgent pointer and options.
        && head[8..13] == this[8..13]
        && head[14..16] == this[14..16]
        && head[18..] == this[18..]
}

fn closing_flags(bytes: &[u8], shape: &Shape) -> Flags {
    let flags = Flags(bytes[shape.ip_len + tcp::FLAGS_AT]);
    Flags(flags.0 & Flags::FIN.with(Flags::PSH).0)
}

fn checksums_hold(bytes: &[u8], shape: &Shape) -> bool {
    let (ip_header, upper) = bytes.split_at(shape.ip_len);
    (!shape.v4 || Sum::of(ip_header).is_valid())
        && pseudo(ip_header, shape, upper.len()).plus(Sum::of(upper)).is_valid()
}

/// The pseudo header's sum, from the addresses as they lie in the header.
fn pseudo(ip_header: &[u8], shape: &Shape, len: usize) -> Sum {
    let addresses = if shape.v4 { &ip_header[12..20] } else { &ip_header[8..40] };
    let protocol = if shape.tcp { protocol::TCP } else { protocol::UDP };
    Sum::of(addresses).plus_word(u16::from(protocol)).plus_word(len as u16)
}

/// Makes the first packet's headers those of the whole group.
fn rewrite(head: &mut [u8], shape: &Shape, group: &Group) -> virtio::Header {
    let (ip_header, upper) = head.split_at_mut(shape.ip_len);
    let upper_len = group.total_len - shape.ip_len;
    if shape.v4 {
        let old = u16::from_be_bytes([ip_header[2], ip_header[3]]);
        let sum = u16::from_be_bytes([ip_header[10], ip_header[11]]);
        let new = group.total_len as u16;
        put(ip_header, 2, new);
        put(ip_header, 10, checksum::update(sum, old, new));
    } else {
        put(ip_header, 4, upper_len as u16);
    }
    let partial = pseudo(ip_header, shape, upper_len).fold();
    let mut header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: virtio::GSO_UDP_L4,
        hdr_len: shape.header_len as u16,
        gso_size: shape.payload_len as u16,
        csum_start: shape.ip_len as u16,
        csum_offset: udp::CHECKSUM_AT as u16,
    };
    if shape.tcp {
        let flags = Flags(upper[tcp::FLAGS_AT]).with(group.closing);
        upper[tcp::FLAGS_AT] = flags.0;
        header.gso_type = if shape.v4 { virtio::GSO_TCPV4 } else { virtio::GSO_TCPV6 };
        if flags.any(Flags::CWR) {
            header.gso_type |= virtio::GSO_ECN;
        }
        header.csum_offset = tcp::CHECKSUM_AT as u16;
    } else {
        put(upper, 4, upper_len as u16);
    }
    put(upper, usize::from(header.csum_offset), partial);
    header
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests;
