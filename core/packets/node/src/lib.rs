//! One machine, composed: peers, cryptokey routing, datagrams in and out.
//!
//! A [`Node`] is a value. It opens no socket, reads no clock and draws no randomness: the shell
//! hands it packets, datagrams, configuration and deadlines, lends it memory for what shall
//! leave, and drains what it wants done. One loop owns it; nothing in it is shared.
//!
//! The life of a packet on its way out ([`Node::handle_packet`]):
//!
//! 1. `wire::superpacket::parse` checks what the kernel claims of it, once a superpacket.
//! 2. [`allowed::Table::lookup`] finds the peer that owns its destination; nobody's is dropped, and
//!    so is a datagram of our own that went in a circle. The policy's filter, if there is one, is
//!    asked (`policy::Filter::judge`).
//! 3. `link::Link::send` cuts, pads and seals it into the outbox, or stages it until there is a
//!    session.
//!
//! The life of a datagram on its way in ([`Node::handle_datagram`]):
//!
//! 1. `wire::wireguard::classify` says what it is.
//! 2. A transport datagram goes to the peer that owns its receiver index, and is opened where it
//!    lies. The owner of the inner *source* must be that same peer (threat PF-01), or it is
//!    dropped; then the filter is asked here too. What remains is pushed to the [`Inbox`] as a
//!    range of the shell's memory.
//! 3. A handshake message must pass the gate (mac1, and under load a cookie and a rate), then
//!    waits in a bounded queue: its Diffie-Hellman is done by [`Node::handle_handshakes`], a few
//!    at a time, so that a flood of them never holds up data (threat DP-01).
//!
//! Managed peers ([`Node::set_candidates`]) are reached by the best of several paths; where this
//! machine may be reached is found out by asking STUN servers ([`Node::set_reach`]).
//!
//! Addresses may be rewritten between a peer and this machine (`translate::Table`). A packet that
//! comes is rewritten last, and one that goes as soon as its peer is known. All in between deals
//! with addresses as they are on the wire, but for the owner of an inner source.
//!
//! After each input the driver calls [`Node::handle_actions`]; it sleeps until
//! [`Node::poll_timeout`] and then calls [`Node::handle_timeout`]. Every packet that does not
//! arrive is counted by its [`Reason`].

#![forbid(unsafe_code)]

pub mod allowed;
mod circles;
pub mod config;
mod counters;
mod node;
mod overrun;
mod peers;
mod rate;
mod reach;
mod shape;
mod slumber;
mod stamps;
mod timers;

pub use translate;

/// Circuits, whose paths this node's owner chooses.
pub use circuit;
pub use config::*;
pub use counters::{Counters, Reason};
pub use link::{Candidate, Carried, Carrier, Destination, Endpoint, Inbox, Outbox, PathStatus};
pub use link::{KeyStatus, OverlapTooLong, Preshared, Schedule};
pub use link::{ORDER, ORDER_MAX, REPAIR_PERCENT, Tuning, Weather, World};
pub use link::{Relayed, Source, Unsounded};
pub use node::{
    ConfigError, GUESTS_MAX, HANDSHAKES_MAX, Node, PEERS_MAX, SHARE_MAX, SOUNDED_MAX,
    WAITING_BYTES_MAX,
};
pub use rate::{BadRate, LineRate};
pub use reach::{ENDPOINTS_MAX, Reach, ReachStatus, SERVERS_MAX};
pub use slumber::Slumber;
pub use stamps::Stamps;
