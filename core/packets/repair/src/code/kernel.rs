//! Sums of products over whole chunks: the only loop of this crate that touches every byte.
//!
//! A product with a constant is the sum of the products of the byte's two halves, and those are
//! looked up, sixteen, 32 or 64 bytes at a time, in two tables of sixteen bytes that lie in a
//! vector register each (Plank, Greenan and Miller, "Screaming fast Galois field arithmetic using
//! Intel SIMD instructions", FAST 2013). Which vectors the processor has is asked when the program
//! runs.

use fearless_simd::{Level, Simd, SimdBase, dispatch, u8x16};

use crate::bounds::DATA_MAX;
use crate::code::field;

/// Most inputs.
const INPUTS_MAX: usize = DATA_MAX;

/// Outputs that are summed up at once: what is looked up in for them lies in registers.
const ROWS: usize = 4;
/// Bytes of the longest vector that there is.
const VECTOR_LEN_MAX: usize = 64;

/// Coefficients of one output, by the number of the input.
pub(crate) type Row = [u8; INPUTS_MAX];

/// Of each coefficient the products with every low and every high half of a byte.
static PRODUCTS: [[[u8; 16]; 2]; 256] = products();

const fn products() -> [[[u8; 16]; 2]; 256] {
    let mut all = [[[0; 16]; 2]; 256];
    let mut at = 0;
    while at < 256 * 16 {
        let coefficient = at / 16;
        let half = at % 16;
        all[coefficient][0][half] = field::multiply(coefficient as u8, half as u8);
        all[coefficient][1][half] = field::multiply(coefficient as u8, (half << 4) as u8);
        at += 1;
    }
    all
}

/// Writes one output of `len` bytes for each of `rows`, one behind the other. Inputs shorter than
/// `len` count as filled up with zeros. `outputs` is `rows.len() * len` bytes long, and there are
/// at most [`INPUTS_MAX`] inputs.
pub(crate) fn combine(inputs: &[&[u8]], rows: &[Row], len: usize, outputs: &mut [u8]) {
    combine_on(Level::new(), inputs, rows, len, outputs);
}

/// [`combine`] with the vectors of `level`. A first row of ones, as the code has, needs no product
/// and goes along with the four behind it.
fn combine_on(level: Level, inputs: &[&[u8]], rows: &[Row], len: usize, outputs: &mut [u8]) {
    debug_assert!(inputs.len() <= INPUTS_MAX && outputs.len() == rows.len() * len);
    outputs.fill(0);
    let ones = |row: &Row| row[..inputs.len()].iter().all(|coefficient| *coefficient == 1);
    let plain = usize::from(rows.first().is_some_and(ones));
    let (mut sum, products) = outputs.split_at_mut(plain * len);
    let rows = &rows[plain..];
    if rows.is_empty() {
        dispatch!(level, _simd => add(inputs, sum));
    }
    for (rows, outputs) in rows.chunks(ROWS).zip(products.chunks_mut(len * ROWS)) {
        let sum = std::mem::take(&mut sum);
        match rows {
            [a] => dispatch!(level, simd => sums(simd, inputs, [a], sum, outputs)),
            [a, b] => dispatch!(level, simd => sums(simd, inputs, [a, b], sum, outputs)),
            [a, b, c] => dispatch!(level, simd => sums(simd, inputs, [a, b, c], sum, outputs)),
            [a, b, c, d, ..] => {
                dispatch!(level, simd => sums(simd, inputs, [a, b, c, d], sum, outputs));
            }
            [] => {}
        }
    }
}

/// Adds all inputs to `output`.
#[inline(always)]
fn add(inputs: &[&[u8]], output: &mut [u8]) {
    for input in inputs {
        output.iter_mut().zip(*input).for_each(|(sum, byte)| *sum ^= byte);
    }
}

/// Adds the inputs' products to the outputs for `rows`, and the inputs to `plain` unless that is
/// empty, input by input: memory is read as it lies, which the processor foresees.
#[inline(always)]
fn sums<S: Simd, const N: usize>(
    simd: S,
    inputs: &[&[u8]],
    rows: [&Row; N],
    plain: &mut [u8],
    outputs: &mut [u8],
) {
    let len = outputs.len() / N;
    let width = S::u8s::LEN;
    let mut outputs = outputs.chunks_exact_mut(len);
    let mut outputs: [&mut [u8]; N] = std::array::from_fn(|_| outputs.next().unwrap_or_default());
    for (number, input) in inputs.iter().enumerate() {
        // A closure for each row would be a call, and the tables would go through memory.
        let mut tables = [[S::u8s::splat(simd, 0); 2]; N];
        for (table, row) in tables.iter_mut().zip(rows) {
            for (half, bytes) in table.iter_mut().zip(&PRODUCTS[usize::from(row[number])]) {
                *half = S::u8s::block_splat(u8x16::load_array_ref(simd, bytes));
            }
        }
        let (vectors, rest) = input.split_at(input.len() / width * width);
        for (vector, at) in vectors.chunks_exact(width).zip((0..).step_by(width)) {
            let bytes = S::u8s::from_slice(simd, vector);
            if !plain.is_empty() {
                let place = &mut plain[at..at + width];
                (S::u8s::from_slice(simd, place) ^ bytes).store_slice(place);
            }
            for (table, output) in tables.iter().zip(&mut outputs) {
                let place = &mut output[at..at + width];
                (S::u8s::from_slice(simd, place) ^ product::<S>(table, bytes)).store_slice(place);
            }
        }
        if !rest.is_empty() {
            let places = plain.get_mut(vectors.len()..).unwrap_or_default().iter_mut();
            places.zip(rest).for_each(|(place, byte)| *place ^= byte);
            let mut whole = [0; VECTOR_LEN_MAX];
            whole[..rest.len()].copy_from_slice(rest);
            let bytes = S::u8s::from_slice(simd, &whole[..width]);
            for (table, output) in tables.iter().zip(&mut outputs) {
                product::<S>(table, bytes).store_slice(&mut whole[..width]);
                let places = output[vectors.len()..].iter_mut().zip(&whole[..rest.len()]);
                places.for_each(|(place, product)| *place ^= product);
            }
        }
    }
}

/// The products of `bytes` with the coefficient of which `low` and `high` are [`PRODUCTS`].
#[inline(always)]
fn product<S: Simd>([low, high]: &[S::u8s; 2], bytes: S::u8s) -> S::u8s {
    low.swizzle_dyn_within_blocks(bytes & 15) ^ high.swizzle_dyn_within_blocks(bytes >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this processor can do, the least of it last.
    fn levels() -> Vec<Level> {
        let best = Level::new();
        #[cfg(target_arch = "x86_64")]
        let lesser = [
            best.as_avx2().map(Level::Avx2),
            best.as_sse4_2().map(Level::Sse4_2),
            best.as_sse2().map(Level::Sse2),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let lesser: [Option<Level>; 0] = [];
        std::iter::once(best).chain(lesser.into_iter().flatten()).collect()
    }

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
            let mut rows = vec![[0; INPUTS_MAX]; 1 + len % (2 * ROWS)];
            rows.iter_mut().for_each(|row| rng.fill(row));
            let product = |row: &Row, place: usize| {
                inputs.iter().zip(row).fold(0, |sum, (input, coefficient)| {
                    let value = input.get(place).copied().unwrap_or(0);
                    sum ^ field::multiply(*coefficient, value)
                })
            };
            let places = rows.iter().flat_map(|row| (0..len).map(move |place| (row, place)));
            let expected: Vec<u8> = places.map(|(row, place)| product(row, place)).collect();
            for level in levels() {
                let mut outputs = vec![0xaa; rows.len() * len];
                combine_on(level, &borrowed, &rows, len, &mut outputs);
                assert_eq!(outputs, expected, "{level:?}, {count} inputs of at most {len}");
            }
        }
    }

    #[test]
    fn coefficients_of_one_are_plain_sums() {
        let mut output = [9; 5];
        combine(&[&[1; 5], &[2; 3], &[4; 5]], &[[1; INPUTS_MAX]], 5, &mut output);
        assert_eq!(output, [7, 7, 7, 5, 5]);
    }
}
