//! Small packets that wait for each other until the turn in which they came is over, or something
//! else goes to the same peer: at most as long as the shell reads on without a pause.

use wire::frame::Bundle;

use crate::sender::Manner;

/// What waits, as it would stand in a bundle.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// A bundle's plaintext, its count not yet written.
    bytes: Vec<u8>,
    count: u8,
    /// How the first is to be sent; the others are sent alike.
    manner: Option<Manner>,
}

/// Whether an entry of `len` bytes is small: two such fit into a plaintext of `limit`.
pub(crate) const fn is_small(len: usize, limit: usize) -> bool {
    Bundle::FIXED_LEN + 2 * (Bundle::ENTRY_LEN + len) <= limit
}

impl Gathered {
    /// Whether another entry of `len` bytes may join.
    pub(crate) fn takes(&self, len: usize, manner: Manner) -> bool {
        let joined = self.bytes.len() + Bundle::ENTRY_LEN + len;
        self.manner.is_none_or(|first| {
            first.is_alike(&manner)
                && joined <= manner.limit()
                && usize::from(self.count) < Bundle::COUNT_MAX
        })
    }

    /// Adds an entry of `len` bytes, which `write` fills.
    pub(crate) fn push(&mut self, len: usize, manner: Manner, write: impl FnOnce(&mut [u8])) {
        if self.bytes.is_empty() {
            self.bytes.resize(Bundle::FIXED_LEN, 0);
        }
        let first = self.manner.get_or_insert(manner);
        if first.ticket != manner.ticket {
            // Of two flows, which share no context (threat BC-02).
            first.ticket = None;
        }
        self.count += 1;
        self.bytes.extend((len as u16).to_le_bytes());
        let begin = self.bytes.len();
        self.bytes.resize(begin + len, 0);
        write(&mut self.bytes[begin..]);
    }

    /// What is to be sent and how: the only packet as it is, more as a bundle.
    pub(crate) fn plain(&mut self) -> Option<(&[u8], Manner, u64)> {
        let manner = self.manner?;
        if self.count > 1 {
            Bundle::write_fixed(self.count, &mut self.bytes);
            return Some((&self.bytes, manner, self.count.into()));
        }
        Some((&self.bytes[Bundle::FIXED_LEN + Bundle::ENTRY_LEN..], manner, 1))
    }

    /// How many wait.
    pub(crate) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// Forgets what waited; its memory stays.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.manner) = (0, None);
    }

    /// Gives memory back where nothing waits.
    pub(crate) fn trim(&mut self) {
        if self.count == 0 {
            self.bytes = Vec::new();
        }
    }
}
