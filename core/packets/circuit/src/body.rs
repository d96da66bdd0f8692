//! How long bodies are, and how numbers are counted.

use std::time::Duration;

use noise::Instant;
use wire::frame::{CLASSES, UNIT};

use crate::layer::{EPOCH_BITS, NUMBERS, TAG_LEN};
use crate::{Drop, HOPS_MAX};

/// Keys are used for no longer than this.
pub const ROTATE_AFTER: Duration = Duration::from_secs(600);

/// Bytes that layers may add to a body without leaving its class: each hop but the entry has one.
const LAYERS_LEN: usize = (HOPS_MAX - 1) * TAG_LEN;

/// The largest packet of a circuit with so many hops.
#[must_use]
pub const fn room(hops: usize) -> usize {
    CLASSES[2] - TAG_LEN * hops.saturating_sub(1)
}

/// Bytes of the innermost body for a packet of `len` bytes: one of three, and `largest` is that of
/// the largest class. Equal packets therefore have equal cells, whatever the depth.
pub(crate) fn inner_len(len: usize, largest: usize) -> Option<usize> {
    let small = [CLASSES[0] - LAYERS_LEN, CLASSES[1] - LAYERS_LEN];
    small.into_iter().chain([largest]).find(|&inner| len <= inner)
}

/// Numbers of cells: even ones of data, odd ones of control.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    next: u64,
    epoch_began: Instant,
}

impl Numbers {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { next: 0, epoch_began: now }
    }

    /// The next one of data (`0`) or control (`1`). When the keys have been used for long enough
    /// it is the first of the next epoch.
    pub(crate) fn next(&mut self, parity: u64, now: Instant) -> Result<u64, Drop> {
        if self.epoch_began.is_older_than(ROTATE_AFTER, now) {
            self.next = ((self.next >> EPOCH_BITS) + 1) << EPOCH_BITS;
        }
        let number = self.next + (self.next + parity) % 2;
        if number >= NUMBERS {
            return Err(Drop::Exhausted);
        }
        if self.next == 0 || number >> EPOCH_BITS != (self.next - 1) >> EPOCH_BITS {
            self.epoch_began = now;
        }
        self.next = number + 1;
        Ok(number)
    }
}

const _: () =
    assert!(CLASSES[0] - LAYERS_LEN >= 72 && (CLASSES[0] - LAYERS_LEN).is_multiple_of(UNIT));

#[cfg(test)]
mod tests {
    use wire::frame::class_of;

    use super::*;

    #[test]
    fn a_body_stays_in_its_class_at_every_depth() {
        for hops in 1..=HOPS_MAX {
            for len in 20..=room(hops) {
                let inner = inner_len(len, room(hops)).expect("it fits");
                assert!(inner >= len && inner.is_multiple_of(UNIT));
                let classes = (0..hops).map(|layers| class_of(inner + layers * TAG_LEN));
                let mut classes: Vec<_> = classes.collect();
                classes.dedup();
                assert_eq!(classes.len(), 1, "{len} bytes at {hops} hops: {classes:?}");
            }
            assert_eq!(inner_len(room(hops) + 1, room(hops)), None);
        }
        let depths = [1, 2, 3].map(|hops| class_of(inner_len(60, room(hops)).unwrap()));
        assert_eq!(depths, [Some(192); 3]);
    }

    #[test]
    fn numbers_never_repeat_and_skip_to_the_next_epoch_when_keys_are_old() {
        let mut numbers = Numbers::begin(Instant::ZERO);
        let mut said = Vec::new();
        for parity in [0, 0, 1, 1, 0, 1] {
            said.push(numbers.next(parity, Instant::ZERO).unwrap());
        }
        assert_eq!(said, [0, 2, 3, 5, 6, 7]);
        let later = Instant::ZERO.after(ROTATE_AFTER);
        assert_eq!(numbers.next(0, later), Ok(1 << EPOCH_BITS));
        assert_eq!(numbers.next(0, later), Ok((1 << EPOCH_BITS) + 2), "and not again at once");
        numbers.next = NUMBERS - 1;
        assert_eq!(numbers.next(1, later), Ok(NUMBERS - 1));
        assert_eq!(numbers.next(1, later), Err(Drop::Exhausted));
    }
}
