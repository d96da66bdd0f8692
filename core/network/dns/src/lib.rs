//! Names of the network's nodes: what a DNS query is answered, and to whom it is handed on.
//!
//! No socket is opened and no clock is read here; bytes, addresses and the time come in, bytes go
//! out. The life of one question, `robot.warren.internal A?`:
//!
//! 1. A program on the machine asks the node's own address, port 53. The shell hands the bytes to
//!    [`Names::judge`], which takes a header, one question and at most one OPT record, and has
//!    a reason for anything else. What is an answer itself is never answered.
//! 2. It looks whose the name is. The longest suffix wins: our domain and the
//!    reverse names of our ranges are ours, a zone with resolvers of its own is theirs, the rest
//!    is for the general resolvers.
//! 3. What is ours is answered here and never leaves the machine, whether it exists or not:
//!    addresses, a name for an address, SOA and NS at the top of a zone. A name that exists without
//!    the type that was asked for gets an empty answer (NODATA) with the SOA; only a name that does
//!    not exist, and has nothing below it, gets NXDOMAIN (RFC 2308, RFC 8020). The question is
//!    repeated in the sender's own capitals, which some clients use as a nonce.
//! 4. What is not ours becomes a [`Verdict::Forward`]. [`Pending`] gives it a random number, says
//!    which resolver to ask and when to give up on it, and takes an answer only if number and
//!    question are those that were sent. The shell sends each from a socket of its own, so the
//!    kernel draws the port and drops what comes from elsewhere.
//! 5. A resolver behind a gateway that has an alias says its site's own addresses:
//!    [`Names::rename`] puts the alias in their place.
//! 6. The answer goes back under the client's number. When nobody answers, the client is told
//!    SERVFAIL; where there is nobody to ask, REFUSED.
//!
//! Beside that stands [`mdns`]: what is found by multicast on a gateway's LAN, told on to nodes.
//!
//! Everything is bounded: a name by 255 bytes, a query by [`QUERY_LEN_MAX`], open questions by
//! [`PENDING_MAX`], of which the client that has most gives way. Nothing that arrives makes this
//! panic. RFC 1035 is the format, RFC 6891 the OPT record, RFC 8482 why ANY is refused.

#![forbid(unsafe_code)]

mod alias;
mod ask;
pub mod mdns;
mod name;
mod names;
mod pending;
mod query;
mod reply;
mod reverse;

pub use ask::{Said, question, said};
pub use name::{BadName, Name};
pub use names::{BadNames, Forward, Names, Settings, Verdict};
pub use pending::{Ask, Dropped, Evicted, Outcome, PENDING_MAX, Pending, TIMEOUT, is_answer};
pub use query::{Class, DropReason, Kind, QUERY_LEN_MAX, Query, REPLY_LEN_MAX, Rcode, Transport};
pub use reply::{failure, fit};
pub use reverse::reverse_zones;
