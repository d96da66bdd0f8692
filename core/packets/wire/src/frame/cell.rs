//! What travels in circuits: cells, and the messages between two neighbours that set a circuit up.
//!
//! Both are padded to one of [`CLASSES`], so that neither depth nor kind shows in a length.

use super::{KIND_BUILD, KIND_CELL, u32_at};
use crate::Malformed;

/// Lengths that the part behind a cell's header is padded to, in bytes: equal on every link of a
/// circuit. Nothing else is ever sent.
pub const CLASSES: [usize; 3] = [192, 576, 1408];

/// What a cell's body is counted in, bytes.
pub const UNIT: usize = 16;

/// The class that `len` bytes belong to; none if they are too many.
#[must_use]
pub fn class_of(len: usize) -> Option<usize> {
    CLASSES.into_iter().find(|&class| len <= class)
}

/// One cell: a body under the layers of the hops that are yet to come, or to go back through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The receiver's index of the circuit.
    pub index: u32,
    /// The number of the cell, masked with bytes of the body.
    pub number: [u8; 5],
    /// Bytes of the body: a multiple of [`UNIT`], padding of the frame not counted.
    pub len: usize,
}

impl Cell {
    /// Bytes in front of the body.
    pub const HEADER_LEN: usize = 11;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::HEADER_LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        let len = usize::from(fixed[1]) * UNIT;
        let class = class_of(len).filter(|_| len > 0).ok_or(Malformed::TotalLength)?;
        if plain.len() < Self::HEADER_LEN + class {
            return Err(Malformed::Truncated);
        }
        let mut number = [0; 5];
        number.copy_from_slice(&fixed[6..]);
        Ok(Self { index: u32_at(fixed, 2), number, len })
    }

    /// The header's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::HEADER_LEN] {
        let mut bytes = [0; Self::HEADER_LEN];
        bytes[0] = KIND_CELL;
        bytes[1] = u8::try_from(self.len / UNIT).unwrap_or(u8::MAX);
        bytes[2..6].copy_from_slice(&self.index.to_le_bytes());
        bytes[6..].copy_from_slice(&self.number);
        bytes
    }

    /// Bytes of the whole frame: header, body and padding.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        Self::HEADER_LEN + class_of(self.len).unwrap_or(CLASSES[2])
    }
}

/// What two neighbours of a circuit tell each other to set it up and to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Be the next hop of a circuit.
    Create {
        /// The sender's index, for cells back.
        index: u32,
        /// Cells of this circuit have a layer of the receiver's: the sender is a hop itself.
        layered: bool,
        /// Masks the numbers of cells between these two.
        mask: [u8; 32],
        /// The first message of the handshake with the client.
        message: [u8; Self::FIRST_LEN],
    },
    /// The answer.
    Created {
        /// The receiver's index.
        index: u32,
        /// The sender's, for cells forth.
        theirs: u32,
        /// The second message of the handshake.
        message: [u8; Self::SECOND_LEN],
    },
    /// The answer of who does not want to.
    Refused {
        /// The receiver's index.
        index: u32,
        /// Why; see the crate `circuit`.
        reason: u8,
    },
    /// The circuit has ended.
    Destroy {
        /// The receiver's index.
        index: u32,
        /// Why; see the crate `circuit`.
        reason: u8,
    },
}

impl Build {
    /// Length on the wire, in bytes: that of a cell of the second class.
    pub const LEN: usize = Cell::HEADER_LEN + CLASSES[1];
    /// Bytes of a handshake's first message: a key and a tag.
    pub const FIRST_LEN: usize = 48;
    /// Bytes of its second one: a key, 32 bytes that are encrypted, and a tag.
    pub const SECOND_LEN: usize = 80;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        let index = u32_at(fixed, 2);
        let part = |at: usize| &fixed[at..];
        let reason = fixed[6];
        match fixed[1] {
            1 => {
                let mask = *part(7).first_chunk().ok_or(Malformed::Truncated)?;
                let message = *part(39).first_chunk().ok_or(Malformed::Truncated)?;
                Ok(Self::Create { index, layered: fixed[6] & 1 == 1, mask, message })
            }
            2 => {
                let message = *part(10).first_chunk().ok_or(Malformed::Truncated)?;
                Ok(Self::Created { index, theirs: u32_at(fixed, 6), message })
            }
            3 => Ok(Self::Refused { index, reason }),
            4 => Ok(Self::Destroy { index, reason }),
            _ => Err(Malformed::Version),
        }
    }

    /// The frame's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = KIND_BUILD;
        let (kind, to) = match self {
            Self::Create { index, layered, mask, message } => {
                bytes[6] = u8::from(*layered);
                bytes[7..39].copy_from_slice(mask);
                bytes[39..39 + Self::FIRST_LEN].copy_from_slice(message);
                (1, index)
            }
            Self::Created { index, theirs, message } => {
                bytes[6..10].copy_from_slice(&theirs.to_le_bytes());
                bytes[10..10 + Self::SECOND_LEN].copy_from_slice(message);
                (2, index)
            }
            Self::Refused { index, reason } => {
                bytes[6] = *reason;
                (3, index)
            }
            Self::Destroy { index, reason } => {
                bytes[6] = *reason;
                (4, index)
            }
        };
        bytes[1] = kind;
        bytes[2..6].copy_from_slice(&to.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_cell_says_how_much_of_its_class_is_body() {
        let cell = Cell { index: 0x0403_0201, number: [9, 8, 7, 6, 5], len: 112 };
        let mut frame = cell.build().to_vec();
        assert_eq!(frame, [0x8e, 7, 1, 2, 3, 4, 9, 8, 7, 6, 5]);
        assert!(parse(&frame).is_err(), "the class is not there");
        frame.resize(cell.frame_len(), 0);
        assert_eq!((frame.len(), parse(&frame)), (203, Ok(Frame::Cell(cell))));
        for units in [0, 89, 255] {
            frame.resize(2000, 0);
            frame[1] = units;
            assert!(parse(&frame).is_err(), "{units}");
        }
    }

    #[test]
    fn classes_are_units_and_a_hop_that_takes_its_layer_off_keeps_the_class() {
        assert!(CLASSES.iter().all(|class| class % UNIT == 0));
        assert_eq!(class_of(1), Some(192));
        assert_eq!((class_of(193), class_of(1408), class_of(1409)), (Some(576), Some(1408), None));
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_all_have_one_length() {
        let messages = [
            Build::Create { index: 1, layered: true, mask: [2; 32], message: [3; 48] },
            Build::Created { index: 4, theirs: 5, message: [6; 80] },
            Build::Refused { index: 7, reason: 8 },
            Build::Destroy { index: 9, reason: 10 },
        ];
        for message in messages {
            let bytes = message.build();
            assert_eq!(bytes.len(), Cell { index: 0, number: [0; 5], len: 576 }.frame_len());
            assert_eq!(parse(&bytes), Ok(Frame::Build(message)));
            assert!(parse(&bytes[..Build::LEN - 1]).is_err());
        }
        let mut unknown = messages[0].build();
        unknown[1] = 5;
        assert!(parse(&unknown).is_err());
    }
}
