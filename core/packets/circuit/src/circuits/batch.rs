//! Cells that do not leave at once: they wait for the line, in turns, or for each other where
//! somebody asked for that. The latter makes it harder to tell by times who talks to whom: a hop
//! holds cells back so that those of several circuits leave together, and a client sends cells that
//! carry nothing. Both are off at first, since both cost.

use std::time::Duration;

use noise::{Instant, PeerId, Random};
use wire::frame::Cell;

use super::{CircuitId, Circuits, Turn};
use crate::Drop;
use crate::hop::Relayed;
use crate::turns::{Turns, Waiting, Way};

/// The longest that a hop holds a cell back.
pub const BATCH_TIME_MAX: Duration = Duration::from_millis(200);
/// Cells that carry nothing, a second, at most.
pub const COVER_RATE_MAX: u32 = 100;
/// Circuits of this machine have numbers beyond those that it is a hop of.
const OWN: u32 = 1 << 16;

/// The cells that wait for each other, and until when.
#[derive(Default)]
pub(super) struct Batch {
    time: Duration,
    held: Turns,
    due: Instant,
}

impl Batch {
    pub(super) const fn is_on(&self) -> bool {
        !self.time.is_zero()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.held.len() > 0).then_some(self.due)
    }

    /// Keeps a cell until the batch is over. Whether one had to go for it.
    fn hold(&mut self, cell: Waiting) -> bool {
        if self.held.len() == 0 {
            self.due = cell.since.after(self.time);
        }
        self.held.push(cell)
    }
}

impl Circuits {
    /// A cell goes on to the next neighbour: now, or with others.
    pub(super) fn pass(
        &mut self,
        circuit: u32,
        relayed: &Relayed,
        plain: &[u8],
        now: Instant,
    ) -> Result<Turn, Drop> {
        let Relayed { to, header, len, is_word } = *relayed;
        self.counters.relayed += 1;
        let way = Way { to, circuit };
        let body = Cell::HEADER_LEN..Cell::HEADER_LEN + len;
        if !self.batch.is_on() {
            return Ok(Turn::Relay { way, is_word, header, body });
        }
        let mut frame = vec![0; crate::frame_len(len)];
        frame[..header.len()].copy_from_slice(&header);
        frame[header.len()..][..len].copy_from_slice(&plain[body]);
        if self.batch.hold(Waiting { way, is_word, frame, since: now }) {
            self.counters.drop(Drop::Crowded);
        }
        Ok(Turn::Done)
    }

    /// What waited for others goes: circuits in an order of chance, each one's cells in their own.
    pub(super) fn release_batch(&mut self, now: Instant, random: &mut dyn Random) {
        if self.batch.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        let mut salt = [0; 32];
        random.fill(&mut salt);
        let rank = |way: &Way| {
            noise::parts::hash(&[&salt, &way.to.0.to_le_bytes(), &way.circuit.to_le_bytes()])
        };
        for cell in self.batch.held.take(rank) {
            self.wait(Waiting { since: now, ..cell });
        }
    }

    /// A cell waits for its circuit's turn.
    pub fn wait(&mut self, cell: Waiting) {
        if self.turns.push(cell) {
            self.counters.drop(Drop::Crowded);
        }
    }

    /// The same, that could not be sent when its turn came.
    pub fn put_back(&mut self, cell: Waiting) {
        self.turns.put_back(cell);
    }

    /// How many cells wait for their turns.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.turns.len()
    }

    /// The next cell whose turn it is. What waited for too long is dropped and counted.
    pub fn poll_turn(&mut self, now: Instant) -> Option<Waiting> {
        let mut late = 0;
        let cell = self.turns.pop(now, &mut late);
        self.counters.drop_all(Drop::Crowded, late);
        cell
    }

    /// Whose turn a packet of this machine's own circuit has.
    #[must_use]
    pub fn own_way(id: CircuitId, to: PeerId) -> Way {
        Way { to, circuit: OWN + u32::from(id.0) }
    }

    /// For how long cells that go on are held back as a hop, [`BATCH_TIME_MAX`] at most; zero at
    /// first: not at all.
    pub fn set_batch(&mut self, time: Duration) {
        self.batch.time = time.min(BATCH_TIME_MAX);
    }

    /// So many cells a second at least leave on each circuit of ours, [`COVER_RATE_MAX`] at most;
    /// none at first. Where there is nothing to send, cells that carry nothing go to its end, and
    /// as many come back.
    pub fn set_cover(&mut self, per_second: u32) {
        let rate = per_second.min(COVER_RATE_MAX);
        self.cover = Duration::from_secs(1).checked_div(rate);
    }
}
