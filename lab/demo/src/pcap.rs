//! The content of a capture: datagrams of a port, and how often a text occurs.
//!
//! The format is libpcap's classic one, as `tcpdump -w` writes it: a header of 24 bytes, then for
//! each frame 16 bytes, of which the third word is the captured length, and the frame. Numbers
//! are in the order of bytes that the first word shows. Frames here are Ethernet's.

use anyhow::{Context, Result, bail, ensure};

const FILE_HEADER_LEN: usize = 24;
const FRAME_HEADER_LEN: usize = 16;
/// Where the type of the link layer stands, and the value for Ethernet.
const LINK_TYPE_AT: usize = 20;
const ETHERNET: u32 = 1;
/// Addresses and type of an Ethernet frame.
const ETHERNET_LEN: usize = 14;
const UDP: u8 = 17;
/// The first words of a transport message: type and receiver index.
const TYPE_AND_RECEIVER_LEN: usize = 8;

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Frames of any kind.
    pub(crate) frames: u64,
    /// Datagrams over IPv4 from or to the port, also those that the kernel hands over in one
    /// piece.
    pub(crate) datagrams: u64,
    /// Bytes those carried.
    pub(crate) datagram_bytes: u64,
    /// How often the text occurs, within frames.
    pub(crate) text: u64,
}

/// Counts in the capture `file`.
pub(crate) fn count(file: &[u8], port: u16, text: &[u8]) -> Result<Count> {
    ensure!(!text.is_empty(), "an empty text occurs everywhere");
    let header = file.get(..FILE_HEADER_LEN).context("the capture is empty")?;
    let word: fn([u8; 4]) -> u32 = match header[..4] {
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
        _ => bail!("this is no capture of tcpdump's"),
    };
    let at =
        |bytes: &[u8], at: usize| word([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    ensure!(at(header, LINK_TYPE_AT) == ETHERNET, "the capture is not one of Ethernet frames");
    let mut count = Count::default();
    let mut rest = &file[FILE_HEADER_LEN..];
    while let Some(header) = rest.get(..FRAME_HEADER_LEN) {
        let end = FRAME_HEADER_LEN.saturating_add(at(header, 8) as usize);
        // The last frame of a capture that was ended may be cut.
        let frame = &rest[FRAME_HEADER_LEN..end.min(rest.len())];
        rest = &rest[end.min(rest.len())..];
        count.frames += 1;
        count.text += occurrences(frame, text);
        if let Some(payload) = datagram(frame, port) {
            count.datagrams += datagrams(payload);
            count.datagram_bytes += payload.len() as u64;
        }
    }
    Ok(count)
}

/// What a UDP datagram over IPv4 from or to `port` carries.
fn datagram(frame: &[u8], port: u16) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET_LEN..).filter(|_| frame[12..14] == [8, 0])?;
    let first = *packet.first()?;
    let udp = packet.get(usize::from(first & 15) * 4..).filter(|_| first >> 4 == 4)?;
    if *packet.get(9)? != UDP || udp.len() < 8 {
        return None;
    }
    let ports = [u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]])];
    ports.contains(&port).then_some(&udp[8..])
}

/// How many of WireGuard's datagrams a payload is. What is to be segmented later passes in one
/// piece, in which each datagram begins with the same type and receiver.
fn datagrams(payload: &[u8]) -> u64 {
    payload.get(..TYPE_AND_RECEIVER_LEN).map_or(1, |begin| occurrences(payload, begin))
}

fn occurrences(within: &[u8], text: &[u8]) -> u64 {
    let starts = within.iter().enumerate().filter(|(_, byte)| **byte == text[0]);
    starts.filter(|(at, _)| within[*at..].starts_with(text)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45]);
        frame.extend([0; 8]);
        frame.push(protocol);
        frame.extend([0; 10]);
        frame.extend(ports[0].to_be_bytes());
        frame.extend(ports[1].to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(payload);
        frame
    }

    fn capture(frames: &[Vec<u8>], word: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let mut file = word(0xa1b2_c3d4).to_vec();
        file.extend([0; 16]);
        file.extend(word(ETHERNET));
        for frame in frames {
            file.extend([0; 8]);
            file.extend(word(frame.len() as u32));
            file.extend([0; 4]);
            file.extend(frame);
        }
        file
    }

    #[test]
    fn datagrams_of_the_port_and_the_text_are_counted_in_both_orders_of_bytes() {
        let frames = [
            frame(UDP, [40_000, 51_820], b"sealed"),
            frame(UDP, [51_820, 40_000], b"4000abcd first, 4000abcd second, 4000abcd last"),
            frame(UDP, [53, 53], b"a marker and a marker"),
            frame(6, [51_820, 51_820], b"TCP is none, with its marker"),
            vec![0; 14],
            vec![],
        ];
        let wanted = Count { frames: 6, datagrams: 4, datagram_bytes: 52, text: 3 };
        for word in [u32::to_le_bytes as fn(u32) -> [u8; 4], u32::to_be_bytes] {
            assert_eq!(count(&capture(&frames, word), 51_820, b"marker").unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_cut_or_no_capture_is_no_panic() {
        let file = capture(&[frame(UDP, [1, 2], b"marker")], u32::to_le_bytes);
        for length in 0..file.len() {
            let counted = count(&file[..length], 2, b"marker");
            assert_eq!(counted.is_err(), length < FILE_HEADER_LEN, "{length}");
            assert_eq!(counted.map_or(0, |c| c.text), 0, "{length}");
        }
        assert!(count(&[0; 24], 2, b"marker").is_err());
        assert!(count(&file, 2, b"").is_err());
        let mut lying = file.clone();
        lying[FILE_HEADER_LEN + 8..FILE_HEADER_LEN + 12].fill(0xff);
        assert_eq!(count(&lying, 2, b"marker").unwrap().frames, 1);
    }
}
