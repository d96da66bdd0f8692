//! Views of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages.
//!
//! Two types, because the same numbers mean different things in the two, and a filter that
//! forgets one of them must not compile.

use crate::Malformed;

/// Bytes of the fixed part of a message.
pub const HEADER_LEN: usize = 8;

/// A view of one ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a>(Fields<'a>);

impl Icmp<'_> {
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

    /// The next hop's MTU in "fragmentation needed" (RFC 1191), bytes.
    #[must_use]
    pub fn next_hop_mtu(self) -> Option<u32> {
        (self.kind() == Self::UNREACHABLE && self.code() == 4).then(|| u32::from(self.0.word(6)))
    }

    /// Whether this is about another packet, which it quotes. Redirects count.
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(
            self.kind(),
            Self::UNREACHABLE | 4 | Self::REDIRECT | Self::TIME_EXCEEDED | Self::PARAMETER_PROBLEM
        )
    }
}

/// A view of one ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp6<'a>(Fields<'a>);

impl Icmp6<'_> {
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

    /// The next hop's MTU in "packet too big", bytes.
    #[must_use]
    pub fn next_hop_mtu(self) -> Option<u32> {
        let mtu = u32::from(self.0.word(4)) << 16 | u32::from(self.0.word(6));
        (self.kind() == Self::TOO_BIG).then_some(mtu)
    }

    /// Whether this is an error about another packet, which it quotes: types below 128.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.kind() < 128
    }
}

/// What both have in the same places.
macro_rules! message {
    ($name:ident) => {
        impl<'a> $name<'a> {
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

            /// The bytes behind the fixed part.
            #[must_use]
            pub const fn body(self) -> &'a [u8] {
                self.0.body
            }
        }
    };
}

message!(Icmp);
message!(Icmp6);

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
