//! A view of one TCP segment (RFC 9293 §3.1).

use crate::Malformed;

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the flags octet in the header.
pub const FLAGS_AT: usize = 13;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 16;

/// The flags octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether any of `other`'s flags is set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set but for `other`'s flags.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A view of one TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    bytes: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Views what follows the IP headers.
    ///
    /// # Errors
    /// [`Malformed::TransportTruncated`] or [`Malformed::TcpHeaderLength`].
    pub fn view(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::TransportTruncated);
        }
        let view = Self { bytes };
        if view.header_len() < HEADER_LEN || view.header_len() > bytes.len() {
            return Err(Malformed::TcpHeaderLength);
        }
        Ok(view)
    }

    /// Source port.
    #[must_use]
    pub const fn source_port(self) -> u16 {
        u16::from_be_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Destination port.
    #[must_use]
    pub const fn destination_port(self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    /// Sequence number of the first payload byte (of SYN, where it is set).
    #[must_use]
    pub const fn sequence(self) -> u32 {
        u32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// Acknowledgement number.
    #[must_use]
    pub const fn acknowledgement(self) -> u32 {
        u32::from_be_bytes([self.bytes[8], self.bytes[9], self.bytes[10], self.bytes[11]])
    }

    /// Bytes of the header with options.
    #[must_use]
    pub const fn header_len(self) -> usize {
        (self.bytes[12] >> 4) as usize * 4
    }

    /// The flags.
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags(self.bytes[FLAGS_AT])
    }

    /// Receive window, unscaled.
    #[must_use]
    pub const fn window(self) -> u16 {
        u16::from_be_bytes([self.bytes[14], self.bytes[15]])
    }

    /// The checksum field.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        u16::from_be_bytes([self.bytes[CHECKSUM_AT], self.bytes[CHECKSUM_AT + 1]])
    }

    /// The urgent pointer.
    #[must_use]
    pub const fn urgent(self) -> u16 {
        u16::from_be_bytes([self.bytes[18], self.bytes[19]])
    }

    /// Option bytes, not parsed.
    #[must_use]
    pub fn options(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.header_len()]
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[self.header_len()..]
    }
}

/// Whether an IP packet begins or accepts a TCP connection. Extension headers are not looked
/// behind: a connection that begins with them keeps its segment size.
#[inline]
#[must_use]
pub fn is_syn(packet: &[u8]) -> bool {
    header_at(packet)
        .and_then(|at| packet.get(at + FLAGS_AT))
        .is_some_and(|&flags| Flags(flags).any(Flags::SYN))
}

/// Lowers the largest segment that a SYN promises to take (RFC 9293 section 3.7.1) to what fits
/// into IP packets of `mtu` bytes, checksum included. Returns whether it changed.
pub fn clamp_mss(packet: &mut [u8], mtu: usize) -> bool {
    let Some(at) = header_at(packet) else { return false };
    let Some(mss) = mtu.checked_sub(at + HEADER_LEN) else { return false };
    let mss = u16::try_from(mss).unwrap_or(u16::MAX);
    let tcp = &mut packet[at..];
    let Ok(view) = Tcp::view(tcp) else { return false };
    let checksum = view.checksum();
    let end = view.header_len();
    let mut option = HEADER_LEN;
    while option < end {
        let len = match tcp[option] {
            0 => return false,
            1 => 1,
            _ => usize::from(*tcp[..end].get(option + 1).unwrap_or(&0)),
        };
        if len == 0 || option + len > end || (len == 1 && tcp[option] != 1) {
            return false;
        }
        if tcp[option] == 2 && len == 4 {
            let value = option + 2;
            let old = u16::from_be_bytes([tcp[value], tcp[value + 1]]);
            if old <= mss {
                return false;
            }
            tcp[value..value + 2].copy_from_slice(&mss.to_be_bytes());
            // At an odd place its bytes belong to two words, as if swapped.
            let (old, new) = match value % 2 {
                0 => (old, mss),
                _ => (old.swap_bytes(), mss.swap_bytes()),
            };
            let checksum = crate::checksum::update(checksum, old, new);
            tcp[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
            return true;
        }
        option += len;
    }
    false
}

/// Where the TCP header of a whole packet without extension headers begins.
#[inline]
fn header_at(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 && packet[9] == 6 => {
            let is_first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
            is_first.then_some(usize::from(packet[0] & 15) * 4)
        }
        6 if packet.len() >= 40 && packet[6] == 6 => Some(40),
        _ => None,
    }
    .filter(|&at| (20..packet.len()).contains(&at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::{self, Sum};

    /// A SYN between fixed addresses with these options, its checksum right.
    fn syn(v6: bool, options: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0; HEADER_LEN];
        tcp[12] = ((HEADER_LEN + options.len()) / 4) as u8 * 16;
        tcp[FLAGS_AT] = Flags::SYN.0;
        tcp.extend_from_slice(options);
        let (mut packet, source, destination) = if v6 {
            let mut ip = vec![0; 40];
            (ip[0], ip[5], ip[6], ip[7]) = (0x60, tcp.len() as u8, 6, 64);
            (ip, "::", "::")
        } else {
            let mut ip = vec![0; 20];
            (ip[0], ip[3], ip[8], ip[9]) = (0x45, 20 + tcp.len() as u8, 64, 6);
            (ip, "0.0.0.0", "0.0.0.0")
        };
        let address = |text: &str| text.parse().expect("an address");
        let pseudo = checksum::pseudo(address(source), address(destination), 6, tcp.len() as u32);
        let sum = pseudo.plus(Sum::of(&tcp)).checksum();
        tcp[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(tcp);
        packet
    }

    fn is_right(packet: &[u8], at: usize) -> bool {
        let len = (packet.len() - at) as u32;
        Sum::of(&packet[at..]).plus_word(6).plus_long(len).is_valid()
    }

    #[test]
    fn nt_08_a_syn_promises_no_more_than_fits() {
        for (v6, at) in [(false, 20), (true, 40)] {
            for (options, place) in [
                (&[2, 4, 5, 0xb4][..], 2),
                (&[1, 2, 4, 5, 0xb4, 1, 1, 0], 3),
                (&[4, 2, 1, 1, 2, 4, 5, 0xb4], 6),
            ] {
                let mut packet = syn(v6, options);
                assert!(is_syn(&packet) && is_right(&packet, at));
                assert!(!clamp_mss(&mut packet, 1_520), "it fits");
                assert!(clamp_mss(&mut packet, 1_280));
                let mss = &packet[at + HEADER_LEN + place..][..2];
                assert_eq!(mss, (1_280 - at as u16 - 20).to_be_bytes());
                assert!(is_right(&packet, at), "{options:?}");
                assert!(!clamp_mss(&mut packet, 1_280), "once is enough");
            }
        }
        let mut without = syn(false, &[]);
        assert!(is_syn(&without) && !clamp_mss(&mut without, 100));
    }

    proptest! {
        #[test]
        fn any_options_are_passed_over_and_the_checksum_stays_right(
            words in 0..10usize, bytes in prop::collection::vec(0..6u8, 40), mtu in 0..2_000usize,
        ) {
            let mut packet = syn(false, &bytes[..words * 4]);
            clamp_mss(&mut packet, mtu);
            prop_assert!(is_right(&packet, 20));
            let mut cut = packet[..packet.len() - words].to_vec();
            clamp_mss(&mut cut, mtu);
            let _ = is_syn(&bytes);
        }
    }
}
