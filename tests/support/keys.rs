//! Keys as text, made by code that is not ours.

use std::fs::File;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519::{PublicKey, StaticSecret};

/// A static key pair.
#[derive(Clone)]
pub struct KeyPair {
    pub secret: [u8; 32],
    pub public: [u8; 32],
}

impl KeyPair {
    pub fn new() -> Self {
        Self::from_secret(random())
    }

    pub fn from_secret(secret: [u8; 32]) -> Self {
        let public = PublicKey::from(&StaticSecret::from(secret)).to_bytes();
        Self { secret, public }
    }

    /// The private key in base64.
    pub fn private_text(&self) -> String {
        STANDARD.encode(self.secret)
    }

    /// The public key in base64.
    pub fn public_text(&self) -> String {
        STANDARD.encode(self.public)
    }
}

/// A new preshared key in base64.
pub fn preshared_key() -> String {
    STANDARD.encode(random())
}

/// Base64 to bytes.
pub fn decode(text: &str) -> [u8; 32] {
    STANDARD.decode(text).expect("base64").try_into().expect("32 bytes")
}

pub fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut source = File::open("/dev/urandom").expect("/dev/urandom opens");
    source.read_exact(&mut bytes).expect("/dev/urandom gives bytes");
    bytes
}

/// Lower-case hexadecimal, as the control socket wants it.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
