//! The replay window: which of the last counters have been seen (RFC 6479).
//!
//! A ring of words, one bit per counter. Moving forward clears whole words, so the ring has one
//! word more than the window needs. Boxed, because only live sessions have one: 4104 bytes.

/// How far below the highest counter a packet may arrive and still be accepted (threat DP-12).
pub const WINDOW: u64 = 32_768;

const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / WORD_BITS) as usize + 1;

/// Remembers which counters a session has accepted.
pub(crate) struct Replay {
    /// One above the highest counter accepted; 0 before the first.
    next: u64,
    seen: Box<[u64; WORDS]>,
}

impl Replay {
    pub(crate) fn new() -> Self {
        let words = vec![0; WORDS].into_boxed_slice();
        Self { next: 0, seen: words.try_into().expect("the vector has WORDS words") }
    }

    /// `true` if `accept` would accept `counter`. Lets a replay be dropped before it is decrypted.
    pub(crate) fn is_fresh(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        if self.next - 1 - counter > WINDOW {
            return false;
        }
        let (word, bit) = place(counter);
        self.seen[word] & bit == 0
    }

    /// Whether `counter` is the highest that was accepted.
    pub(crate) const fn is_newest(&self, counter: u64) -> bool {
        self.next > 0 && counter == self.next - 1
    }

    /// Marks `counter` as seen. `false` if it was, or is too old. Only for packets that
    /// authenticated.
    pub(crate) fn accept(&mut self, counter: u64) -> bool {
        if !self.is_fresh(counter) {
            return false;
        }
        let (word, bit) = place(counter);
        if counter >= self.next {
            self.advance(counter);
        }
        self.seen[word] |= bit;
        true
    }

    /// Clears the words between the highest counter so far and `counter`.
    fn advance(&mut self, counter: u64) {
        let from = self.next.saturating_sub(1) / WORD_BITS;
        let steps = (counter / WORD_BITS - from).min(WORDS as u64);
        for step in 1..=steps {
            self.seen[((from + step) % WORDS as u64) as usize] = 0;
        }
        self.next = counter.saturating_add(1);
    }
}

/// The word and the bit of a counter in the ring.
fn place(counter: u64) -> (usize, u64) {
    ((counter / WORD_BITS % WORDS as u64) as usize, 1 << (counter % WORD_BITS))
}

#[cfg(test)]
mod tests;
