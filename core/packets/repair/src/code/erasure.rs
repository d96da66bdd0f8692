//! The erasure code: from k data chunks, r repair chunks such that any k of the k + r suffice.
//!
//! It is systematic and maximum-distance separable. Repair chunk i is the sum of the data chunks j
//! times `(x0 + yj) / (xi + yj)`, with all x and y distinct: a Cauchy matrix whose columns are
//! scaled so that its first row is one. Every square part of it can be inverted, scaled or not,
//! and repair chunk 0 is the plain exclusive or. (Bloemer et al., "An XOR-based erasure-resilient
//! coding scheme", 1995; Plank and Xu, "Optimizing Cauchy Reed-Solomon codes", NCA 2006.)
//!
//! The matrix depends on neither k nor r: a sender may decide on r after the data chunks are out,
//! and add repair chunks later.

use std::fmt;

use crate::bounds::{CHUNK_LEN_MAX, DATA_MAX, REPAIR_MAX};
use crate::code::field;
use crate::code::kernel::{self, Row};

/// Why a block cannot be encoded or rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are no data chunks, or more than [`DATA_MAX`].
    DataCount(usize),
    /// More than [`REPAIR_MAX`] repair chunks, or an index beyond it.
    RepairCount(usize),
    /// A length of zero or above [`CHUNK_LEN_MAX`], or a chunk that does not have the length.
    Length(usize),
    /// One repair chunk was given twice; its index.
    Twice(u8),
    /// More data chunks are missing than repair chunks are there; how many more.
    Missing(usize),
    /// The memory that was lent does not have the length that is needed, which is given.
    Memory(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataCount(n) => write!(f, "{n} data chunks: use 1 to {DATA_MAX}"),
            Self::RepairCount(n) => write!(f, "{n} repair chunks: use at most {REPAIR_MAX}"),
            Self::Length(n) => {
                write!(f, "a chunk of {n} bytes: use 1 to {CHUNK_LEN_MAX}, repair chunks all equal")
            }
            Self::Twice(i) => write!(f, "repair chunk {i} is there twice: give each once"),
            Self::Missing(n) => write!(f, "{n} chunks too few to rebuild the block: wait for more"),
            Self::Memory(n) => write!(f, "the memory lent must be {n} bytes long"),
        }
    }
}

impl std::error::Error for Refused {}

/// Writes repair chunks 0, 1, .. of `len` bytes each, one behind the other, as many as `repair`
/// has room for. A data chunk shorter than `len` counts as filled up with zeros.
///
/// # Errors
/// Names what is wrong with the geometry; nothing was written.
pub fn encode(data: &[&[u8]], len: usize, repair: &mut [u8]) -> Result<(), Refused> {
    check_data(data.len(), len)?;
    if let Some(long) = data.iter().find(|chunk| chunk.len() > len) {
        return Err(Refused::Length(long.len()));
    }
    let count = repair.len() / len;
    if !repair.len().is_multiple_of(len) {
        return Err(Refused::Memory((count + 1) * len));
    }
    let rows = ENCODING.get(..count).ok_or(Refused::RepairCount(count))?;
    kernel::combine(data, rows, len, repair);
    Ok(())
}

/// Writes the missing data chunks, in the order of their indices, `len` bytes each, one behind
/// the other, zeros after a shorter chunk's end. `data` has `None` where a chunk is missing;
/// `repair` has index and bytes of repair chunks, of which the first that are needed are used.
/// Returns how many chunks were rebuilt.
///
/// # Errors
/// Names what is wrong or missing; nothing was written.
pub fn rebuild(
    data: &[Option<&[u8]>],
    repair: &[(u8, &[u8])],
    len: usize,
    rebuilt: &mut [u8],
) -> Result<usize, Refused> {
    check_data(data.len(), len)?;
    check_chunks(data, repair, len)?;
    let missing = data.iter().filter(|chunk| chunk.is_none()).count();
    let Some(repair) = repair.get(..missing) else {
        return Err(Refused::Missing(missing - repair.len()));
    };
    if rebuilt.len() != missing * len {
        return Err(Refused::Memory(missing * len));
    }
    if missing == 0 {
        return Ok(0);
    }
    let mut inverse = inverse(data, repair);
    let rows = &mut inverse[..missing];
    // What each data chunk is multiplied with is the inverse times its column of the matrix.
    let mut encoding: [&[u8]; REPAIR_MAX] = [&[]; REPAIR_MAX];
    let mut columns = [0; REPAIR_MAX * DATA_MAX];
    let columns = &mut columns[..missing * DATA_MAX];
    let mut inputs: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
    for (at, &(index, chunk)) in repair.iter().enumerate() {
        encoding[at] = &ENCODING[usize::from(index)];
        inputs[at] = chunk;
    }
    kernel::combine(&encoding[..missing], rows, DATA_MAX, columns);
    let present = data.iter().enumerate().filter_map(|(j, chunk)| Some((j, (*chunk)?)));
    for (at, (column, chunk)) in (missing..).zip(present) {
        inputs[at] = chunk;
        for (row, products) in rows.iter_mut().zip(columns.chunks(DATA_MAX)) {
            row[at] = products[column];
        }
    }
    kernel::combine(&inputs[..data.len()], rows, len, rebuilt);
    Ok(missing)
}

fn check_data(count: usize, len: usize) -> Result<(), Refused> {
    if count == 0 || count > DATA_MAX {
        return Err(Refused::DataCount(count));
    }
    if len == 0 || len > CHUNK_LEN_MAX {
        return Err(Refused::Length(len));
    }
    Ok(())
}

fn check_chunks(data: &[Option<&[u8]>], repair: &[(u8, &[u8])], len: usize) -> Result<(), Refused> {
    if let Some(long) = data.iter().flatten().find(|chunk| chunk.len() > len) {
        return Err(Refused::Length(long.len()));
    }
    let mut seen = 0u32;
    for &(index, chunk) in repair {
        if usize::from(index) >= REPAIR_MAX {
            return Err(Refused::RepairCount(usize::from(index) + 1));
        }
        if chunk.len() != len {
            return Err(Refused::Length(chunk.len()));
        }
        if seen >> index & 1 == 1 {
            return Err(Refused::Twice(index));
        }
        seen |= 1 << index;
    }
    Ok(())
}

/// What data chunk `column` is multiplied with in repair chunk `row`.
const fn coefficient(row: usize, column: usize) -> u8 {
    let first = DATA_MAX as u8;
    let x = (DATA_MAX + row) as u8;
    let y = column as u8;
    field::multiply(first ^ y, field::invert(x ^ y))
}

static ENCODING: [Row; REPAIR_MAX] = encoding();

const fn encoding() -> [Row; REPAIR_MAX] {
    let mut rows = [[0; DATA_MAX]; REPAIR_MAX];
    let mut row = 0;
    while row < REPAIR_MAX {
        let mut column = 0;
        while column < DATA_MAX {
            rows[row][column] = coefficient(row, column);
            column += 1;
        }
        row += 1;
    }
    rows
}

/// The inverse of that part of the matrix which has the rows of the repair chunks that are used and
/// the columns of the data chunks that are missing; zeros beyond it.
///
/// Gauss and Jordan's elimination. A pivot always exists, because every square part of the
/// matrix can be inverted; were it not so, rows of zeros would be left, not a panic.
fn inverse(data: &[Option<&[u8]>], repair: &[(u8, &[u8])]) -> [Row; REPAIR_MAX] {
    let size = repair.len();
    let mut left: [Row; REPAIR_MAX] = [[0; DATA_MAX]; REPAIR_MAX];
    let mut right = left;
    for (at, &(row, _)) in repair.iter().enumerate() {
        let missing = data.iter().enumerate().filter(|(_, chunk)| chunk.is_none());
        for (cell, (column, _)) in left[at].iter_mut().zip(missing) {
            *cell = ENCODING[usize::from(row)][column];
        }
        right[at][at] = 1;
    }
    for at in 0..size {
        let pivot = (at..size).find(|&row| left[row][at] != 0).unwrap_or(at);
        left.swap(at, pivot);
        right.swap(at, pivot);
        let scale = field::invert(left[at][at]);
        for cell in left[at][..size].iter_mut().chain(&mut right[at][..size]) {
            *cell = field::multiply(*cell, scale);
        }
        let pivot_left = left[at];
        let pivot_right = right[at];
        for row in (0..size).filter(|&row| row != at) {
            let factor = left[row][at];
            subtract(&mut left[row][..size], &pivot_left, factor);
            subtract(&mut right[row][..size], &pivot_right, factor);
        }
    }
    right
}

fn subtract(row: &mut [u8], other: &Row, factor: u8) {
    for (cell, other) in row.iter_mut().zip(other) {
        *cell ^= field::multiply(*other, factor);
    }
}

#[cfg(test)]
mod tests;
