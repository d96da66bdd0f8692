//! Datagrams in echoes of ICMP, for networks that let out pings and nothing else.
//!
//! Only one side may begin there: the [`Requester`] sends echo requests, the [`Responder`] answers
//! them, one reply for one request. So the responder keeps unanswered requests, and spends one for
//! each datagram that goes back.
//!
//! The life of a datagram from the requester: [`Requester::handle_datagram`] gives the head of the
//! request in which it rides at once. [`Responder::handle_request`] keeps that request, and says
//! where in it the datagram lies.
//!
//! The life of a datagram back:
//!
//! 1. [`Responder::handle_datagram`] takes the oldest request that has not expired, and gives the
//!    head of its reply. If none is left, the datagram waits for 200 ms at most.
//! 2. The reply says how many requests are left, and how many datagrams wait.
//! 3. [`Requester::handle_reply`] keeps so many requests at the responder as that asks for: where
//!    it runs dry one more for each reply, where some are always left fewer.
//!    [`Requester::poll_request`] gives those that carry nothing.
//! 4. [`Responder::poll_reply`] sends what waited.
//!
//! While nothing goes back, a request is sent every [`POLL`], or twice in the time for which
//! filters remember one. How long that is `life::Life` finds out with requests that are answered
//! late.
//!
//! What strangers can do: the responder gives a place, and the cookie for it, to whom its owner
//! sends a datagram that only follows a proof of a key. Requests without that cookie are kept in a
//! small ring of their own; none is answered with more bytes than it had, unless the key was
//! proved.
//!
//! A responder that serves a network ([`Responder::for_network`]) carries what it does not read, so
//! its owner says whose key was proved ([`Responder::prove`]). Until then a requester has a small
//! place, for which it shows that it receives at its address (`shown`); its requests are padded,
//! since no reply is longer than its request.

mod life;
mod requester;
mod responder;
mod shown;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use requester::{Requester, RequesterCounters};
pub use responder::{Responder, ResponderCounters};
use wire::ping::HEAD_LEN;

/// How often an idle requester sends, if nothing else is said.
pub const POLL: Duration = Duration::from_secs(2);
/// The bounds of that.
pub const POLL_MIN: Duration = Duration::from_millis(10);
/// See [`POLL_MIN`].
pub const POLL_MAX: Duration = Duration::from_secs(30);
/// Requests that a responder keeps of one requester, at most.
pub const HELD_MAX: usize = 2048;
/// How long a datagram waits for a request, at most.
pub const WAIT_MAX: Duration = Duration::from_millis(200);
/// Bytes that wait for requests of one requester, at most.
pub const WAIT_LEN_MAX: usize = 256 * 1024;
/// Requesters with a place, at most.
pub const PLACES_MAX: usize = 1024;
/// Requests of strangers that are kept, at most, and of one address.
pub const GUESTS_MAX: usize = 256;
/// See [`GUESTS_MAX`].
pub const GUESTS_OF_ONE_MAX: usize = 8;

/// Requesters that have shown their address and proved nothing, at most, and of one source.
pub const SHOWN_MAX: usize = 1024;
/// See [`SHOWN_MAX`].
pub const SHOWN_OF_ONE_MAX: usize = 32;
/// Requests that are kept of one such requester, at most.
pub const SHOWN_HELD_MAX: usize = 32;
/// Bytes that wait for one such requester, at most: what a server says in a handshake, and some
/// more.
pub const SHOWN_WAIT_LEN_MAX: usize = 16 * 1024;
/// Newcomers that are about to be given their cookie, at most.
pub const KNOCKS_MAX: usize = 64;
/// Bytes behind an empty request where a reply may be no longer: the least that QUIC needs
/// (RFC 9000, 14).
pub const PADDING_LEN: u16 = 1200;

/// A quarter of a second, in which heads count.
const QUARTER: Duration = Duration::from_millis(250);

/// A request or a reply to be sent: these bytes, and then the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its sequence number.
    pub sequence: u16,
    /// What stands before the datagram.
    pub head: [u8; HEAD_LEN],
    /// Bytes that follow where there is no datagram.
    pub padding: u16,
}
