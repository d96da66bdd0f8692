//! WireGuard as published, as values: keys in, datagrams in, datagrams out.
//!
//! This crate is the protocol and nothing else. It opens no socket, reads no clock, draws no
//! randomness of its own, knows no addresses beyond the cookie check, no allowed IPs and no
//! interface. The caller passes in time (`Instant`, `Tai64n`) and randomness (`Random`),
//! carries its datagrams, and learns a peer's endpoint from those that `Peer::open` and the
//! handshake calls accept.
//!
//! The life of one handshake datagram:
//!
//! 1. `wire::wireguard::classify` says it is an initiation, a response or a cookie reply.
//! 2. `Gate::admit` checks mac1 before anything costly happens. Under load, which the caller
//!    decides, it also wants mac2 and a token from the source's bucket, or it answers with a
//!    cookie.
//! 3. An initiation goes through `read_initiation`, which finds out whose it is, then through that
//!    peer's `accept_initiation`, which checks the rest and returns the response. A response goes
//!    to the owner of its receiver index, `Peer::accept_response`; a cookie reply likewise.
//! 4. The handshake becomes a `Session`: at once for the initiator, with the first packet received
//!    for the responder.
//!
//! The life of one transport datagram:
//!
//! 1. Out: `Peer::sealer` lends the current session, `Session::seal` encrypts in place. `None`
//!    means there is none, and that a handshake has been asked for.
//! 2. In: `Indices::owner` names the peer, `Peer::open` decrypts in place and refuses what is old,
//!    repeated or forged.
//! 3. Once per batch the caller says what passed, `data_sent` and `data_received`; timers need no
//!    more than that.
//!
//! Everything the peer wants to do by itself comes out of `poll_action`: start a handshake, send a
//! keepalive, flush what was staged. `poll_timeout` says when it next wants to be woken, and why.
//!
//! Beyond WireGuard stand two things, which no other implementation sees unless the caller tells
//! it inside a session: the word in the low bits of a timestamp (`Peer::set_word`), and a second
//! cipher for sessions, AES-256-GCM, whose packets come to a second receiver index. All of the
//! latter is `session/second.rs`, which has the keys, and `peer/second.rs`: `offer_second` draws
//! our index, `accept_second` takes the peer's. Without both a session is WireGuard's to the byte.
//!
//! A preshared key may change on schedule: `Peer::set_preshared_keys` has several hold at a time,
//! and [`KeyMaterial`] is where they come from. When which holds is the caller's business.
//!
//! [`parts`] lends the hash, the key derivation and the ciphers to the one other handshake of this
//! project, that of circuits, so that they are written once.
//!
//! A caller therefore runs: input, then `poll_action` until `None`, then sleep until
//! `poll_timeout`, then `handle_timeout`. Refusals are `Drop` reasons to count; nothing is ever
//! answered to a stranger.

#![forbid(unsafe_code)]
#![cfg_attr(feature = "oracle", allow(clippy::disallowed_macros))]

mod aead;
mod cookie;
mod drop;
mod encoding;
mod gate;
mod handshake;
mod index;
mod kdf;
mod keys;
mod limiter;
mod material;
#[cfg(feature = "oracle")]
mod oracle;
pub mod parts;
mod peer;
mod replay;
mod replies;
mod session;
#[cfg(test)]
mod tests;
mod time;
mod timers;

pub use drop::Drop;
pub use encoding::BadKey;
pub use gate::{Admission, Gate};
pub use handshake::{OpenedInitiation, read_initiation};
pub use index::{INDICES_MAX, Index, Indices, PeerId};
pub use keys::{Identity, PresharedKey, PrivateKey, PublicKey};
pub use limiter::SOURCES_MAX;
pub use material::{BadMaterial, KeyMaterial};
#[cfg(feature = "oracle")]
pub use oracle::forget_nonces;
pub use peer::{Action, Context, Peer};
pub use replay::WINDOW;
pub use session::{Cipher, Exhausted, REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES, Session};
pub use time::{Instant, Tai64n};
pub use timers::{
    HANDSHAKE_ATTEMPTS_MAX, KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_AFTER_TIME, REKEY_TIMEOUT,
    Why,
};

/// A source of unpredictable bytes, given by the caller: the operating system's generator, or a
/// seeded one in simulations.
pub trait Random {
    /// Fills `bytes`. It must not fail; a caller without randomness must not start.
    fn fill(&mut self, bytes: &mut [u8]);
}
