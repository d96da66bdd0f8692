//! The story of a world, in order: kept short, written out only when something went wrong.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use noise::Instant;
use wire::wireguard::{self, Message};

use super::HostId;

/// Notes that are kept, at most; the oldest goes.
pub const NOTES_MAX: usize = 120;

/// What a datagram is, as far as anyone on the path can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A handshake's first message.
    Initiation,
    /// Its second.
    Response,
    /// What a loaded host answers.
    Cookie,
    /// A transport datagram without plaintext.
    Keepalive,
    /// A transport datagram with plaintext.
    Data,
    /// Anything else.
    Noise,
}

impl Kind {
    /// Classifies a datagram.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Self {
        match wireguard::classify(datagram) {
            Ok(Message::Initiation(_)) => Self::Initiation,
            Ok(Message::Response(_)) => Self::Response,
            Ok(Message::CookieReply(_)) => Self::Cookie,
            Ok(Message::Transport { .. }) if datagram.len() == wireguard::KEEPALIVE_LEN => {
                Self::Keepalive
            }
            Ok(Message::Transport { .. }) => Self::Data,
            Err(_) => Self::Noise,
        }
    }
}

/// What became of a datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will arrive.
    Travels,
    /// It will arrive twice.
    Doubled,
    /// The weather took it.
    Lost,
    /// The line's queue was full.
    QueueDropped,
    /// The hosts were cut off from each other.
    Cut,
    /// A translator let it not pass.
    Translator,
    /// Nobody has that address.
    Nobody,
    /// The receiver was asleep or down.
    Deaf,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Note {
    /// A host sent a datagram.
    Sent(HostId, SocketAddr, Kind, usize, Fate),
    /// A host was given a datagram, from that address.
    Arrived(HostId, SocketAddr, Kind, usize),
    /// A datagram ended before it reached a host.
    Ended(SocketAddr, Kind, Fate),
    /// A host was given a packet for another, with so many segments.
    Packet(HostId, HostId, u64),
    /// A host gave out the packet with that marker.
    Delivered(HostId, u64),
    /// The world, or a part of it, was changed.
    Fault(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(from, to, kind, len, fate) => {
                write!(f, "{from} -> {to} {kind:?} {len} ({fate:?})")
            }
            Self::Arrived(at, from, kind, len) => write!(f, "{at} <- {from} {kind:?} {len}"),
            Self::Ended(to, kind, fate) => write!(f, "{kind:?} to {to} ended ({fate:?})"),
            Self::Packet(from, to, segments) => write!(f, "{from} => {to} {segments} packets"),
            Self::Delivered(at, marker) => write!(f, "{at} delivers packet {marker}"),
            Self::Fault(what) => write!(f, "-- {what}"),
        }
    }
}

/// The last notes, and a digest of all of them.
#[derive(Debug, Default)]
pub struct Story {
    notes: VecDeque<(Instant, Note)>,
    told: u64,
    digest: u64,
}

impl Story {
    /// Adds a note.
    pub fn tell(&mut self, at: Instant, note: Note) {
        if self.notes.len() >= NOTES_MAX {
            self.notes.pop_front();
        }
        let parts = match &note {
            Note::Sent(from, _, kind, len, _) => [1, from.0 as u64, *kind as u64, *len as u64],
            Note::Arrived(at, _, kind, len) => [2, at.0 as u64, *kind as u64, *len as u64],
            Note::Ended(_, kind, fate) => [3, *kind as u64, *fate as u64, 0],
            Note::Packet(from, to, segments) => [4, from.0 as u64, to.0 as u64, *segments],
            Note::Delivered(at, marker) => [5, at.0 as u64, *marker, 0],
            Note::Fault(what) => [6, what.len() as u64, 0, 0],
        };
        for part in [at.0].into_iter().chain(parts) {
            self.digest = (self.digest ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
        self.told += 1;
        self.notes.push_back((at, note));
    }

    /// A number that differs between stories: two runs of one seed must agree on it.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.told - self.notes.len() as u64;
        writeln!(f, "({before} notes before)")?;
        for (at, note) in &self.notes {
            let ns = at.0;
            writeln!(f, "t={}.{:06} {note}", ns / 1_000_000_000, ns / 1_000 % 1_000_000)?;
        }
        Ok(())
    }
}
