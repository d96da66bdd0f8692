//! The keys of one layer, and the mask of the numbers between two neighbours.
//!
//! A hop has four layers for a circuit: data and control, forth and back. Each is a chain of
//! epochs: after 2^[`EPOCH_BITS`] numbers the next link of the chain gives the next keys, and those
//! before are forgotten. Nobody announces an epoch: it stands in the number.

use noise::parts::{self, Secret};
use ring::aead::quic::{CHACHA20, HeaderProtectionKey};
use ring::aead::{Aad, LessSafeKey};

use crate::window::WINDOW;

/// Bytes that a layer adds to a body.
pub const TAG_LEN: usize = 16;
/// Numbers of an epoch: 2^20 cells, at most 1.5 GB.
pub const EPOCH_BITS: u32 = 20;
/// Above every number: five bytes of header hold them.
pub(crate) const NUMBERS: u64 = 1 << 40;
/// So many epochs may be passed over at once: their cells are all lost.
const EPOCHS_AHEAD_MAX: u64 = 16;

/// Which of a layer's two keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of what goes on: the body under it is for others, or a packet.
    Relay,
    /// Of what is for or from this very hop.
    Own,
}

/// The keys of one epoch.
struct Keys {
    relay: LessSafeKey,
    own: LessSafeKey,
    #[cfg(any(test, feature = "oracle"))]
    ids: [parts::KeyId; 2],
}

impl Keys {
    /// The keys that `chain` gives, and the chain of the epoch after.
    fn derive(chain: &Secret) -> (Secret, Self) {
        let (next, relay, own) = parts::kdf3(&chain.0, b"cells");
        let keys = Self {
            #[cfg(any(test, feature = "oracle"))]
            ids: [parts::KeyId::new(&relay), parts::KeyId::new(&own)],
            relay: parts::key(&relay),
            own: parts::key(&own),
        };
        (next, keys)
    }

    fn of(&self, kind: Kind) -> &LessSafeKey {
        match kind {
            Kind::Relay => &self.relay,
            Kind::Own => &self.own,
        }
    }

    fn open(&self, kind: Kind, number: u64, body: &mut [u8]) -> bool {
        self.of(kind).open_in_place(parts::nonce(number), Aad::empty(), body).is_ok()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        parts::wipe(&mut self.relay);
        parts::wipe(&mut self.own);
    }
}

/// One layer in one direction.
pub(crate) struct Layer {
    /// What the keys of the next epoch come from.
    chain: Secret,
    epoch: u64,
    current: Keys,
    previous: Option<Keys>,
}

impl Layer {
    /// The layers of one direction, for data and for control.
    pub(crate) fn pair(secret: &Secret) -> [Self; 2] {
        let (data, control) = parts::kdf2(&secret.0, b"layers");
        [Self::new(&data), Self::new(&control)]
    }

    fn new(chain: &Secret) -> Self {
        let (chain, current) = Keys::derive(chain);
        Self { chain, epoch: 0, current, previous: None }
    }

    /// Encrypts all of `body` but its last [`TAG_LEN`] bytes, which become the tag. The caller
    /// never says a number twice. `false` if its epoch is gone, or too far away.
    pub(crate) fn seal(&mut self, kind: Kind, number: u64, body: &mut [u8]) -> bool {
        let epoch = number >> EPOCH_BITS;
        if epoch > self.epoch {
            let Some((chain, keys)) = self.ahead(epoch) else { return false };
            self.advance(epoch, chain, keys);
        }
        self.forget(number);
        let Some(keys) = self.keys(epoch) else { return false };
        let Some((plain, place)) = body.split_last_chunk_mut::<TAG_LEN>() else { return false };
        #[cfg(any(test, feature = "oracle"))]
        keys.ids[usize::from(kind == Kind::Own)].witness_once(number);
        let nonce = parts::nonce(number);
        let none = Aad::empty();
        let Ok(tag) = keys.of(kind).seal_in_place_separate_tag(nonce, none, plain) else {
            return false;
        };
        place.copy_from_slice(tag.as_ref());
        true
    }

    /// Decrypts `body` in place, whose last [`TAG_LEN`] bytes are then meaningless. `false` if it
    /// is not authentic: then all of it is.
    pub(crate) fn open(&mut self, kind: Kind, number: u64, body: &mut [u8]) -> bool {
        let epoch = number >> EPOCH_BITS;
        if epoch > self.epoch {
            let Some((chain, keys)) = self.ahead(epoch) else { return false };
            let is_good = keys.open(kind, number, body);
            if is_good {
                self.advance(epoch, chain, keys);
            }
            return is_good;
        }
        let is_good = self.keys(epoch).is_some_and(|keys| keys.open(kind, number, body));
        if is_good {
            self.forget(number);
        }
        is_good
    }

    fn keys(&self, epoch: u64) -> Option<&Keys> {
        match self.epoch.checked_sub(epoch)? {
            0 => Some(&self.current),
            1 => self.previous.as_ref(),
            _ => None,
        }
    }

    fn ahead(&self, epoch: u64) -> Option<(Secret, Keys)> {
        let steps = epoch - self.epoch;
        if steps > EPOCHS_AHEAD_MAX {
            return None;
        }
        let (mut chain, mut keys) = Keys::derive(&self.chain);
        for _ in 1..steps {
            (chain, keys) = Keys::derive(&chain);
        }
        Some((chain, keys))
    }

    fn advance(&mut self, epoch: u64, chain: Secret, keys: Keys) {
        let before = core::mem::replace(&mut self.current, keys);
        self.previous = (epoch == self.epoch + 1).then_some(before);
        self.epoch = epoch;
        self.chain = chain;
    }

    /// Forgets the keys of the epoch before, once no cell of it would be taken.
    fn forget(&mut self, number: u64) {
        if number >> EPOCH_BITS == self.epoch && number % (1 << EPOCH_BITS) > WINDOW {
            self.previous = None;
        }
    }
}

/// Masks the numbers of a circuit's cells between two neighbours, as QUIC masks packet numbers
/// (RFC 9001, section 5.4.4): with the stream that a sample of the body selects.
pub(crate) struct Mask(HeaderProtectionKey);

impl Mask {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(protection(key))
    }

    /// A number as it travels with `body`, or back: it is its own reverse.
    pub(crate) fn apply(&self, number: [u8; 5], body: &[u8]) -> Option<[u8; 5]> {
        let mut mask = self.0.new_mask(body.get(..16)?).ok()?;
        for (masked, plain) in mask.iter_mut().zip(number) {
            *masked ^= plain;
        }
        Some(mask)
    }

    /// The number that came with `body`.
    pub(crate) fn read(&self, masked: [u8; 5], body: &[u8]) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..5].copy_from_slice(&self.apply(masked, body)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// `number`, to travel with `body`.
    pub(crate) fn write(&self, number: u64, body: &[u8]) -> Option<[u8; 5]> {
        self.apply(*number.to_le_bytes().first_chunk()?, body)
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        self.0 = protection(&[0; 32]);
        core::hint::black_box(&self.0);
    }
}

fn protection(key: &[u8; 32]) -> HeaderProtectionKey {
    HeaderProtectionKey::new(&CHACHA20, key).expect("ChaCha20 takes every 32-byte key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> [Layer; 2] {
        let secret = Secret([5; 32]);
        let [one, _] = Layer::pair(&secret);
        let [two, _] = Layer::pair(&secret);
        [one, two]
    }

    fn sealed(layer: &mut Layer, kind: Kind, number: u64) -> [u8; 32] {
        let mut body = [1; 32];
        assert!(layer.seal(kind, number, &mut body));
        body
    }

    #[rustfmt::skip]
    const GOLDEN_RELAY: [u8; 32] = [
        0xaa, 0x82, 0x50, 0x27, 0x48, 0xca, 0x7c, 0xe9, 0x2f, 0xcb, 0x96, 0x7d,
        0xfd, 0x4e, 0x60, 0x1e, 0xf9, 0x2f, 0x0f, 0x77, 0x9f, 0x1f, 0xa2, 0x55,
        0x18, 0x29, 0x79, 0xd6, 0x41, 0x4c, 0x3e, 0x65,
    ];
    #[rustfmt::skip]
    const GOLDEN_OWN: [u8; 32] = [
        0xba, 0x55, 0x75, 0xea, 0xb1, 0x11, 0x01, 0xce, 0x15, 0xb5, 0x91, 0x3a,
        0x24, 0x8d, 0x73, 0xad, 0xd0, 0xe4, 0x37, 0x82, 0xe5, 0xbd, 0x0b, 0x81,
        0xf3, 0xb3, 0x73, 0x0e, 0x6b, 0xa5, 0x2b, 0xce,
    ];
    #[rustfmt::skip]
    const GOLDEN_MASKED: [u8; 5] = [
        0xa6, 0x16, 0x30, 0x53, 0x51,
    ];

    /// The vectors were made by another program from docs/circuits.md alone.
    #[test]
    fn a_layer_is_what_the_specification_says() {
        let [mut layer, _] = ends();
        let body = sealed(&mut layer, Kind::Relay, 2);
        assert_eq!(body, GOLDEN_RELAY);
        let [mut layer, _] = ends();
        let body = sealed(&mut layer, Kind::Own, (1 << EPOCH_BITS) + 3);
        assert_eq!(body, GOLDEN_OWN);
        let mask = Mask::new(&[6; 32]);
        assert_eq!(mask.write(0x12_3456_789a, &[7; 16]), Some(GOLDEN_MASKED));
        assert_eq!(mask.read(GOLDEN_MASKED, &[7; 20]), Some(0x12_3456_789a));
        assert_eq!(mask.write(1, &[7; 15]), None, "too short to take a sample of");
    }

    #[test]
    fn every_changed_bit_another_number_and_the_other_key_are_refused() {
        let [mut one, mut two] = ends();
        let body = sealed(&mut one, Kind::Relay, 4);
        for bit in 0..body.len() * 8 {
            let mut changed = body;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!two.open(Kind::Relay, 4, &mut changed), "bit {bit}");
        }
        for (kind, number) in [(Kind::Own, 4), (Kind::Relay, 6), (Kind::Relay, 4 + NUMBERS)] {
            assert!(!two.open(kind, number, &mut { body }), "{kind:?} {number}");
        }
        let mut body = body;
        assert!(two.open(Kind::Relay, 4, &mut body) && body[..16] == [1; 16]);
    }

    #[test]
    fn keys_rotate_without_a_gap_and_those_before_are_forgotten() {
        let [mut one, mut two] = ends();
        let end = 1u64 << EPOCH_BITS;
        let late = sealed(&mut one, Kind::Relay, end - 2);
        let after = sealed(&mut one, Kind::Relay, end);
        assert!(two.open(Kind::Relay, end, &mut { after }), "a cell of the next epoch is enough");
        assert!(two.open(Kind::Relay, end - 2, &mut { late }), "one that was overtaken");
        assert!(two.previous.is_some());
        let later = sealed(&mut one, Kind::Relay, end + WINDOW + 2);
        assert!(two.open(Kind::Relay, end + WINDOW + 2, &mut { later }));
        assert!(two.previous.is_none() && one.previous.is_none());
        assert!(!two.open(Kind::Relay, end - 2, &mut { late }), "its key is gone");
        assert!(!one.seal(Kind::Relay, end - 2, &mut [0; 32]), "and at the other end");
    }

    #[test]
    fn a_number_far_ahead_costs_little_and_changes_nothing() {
        let [mut one, mut two] = ends();
        let far = (EPOCHS_AHEAD_MAX + 1) << EPOCH_BITS;
        assert!(!one.seal(Kind::Relay, far, &mut [0; 32]));
        assert!(!two.open(Kind::Relay, far, &mut [0; 32]));
        assert!(!two.open(Kind::Relay, 3 << EPOCH_BITS, &mut [0; 32]), "not authentic");
        let body = sealed(&mut one, Kind::Relay, 0);
        assert!(two.open(Kind::Relay, 0, &mut { body }), "still in the first epoch");
        let body = sealed(&mut one, Kind::Relay, 16 << EPOCH_BITS);
        assert!(two.open(Kind::Relay, 16 << EPOCH_BITS, &mut { body }));
    }
}
