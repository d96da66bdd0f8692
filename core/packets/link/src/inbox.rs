//! Packets on their way to the machine: their memory, and their merging into few and large ones.

use std::ops::Range;

use noise::Instant;
use translate::Table;
use wire::coalesce::{Coalescer, GATHER_MAX};
use wire::frame::Head;
use wire::packet::{self, Ecn};
use wire::unit::Unit;
use wire::{superpacket, virtio};

/// Bytes that an inbox keeps itself: pieces that were rebuilt or had waited, of one batch.
pub const OWN_BYTES_MAX: usize = 256 * 1024;

/// Where bytes lie.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the memory that the shell received into.
    Lent(Range<usize>),
    /// In the inbox.
    Own(Range<usize>),
}

#[derive(Clone, Debug)]
enum Entry {
    /// A whole packet.
    Packet(Place),
    /// Chunk `index` of the unit with that number in `units`; `marked` if congestion was met.
    Chunk { unit: usize, index: usize, marked: bool, place: Place },
}

/// Inner packets of one batch in the order in which they are to be passed on. The shell gives it,
/// drains it, and bounds a batch by what it receives at once.
#[derive(Debug, Default)]
pub struct Inbox {
    entries: Vec<Entry>,
    units: Vec<Unit>,
    /// Whose unit the last of `units` is, by peer and serial, so that its next chunk need not bring
    /// it again.
    last: Option<(u32, u32)>,
    own: Vec<u8>,
    bytes: usize,
    congested: bool,
    came: Option<Instant>,
}

impl Inbox {
    /// An empty inbox with room for `packets` before it grows.
    #[must_use]
    pub fn with_capacity(packets: usize) -> Self {
        Self { entries: Vec::with_capacity(packets), ..Self::default() }
    }

    /// Says whether the datagrams that come from now on met congestion: a router marked them (RFC
    /// 3168). Packets without a frame are told of it; our own datagrams cannot be marked.
    pub fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    /// Whether the datagram at hand met congestion.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.congested
    }

    /// Says when the datagram at hand came, where somebody saw that before it was read.
    pub fn set_came(&mut self, came: Option<Instant>) {
        self.came = came;
    }

    /// When the datagram at hand came.
    #[must_use]
    pub fn came(&self) -> Option<Instant> {
        self.came
    }

    /// Adds a packet that lies in lent memory.
    pub fn push(&mut self, packet: Range<usize>) {
        self.bytes += packet.len();
        self.entries.push(Entry::Packet(Place::Lent(packet)));
    }

    /// How many packets and chunks lie there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing lies there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all packets, headers of units not counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether `len` bytes can be kept here; otherwise it has to be drained first.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.own.len() + len <= OWN_BYTES_MAX
    }

    /// Keeps bytes that will not stay where they are.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Place {
        let start = self.own.len();
        self.own.extend_from_slice(bytes);
        Place::Own(start..self.own.len())
    }

    /// Adds a packet that this machine made itself. Returns whether there was room.
    pub fn push_own(&mut self, packet: &[u8]) -> bool {
        let fits = self.has_room(packet.len());
        if fits {
            let place = self.keep(packet);
            self.push_packet(place, false);
        }
        fits
    }

    /// Adds a packet; `marked` if congestion was met, which only one of our own can show.
    pub(crate) fn push_packet(&mut self, place: Place, marked: bool) {
        self.bytes += place.len();
        if let (true, Place::Own(range)) = (marked, &place) {
            // A packet that was checked can be marked.
            let _ = packet::set_ecn(&mut self.own[range.clone()], Ecn::Ce);
        }
        self.entries.push(Entry::Packet(place));
    }

    /// Adds a chunk of the peer's unit `serial`, which has a chunk of this index and length. Its
    /// headers are rewritten by `table`, which can be done: it was tried when they came.
    pub(crate) fn push_chunk(
        &mut self,
        (peer, serial): (u32, u32),
        (unit, table): (&Unit, Option<&Table>),
        index: usize,
        marked: bool,
        place: Place,
    ) {
        if self.last != Some((peer, serial)) {
            self.last = Some((peer, serial));
            let mut unit = *unit;
            if let Some(table) = table {
                unit.rewrite(|header| {
                    let _ = table.inward(header);
                });
            }
            self.units.push(unit);
        }
        self.bytes += place.len();
        self.entries.push(Entry::Chunk { unit: self.units.len() - 1, index, marked, place });
    }

    /// Yields everything and empties the inbox; the room stays. `memory` is where lent packets
    /// lie. Each call of `emit` gets a virtio header and the parts of one packet or superpacket.
    /// Packets are joined by `coalescer`, chunks of a unit by what its head says, and those of UDP
    /// only where the coalescer joins them, too: a kernel before 6.2 takes no more than one.
    pub fn drain(
        &mut self,
        memory: &mut [u8],
        coalescer: &mut Coalescer,
        mut emit: impl FnMut(virtio::Header, &[&[u8]]),
    ) {
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            at += 1;
            match entry {
                Entry::Packet(Place::Lent(range)) => {
                    if coalescer.push(memory, range.clone()).is_err() {
                        flush(coalescer, memory, &mut emit);
                        // An empty coalescer takes any packet.
                        let _ = coalescer.push(memory, range.clone());
                    }
                }
                Entry::Packet(Place::Own(range)) => {
                    flush(coalescer, memory, &mut emit);
                    emit(virtio::Header::default(), &[&self.own[range.clone()]]);
                }
                Entry::Chunk { .. } => {
                    flush(coalescer, memory, &mut emit);
                    at = self.emit_chunks(at - 1, memory, coalescer.takes_udp(), &mut emit);
                }
            }
        }
        flush(coalescer, memory, &mut emit);
        self.entries.clear();
        self.units.clear();
        self.own.clear();
        self.last = None;
        self.bytes = 0;
    }

    /// Empties the inbox and returns every IP packet by itself, superpackets cut again: for whoever
    /// looks at packets, a simulation, and not for the path of every packet.
    pub fn take_packets(&mut self, memory: &mut [u8]) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut coalescer = Coalescer::new(self.entries.len());
        self.drain(memory, &mut coalescer, |header, parts| {
            let mut bytes = parts.concat();
            if let Ok(packet) = superpacket::parse(header, &mut bytes) {
                packets.extend((0..packet.segments()).map(|index| {
                    let mut segment = vec![0; packet.segment_len(index)];
                    packet.write_segment(index, &mut segment);
                    segment
                }));
            }
        });
        packets
    }

    /// Emits the chunk at `start` with all that follow it in its unit; returns where they end.
    fn emit_chunks(
        &self,
        start: usize,
        memory: &[u8],
        joins_udp: bool,
        emit: &mut impl FnMut(virtio::Header, &[&[u8]]),
    ) -> usize {
        let mut headers = [0; Head::HEADER_LEN_MAX];
        let mut parts: [&[u8]; GATHER_MAX] = [&[]; GATHER_MAX];
        let mut joined: Option<(usize, usize, bool)> = None;
        let mut count = 0;
        for entry in self.entries[start..].iter().take(GATHER_MAX - 1) {
            let Entry::Chunk { unit, index, marked, place } = entry else { break };
            let (of, first, mark) = *joined.get_or_insert((*unit, *index, *marked));
            let alone = count == 1 && !joins_udp && self.units[of].is_udp();
            if (*unit, *index, *marked) != (of, first + count, mark) || alone {
                break;
            }
            count += 1;
            parts[count] = match place {
                Place::Lent(range) => &memory[range.clone()],
                Place::Own(range) => &self.own[range.clone()],
            };
        }
        let Some((unit, first, marked)) = joined else { return start + 1 };
        let (len, header) = self.units[unit].write_header(first, count, &mut headers);
        if marked {
            // Headers that were checked can be marked.
            let _ = packet::set_ecn(&mut headers[..len], Ecn::Ce);
        }
        parts[0] = &headers[..len];
        emit(header, &parts[..=count]);
        start + count
    }
}

impl Place {
    pub(crate) fn len(&self) -> usize {
        let (Self::Lent(range) | Self::Own(range)) = self;
        range.len()
    }
}

fn flush(
    coalescer: &mut Coalescer,
    memory: &mut [u8],
    emit: &mut impl FnMut(virtio::Header, &[&[u8]]),
) {
    if coalescer.is_empty() {
        return;
    }
    coalescer.flush(memory, |header, memory, pieces| {
        let mut parts: [&[u8]; GATHER_MAX] = [&[]; GATHER_MAX];
        let count = pieces.len().min(GATHER_MAX);
        for (part, piece) in parts.iter_mut().zip(pieces) {
            *part = &memory[piece.clone()];
        }
        emit(header, &parts[..count]);
    });
}
