//! The queue in front of a node's own stream to a relay.

use std::time::Duration;

use noise::Instant;
use wire::relay::{Frame, KEY_LEN, PING_LEN, datagram_header};
use wire::wireguard::{self, Message};

use crate::queue::Queue;

/// Bytes that wait, at most: 8 ms at 1 Gbit/s.
pub const STREAM_LEN_MAX: usize = 1024 * 1024;
/// How long a datagram waits at most.
pub const STREAM_AGE_MAX: Duration = Duration::from_millis(50);
/// Handshakes and pings that wait, at most, in bytes.
pub const URGENT_LEN_MAX: usize = 16 * 1024;
/// How long these wait at most: a handshake is repeated after 5 s.
pub const URGENT_AGE_MAX: Duration = Duration::from_secs(2);

/// Datagrams: `taken` = `sent` + what waits + all drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Datagrams that came.
    pub taken: u64,
    /// Datagrams that left.
    pub sent: u64,
    /// Datagrams that waited for too long.
    pub stale: u64,
    /// Datagrams that were the oldest of too many.
    pub overflow: u64,
    /// Datagrams that are empty, or longer than a frame can hold.
    pub refused: u64,
}

/// What waits for a stream to have room.
#[derive(Debug, Default)]
pub struct StreamQueue {
    urgent: Queue,
    data: Queue,
    counters: StreamCounters,
    ping: Option<[u8; PING_LEN]>,
    pong: Option<[u8; PING_LEN]>,
}

impl StreamQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Datagrams that wait.
    #[must_use]
    pub fn queued(&self) -> u64 {
        (self.urgent.len() + self.data.len()) as u64
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.data.is_empty() && self.ping.is_none() && self.pong.is_none()
    }

    /// Takes a datagram for the node with the key `to`. Handshakes go before data. What is too
    /// much is dropped, the oldest first. On the path of every datagram.
    #[inline]
    pub fn push(&mut self, to: &[u8; KEY_LEN], datagram: &[u8], now: Instant) {
        self.counters.taken += 1;
        let Some(header) = datagram_header(true, to, datagram.len()) else {
            self.counters.refused += 1;
            return;
        };
        let is_data =
            matches!(wireguard::classify(datagram), Ok(Message::Transport { .. }) | Err(_));
        let (queue, len_max) = if is_data {
            (&mut self.data, STREAM_LEN_MAX)
        } else {
            (&mut self.urgent, URGENT_LEN_MAX)
        };
        queue.push(&header, datagram, now);
        while queue.bytes() > len_max && queue.drop_first().is_some() {
            self.counters.overflow += 1;
        }
    }

    /// Asks the relay to repeat these bytes; the latest question counts.
    pub fn push_ping(&mut self, bytes: [u8; PING_LEN]) {
        self.ping = Some(bytes);
    }

    /// Repeats what the relay asked for.
    pub fn push_pong(&mut self, bytes: [u8; PING_LEN]) {
        self.pong = Some(bytes);
    }

    /// Moves frames to the end of `out` until it has `len` bytes or more. Returns how many
    /// datagrams were moved.
    pub fn poll_bytes(&mut self, out: &mut Vec<u8>, len: usize, now: Instant) -> u64 {
        if let Some(bytes) = self.ping.take() {
            Frame::Ping(&bytes).write(out);
        }
        if let Some(bytes) = self.pong.take() {
            Frame::Pong(&bytes).write(out);
        }
        let queues = [(&mut self.urgent, URGENT_AGE_MAX), (&mut self.data, STREAM_AGE_MAX)];
        let mut sent = 0;
        for (queue, age_max) in queues {
            while queue.age(now) > age_max && queue.drop_first().is_some() {
                self.counters.stale += 1;
            }
            while out.len() < len && queue.pop_into(out).is_some() {
                sent += 1;
            }
        }
        self.counters.sent += sent;
        sent
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.data.release();
    }
}

#[cfg(test)]
mod tests;
