//! Views of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages.
//!
//! [`write_too_big`] makes the one message that a link itself has to send.
//!
//! Two types, because the same numbers mean different things in the two, and a filter that
//! forgets one of them must not compile.

use crate::Malformed;
use crate::checksum::{self, Sum};
use crate::ip::protocol;
use crate::packet::{self, Packet};

/// Bytes of the fixed part of a message.
pub const HEADER_LEN: usize = 8;

/// A view of one ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a>(Fields<'a>);

impl<'a> Icmp<'a> {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable; code 4 is "fragmentation needed".
    pub const UNREACHABLE: u8 = 3;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;

    /// Views what follows the IP headers.
    ///
    /// # Errors
    /// [`Malformed::TransportTruncated`].
    pub fn view(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Fields::view(bytes).map(Self)
    }

    /// The message type.
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.0.head[0]
    }

    /// The code within the type.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0.head[1]
    }

    /// The checksum field.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        self.0.word(2)
    }

    /// The identifier of an echo request or reply.
    #[must_use]
    pub fn echo_identifier(self) -> Option<u16> {
        matches!(self.kind(), Self::ECHO_REQUEST | Self::ECHO_REPLY).then(|| self.0.word(4))
    }

    /// The next hop's MTU in "fragmentation needed" (RFC 1191), bytes.
    #[must_use]
    pub fn next_hop_mtu(self) -> Option<u32> {
        (self.kind() == Self::UNREACHABLE && self.code() == 4).then(|| u32::from(self.0.word(6)))
    }

    /// The bytes behind the fixed part.
    #[must_use]
    pub const fn body(self) -> &'a [u8] {
        self.0.body
    }

    /// Whether this is about another packet, which it quotes. Redirects count.
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(
            self.kind(),
            Self::UNREACHABLE | 4 | Self::REDIRECT | Self::TIME_EXCEEDED | Self::PARAMETER_PROBLEM
        )
    }

    /// The packet that an error quotes, or `None` for other messages.
    #[must_use]
    pub fn quoted(self) -> Option<Result<Packet<'a>, Malformed>> {
        self.is_error().then(|| packet::parse_quoted(self.body()))
    }
}

/// A view of one ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp6<'a>(Fields<'a>);

impl<'a> Icmp6<'a> {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;

    /// Views what follows the IP headers.
    ///
    /// # Errors
    /// [`Malformed::TransportTruncated`].
    pub fn view(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Fields::view(bytes).map(Self)
    }

    /// The message type.
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.0.head[0]
    }

    /// The code within the type.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0.head[1]
    }

    /// The checksum field.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        self.0.word(2)
    }

    /// The identifier of an echo request or reply.
    #[must_use]
    pub fn echo_identifier(self) -> Option<u16> {
        matches!(self.kind(), Self::ECHO_REQUEST | Self::ECHO_REPLY).then(|| self.0.word(4))
    }

    /// The next hop's MTU in "packet too big", bytes.
    #[must_use]
    pub fn next_hop_mtu(self) -> Option<u32> {
        let mtu = u32::from(self.0.word(4)) << 16 | u32::from(self.0.word(6));
        (self.kind() == Self::TOO_BIG).then_some(mtu)
    }

    /// The bytes behind the fixed part.
    #[must_use]
    pub const fn body(self) -> &'a [u8] {
        self.0.body
    }

    /// Whether this is an error about another packet, which it quotes: types below 128.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.kind() < 128
    }

    /// The packet that an error quotes, or `None` for other messages.
    #[must_use]
    pub fn quoted(self) -> Option<Result<Packet<'a>, Malformed>> {
        self.is_error().then(|| packet::parse_quoted(self.body()))
    }
}

#[derive(Clone, Copy, Debug)]
struct Fields<'a> {
    head: &'a [u8; HEADER_LEN],
    body: &'a [u8],
}

impl<'a> Fields<'a> {
    fn view(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, body) = bytes.split_first_chunk().ok_or(Malformed::TransportTruncated)?;
        Ok(Self { head, body })
    }

    const fn word(self, at: usize) -> u16 {
        u16::from_be_bytes([self.head[at], self.head[at + 1]])
    }
}

/// Bytes of what [`write_too_big`] quotes of a packet, at most.
const QUOTE_LEN_MAX: usize = 512;
/// Bytes that [`write_too_big`] writes, at most.
pub const TOO_BIG_LEN_MAX: usize = 40 + HEADER_LEN + QUOTE_LEN_MAX;
const HOP_LIMIT: u8 = 64;

/// Writes what the sender of `packet` is told when only packets of `mtu` bytes fit: "fragmentation
/// needed" (RFC 1191) or "packet too big" (RFC 4443), as if from where it was going. Returns the
/// length; `None` where nothing may be told: about an ICMP error, or what is no packet.
pub fn write_too_big(packet: &[u8], mtu: usize, out: &mut [u8]) -> Option<usize> {
    let quoted = packet::parse_quoted(packet).ok()?;
    let (source, destination) = (quoted.destination(), quoted.source());
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
        (ip[6], ip[7]) = (protocol::ICMPV6, HOP_LIMIT);
        ip[8..24].copy_from_slice(&packet[24..40]);
        ip[24..40].copy_from_slice(&packet[8..24]);
        message[0] = Icmp6::TOO_BIG;
        message[4..8].copy_from_slice(&(mtu as u32).to_be_bytes());
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        (ip[8], ip[9]) = (HOP_LIMIT, protocol::ICMP);
        ip[12..16].copy_from_slice(&packet[16..20]);
        ip[16..20].copy_from_slice(&packet[12..16]);
        let sum = Sum::of(ip).checksum();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        (message[0], message[1]) = (Icmp::UNREACHABLE, 4);
        message[6..8].copy_from_slice(&u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes());
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
        assert_eq!(write_too_big(&[0x45; 3], 576, &mut [0; TOO_BIG_LEN_MAX]), None);
    }
}
