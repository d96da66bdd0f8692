//! What a node and a relay say to each other on a stream, after the HTTP upgrade: frames of a kind
//! (1 byte), the length of what follows (2 bytes, little-endian) and a body.
//!
//! A datagram travels as [`Frame::Send`] to the relay, which takes the addressee's key away, puts
//! the sender's in its place and passes it on as [`Frame::Received`]. Both heads have the same
//! length, so a relay copies a body and writes 32 bytes. Nothing in a frame is believed about who
//! sent it: the relay knows whose stream it reads (threat RL-02).
//!
//! [`Decoder`] holds what was read of a stream. Its owner reads straight into [`Decoder::room`];
//! whole frames are looked at where they lie, and one that is cut off is moved at most once.

use core::fmt;
use core::ops::Range;

/// Bytes before the body.
pub const HEADER_LEN: usize = 3;
/// Bytes of a key.
pub const KEY_LEN: usize = 32;
/// Bytes of a whole frame, at most: 64 KiB (threat RL-05).
pub const FRAME_LEN_MAX: usize = 64 * 1024;
/// Bytes of a body, at most.
pub const BODY_LEN_MAX: usize = FRAME_LEN_MAX - HEADER_LEN;
/// Bytes of a datagram in a frame, at most.
pub const DATAGRAM_LEN_MAX: usize = BODY_LEN_MAX - KEY_LEN;
/// Bytes before a datagram: the header and a key.
pub const DATAGRAM_HEADER_LEN: usize = HEADER_LEN + KEY_LEN;
/// Bytes of what a ping carries and its answer repeats.
pub const PING_LEN: usize = 8;

const KIND_SEND: u8 = 1;
const KIND_RECEIVED: u8 = 2;
const KIND_PING: u8 = 3;
const KIND_PONG: u8 = 4;
const KIND_GONE: u8 = 5;
const KIND_NOTICE: u8 = 6;
const KIND_KEEPALIVE: u8 = 7;
const KIND_OPEN: u8 = 8;
const KIND_ANSWER: u8 = 9;
const KIND_CONFIRM: u8 = 10;

/// What a relay says of the connection itself. One byte; numbers that are not listed are passed
/// over by those who do not know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The key is no current member's, or no longer.
    NotMember,
    /// A newer connection of the same key took over.
    Replaced,
    /// Two connections of the same key take turns: the key is quarantined for a while.
    Quarantined,
    /// The relay ends, and comes back or not.
    Leaving,
    /// There is no room.
    Full,
    /// The relay does not speak this version.
    Version,
}

/// One frame. Keys are X25519 public keys of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Node to relay: pass this on.
    Send {
        /// Whose it is to be.
        to: &'a [u8; KEY_LEN],
        /// What is passed on unread; 1 to [`DATAGRAM_LEN_MAX`] bytes.
        datagram: &'a [u8],
    },
    /// Relay to node: this came.
    Received {
        /// Who sent it, by the relay's word.
        from: &'a [u8; KEY_LEN],
        /// What was sent.
        datagram: &'a [u8],
    },
    /// Either way: answer with the same bytes.
    Ping(&'a [u8; PING_LEN]),
    /// The answer.
    Pong(&'a [u8; PING_LEN]),
    /// Relay to node: the one with this key, to whom something was sent, is not here.
    Gone(&'a [u8; KEY_LEN]),
    /// Relay to node, of the connection itself.
    Notice(Notice),
    /// Either way: nothing; it keeps what is in between from forgetting the connection.
    KeepAlive,
    /// The first message of the Noise handshake: node to relay.
    Open(&'a [u8]),
    /// The second one: relay to node.
    Answer(&'a [u8]),
    /// Proof that the node holds the keys of the handshake, so that a repeated first message is
    /// worth nothing.
    Confirm(&'a [u8]),
    /// Of a kind, or with a content, that this version does not know; to be passed over.
    Unknown(u8),
}

/// Why a stream is none of frames. It cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStream {
    /// A frame says that it is longer than frames are.
    Long,
    /// A frame's body is too short for its kind, or too long.
    Body(u8),
}

/// Where a whole frame lies in a [`Decoder`]'s memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    kind: u8,
    body: Range<usize>,
}

/// What was read of a stream and not yet looked at. Bounded by [`MEMORY_LEN_MAX`].
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of memory that the next room wants.
    wanted: usize,
}

/// Bytes that a decoder may hold: a cut-off frame and as much behind it.
pub const MEMORY_LEN_MAX: usize = 2 * FRAME_LEN_MAX;
/// Bytes that it holds at first, and again after [`Decoder::release`].
const MEMORY_LEN_MIN: usize = 2048;

impl Notice {
    const fn number(self) -> u8 {
        match self {
            Self::NotMember => 1,
            Self::Replaced => 2,
            Self::Quarantined => 3,
            Self::Leaving => 4,
            Self::Full => 5,
            Self::Version => 6,
        }
    }

    /// The notice with this number, if it is a known one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let known = [
            Self::NotMember,
            Self::Replaced,
            Self::Quarantined,
            Self::Leaving,
            Self::Full,
            Self::Version,
        ];
        known.into_iter().find(|notice| notice.number() == number)
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn to_number(self) -> u8 {
        self.number()
    }
}

/// The header and key that stand before a datagram: of [`Frame::Send`] if `to_relay`, otherwise of
/// [`Frame::Received`]. `None` if the datagram is empty or longer than [`DATAGRAM_LEN_MAX`].
#[inline]
#[must_use]
pub fn datagram_header(
    to_relay: bool,
    key: &[u8; KEY_LEN],
    datagram_len: usize,
) -> Option<[u8; DATAGRAM_HEADER_LEN]> {
    if !(1..=DATAGRAM_LEN_MAX).contains(&datagram_len) {
        return None;
    }
    let mut header = [0; DATAGRAM_HEADER_LEN];
    header[0] = if to_relay { KIND_SEND } else { KIND_RECEIVED };
    header[1..HEADER_LEN].copy_from_slice(&((KEY_LEN + datagram_len) as u16).to_le_bytes());
    header[HEADER_LEN..].copy_from_slice(key);
    Some(header)
}

impl Frame<'_> {
    /// Appends the frame to `out`. A frame with a body that is too long, and an unknown one, are
    /// left out; returns whether it was written.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let (kind, parts): (u8, [&[u8]; 2]) = match self {
            Self::Send { to, datagram } => (KIND_SEND, [&to[..], datagram]),
            Self::Received { from, datagram } => (KIND_RECEIVED, [&from[..], datagram]),
            Self::Ping(bytes) => (KIND_PING, [&bytes[..], &[]]),
            Self::Pong(bytes) => (KIND_PONG, [&bytes[..], &[]]),
            Self::Gone(key) => (KIND_GONE, [&key[..], &[]]),
            Self::Notice(notice) => return write(KIND_NOTICE, [&[notice.number()], &[]], out),
            Self::KeepAlive => (KIND_KEEPALIVE, [&[], &[]]),
            Self::Open(bytes) => (KIND_OPEN, [bytes, &[]]),
            Self::Answer(bytes) => (KIND_ANSWER, [bytes, &[]]),
            Self::Confirm(bytes) => (KIND_CONFIRM, [bytes, &[]]),
            Self::Unknown(_) => return false,
        };
        write(kind, parts, out)
    }
}

fn write(kind: u8, parts: [&[u8]; 2], out: &mut Vec<u8>) -> bool {
    let len = parts[0].len() + parts[1].len();
    if len > BODY_LEN_MAX {
        return false;
    }
    out.push(kind);
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(parts[0]);
    out.extend_from_slice(parts[1]);
    true
}

fn read(kind: u8, body: &[u8]) -> Result<Frame<'_>, BadStream> {
    let bad = BadStream::Body(kind);
    let keyed = || match body.split_first_chunk::<KEY_LEN>() {
        Some((key, datagram)) if !datagram.is_empty() => Ok((key, datagram)),
        _ => Err(bad),
    };
    Ok(match kind {
        KIND_SEND => {
            let (to, datagram) = keyed()?;
            Frame::Send { to, datagram }
        }
        KIND_RECEIVED => {
            let (from, datagram) = keyed()?;
            Frame::Received { from, datagram }
        }
        KIND_PING => Frame::Ping(body.try_into().map_err(|_| bad)?),
        KIND_PONG => Frame::Pong(body.try_into().map_err(|_| bad)?),
        KIND_GONE => Frame::Gone(body.try_into().map_err(|_| bad)?),
        KIND_NOTICE => {
            let number = body.first().ok_or(bad)?;
            Notice::from_number(*number).map_or(Frame::Unknown(kind), Frame::Notice)
        }
        KIND_KEEPALIVE => Frame::KeepAlive,
        KIND_OPEN => Frame::Open(body),
        KIND_ANSWER => Frame::Answer(body),
        KIND_CONFIRM => Frame::Confirm(body),
        _ => Frame::Unknown(kind),
    })
}

/// The one frame that `bytes` are, from their first to their last: so it comes in a datagram of
/// QUIC, where nothing follows that could be read on.
#[must_use]
pub fn whole(bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, body) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let len = usize::from(u16::from_le_bytes([header[1], header[2]]));
    if len != body.len() || len > BODY_LEN_MAX {
        return None;
    }
    read(header[0], body).ok()
}

/// The first frame of `bytes`, as it was written, and what is behind it; `None` if it is cut off.
#[must_use]
pub fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    let len = usize::from(u16::from_le_bytes([header[1], header[2]]));
    bytes.split_at_checked(HEADER_LEN + len)
}

impl Decoder {
    /// Where to read to: at least one byte, and more the more comes at once. What is read there is
    /// told by [`Decoder::fill`]. Places that were given out before are over.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let begun = self.begun_len();
        let is_short = self.start + begun > self.memory.len() || self.end == self.memory.len();
        if is_short && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // One byte more than a frame that is whole, which its owner has not looked at yet.
        let least = begun.max(self.wanted).max(MEMORY_LEN_MIN).max(self.end + 1);
        if self.memory.len() < least {
            self.memory.resize(least, 0);
        }
        &mut self.memory[self.end..]
    }

    /// The first `len` bytes of the room that was lent were read.
    pub fn fill(&mut self, len: usize) {
        self.end = (self.end + len).min(self.memory.len());
        if self.end == self.memory.len() {
            self.wanted = (self.memory.len() * 2).min(MEMORY_LEN_MAX);
        }
    }

    /// Takes bytes that lie elsewhere, as if they had been read into the room.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            self.fill(len);
            bytes = &bytes[len..];
        }
    }

    /// Bytes that were read and not looked at.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether all that was read was looked at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Gives memory back that is not needed now.
    pub fn release(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Bytes of memory held: what tests and fuzzing hold the bound by.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.memory.len()
    }

    /// The next whole frame, if there is one. It stays where it is until the next
    /// [`Decoder::room`].
    ///
    /// # Errors
    /// [`BadStream`]; then the stream is of no more use.
    pub fn poll_frame(&mut self) -> Result<Option<Place>, BadStream> {
        let held = &self.memory[self.start..self.end];
        let Some((header, _)) = held.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes([header[1], header[2]]));
        if len > BODY_LEN_MAX {
            return Err(BadStream::Long);
        }
        if held.len() < HEADER_LEN + len {
            return Ok(None);
        }
        let at = self.start + HEADER_LEN;
        let body = at..at + len;
        read(header[0], &self.memory[body.clone()])?;
        let kind = header[0];
        self.start = body.end;
        Ok(Some(Place { kind, body }))
    }

    /// The frame at a place that [`Decoder::poll_frame`] told and [`Decoder::room`] has not ended.
    #[must_use]
    pub fn frame(&self, place: &Place) -> Frame<'_> {
        let body = self.memory.get(place.body.clone()).unwrap_or_default();
        read(place.kind, body).unwrap_or(Frame::Unknown(place.kind))
    }

    /// All the memory in which frames lie, for who opens datagrams in place.
    #[must_use]
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Bytes of the frame that begins at `start`, as far as its header is there and can be true.
    fn begun_len(&self) -> usize {
        match self.memory[self.start..self.end].first_chunk::<HEADER_LEN>() {
            Some([_, low, high]) => {
                HEADER_LEN + usize::from(u16::from_le_bytes([*low, *high])).min(BODY_LEN_MAX)
            }
            None => HEADER_LEN,
        }
    }
}

impl Place {
    /// Where a datagram lies, and whose it is, if the frame is [`Frame::Received`].
    #[must_use]
    pub fn received(&self, decoder: &Decoder) -> Option<([u8; KEY_LEN], Range<usize>)> {
        match decoder.frame(self) {
            Frame::Received { from, .. } => Some((*from, self.body.start + KEY_LEN..self.body.end)),
            _ => None,
        }
    }
}

impl fmt::Display for BadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long => f.write_str("a frame is longer than 64 KiB"),
            Self::Body(kind) => write!(f, "a frame of kind {kind} has an impossible length"),
        }
    }
}

impl core::error::Error for BadStream {}

#[cfg(test)]
mod tests;
