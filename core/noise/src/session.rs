//! One session: a key for each direction, a counter, a replay window.

use crate::{Index, Instant};

/// An initiator renews a session after this many packets.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Nobody sends or accepts a packet with this counter or a higher one (threat DP-10).
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Transport keys shared with a peer, agreed by one handshake.
pub struct Session {
    born: Instant,
    local: Index,
}

/// The session has sent its last packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Session {
    /// Bytes of header before the plaintext.
    pub const HEADER_LEN: usize = 16;
    /// Bytes of tag after the plaintext.
    pub const TAG_LEN: usize = 16;
    /// Bytes a datagram is longer than its plaintext. A keepalive is this long.
    pub const OVERHEAD: usize = Self::HEADER_LEN + Self::TAG_LEN;

    /// Turns `datagram` into a transport packet in place: 16 bytes of header that are overwritten,
    /// the plaintext already padded, 16 bytes of tag that are overwritten.
    ///
    /// # Errors
    /// `Exhausted` if the counter has reached its limit; the datagram is then untouched.
    ///
    /// # Panics
    /// If `datagram` is shorter than `OVERHEAD`.
    pub fn seal(&mut self, datagram: &mut [u8]) -> Result<(), Exhausted> {
        let _ = datagram;
        unimplemented!()
    }

    /// Our index for this session: what the peer writes into packets to us.
    #[must_use]
    pub const fn index(&self) -> Index {
        self.local
    }

    /// When the session was agreed.
    #[must_use]
    pub const fn born(&self) -> Instant {
        self.born
    }
}
