//! Datagrams in echoes of ICMP, for a node whose network lets out pings and nothing else: the
//! sockets of both ends, and the rule by which a kernel leaves our requests to us.
//!
//! What travels is QUIC (the crate `quic`), which this crate does not read. Who may say how much to
//! whom is decided by [`carrier::icmp`], without a socket. A link of two machines without a server
//! has sockets of its own, in the data loop (`host::sockets::carriers`); it shares the [`Rule`].
//!
//! # The life of a datagram from a node
//!
//! 1. [`Asker::open`] opens a raw socket for replies to one identifier, or a ping socket where
//!    the machine lets everybody ping and the program may open no raw one.
//! 2. [`Asker::knock`] waits until the responder gave its cookie. An ordinary host repeats the
//!    request, which is known at once.
//! 3. [`Asker::send`] puts a datagram into a request.
//! 4. [`Answerer::read`] takes it out at the other end.
//!
//! # The life of a datagram to a node
//!
//! 1. [`Answerer::send`] finds a request that was not answered, or has the datagram wait.
//! 2. Each request that comes lets something go that waits.
//! 3. [`Asker::read`] takes it out of the reply. [`Asker::handle_timeout`] sends requests that
//!    carry nothing, as many as the way back needs.
//!
//! # Bounds
//!
//! All of [`carrier::icmp`]'s: places, requests, bytes that wait. What the kernel does not take is
//! dropped, as a network drops it, and counted.
//!
//! # What it does not do
//!
//! It awaits nothing and starts no thread: a node's loop and the server's tasks drive it.

#![forbid(unsafe_code)]

mod answerer;
mod asker;
mod clock;
mod program;
mod rule;
mod socket;

pub use answerer::{Answerer, Came};
pub use asker::Asker;
pub use program::nft;
pub use rule::{Rule, clear_leftovers};
