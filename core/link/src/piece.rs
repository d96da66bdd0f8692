//! What a receiver deals with: pieces, where they come from, and what became of them.

use std::ops::Range;

use wire::packet::Ecn;
use wire::unit::Unit;

use crate::pool::Kept;

/// Who may send what: asked once for each unit and each packet.
pub trait Judge {
    /// Whether the machine takes this packet, of which at least the headers are there.
    fn admits(&mut self, packet: &[u8]) -> bool;
}

/// Pieces by what became of them, beside what `repair` counts. What was taken was passed on, or
/// dropped for one of five reasons (congestion, headless, no room, refused, unopened), or waits.
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
    /// Chunks whose head did not come in time.
    pub headless: u64,
    /// Chunks and packets without room to wait.
    pub no_room: u64,
    /// Of a unit or a packet that the machine does not take, or that is none.
    pub refused: u64,
    /// Compressed ones that were opened.
    pub opened: u64,
    /// Compressed ones that do not hold what they say, or hold what they must not.
    pub unopened: u64,
}

impl Counters {
    /// Pieces that were passed on or dropped.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let Self { passed, congestion, headless, no_room, refused, unopened, .. } = self;
        passed + congestion + headless + no_room + refused + unopened
    }
}

/// A unit whose chunks are expected.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: u16,
    /// The session that its head came on: another one may belong to a peer that began anew.
    pub(crate) ordinal: Ordinal,
    /// Tells a copy of the head from the head of another unit with this number.
    pub(crate) sent_us: u32,
    /// `None` for one that the machine does not take.
    pub(crate) unit: Option<Unit>,
    pub(crate) order: Option<(u8, u32)>,
    /// What it says about congestion, if its flow heeds that, see `heeded`.
    pub(crate) ecn: Option<Ecn>,
}

/// Something that will be passed on.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its unit's number and its index there; none of a whole packet.
    pub(crate) chunk: Option<(u16, u8)>,
    /// Congestion was met.
    pub(crate) marked: bool,
    pub(crate) at: At,
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
    pub(crate) since_us: u64,
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
