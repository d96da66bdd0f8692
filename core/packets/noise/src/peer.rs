//! One peer: its handshake, its three sessions, its timers.
//!
//! Sessions move through three slots. One that we initiated is `current` as soon as the response is
//! read. One that we answered waits in `next` until the peer proves, by its first packet, that it
//! has the keys; then it is `current`. The one before stays in `previous` for packets under way.
//!
//! When both ends initiate at once (threat DP-09), both handshakes complete. The end with the
//! smaller public key stays with the session it initiated; the other end follows with the first
//! packet it receives on it.

use core::ops::Range;
use core::time::Duration;

use crate::cookie::Macs;
use crate::handshake::Sent;
use crate::kdf::Secret;
use crate::timers::{FIRST_TIMEOUTS, HANDSHAKE_ATTEMPTS_MAX, LAST_MINUTE, REKEY_TIMEOUT, Timers};
use crate::{
    Cipher, Drop, Identity, Index, Indices, Instant, OpenedInitiation, PeerId, PresharedKey,
    PrivateKey, PublicKey, Random, Session, Tai64n, Why,
};

mod second;
mod sessions;

use sessions::release;

/// Least time between two initiations accepted from one peer: 50 a second (threat DP-07).
const INITIATION_GAP: Duration = Duration::from_millis(20);

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

/// What a peer wants done. Each is returned once by `poll_action`, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Action {
    /// The peer does not answer: drop what is staged.
    DropStaged,
    /// The path has been silent: forget the cached local source address before sending again.
    ForgetSource,
    /// Call `initiate` and send what it returns.
    Initiate,
    /// A session that we answered has become current, and its initiator's timestamp had a word
    /// (see `Peer::word`).
    Greet,
    /// A session has become usable: send what is staged.
    SendStaged,
    /// Send what is staged or, if nothing is, one packet with an empty plaintext.
    Keepalive,
}

impl Action {
    const ALL: [Self; 6] = [
        Self::DropStaged,
        Self::ForgetSource,
        Self::Initiate,
        Self::Greet,
        Self::SendStaged,
        Self::Keepalive,
    ];
}

/// Everything the protocol remembers about one peer: below 1.5 KiB, and 5.4 KiB for each session,
/// 1.2 KiB more where the second cipher is used.
pub struct Peer {
    id: PeerId,
    key: PublicKey,
    psk: PresharedKey,
    /// Preshared keys that a response may be made with as well.
    also: [Option<PresharedKey>; Self::ALSO_MAX],
    static_static: StaticStatic,
    macs: Macs,
    sent: Option<Sent>,
    current: Option<Box<Session>>,
    previous: Option<Box<Session>>,
    next: Option<Box<Session>>,
    timers: Timers,
    /// A bit for each `Action` not yet polled.
    actions: u8,
    /// When the last handshake message was sent, initiation or response.
    handshake_sent: Option<Instant>,
    /// Initiations sent since a handshake completed, up to 255.
    unanswered: u8,
    handshake_completed: Option<Instant>,
    initiation_accepted: Option<Instant>,
    /// Timestamp of the last initiation accepted.
    timestamp_received: Tai64n,
    /// Timestamp of the last initiation sent.
    timestamp_sent: Tai64n,
    /// What we put into the low 24 bits of our timestamps.
    word: u32,
    /// See `Peer::set_repeats_soon`.
    repeats_soon: bool,
}

/// Diffie-Hellman of the two static keys: costly, so computed once.
enum StaticStatic {
    Unknown,
    Refused,
    Known(Secret),
}

impl Peer {
    /// A peer without sessions. Draws 8 bytes to seed the jitter of its timers.
    #[must_use]
    pub fn new(id: PeerId, key: PublicKey, random: &mut dyn Random) -> Self {
        let mut seed = [0; 8];
        random.fill(&mut seed);
        Self {
            id,
            key,
            psk: PresharedKey::default(),
            also: Default::default(),
            static_static: StaticStatic::Unknown,
            macs: Macs::default(),
            sent: None,
            current: None,
            previous: None,
            next: None,
            timers: Timers::new(u64::from_le_bytes(seed)),
            actions: 0,
            handshake_sent: None,
            unanswered: 0,
            handshake_completed: None,
            initiation_accepted: None,
            timestamp_received: Tai64n::ZERO,
            timestamp_sent: Tai64n::ZERO,
            word: 0,
            repeats_soon: false,
        }
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
    pub const fn preshared_key(&self) -> &PresharedKey {
        &self.psk
    }

    /// Sets the preshared key, all zeros for none. It applies from the next handshake message on;
    /// current sessions live on (threat DP-21).
    pub fn set_preshared_key(&mut self, key: PresharedKey) {
        self.psk = key;
        self.also = Default::default();
    }

    /// Preshared keys that hold beside the one we use, at most.
    pub const ALSO_MAX: usize = 3;

    /// Sets the preshared key that we use from the next handshake message on, and others that hold
    /// as well: the end that responds has the choice, and the one that initiated reads them all. A
    /// session that we initiated under a key that is none of these is renewed with what is sent on
    /// it, or received, next.
    pub fn set_preshared_keys(
        &mut self,
        key: PresharedKey,
        also: [Option<PresharedKey>; Self::ALSO_MAX],
    ) {
        self.psk = key;
        self.also = also;
        if let Some(session) = &mut self.current {
            session.retire_unless(core::iter::once(&self.psk).chain(self.also.iter().flatten()));
        }
    }

    /// When the peer made the last initiation that we accepted, by its wall clock; a clock that was
    /// set back shows only when it has caught up.
    #[must_use]
    pub const fn initiation_made(&self) -> Tai64n {
        self.timestamp_received
    }

    /// The persistent keepalive interval in seconds, 0 for off.
    #[must_use]
    pub const fn keepalive_s(&self) -> u16 {
        self.timers.interval_s
    }

    /// Sets the persistent keepalive interval. Switching it on asks for a keepalive at once.
    pub fn set_keepalive_s(&mut self, seconds: u16) {
        if seconds != 0 && self.timers.interval_s == 0 {
            self.want(Action::Keepalive);
        }
        self.timers.set_interval(seconds);
    }

    /// Sets the 24 bits that our timestamps carry in place of the ones that are whitened. Nobody
    /// on the way sees them, and whoever does not know them sees a time.
    pub fn set_word(&mut self, word: u32) {
        self.word = word;
    }

    /// Says whether the first initiations are repeated after 1 and 2 s instead of 5, as long as our
    /// timestamps have a word. Not toward a peer that may be of another make, which is to see the
    /// protocol's own times.
    pub fn set_repeats_soon(&mut self, repeats_soon: bool) {
        self.repeats_soon = repeats_soon;
    }

    /// The session that is sent on: its index, and the word with which the peer initiated it, 0 if
    /// it had none or if we initiated; where both did at once, that of the other session.
    #[must_use]
    pub fn current(&self) -> Option<(Index, u32)> {
        self.current.as_ref().map(|session| (session.index(), session.word))
    }

    /// The session that is sent on, and the number that its next packet will have.
    #[must_use]
    pub fn next_number(&self) -> Option<(Index, u64)> {
        self.current.as_ref().map(|session| (session.index(), session.next_counter()))
    }

    /// When the last handshake completed, on the monotonic clock.
    #[must_use]
    pub const fn last_handshake(&self) -> Option<Instant> {
        self.handshake_completed
    }

    /// Drops every session and handshake and gives their indices back. Called before the peer is
    /// removed or the interface goes down.
    /// The persistent keepalive stands still until the next packet; to start it again by itself,
    /// set its interval to 0 and back. The next handshake need not wait for the last one's 5 s: it
    /// belongs to a life that ended.
    pub fn clear(&mut self, indices: &mut Indices) {
        self.wipe(indices);
        self.timers.pause();
        self.actions = 0;
        self.handshake_sent = None;
    }

    /// Tells the peer that our private key has changed: everything agreed under the old one is
    /// dropped. The next packet begins a handshake at once; a persistent keepalive does so by
    /// itself. Without either none is begun: whoever rotates keys tells the other side after this
    /// one, and an initiation that comes too early would hold up the next for five seconds.
    pub fn handle_identity(&mut self, indices: &mut Indices) {
        self.clear(indices);
        self.static_static = StaticStatic::Unknown;
        if self.timers.interval_s != 0 {
            self.want_handshake();
        }
    }

    /// Starts a handshake: the initiation to send. The previous one in flight, if any, is
    /// forgotten.
    ///
    /// `None` if it is too early (5 s after the last initiation or response sent, or less, see
    /// `FIRST_TIMEOUTS`), if the peer's key is our own or of low order (threat DP-15), or if no
    /// index is free.
    pub fn initiate(&mut self, context: &mut Context<'_>) -> Option<[u8; 148]> {
        let timeout = self.response_timeout(context.now);
        if let Some(sent) = self.handshake_sent
            && !sent.is_older_than(timeout, context.now)
        {
            if !self.timers.expects_response() {
                self.timers.expect_response(sent, timeout);
            }
            return None;
        }
        let ephemeral = PrivateKey::generate(context.random);
        let timestamp = self.timestamp_sent.successor(context.wall).with_word(self.word);
        let static_static = self.static_static(context.identity)?;
        let local = context.indices.allocate(self.id, context.random)?;
        let made =
            Sent::new(context.identity, &self.key, &static_static, ephemeral, local, timestamp);
        let Some((mut message, sent)) = made else {
            context.indices.release(local);
            return None;
        };
        self.forget_initiation(context.indices);
        self.sent = Some(sent);
        self.timestamp_sent = timestamp;
        self.macs.finish(&mut message, &self.key, local, context.now);
        self.handshake_sent = Some(context.now);
        self.unanswered = self.unanswered.saturating_add(1);
        self.timers.authenticated_sent(context.now);
        self.timers.expect_response(context.now, self.response_timeout(context.now));
        Some(message)
    }

    /// How long after a handshake message the next initiation is due.
    fn response_timeout(&self, now: Instant) -> Duration {
        let has_session = self.current.as_ref().is_some_and(|session| session.may_send(now));
        let first = usize::from(self.unanswered).checked_sub(1);
        let first = first.filter(|_| self.repeats_soon && self.word != 0 && !has_session);
        first.and_then(|sent| FIRST_TIMEOUTS.get(sent).copied()).unwrap_or(REKEY_TIMEOUT)
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
        if *opened.peer() != self.key {
            return Err(Drop::UnknownPeer);
        }
        let static_static = self.static_static(context.identity).ok_or(Drop::BadHandshake)?;
        let proven = opened.prove(&static_static)?;
        if proven.timestamp <= self.timestamp_received {
            return Err(Drop::OldTimestamp);
        }
        if self.initiation_accepted.is_some_and(|a| !a.is_older_than(INITIATION_GAP, context.now)) {
            return Err(Drop::InitiationFlood);
        }
        let timestamp = proven.timestamp;
        let ephemeral = PrivateKey::generate(context.random);
        let local = context.indices.allocate(self.id, context.random).ok_or(Drop::NoIndex)?;
        let Some((mut message, agreed)) = proven.respond(&self.psk, &ephemeral, local) else {
            context.indices.release(local);
            return Err(Drop::BadHandshake);
        };
        self.timestamp_received = timestamp;
        self.initiation_accepted = Some(context.now);
        self.macs.finish(&mut message, &self.key, local, context.now);
        self.handshake_sent = Some(context.now);
        self.install_next(&agreed, context.indices, context.now);
        if let Some(next) = &mut self.next {
            next.word = timestamp.word();
        }
        self.timers.authenticated_received(context.now);
        self.timers.authenticated_sent(context.now);
        Ok(message)
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
        let receiver = wire::wireguard::Response(message).receiver();
        let sent = self.sent.take_if(|sent| sent.local.0 == receiver);
        let Some(sent) = sent else {
            return Err(Drop::UnexpectedResponse);
        };
        let psks = core::iter::once(&self.psk).chain(self.also.iter().flatten());
        let agreed = match sent.read_response(context.identity, psks, message) {
            Ok(agreed) => agreed,
            Err(reason) => {
                self.sent = Some(sent);
                return Err(reason);
            }
        };
        self.install_current(&agreed, context);
        self.timers.authenticated_received(context.now);
        self.handshake_complete(context.indices, context.now);
        self.want(Action::Keepalive);
        Ok(())
    }

    /// Takes the cookie from a reply to the last handshake message sent. It goes into mac2 of the
    /// next ones for 115 s. The source is not learned: a cookie reply proves no identity.
    ///
    /// # Errors
    /// `BadCookie`.
    pub fn accept_cookie(&mut self, message: &[u8; 64], now: Instant) -> Result<(), Drop> {
        self.macs.accept(message, &self.key, now)
    }

    /// Asks for a handshake although there may be a session: its other end seems to have forgotten
    /// it. No sooner than after the usual 5 s one is begun.
    pub fn renew(&mut self) {
        self.want_handshake();
    }

    /// The session to send on. `None` if there is none that may still send; a handshake has then
    /// been asked for, see `poll_action`. On the path of every packet.
    pub fn sealer(&mut self, now: Instant) -> Option<&mut Session> {
        if !self.current.as_ref().is_some_and(|session| session.may_send(now)) {
            self.want_handshake();
            return None;
        }
        self.current.as_deref_mut()
    }

    /// Decrypts a transport datagram in place and returns the session it came on, by its first
    /// index, and where its plaintext lies; empty for a keepalive. `index` is the datagram's
    /// receiver index, which `indices` says is this peer's.
    /// On success the packet is authentic and fresh: its source may be learned. On the path of
    /// every packet.
    ///
    /// # Errors
    /// A reason; the bytes of the datagram are then undefined, everything else is unchanged.
    pub fn open(
        &mut self,
        indices: &mut Indices,
        index: Index,
        datagram: &mut [u8],
        now: Instant,
    ) -> Result<(Index, Range<usize>), Drop> {
        for slot in [&mut self.current, &mut self.previous] {
            if let Some(session) = slot
                && let Some(cipher) = session.cipher_of(index)
            {
                return Ok((session.index(), session.open(cipher, datagram, now)?));
            }
        }
        let next = self.next.as_mut().filter(|session| session.index() == index);
        let next = next.ok_or(Drop::UnknownIndex)?;
        let range = next.open(Cipher::ChaCha20Poly1305, datagram, now)?;
        self.confirm_next(indices, now);
        Ok((index, range))
    }

    /// Whether the packet with this counter, opened on the session with this index, was sealed
    /// after all others that came on it: what overtook it says better where the peer is.
    #[must_use]
    pub fn is_newest(&self, index: Index, counter: u64) -> bool {
        let sessions = [&self.current, &self.previous].into_iter().flatten();
        let mut found = sessions.filter(|session| session.index() == index);
        found.next().is_some_and(|session| session.is_newest(counter))
    }

    /// Tells the timers that a batch of transport packets was sealed and sent: how many, and how
    /// many bytes of plaintext they carried, 0 if all were keepalives.
    pub fn data_sent(&mut self, now: Instant, packets: u32, bytes: u64) {
        if packets == 0 {
            return;
        }
        if bytes == 0 {
            self.timers.keepalive_sent(now);
        } else {
            self.timers.data_sent(now);
        }
        if self.current.as_ref().is_some_and(|session| session.is_stale(now)) {
            self.want_handshake();
        }
    }

    /// Tells the timers that a batch of transport packets was opened: how many, and how many bytes
    /// of plaintext they carried, 0 if all were keepalives.
    pub fn data_received(&mut self, now: Instant, packets: u32, bytes: u64) {
        if packets == 0 {
            return;
        }
        self.timers.authenticated_received(now);
        if bytes != 0 {
            self.timers.data_received(now);
        }
        if bytes != 0 && self.current.as_ref().is_some_and(|session| session.is_to_renew()) {
            self.want_handshake();
        }
        if !self.timers.last_minute_done
            && let Some(session) = &self.current
            && session.is_ours()
            && session.born().is_older_than(LAST_MINUTE, now)
        {
            self.timers.last_minute_done = true;
            self.want_handshake();
        }
    }

    /// Does what is due at `now`; what is to be sent comes out of `poll_action`.
    pub fn handle_timeout(&mut self, indices: &mut Indices, now: Instant) {
        while let Some(why) = self.timers.expire(now) {
            match why {
                Why::Action => {}
                Why::Retransmit => self.handle_no_response(indices, now),
                Why::Keepalive | Why::PersistentKeepalive => self.want(Action::Keepalive),
                Why::Silence => {
                    self.want(Action::ForgetSource);
                    self.want_handshake();
                }
                Why::SessionEnd => self.end_sessions(indices, now),
                Why::Wipe => self.wipe(indices),
            }
        }
    }

    /// What to do now, one thing at a time, until `None`.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = *Action::ALL.get(self.actions.trailing_zeros() as usize)?;
        self.actions &= self.actions - 1;
        Some(action)
    }

    /// When to call `handle_timeout` next, and why. While `poll_action` has something it is
    /// `Instant::ZERO`. Cheap, but changes with every batch; a caller with many peers keeps the
    /// earliest and looks again when it is reached.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if self.actions != 0 {
            return Some((Instant::ZERO, Why::Action));
        }
        self.timers.poll_timeout()
    }

    fn want(&mut self, action: Action) {
        self.actions |= 1 << action as u8;
    }

    /// Asks for a handshake that is not a retransmission: its attempts count from the start.
    fn want_handshake(&mut self) {
        self.timers.attempts = 0;
        self.want(Action::Initiate);
    }

    /// The initiation in flight was not answered: again, or give the peer up.
    fn handle_no_response(&mut self, indices: &mut Indices, now: Instant) {
        self.timers.attempts += 1;
        if self.timers.attempts >= HANDSHAKE_ATTEMPTS_MAX {
            self.forget_initiation(indices);
            self.timers.give_up(now);
            self.want(Action::DropStaged);
        } else {
            self.want(Action::ForgetSource);
            self.want(Action::Initiate);
        }
    }

    /// Both ends are known to have the keys.
    fn handshake_complete(&mut self, indices: &mut Indices, now: Instant) {
        self.forget_initiation(indices);
        self.timers.handshake_completed();
        self.unanswered = 0;
        self.handshake_completed = Some(now);
    }

    /// Drops every secret but the static ones.
    fn wipe(&mut self, indices: &mut Indices) {
        self.forget_initiation(indices);
        for session in [self.current.take(), self.previous.take(), self.next.take()] {
            release(indices, session);
        }
        self.unanswered = 0;
        self.timers.stop();
    }

    fn forget_initiation(&mut self, indices: &mut Indices) {
        if let Some(sent) = self.sent.take() {
            indices.release(sent.local);
        }
    }

    /// `None` if the peer's key is our own or has low order.
    fn static_static(&mut self, identity: &Identity) -> Option<Secret> {
        if let StaticStatic::Unknown = self.static_static {
            let shared = (self.key != *identity.public())
                .then(|| identity.private().agree(&self.key))
                .flatten();
            self.static_static = shared.map_or(StaticStatic::Refused, StaticStatic::Known);
        }
        match &self.static_static {
            StaticStatic::Known(secret) => Some(secret.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
