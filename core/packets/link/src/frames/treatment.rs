//! How a packet travels, decided: [`Treatment`] is what is done against loss and disorder, and
//! [`Shape`] is the form that it leaves in. Both are tables over small values; none of them knows
//! a session, a clock or a counter.

use wire::frame::{Chunk, Head, Ordered, Repair};
use wire::ip::protocol;
use wire::superpacket::Superpacket;
use wire::unit::CHUNKS_MAX;
use wire::virtio;

use crate::frames::gather;
use crate::frames::manner::{Manner, limit};
use crate::tuning::Tuning;

/// What the path loses of packets of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing that repair helps against.
    None,
    /// Something, and how much is known.
    Measured,
    /// Something is assumed: nothing is known of the path yet.
    Assumed,
}

/// What a packet is to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Part of a flow that suffers when its order is lost.
    Ordered,
    /// It opens a flow: its loss costs a second.
    Opening,
    /// Anything else.
    Other,
}

/// What is done for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Nothing: it travels as it is.
    Bare,
    /// The other end is told its place in its flow.
    Ordered,
    /// Nothing is lost, but its delay is told: it is in a block, as what is protected is.
    Told,
    /// A block protects it.
    Protected,
}

/// The measures of a packet or superpacket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    segments: usize,
    /// Bytes of its first segment, and of the place in its flow in front of it.
    len: usize,
    /// Bytes of one of its segments' payload.
    segment_len: usize,
    header_len: usize,
    /// Whether a head can say everything of it: the kernel cuts it as its headers say, and no
    /// routing header stands in it.
    is_plain: bool,
}

/// The form in which a packet or superpacket leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One head for all segments, and each segment's payload as a chunk.
    Unit,
    /// It waits for other small ones, to leave with them as a bundle.
    Small,
    /// Each segment is a packet of its own.
    Lone,
}

/// The form in which one segment leaves as a packet of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// As it came.
    Bare,
    /// Whole, in a frame.
    Whole,
    /// It is too large for one frame: its headers as a head, the rest as a chunk.
    Cut,
}

impl Treatment {
    /// What is done for a packet of `class`, which leaves as a unit or not. Whether its delay is
    /// to be told is asked only where nothing else tells it.
    pub(crate) fn of(
        loss: Loss,
        class: Class,
        is_unit: bool,
        tells_delay: impl FnOnce() -> bool,
    ) -> Self {
        match (loss, class) {
            (Loss::Measured, _) | (Loss::Assumed, Class::Ordered | Class::Opening) => {
                Self::Protected
            }
            (Loss::Assumed, Class::Other) if is_unit => Self::Protected,
            // On a path that is not known, what is no part of a flow travels as it is.
            (Loss::Assumed, Class::Other) => Self::Bare,
            // A unit's head always tells its delay.
            (Loss::None, _) if !is_unit && tells_delay() => Self::Told,
            (Loss::None, Class::Ordered) => Self::Ordered,
            (Loss::None, Class::Opening | Class::Other) => Self::Bare,
        }
    }

    /// Whether it is in a block.
    pub(crate) const fn is_in_block(self) -> bool {
        matches!(self, Self::Told | Self::Protected)
    }
}

impl Size {
    pub(crate) fn of(header: virtio::Header, packet: &Superpacket<'_>, class: Class) -> Self {
        let order_len = if class == Class::Ordered { Ordered::FIXED_LEN } else { 0 };
        let inner = packet.packet();
        Self {
            segments: packet.segments(),
            len: order_len + packet.segment_len(0),
            segment_len: packet.segment_size(),
            header_len: packet.header().len(),
            is_plain: inner.protocol() == upper_of(header) && !inner.is_routed(),
        }
    }

    /// Bytes of its first segment, and of the place in its flow in front of it.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// Whether it leaves as a unit. `room` is the largest plaintext of a frame in bytes.
    pub(crate) fn is_unit(self, loss: Loss, class: Class, room: usize, tuning: &Tuning) -> bool {
        let is_framed =
            loss == Loss::Measured || (loss == Loss::Assumed && class == Class::Ordered);
        let is_cut = is_framed && self.len > limit(true, room);
        let segments_min = if is_cut { tuning.unit_cut } else { tuning.unit_segments };
        self.segment_len + Chunk::FIXED_LEN + Repair::FIXED_LEN <= room
            && (segments_min..=CHUNKS_MAX).contains(&self.segments)
            && self.header_len <= Head::HEADER_LEN_MAX
            && self.is_plain
    }
}

impl Shape {
    /// The shape of what is treated so. Small ones wait for each other where the peer reads
    /// `bundles`.
    pub(crate) fn of(
        size: Size,
        is_unit: bool,
        treatment: Treatment,
        room: usize,
        bundles: bool,
    ) -> Self {
        let limit = limit(treatment.is_in_block(), room);
        if bundles && size.segments == 1 && gather::is_small(size.len, limit) {
            Self::Small
        } else if is_unit {
            Self::Unit
        } else {
            Self::Lone
        }
    }
}

impl Alone {
    /// The form of a segment of `len` bytes that is sent in this manner.
    pub(crate) fn of(manner: &Manner, len: usize) -> Self {
        if !manner.protect && manner.tag.is_none() {
            return Self::Bare;
        }
        // Repair chunks are as long as the longest chunk, and say more than it.
        let spent = if manner.protect { Repair::FIXED_LEN } else { 0 };
        if manner.order_len() + len + spent <= manner.room { Self::Whole } else { Self::Cut }
    }
}

/// The protocol that virtio's segmentation type cuts; 255, which is reserved, for none. A packet
/// with extension headers says otherwise, and is cut here.
fn upper_of(header: virtio::Header) -> u8 {
    match header.gso_type & !virtio::GSO_ECN {
        virtio::GSO_TCPV4 | virtio::GSO_TCPV6 => protocol::TCP,
        virtio::GSO_UDP_L4 => protocol::UDP,
        _ => 255,
    }
}

#[cfg(test)]
mod tests;
