//! The channel inside TLS: Noise_IK_25519_ChaChaPoly_SHA256 (Noise Protocol Framework, revision
//! 34) to the key that the token pins, and numbered requests under its keys.
//!
//! TLS outside is there for the network's sake; what is said is protected here. The initiator
//! knows the responder's key beforehand, so a server with another key cannot read the first
//! message, and an intercepting proxy sees ciphertext. The first message carries no payload, since
//! it could be replayed.
//!
//! After the handshake each request has a number, and its answer the same one, in the other
//! direction's key. The number is the upper 48 bits of the nonce and the place of a piece in a
//! message the lower 16, so no nonce repeats. A server takes each number once: a repeated request,
//! which a proxy may send, is refused. Requests may come over several connections and overtake
//! each other a little.
//!
//! A message is cut into pieces: length (2 bytes, big endian), ciphertext of 1 byte that is 1 for
//! the last piece and 0 for others, and of up to 65,518 bytes of content, so that no piece is
//! longer than Noise allows and none can be left out at the end.

use core::fmt;

use noise::{PrivateKey, PublicKey, Random};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{digest, hmac};
use zeroize::{Zeroize, ZeroizeOnDrop};

const PROTOCOL: &[u8; 32] = b"Noise_IK_25519_ChaChaPoly_SHA256";
const PROLOGUE: &[u8] = b"warren control 1";
/// Of the handshake with a relay, so that no message of one is worth anything to the other.
const RELAY_PROLOGUE: &[u8] = b"warren relay 1";
const TAG_LEN: usize = 16;
const KEY_LEN: usize = 32;
/// Bytes of the first message of a handshake: an ephemeral key, our static key, no payload.
pub const OPEN_LEN: usize = KEY_LEN + KEY_LEN + TAG_LEN + TAG_LEN;
/// Bytes of content in one piece: with its first byte and the tag 65,535, Noise's limit.
const PIECE_LEN: usize = 65_535 - TAG_LEN - 1;
/// Numbers of requests under one handshake.
pub const NUMBER_MAX: u64 = (1 << 48) - 1;

/// Why bytes are not what they should be. Which one is for the log; a peer is told nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadChannel {
    /// Too short, too long, or pieces that do not fit.
    Form,
    /// Not made for this key, or changed on the way.
    Forged,
    /// A public key of low order.
    LowOrder,
    /// No number is left; open a new channel.
    Exhausted,
}

#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Bytes32([u8; KEY_LEN]);

/// Noise's SymmetricState.
struct Transcript {
    chain: Bytes32,
    hash: [u8; 32],
    key: Option<LessSafeKey>,
    nonce: u64,
}

/// An initiator between its message and the answer.
pub struct Opening {
    transcript: Transcript,
    ephemeral: PrivateKey,
    machine: PrivateKey,
}

/// The keys of an open channel, at either end.
pub struct Channel {
    send: LessSafeKey,
    receive: LessSafeKey,
}

impl Transcript {
    fn new(prologue: &[u8], responder: &PublicKey) -> Self {
        let mut this = Self { chain: Bytes32(*PROTOCOL), hash: *PROTOCOL, key: None, nonce: 0 };
        this.mix_hash(prologue);
        this.mix_hash(&responder.0);
        this
    }

    fn mix_hash(&mut self, bytes: &[u8]) {
        let mut state = digest::Context::new(&digest::SHA256);
        state.update(&self.hash);
        state.update(bytes);
        self.hash.copy_from_slice(state.finish().as_ref());
    }

    fn mix_key(&mut self, input: &Bytes32) {
        let (chain, key) = derive(&self.chain, &input.0);
        self.chain = chain;
        self.key = Some(cipher(&key));
        self.nonce = 0;
    }

    fn next_nonce(&mut self) -> Nonce {
        self.nonce += 1;
        nonce(self.nonce - 1)
    }

    fn seal(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), BadChannel> {
        let mut sealed = plaintext.to_vec();
        let aad = self.hash;
        let nonce = self.next_nonce();
        let key = self.key.as_ref().ok_or(BadChannel::Form)?;
        key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed)
            .map_err(|_| BadChannel::Form)?;
        self.mix_hash(&sealed);
        out.extend(sealed);
        Ok(())
    }

    fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, BadChannel> {
        let mut plain = sealed.to_vec();
        let aad = self.hash;
        let nonce = self.next_nonce();
        let key = self.key.as_ref().ok_or(BadChannel::Form)?;
        let len = key
            .open_in_place(nonce, Aad::from(aad), &mut plain)
            .map_err(|_| BadChannel::Forged)?
            .len();
        plain.truncate(len);
        self.mix_hash(sealed);
        Ok(plain)
    }

    /// The keys of both directions: initiator's first.
    fn split(&self) -> (LessSafeKey, LessSafeKey) {
        let (first, second) = derive(&self.chain, &[]);
        (cipher(&first), cipher(&second))
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Bytes32 {
    let mut state = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        state.update(part);
    }
    let mut out = Bytes32([0; KEY_LEN]);
    out.0.copy_from_slice(state.sign().as_ref());
    out
}

/// HKDF with two outputs (Noise, section 4.3).
fn derive(chain: &Bytes32, input: &[u8]) -> (Bytes32, Bytes32) {
    let extracted = hmac(&chain.0, &[input]);
    let first = hmac(&extracted.0, &[&[1]]);
    let second = hmac(&extracted.0, &[&first.0, &[2]]);
    (first, second)
}

fn cipher(key: &Bytes32) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &key.0);
    LessSafeKey::new(key.expect("32 bytes are what the cipher wants"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn agree(private: &PrivateKey, public: &PublicKey) -> Result<Bytes32, BadChannel> {
    let shared = Bytes32(x25519_dalek::x25519(*private.as_bytes(), public.0));
    if shared.0 == [0; KEY_LEN] { Err(BadChannel::LowOrder) } else { Ok(shared) }
}

fn public_key(bytes: &[u8]) -> Result<PublicKey, BadChannel> {
    Ok(PublicKey(bytes.try_into().map_err(|_| BadChannel::Form)?))
}

/// Begins a channel from `machine` to `server`: what to send, and what to keep for the answer.
///
/// # Errors
/// [`BadChannel::LowOrder`] if the server's key is no key.
pub fn open(
    machine: &PrivateKey,
    server: &PublicKey,
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Opening), BadChannel> {
    begin(PROLOGUE, machine, server, random)
}

/// As [`open`], from the node with the WireGuard key `node` to a relay: what to send as
/// [`wire::relay::Frame::Open`].
///
/// # Errors
/// [`BadChannel::LowOrder`] if the relay's key is no key.
pub fn open_relay(
    node: &PrivateKey,
    relay: &PublicKey,
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Opening), BadChannel> {
    begin(RELAY_PROLOGUE, node, relay, random)
}

fn begin(
    prologue: &[u8],
    machine: &PrivateKey,
    server: &PublicKey,
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Opening), BadChannel> {
    let mut transcript = Transcript::new(prologue, server);
    let ephemeral = PrivateKey::generate(random);
    let mut message = ephemeral.public().0.to_vec();
    transcript.mix_hash(&message);
    transcript.mix_key(&agree(&ephemeral, server)?);
    transcript.seal(&machine.public().0, &mut message)?;
    transcript.mix_key(&agree(machine, server)?);
    transcript.seal(&[], &mut message)?;
    Ok((message, Opening { transcript, ephemeral, machine: machine.clone() }))
}

/// Answers [`open`]'s message with `payload`: the answer, the channel, and whose machine it is.
///
/// # Errors
/// [`BadChannel`]: the message was not made for `server`, by somebody who holds their own key.
pub fn accept(
    server: &PrivateKey,
    message: &[u8],
    payload: &[u8],
    random: &mut dyn Random,
) -> Result<(Vec<u8>, Channel, PublicKey), BadChannel> {
    Initiation::read(PROLOGUE, server, message)?.answer(payload, random)
}

/// Reads the message of [`open_relay`]: whose key it shows. The message may be a repeated one;
/// only what is sealed by the channel afterwards proves that the key's owner is there.
///
/// # Errors
/// As those of [`accept`].
pub fn read_relay(relay: &PrivateKey, message: &[u8]) -> Result<Initiation, BadChannel> {
    Initiation::read(RELAY_PROLOGUE, relay, message)
}

/// An initiator's message that was read and is to be answered.
pub struct Initiation {
    transcript: Transcript,
    theirs: PublicKey,
    machine: PublicKey,
}

impl Initiation {
    fn read(prologue: &[u8], server: &PrivateKey, message: &[u8]) -> Result<Self, BadChannel> {
        if message.len() != OPEN_LEN {
            return Err(BadChannel::Form);
        }
        let mut transcript = Transcript::new(prologue, &server.public());
        let (theirs, rest) = message.split_at(KEY_LEN);
        let (machine, empty) = rest.split_at(KEY_LEN + TAG_LEN);
        transcript.mix_hash(theirs);
        let theirs = public_key(theirs)?;
        transcript.mix_key(&agree(server, &theirs)?);
        let machine = public_key(&transcript.open(machine)?)?;
        transcript.mix_key(&agree(server, &machine)?);
        transcript.open(empty)?;
        Ok(Self { transcript, theirs, machine })
    }

    /// The key that the message shows.
    #[must_use]
    pub const fn key(&self) -> PublicKey {
        self.machine
    }

    /// Answers with `payload`: the answer, the channel, and whose it is.
    ///
    /// # Errors
    /// [`BadChannel`]: the initiator's keys are none.
    pub fn answer(
        self,
        payload: &[u8],
        random: &mut dyn Random,
    ) -> Result<(Vec<u8>, Channel, PublicKey), BadChannel> {
        let Self { mut transcript, theirs, machine } = self;
        let ephemeral = PrivateKey::generate(random);
        let mut answer = ephemeral.public().0.to_vec();
        transcript.mix_hash(&answer);
        transcript.mix_key(&agree(&ephemeral, &theirs)?);
        transcript.mix_key(&agree(&ephemeral, &machine)?);
        transcript.seal(payload, &mut answer)?;
        let (receive, send) = transcript.split();
        Ok((answer, Channel { send, receive }, machine))
    }
}

impl Opening {
    /// The channel and the server's payload.
    ///
    /// # Errors
    /// [`BadChannel`]: whoever answered does not hold the server's key.
    pub fn finish(mut self, answer: &[u8]) -> Result<(Channel, Vec<u8>), BadChannel> {
        let (theirs, payload) = answer.split_at_checked(KEY_LEN).ok_or(BadChannel::Form)?;
        self.transcript.mix_hash(theirs);
        let theirs = public_key(theirs)?;
        self.transcript.mix_key(&agree(&self.ephemeral, &theirs)?);
        self.transcript.mix_key(&agree(&self.machine, &theirs)?);
        let payload = self.transcript.open(payload)?;
        let (send, receive) = self.transcript.split();
        Ok((Channel { send, receive }, payload))
    }
}

impl Channel {
    /// Seals `plain` as the message with this number. The caller never uses a number twice in one
    /// direction.
    ///
    /// # Errors
    /// [`BadChannel::Exhausted`] for a number above [`NUMBER_MAX`]; [`BadChannel::Form`] for more
    /// than 65,536 pieces.
    pub fn seal(&self, number: u64, plain: &[u8]) -> Result<Vec<u8>, BadChannel> {
        if number > NUMBER_MAX {
            return Err(BadChannel::Exhausted);
        }
        let count = plain.len().div_ceil(PIECE_LEN).max(1);
        if count > 1 << 16 {
            return Err(BadChannel::Form);
        }
        let mut out = Vec::with_capacity(plain.len() + count * (2 + 1 + TAG_LEN));
        for place in 0..count {
            let end = (place + 1) * PIECE_LEN;
            let content = &plain[place * PIECE_LEN..end.min(plain.len())];
            let mut piece = Vec::with_capacity(1 + content.len() + TAG_LEN);
            piece.push(u8::from(place + 1 == count));
            piece.extend(content);
            self.send
                .seal_in_place_append_tag(
                    nonce(number << 16 | place as u64),
                    Aad::empty(),
                    &mut piece,
                )
                .map_err(|_| BadChannel::Form)?;
            out.extend((piece.len() as u16).to_be_bytes());
            out.extend(piece);
        }
        Ok(out)
    }

    /// Opens the message with this number, of at most `len_max` bytes.
    ///
    /// # Errors
    /// [`BadChannel`]: it is not that message, or not whole.
    pub fn receive(
        &self,
        number: u64,
        sealed: &[u8],
        len_max: usize,
    ) -> Result<Vec<u8>, BadChannel> {
        if number > NUMBER_MAX {
            return Err(BadChannel::Exhausted);
        }
        let mut rest = sealed;
        let mut plain = Vec::new();
        for place in 0..1 << 16 {
            let (len, later) = rest.split_at_checked(2).ok_or(BadChannel::Form)?;
            let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
            let (piece, later) = later.split_at_checked(len).ok_or(BadChannel::Form)?;
            let mut piece = piece.to_vec();
            let opened = self
                .receive
                .open_in_place(nonce(number << 16 | place), Aad::empty(), &mut piece)
                .map_err(|_| BadChannel::Forged)?;
            let (last, content) = opened.split_first().ok_or(BadChannel::Form)?;
            if plain.len() + content.len() > len_max {
                return Err(BadChannel::Form);
            }
            plain.extend(content);
            rest = later;
            if *last == 1 {
                return if rest.is_empty() { Ok(plain) } else { Err(BadChannel::Form) };
            }
        }
        Err(BadChannel::Form)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(…)")
    }
}

impl fmt::Debug for Initiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Initiation({})", self.machine)
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening(…)")
    }
}

impl fmt::Display for BadChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "the message has another length or shape than it should",
            Self::Forged => "the message was not made with the expected key",
            Self::LowOrder => "the public key is none",
            Self::Exhausted => "the channel has no number left",
        })
    }
}

impl core::error::Error for BadChannel {}

#[cfg(test)]
pub(crate) mod tests;
