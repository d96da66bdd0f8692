//! Turns: cells that wait for a line, by circuit, and leave by bytes.
//!
//! A hop has no queue of its own where its line takes all that comes. Where it does not (the user
//! said how fast the line is, the socket is full, or cells are held back on purpose), cells wait
//! here, and a circuit that fills the line takes nobody else's share: deficit round robin
//! (Shreedhar and Varghese, 1995). What finds no room is taken from the circuit that has most
//! waiting, and what waited for [`WAIT_MAX`] is dropped: no hop holds a cell for longer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use noise::{Instant, PeerId};

/// Cells that wait at a hop, at most: 1.5 MB.
pub const WAITING_MAX: usize = 1_024;
/// The longest that a cell waits for its turn.
pub const WAIT_MAX: Duration = Duration::from_millis(100);
/// Bytes of a turn: one full cell.
const TURN_LEN: usize = 1_440;

/// Whose turn it is: a circuit, toward one of its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Way {
    /// Who gets it.
    pub to: PeerId,
    /// The circuit, by a number of this machine's.
    pub circuit: u32,
}

/// A cell that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Of which circuit it is, and to whom it goes.
    pub way: Way,
    /// It is a control message, which goes before its own circuit's packets.
    pub is_word: bool,
    /// The frame.
    pub frame: Vec<u8>,
    /// Since when.
    pub since: Instant,
}

#[derive(Default)]
struct Queue {
    words: VecDeque<Waiting>,
    packets: VecDeque<Waiting>,
    bytes: usize,
    /// Bytes that it may still send in this turn.
    credit: usize,
}

impl Queue {
    fn front(&self) -> Option<&Waiting> {
        self.words.front().or_else(|| self.packets.front())
    }

    fn pop(&mut self) -> Option<Waiting> {
        let cell = self.words.pop_front().or_else(|| self.packets.pop_front())?;
        self.bytes -= cell.frame.len();
        Some(cell)
    }

    /// Drops the newest.
    fn shorten(&mut self) {
        if let Some(cell) = self.packets.pop_back().or_else(|| self.words.pop_back()) {
            self.bytes -= cell.frame.len();
        }
    }
}

/// All cells that wait.
#[derive(Default)]
pub(crate) struct Turns {
    queues: BTreeMap<Way, Queue>,
    /// Those that have something, in the order of their turns.
    order: VecDeque<Way>,
    cells: usize,
}

impl Turns {
    pub(crate) const fn len(&self) -> usize {
        self.cells
    }

    /// Keeps a cell. Whether one had to go for it: the newest of the circuit that has most.
    #[must_use]
    pub(crate) fn push(&mut self, cell: Waiting) -> bool {
        let way = cell.way;
        let queue = self.queue(way);
        queue.bytes += cell.frame.len();
        let list = if cell.is_word { &mut queue.words } else { &mut queue.packets };
        list.push_back(cell);
        self.cells += 1;
        if self.cells <= WAITING_MAX {
            return false;
        }
        let most = self.queues.iter().max_by_key(|(_, queue)| queue.bytes).map(|(way, _)| *way);
        if let Some(way) = most
            && let Some(queue) = self.queues.get_mut(&way)
        {
            queue.shorten();
            self.cells -= 1;
            self.tidy(way);
        }
        true
    }

    /// A cell that was taken out and could not be sent stands where it stood.
    pub(crate) fn put_back(&mut self, cell: Waiting) {
        let Self { queues, order, .. } = self;
        let queue = queues.entry(cell.way).or_insert_with(|| {
            order.push_front(cell.way);
            Queue::default()
        });
        queue.bytes += cell.frame.len();
        queue.credit += cell.frame.len();
        let list = if cell.is_word { &mut queue.words } else { &mut queue.packets };
        list.push_front(cell);
        self.cells += 1;
    }

    fn queue(&mut self, way: Way) -> &mut Queue {
        let Self { queues, order, .. } = self;
        queues.entry(way).or_insert_with(|| {
            order.push_back(way);
            Queue { credit: TURN_LEN, ..Queue::default() }
        })
    }

    /// The next cell whose turn it is. `late` counts those that waited for too long.
    pub(crate) fn pop(&mut self, now: Instant, late: &mut u64) -> Option<Waiting> {
        loop {
            let way = *self.order.front()?;
            let queue = self.queues.get_mut(&way)?;
            while queue.front().is_some_and(|cell| cell.since.is_older_than(WAIT_MAX, now)) {
                queue.pop();
                self.cells -= 1;
                *late += 1;
            }
            let Some(len) = queue.front().map(|cell| cell.frame.len()) else {
                self.tidy(way);
                continue;
            };
            if queue.credit < len {
                queue.credit += TURN_LEN;
                self.order.rotate_left(1);
                continue;
            }
            queue.credit -= len;
            let cell = queue.pop()?;
            self.cells -= 1;
            self.tidy(way);
            return Some(cell);
        }
    }

    /// Everything, circuits in the order of `rank`, each one's cells in theirs.
    pub(crate) fn take<K: Ord>(&mut self, rank: impl Fn(&Way) -> K) -> Vec<Waiting> {
        let mut all: Vec<_> = std::mem::take(self).queues.into_iter().collect();
        all.sort_by_cached_key(|(way, _)| rank(way));
        all.into_iter()
            .flat_map(|(_, queue)| queue.words.into_iter().chain(queue.packets))
            .collect()
    }

    /// What has nothing left has no turn, and saves nothing up.
    fn tidy(&mut self, way: Way) {
        if self.queues.get(&way).is_some_and(|queue| queue.front().is_none()) {
            self.queues.remove(&way);
            self.order.retain(|other| *other != way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 1_419;

    fn cell(circuit: u32, len: usize, since: u64) -> Waiting {
        let way = Way { to: PeerId(1), circuit };
        Waiting { way, is_word: false, frame: vec![circuit as u8; len], since: Instant(since) }
    }

    /// Bytes of each circuit among the first `count` cells that leave.
    fn left(turns: &mut Turns, count: usize, of: u32) -> usize {
        let mut bytes = 0;
        for _ in 0..count {
            let cell = turns.pop(Instant(1), &mut 0).expect("enough wait");
            bytes += if cell.way.circuit == of { cell.frame.len() } else { 0 };
        }
        bytes
    }

    #[test]
    fn circuits_leave_by_bytes_whatever_the_size_of_their_cells() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            assert!(!turns.push(cell(1, FULL, 0)));
        }
        for _ in 0..700 {
            assert!(!turns.push(cell(2, 203, 0)));
        }
        let small = left(&mut turns, 400, 2);
        let both = small + (400 - small / 203) * FULL;
        assert!((45..=55).contains(&(small * 100 / both)), "{small} of {both}");
    }

    #[test]
    fn what_finds_no_room_is_taken_from_whoever_has_most() {
        let mut turns = Turns::default();
        for number in 0..WAITING_MAX {
            assert!(!turns.push(cell(number as u32 % 10, FULL, 0)));
        }
        for _ in 0..50 {
            assert!(turns.push(cell(11, FULL, 0)), "one of the others went");
        }
        assert_eq!(turns.len(), WAITING_MAX);
        assert!(left(&mut turns, 11 * 50, 11) >= 49 * FULL, "each turn has one of it");
    }

    #[test]
    fn nothing_waits_for_longer_than_it_may_and_control_goes_before_its_own_circuit() {
        let mut turns = Turns::default();
        assert!(!turns.push(cell(1, FULL, 0)) && !turns.push(cell(1, FULL, 60_000_000)));
        assert!(!turns.push(Waiting { is_word: true, ..cell(1, 203, 70_000_000) }));
        let (mut late, now) = (0, Instant(120_000_000));
        let first = turns.pop(now, &mut late).expect("a word");
        assert!(first.is_word && late == 0);
        let second = turns.pop(now, &mut late).expect("one that is not late");
        assert_eq!((second.since, late, turns.len()), (Instant(60_000_000), 1, 0));
        turns.put_back(second);
        assert_eq!(turns.queues.values().map(|queue| queue.credit).sum::<usize>(), FULL);
        assert_eq!(turns.pop(now, &mut late).map(|cell| cell.frame.len()), Some(FULL));
        assert!(turns.pop(now, &mut late).is_none() && turns.order.is_empty());
    }
}
