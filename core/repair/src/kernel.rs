//! Sums of products over whole chunks: the only loop of this crate that touches every byte.
//!
//! An output is a sum of inputs times coefficients. Written by the bits of the coefficients it is
//! `out = S0 + 2 (S1 + 2 (S2 + ..))`, where `Sb` is the plain sum of those inputs whose
//! coefficient has bit `b`. So no byte is ever looked up: there are only exclusive ors, and seven
//! doublings an output. The sums of every subset of four neighbouring inputs are made once for
//! each tile of [`TILE_LEN`] bytes and shared by all outputs ("four Russians", Arlazarov, Dinic,
//! Kronrod and Faradzhev 1970), so an output costs two loads for each input, not four, and no
//! store. LLVM turns all of it into vector instructions of whatever the target has; nothing
//! needs a byte shuffle, which plain x86-64 lacks and safe Rust cannot ask for at run time.

use crate::field::REDUCTION;

/// Most inputs.
pub(crate) const INPUTS_MAX: usize = 64;
/// Most outputs.
pub(crate) const OUTPUTS_MAX: usize = 32;

/// Bytes worked on at a time; what it makes of a tile of 64 inputs stays in the first cache.
const TILE_LEN: usize = 128;
const WORDS: usize = TILE_LEN / 8;
/// Inputs whose subset sums are shared.
const GROUP: usize = 4;
const GROUPS_MAX: usize = INPUTS_MAX / GROUP;

type Tile = [u64; WORDS];
/// The sums of all subsets of a group.
type Subsets = [Tile; 1 << GROUP];

const ZERO: Tile = [0; WORDS];

/// Coefficients of one output, turned by their bits: for each bit and group of inputs, the
/// subset of the group that has the bit.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    subsets: [[u8; GROUPS_MAX]; 8],
    /// Bits that any coefficient has, counted from the lowest.
    bits: usize,
}

impl Row {
    /// All coefficients zero.
    pub(crate) const ZERO: Self = Self { subsets: [[0; GROUPS_MAX]; 8], bits: 0 };

    /// Sets the coefficient of one input that was zero before.
    pub(crate) const fn set(&mut self, input: usize, coefficient: u8) {
        let mut bit = 0;
        while bit < 8 {
            if coefficient >> bit & 1 == 1 {
                self.subsets[bit][input / GROUP] |= 1 << (input % GROUP);
                if self.bits <= bit {
                    self.bits = bit + 1;
                }
            }
            bit += 1;
        }
    }
}

/// Writes one output of `len` bytes for each of `rows`, one behind the other. Inputs shorter than
/// `len` count as filled up with zeros. `outputs` is `rows.len() * len` bytes long, and there are
/// at most [`INPUTS_MAX`] inputs.
#[expect(clippy::large_stack_arrays, reason = "32 KiB, once, in a leaf; a heap would be asked")]
pub(crate) fn combine(inputs: &[&[u8]], rows: &[Row], len: usize, outputs: &mut [u8]) {
    debug_assert!(inputs.len() <= INPUTS_MAX && outputs.len() == rows.len() * len);
    if rows.iter().all(|row| row.bits <= 1) {
        return add(inputs, rows, len, outputs);
    }
    let mut sums = [[ZERO; 1 << GROUP]; GROUPS_MAX];
    let mut at = 0;
    while at < len {
        let size = TILE_LEN.min(len - at);
        let mut groups = 0;
        for (group, sums) in inputs.chunks(GROUP).zip(&mut sums) {
            subset_sums(group, at, sums);
            groups += 1;
        }
        for (row, output) in rows.iter().zip(outputs.chunks_exact_mut(len)) {
            let tile = evaluate(row, &sums[..groups]);
            store(&tile, &mut output[at..at + size]);
        }
        at += size;
    }
}

/// [`combine`] where no coefficient is larger than one.
fn add(inputs: &[&[u8]], rows: &[Row], len: usize, outputs: &mut [u8]) {
    for (row, output) in rows.iter().zip(outputs.chunks_exact_mut(len)) {
        output.fill(0);
        for (index, input) in inputs.iter().enumerate() {
            if row.subsets[0][index / GROUP] >> (index % GROUP) & 1 == 1 {
                output.iter_mut().zip(*input).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
    }
}

#[inline]
fn subset_sums(group: &[&[u8]], at: usize, sums: &mut Subsets) {
    let mut tiles = [ZERO; GROUP];
    for (tile, input) in tiles.iter_mut().zip(group) {
        *tile = load(input.get(at..).unwrap_or_default());
    }
    for (index, tile) in tiles.iter().enumerate() {
        let (known, new) = sums.split_at_mut(1 << index);
        for (new, known) in new.iter_mut().zip(known) {
            *new = sum(known, tile);
        }
    }
}

#[inline]
fn evaluate(row: &Row, sums: &[Subsets]) -> Tile {
    let mut value = ZERO;
    for subsets in row.subsets[..row.bits].iter().rev() {
        value = doubled(&value);
        for (sums, subset) in sums.iter().zip(subsets) {
            value = sum(&value, &sums[usize::from(subset & 15)]);
        }
    }
    value
}

#[inline]
fn sum(a: &Tile, b: &Tile) -> Tile {
    std::array::from_fn(|word| a[word] ^ b[word])
}

/// Every byte doubled in the field.
#[inline]
fn doubled(tile: &Tile) -> Tile {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    tile.map(|word| {
        let carries = (word & HIGH) >> 7;
        // One carry a byte: the product with the reduction stays within its byte, and is written
        // as shifts, which vector units have for this width.
        let reduced = carries | carries << 2 | carries << 3 | carries << 4;
        ((word & !HIGH) << 1) ^ reduced
    })
}

/// The first bytes as a tile, filled up with zeros.
#[inline]
fn load(bytes: &[u8]) -> Tile {
    let mut whole = [0; TILE_LEN];
    match bytes.first_chunk::<TILE_LEN>() {
        Some(first) => whole = *first,
        None => whole[..bytes.len()].copy_from_slice(bytes),
    }
    let (words, _) = whole.as_chunks::<8>();
    std::array::from_fn(|word| u64::from_le_bytes(words[word]))
}

#[inline]
fn store(tile: &Tile, bytes: &mut [u8]) {
    if let Some(whole) = bytes.first_chunk_mut::<TILE_LEN>() {
        for (bytes, word) in whole.as_chunks_mut::<8>().0.iter_mut().zip(tile) {
            *bytes = word.to_le_bytes();
        }
        return;
    }
    for (bytes, word) in bytes.chunks_mut(8).zip(tile) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

// The shifts in `doubled` spell the reduction.
const _: () = assert!(REDUCTION == 1 | 1 << 2 | 1 << 3 | 1 << 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field;

    #[test]
    fn sums_of_products_are_those_of_the_field_for_every_length_and_coefficient() {
        let mut rng = sim::rng::Rng::new(5);
        for len in (1..200).chain([1_399, 1_400, 1_500]) {
            let count = 1 + rng.below(INPUTS_MAX as u64) as usize;
            let inputs: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let mut input = vec![0; 1 + rng.below(len as u64) as usize];
                    rng.fill(&mut input);
                    input
                })
                .collect();
            let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut coefficients = vec![0; 3 * count];
            rng.fill(&mut coefficients);
            let mut rows = [Row::ZERO; 3];
            for (row, coefficients) in rows.iter_mut().zip(coefficients.chunks(count)) {
                for (input, &coefficient) in coefficients.iter().enumerate() {
                    row.set(input, coefficient);
                }
            }
            let mut outputs = vec![0xaa; 3 * len];
            combine(&borrowed, &rows, len, &mut outputs);
            for (place, &byte) in outputs.iter().enumerate() {
                let expected = (0..count).fold(0, |sum, input| {
                    let value = inputs[input].get(place % len).copied().unwrap_or(0);
                    sum ^ field::multiply(coefficients[place / len * count + input], value)
                });
                assert_eq!(byte, expected, "byte {place}, {count} inputs of at most {len}");
            }
        }
    }

    #[test]
    fn coefficients_of_one_are_plain_sums() {
        let mut row = Row::ZERO;
        (0..3).for_each(|input| row.set(input, 1));
        let mut output = [9; 5];
        combine(&[&[1; 5], &[2; 3], &[4; 5]], &[row], 5, &mut output);
        assert_eq!(output, [7, 7, 7, 5, 5]);
    }
}
