//! WireGuard's four messages: constants, lengths, field views and builders.
//!
//! Source: the WireGuard paper §5.4, and <https://www.wireguard.com/protocol/>. All integers are
//! little endian. Nothing here is cryptography: fields are bytes.

use crate::Malformed;

/// Message type of a handshake initiation.
pub const TYPE_INITIATION: u32 = 1;
/// Message type of a handshake response.
pub const TYPE_RESPONSE: u32 = 2;
/// Message type of a cookie reply.
pub const TYPE_COOKIE_REPLY: u32 = 3;
/// Message type of transport data.
pub const TYPE_TRANSPORT: u32 = 4;

/// Bytes of a handshake initiation.
pub const INITIATION_LEN: usize = 148;
/// Bytes of a handshake response.
pub const RESPONSE_LEN: usize = 92;
/// Bytes of a cookie reply.
pub const COOKIE_REPLY_LEN: usize = 64;
/// Bytes in front of a transport message's ciphertext.
pub const TRANSPORT_HEADER_LEN: usize = 16;
/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a keepalive: a transport message that carries nothing, the shortest there is.
pub const KEEPALIVE_LEN: usize = TRANSPORT_HEADER_LEN + TAG_LEN;
/// Bytes that a transport message adds to its (padded) packet.
pub const OVERHEAD_LEN: usize = TRANSPORT_HEADER_LEN + TAG_LEN;
/// Plaintext is padded to a multiple of this many bytes.
pub const PADDING: usize = 16;
/// Bytes of mac1 and of mac2.
pub const MAC_LEN: usize = 16;

/// A datagram sorted by type and length; nothing in it is authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// See [`Initiation`] for its fields.
    Initiation(&'a [u8; INITIATION_LEN]),
    /// See [`Response`] for its fields.
    Response(&'a [u8; RESPONSE_LEN]),
    /// See [`CookieReply`] for its fields.
    CookieReply(&'a [u8; COOKIE_REPLY_LEN]),
    /// Transport data: the ciphertext and tag follow at [`TRANSPORT_HEADER_LEN`].
    Transport {
        /// The receiver's session index.
        receiver: u32,
        /// The nonce.
        counter: u64,
    },
}

/// Sorts a datagram by its type and checks its length.
///
/// # Errors
/// [`Malformed::MessageType`] for an unknown type or non-zero reserved bytes,
/// [`Malformed::MessageLength`] for the wrong length.
pub fn classify(datagram: &[u8]) -> Result<Message<'_>, Malformed> {
    let Some(kind) = datagram.first_chunk() else {
        return Err(Malformed::MessageLength);
    };
    let wrong = Malformed::MessageLength;
    match u32::from_le_bytes(*kind) {
        TYPE_TRANSPORT if datagram.len() >= KEEPALIVE_LEN => {
            Ok(Message::Transport { receiver: u32_at(datagram, 4), counter: u64_at(datagram, 8) })
        }
        TYPE_TRANSPORT => Err(wrong),
        TYPE_INITIATION => Ok(Message::Initiation(datagram.try_into().map_err(|_| wrong)?)),
        TYPE_RESPONSE => Ok(Message::Response(datagram.try_into().map_err(|_| wrong)?)),
        TYPE_COOKIE_REPLY => Ok(Message::CookieReply(datagram.try_into().map_err(|_| wrong)?)),
        _ => Err(Malformed::MessageType),
    }
}

/// Fields of a handshake initiation.
#[derive(Clone, Copy, Debug)]
pub struct Initiation<'a>(pub &'a [u8; INITIATION_LEN]);

impl<'a> Initiation<'a> {
    /// The sender's index.
    #[must_use]
    pub fn sender(self) -> u32 {
        u32_at(self.0, 4)
    }

    /// The unencrypted ephemeral public key.
    #[must_use]
    pub fn ephemeral(self) -> &'a [u8; 32] {
        field::<8, 32>(self.0)
    }

    /// The encrypted static public key with its tag.
    #[must_use]
    pub fn encrypted_static(self) -> &'a [u8; 48] {
        field::<40, 48>(self.0)
    }

    /// The encrypted TAI64N timestamp with its tag.
    #[must_use]
    pub fn encrypted_timestamp(self) -> &'a [u8; 28] {
        field::<88, 28>(self.0)
    }

    /// What mac1 covers.
    #[must_use]
    pub fn before_mac1(self) -> &'a [u8; 116] {
        field::<0, 116>(self.0)
    }

    /// The first mac.
    #[must_use]
    pub fn mac1(self) -> &'a [u8; MAC_LEN] {
        field::<116, MAC_LEN>(self.0)
    }

    /// What mac2 covers.
    #[must_use]
    pub fn before_mac2(self) -> &'a [u8; 132] {
        field::<0, 132>(self.0)
    }

    /// The second mac; zero when the sender holds no cookie.
    #[must_use]
    pub fn mac2(self) -> &'a [u8; MAC_LEN] {
        field::<132, MAC_LEN>(self.0)
    }

    /// Writes a message with both macs zero, for the caller to fill.
    #[must_use]
    pub fn build(
        sender: u32,
        ephemeral: &[u8; 32],
        encrypted_static: &[u8; 48],
        encrypted_timestamp: &[u8; 28],
    ) -> [u8; INITIATION_LEN] {
        let mut message = [0; INITIATION_LEN];
        message[..4].copy_from_slice(&TYPE_INITIATION.to_le_bytes());
        message[4..8].copy_from_slice(&sender.to_le_bytes());
        message[8..40].copy_from_slice(ephemeral);
        message[40..88].copy_from_slice(encrypted_static);
        message[88..116].copy_from_slice(encrypted_timestamp);
        message
    }
}

/// Fields of a handshake response.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a>(pub &'a [u8; RESPONSE_LEN]);

impl<'a> Response<'a> {
    /// The sender's index.
    #[must_use]
    pub fn sender(self) -> u32 {
        u32_at(self.0, 4)
    }

    /// The index that the initiation carried.
    #[must_use]
    pub fn receiver(self) -> u32 {
        u32_at(self.0, 8)
    }

    /// The unencrypted ephemeral public key.
    #[must_use]
    pub fn ephemeral(self) -> &'a [u8; 32] {
        field::<12, 32>(self.0)
    }

    /// The tag over nothing that proves the keys.
    #[must_use]
    pub fn encrypted_nothing(self) -> &'a [u8; TAG_LEN] {
        field::<44, TAG_LEN>(self.0)
    }

    /// What mac1 covers.
    #[must_use]
    pub fn before_mac1(self) -> &'a [u8; 60] {
        field::<0, 60>(self.0)
    }

    /// The first mac.
    #[must_use]
    pub fn mac1(self) -> &'a [u8; MAC_LEN] {
        field::<60, MAC_LEN>(self.0)
    }

    /// What mac2 covers.
    #[must_use]
    pub fn before_mac2(self) -> &'a [u8; 76] {
        field::<0, 76>(self.0)
    }

    /// The second mac; zero when the sender holds no cookie.
    #[must_use]
    pub fn mac2(self) -> &'a [u8; MAC_LEN] {
        field::<76, MAC_LEN>(self.0)
    }

    /// Writes a message with both macs zero, for the caller to fill.
    #[must_use]
    pub fn build(
        sender: u32,
        receiver: u32,
        ephemeral: &[u8; 32],
        encrypted_nothing: &[u8; TAG_LEN],
    ) -> [u8; RESPONSE_LEN] {
        let mut message = [0; RESPONSE_LEN];
        message[..4].copy_from_slice(&TYPE_RESPONSE.to_le_bytes());
        message[4..8].copy_from_slice(&sender.to_le_bytes());
        message[8..12].copy_from_slice(&receiver.to_le_bytes());
        message[12..44].copy_from_slice(ephemeral);
        message[44..60].copy_from_slice(encrypted_nothing);
        message
    }
}

/// Fields of a cookie reply.
#[derive(Clone, Copy, Debug)]
pub struct CookieReply<'a>(pub &'a [u8; COOKIE_REPLY_LEN]);

impl<'a> CookieReply<'a> {
    /// The sender index of the message that this answers.
    #[must_use]
    pub fn receiver(self) -> u32 {
        u32_at(self.0, 4)
    }

    /// The random 24-byte nonce.
    #[must_use]
    pub fn nonce(self) -> &'a [u8; 24] {
        field::<8, 24>(self.0)
    }

    /// The encrypted cookie with its tag.
    #[must_use]
    pub fn encrypted_cookie(self) -> &'a [u8; 32] {
        field::<32, 32>(self.0)
    }

    /// Writes a message.
    #[must_use]
    pub fn build(
        receiver: u32,
        nonce: &[u8; 24],
        encrypted_cookie: &[u8; 32],
    ) -> [u8; COOKIE_REPLY_LEN] {
        let mut message = [0; COOKIE_REPLY_LEN];
        message[..4].copy_from_slice(&TYPE_COOKIE_REPLY.to_le_bytes());
        message[4..8].copy_from_slice(&receiver.to_le_bytes());
        message[8..32].copy_from_slice(nonce);
        message[32..].copy_from_slice(encrypted_cookie);
        message
    }
}

/// The counter of a transport message; zero of anything shorter than its header.
#[inline]
#[must_use]
pub fn counter(datagram: &[u8]) -> u64 {
    let header = datagram.first_chunk::<TRANSPORT_HEADER_LEN>();
    header.and_then(|header| header.last_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The header of a transport message.
#[must_use]
pub fn transport_header(receiver: u32, counter: u64) -> [u8; TRANSPORT_HEADER_LEN] {
    let mut header = [0; TRANSPORT_HEADER_LEN];
    header[..4].copy_from_slice(&TYPE_TRANSPORT.to_le_bytes());
    header[4..8].copy_from_slice(&receiver.to_le_bytes());
    header[8..].copy_from_slice(&counter.to_le_bytes());
    header
}

/// Length to which a packet of `len` bytes is padded before it is sealed: a multiple of 16, but
/// never past the interface's `mtu` (threat DP-24). A packet longer than the MTU is padded as its
/// last MTU-sized part would be; an `mtu` of zero means there is no limit.
#[must_use]
pub const fn padded_len(len: usize, mtu: usize) -> usize {
    let last = if mtu != 0 && len > mtu { len % mtu } else { len };
    let padded = last.next_multiple_of(PADDING);
    let padded = if mtu != 0 && padded > mtu { mtu } else { padded };
    len - last + padded
}

fn field<const AT: usize, const LEN: usize>(bytes: &[u8]) -> &[u8; LEN] {
    bytes[AT..].first_chunk().expect("every field lies inside its fixed-length message")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_type_is_accepted_at_its_own_length_only() {
        for len in 0..400 {
            for kind in 0..=5u8 {
                let mut datagram = vec![0; len];
                if let Some(first) = datagram.first_mut() {
                    *first = kind;
                }
                let right = match kind {
                    1 => len == 148,
                    2 => len == 92,
                    3 => len == 64,
                    4 => len >= 32,
                    _ => false,
                };
                assert_eq!(classify(&datagram).is_ok(), right, "type {kind}, {len} bytes");
            }
        }
    }

    #[test]
    fn reserved_bytes_must_be_zero() {
        for at in 1..4 {
            let mut datagram = [0; 148];
            datagram[0] = 1;
            datagram[at] = 1;
            assert_eq!(classify(&datagram), Err(Malformed::MessageType));
        }
    }

    #[test]
    fn a_built_initiation_has_its_fields_where_the_paper_puts_them() {
        let mut message = Initiation::build(0x0403_0201, &[5; 32], &[6; 48], &[7; 28]);
        message[116..132].fill(8);
        message[132..].fill(9);
        assert_eq!(message[..8], [1, 0, 0, 0, 1, 2, 3, 4]);
        let Ok(Message::Initiation(raw)) = classify(&message) else {
            panic!("it is an initiation");
        };
        let view = Initiation(raw);
        assert_eq!(view.sender(), 0x0403_0201);
        assert_eq!((view.ephemeral(), view.encrypted_static()), (&[5; 32], &[6; 48]));
        assert_eq!(view.encrypted_timestamp(), &[7; 28]);
        assert_eq!((view.mac1(), view.mac2()), (&[8; 16], &[9; 16]));
        assert_eq!(view.before_mac1()[..], message[..116]);
        assert_eq!(view.before_mac2()[..], message[..132]);
    }

    #[test]
    fn a_built_response_and_cookie_reply_read_back() {
        let mut message = Response::build(1, 2, &[3; 32], &[4; 16]);
        message[60..76].fill(5);
        message[76..].fill(6);
        let Ok(Message::Response(raw)) = classify(&message) else {
            panic!("it is a response");
        };
        let view = Response(raw);
        assert_eq!((view.sender(), view.receiver()), (1, 2));
        assert_eq!((view.ephemeral(), view.encrypted_nothing()), (&[3; 32], &[4; 16]));
        assert_eq!((view.mac1(), view.mac2()), (&[5; 16], &[6; 16]));
        assert_eq!(view.before_mac1()[..], message[..60]);
        assert_eq!(view.before_mac2()[..], message[..76]);

        let message = CookieReply::build(7, &[8; 24], &[9; 32]);
        let Ok(Message::CookieReply(raw)) = classify(&message) else {
            panic!("it is a cookie reply");
        };
        let view = CookieReply(raw);
        assert_eq!((view.receiver(), view.nonce()), (7, &[8; 24]));
        assert_eq!(view.encrypted_cookie(), &[9; 32]);
    }

    #[test]
    fn a_transport_header_reads_back() {
        let mut datagram = vec![0; KEEPALIVE_LEN];
        let header = transport_header(0xdead_beef, 0x0123_4567_89ab_cdef);
        datagram[..TRANSPORT_HEADER_LEN].copy_from_slice(&header);
        assert_eq!(header[..8], [4, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde]);
        let expected = Message::Transport { receiver: 0xdead_beef, counter: 0x0123_4567_89ab_cdef };
        assert_eq!(classify(&datagram), Ok(expected));
    }

    #[test]
    fn dp_24_padding_stops_at_the_mtu() {
        let table = [
            (0, 1420, 0),
            (1, 1420, 16),
            (16, 1420, 16),
            (17, 1420, 32),
            (1408, 1420, 1408),
            (1409, 1420, 1420),
            (1420, 1420, 1420),
            (1421, 1420, 1436),
            (2840, 1420, 2840),
            (2839, 1420, 2840),
            (20, 0, 32),
        ];
        for (len, mtu, padded) in table {
            assert_eq!(padded_len(len, mtu), padded, "{len} bytes at MTU {mtu}");
        }
    }

    proptest! {
        #[test]
        fn dp_24_padding_never_shortens_and_never_passes_the_mtu(
            len in 0usize..70_000, mtu in 0usize..70_000,
        ) {
            let padded = padded_len(len, mtu);
            prop_assert!(padded >= len && padded < len + PADDING);
            if mtu != 0 && len <= mtu {
                prop_assert!(padded <= mtu);
                prop_assert!(padded.is_multiple_of(PADDING) || padded == mtu);
            }
        }

        #[test]
        fn any_datagram_is_a_message_or_a_reason(
            mut datagram in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..6,
        ) {
            let _ = classify(&datagram);
            if datagram.len() >= 4 {
                datagram[..4].copy_from_slice(&[kind, 0, 0, 0]);
                let _ = classify(&datagram);
            }
        }
    }
}
