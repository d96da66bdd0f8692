//! The virtio network header in front of every packet on a TUN queue opened with `IFF_VNET_HDR`.
//!
//! Ten bytes, little endian (`TUNSETVNETLE`): flags, gso_type, hdr_len, gso_size, csum_start,
//! csum_offset. Source: virtio 1.2 §5.1.6 without `num_buffers`, and Linux
//! `include/uapi/linux/virtio_net.h`.

use crate::Malformed;

/// Bytes of the header (`vnet_hdr_sz`).
pub const LEN: usize = 10;

/// Flag: the checksum at `csum_start + csum_offset` holds only the pseudo header's sum.
pub const FLAG_NEEDS_CSUM: u8 = 1;

/// One packet, nothing to cut.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4, to be cut at `gso_size` payload bytes.
pub const GSO_TCPV4: u8 = 1;
/// The old UDP fragmentation offload: never negotiated, always refused. Only tests
/// name it.
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP datagrams of equal size (USO), Linux 6.2 and later.
pub const GSO_UDP_L4: u8 = 5;
/// Bit beside a TCP type: the first segment carries CWR.
pub const GSO_ECN: u8 = 0x80;

/// The decoded header. The default is the header of a lone, complete packet: all zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `FLAG_*` bits.
    pub flags: u8,
    /// One of `GSO_*`, possibly with [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of all headers; the kernel writes its linear length here, so it is only a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Offset from the start of the packet at which checksumming starts.
    pub csum_start: u16,
    /// Offset from `csum_start` at which the checksum is stored.
    pub csum_offset: u16,
}

impl Header {
    /// Reads the header from the first [`LEN`] bytes.
    ///
    /// # Errors
    /// [`Malformed::VirtioTruncated`] when there are fewer.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: &[u8; LEN] = bytes.first_chunk().ok_or(Malformed::VirtioTruncated)?;
        Ok(Self {
            flags: raw[0],
            gso_type: raw[1],
            hdr_len: u16::from_le_bytes([raw[2], raw[3]]),
            gso_size: u16::from_le_bytes([raw[4], raw[5]]),
            csum_start: u16::from_le_bytes([raw[6], raw[7]]),
            csum_offset: u16::from_le_bytes([raw[8], raw[9]]),
        })
    }

    /// The header as it stands on the queue.
    #[must_use]
    pub fn encode(self) -> [u8; LEN] {
        let mut raw = [0; LEN];
        raw[0] = self.flags;
        raw[1] = self.gso_type;
        raw[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
        raw[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        raw[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        raw[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        raw
    }

    /// Whether the packet's checksum is still to be completed.
    #[must_use]
    pub fn needs_checksum(self) -> bool {
        self.flags & FLAG_NEEDS_CSUM != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4 | GSO_ECN,
        hdr_len: 0x0102,
        gso_size: 0x0304,
        csum_start: 0x0506,
        csum_offset: 0x0708,
    };

    #[test]
    fn fields_are_little_endian_and_round_trip() {
        let raw = HEADER.encode();
        assert_eq!(raw, [1, 0x81, 2, 1, 4, 3, 6, 5, 8, 7]);
        assert_eq!(Header::decode(&raw), Ok(HEADER));
        assert_eq!(Header::default().encode(), [0; LEN]);
    }

    #[test]
    fn a_short_header_is_refused_and_a_long_one_is_not_read_past_its_end() {
        for len in 0..LEN {
            assert_eq!(Header::decode(&[0; LEN][..len]), Err(Malformed::VirtioTruncated));
        }
        let mut long = [0xff; 32];
        long[..LEN].copy_from_slice(&HEADER.encode());
        assert_eq!(Header::decode(&long), Ok(HEADER));
    }
}
