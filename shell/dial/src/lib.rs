//! How this machine reaches a server: HTTPS to one port, through proxies, with nothing to trust but
//! the key in the token; and the loop that carries a node's conversation.
//!
//! Blocking calls on plain sockets and one TLS library: a node talks to its server a few times a
//! minute, and a thread that waits costs less than a runtime. Two users: the daemon of a node,
//! through [`Membership`], and the commands of an administrator, through [`Admin`].
//!
//! The life of one request:
//!
//! 1. [`proxy::Proxies`] says whether the host is reached directly or through a proxy, as
//!    `HTTPS_PROXY` and `NO_PROXY` want it.
//! 2. [`http::Connection::open`] connects, to the server or to the proxy, by whichever family
//!    answers (`families`, RFC 8305); with `CONNECT` the proxy
//!    passes the rest on unread, or reads it, which [`control::channel`] makes harmless.
//! 3. TLS follows. The certificate is not looked at (see [`tls`]): whoever ends TLS learns
//!    nothing and can change nothing, since what is posted is sealed for the key in the token.
//! 4. [`http::Connection::request`] writes one request and reads one answer, bounded in length and
//!    time. The connection is kept for the next one.
//!
//! Where no TCP passes and pings do, the same requests go to the server on a stream by ping
//! ([`Pings`]).
//!
//! The life of a membership: [`Membership::start`] makes a [`control::Client`] and one thread for
//! each of its two lanes. A lane's thread posts what it is given and reports what became of it;
//! one loop owns the client, gives it every outcome, and hands events on. A map that changed is in
//! the event; what is to be stored for a start without a server comes with it.
//!
//! The life of a stream to a relay: [`Relays`] has a thread for each relay of the map. It makes the
//! connection ([`relay::connect`]: the same way through proxies and TLS, then the upgrade and the
//! proof of the node's key; or by QUIC, where that is quicker, or by ping, where nothing else
//! passes: [`relay::race_by`]), hands it over to
//! the node's loop through `Hand`, and sleeps until the loop says that it ended; then it connects
//! again, with growing pauses.
//!
//! What does not happen here: deciding. When to try again, what an answer means and what is kept
//! is all [`control::Client`]'s.

mod admin;
mod families;
pub mod http;
mod membership;
mod pings;
pub mod proxy;
mod random;
pub mod relay;
pub mod relays;
pub mod tls;

pub use admin::{Admin, AdminError, ApiReply, server_key};
pub use families::{Trying, one_of_each};
pub use membership::{Membership, News, Notify, Start};
pub use pings::Pings;
pub use random::SystemRandom;
pub use relays::Relays;
