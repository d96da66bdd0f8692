//! What preshared keys are derived from: random blocks that both ends have, as in a key file.
//!
//! A block becomes a key by HKDF-SHA-256 (RFC 5869) without salt. That is not WireGuard's own
//! derivation, on purpose: `openssl kdf` and every scripting language have it, so that a peer which
//! is not ours can be given the same key (docs/link.md).

use core::fmt;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::PresharedKey;

/// What HKDF is told that its output is for.
const INFO: &[u8] = b"warren preshared key";

/// At least two whole blocks of secret bytes. Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyMaterial(Vec<u8>);

/// Why bytes are no key material.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMaterial {
    /// Fewer than two blocks: so many bytes.
    Short(usize),
    /// The last block is not whole: so many bytes.
    Torn(usize),
}

impl KeyMaterial {
    /// Bytes of a block, from which one key is made.
    pub const BLOCK_LEN: usize = 64;

    /// Takes the blocks of a key file.
    ///
    /// # Errors
    /// [`BadMaterial`]; the bytes are wiped.
    pub fn new(mut bytes: Vec<u8>) -> Result<Self, BadMaterial> {
        let len = bytes.len();
        let wrong = if len < 2 * Self::BLOCK_LEN {
            BadMaterial::Short(len)
        } else if !len.is_multiple_of(Self::BLOCK_LEN) {
            BadMaterial::Torn(len)
        } else {
            return Ok(Self(bytes));
        };
        bytes.zeroize();
        Err(wrong)
    }

    /// Whole blocks in it, two at least.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        (self.0.len() / Self::BLOCK_LEN) as u64
    }

    /// The key of block `number`, counted from 0, and from there again after the last one.
    #[must_use]
    pub fn key(&self, number: u64) -> PresharedKey {
        let at = (number % self.blocks()) as usize * Self::BLOCK_LEN;
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(&self.0[at..at + Self::BLOCK_LEN]);
        let mut key = [0; KEY_LEN];
        let expanded = extracted.expand(&[INFO], Len);
        let filled = expanded.and_then(|expanded| expanded.fill(&mut key));
        filled.expect("HKDF-SHA-256 yields up to 8160 bytes");
        let derived = PresharedKey::from_bytes(key);
        key.zeroize();
        derived
    }
}

/// Bytes of a preshared key.
const KEY_LEN: usize = 32;

struct Len;

impl KeyType for Len {
    fn len(&self) -> usize {
        KEY_LEN
    }
}

impl PartialEq for KeyMaterial {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyMaterial {}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMaterial({} blocks)", self.blocks())
    }
}

impl fmt::Display for BadMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = KeyMaterial::BLOCK_LEN;
        match self {
            Self::Short(len) => write!(
                f,
                "it has {len} bytes, and a schedule needs two blocks of {block} at least; make one \
                 with `dd if=/dev/urandom of=FILE bs={block} count=7300`"
            ),
            Self::Torn(len) => write!(
                f,
                "it has {len} bytes, which are no whole blocks of {block}; copy it again, in full"
            ),
        }
    }
}

impl std::error::Error for BadMaterial {}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(blocks: u8) -> KeyMaterial {
        let bytes = (0..blocks).flat_map(|block| [block; KeyMaterial::BLOCK_LEN]).collect();
        KeyMaterial::new(bytes).expect("whole blocks")
    }

    /// What `openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:$(printf '01%.0s' {1..64})
    /// -kdfopt info:'warren preshared key' HKDF` prints.
    #[test]
    fn a_block_becomes_the_key_that_openssl_makes_of_it() {
        let theirs = "214db939c23dd5d0f27a7591208ee86d6e570cc4bc55bae158c063619b8957dc";
        assert_eq!(material(3).key(1).to_hex(), theirs);
        assert_eq!(material(2).key(1).to_hex(), theirs, "the other blocks do not matter");
    }

    #[test]
    fn blocks_are_used_again_after_the_last_and_each_gives_another_key() {
        let keys = material(5);
        assert!(keys.blocks() == 5 && keys.key(4) == keys.key(9));
        let all: std::collections::BTreeSet<_> = (0..5).map(|n| keys.key(n).to_hex()).collect();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn short_and_torn_material_is_refused_with_its_length() {
        for (len, wrong) in [
            (0, BadMaterial::Short(0)),
            (64, BadMaterial::Short(64)),
            (127, BadMaterial::Short(127)),
            (129, BadMaterial::Torn(129)),
        ] {
            assert_eq!(KeyMaterial::new(vec![7; len]), Err(wrong));
            assert!(wrong.to_string().contains(&format!("{len} bytes")), "{wrong}");
        }
    }

    #[test]
    fn ho_04_key_material_prints_nothing_of_itself() {
        assert_eq!(format!("{:?}", material(2)), "KeyMaterial(2 blocks)");
    }
}
