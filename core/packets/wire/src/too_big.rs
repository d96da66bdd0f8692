//! The messages that a link itself has to send: that a packet does not fit, and that nothing leads
//! where it goes.

use crate::checksum::{self, Sum};
use crate::icmp::{HEADER_LEN, Icmp, Icmp6};
use crate::ip::protocol;
use crate::packet;

/// Bytes of a packet that is quoted, at most.
const QUOTE_LEN_MAX: usize = 512;
/// Bytes that [`write_too_big`] or [`write_no_route`] writes, at most.
pub const TOO_BIG_LEN_MAX: usize = 40 + HEADER_LEN + QUOTE_LEN_MAX;
const HOP_LIMIT: u8 = 64;

/// Writes what the sender of `packet` is told when only packets of `mtu` bytes fit: "fragmentation
/// needed" (RFC 1191) or "packet too big" (RFC 4443), as if from where it was going. Returns the
/// length; `None` where nothing may be told: about an ICMP error, or what is no packet.
pub fn write_too_big(packet: &[u8], mtu: usize, out: &mut [u8]) -> Option<usize> {
    let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
    write(packet, Told::TooBig(mtu), out)
}

/// Writes what the sender of `packet` is told when nothing leads where it goes: "network
/// unreachable" (RFC 792) or "no route to destination" (RFC 4443), as if from there. Returns the
/// length; `None` as [`write_too_big`].
pub fn write_no_route(packet: &[u8], out: &mut [u8]) -> Option<usize> {
    write(packet, Told::NoRoute, out)
}

/// What a sender is told.
#[derive(Clone, Copy)]
enum Told {
    TooBig(u32),
    NoRoute,
}

fn write(packet: &[u8], told: Told, out: &mut [u8]) -> Option<usize> {
    let quoted = packet::parse_quoted(packet).ok()?;
    let source = quoted.destination();
    let destination = quoted.source();
    let v6 = quoted.version() == 6;
    let is_error = match quoted.transport() {
        Ok(packet::Transport::Icmp(message)) => message.is_error(),
        Ok(packet::Transport::Icmp6(message)) => message.is_error(),
        _ => false,
    };
    if is_error {
        return None;
    }
    let quote = &packet[..packet.len().min(QUOTE_LEN_MAX)];
    let at = if v6 { 40 } else { 20 };
    let len = at + HEADER_LEN + quote.len();
    let out = out.get_mut(..len)?;
    out.fill(0);
    let (ip, message) = out.split_at_mut(at);
    if v6 {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&((len - at) as u16).to_be_bytes());
        ip[6] = protocol::ICMPV6;
        ip[7] = HOP_LIMIT;
        ip[8..24].copy_from_slice(&packet[24..40]);
        ip[24..40].copy_from_slice(&packet[8..24]);
        match told {
            Told::TooBig(mtu) => {
                message[0] = Icmp6::TOO_BIG;
                message[4..8].copy_from_slice(&mtu.to_be_bytes());
            }
            Told::NoRoute => message[0] = Icmp6::UNREACHABLE,
        }
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        ip[8] = HOP_LIMIT;
        ip[9] = protocol::ICMP;
        ip[12..16].copy_from_slice(&packet[16..20]);
        ip[16..20].copy_from_slice(&packet[12..16]);
        let sum = Sum::of(ip).checksum();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        message[0] = Icmp::UNREACHABLE;
        if let Told::TooBig(mtu) = told {
            message[1] = 4;
            message[6..8].copy_from_slice(&u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    message[HEADER_LEN..].copy_from_slice(quote);
    let sum = if v6 {
        let len = message.len() as u32;
        checksum::pseudo(source, destination, protocol::ICMPV6, len).plus(Sum::of(message))
    } else {
        Sum::of(message)
    };
    let sum = sum.checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet of `len` bytes behind its IP header.
    fn packet(v6: bool, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; if v6 { 40 } else { 20 } + len];
        let total = bytes.len() as u16;
        if v6 {
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            (bytes[6], bytes[7], bytes[23], bytes[39]) = (protocol::UDP, 64, 1, 2);
        } else {
            bytes[0] = 0x45;
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            (bytes[8], bytes[9], bytes[15], bytes[19]) = (64, protocol::UDP, 1, 2);
            let sum = Sum::of(&bytes[..20]).checksum();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn nt_08_the_sender_is_told_what_fits() {
        for v6 in [false, true] {
            for len in [16, 1_400] {
                let big = packet(v6, len);
                let mut out = [0xee; TOO_BIG_LEN_MAX];
                let written = write_too_big(&big, 1_280, &mut out).expect("it is told");
                let told = packet::parse(&out[..written]).expect("a packet");
                let view = packet::parse(&big).expect("a packet");
                assert_eq!(told.destination(), view.source());
                let (mtu, quoted) = match told.transport() {
                    Ok(packet::Transport::Icmp(message)) => {
                        (message.next_hop_mtu(), message.quoted())
                    }
                    Ok(packet::Transport::Icmp6(message)) => {
                        (message.next_hop_mtu(), message.quoted())
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(mtu, Some(1_280));
                let quoted = quoted.expect("an error").expect("a packet");
                assert_eq!(quoted.destination(), view.destination());
                let sum = Sum::of(told.payload());
                let pseudo = checksum::pseudo(
                    told.source(),
                    told.destination(),
                    protocol::ICMPV6,
                    told.payload().len() as u32,
                );
                assert!(if v6 { sum.plus(pseudo).is_valid() } else { sum.is_valid() });
                // About an error nothing is told.
                let error = out[..written].to_vec();
                assert_eq!(write_too_big(&error, 576, &mut out), None);
            }
        }
        for v6 in [false, true] {
            let lost = packet(v6, 16);
            let mut out = [0xee; TOO_BIG_LEN_MAX];
            let written = write_no_route(&lost, &mut out).expect("it is told");
            let told = packet::parse(&out[..written]).expect("a packet");
            assert!(told.checksums_hold());
            let kind = match told.transport() {
                Ok(packet::Transport::Icmp(message)) => (message.kind(), message.code()),
                Ok(packet::Transport::Icmp6(message)) => (message.kind(), message.code()),
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, (if v6 { 1 } else { 3 }, 0));
        }
        assert_eq!(write_too_big(&[0x45; 3], 576, &mut [0; TOO_BIG_LEN_MAX]), None);
    }
}
