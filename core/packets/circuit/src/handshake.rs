//! The handshake with one hop: `Noise_NK_25519_ChaChaPoly_BLAKE2s`. The hop proves its key, the
//! client has none. (The Noise Protocol Framework, revision 34, section 7.5.)

use noise::parts::{self, Secret};
use noise::{PrivateKey, PublicKey};
use wire::frame::Build;

/// What both ends mix in first, so that no message of another protocol is one of this.
pub const PROLOGUE: &[u8] = b"Warren circuit v1";
/// The Noise protocol name, which is hashed since it is longer than a hash.
const NAME: &[u8] = b"Noise_NK_25519_ChaChaPoly_BLAKE2s";
/// Bytes that a hop says in its answer.
pub(crate) const SAID_LEN: usize = 32;

/// A client's first message.
pub(crate) type First = [u8; Build::FIRST_LEN];
/// A hop's answer.
pub(crate) type Second = [u8; Build::SECOND_LEN];

/// What a handshake yields: a secret for each direction.
pub(crate) struct Agreed {
    /// From the client to the hop.
    pub(crate) forth: Secret,
    /// From the hop to the client.
    pub(crate) back: Secret,
}

/// A client's handshake under way.
pub(crate) struct Offer {
    ephemeral: PrivateKey,
    noise: Transcript,
}

impl Offer {
    /// Begins; `None` if the hop's key has low order.
    pub(crate) fn new(hop: &PublicKey, ephemeral: PrivateKey) -> Option<(Self, First)> {
        let mut noise = Transcript::new(hop);
        let public = ephemeral.public();
        noise.mix_hash(&public.0);
        let key = noise.mix_key(&ephemeral.agree(hop)?);
        let tag: [u8; 16] = noise.seal(&key, &[]);
        let mut message = [0; Build::FIRST_LEN];
        message[..32].copy_from_slice(&public.0);
        message[32..].copy_from_slice(&tag);
        Some((Self { ephemeral, noise }, message))
    }

    /// Reads the answer: secrets, and what the hop said. `None` unless it is the hop's.
    pub(crate) fn finish(&self, message: &Second) -> Option<(Agreed, [u8; SAID_LEN])> {
        let theirs = PublicKey(*message.first_chunk()?);
        let mut noise = Transcript { chain: self.noise.chain.clone(), hash: self.noise.hash };
        noise.mix_hash(&theirs.0);
        let key = noise.mix_key(&self.ephemeral.agree(&theirs)?);
        let sealed: &[u8; SAID_LEN + 16] = message.last_chunk()?;
        let said = noise.open(&key, sealed)?;
        Some((noise.split(), said))
    }
}

/// A hop's part: the answer, which says `said`, and the secrets. `None` unless the message is for
/// this key.
pub(crate) fn answer(
    private: &PrivateKey,
    message: &First,
    ephemeral: &PrivateKey,
    said: &[u8; SAID_LEN],
) -> Option<(Second, Agreed)> {
    let theirs = PublicKey(*message.first_chunk()?);
    let mut noise = Transcript::new(&private.public());
    noise.mix_hash(&theirs.0);
    let key = noise.mix_key(&private.agree(&theirs)?);
    let [] = noise.open(&key, message.last_chunk::<16>()?)?;
    let public = ephemeral.public();
    noise.mix_hash(&public.0);
    let key = noise.mix_key(&ephemeral.agree(&theirs)?);
    let sealed: [u8; SAID_LEN + 16] = noise.seal(&key, said);
    let mut answer = [0; Build::SECOND_LEN];
    answer[..32].copy_from_slice(&public.0);
    answer[32..].copy_from_slice(&sealed);
    Some((answer, noise.split()))
}

struct Transcript {
    chain: Secret,
    hash: [u8; 32],
}

impl Transcript {
    fn new(hop: &PublicKey) -> Self {
        let name = parts::hash(&[NAME]);
        let mut noise = Self { chain: Secret(name), hash: name };
        noise.mix_hash(PROLOGUE);
        noise.mix_hash(&hop.0);
        noise
    }

    fn mix_hash(&mut self, bytes: &[u8]) {
        self.hash = parts::hash(&[&self.hash, bytes]);
    }

    fn mix_key(&mut self, shared: &Secret) -> Secret {
        let (chain, key) = parts::kdf2(&self.chain.0, &shared.0);
        self.chain = chain;
        key
    }

    fn seal<const N: usize, const M: usize>(&mut self, key: &Secret, field: &[u8; N]) -> [u8; M] {
        let sealed = parts::seal(key, field, &self.hash);
        self.mix_hash(&sealed);
        sealed
    }

    fn open<const N: usize, const M: usize>(
        &mut self,
        key: &Secret,
        sealed: &[u8; M],
    ) -> Option<[u8; N]> {
        let field = parts::open(key, sealed, &self.hash)?;
        self.mix_hash(sealed);
        Some(field)
    }

    fn split(self) -> Agreed {
        let (forth, back) = parts::kdf2(&self.chain.0, &[]);
        Agreed { forth, back }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private(byte: u8) -> PrivateKey {
        PrivateKey::from_bytes([byte; 32])
    }

    fn snow(responder: Option<&PrivateKey>, hop: &PublicKey) -> snow::HandshakeState {
        let name = "Noise_NK_25519_ChaChaPoly_BLAKE2s".parse().expect("snow knows the pattern");
        let builder = snow::Builder::new(name).prologue(PROLOGUE).expect("once");
        match responder {
            Some(key) => builder.local_private_key(key.as_bytes()).expect("once").build_responder(),
            None => builder.remote_public_key(hop.as_bytes()).expect("once").build_initiator(),
        }
        .expect("all that the pattern needs is there")
    }

    /// What the other implementation seals first, opened with a secret of ours.
    fn from_snow(other: snow::HandshakeState, secret: &Secret) -> Vec<u8> {
        let mut sealed = [0; 19];
        let mut other = other.into_transport_mode().expect("both messages were said");
        assert_eq!(other.write_message(b"hop", &mut sealed).expect("fits"), sealed.len());
        let (nonce, none) = (parts::nonce(0), ring::aead::Aad::empty());
        parts::key(secret).open_in_place(nonce, none, &mut sealed).expect("one key").to_vec()
    }

    #[test]
    fn another_implementation_answers_our_client_and_asks_our_hop() {
        let (hop, said) = (private(7), [9; SAID_LEN]);
        let (offer, first) = Offer::new(&hop.public(), private(3)).expect("a good key");
        let mut other = snow(Some(&hop), &hop.public());
        let mut plain = [0; 128];
        assert_eq!(other.read_message(&first, &mut plain).expect("ours"), 0);
        let mut second = [0; Build::SECOND_LEN];
        assert_eq!(other.write_message(&said, &mut second).expect("fits"), second.len());
        let (keys, heard) = offer.finish(&second).expect("the other's");
        assert_eq!(heard, said);
        assert_eq!(from_snow(other, &keys.back), b"hop");

        let mut other = snow(None, &hop.public());
        let mut first = [0; Build::FIRST_LEN];
        assert_eq!(other.write_message(&[], &mut first).expect("fits"), first.len());
        let (second, keys) = answer(&hop, &first, &private(4), &said).expect("for this hop");
        assert_eq!(other.read_message(&second, &mut plain).expect("ours"), SAID_LEN);
        assert_eq!(plain[..SAID_LEN], said);
        assert_eq!(from_snow(other, &keys.forth), b"hop");
    }

    #[test]
    fn any_changed_bit_and_any_other_hop_is_refused() {
        let (hop, said) = (private(7), [0; SAID_LEN]);
        let (offer, first) = Offer::new(&hop.public(), private(3)).expect("a good key");
        let (second, _) = answer(&hop, &first, &private(4), &said).expect("for this hop");
        assert!(answer(&private(8), &first, &private(4), &said).is_none(), "another hop");
        for bit in 0..first.len() * 8 {
            let mut changed = first;
            changed[bit / 8] ^= 1 << (bit % 8);
            // The highest bit of a key is no part of it (RFC 7748): but it is of the transcript.
            assert!(answer(&hop, &changed, &private(4), &said).is_none(), "bit {bit}");
        }
        for bit in 0..second.len() * 8 {
            let mut changed = second;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(offer.finish(&changed).is_none(), "bit {bit}");
        }
        assert!(Offer::new(&PublicKey([0; 32]), private(3)).is_none(), "low order");
    }
}
