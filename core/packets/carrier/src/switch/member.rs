//! One connection of the switch: what waits for it, by sender, and whose turn it is.
//!
//! Turns are deficit round robin by bytes, with senders that were idle going first (RFC 8290,
//! section 4.2): who sends less than its share never waits for who sends more.

use std::collections::VecDeque;

use noise::{Instant, PublicKey};
use wire::relay::Frame;

use super::{ConnectionId, GONE_A_SECOND, PingBytes, QUEUE_AGE_MAX, QUEUE_LEN_MAX};
use crate::queue::Queue;

/// Senders that are told apart; more of them share a queue, as their places are the same modulo
/// this.
const SENDERS_MAX: usize = 64;
/// Bytes that a sender may have passed on in one turn.
const QUANTUM: i64 = 8 * 1024;
/// Frames of the relay's own that wait: answers to pings, and "gone".
const OWN_MAX: usize = 8;
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    Idle,
    First,
    Round,
}

/// What waits of one sender.
#[derive(Debug, Default)]
struct Sender {
    queue: Queue,
    deficit: i64,
    turn: Turn,
}

/// Frames of the relay's own.
#[derive(Clone, Copy, Debug)]
enum Own {
    Pong(PingBytes),
    Gone(PublicKey),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: PublicKey,
    /// When something last came from it.
    pub(super) heard: Instant,
    /// Whom its last datagram was for.
    pub(super) last_to: Option<(PublicKey, ConnectionId)>,
    own: VecDeque<Own>,
    senders: Vec<Sender>,
    /// Senders that were idle, then those in turn.
    first: VecDeque<u8>,
    round: VecDeque<u8>,
    bytes: usize,
    frames: u64,
    gone_since: Instant,
    gone_count: u32,
}

/// What a poll did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Polled {
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) stale: u64,
}

impl Member {
    pub(super) fn new(key: PublicKey, now: Instant) -> Self {
        Self {
            key,
            heard: now,
            last_to: None,
            own: VecDeque::new(),
            senders: Vec::new(),
            first: VecDeque::new(),
            round: VecDeque::new(),
            bytes: 0,
            frames: 0,
            gone_since: Instant::ZERO,
            gone_count: 0,
        }
    }

    /// Datagrams that wait.
    pub(super) const fn queued(&self) -> u64 {
        self.frames
    }

    /// Bytes of their frames.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing waits, not even of the relay's own.
    pub(super) fn is_idle(&self) -> bool {
        self.frames == 0 && self.own.is_empty()
    }

    /// Repeats what a ping said. `Some` if nothing waited before.
    pub(super) fn answer(&mut self, bytes: &PingBytes) -> Option<()> {
        let was_idle = self.is_idle();
        if self.own.len() < OWN_MAX {
            self.own.push_back(Own::Pong(*bytes));
        }
        was_idle.then_some(())
    }

    /// Notes that somebody is not here; `false` if that was said often enough.
    pub(super) fn say_gone(&mut self, key: &PublicKey, now: Instant) -> bool {
        if self.gone_count == 0 || self.gone_since.is_older_than(SECOND, now) {
            self.gone_since = now;
            self.gone_count = 0;
        }
        if self.gone_count >= GONE_A_SECOND || self.own.len() >= OWN_MAX {
            return false;
        }
        self.gone_count += 1;
        self.own.push_back(Own::Gone(*key));
        true
    }

    /// Takes a datagram of the sender at place `from`; returns how many were dropped for it.
    #[inline]
    pub(super) fn push(&mut self, from: usize, head: &[u8], body: &[u8], now: Instant) -> u64 {
        let at = from % SENDERS_MAX;
        if self.senders.len() <= at {
            self.senders.resize_with(at + 1, Sender::default);
        }
        let sender = &mut self.senders[at];
        sender.queue.push(head, body, now);
        self.bytes += head.len() + body.len();
        self.frames += 1;
        if sender.turn == Turn::Idle {
            sender.turn = Turn::First;
            sender.deficit = QUANTUM;
            self.first.push_back(at as u8);
        }
        let mut dropped = 0;
        while self.bytes > QUEUE_LEN_MAX && self.drop_largest() {
            dropped += 1;
        }
        dropped
    }

    /// Drops the oldest datagram of whoever has most waiting (threats RL-04, RL-11).
    fn drop_largest(&mut self) -> bool {
        let Some(largest) = self.senders.iter_mut().max_by_key(|sender| sender.queue.bytes())
        else {
            return false;
        };
        let Some(len) = largest.queue.drop_first() else { return false };
        self.bytes -= len;
        self.frames -= 1;
        true
    }

    pub(super) fn poll_frames(&mut self, out: &mut Vec<u8>, len: usize, now: Instant) -> Polled {
        let mut polled = Polled::default();
        while let Some(own) = self.own.pop_front() {
            match own {
                Own::Pong(bytes) => Frame::Pong(&bytes).write(out),
                Own::Gone(key) => Frame::Gone(&key.0).write(out),
            };
        }
        while out.len() < len {
            let is_first = !self.first.is_empty();
            let turns = if is_first { &mut self.first } else { &mut self.round };
            let Some(&at) = turns.front() else { break };
            let sender = &mut self.senders[usize::from(at)];
            while sender.queue.age(now) > QUEUE_AGE_MAX {
                let Some(len) = sender.queue.drop_first() else { break };
                self.bytes -= len;
                self.frames -= 1;
                polled.stale += 1;
            }
            if sender.deficit <= 0 {
                sender.deficit += QUANTUM;
                sender.turn = Turn::Round;
                turns.pop_front();
                self.round.push_back(at);
                continue;
            }
            let Some(taken) = sender.queue.pop_into(out) else {
                turns.pop_front();
                // One that was idle waits a round before it goes first again.
                if is_first && !self.round.is_empty() {
                    sender.turn = Turn::Round;
                    self.round.push_back(at);
                } else {
                    sender.turn = Turn::Idle;
                }
                continue;
            };
            sender.deficit -= taken as i64;
            self.bytes -= taken;
            self.frames -= 1;
            polled.sent += 1;
            polled.bytes += taken as u64;
        }
        polled
    }

    /// Gives back the memory of queues that are empty.
    pub(super) fn release(&mut self) {
        for sender in &mut self.senders {
            sender.queue.release();
        }
        if self.frames == 0 && self.own.is_empty() {
            self.senders = Vec::new();
            self.first = VecDeque::new();
            self.round = VecDeque::new();
        }
    }
}
