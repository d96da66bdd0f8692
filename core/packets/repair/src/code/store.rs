//! Memory for chunks that wait: places of equal size, taken from a list of free ones. It grows in
//! steps up to a bound and is given back as a whole, so that nothing is allocated for a chunk.

use crate::bounds::CHUNK_LEN_MAX;
use crate::code::budget::{Budget, Part};

/// No place: the end of a chain.
pub(crate) const NONE: u16 = u16::MAX;
const GROWTH: usize = 64;

/// What is known about a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The next place of the same chain, or of the free ones.
    pub(crate) next: u16,
    /// Index of the chunk in its block, repair chunks after all data chunks.
    pub(crate) index: u8,
    /// Bytes kept.
    pub(crate) len: u16,
    /// Repair chunks: the code of the lengths.
    pub(crate) lengths: [u8; 2],
}

/// Chunks in chains.
#[derive(Debug)]
pub(crate) struct Store {
    bytes: Vec<u8>,
    places: Vec<Place>,
    free: u16,
    places_max: usize,
    taken: usize,
    part: Part,
}

impl Store {
    /// A store of at most `bytes_max` bytes of `budget`, now empty.
    pub(crate) fn new(bytes_max: usize, budget: &Budget) -> Self {
        let places_max = (bytes_max / CHUNK_LEN_MAX).min(usize::from(NONE));
        let bytes = Vec::new();
        let places = Vec::new();
        let part = Part::new(budget);
        Self { bytes, places, free: NONE, places_max, taken: 0, part }
    }

    /// Keeps a chunk before `next`, the head of a chain; returns the new head, or nothing when the
    /// store is full. The chunk is no longer than [`CHUNK_LEN_MAX`].
    pub(crate) fn push(
        &mut self,
        next: u16,
        chunk: &[u8],
        index: u8,
        lengths: [u8; 2],
    ) -> Option<u16> {
        if self.free == NONE {
            self.grow();
        }
        let head = self.free;
        let place = self.places.get_mut(usize::from(head))?;
        self.free = place.next;
        *place = Place { next, index, len: chunk.len() as u16, lengths };
        self.bytes[usize::from(head) * CHUNK_LEN_MAX..][..chunk.len()].copy_from_slice(chunk);
        self.taken += 1;
        Some(head)
    }

    /// The chunks of a chain.
    pub(crate) fn chain(&self, head: u16) -> impl Iterator<Item = (&Place, &[u8])> {
        let first = self.places.get(usize::from(head)).map(|place| (head, place));
        std::iter::successors(first, |(_, place)| {
            self.places.get(usize::from(place.next)).map(|next| (place.next, next))
        })
        .map(|(at, place)| {
            let from = usize::from(at) * CHUNK_LEN_MAX;
            (place, &self.bytes[from..from + usize::from(place.len)])
        })
    }

    /// Frees a chain.
    pub(crate) fn release(&mut self, mut head: u16) {
        while let Some(place) = self.places.get_mut(usize::from(head)) {
            let next = place.next;
            place.next = self.free;
            self.free = head;
            self.taken -= 1;
            head = next;
        }
    }

    /// Bytes of memory held.
    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes.len()
    }

    /// Gives all memory back if nothing is kept.
    pub(crate) fn trim(&mut self) {
        if self.taken == 0 {
            self.bytes = Vec::new();
            self.places = Vec::new();
            self.free = NONE;
            self.part.release();
        }
    }

    fn grow(&mut self) {
        let have = self.places.len();
        let want = (have + GROWTH).min(self.places_max);
        if !self.part.hold(want * CHUNK_LEN_MAX) {
            return;
        }
        for at in have..want {
            let place = Place { next: self.free, index: 0, len: 0, lengths: [0; 2] };
            self.places.push(place);
            self.free = at as u16;
        }
        self.bytes.resize(want * CHUNK_LEN_MAX, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_keep_their_chunks_and_the_bound_holds() {
        let mut store = Store::new(100 * CHUNK_LEN_MAX + 7, &Budget::new(1 << 20));
        let (mut one, mut two) = (NONE, NONE);
        for n in 0..50u8 {
            one = store.push(one, &[n; 1_500], n, [n, 0]).expect("room");
            two = store.push(two, &[n], n + 100, [0, n]).expect("room");
        }
        assert_eq!(store.push(two, &[1], 0, [0; 2]), None);
        assert_eq!((store.taken, store.bytes_held()), (100, 150_000));
        let kept: Vec<_> = store.chain(one).map(|(p, c)| (p.index, c.len(), c[0])).collect();
        assert_eq!(kept, (0..50).rev().map(|n| (n, 1_500, n)).collect::<Vec<_>>());
        store.release(one);
        assert_eq!(store.chain(two).count(), 50);
        for n in 0..50 {
            two = store.push(two, &[n; 3], n, [0; 2]).expect("what was released");
        }
        assert_eq!(store.push(two, &[1], 0, [0; 2]), None);
        store.trim();
        assert_eq!(store.bytes_held(), 150_000);
        store.release(two);
        store.trim();
        assert_eq!((store.bytes_held(), store.taken), (0, 0));
    }
}
