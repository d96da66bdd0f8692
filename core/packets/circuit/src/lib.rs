//! Circuits: a chain of hops of which none sees both ends; client, hop and exit as values.
//!
//! A client builds a telescope over machines of its network. The first hop, the entry, knows the
//! client, since it has a link to it; every other hop knows only its two neighbours. Any packet
//! goes through unchanged from end to end; no hop ends a connection, and none has a queue of its
//! own but where its line is full: there circuits have turns by bytes (`turns`). What a circuit
//! does not hide stands in docs/circuits.md.
//!
//! The life of one cell, from a client over A and B to the exit C:
//!
//! 1. The client's machine sends a packet from the circuit's own address. [`Circuits::plan`] says
//!    to whom it goes and how long the frame is, [`Circuits::write`] fills that. The packet's
//!    source becomes the address that C gave, and it is padded to one of three lengths.
//! 2. It is sealed for C, then for B, each with the same number under keys of its own (`layer`). A
//!    has no layer: the session of the link between client and A is it. The number is masked
//!    (RFC 9001, 5.4), the index is the one that A gave.
//! 3. A finds the circuit by neighbour and index ([`Circuits::handle_frame`]), unmasks the number,
//!    and sends the body on under the index that B gave, masked with what it shares with B.
//! 4. B does the same and takes its layer off. What A changed does not authenticate, and what came
//!    before is not taken again; both are counted and dropped.
//! 5. C takes the last layer off. `exit` judges the destination, gives the packet the exit's
//!    address and a port that nobody else has, and it is the machine's ([`Turn::Machine`]).
//! 6. An answer is the other way round: `exit` finds the circuit by port and sender, C seals, B
//!    adds its layer, A adds none, and the client takes off what they added.
//!
//! The life of a circuit: [`Circuits::open`] sends A a handshake (`handshake`, Noise NK: the hop
//! proves its key, the client shows none) beside the link's frames; each next one goes through what
//! is built, as a control message (`word`). What gets no answer is asked again after 0.25 s. Then
//! the last hop is asked twice a second whether the circuit carries, and it is dead when nothing
//! comes for 2.5 s. Keys live in memory only, are replaced every 2^20 cells or ten minutes, and are
//! wiped when the circuit ends.
//!
//! Numbers of data are even and those of control odd, so that only control messages are tried
//! twice: first as for this very hop, then as for the next. A control message of a hop has the
//! number of the question that it answers, which no other hop answers: that is why hops that do not
//! know each other never seal two cells of one layer with one number.
//!
//! Everything is bounded: circuits of this machine, of all, of each neighbour, and how fast a
//! neighbour begins them; flows of each circuit and of all; fragments; messages that wait.

#![forbid(unsafe_code)]
#![cfg_attr(feature = "oracle", allow(clippy::disallowed_macros))]

mod body;
mod circuits;
mod client;
mod exit;
mod handshake;
mod hop;
mod layer;
mod neighbour;
mod reason;
mod rewrite;
mod turns;
mod window;
mod word;

use std::net::Ipv4Addr;

pub use body::{ROTATE_AFTER, room};
pub use circuits::{
    Answer, BATCH_TIME_MAX, COVER_RATE_MAX, CircuitId, Circuits, Claim, IDLE, Machine, Refused,
    Turn, World, local_address,
};
pub use client::{BUILD_AGAIN, BUILD_WITHIN, DEAD_AFTER, PING_EVERY, State, Status};
pub use exit::{ExitRules, FLOWS_MAX, FLOWS_PER_CIRCUIT_MAX, FRAGMENTED_MAX, leads_out};
pub use handshake::PROLOGUE;
pub use layer::{EPOCH_BITS, TAG_LEN};
pub use neighbour::Standing;
pub use reason::{Counters, Drop, End};
pub use rewrite::six;
pub use turns::{WAIT_MAX, WAITING_MAX, Waiting, Way};
pub use window::WINDOW;

/// Hops of a circuit, at most.
pub const HOPS_MAX: usize = 8;
/// Circuits of this machine, at most; closed ones that are still shown are among them.
pub const OWN_MAX: usize = 256;
/// Circuits that this machine is a hop of, at most: about 5 KiB each.
pub const CIRCUITS_MAX: usize = 16_384;
/// Addresses that a hop gives: 198.19.0.1 to 198.19.255.254.
const ADDRESSES: u32 = 0xfffe;
/// Of one neighbour that is no hop.
pub const PER_CLIENT_MAX: usize = 256;
/// Of one neighbour that is a hop, and brings circuits of many clients.
pub const PER_HOP_MAX: usize = 4096;
/// Messages that wait to be sent.
pub const SENDS_MAX: usize = 1024;
/// What packets have as their source where they leave an exit for the machine's own network stack,
/// which gives them the machine's address.
pub const EXIT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
/// Whom programs in a circuit ask for names: the exit asks its own name server instead.
pub const NAME_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 53);

/// Bytes of the frame that a body of `body` bytes travels in, on every link of a circuit.
#[must_use]
pub fn frame_len(body: usize) -> usize {
    wire::frame::Cell { index: 0, number: [0; 5], len: body }.frame_len()
}
