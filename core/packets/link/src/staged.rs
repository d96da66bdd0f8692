//! Packets that wait for a session (threat DP-22: bounded, the oldest goes first).

use std::collections::VecDeque;

use wire::superpacket::Superpacket;
use wire::virtio;

/// Packets that wait for one peer, at most; a superpacket counts as one.
pub const STAGED_PACKETS_MAX: usize = 128;
/// Bytes that wait for one peer, at most: four superpackets.
pub const STAGED_BYTES_MAX: usize = 256 * 1024;

/// One packet as the kernel gave it, its checksum complete unless it is to be cut.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) header: virtio::Header,
    pub(crate) bytes: Vec<u8>,
    segments: u64,
}

/// The queue. Empty, it has no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    queue: VecDeque<Waiting>,
    bytes: usize,
}

impl Staged {
    /// Adds a packet at the end; returns how many segments were dropped from the front for it.
    pub(crate) fn push(&mut self, header: virtio::Header, packet: &Superpacket<'_>) -> u64 {
        let bytes = packet.packet().bytes();
        let mut dropped = 0;
        while self.queue.len() >= STAGED_PACKETS_MAX || self.bytes + bytes.len() > STAGED_BYTES_MAX
        {
            match self.pop() {
                Some(oldest) => dropped += oldest.segments,
                None => break,
            }
        }
        // A plain packet's checksum was completed while it was parsed; to complete it again
        // would spoil it.
        let header =
            if header.gso_type == virtio::GSO_NONE { virtio::Header::default() } else { header };
        self.bytes += bytes.len();
        let segments = packet.segments() as u64;
        self.queue.push_back(Waiting { header, bytes: bytes.to_vec(), segments });
        dropped
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let oldest = self.queue.pop_front()?;
        self.bytes -= oldest.bytes.len();
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        Some(oldest)
    }

    /// Drops all; returns how many segments that were.
    pub(crate) fn clear(&mut self) -> u64 {
        let dropped = self.segments();
        *self = Self::default();
        dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Segments that wait.
    pub(crate) fn segments(&self) -> u64 {
        self.queue.iter().map(|waiting| waiting.segments).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize, mark: u8) -> Vec<u8> {
        let mut bytes = vec![mark; len];
        bytes[..20].copy_from_slice(&[
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        bytes[2..4].copy_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
        let sum = wire::checksum::Sum::of(&bytes[..20]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn push(staged: &mut Staged, len: usize, mark: u8) -> u64 {
        let mut bytes = packet(len, mark);
        let header = virtio::Header::default();
        let packet = wire::superpacket::parse(header, &mut bytes).expect("a packet");
        staged.push(header, &packet)
    }

    #[test]
    fn dp_22_the_oldest_packet_goes_first_when_there_are_too_many() {
        let mut staged = Staged::default();
        for i in 0..STAGED_PACKETS_MAX {
            assert_eq!(push(&mut staged, 100, u8::try_from(i).expect("small")), 0);
        }
        assert_eq!(push(&mut staged, 100, 200), 1);
        assert_eq!(staged.pop().expect("one waits").bytes[50], 1);
        assert_eq!(staged.segments(), STAGED_PACKETS_MAX as u64 - 1);
    }

    #[test]
    fn dp_22_bytes_are_bounded_too() {
        let mut staged = Staged::default();
        let mut dropped = 0;
        for i in 0..10 {
            dropped += push(&mut staged, 60_000, i);
        }
        assert_eq!(dropped, 6);
        assert!(staged.bytes <= STAGED_BYTES_MAX);
        assert_eq!(staged.clear(), 4);
        assert!(staged.is_empty());
        assert_eq!(staged.bytes, 0);
    }
}
