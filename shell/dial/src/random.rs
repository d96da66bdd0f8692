//! The kernel's generator.

use std::time::Instant;

use noise::Random;
use ring::rand::SecureRandom;

/// The kernel's generator. A machine without one must not start, so it panics.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        ring::rand::SystemRandom::new().fill(bytes).expect("the kernel has randomness");
    }
}

/// Time since `start`, as the core counts it.
pub(crate) fn since(start: Instant) -> noise::Instant {
    noise::Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
