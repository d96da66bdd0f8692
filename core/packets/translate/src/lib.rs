//! Addresses rewritten one to one without state, with every checksum mended.
//!
//! A [`Table`] belongs to a peer. It stands between what the peer says and what this machine sees:
//! `source` pairs change where the peer's packets come from, `destination` pairs where they go. The
//! way back is the same table read backwards, so answers need no memory of questions. One address
//! stands for one address, always: that is why two gateways may share the work, and why nothing is
//! forgotten when one restarts. It serves two users. A site whose prefix another site has, too, is
//! known to the network by an alias (`192.168.1.0/24 as 10.99.1.0/24`), and a link of two machines
//! may do what Nest called masquerading (`TranslateSource`, `TranslateDestination`).
//!
//! The life of one packet from the peer, through [`Table::inward`]:
//!
//! 1. Its addresses are looked up: an address in a pair's first network becomes the one with the
//!    same host bits in the second. If neither moves, and it is no ICMP error, it is left alone.
//! 2. What would be wrong afterwards and cannot be mended is refused with a [`Refusal`], and
//!    nothing was changed: a protocol unknown here may count its addresses anywhere.
//! 3. The IPv4 header's checksum and the transport's are mended by what changed under them (RFC
//!    1624), without a look at the payload. A first fragment has the transport's checksum, a later
//!    one has none. TCP, UDP, UDP-Lite, DCCP and ICMPv6 count addresses; ICMP, ESP, GRE, SCTP and
//!    IP in IP do not, and pass.
//! 4. An ICMP error quotes a packet of the other direction. Its addresses change the other way
//!    round, with its own checksums, and the error's checksum counts all of that. So a traceroute
//!    and the search for an MTU work through an alias.
//!
//! Towards the peer, [`Table::outward`] does the same backwards, and [`Table::outward_super`] takes
//! what a kernel hands over to be cut. All its segments are rewritten by rewriting its headers
//! once; their transport checksum is only begun.
//!
//! What it is not: a translator of ports, and one with state. That is the exit of a circuit
//! (`circuit::exit`), and the kernel's for an exit node. It looks into no payload: protocols that
//! say addresses in their data (FTP's active mode, SIP) say the old ones.
//!
//! Ambiguities are refused when a table is made ([`Table::new`]): two pairs of one kind may overlap
//! neither in what they change nor in what they change it to. What comes from an address that a
//! pair changes *to* passes as it is, and its answers go to the address that the pair changes.

#![forbid(unsafe_code)]

mod pair;
mod refusal;
mod rewrite;
mod table;

pub use pair::{BadPair, Pair};
pub use refusal::Refusal;
pub use table::{BadTable, PAIRS_MAX, Table};
