//! Which numbers of a session went another way than packets do.

use super::{KIND_ELSEWHERE, u32_at};
use crate::Malformed;

/// Runs of numbers that carried probes, answers and calls: whether they came says nothing of the
/// way that packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere<'a> {
    runs: &'a [u8],
}

/// Numbers of a session that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u32,
}

impl<'a> Elsewhere<'a> {
    /// Runs, at most.
    pub const RUNS_MAX: usize = 4;
    /// Numbers of one run, at most; what a longer one says beyond that is ignored.
    pub const COUNT_MAX: u32 = 512;
    const FIXED_LEN: usize = 4;
    const RUN_LEN: usize = 12;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = plain.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
        let count = usize::from(fixed[1]);
        if count > Self::RUNS_MAX {
            return Err(Malformed::TotalLength);
        }
        let runs = rest.get(..count * Self::RUN_LEN).ok_or(Malformed::Truncated)?;
        Ok(Self { runs })
    }

    /// The runs.
    pub fn runs(&self) -> impl Iterator<Item = Run> + use<'a> {
        self.runs.as_chunks::<12>().0.iter().map(|bytes| {
            let first = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            Run { first, count: u32_at(bytes, 8).min(Self::COUNT_MAX) }
        })
    }

    /// Length on the wire of so many runs, in bytes.
    #[must_use]
    pub const fn len_of(runs: usize) -> usize {
        Self::FIXED_LEN + runs * Self::RUN_LEN
    }

    /// Writes the frame that names the first of `runs`, to [`Elsewhere::RUNS_MAX`], to the start of
    /// `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Elsewhere::len_of`] their number.
    pub fn write(runs: &[Run], out: &mut [u8]) {
        let count = runs.len().min(Self::RUNS_MAX);
        let (fixed, entries) = out[..Self::len_of(count)].split_at_mut(Self::FIXED_LEN);
        fixed.copy_from_slice(&[KIND_ELSEWHERE, count as u8, 0, 0]);
        for (entry, run) in entries.chunks_exact_mut(Self::RUN_LEN).zip(runs) {
            entry[..8].copy_from_slice(&run.first.to_le_bytes());
            entry[8..].copy_from_slice(&run.count.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn bc_09_runs_are_what_the_page_says_and_few_and_short() {
        let runs = [Run { first: 0x0807_0605_0403_0201, count: 2 }, Run { first: 9, count: 700 }];
        let mut out = [0xee; 40];
        Elsewhere::write(&runs, &mut out);
        assert_eq!(out[..16], [0x8d, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0]);
        assert_eq!(out[28], 0xee, "no more than its length");
        let Ok(Frame::Elsewhere(read)) = parse(&out) else { panic!("a frame") };
        let read: Vec<Run> = read.runs().collect();
        assert_eq!(read, [runs[0], Run { first: 9, count: Elsewhere::COUNT_MAX }]);
        assert!((1..28).all(|len| parse(&out[..len]).is_err()));
        out[1] = 5;
        assert_eq!(parse(&out), Err(Malformed::TotalLength));
    }
}
