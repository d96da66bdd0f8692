//! Pieces: what a receiver deals with, where they come from, and what became of them.

use std::ops::Range;

use wire::packet::Ecn;
use wire::unit::Unit;

use crate::frames::pool::Kept;

/// Who may send what: asked once for each unit and each packet.
pub trait Judge {
    /// Whether the machine takes this packet, of which at least the headers are there.
    fn admits(&mut self, packet: &[u8]) -> bool;

    /// Whether the peer's packets are rewritten before they are passed on.
    fn rewrites(&self) -> bool {
        false
    }

    /// Rewrites a packet that was admitted, of which at least the headers are there. Returns
    /// whether it goes on.
    fn rewrite(&mut self, _packet: &mut [u8]) -> bool {
        true
    }

    /// Another number whenever it may answer otherwise than before: what was asked once for all of
    /// a unit is then asked again.
    fn rules(&self) -> u32;

    /// Whether one more of the packets that share a datagram may be looked at: where others wait,
    /// a peer has its share of a turn and no more (threat BC-04).
    fn has_share(&mut self) -> bool;
}

/// Pieces by what became of them, beside what `repair` counts. What was taken was passed on, or
/// dropped for one of nine reasons (congestion, crowded, headless, inconsistent, late, no room,
/// refused, unopened, untranslated), or waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets and chunks that came, whole, compressed or rebuilt, and were no repetitions.
    pub taken: u64,
    /// Packets and chunks passed on.
    pub passed: u64,
    /// Of these, rebuilt.
    pub rebuilt: u64,
    /// Of these, marked for congestion (RFC 6040).
    pub marked: u64,
    /// Rebuilt, and dropped so that the flow sees the congestion that it met.
    pub congestion: u64,
    /// Packets of bundles beyond the peer's share of a turn.
    pub crowded: u64,
    /// Chunks whose head did not come in time, or is not heeded any more.
    pub headless: u64,
    /// Protected ones that contradict what came of their block before.
    pub inconsistent: u64,
    /// Protected ones whose block is forgotten.
    pub late: u64,
    /// Chunks and packets without room to wait.
    pub no_room: u64,
    /// Of a unit or a packet that the machine does not take, or that is none.
    pub refused: u64,
    /// Compressed ones that were opened.
    pub opened: u64,
    /// Compressed ones that do not hold what they say, or hold what they must not.
    pub unopened: u64,
    /// Packets, and chunks of units, whose addresses could not be rewritten.
    pub untranslated: u64,
}

impl Counters {
    /// With those of another link.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            passed: self.passed + other.passed,
            rebuilt: self.rebuilt + other.rebuilt,
            marked: self.marked + other.marked,
            congestion: self.congestion + other.congestion,
            crowded: self.crowded + other.crowded,
            headless: self.headless + other.headless,
            inconsistent: self.inconsistent + other.inconsistent,
            late: self.late + other.late,
            no_room: self.no_room + other.no_room,
            refused: self.refused + other.refused,
            opened: self.opened + other.opened,
            unopened: self.unopened + other.unopened,
            untranslated: self.untranslated + other.untranslated,
        }
    }

    /// Counts one that was taken and dropped.
    pub(crate) fn note(&mut self, reason: fn(&mut Self) -> &mut u64) {
        self.taken += 1;
        *reason(self) += 1;
    }

    /// Pieces that were passed on or dropped.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let Self { congestion, crowded, headless, inconsistent, late, .. } = self;
        let Self { passed, no_room, refused, unopened, untranslated, .. } = self;
        let dropped = congestion + crowded + headless + inconsistent + late;
        passed + dropped + no_room + refused + unopened + untranslated
    }
}

/// A unit whose chunks are expected.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: u16,
    /// Tells it from all other units of the link: numbers come again.
    pub(crate) serial: u32,
    /// When its head came.
    pub(crate) since_us: u64,
    /// Which rules it was judged by.
    pub(crate) rules: u32,
    /// The session that its head came on: another one may belong to a peer that began anew.
    pub(crate) ordinal: Ordinal,
    /// Tells a copy of the head from the head of another unit with this number.
    pub(crate) sent_us: u32,
    /// `None` for one that the machine does not take.
    pub(crate) unit: Option<Unit>,
    /// Whether there is none because it cannot be rewritten.
    pub(crate) is_untranslated: bool,
    pub(crate) order: Option<(u8, u32)>,
    /// What it says about congestion, if its flow heeds that, see `heeded`.
    pub(crate) ecn: Option<Ecn>,
}

/// Something that will be passed on.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Which one of a unit it is; none of a whole packet.
    pub(crate) chunk: Option<Part>,
    /// Congestion was met.
    pub(crate) marked: bool,
    pub(crate) at: At,
}

/// A chunk's unit, by its number and its serial, and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) number: u16,
    pub(crate) serial: u32,
    pub(crate) index: u8,
}

#[derive(Debug)]
pub(crate) enum At {
    Lent(Range<usize>),
    Kept(Kept),
}

/// Where the bytes at hand come from.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// They lie in lent memory from this offset on.
    Lent(usize),
    /// They were rebuilt, and will not stay.
    Rebuilt,
    /// They were opened, and will not stay.
    Opened { rebuilt: bool },
    /// They waited for their head, in the pool.
    Waited { kept: Kept, rebuilt: bool },
}

/// A session's place among those that the peer sent on.
pub(crate) type Ordinal = u64;

#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) unit: u16,
    pub(crate) ordinal: Ordinal,
    pub(crate) index: u8,
    pub(crate) kept: Kept,
    pub(crate) rebuilt: bool,
}

impl Origin {
    /// Of the bytes behind the first `len`.
    pub(crate) fn behind(self, len: usize) -> Self {
        match self {
            Self::Lent(start) => Self::Lent(start + len),
            other => other,
        }
    }

    /// How many bytes there are, of which those at hand are `bytes`: of what waited none are.
    pub(crate) fn len(self, bytes: &[u8]) -> usize {
        match self {
            Self::Waited { kept, .. } => kept.len(),
            _ => bytes.len(),
        }
    }

    pub(crate) fn is_rebuilt(self) -> bool {
        match self {
            Self::Lent(_) => false,
            Self::Rebuilt => true,
            Self::Opened { rebuilt } | Self::Waited { rebuilt, .. } => rebuilt,
        }
    }
}
