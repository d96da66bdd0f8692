//! Keys: 32 bytes each, one type per meaning. Secrets wipe themselves, print nothing and compare in
//! constant time.

use core::fmt;
use core::str::FromStr;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::encoding::{self, BadKey};
use crate::{Random, kdf};

/// A Curve25519 public key: a peer's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A Curve25519 private key. Wiped when dropped; clamped when made.
///
/// Its bytes have one place, wherever it goes: what moves by value leaves a copy in each list and
/// queue that it passed, which nobody wipes (threat HO-02).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey(Box<[u8; 32]>);

/// A secret both ends may share beforehand; all zeros means none. Wiped when dropped, and in one
/// place until then.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Default)]
pub struct PresharedKey(Box<[u8; 32]>);

impl PublicKey {
    /// From 64 hexadecimal digits, as the configuration protocol writes keys.
    ///
    /// # Errors
    /// `BadKey` if the text has another length or other characters.
    pub fn from_hex(text: &str) -> Result<Self, BadKey> {
        encoding::from_hex(text).map(Self)
    }

    /// 64 hexadecimal digits, lower case.
    #[must_use]
    pub fn to_hex(&self) -> String {
        encoding::to_hex(&self.0)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether bit 255 is set, which X25519 does not look at (RFC 7748, section 5): other bytes for
    /// the key without it. No key that was computed has it.
    #[must_use]
    pub const fn has_top_bit(&self) -> bool {
        self.0[31] & 0x80 != 0
    }
}

impl PrivateKey {
    /// From 32 bytes, clamped as RFC 7748 section 5 says.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        bytes[0] &= 248;
        bytes[31] = (bytes[31] & 127) | 64;
        let mut key = Self(Box::default());
        key.0.copy_from_slice(&bytes);
        bytes.zeroize();
        key
    }

    /// A new key.
    #[must_use]
    pub fn generate(random: &mut dyn Random) -> Self {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let key = Self::from_bytes(bytes);
        bytes.zeroize();
        key
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::x25519(*self.0, x25519_dalek::X25519_BASEPOINT_BYTES))
    }

    /// Diffie-Hellman with `public`. `None` if the result is all zeros, which a public key of low
    /// order forces (threat DP-15, RFC 7748 section 6.1).
    #[must_use]
    pub fn agree(&self, public: &PublicKey) -> Option<kdf::Secret> {
        let shared = kdf::Secret(x25519_dalek::x25519(*self.0, public.0));
        (!bool::from(shared.0.ct_eq(&[0; 32]))).then_some(shared)
    }
}

impl PresharedKey {
    /// From 32 bytes. All zeros is the same as having none.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        let mut key = Self::default();
        key.0.copy_from_slice(&bytes);
        bytes.zeroize();
        key
    }

    /// `true` if all bytes are zero: no preshared key.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.ct_eq(&[0; 32]).into()
    }
}

impl fmt::Display for PublicKey {
    /// 44 characters of base64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::to_base64(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    /// From 44 characters of base64.
    fn from_str(text: &str) -> Result<Self, BadKey> {
        encoding::from_base64(text).map(Self)
    }
}

/// What both secrets can do.
macro_rules! secret {
    ($name:ident) => {
        impl $name {
            /// From 64 hexadecimal digits.
            ///
            /// # Errors
            /// `BadKey` if the text has another length or other characters.
            pub fn from_hex(text: &str) -> Result<Self, BadKey> {
                encoding::from_hex(text).map(Self::from_bytes)
            }

            /// 64 hexadecimal digits, lower case. The caller wipes the text.
            #[must_use]
            pub fn to_hex(&self) -> String {
                encoding::to_hex(&self.0)
            }

            /// 44 characters of base64. The caller wipes the text.
            #[must_use]
            pub fn to_base64(&self) -> String {
                encoding::to_base64(&self.0)
            }

            /// The 32 bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(…)"))
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.ct_eq(&*other.0).into()
            }
        }

        impl Eq for $name {}

        impl FromStr for $name {
            type Err = BadKey;

            /// From 44 characters of base64.
            fn from_str(text: &str) -> Result<Self, BadKey> {
                encoding::from_base64(text).map(Self::from_bytes)
            }
        }
    };
}

secret!(PrivateKey);
secret!(PresharedKey);

/// Our static key pair with the hashes that depend only on it.
#[derive(Clone)]
pub struct Identity {
    private: PrivateKey,
    public: PublicKey,
    /// HASH(HASH(CONSTRUCTION ‖ IDENTIFIER) ‖ public): where a responder's transcript begins.
    pub(crate) transcript: [u8; 32],
    /// HASH(LABEL_MAC1 ‖ public): the key of mac1 in messages sent to us.
    pub(crate) mac1_key: kdf::Secret,
    /// HASH(LABEL_COOKIE ‖ public): the key of the cookie replies that we send.
    pub(crate) cookie_key: kdf::Secret,
}

impl Identity {
    /// Derives the public key and the hashes from `private`.
    #[must_use]
    pub fn new(private: PrivateKey) -> Self {
        let public = private.public();
        Self {
            transcript: kdf::hash(&[&kdf::INITIAL_TRANSCRIPT, &public.0]),
            mac1_key: kdf::Secret(kdf::hash(&[kdf::LABEL_MAC1, &public.0])),
            cookie_key: kdf::Secret(kdf::hash(&[kdf::LABEL_COOKIE, &public.0])),
            private,
            public,
        }
    }

    /// Our public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Our private key.
    #[must_use]
    pub const fn private(&self) -> &PrivateKey {
        &self.private
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_04_secrets_print_nothing_of_themselves() {
        let (private, shared) =
            (PrivateKey::from_bytes([0x5a; 32]), PresharedKey::from_bytes([0x5a; 32]));
        let identity = Identity::new(private.clone());
        let said = format!("{private:?} {shared:?} {:#?} {identity:?}", Some(&private));
        let [public, rest] = [identity.public().to_string(), said.clone()];
        let rest = rest.replace(&public, "");
        for secret in ["Wlpa", "5a5a", "90, 90", "5a, 5a", "0x5a"] {
            assert!(!rest.contains(secret), "{said}");
        }
    }
}
