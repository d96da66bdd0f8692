//! WebSocket (RFC 6455) as far as a relay's stream rides in it: messages of bytes are a stream, and
//! where one ends means nothing. Proxies that pass no other upgrade pass this one.
//!
//! [`Reader`] takes what was read of the connection and leaves the payload in its place: heads are
//! taken out, masks are taken off, and what a frame spans does not matter. It holds at most one
//! head and the body of one control frame (threat RL-18). [`Head`] is what stands before a frame.

use core::fmt;

/// Bytes of a head, at most: two, a length of eight, a mask of four.
pub const HEAD_LEN_MAX: usize = 14;
/// Bytes of the body of a control frame, at most (section 5.5).
pub const CONTROL_LEN_MAX: usize = 125;
/// Bytes of a mask.
pub const MASK_LEN: usize = 4;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// A length that stands in two bytes, or in eight.
const IN_TWO: u8 = 126;
const IN_EIGHT: u8 = 127;

/// Whose frames are read: a client masks each, a server none (section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// They are masked.
    Client,
    /// They are not.
    Server,
}

/// What a frame is that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole message of bytes.
    Binary,
    /// The answer to a ping.
    Pong,
    /// Nothing follows.
    Close,
}

/// What stands before the body of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; HEAD_LEN_MAX],
    len: usize,
}

/// Why a stream is none of WebSocket. It cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// A bit is set that only extensions know, and none was agreed on.
    Reserved,
    /// A kind that nobody defined.
    Kind(u8),
    /// Text, where bytes are spoken.
    Text,
    /// A message begins in another, or goes on without a beginning.
    Order,
    /// A control frame that is long or in parts.
    Control,
    /// A client's frame without a mask, or a server's with one.
    Mask,
    /// A length that is written longer than it has to be, or is impossible.
    Length,
}

/// Reads one direction of a connection.
#[derive(Clone, Debug)]
pub struct Reader {
    from: Side,
    head: [u8; HEAD_LEN_MAX],
    /// Bytes of the head that were read; none while a body is read.
    head_len: usize,
    /// The frame whose body is read.
    kind: u8,
    mask: [u8; MASK_LEN],
    /// Bytes of the body that were read, and that are to come.
    done: u64,
    left: u64,
    in_body: bool,
    /// A message has begun and goes on in the next frame of data.
    is_open: bool,
    control: [u8; CONTROL_LEN_MAX],
    /// Bytes of the body of the latest ping that was not answered.
    ping_len: Option<usize>,
    is_closed: bool,
}

impl Head {
    /// The head of a final frame with `len` bytes, of a client if there is a mask.
    #[must_use]
    pub fn new(kind: Kind, len: usize, mask: Option<[u8; MASK_LEN]>) -> Self {
        let kind = match kind {
            Kind::Binary => BINARY,
            Kind::Pong => PONG,
            Kind::Close => CLOSE,
        };
        let mut this = Self { bytes: [0; HEAD_LEN_MAX], len: 0 };
        let masked = if mask.is_some() { MASKED } else { 0 };
        match (u8::try_from(len), u16::try_from(len)) {
            (Ok(short), _) if short < IN_TWO => this.push(&[FINAL | kind, masked | short]),
            (_, Ok(len)) => {
                this.push(&[FINAL | kind, masked | IN_TWO]);
                this.push(&len.to_be_bytes());
            }
            _ => {
                this.push(&[FINAL | kind, masked | IN_EIGHT]);
                this.push(&(len as u64).to_be_bytes());
            }
        }
        if let Some(mask) = mask {
            this.push(&mask);
        }
        this
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Puts a mask on, or takes it off, bytes that begin at `at` in their frame (section 5.3).
pub fn mask(bytes: &mut [u8], mask: [u8; MASK_LEN], at: u64) {
    let mut turned = mask;
    turned.rotate_left((at % MASK_LEN as u64) as usize);
    let wide = u64::from_ne_bytes(core::array::from_fn(|index| turned[index % MASK_LEN]));
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= key;
    }
}

impl Reader {
    /// Reads the frames of a client or of a server.
    #[must_use]
    pub const fn new(from: Side) -> Self {
        Self {
            from,
            head: [0; HEAD_LEN_MAX],
            head_len: 0,
            kind: 0,
            mask: [0; MASK_LEN],
            done: 0,
            left: 0,
            in_body: false,
            is_open: false,
            control: [0; CONTROL_LEN_MAX],
            ping_len: None,
            is_closed: false,
        }
    }

    /// Takes the next bytes of the connection. The payload in them is moved to their front; returns
    /// how many bytes it has. What follows a close is left out.
    ///
    /// # Errors
    /// [`BadFrame`]; then the connection is of no more use.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<usize, BadFrame> {
        let mut from = 0;
        let mut to = 0;
        while from < bytes.len() && !self.is_closed {
            if !self.in_body {
                self.push_head(bytes[from])?;
                from += 1;
                continue;
            }
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
            let until = from + wanted.min(bytes.len() - from);
            mask(&mut bytes[from..until], self.mask, self.done);
            if self.is_control() {
                self.keep_control(&bytes[from..until]);
            } else {
                bytes.copy_within(from..until, to);
                to += until - from;
            }
            self.done += (until - from) as u64;
            self.left -= (until - from) as u64;
            from = until;
            self.end_if_done();
        }
        Ok(to)
    }

    /// The body of a ping that is to be repeated in a pong, once. Of several the last one counts
    /// (section 5.5.3).
    pub fn poll_pong(&mut self) -> Option<&[u8]> {
        self.ping_len.take().map(|len| &self.control[..len])
    }

    /// The other end has said that nothing follows.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    const fn is_control(&self) -> bool {
        self.kind >= CLOSE
    }

    fn keep_control(&mut self, body: &[u8]) {
        if self.kind != PING {
            return;
        }
        let at = usize::try_from(self.done).unwrap_or(CONTROL_LEN_MAX);
        if let Some(room) = self.control.get_mut(at..at + body.len()) {
            room.copy_from_slice(body);
        }
    }

    fn end_if_done(&mut self) {
        if self.left > 0 {
            return;
        }
        self.in_body = false;
        match self.kind {
            CLOSE => self.is_closed = true,
            PING => self.ping_len = usize::try_from(self.done).ok(),
            _ => {}
        }
    }

    fn push_head(&mut self, byte: u8) -> Result<(), BadFrame> {
        self.head[self.head_len] = byte;
        self.head_len += 1;
        match self.head_len {
            1 => return self.check_kind(byte),
            2 => self.check_second(byte)?,
            _ => {}
        }
        let [first, second, ..] = self.head;
        let extra = match second & !MASKED {
            IN_TWO => 2,
            IN_EIGHT => 8,
            _ => 0,
        };
        let masked = if second & MASKED == 0 { 0 } else { MASK_LEN };
        if self.head_len < 2 + extra + masked {
            return Ok(());
        }
        self.left = self.length(extra)?;
        self.mask = [0; MASK_LEN];
        self.mask[..masked].copy_from_slice(&self.head[2 + extra..2 + extra + masked]);
        self.kind = first & 0x0f;
        self.head_len = 0;
        self.done = 0;
        self.in_body = true;
        if !self.is_control() {
            self.is_open = first & FINAL == 0;
        }
        if self.kind == PING {
            // Its body takes the place of an earlier one's.
            self.ping_len = None;
        }
        self.end_if_done();
        Ok(())
    }

    fn check_kind(&self, byte: u8) -> Result<(), BadFrame> {
        if byte & RESERVED != 0 {
            return Err(BadFrame::Reserved);
        }
        match byte & 0x0f {
            CONTINUED if !self.is_open => Err(BadFrame::Order),
            BINARY if self.is_open => Err(BadFrame::Order),
            CONTINUED | BINARY => Ok(()),
            TEXT => Err(BadFrame::Text),
            CLOSE | PING | PONG if byte & FINAL == 0 => Err(BadFrame::Control),
            CLOSE | PING | PONG => Ok(()),
            other => Err(BadFrame::Kind(other)),
        }
    }

    fn check_second(&self, byte: u8) -> Result<(), BadFrame> {
        if (byte & MASKED != 0) != (self.from == Side::Client) {
            return Err(BadFrame::Mask);
        }
        let is_control = self.head[0] & 0x0f >= CLOSE;
        if is_control && usize::from(byte & !MASKED) > CONTROL_LEN_MAX {
            return Err(BadFrame::Control);
        }
        Ok(())
    }

    /// The length, which stands in the fewest bytes that hold it (section 5.2).
    fn length(&self, extra: usize) -> Result<u64, BadFrame> {
        let long = self.head[2..2 + extra].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        match extra {
            0 => Ok(u64::from(self.head[1] & !MASKED)),
            2 if long >= u64::from(IN_TWO) => Ok(long),
            8 if long > u64::from(u16::MAX) && long >> 63 == 0 => Ok(long),
            _ => Err(BadFrame::Length),
        }
    }
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved => f.write_str("a WebSocket frame has bits of an unknown extension"),
            Self::Kind(kind) => write!(f, "a WebSocket frame of the unknown kind {kind}"),
            Self::Text => f.write_str("a WebSocket frame has text where bytes are spoken"),
            Self::Order => f.write_str("a WebSocket message begins in another, or nowhere"),
            Self::Control => f.write_str("a WebSocket control frame is too long or in parts"),
            Self::Mask => f.write_str("a WebSocket frame is masked by the wrong end"),
            Self::Length => f.write_str("a WebSocket frame has an impossible length"),
        }
    }
}

impl core::error::Error for BadFrame {}

#[cfg(test)]
mod tests;
