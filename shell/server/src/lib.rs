//! The coordination service: who is in the network, and what each node is told of it.
//!
//! One process, one directory, one TCP port. The directory has the database (`warren.db`, unless
//! the books are in PostgreSQL), the server's own keys (`keys`), the certificate for the outer TLS
//! (`tls.crt`, `tls.key`, or `acme.pem` and its account where an authority is asked) and the socket
//! for administrators on this machine (`warren.sock`). It is the only crate that awaits: thousands
//! of polls wait here, and none of them is a packet.
//!
//! The life of one request to join:
//!
//! 1. `http` accepts a connection and ends TLS. What certificate was shown does not matter: the
//!    node posts the first message of a channel, `protocol` answers it, and only the holder of
//!    the key that the token pins can.
//! 2. The next post is sealed in that channel. `protocol` finds the channel in `channels`,
//!    opens the message, uses up its number, and knows whose machine asks.
//! 3. `Enrol` becomes [`Store::enrol`](store::Store::enrol): one transaction that judges the join
//!    key, uses it up, picks a name and an address, and writes the audit log. When it returns, it
//!    is on the disk.
//! 4. Under the same lock `network` takes the node as it was committed, and the sequence grows.
//!    Every poll that waits wakes, asks what is new for its own node, and gets a signed delta.
//! 5. The node's own poll begins with a whole map, and then waits too.
//!
//! The life of one administrator's call: `http` knows the caller by the socket's credentials or
//! by a token, `api` finds the route, decides once, reads the body, and runs one function of the
//! store on a thread that may wait. The commands of the program come in this way and no other.
//!
//! The life of a datagram through the relay: a node that no UDP reaches asks `http` for an upgrade,
//! proves its WireGuard key to `relay`, and sends frames; the switch of the crate `carrier` finds
//! the addressee's connection. Nothing of it touches the store.
//!
//! The web interface at `/` is the crate `ui`'s; `loopback` serves it on an administrator's machine
//! and hands its calls on.
//!
//! A policy text is compiled in one place, `policy`, before it is stored, and again whenever what
//! it speaks of changed. What one source may cost is bounded by `limits`, `doorstep` and
//! `patience`; what others are told of events goes out by `hooks`; what has to run without end is
//! looked after by `watchdog`.

mod acme;
mod api;
mod app;
mod backup;
mod books;
mod channels;
mod clock;
mod connection;
mod copies;
mod doorstep;
mod events;
mod held;
mod hooks;
mod http;
pub mod keys;
mod knocks;
mod limits;
mod links;
mod loopback;
mod network;
mod oidc;
#[cfg(feature = "oracle")]
pub mod oracle;
mod origin;
mod passwords;
mod paths;
mod patience;
mod percent;
mod place;
mod policy;
mod protocol;
mod relay;
mod requests;
mod resolvers;
mod restore;
mod roles;
mod roots;
mod serve;
#[cfg(feature = "service")]
pub mod service;
mod signin;
pub mod store;
mod stun;
mod tls;
mod waits;
mod watchdog;

pub use acme::{Acme, LETS_ENCRYPT, Pace};
pub use backup::backup;
pub use clock::unix_s;
pub use hooks::{HOOKS_MAX, Hook};
pub use loopback::{Carry, Loopback};
pub use oidc::Provider;
pub use relay::{IcmpAt, RelayConfig, RelayServer};
pub use resolvers::{Resolvers, Zone};
pub use restore::{Restored, restore};
pub use roles::Role;
pub use serve::{Config, Ended, Server};
pub use stun::Stun;
