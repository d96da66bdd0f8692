//! The link to one peer.
//!
//! Stages, in the order in which they appear below: `send`, `receive`, the three handshake
//! messages. What a link does of itself is in `actions`, what concerns several paths in `managed`,
//! what it tells of itself in `shown`.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use noise::{
    Action, Context, Drop, Identity, Index, Indices, Instant, OpenedInitiation, Peer, PeerId,
    PublicKey, Random, Session, Tai64n, Why,
};
use repair::budget::Budget;
use translate::Table;
use wire::frame::{self, Frame, Hello, ProbeAnswer};
use wire::superpacket::{self, Superpacket};
use wire::{virtio, wireguard};

use crate::frames::gather::Wishes;
use crate::frames::overrun::Overrun;
use crate::frames::piece::Judge;
use crate::frames::{self, Frames};
use crate::inbox::Inbox;
use crate::outbox::{Destination, Outbox};
use crate::outcome::{Outcome, Refusal};
use crate::paths::Paths;
use crate::paths::roomy::Roomy;
use crate::preshared::{KeyStatus, Keys, Preshared};
use crate::staged::Staged;
use crate::tuning::Tuning;
use crate::way::Way;

/// What a link needs from outside for anything that may send: our keys and indices, randomness,
/// the two clocks, and the inner MTU, above which nothing is padded (threat DP-24).
pub struct World<'a> {
    /// Our key pair; without one nothing is initiated.
    pub identity: Option<&'a Identity>,
    /// The node's receiver indices.
    pub indices: &'a mut Indices,
    /// Unpredictable bytes.
    pub random: &'a mut dyn Random,
    /// The monotonic clock.
    pub now: Instant,
    /// The wall clock.
    pub wall: Tai64n,
    /// The interface's MTU in bytes; 0 = unknown.
    pub mtu: usize,
    /// Where this machine may be reached, for peers that are called.
    pub reach: Own<'a>,
}

/// Where this machine may be reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<'a> {
    /// Our endpoints, the likeliest first.
    pub endpoints: &'a [SocketAddr],
    /// Our translator maps by destination.
    pub varies: bool,
    /// Relays through which not everything fits: the number of each, and bytes of the largest
    /// packet.
    pub rooms: &'a [(u32, usize)],
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

/// One peer, and what is between us.
pub struct Link {
    tuning: &'static Tuning,
    peer: Peer,
    /// While more than one preshared key may hold.
    keys: Option<Box<Keys>>,
    endpoint: Option<Destination>,
    /// Packets wait although there is a session: none of the paths is in use.
    wants_path: bool,
    staged: Staged,
    rx_bytes: u64,
    tx_bytes: u64,
    /// Another one in each life of the link.
    salt: u32,
    /// What is spoken beside packets with a peer that knows frames; none while we speak none.
    frames: Option<Box<Frames>>,
    /// Memory for what waits, of all links.
    budget: Budget,
    /// Whether our Hello offers AES-256-GCM.
    aes: bool,
    /// What is wanted for what is sent, without a policy that says so.
    wishes: Wishes,
    order_us: u64,
    /// Repair for each byte that is sent, at most.
    repair_max: f64,
    /// The session on which a Hello came that wants an answer.
    answer: Option<Index>,
    /// Of a managed peer: its paths. `endpoint` is where the best of them leads.
    paths: Option<Box<Paths>>,
    /// Bytes of the largest packet that fits through the path in use; no bound without paths.
    room: usize,
    /// Whether a packet of full size and its frames pass in one datagram.
    roomy: Roomy,
    /// Answers to probes, and where they go.
    answers: Vec<(Destination, ProbeAnswer)>,
}

/// Why a link wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A timer of the session protocol.
    Peer(Why),
    /// Something waits for its time: repair, a report, a flow.
    Frames,
    /// A path is to be probed.
    Paths,
    /// A preshared key begins to be used, or ceases to hold.
    Keys,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Link {
    /// A link to the peer with `key`, which the node calls `id`. What waits in it is of `budget`.
    #[must_use]
    pub fn new(
        id: PeerId,
        key: PublicKey,
        budget: Budget,
        tuning: &'static Tuning,
        random: &mut dyn Random,
    ) -> Self {
        let peer = Peer::new(id, key, random);
        let mut salt = [0; 4];
        random.fill(&mut salt);
        Self {
            tuning,
            peer,
            keys: None,
            endpoint: None,
            wants_path: false,
            staged: Staged::default(),
            rx_bytes: 0,
            tx_bytes: 0,
            salt: u32::from_le_bytes(salt),
            frames: None,
            budget,
            aes: false,
            wishes: Wishes::default(),
            order_us: tuning.repair.waiting.order_us,
            repair_max: repair::limits::SHARE_MAX,
            answer: None,
            paths: None,
            room: usize::MAX,
            roomy: Roomy::default(),
            answers: Vec::new(),
        }
    }

    /// Speaks frames with a peer that knows them, from the next handshake on. `None` ends that with
    /// the sessions that there are: on new ones nobody can tell this link from a plain one.
    pub fn set_frames(&mut self, own: Option<Hello>) {
        self.peer.set_word(if own.is_some() { frame::CAPABILITY } else { 0 });
        match (&mut self.frames, own) {
            (Some(frames), own) => frames.set_own(own),
            (None, Some(own)) => {
                let peer = self.peer.id().0;
                let budget = self.budget.clone();
                let limits = (self.order_us, self.repair_max);
                let frames = Frames::new(peer, self.salt, own, budget, limits, self.tuning);
                self.frames = Some(Box::new(frames));
            }
            (None, None) => {}
        }
    }

    /// Says whether this machine has instructions for AES. If so our Hello has a second receiver
    /// index from the next session on; with a peer whose Hello has one too, datagrams of that
    /// session are sealed with AES-256-GCM.
    pub fn set_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// Whether flows to this peer are compressed where the peer reads that; off at first, for what
    /// a length tells (docs/compression.md).
    pub fn set_squeeze(&mut self, squeeze: bool) {
        self.wishes.squeeze = squeeze;
    }

    /// How long a small packet to this peer waits for others, where the peer reads bundles; zero,
    /// as at first: until its turn is over. What somebody may be waiting for never waits.
    pub fn set_hold(&mut self, hold: Duration) {
        self.wishes.hold = hold;
    }

    /// How long a piece of TCP from this peer waits for an older one at most; [`crate::ORDER`] at
    /// first, and never more than [`crate::ORDER_MAX`].
    pub fn set_order(&mut self, order: Duration) {
        self.order_us = order.as_micros() as u64;
        if let Some(frames) = &mut self.frames {
            frames.set_order_us(self.order_us);
        }
    }

    /// How much repair may be sent to this peer for each byte, at most: a half at first, and never
    /// more than that.
    pub fn set_repair_max(&mut self, share: f64) {
        self.repair_max = share;
        if let Some(frames) = &mut self.frames {
            frames.set_repair_max(share);
        }
    }

    /// What the peer said of more having been sent than could be taken, since this was asked last.
    pub fn poll_overrun(&mut self) -> Option<Overrun> {
        self.frames.as_mut()?.halves_mut()?.sender.poll_overrun()
    }

    /// The protocol machine.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The protocol machine, to configure it.
    pub fn peer_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Where the peer was last heard, or was configured to be.
    #[must_use]
    pub fn endpoint(&self) -> Option<Destination> {
        self.endpoint
    }

    /// Says where the peer is, until it is heard from elsewhere.
    pub fn set_endpoint(&mut self, endpoint: Destination) {
        self.endpoint = Some(endpoint);
    }

    /// Forgets which of our addresses the peer spoke to: routes or addresses have changed, and
    /// the kernel shall choose again.
    pub fn forget_source(&mut self) {
        if let Some(to) = &mut self.endpoint {
            to.forget_source();
        }
        if let Some(paths) = &mut self.paths {
            paths.forget_sources();
        }
    }

    /// Bytes of datagrams from the peer that were authentic.
    #[must_use]
    pub fn rx_bytes(&self) -> u64 {
        self.rx_bytes
    }

    /// Bytes of datagrams sealed for the peer.
    #[must_use]
    pub fn tx_bytes(&self) -> u64 {
        self.tx_bytes
    }

    /// Segments that wait for a session, or for others.
    #[must_use]
    pub fn staged(&self) -> u64 {
        self.staged.segments() + self.frames.as_ref().map_or(0, |frames| frames.gathered())
    }

    /// Ends every session, and gives back indices and what waits (whose number is returned).
    pub fn clear(&mut self, indices: &mut Indices) -> u64 {
        self.peer.clear(indices);
        let mut dropped = 0;
        if let Some(frames) = &mut self.frames {
            dropped = frames.drop_gathered();
            frames.clear();
        }
        if let Some(paths) = &mut self.paths {
            paths.clear();
        }
        dropped + self.staged.clear()
    }

    /// Sends a superpacket, or stages it. `squeeze` says whether a policy lets it be compressed;
    /// where [`Link::set_squeeze`] does, it need not. On the path of every packet.
    #[inline]
    pub fn send<O: Outbox>(
        &mut self,
        header: virtio::Header,
        packet: &Superpacket<'_>,
        (now, mtu): (Instant, usize),
        squeeze: bool,
        out: &mut O,
    ) -> Outcome {
        let segments = packet.segments() as u64;
        let mut outcome = Outcome::default();
        if let Some(paths) = &mut self.paths {
            paths.note_data(now);
        }
        let room = mtu.min(self.room);
        if room < mtu && packet.segment_len(0) > room {
            outcome.refused = Some((Refusal::TooBig, segments));
            return outcome;
        }
        if !self.has_destination() {
            outcome.refused = Some((Refusal::NoEndpoint, segments));
            return outcome;
        }
        let (Some(session), Some(to)) = (self.peer.sealer(now), self.endpoint) else {
            outcome.staged = segments;
            outcome.overflowed = self.staged.push(header, packet);
            self.want_path();
            return outcome;
        };
        let mtu = room;
        let wishes = Wishes { squeeze: squeeze || self.wishes.squeeze, ..self.wishes };
        let index = session.index();
        if let Some(sender) = self.frames.as_mut().and_then(|frames| frames.sender(index)) {
            let room = self.roomy.room(&to, mtu);
            let mut way = Way::new(session, to, out).paced(sender.gap_ns());
            let outcome = sender.send(header, packet, (now, mtu, room), wishes, &mut way);
            let datagrams = way.datagrams;
            let bytes = way.bytes;
            if sender.take_beyond() {
                self.roomy.note_used();
            }
            self.tx_bytes += bytes;
            self.peer.data_sent(now, datagrams, bytes);
            return outcome;
        }
        let mut bytes = 0;
        let mut datagrams = 0;
        for i in 0..packet.segments() {
            match seal_segment(session, packet, i, mtu, &to, out) {
                Ok(len) => {
                    bytes += len as u64;
                    datagrams += 1;
                }
                Err(refusal) => {
                    outcome.refused = Some((refusal, segments - outcome.sent));
                    break;
                }
            }
            outcome.sent += 1;
        }
        self.tx_bytes += bytes;
        if datagrams > 0 {
            self.peer.data_sent(now, datagrams, bytes);
        }
        outcome
    }

    /// Opens a transport datagram in place; returns the session it came on, by its first index,
    /// and where its plaintext lies, empty for a keepalive. On the path of every packet.
    ///
    /// # Errors
    /// The reason, to be counted; nothing has changed.
    #[inline]
    pub fn receive(
        &mut self,
        from: Destination,
        index: Index,
        datagram: &mut [u8],
        indices: &mut Indices,
        now: Instant,
    ) -> Result<(Index, Range<usize>), Drop> {
        let len = datagram.len();
        let (index, plain) = self.peer.open(indices, index, datagram, now)?;
        let counter = wireguard::counter(datagram);
        let session = Some((index, counter));
        self.learn(&from, len, session, now, |peer| peer.is_newest(index, counter));
        if !frame::is_frame(&datagram[plain.clone()]) {
            self.peer.data_received(now, 1, plain.len() as u64);
            self.note_received(!plain.is_empty(), (index, counter), now);
            if let Some(frames) = &mut self.frames {
                frames.note_bare(index, counter, !plain.is_empty(), now);
            }
        }
        Ok((index, plain))
    }

    /// Takes the frame that lies at `plain` of a datagram just received, which lies at `start` of
    /// the lent memory. `index` is its session, by its first index. Packets in it wait for
    /// [`Link::poll_pieces`]; a Hello or a probe gets its answer from [`Link::handle_actions`].
    ///
    /// Returns whether packets may have come in it.
    ///
    /// # Errors
    /// `Malformed`, also for a frame of a kind unknown here, or where we speak none.
    pub fn handle_frame(
        &mut self,
        (from, index): (Destination, Index),
        datagram: &[u8],
        plain: Range<usize>,
        start: usize,
        judge: &mut impl Judge,
        now: Instant,
    ) -> Result<bool, Drop> {
        let parsed = frame::parse(&datagram[plain.clone()]);
        // Frames without packets begin no timer, and nothing needs to answer them.
        let is_data = parsed.as_ref().is_ok_and(frames::carries_data);
        self.peer.data_received(now, 1, if is_data { plain.len() as u64 } else { 0 });
        let counter = wireguard::counter(datagram);
        self.note_received(is_data, (index, counter), now);
        let Some(frames) = &mut self.frames else { return Err(Drop::Malformed) };
        match parsed {
            Ok(Frame::Hello(hello)) => {
                self.peer.accept_second(index, hello.second_index);
                self.peer.set_repeats_soon(true);
                if frames.handle_hello(index, hello) {
                    self.answer = Some(index);
                }
                frames.note_bare(index, counter, false, now);
                Ok(false)
            }
            Ok(Frame::Probe(_) | Frame::ProbeAnswer(_) | Frame::Candidates(_)) => {
                frames.note_stray_in(index, counter);
                self.handle_path_frame(&from, &datagram[plain], now)?;
                Ok(false)
            }
            Ok(Frame::Elsewhere(ref elsewhere)) => {
                frames.handle_elsewhere(index, elsewhere);
                frames.note_bare(index, counter, false, now);
                Ok(false)
            }
            Ok(ref frame) => {
                frames.handle_frame((index, counter), frame, start + plain.start, judge, now)?;
                Ok(is_data)
            }
            Err(_) => {
                // It came: nothing is to be repaired for its sake.
                frames.note_bare(index, counter, false, now);
                Err(Drop::Malformed)
            }
        }
    }

    /// Moves packets that came in frames into `inbox`, in order. Returns whether all went that are
    /// ready; otherwise the inbox has to be drained first. Headers of units are rewritten by
    /// `table`, the one of [`Judge::rewrite`].
    pub fn poll_pieces(&mut self, inbox: &mut Inbox, table: Option<&Table>) -> bool {
        let halves = self.frames.as_mut().and_then(|frames| frames.halves_mut());
        halves.is_none_or(|halves| halves.receiver.poll_pieces(inbox, table))
    }

    /// Answers an initiation that names this peer.
    ///
    /// # Errors
    /// The reason, to be counted; nothing has changed.
    pub fn handle_initiation<O: Outbox>(
        &mut self,
        from: Destination,
        opened: OpenedInitiation,
        world: &mut World<'_>,
        out: &mut O,
    ) -> Result<(), Drop> {
        self.refresh_keys(world);
        let Some(mut context) = context(world) else { return Err(Drop::UnknownPeer) };
        let response = self.peer.accept_initiation(&mut context, opened)?;
        if let Some(keys) = &mut self.keys {
            keys.note_initiation(self.peer.initiation_made(), (world.now, world.wall));
        }
        self.learn(&from, wireguard::INITIATION_LEN, None, world.now, |_| true);
        self.respond(&from, &response, out);
        Ok(())
    }

    /// Completes a handshake of ours.
    ///
    /// # Errors
    /// The reason, to be counted; nothing has changed.
    pub fn handle_response(
        &mut self,
        from: Destination,
        message: &[u8; wireguard::RESPONSE_LEN],
        world: &mut World<'_>,
    ) -> Result<(), Drop> {
        self.refresh_keys(world);
        let Some(mut context) = context(world) else { return Err(Drop::UnexpectedResponse) };
        let read = self.peer.accept_response(&mut context, message);
        if let Some(keys) = &mut self.keys {
            keys.note_response(&read);
        }
        read?;
        self.learn(&from, wireguard::RESPONSE_LEN, None, world.now, |_| true);
        self.handle_agreed(&from, world.now);
        Ok(())
    }

    /// Keeps a cookie for the next handshake message.
    ///
    /// # Errors
    /// The reason, to be counted; nothing has changed.
    pub fn handle_cookie(
        &mut self,
        message: &[u8; wireguard::COOKIE_REPLY_LEN],
        now: Instant,
    ) -> Result<(), Drop> {
        self.peer.accept_cookie(message, now)?;
        self.rx_bytes += wireguard::COOKIE_REPLY_LEN as u64;
        Ok(())
    }

    /// Does what is due at `now`. What is to be sent comes with [`Link::handle_actions`].
    pub fn handle_timeout(&mut self, indices: &mut Indices, now: Instant) {
        self.peer.handle_timeout(indices, now);
        if let Some(frames) = &mut self.frames {
            frames.handle_timeout(now);
        }
    }

    /// When to call [`Link::handle_timeout`] next, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let peer = self.peer.poll_timeout().map(|(at, why)| (at, Wake::Peer(why)));
        let frames = self.frames.as_ref().and_then(|frames| frames.poll_timeout());
        let frames = frames.map(|at| (at, Wake::Frames));
        let paths = self.paths.as_ref().and_then(|paths| paths.poll_timeout());
        let paths = paths.map(|at| (at, Wake::Paths));
        let roomy = self.roomy.poll_timeout().map(|at| (at, Wake::Paths));
        let keys = self.keys.as_ref().map(|keys| (keys.due(), Wake::Keys));
        [peer, frames, paths, roomy, keys].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// An authentic and fresh datagram came from `from`. Unless it `is_newest` it was overtaken on
    /// another path, and does not say where the peer is now.
    #[inline]
    fn learn(
        &mut self,
        from: &Destination,
        len: usize,
        number: Option<(Index, u64)>,
        now: Instant,
        is_newest: impl FnOnce(&Peer) -> bool,
    ) {
        self.rx_bytes += len as u64;
        if let Some(paths) = &mut self.paths {
            if paths.handle_heard(from, now) {
                self.endpoint = paths.to();
            }
        } else if self.endpoint != Some(*from) && is_newest(&self.peer) {
            let before = self.endpoint.replace(*from);
            if before.is_some_and(|before| before.is_elsewhere(from)) {
                self.handle_followed(number, now);
            }
        }
    }
}

/// Writes, pads and seals one segment in a slot of the outbox; returns the datagram's length.
#[inline]
fn seal_segment<O: Outbox>(
    session: &mut Session,
    packet: &Superpacket<'_>,
    index: usize,
    mtu: usize,
    to: &Destination,
    out: &mut O,
) -> Result<usize, Refusal> {
    let len = packet.segment_len(index);
    let padded = wireguard::padded_len(len, mtu);
    let total = padded + wireguard::OVERHEAD_LEN;
    let slot = out.reserve(to, total).ok_or(Refusal::NoRoom)?;
    let plain = &mut slot[wireguard::TRANSPORT_HEADER_LEN..][..padded];
    packet.write_segment(index, plain);
    plain[len..].fill(0);
    session.seal(slot).map_err(|_| Refusal::Exhausted)?;
    out.commit();
    Ok(total)
}

fn context<'a>(world: &'a mut World<'_>) -> Option<Context<'a>> {
    Some(Context {
        identity: world.identity?,
        indices: world.indices,
        random: world.random,
        now: world.now,
        wall: world.wall,
    })
}

mod actions;
mod cells;
mod keys;
mod managed;
mod shown;
mod sounding;

pub use sounding::Unsounded;
