//! One peer: its handshake, its three sessions, its timers.

use core::ops::Range;

use crate::{
    Drop, Identity, Index, Indices, Instant, OpenedInitiation, PeerId, PresharedKey, PublicKey,
    Random, Session, Tai64n, Why,
};

/// What a handshake step needs from outside.
pub struct Context<'a> {
    /// Our key pair.
    pub identity: &'a Identity,
    /// Where receiver indices come from and go back to.
    pub indices: &'a mut Indices,
    /// Unpredictable bytes.
    pub random: &'a mut dyn Random,
    /// The monotonic clock.
    pub now: Instant,
    /// The wall clock; need not be right, may jump.
    pub wall: Tai64n,
}

/// What a peer wants done. Each is returned once by `poll_action`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The path has been silent: forget the cached local source address before sending again.
    ForgetSource,
    /// Call `initiate` and send what it returns.
    Initiate,
    /// A session has become usable: send what is staged.
    SendStaged,
    /// Send what is staged or, if nothing is, one packet with an empty plaintext.
    Keepalive,
    /// The peer does not answer: drop what is staged.
    DropStaged,
}

/// Everything the protocol remembers about one peer.
pub struct Peer {
    id: PeerId,
    key: PublicKey,
}

impl Peer {
    /// A peer without sessions. Draws 8 bytes to seed the jitter of its timers.
    #[must_use]
    pub fn new(id: PeerId, key: PublicKey, random: &mut dyn Random) -> Self {
        let _ = random;
        Self { id, key }
    }

    /// The caller's name for this peer.
    #[must_use]
    pub const fn id(&self) -> PeerId {
        self.id
    }

    /// The peer's public key.
    #[must_use]
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The preshared key; all zeros if there is none.
    #[must_use]
    pub fn preshared_key(&self) -> &PresharedKey {
        unimplemented!()
    }

    /// Sets the preshared key, all zeros for none. It applies from the next handshake on; current
    /// sessions live on (threat DP-21).
    pub fn set_preshared_key(&mut self, key: PresharedKey) {
        let _ = key;
    }

    /// The persistent keepalive interval in seconds, 0 for off.
    #[must_use]
    pub fn keepalive_s(&self) -> u16 {
        unimplemented!()
    }

    /// Sets the persistent keepalive interval. Switching it on asks for a keepalive at once.
    pub fn set_keepalive_s(&mut self, seconds: u16) {
        let _ = seconds;
    }

    /// When the last handshake completed, on the monotonic clock.
    #[must_use]
    pub fn last_handshake(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// The last timestamp sent, to be stored by a caller who wants to survive a clock that is wrong
    /// after a restart (threat LC-04).
    #[must_use]
    pub fn last_timestamp(&self) -> Tai64n {
        unimplemented!()
    }

    /// Promises never to send a timestamp up to and including `sent`.
    pub fn restore_timestamp(&mut self, sent: Tai64n) {
        let _ = sent;
    }

    /// Drops every session and handshake and gives their indices back. Called before the peer is
    /// removed or the interface goes down.
    pub fn clear(&mut self, indices: &mut Indices) {
        let _ = indices;
    }

    /// Tells the peer that our private key has changed: everything agreed under the old one is
    /// dropped, and a new handshake is asked for at once if there was a session or a persistent
    /// keepalive.
    pub fn handle_identity(&mut self, indices: &mut Indices) {
        let _ = indices;
    }

    /// Starts a handshake: the initiation to send. The previous one in flight, if any, is forgotten.
    ///
    /// `None` if it is too early (5 s after the last initiation or response sent), if the peer's key
    /// is our own or of low order (threat DP-15), or if no index is free.
    pub fn initiate(&mut self, context: &mut Context<'_>) -> Option<[u8; 148]> {
        let _ = context;
        unimplemented!()
    }

    /// Completes an initiation that `read_initiation` opened and that names this peer; returns the
    /// response to send. On success the datagram is authentic and fresh: its source may be learned.
    ///
    /// # Errors
    /// A reason, and nothing has changed.
    pub fn accept_initiation(
        &mut self,
        context: &mut Context<'_>,
        opened: OpenedInitiation,
    ) -> Result<[u8; 92], Drop> {
        let _ = (context, opened);
        unimplemented!()
    }

    /// Consumes the response to the initiation in flight: a session is then current. On success the
    /// source may be learned. A response is accepted once, and only for the newest initiation
    /// (threat DP-08).
    ///
    /// # Errors
    /// A reason, and nothing has changed.
    pub fn accept_response(
        &mut self,
        context: &mut Context<'_>,
        message: &[u8; 92],
    ) -> Result<(), Drop> {
        let _ = (context, message);
        unimplemented!()
    }

    /// Takes the cookie from a reply to the last handshake message sent. It goes into mac2 of the
    /// next ones for 115 s. The source is not learned: a cookie reply proves no identity.
    ///
    /// # Errors
    /// `BadCookie`.
    pub fn accept_cookie(&mut self, message: &[u8; 64], now: Instant) -> Result<(), Drop> {
        let _ = (message, now);
        unimplemented!()
    }

    /// The session to send on. `None` if there is none that may still send; a handshake has then
    /// been asked for, see `poll_action`. On the path of every packet.
    pub fn sealer(&mut self, now: Instant) -> Option<&mut Session> {
        let _ = now;
        unimplemented!()
    }

    /// Decrypts a transport datagram in place and returns where its plaintext lies; empty for a
    /// keepalive. `index` is the datagram's receiver index, which `indices` says is this peer's.
    /// On success the packet is authentic and fresh: its source may be learned. On the path of every
    /// packet.
    ///
    /// # Errors
    /// A reason; the bytes of the datagram are then undefined, everything else is unchanged.
    pub fn open(
        &mut self,
        indices: &mut Indices,
        index: Index,
        datagram: &mut [u8],
        now: Instant,
    ) -> Result<Range<usize>, Drop> {
        let _ = (indices, index, datagram, now);
        unimplemented!()
    }

    /// Tells the timers that a batch of transport packets was sealed and sent: how many, and how
    /// many bytes of plaintext they carried, 0 if all were keepalives.
    pub fn data_sent(&mut self, now: Instant, packets: u32, bytes: u64) {
        let _ = (now, packets, bytes);
    }

    /// Tells the timers that a batch of transport packets was opened: how many, and how many bytes
    /// of plaintext they carried, 0 if all were keepalives.
    pub fn data_received(&mut self, now: Instant, packets: u32, bytes: u64) {
        let _ = (now, packets, bytes);
    }

    /// Does what is due at `now`; what is to be sent comes out of `poll_action`.
    pub fn handle_timeout(&mut self, indices: &mut Indices, now: Instant) {
        let _ = (indices, now);
    }

    /// What to do now, one thing at a time, until `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        None
    }

    /// When to call `handle_timeout` next, and why. While `poll_action` has something it is
    /// `Instant::ZERO`. Cheap, but changes with every batch; a caller with many peers keeps the
    /// earliest and looks again when it is reached.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Why)> {
        None
    }
}
