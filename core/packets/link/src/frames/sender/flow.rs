//! What a packet is of.

use super::*;

/// The tag of a packet that suffers when its flow's order is lost: of TCP and UDP with payload.
/// QUIC takes what three others overtook for lost, and who shows a video asks for it again. What
/// steers is better new than in order.
pub(super) fn flow_tag(packet: &Packet<'_>) -> Option<u8> {
    let is_ordered = match packet.transport() {
        Ok(Transport::Tcp(tcp)) => !tcp.payload().is_empty(),
        Ok(Transport::Udp(udp)) => !udp.payload().is_empty() && !steers(packet.traffic_class()),
        _ => false,
    };
    if !is_ordered {
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
