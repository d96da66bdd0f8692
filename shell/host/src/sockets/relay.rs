//! Streams to relays, in the node's loop: TLS or QUIC ([`Carrier`]) on sockets that never block.
//!
//! Stages: [`Streams::push`] takes a sealed datagram into the queue of its stream;
//! [`Streams::flush`] seals and sends as much as the socket takes; [`Streams::read`] opens what
//! came and leaves frames in the stream's decoder, where the node opens datagrams in place;
//! [`Streams::handle_timeout`] pings, and ends what no longer answers.
//!
//! Somebody else connects, since that blocks, and hands over the connection; a stream that ends is
//! reported by a call of the closure that came with it, on the loop's thread.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use ::carrier::StreamQueue;
use ::carrier::stream::StreamCounters;
use link::Relayed;
use noise::Instant;
use wire::relay::{Decoder, Frame, Notice};

use self::carrier::Came;
use self::watch::{Due, Watch};

mod carrier;
mod watch;

pub use self::carrier::{Carrier, CarrierKind};

/// Streams at a time.
pub const STREAMS_MAX: usize = 16;
/// Bytes that one read takes.
const READ_LEN: usize = 64 * 1024;
/// Pings of an idle stream, which also keep what is in between from forgetting it; the relay
/// forgets after a minute.
const PING_IDLE: Duration = Duration::from_secs(15);
/// Pings while there is traffic.
const PING_BUSY: Duration = Duration::from_secs(2);
/// A stream from which nothing came for so long after a ping is dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The same when the network has changed, and it probably is.
const ANSWER_SOON: Duration = Duration::from_millis(1500);
/// What is sent by QUIC is acknowledged at once, and sent again after a round trip or two if not:
/// who was not heard for so long, or for three round trips, after something was sent, is pinged,
/// and has no longer to answer. Where UDP is cut, the direct path is found dead first, within
/// 1.1 s, and this twice, and HTTPS, must fit into the rest of 2 s.
const UNHEARD: Duration = Duration::from_millis(300);
/// How often it is looked what fits through a relay.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So long QUIC takes to find out what fits; until then it is believed to be as usual, and what
/// does not fit goes on its stream.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The relay said why.
    Notice(Notice),
    /// The connection broke, or the relay closed it.
    Broken,
    /// It no longer answers.
    Silent,
    /// Another one took its place, or it was removed.
    Removed,
}

impl StreamEnd {
    /// What the relay said of it last, if that was the reason.
    #[must_use]
    pub const fn notice(&self) -> Option<Notice> {
        match self {
            Self::Notice(notice) => Some(*notice),
            _ => None,
        }
    }
}

/// What is called when a stream has ended, on the loop's thread: it must not wait.
pub type OnEnd = Box<dyn FnOnce(StreamEnd) + Send>;

/// What is told of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// The relay, by its number in the map.
    pub relay: u32,
    /// By what it is reached.
    pub carrier: CarrierKind,
    /// When it was handed over.
    pub since: Instant,
    /// The latest round trip to the relay and back, in microseconds.
    pub rtt_us: Option<u64>,
    /// Datagrams that wait.
    pub queued: u64,
    /// What became of datagrams that were to be sent.
    pub counters: StreamCounters,
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams of QUIC that came and are no frames, and frames for which it had no room.
    pub dropped: u64,
}

/// A stream that was connected elsewhere.
pub struct NewStream {
    /// The relay, by its number in the map.
    pub relay: u32,
    /// The connection; the handshake is done, and the relay took us.
    pub carrier: Carrier,
    /// What was read already.
    pub decoder: Decoder,
    /// Called once, when it has ended.
    pub on_end: OnEnd,
}

/// One stream.
struct Stream {
    relay: u32,
    carrier: Carrier,
    decoder: Decoder,
    queue: StreamQueue,
    plain: Vec<u8>,
    on_end: Option<OnEnd>,
    end: Option<StreamEnd>,
    since: Instant,
    /// The socket takes nothing now.
    is_blocked: bool,
    /// What the loop watches for: nothing yet, or whether also for room.
    watched: Option<bool>,
    watch: Watch,
    received: u64,
}

/// All streams of a node; a few.
#[derive(Default)]
pub struct Streams {
    list: Vec<Stream>,
    now: Instant,
    scratch: Vec<u8>,
    pushed: usize,
    /// What fits through relays that are reached by datagrams, and when that was looked at.
    rooms: Vec<(u32, usize)>,
    looked: Instant,
    /// Datagrams for relays to which there is no stream.
    pub unrelayed: u64,
}

/// What came by a stream and belongs to the node.
#[derive(Debug)]
pub struct Arrived {
    /// The relay.
    pub relay: u32,
    /// The frames, in memory where datagrams are opened.
    pub decoder: Decoder,
    /// More may wait in the socket.
    pub more: bool,
}

impl Streams {
    /// The time of this turn.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        self.pushed = 0;
    }

    /// Takes a stream, in place of one to the same relay.
    ///
    /// # Errors
    /// There are [`STREAMS_MAX`], or the socket is of no use.
    pub fn set(&mut self, new: NewStream) -> io::Result<()> {
        self.remove(new.relay);
        if self.list.len() >= STREAMS_MAX {
            return Err(io::Error::other("there are streams to as many relays as can be"));
        }
        let NewStream { relay, mut carrier, decoder, on_end } = new;
        carrier.prepare()?;
        // What fits through it is asked with the next look.
        self.looked = Instant::ZERO;
        let is_acknowledged = matches!(carrier.kind(), CarrierKind::Quic | CarrierKind::Icmp);
        let watch = Watch::new(is_acknowledged, self.now);
        let mut stream = Stream {
            relay,
            carrier,
            decoder,
            queue: StreamQueue::new(),
            plain: Vec::new(),
            on_end: Some(on_end),
            end: None,
            since: self.now,
            is_blocked: false,
            watched: None,
            watch,
            received: 0,
        };
        stream.ping(ANSWER_WITHIN, self.now);
        self.list.push(stream);
        Ok(())
    }

    /// Ends the stream to a relay, if there is one.
    pub fn remove(&mut self, relay: u32) {
        if let Some(at) = self.list.iter().position(|stream| stream.relay == relay) {
            self.list.remove(at).finish(StreamEnd::Removed);
        }
    }

    /// The network has changed: whether the stream to a relay still answers is asked now, and it
    /// ends soon if not.
    pub fn check(&mut self, relay: u32) {
        if let Some(stream) = self.list.iter_mut().find(|stream| stream.relay == relay) {
            stream.ping(ANSWER_SOON, self.now);
        }
    }

    /// What is told of each.
    pub fn status(&self) -> impl Iterator<Item = StreamStatus> {
        self.list.iter().map(|stream| StreamStatus {
            relay: stream.relay,
            carrier: stream.carrier.kind(),
            since: stream.since,
            rtt_us: stream.watch.rtt_us(),
            queued: stream.queue.queued(),
            counters: *stream.queue.counters(),
            received: stream.received,
            dropped: stream.dropped(),
        })
    }

    /// Relays through which not everything fits, and bytes of the largest packet of each, if that
    /// has changed. Once in a while is enough: it is asked at most twice in a second.
    pub fn poll_rooms(&mut self) -> Option<&[(u32, usize)]> {
        if !self.looked.is_older_than(LOOK_EVERY, self.now) {
            return None;
        }
        self.looked = self.now;
        let now = self.now;
        let room = |stream: &mut Stream| {
            let is_new = !stream.since.is_older_than(ASKED_WITHIN, now);
            Some((stream.relay, stream.carrier.inner_len_max(is_new)?))
        };
        let rooms = self.list.iter_mut().filter_map(room);
        let is_same = rooms.eq(self.rooms.iter().copied());
        if is_same {
            return None;
        }
        self.rooms = self.list.iter_mut().filter_map(room).collect();
        Some(&self.rooms)
    }

    /// How long nothing is due; `None` if nothing ever is.
    pub fn sleep(&mut self) -> Option<Duration> {
        self.list.iter_mut().filter_map(|stream| stream.carrier.sleep()).min()
    }

    /// Whether this is the descriptor of a stream.
    #[must_use]
    pub fn has(&self, fd: RawFd) -> bool {
        self.list.iter().any(|stream| stream.carrier.as_raw_fd() == fd)
    }

    /// Bytes that were taken in this turn.
    #[must_use]
    pub const fn pushed(&self) -> usize {
        self.pushed
    }

    /// Takes a datagram for a peer of a relay. On the path of every datagram.
    #[inline]
    pub fn push(&mut self, to: &Relayed, datagram: &[u8]) {
        let stream = self.list.iter_mut().find(|stream| stream.relay == to.relay);
        let Some(stream) = stream else {
            self.unrelayed += 1;
            return;
        };
        self.pushed += datagram.len();
        stream.watch.handle_sent(self.now);
        stream.queue.push(&to.peer.0, datagram, self.now);
    }

    /// Sends what waits, as far as sockets take it, and lets go of streams that ended.
    pub fn flush(&mut self) {
        for stream in &mut self.list {
            if stream.flush(self.now).is_err() {
                stream.end = stream.end.or(Some(StreamEnd::Broken));
            }
        }
        while let Some(at) = self.list.iter().position(|stream| stream.end.is_some()) {
            let stream = self.list.remove(at);
            let end = stream.end.unwrap_or(StreamEnd::Broken);
            stream.finish(end);
        }
    }

    /// Reads once from the stream with this descriptor, and lends its frames; they are given back
    /// with [`Streams::give_back`].
    pub fn read(&mut self, fd: RawFd) -> Option<Arrived> {
        if self.scratch.is_empty() {
            self.scratch = vec![0; READ_LEN];
        }
        let stream = self.list.iter_mut().find(|stream| stream.carrier.as_raw_fd() == fd)?;
        let Came { heard, more, end } = stream.carrier.read(&mut self.scratch, &mut stream.decoder);
        if heard {
            stream.watch.handle_heard(self.now);
        }
        stream.end = stream.end.or(end);
        let decoder = std::mem::take(&mut stream.decoder);
        Some(Arrived { relay: stream.relay, decoder, more })
    }

    /// Takes back what was lent. `count` datagrams were for the node; `is_bad` if what came is
    /// none of frames.
    pub fn give_back(&mut self, arrived: Arrived, count: u64, is_bad: bool) {
        let relay = arrived.relay;
        let Some(stream) = self.list.iter_mut().find(|stream| stream.relay == relay) else {
            return;
        };
        stream.decoder = arrived.decoder;
        stream.received += count;
        if is_bad {
            stream.end = stream.end.or(Some(StreamEnd::Broken));
        }
    }

    /// Takes a frame that is of the stream itself. `true` if it says that somebody is not there.
    pub fn handle_frame(&mut self, relay: u32, frame: &Frame<'_>) {
        let Some(stream) = self.list.iter_mut().find(|stream| stream.relay == relay) else {
            return;
        };
        match frame {
            Frame::Ping(bytes) => stream.queue.push_pong(**bytes),
            Frame::Pong(bytes) => {
                stream.watch.handle_pong(Instant(u64::from_le_bytes(**bytes)), self.now);
            }
            Frame::Notice(notice) => stream.end = Some(StreamEnd::Notice(*notice)),
            _ => {}
        }
    }

    /// Pings, and ends what no longer answers. Once in a second is enough.
    pub fn handle_timeout(&mut self) {
        for stream in &mut self.list {
            stream.handle_timeout(self.now);
        }
    }

    /// Descriptors that are to be watched otherwise than before, and whether for room too.
    pub fn poll_interest(&mut self) -> Option<(RawFd, bool)> {
        let changed =
            self.list.iter_mut().find(|stream| stream.watched != Some(stream.is_blocked))?;
        changed.watched = Some(changed.is_blocked);
        Some((changed.carrier.as_raw_fd(), changed.is_blocked))
    }
}

impl Stream {
    fn ping(&mut self, patience: Duration, now: Instant) {
        self.watch.handle_ping(patience, now);
        self.queue.push_ping(now.0.to_le_bytes());
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.end = self.end.or_else(|| self.carrier.handle_timeout());
        match self.watch.due(now) {
            Due::Nothing => {}
            Due::Silent => self.end = self.end.or(Some(StreamEnd::Silent)),
            Due::Ping(patience) => {
                if !self.watch.is_busy() {
                    self.queue.release();
                    self.plain = Vec::new();
                    self.decoder.release();
                }
                self.ping(patience, now);
            }
        }
    }

    fn flush(&mut self, now: Instant) -> io::Result<()> {
        self.is_blocked = self.carrier.flush(&mut self.queue, &mut self.plain, now)?;
        Ok(())
    }

    fn dropped(&self) -> u64 {
        let counters = self.carrier.counters();
        counters.malformed + counters.refused
    }

    fn finish(mut self, end: StreamEnd) {
        if let Some(on_end) = self.on_end.take() {
            on_end(end);
        }
    }
}

impl fmt::Debug for NewStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewStream({}, {:?})", self.relay, self.carrier.kind())
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.status()).finish()
    }
}

#[cfg(test)]
mod tests;
