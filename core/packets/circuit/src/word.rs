//! What a client and one of its hops tell each other inside a circuit.

use noise::PublicKey;
use wire::frame::Build;

use crate::handshake::{First, Second};

/// Bytes of a short one, padded.
pub(crate) const SHORT: usize = 64;
/// Bytes of a long one, padded.
pub(crate) const LONG: usize = 448;

/// A control message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// To a hop: make this one the next.
    Extend { next: PublicKey, message: First },
    /// It is, and this is what it said.
    Extended { message: Second },
    /// It is not.
    Refused { reason: u8 },
    /// Whether the circuit still carries.
    Ping { token: u64 },
    /// It does.
    Pong { token: u64 },
    /// Nothing: it looks like a packet of the middle length.
    Cover,
    /// Nothing, in answer.
    Covered,
}

impl Word {
    /// Bytes of it, padded.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Extend { .. } | Self::Extended { .. } | Self::Cover | Self::Covered => LONG,
            Self::Refused { .. } | Self::Ping { .. } | Self::Pong { .. } => SHORT,
        }
    }

    /// Fills `out`, which has its length.
    pub(crate) fn write(&self, out: &mut [u8]) {
        out.fill(0);
        let (kind, rest) = out.split_at_mut(1);
        kind[0] = match self {
            Self::Extend { next, message } => {
                rest[..32].copy_from_slice(&next.0);
                rest[32..32 + Build::FIRST_LEN].copy_from_slice(message);
                1
            }
            Self::Extended { message } => {
                rest[..Build::SECOND_LEN].copy_from_slice(message);
                2
            }
            Self::Refused { reason } => {
                rest[0] = *reason;
                3
            }
            Self::Ping { token } => {
                rest[..8].copy_from_slice(&token.to_le_bytes());
                4
            }
            Self::Pong { token } => {
                rest[..8].copy_from_slice(&token.to_le_bytes());
                5
            }
            Self::Cover => 6,
            Self::Covered => 7,
        };
    }

    pub(crate) fn read(plain: &[u8]) -> Option<Self> {
        let (&kind, rest) = plain.split_first()?;
        match kind {
            1 => {
                let (next, rest) = rest.split_first_chunk()?;
                Some(Self::Extend { next: PublicKey(*next), message: *rest.first_chunk()? })
            }
            2 => Some(Self::Extended { message: *rest.first_chunk()? }),
            3 => Some(Self::Refused { reason: *rest.first()? }),
            4 => Some(Self::Ping { token: u64::from_le_bytes(*rest.first_chunk()?) }),
            5 => Some(Self::Pong { token: u64::from_le_bytes(*rest.first_chunk()?) }),
            6 => Some(Self::Cover),
            7 => Some(Self::Covered),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_written_and_what_is_unknown_is_none() {
        for word in [
            Word::Extend { next: PublicKey([1; 32]), message: [2; 48] },
            Word::Extended { message: [3; 80] },
            Word::Refused { reason: 4 },
            Word::Ping { token: 5 },
            Word::Pong { token: 6 },
            Word::Cover,
            Word::Covered,
        ] {
            let mut bytes = vec![9; word.len()];
            word.write(&mut bytes);
            assert_eq!(Word::read(&bytes), Some(word));
        }
        assert_eq!(
            (Word::read(&[]), Word::read(&[4, 1]), Word::read(&[0; 64])),
            (None, None, None)
        );
        assert_eq!(Word::read(&[9; 448]), None);
    }
}
