//! Memory for pieces that have to wait: of a fixed number of bytes each, taken when needed.

use repair::budget::{Budget, Part};
use repair::code::CHUNK_LEN_MAX;

/// Pieces that wait in one link, at most: 6 MiB.
pub(crate) const PIECES_MAX: usize = 4_096;
/// Pieces by which the memory grows.
const GROWTH: usize = 64;

/// A piece kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    place: u16,
    len: u16,
}

/// The memory. Empty, it has none of its own.
#[derive(Debug)]
pub(crate) struct Pool {
    bytes: Vec<u8>,
    free: Vec<u16>,
    part: Part,
}

impl Pool {
    /// An empty one, whose memory is of `budget`.
    pub(crate) fn new(budget: &Budget) -> Self {
        Self { bytes: Vec::new(), free: Vec::new(), part: Part::new(budget) }
    }

    /// Copies `bytes`; `None` when they are too many, or there is no room.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Kept> {
        if bytes.len() > CHUNK_LEN_MAX {
            return None;
        }
        if self.free.is_empty() {
            let have = self.places();
            let want = (have + GROWTH).min(PIECES_MAX);
            if !self.part.hold(want * CHUNK_LEN_MAX) {
                return None;
            }
            self.bytes.resize(want * CHUNK_LEN_MAX, 0);
            self.free.extend((have..want).map(|place| place as u16));
        }
        let place = self.free.pop()?;
        let start = usize::from(place) * CHUNK_LEN_MAX;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Some(Kept { place, len: bytes.len() as u16 })
    }

    pub(crate) fn bytes(&self, kept: Kept) -> &[u8] {
        let start = usize::from(kept.place) * CHUNK_LEN_MAX;
        &self.bytes[start..start + usize::from(kept.len)]
    }

    pub(crate) fn bytes_mut(&mut self, kept: Kept) -> &mut [u8] {
        let start = usize::from(kept.place) * CHUNK_LEN_MAX;
        &mut self.bytes[start..start + usize::from(kept.len)]
    }

    /// Gives a piece's place back.
    pub(crate) fn release(&mut self, kept: Kept) {
        self.free.push(kept.place);
    }

    /// Gives the memory back if nothing is kept.
    pub(crate) fn trim(&mut self) {
        if self.free.len() == self.places() {
            self.bytes = Vec::new();
            self.free = Vec::new();
            self.part.release();
        }
    }

    /// Whether there is memory that [`Pool::trim`] may give back.
    pub(crate) fn holds_memory(&self) -> bool {
        !self.bytes.is_empty()
    }

    fn places(&self) -> usize {
        self.bytes.len() / CHUNK_LEN_MAX
    }
}

impl Kept {
    pub(crate) fn len(self) -> usize {
        usize::from(self.len)
    }
}

#[cfg(test)]
mod tests {
    use repair::budget::OWN_BYTES;

    use super::*;

    #[test]
    fn bc_06_pieces_are_kept_up_to_the_bound_and_memory_comes_back() {
        let budget = Budget::new(PIECES_MAX * CHUNK_LEN_MAX);
        let mut pool = Pool::new(&budget);
        let kept: Vec<Kept> =
            (0..PIECES_MAX).map(|n| pool.keep(&[n as u8; 9]).expect("room")).collect();
        assert!(pool.keep(&[1]).is_none() && pool.keep(&[0; CHUNK_LEN_MAX + 1]).is_none());
        for (n, &one) in kept.iter().enumerate() {
            assert_eq!((pool.bytes(one), one.len()), (&[n as u8; 9][..], 9));
        }
        pool.trim();
        assert_eq!(pool.bytes.len(), PIECES_MAX * CHUNK_LEN_MAX);
        kept.into_iter().for_each(|one| pool.release(one));
        assert!(pool.keep(&[1]).is_some_and(|one| pool.bytes(one) == [1]));
        pool.trim();
        assert_eq!(pool.places(), PIECES_MAX, "one is kept");
        let mut pool = Pool::new(&budget);
        let one = pool.keep(&[5]).expect("room");
        assert_eq!(pool.places(), GROWTH);
        pool.release(one);
        pool.trim();
        assert_eq!(pool.bytes.capacity(), 0);
    }

    #[test]
    fn bc_06_where_others_have_taken_all_a_pool_has_what_is_its_own() {
        let mut pool = Pool::new(&Budget::new(0));
        let kept = (0..PIECES_MAX).map_while(|_| pool.keep(&[7])).count();
        assert!(kept * CHUNK_LEN_MAX <= OWN_BYTES && kept >= GROWTH, "{kept}");
    }
}
