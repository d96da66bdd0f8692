//! What a datagram needs to cross a network that lets out nothing but streams, at both ends.
//!
//! TCP under TCP is poison when the lower one may keep as much as it likes: what the upper one
//! sends waits for seconds, is sent again while it does, and arrives twice and late. So every queue
//! in front of a stream is counted in milliseconds as well as in bytes, loses its oldest first, and
//! is the only place where anything waits: whoever drives a stream takes from the queue no more
//! than the kernel is about to send.
//!
//! The life of one datagram from a node to another over a relay:
//!
//! 1. At the node [`stream::StreamQueue`] puts the addressee's key before it
//!    ([`wire::relay::Frame::Send`]), handshakes before all else. What has waited too long there
//!    is dropped from the head, so that a stream that stalls delivers fresh data afterwards.
//! 2. The shell takes bytes with [`stream::StreamQueue::poll_bytes`] when the socket has room.
//! 3. At the relay [`switch::Switch::handle_frame`] knows whose connection it came by; the frame
//!    cannot say otherwise. The addressee's key finds the newest connection of that key. The
//!    datagram is put into that member's queue, among those of its own sender.
//! 4. [`switch::Switch::poll_frames`] gives each sender its turn, by bytes; one who sends little is
//!    never behind one who sends much. What is too old is dropped here as well.
//! 5. The receiving node's shell hands it on as if it had come by UDP, from `Relay(relay, peer)`.
//!
//! If there is nobody with that key the sender is told so with [`wire::relay::Frame::Gone`], at
//! most three times a second, and only if it may know; so one frame in never makes more than one
//! frame out.
//!
//! Where not even streams get out but pings do, datagrams ride in echoes: [`icmp`].
//!
//! What does not happen here: sockets, TLS, proof of keys. The shell admits a connection once a key
//! is proven, and reports what this crate wants cut. Time is an argument.

#![forbid(unsafe_code)]

pub mod icmp;
mod queue;
pub mod stream;
pub mod switch;

pub use stream::StreamQueue;
pub use switch::{ConnectionId, Counters, Refusal, Switch};
