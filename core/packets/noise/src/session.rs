//! One session: a key for each direction, a counter, a replay window. Its second cipher, which is
//! not WireGuard's, stands in a file of its own.

use core::ops::Range;

use ring::aead::{Aad, LessSafeKey};
use wire::wireguard::{KEEPALIVE_LEN, TAG_LEN, TRANSPORT_HEADER_LEN, TYPE_TRANSPORT};

use crate::kdf::Secret;
use crate::replay::Replay;
use crate::timers::{REJECT_AFTER_TIME, REKEY_AFTER_TIME};
use crate::{Drop, Index, Instant, PresharedKey, aead};

mod second;

pub use second::Cipher;
use second::Second;

/// An initiator renews a session after this many packets.
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Nobody sends or accepts a packet with this counter or a higher one (threat DP-10).
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);

/// Transport keys shared with a peer, agreed by one handshake.
pub struct Session {
    sealing: LessSafeKey,
    opening: LessSafeKey,
    /// The counter of the next packet to send.
    counter: u64,
    replay: Replay,
    born: Instant,
    local: Index,
    /// The peer's index, which goes into packets to it.
    remote: u32,
    second: Second,
    role: Role,
    /// A responder's session that lost against one we initiated: it may be received on, but the
    /// first packet received on it does not make it current (threat DP-09).
    pub(crate) superseded: bool,
    /// The word in the timestamp of the initiation that we answered; 0 if we were the initiator.
    pub(crate) word: u32,
    /// The preshared key that went into it.
    psk: PresharedKey,
    /// That key holds no longer: whoever initiated the session is to renew it.
    is_retired: bool,
    #[cfg(feature = "oracle")]
    oracle: crate::oracle::KeyId,
}

/// Which end of the handshake we were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// What a completed handshake yields.
pub(crate) struct Agreed {
    pub(crate) sealing: Secret,
    pub(crate) opening: Secret,
    pub(crate) local: Index,
    pub(crate) remote: u32,
    pub(crate) role: Role,
    pub(crate) psk: PresharedKey,
}

/// The session has sent its last packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Session {
    /// Bytes of header before the plaintext.
    pub const HEADER_LEN: usize = TRANSPORT_HEADER_LEN;
    /// Bytes of tag after the plaintext.
    pub const TAG_LEN: usize = TAG_LEN;
    /// Bytes a datagram is longer than its plaintext. A keepalive is this long.
    pub const OVERHEAD: usize = KEEPALIVE_LEN;

    /// Boxed, so that a peer's three slots are cheap to move and small while empty.
    pub(crate) fn new(agreed: &Agreed, now: Instant) -> Box<Self> {
        Box::new(Self {
            sealing: aead::key(&agreed.sealing),
            opening: aead::key(&agreed.opening),
            counter: 0,
            replay: Replay::new(),
            born: now,
            local: agreed.local,
            remote: agreed.remote,
            second: Second::new(&agreed.sealing, &agreed.opening),
            role: agreed.role,
            superseded: false,
            word: 0,
            psk: agreed.psk.clone(),
            is_retired: false,
            #[cfg(feature = "oracle")]
            oracle: crate::oracle::KeyId::new(&agreed.sealing),
        })
    }

    /// Turns `datagram` into a transport packet in place: 16 bytes of header that are overwritten,
    /// the plaintext already padded, 16 bytes of tag that are overwritten.
    ///
    /// # Errors
    /// `Exhausted` if the counter has reached its limit; the datagram is then untouched.
    ///
    /// # Panics
    /// If `datagram` is shorter than `OVERHEAD`.
    pub fn seal(&mut self, datagram: &mut [u8]) -> Result<(), Exhausted> {
        assert!(datagram.len() >= Self::OVERHEAD, "room for header and tag is the caller's duty");
        let counter = self.counter;
        if counter >= REJECT_AFTER_MESSAGES {
            return Err(Exhausted);
        }
        self.counter = counter + 1;
        #[cfg(feature = "oracle")]
        self.second.oracle().unwrap_or(self.oracle).witness(counter);
        let second = self.second.sealing(datagram.len());
        let (sealing, remote) = second.unwrap_or((&self.sealing, self.remote));
        let (header, rest) = datagram.split_at_mut(Self::HEADER_LEN);
        let (plain, tag) = rest.split_at_mut(rest.len() - Self::TAG_LEN);
        header[..4].copy_from_slice(&TYPE_TRANSPORT.to_le_bytes());
        header[4..8].copy_from_slice(&remote.to_le_bytes());
        header[8..].copy_from_slice(&counter.to_le_bytes());
        let sealed = sealing
            .seal_in_place_separate_tag(aead::nonce(counter), Aad::empty(), plain)
            .expect("datagrams are far below the ciphers' limits of 64 GiB and more");
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// The number that the next packet will have.
    #[must_use]
    pub fn next_counter(&self) -> u64 {
        self.counter
    }

    /// Decrypts a transport packet in place and says where its plaintext lies. The cipher is that
    /// of the index to which the packet came.
    pub(crate) fn open(
        &mut self,
        cipher: Cipher,
        datagram: &mut [u8],
        now: Instant,
    ) -> Result<Range<usize>, Drop> {
        if datagram.len() < Self::OVERHEAD {
            return Err(Drop::Malformed);
        }
        let (header, sealed) = datagram.split_at_mut(Self::HEADER_LEN);
        let counter = u64::from_le_bytes(*header.last_chunk().expect("a header has 16 bytes"));
        if !self.is_live(now) || counter >= REJECT_AFTER_MESSAGES {
            return Err(Drop::ExpiredSession);
        }
        if !self.replay.is_fresh(counter) {
            return Err(Drop::Replayed);
        }
        let opening = match cipher {
            Cipher::ChaCha20Poly1305 => &self.opening,
            Cipher::Aes256Gcm => self.second.opening().ok_or(Drop::UnknownIndex)?,
        };
        let plain = opening
            .open_in_place(aead::nonce(counter), Aad::empty(), sealed)
            .map_err(|_| Drop::BadTag)?;
        self.replay.accept(counter);
        Ok(Self::HEADER_LEN..Self::HEADER_LEN + plain.len())
    }

    /// Whether nothing that was received was sealed after the packet with this counter.
    pub(crate) const fn is_newest(&self, counter: u64) -> bool {
        self.replay.is_newest(counter)
    }

    /// Our index for this session: what the peer writes into packets to us.
    #[must_use]
    pub const fn index(&self) -> Index {
        self.local
    }

    /// The second index, to which the peer may seal with AES-256-GCM; 0 if there is none.
    #[must_use]
    pub fn second_index(&self) -> u32 {
        self.second.local().map_or(0, |index| index.0)
    }

    /// What a packet to `index` is sealed with; `None` if that is no index of this session.
    pub(crate) fn cipher_of(&self, index: Index) -> Option<Cipher> {
        if index == self.local {
            return Some(Cipher::ChaCha20Poly1305);
        }
        self.second.local().filter(|second| *second == index).map(|_| Cipher::Aes256Gcm)
    }

    /// How the next packet is sealed.
    pub(crate) fn cipher(&self) -> Cipher {
        if self.second.is_on() { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 }
    }

    /// Takes a second index; from now on the peer may seal to it.
    pub(crate) fn begin_second(&mut self, local: Index) {
        self.second.begin(local);
    }

    /// The peer's second index, or 0 for none.
    pub(crate) fn set_second_remote(&mut self, remote: u32) {
        self.second.remote = remote;
    }

    /// When the session was agreed.
    #[must_use]
    pub const fn born(&self) -> Instant {
        self.born
    }

    /// When the session ends, whatever happens.
    pub(crate) const fn ends(&self) -> Instant {
        self.born.after(REJECT_AFTER_TIME)
    }

    /// `true` while the session is young enough to be used at all.
    pub(crate) fn is_live(&self, now: Instant) -> bool {
        now < self.ends()
    }

    /// `true` while the session may still send.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.is_live(now) && self.counter < REJECT_AFTER_MESSAGES
    }

    /// `true` if we were the handshake's initiator.
    pub(crate) fn is_ours(&self) -> bool {
        self.role == Role::Initiator
    }

    /// `true` if sending on the session should also ask for a new one. By time, or for the sake of
    /// its preshared key, only the initiator asks, lest both do.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        let is_old = || self.is_retired || self.born.is_older_than(REKEY_AFTER_TIME, now);
        self.counter > REKEY_AFTER_MESSAGES || self.is_ours() && is_old()
    }

    /// Says which preshared keys hold; a session under another one is to be renewed.
    pub(crate) fn retire_unless<'a>(&mut self, mut keys: impl Iterator<Item = &'a PresharedKey>) {
        self.is_retired = !keys.any(|key| *key == self.psk);
    }

    /// Whether the session is ours and its preshared key holds no longer.
    pub(crate) fn is_to_renew(&self) -> bool {
        self.is_ours() && self.is_retired
    }
}

impl core::ops::Drop for Session {
    fn drop(&mut self) {
        aead::wipe(&mut self.sealing);
        aead::wipe(&mut self.opening);
    }
}

impl core::fmt::Display for Exhausted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the session has sent as many packets as its counter allows")
    }
}

impl core::error::Error for Exhausted {}

#[cfg(test)]
mod tests;
