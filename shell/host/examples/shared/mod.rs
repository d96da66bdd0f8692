//! What the measurements of two nodes in memory share: keys that are the same each time, and a
//! place for datagrams.

use node::{Destination, Outbox};
use noise::Random;

/// Bytes that only look random.
pub(crate) struct Counted(pub(crate) u64);

impl Random for Counted {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// Room for the datagrams of one superpacket.
pub(crate) struct Tray {
    pub(crate) memory: Vec<u8>,
    /// Where each begins, and its length.
    pub(crate) slots: Vec<(usize, usize)>,
    open: Option<(usize, usize)>,
}

impl Tray {
    /// Room for so many bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self { memory: vec![0; len], slots: Vec::new(), open: None }
    }
}

impl Outbox for Tray {
    fn reserve(&mut self, _: &Destination, len: usize) -> Option<&mut [u8]> {
        let start = self.slots.last().map_or(0, |(start, len)| start + len);
        self.open = (start + len <= self.memory.len()).then_some((start, len));
        self.open.map(|(start, len)| &mut self.memory[start..start + len])
    }

    fn commit(&mut self) {
        self.slots.extend(self.open.take());
    }
}

/// The middle one.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
