//! What handshakes of the Noise framework are made of, for another one than WireGuard's: circuits
//! use the pattern NK with the same curve, cipher and hash (docs/circuits.md).

pub use crate::aead::{key, nonce, open, seal, wipe};
pub use crate::kdf::{Secret, hash, kdf2, kdf3};
#[cfg(feature = "oracle")]
pub use crate::oracle::KeyId;
