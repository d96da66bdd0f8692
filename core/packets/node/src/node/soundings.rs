//! Soundings: streams of packets by which a path's available bandwidth is measured (`quality`).
//!
//! Who measures seals a whole stream at once and sends each packet when it is due. Who is measured
//! notes when they come, one stream a peer, and tells that when it is asked; it never sends but an
//! answer. So nobody has a stranger's node flood another: a stream goes from the node whose owner
//! wants it, to a peer, in their session.

use std::collections::BTreeMap;

use link::Unsounded;
use noise::PublicKey;
use wire::frame::{Arrivals, Frame, Sounding};

use super::*;

/// Peers whose streams are noted at once; for one more, who was silent longest is forgotten.
pub const SOUNDED_MAX: usize = 64;
/// A peer whose last packet of a stream came so long ago sends none any more: streams of one
/// measurement come sooner, one behind the other.
const SOUNDED_FOR: Duration = Duration::from_secs(15);
/// Bytes around a plaintext: of IP, UDP and a transport datagram.
const OUTER_V4_LEN: usize = 20 + 8 + wireguard::OVERHEAD_LEN;
const OUTER_V6_LEN: usize = 40 + 8 + wireguard::OVERHEAD_LEN;
/// Nanoseconds of a tenth of a microsecond, in which arrivals are told.
const TENTH_NS: u128 = 100;

/// What is noted of streams.
#[derive(Debug, Default)]
pub(super) struct Soundings {
    heard: BTreeMap<PeerId, Heard>,
    own: Option<Own>,
}

/// A stream that comes.
#[derive(Debug)]
struct Heard {
    stream: u32,
    began: Instant,
    last: Instant,
    /// As they are told.
    times: Vec<u32>,
}

/// The stream that was sent last.
#[derive(Debug)]
struct Own {
    peer: PeerId,
    stream: u32,
    packets: u16,
    /// Places from which on nothing was told yet.
    untold: Vec<u16>,
    arrivals: Vec<(u16, u64)>,
}

impl Soundings {
    /// A packet of a peer's stream came.
    pub(super) fn note(&mut self, id: PeerId, stream: u32, sequence: u16, now: Instant) {
        let is_new = self.heard.get(&id).is_none_or(|heard| heard.stream != stream);
        if is_new {
            let is_full = self.heard.len() >= SOUNDED_MAX && !self.heard.contains_key(&id);
            let oldest = self.heard.iter().min_by_key(|(_, heard)| heard.last).map(|(id, _)| *id);
            if let Some(oldest) = oldest.filter(|_| is_full) {
                self.heard.remove(&oldest);
            }
            self.heard.insert(id, Heard { stream, began: now, last: now, times: Vec::new() });
        }
        let Some(heard) = self.heard.get_mut(&id) else { return };
        heard.last = now;
        let place = usize::from(sequence);
        if heard.times.len() <= place {
            heard.times.resize(place + 1, 0);
        }
        if heard.times[place] == 0 {
            let since = now.since(heard.began).as_nanos() / TENTH_NS;
            heard.times[place] = u32::try_from(since + 1).unwrap_or(u32::MAX);
        }
    }

    /// What is told of a peer's stream from a place on, so many times at most.
    pub(super) fn told(&self, id: PeerId, stream: u32, first: u16, room: usize) -> &[u32] {
        let heard = self.heard.get(&id).filter(|heard| heard.stream == stream);
        let times = heard.and_then(|heard| heard.times.get(usize::from(first)..));
        times.map_or(&[], |times| &times[..times.len().min(room)])
    }

    /// A peer told of a stream of ours.
    fn handle_told(&mut self, id: PeerId, arrivals: &Arrivals<'_>) {
        let is_ours = |own: &&mut Own| own.peer == id && own.stream == arrivals.stream;
        let Some(own) = self.own.as_mut().filter(is_ours) else { return };
        let before = own.untold.len();
        own.untold.retain(|first| *first != arrivals.first);
        if own.untold.len() < before {
            own.arrivals.extend(arrivals.times());
        }
    }

    /// A peer is gone; its number may be another's soon.
    pub(super) fn forget(&mut self, id: PeerId) {
        self.heard.remove(&id);
        self.own = self.own.take().filter(|own| own.peer != id);
    }
}

impl Node {
    /// Seals a stream for a peer: so many packets, at most [`Sounding::PACKETS_MAX`], each of `len`
    /// bytes with all headers. `out` is the caller's own memory: it sends each when it is due.
    ///
    /// # Errors
    /// Why there is none. Without a session one is asked for: try again soon.
    pub fn send_stream<O: Outbox>(
        &mut self,
        key: &PublicKey,
        packets: u16,
        len: usize,
        now: Instant,
        out: &mut O,
    ) -> Result<(), Unsounded> {
        let peer = self.peers.id(key).ok_or(Unsounded::NoSession)?;
        let link = self.peers.link(peer).ok_or(Unsounded::NoSession)?;
        self.touched.push(peer);
        let mut outer_len = OUTER_V4_LEN;
        match link.endpoint().map(|to| to.udp()) {
            Some(Some(endpoint)) if endpoint.remote.is_ipv6() => outer_len = OUTER_V6_LEN,
            Some(None) => return Err(Unsounded::NotDirect),
            Some(Some(_)) | None => {}
        }
        // Two streams within a microsecond are not to be.
        let stream = (now.0 / 1_000) as u32;
        let packets = packets.min(Sounding::PACKETS_MAX);
        let len = len.saturating_sub(outer_len).max(Sounding::FIXED_LEN);
        let before = link.tx_bytes();
        link.send_soundings(packets, len, now, out, |place, plain| {
            Sounding::write_packet(stream, place, plain);
        })?;
        let bytes = link.tx_bytes() - before;
        self.shaper.note_sent(bytes, u64::from(packets), now);
        let untold = (0..packets).step_by(Sounding::TIMES_MAX).collect();
        self.soundings.own = Some(Own { peer, stream, packets, untold, arrivals: Vec::new() });
        Ok(())
    }

    /// Asks the peer when packets of the stream that was sent last arrived, as far as it has not
    /// told.
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub fn ask_arrivals<O: Outbox>(&mut self, now: Instant, out: &mut O) -> Result<(), Unsounded> {
        let own = self.soundings.own.as_ref().ok_or(Unsounded::NoSession)?;
        let link = self.peers.link(own.peer).ok_or(Unsounded::NoSession)?;
        for first in &own.untold {
            // As long as its answer, so that nobody is sent more than they send.
            let times = usize::from(own.packets - first).min(Sounding::TIMES_MAX);
            let len = Sounding::told_len(times);
            let write = |_: u16, plain: &mut [u8]| Sounding::write_ask(own.stream, *first, plain);
            link.send_soundings(1, len, now, out, write)?;
        }
        self.touched.push(own.peer);
        Ok(())
    }

    /// When packets of that stream arrived, nanoseconds behind the first, by their places; `None`
    /// until the peer has told of all.
    #[must_use]
    pub fn arrivals(&self) -> Option<&[(u16, u64)]> {
        let own = self.soundings.own.as_ref()?;
        own.untold.is_empty().then_some(&own.arrivals)
    }

    /// Whether a peer sends streams, so that it matters when exactly its datagrams come.
    #[must_use]
    pub fn is_sounded(&self, now: Instant) -> bool {
        let mut heard = self.soundings.heard.values();
        heard.any(|heard| !heard.last.is_older_than(SOUNDED_FOR, now))
    }

    /// Takes a sounding of a peer; it `came` before it was read.
    pub(super) fn handle_sounding<O: Outbox>(
        &mut self,
        id: PeerId,
        plain: &[u8],
        now: Instant,
        came: Instant,
        out: &mut O,
    ) {
        let Ok(Frame::Sounding(sounding)) = frame::parse(plain) else { return };
        match sounding {
            Sounding::Packet { stream, sequence } => {
                self.soundings.note(id, stream, sequence, came);
            }
            Sounding::Ask { stream, first, room } => {
                let Self { soundings, peers, .. } = self;
                let times = soundings.told(id, stream, first, room);
                let len = Sounding::told_len(times.len());
                let write = |_: u16, plain: &mut [u8]| {
                    Sounding::write_told(stream, first, times, plain);
                };
                // Who does not know soundings asks for none; what is not sent is asked for again.
                if let Some(link) = peers.link(id) {
                    let _ = link.send_soundings(1, len, now, out, write);
                }
            }
            Sounding::Told(arrivals) => self.soundings.handle_told(id, &arrivals),
        }
    }
}
