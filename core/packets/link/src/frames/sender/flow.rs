//! What a packet is of.

use super::*;

/// The tag of a packet that suffers when its flow's order is lost: of TCP with payload.
pub(super) fn flow_tag(packet: &Packet<'_>) -> Option<u8> {
    if packet.protocol() != protocol::TCP {
        return None;
    }
    let Ok(Transport::Tcp(tcp)) = packet.transport() else { return None };
    if tcp.payload().is_empty() {
        return None;
    }
    let addresses = if packet.version() == 4 { 12..20 } else { 8..40 };
    let ports = &packet.payload()[..4];
    let mixed = packet.bytes()[addresses].as_chunks::<4>().0.iter().fold(
        u64::from(u32::from_le_bytes([ports[0], ports[1], ports[2], ports[3]])),
        |mixed, word| {
            (mixed.rotate_left(23) ^ u64::from(u32::from_le_bytes(*word)))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        },
    );
    Some((mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
}
