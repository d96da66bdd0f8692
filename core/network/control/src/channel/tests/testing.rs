//! Shared by tests: seeded randomness.

use noise::Random;

/// SplitMix64: different everywhere, and the same every time.
pub(crate) struct Seeded(pub(crate) u64);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let number = (z ^ z >> 31).to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}
