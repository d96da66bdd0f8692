//! Why a cell or a packet did not go on, and why a circuit ended.

/// Why a cell, a packet or a message was dropped: counted, never answered unless it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drop {
    /// It is no cell and no message.
    Malformed,
    /// No circuit of this neighbour has that index: it was closed, or never was.
    UnknownIndex,
    /// Its number came before, or is too old.
    Replayed,
    /// It does not authenticate: somebody before us changed it.
    Tampered,
    /// There is no hop behind us, and it is not for us.
    NoNext,
    /// The neighbour may not do that here.
    Forbidden,
    /// Too many circuits, or too many new ones.
    Busy,
    /// It does not belong to the state of the circuit.
    Unexpected,
    /// Out: the packet is of no open circuit.
    NoCircuit,
    /// Out: the packet is larger than a cell holds.
    TooBig,
    /// What is inside is no packet, or one of a kind that circuits do not carry.
    NotCarried,
    /// It is of IPv6, and the exit has none.
    NoSix,
    /// Exit: its destination is refused.
    ExitRefused,
    /// Exit: too many flows of this circuit, or of all.
    FlowsFull,
    /// Exit: a packet from outside that belongs to no flow.
    NoFlow,
    /// Exit: names are asked for, and there is no name server.
    NoNameServer,
    /// The circuit has used up its numbers.
    Exhausted,
    /// There is no session with the neighbour that it was for, or no room to send.
    Unsent,
    /// Too much of its circuit waits for the line, or it waited for too long.
    Crowded,
}

impl Drop {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Malformed,
        Self::UnknownIndex,
        Self::Replayed,
        Self::Tampered,
        Self::NoNext,
        Self::Forbidden,
        Self::Busy,
        Self::Unexpected,
        Self::NoCircuit,
        Self::TooBig,
        Self::NotCarried,
        Self::NoSix,
        Self::ExitRefused,
        Self::FlowsFull,
        Self::NoFlow,
        Self::NoNameServer,
        Self::Exhausted,
        Self::Unsent,
        Self::Crowded,
    ];

    /// A stable name for logs, metrics and tests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownIndex => "unknown-index",
            Self::Replayed => "replayed",
            Self::Tampered => "tampered",
            Self::NoNext => "no-next",
            Self::Forbidden => "forbidden",
            Self::Busy => "busy",
            Self::Unexpected => "unexpected",
            Self::NoCircuit => "no-circuit",
            Self::TooBig => "too-big",
            Self::NotCarried => "not-carried",
            Self::NoSix => "no-ipv6",
            Self::ExitRefused => "exit-refused",
            Self::FlowsFull => "flows-full",
            Self::NoFlow => "no-flow",
            Self::NoNameServer => "no-name-server",
            Self::Exhausted => "exhausted",
            Self::Unsent => "unsent",
            Self::Crowded => "crowded",
        }
    }
}

/// Why a circuit ended, as the wire has it. Numbers that are not known are [`End::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Something that this version does not know.
    Unknown,
    /// Its owner closed it.
    Closed,
    /// A hop does not let who asked.
    Forbidden,
    /// A hop has too many circuits.
    Busy,
    /// The next hop is not known to the one before, or does not answer.
    Unreachable,
    /// Nothing came of it for too long.
    Silent,
    /// The last hop is no exit.
    NotAnExit,
    /// Somebody answered in a hop's place, who does not hold its key.
    NotTheHop,
}

impl End {
    /// As the wire has it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// From the wire.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Closed,
            2 => Self::Forbidden,
            3 => Self::Busy,
            4 => Self::Unreachable,
            5 => Self::Silent,
            6 => Self::NotAnExit,
            7 => Self::NotTheHop,
            _ => Self::Unknown,
        }
    }

    /// A word for programs, which stays.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Closed => "closed",
            Self::Forbidden => "forbidden",
            Self::Busy => "busy",
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::NotAnExit => "not-an-exit",
            Self::NotTheHop => "not-the-hop",
        }
    }

    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "a hop ended it for a reason that this version does not know",
            Self::Closed => "it was closed",
            Self::Forbidden => "a hop refused: the policy's \"circuits\" does not let it",
            Self::Busy => "a hop has too many circuits; try again, or another hop",
            Self::Unreachable => "a hop does not reach the next one",
            Self::Silent => "a hop does not answer",
            Self::NotAnExit => "the last hop is no exit; see `warren set --circuit-exit`",
            Self::NotTheHop => "somebody answered in a hop's place who does not hold its key",
        }
    }
}

/// How often each reason occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Cells that came from neighbours.
    pub cells_in: u64,
    /// Of these, handed to the next neighbour.
    pub relayed: u64,
    /// Of these, control messages for or from us.
    pub control: u64,
    /// Of these, packets for this machine, or for the network behind it.
    pub packets_in: u64,
    /// Packets of this machine, or from behind it, that left in cells.
    pub packets_out: u64,
    /// Messages that set circuits up or end them.
    pub builds_in: u64,
    drops: [u64; Drop::ALL.len()],
}

impl Counters {
    pub(crate) fn drop(&mut self, reason: Drop) {
        self.drop_all(reason, 1);
    }

    pub(crate) fn drop_all(&mut self, reason: Drop, count: u64) {
        self.drops[reason as usize] += count;
    }

    /// How many were dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.drops[reason as usize]
    }

    /// Every reason that occurred, with its count.
    pub fn drops(&self) -> impl Iterator<Item = (Drop, u64)> {
        Drop::ALL.into_iter().map(|reason| (reason, self.dropped(reason))).filter(|drop| drop.1 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_numbers_and_names_of_their_own() {
        for (number, reason) in Drop::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
        let mut names = Drop::ALL.map(Drop::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Drop::ALL.len());
        for number in 0..=7 {
            assert_eq!(End::from_number(number).number(), number);
        }
        assert_eq!(End::from_number(200), End::Unknown);
    }
}
