//! STUN binding requests and responses (RFC 8489): from where a server sees us.
//!
//! Only what a node and the server that it asks need: no credentials, no TCP, no old clients
//! without the magic cookie. A request is padded so that no answer of ours is ever longer than
//! what was asked (threat NT-01); the padding is a SOFTWARE attribute, which every server skips.
//! The first two bytes of a message differ from those of every WireGuard message, so one socket
//! serves both.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Malformed;

/// Bytes of the header.
pub const HEADER_LEN: usize = 20;
/// Bytes of our requests: header, padding, fingerprint.
pub const REQUEST_LEN: usize = HEADER_LEN + 4 + SOFTWARE.len() + FINGERPRINT_LEN;
/// Bytes of our longest response: header, an IPv6 address, fingerprint.
pub const RESPONSE_LEN_MAX: usize = HEADER_LEN + 4 + 20 + FINGERPRINT_LEN;

const MAGIC: u32 = 0x2112_a442;
const TYPE_REQUEST: u16 = 0x0001;
const TYPE_RESPONSE: u16 = 0x0101;
const MAPPED_ADDRESS: u16 = 0x0001;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const SOFTWARE_ATTRIBUTE: u16 = 0x8022;
const FINGERPRINT: u16 = 0x8028;
const FINGERPRINT_LEN: usize = 8;
const FINGERPRINT_XOR: u32 = 0x5354_554e;
const FAMILY_V4: u8 = 1;
const FAMILY_V6: u8 = 2;
/// Its length is a multiple of four, and makes a request as long as the longest response.
const SOFTWARE: &[u8; 20] = b"warren              ";

/// What ties an answer to its question: 96 random bits.
pub type Transaction = [u8; 12];

/// A message as parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A binding request.
    Request(Transaction),
    /// A binding response, and where the server saw the request come from; `None` if it does not
    /// say so in a way known here.
    Response(Transaction, Option<SocketAddr>),
}

/// Reads a message. A fingerprint may be absent; if it is there it must be right.
///
/// # Errors
/// [`Malformed::Truncated`] below 20 bytes; [`Malformed::MessageType`] for anything but a binding
/// request or response with the magic cookie, or a wrong fingerprint; [`Malformed::MessageLength`]
/// when lengths do not add up.
pub fn parse(datagram: &[u8]) -> Result<Message, Malformed> {
    let (header, attributes) =
        datagram.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Truncated)?;
    let kind = u16_at(header, 0);
    let is_known = matches!(kind, TYPE_REQUEST | TYPE_RESPONSE);
    if !is_known || u32_at(header, 4) != MAGIC {
        return Err(Malformed::MessageType);
    }
    if usize::from(u16_at(header, 2)) != attributes.len() || !attributes.len().is_multiple_of(4) {
        return Err(Malformed::MessageLength);
    }
    let transaction = *header.last_chunk().unwrap_or(&[0; 12]);
    let mapped = read_attributes(datagram, &transaction)?;
    Ok(if kind == TYPE_REQUEST {
        Message::Request(transaction)
    } else {
        Message::Response(transaction, mapped)
    })
}

/// A binding request.
#[must_use]
pub fn request(transaction: &Transaction) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    write_header(TYPE_REQUEST, transaction, &mut bytes);
    write_attribute(SOFTWARE_ATTRIBUTE, SOFTWARE, &mut bytes[HEADER_LEN..]);
    write_fingerprint(&mut bytes);
    bytes
}

/// Writes the response to a request that came from `from` to the start of `out`; returns its
/// length, 40 or 52 bytes.
///
/// # Panics
/// When `out` is shorter than [`RESPONSE_LEN_MAX`].
pub fn write_response(transaction: &Transaction, from: SocketAddr, out: &mut [u8]) -> usize {
    let mut value = [0; 20];
    let value_len = write_xored(transaction, from, &mut value);
    let len = HEADER_LEN + 4 + value_len + FINGERPRINT_LEN;
    let bytes = &mut out[..len];
    write_header(TYPE_RESPONSE, transaction, bytes);
    write_attribute(XOR_MAPPED_ADDRESS, &value[..value_len], &mut bytes[HEADER_LEN..]);
    write_fingerprint(bytes);
    len
}

/// The address in the attributes of a message whose length was checked.
fn read_attributes(
    datagram: &[u8],
    transaction: &Transaction,
) -> Result<Option<SocketAddr>, Malformed> {
    let mut xored = None;
    let mut plain = None;
    let mut at = HEADER_LEN;
    while at < datagram.len() {
        let len = usize::from(u16_at(datagram, at + 2));
        let value = datagram.get(at + 4..at + 4 + len).ok_or(Malformed::MessageLength)?;
        match u16_at(datagram, at) {
            // The first of a kind counts (RFC 8489 section 14).
            XOR_MAPPED_ADDRESS if xored.is_none() => xored = read_address(value, Some(transaction)),
            MAPPED_ADDRESS if plain.is_none() => plain = read_address(value, None),
            FINGERPRINT => {
                let is_right = len == 4 && u32_at(value, 0) == fingerprint(&datagram[..at]);
                // Nothing may follow it.
                if !is_right || at + FINGERPRINT_LEN != datagram.len() {
                    return Err(Malformed::MessageType);
                }
            }
            _ => {}
        }
        at += 4 + len.next_multiple_of(4);
    }
    Ok(xored.or(plain))
}

/// An address attribute's value; `None` for a family or a length that is not known.
fn read_address(value: &[u8], transaction: Option<&Transaction>) -> Option<SocketAddr> {
    let (&[_, family, high, low], address) = value.split_first_chunk()?;
    let mask = transaction.map_or([0; 16], mask);
    let port = u16::from_be_bytes([high ^ mask[0], low ^ mask[1]]);
    let ip: IpAddr = match family {
        FAMILY_V4 => {
            let bytes: [u8; 4] = address.try_into().ok()?;
            Ipv4Addr::from(std::array::from_fn(|i| bytes[i] ^ mask[i])).into()
        }
        FAMILY_V6 => {
            let bytes: [u8; 16] = address.try_into().ok()?;
            Ipv6Addr::from(std::array::from_fn(|i| bytes[i] ^ mask[i])).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// What addresses are combined with, so that no translator on the way "mends" them.
fn mask(transaction: &Transaction) -> [u8; 16] {
    let mut mask = [0; 16];
    mask[..4].copy_from_slice(&MAGIC.to_be_bytes());
    mask[4..].copy_from_slice(transaction);
    mask
}

fn write_xored(transaction: &Transaction, address: SocketAddr, value: &mut [u8; 20]) -> usize {
    let mask = mask(transaction);
    let [high, low] = address.port().to_be_bytes();
    value[2..4].copy_from_slice(&[high ^ mask[0], low ^ mask[1]]);
    let mut write = |family, bytes: &[u8]| {
        value[1] = family;
        for (i, byte) in bytes.iter().enumerate() {
            value[4 + i] = byte ^ mask[i];
        }
        4 + bytes.len()
    };
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => write(FAMILY_V4, &ip.octets()),
        IpAddr::V6(ip) => write(FAMILY_V6, &ip.octets()),
    }
}

fn write_header(kind: u16, transaction: &Transaction, bytes: &mut [u8]) {
    let len = (bytes.len() - HEADER_LEN) as u16;
    bytes[..2].copy_from_slice(&kind.to_be_bytes());
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes[4..8].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[8..HEADER_LEN].copy_from_slice(transaction);
}

fn write_attribute(kind: u16, value: &[u8], out: &mut [u8]) {
    out[..2].copy_from_slice(&kind.to_be_bytes());
    out[2..4].copy_from_slice(&(value.len() as u16).to_be_bytes());
    out[4..4 + value.len()].copy_from_slice(value);
}

/// Fills in the fingerprint, which is the message's last attribute.
fn write_fingerprint(bytes: &mut [u8]) {
    let at = bytes.len() - FINGERPRINT_LEN;
    let sum = fingerprint(&bytes[..at]);
    write_attribute(FINGERPRINT, &sum.to_be_bytes(), &mut bytes[at..]);
}

/// CRC-32 of what stands before the fingerprint, combined with "STUN" (section 14.7).
fn fingerprint(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !sum ^ FINGERPRINT_XOR
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wireguard;

    /// RFC 5769 section 2.1.
    const SAMPLE_REQUEST: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\
        \xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x10STUN test client\x00\x24\x00\x04\x6e\x00\x01\xff\
        \x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\
        \x00\x06\x00\x09evtj:h6vY\x20\x20\x20\x00\x08\x00\x14\
        \x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\
        \x80\x28\x00\x04\xe5\x7a\x3b\xcf";
    /// RFC 5769 section 2.2.
    const SAMPLE_V4: &[u8] = b"\x01\x01\x00\x3c\x21\x12\xa4\x42\
        \xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\x80\x22\x00\x0btest vector\x20\
        \x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43\x00\x08\x00\x14\
        \x2b\x91\xf5\x99\xfd\x9e\x90\xc3\x8c\x74\x89\xf9\x2a\xf9\xba\x53\xf0\x6b\xe7\xd7\
        \x80\x28\x00\x04\xc0\x7d\x4c\x96";
    /// RFC 5769 section 2.3.
    const SAMPLE_V6: &[u8] = b"\x01\x01\x00\x48\x21\x12\xa4\x42\
        \xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\x80\x22\x00\x0btest vector\x20\
        \x00\x20\x00\x14\x00\x02\xa1\x47\
        \x01\x13\xa9\xfa\xa5\xd3\xf1\x79\xbc\x25\xf4\xb5\xbe\xd2\xb9\xd9\x00\x08\x00\x14\
        \xa3\x82\x95\x4e\x4b\xe6\x7b\xf1\x17\x84\xc9\x7c\x82\x92\xc2\x75\xbf\xe3\xed\x41\
        \x80\x28\x00\x04\xc8\xfb\x0b\x4c";
    const SAMPLE_TRANSACTION: Transaction = *b"\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae";

    #[test]
    fn nt_03_the_test_vectors_of_rfc_5769_are_read() {
        let address = |text: &str| Some(text.parse().expect("an address"));
        let table = [
            (SAMPLE_REQUEST, Message::Request(SAMPLE_TRANSACTION)),
            (SAMPLE_V4, Message::Response(SAMPLE_TRANSACTION, address("192.0.2.1:32853"))),
            (
                SAMPLE_V6,
                Message::Response(
                    SAMPLE_TRANSACTION,
                    address("[2001:db8:1234:5678:11:2233:4455:6677]:32853"),
                ),
            ),
        ];
        for (bytes, message) in table {
            assert_eq!(parse(bytes), Ok(message));
            for len in 0..bytes.len() {
                assert!(parse(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
            }
            // The fingerprint covers everything but its own type, without which it is none.
            for at in (0..bytes.len()).filter(|at| at + 8 != bytes.len() && at + 7 != bytes.len()) {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 0x10;
                assert!(parse(&bytes).is_err(), "byte {at} differs");
            }
        }
    }

    #[test]
    fn nt_01_no_response_is_longer_than_a_request() {
        assert_eq!(request(&[7; 12]).len(), RESPONSE_LEN_MAX);
        let mut out = [0; RESPONSE_LEN_MAX];
        for (from, len) in
            [("192.0.2.1:9", 40), ("[2001:db8::1]:9", 52), ("[::ffff:1.2.3.4]:9", 40)]
        {
            let from: SocketAddr = from.parse().expect("an address");
            assert_eq!(write_response(&[7; 12], from, &mut out), len);
            let seen = SocketAddr::new(from.ip().to_canonical(), from.port());
            assert_eq!(parse(&out[..len]), Ok(Message::Response([7; 12], Some(seen))));
        }
        assert_eq!(parse(&request(&[7; 12])), Ok(Message::Request([7; 12])));
    }

    #[test]
    fn an_old_servers_address_is_taken_if_there_is_no_other() {
        let mut bytes = [0; HEADER_LEN + 12];
        write_header(TYPE_RESPONSE, &[1; 12], &mut bytes);
        write_attribute(MAPPED_ADDRESS, &[0, 1, 0, 80, 192, 0, 2, 1], &mut bytes[HEADER_LEN..]);
        let address = "192.0.2.1:80".parse().expect("an address");
        assert_eq!(parse(&bytes), Ok(Message::Response([1; 12], Some(address))));
        bytes[HEADER_LEN + 5] = 3;
        assert_eq!(parse(&bytes), Ok(Message::Response([1; 12], None)), "an unknown family");
    }

    proptest! {
        #[test]
        fn nt_03_any_bytes_are_read_or_refused_and_never_wireguard(
            kind in 0..0x0112_u16, attributes in proptest::collection::vec(any::<u32>(), 0..20),
            raw in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = parse(&raw);
            let mut bytes = vec![0; HEADER_LEN];
            bytes.extend(attributes.iter().flat_map(|word| {
                let [a, b, _, d] = word.to_be_bytes();
                [a & 0x80, b & 0x2f, 0, d % 24]
            }));
            write_header(kind, &[3; 12], &mut bytes);
            if parse(&bytes).is_ok() {
                prop_assert!(wireguard::classify(&bytes).is_err());
            }
        }

        #[test]
        fn nt_03_what_is_written_is_read(
            transaction: [u8; 12], ip: u128, v4: bool, port: u16,
        ) {
            let ip: IpAddr = if v4 {
                Ipv4Addr::from_bits(ip as u32).into()
            } else {
                Ipv6Addr::from_bits(ip).into()
            };
            let mut out = [0xee; RESPONSE_LEN_MAX];
            let len = write_response(&transaction, SocketAddr::new(ip, port), &mut out);
            let seen = SocketAddr::new(ip.to_canonical(), port);
            prop_assert_eq!(parse(&out[..len]), Ok(Message::Response(transaction, Some(seen))));
            prop_assert!(wireguard::classify(&out[..len]).is_err());
            prop_assert!(wireguard::classify(&request(&transaction)).is_err());
        }
    }
}
