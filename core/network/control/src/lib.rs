//! What a node is told by the coordination server, and what it says: as values, without a socket.
//!
//! The server hands out names, addresses, keys and policy and never sees traffic. Everything that
//! both ends must agree on lives here: the join [`Token`], the [`Channel`](channel) that makes TLS
//! interception harmless, the [`Map`], its [`Delta`]s, the requests of a node and the answers to
//! them, and the rules by which names, addresses and join keys are given. The crate reads no
//! clock, draws no randomness, opens nothing; the store and the HTTP of it are `shell/server`'s,
//! a node's connection is `shell/dial`'s.
//!
//! The life of one node, from a token to a map:
//!
//! 1. An administrator makes a join key. The server prints a [`Token`]: where it can be reached,
//!    its public key, the key's look-up name and its secret, and a checksum, so that a token that
//!    was cut short is told from a wrong one.
//! 2. The node's [`Client`] opens a [`channel`] (Noise IK) to exactly that public key. Who ends
//!    TLS in between sees ciphertext; a server with another key cannot answer.
//! 3. [`Request::Enrol`] carries the secret, the node's WireGuard key and its [`HostInfo`]. The
//!    server asks [`join::judge`], picks a name by [`name::unique`] and an address by
//!    [`address::Pool`], and commits all of it in one transaction before it answers.
//! 4. [`Request::Poll`] waits for news. The first answer is a whole [`Map`]; later ones are
//!    [`Delta`]s, each from one sequence to the next. A gap is found by [`Map::apply`], and the
//!    client asks for a whole map again.
//! 5. Every map and delta is [`Signed`]. The client keeps the signed texts; after a restart
//!    without a server it reads them back with the key that it pinned, and has its map again.
//! 6. Key rotation, reports and logout are further requests; removal and expiry are refusals that
//!    end the client until somebody acts.
//!
//! The grammar is the core's: `handle_*` in, `poll_*` out, `poll_timeout` for the next deadline.
//! All bounds are in [`limits`], and everything that arrives is checked against them before use.

#![forbid(unsafe_code)]

pub mod address;
pub mod channel;
pub mod client;
pub mod join;
pub mod limits;
mod map;
mod message;
pub mod name;
pub mod patience;
pub mod relay;
mod signed;
pub mod text;
mod token;
mod url;
mod ways;

pub use address::{Alias, BadPrefix, Prefix};
pub use client::{Client, Event};
pub use map::{BadMap, Delta, Dns, Map, NodeId, Peer, Policy, Relay, SelfNode, Statement};
pub use message::{
    Answer, ApiAnswer, ApiRequest, Available, BadMessage, Code, Enrol, Enrolled, Envelope, Hello,
    HostInfo, LinkReport, Poll, Refusal, Request, SignIn, SignInLink, VERSION, WireSecret,
};
pub use signed::{BadSignature, Signed, SigningKey, VerifyingKey};
pub use token::{BadToken, FRONT_LEN, Kind, Secret, SecretId, Token};
pub use url::{BadUrl, ServerUrl};
pub use ways::{Through, Ways};
