//! Every format on any wire.
//!
//! This crate knows what bytes mean and nothing else: it opens no socket, asks no clock, draws no
//! random number, holds no key. Bytes come in as slices; a view or a [`Malformed`] reason goes
//! out. No input can make it panic, and no length field is believed before it was checked.
//!
//! What it is not: a network stack. It keeps no connection state, reassembles no fragments, and
//! does not decide what may pass; a filter asks [`packet::Packet::transport`] and decides.
//!
//! The life of one TCP superpacket, from a TUN queue to the peer's:
//!
//! 1. The kernel hands over up to 64 KiB behind a [`virtio::Header`]. [`superpacket::parse`]
//!    checks each claim of that header against the packet itself and refuses what does not hold.
//! 2. [`superpacket::Superpacket::write_segment`] writes each IP packet once, straight into the
//!    memory in which it will be encrypted: a header patch, a payload copy, one checksum pass.
//! 3. [`wireguard::transport_header`] and [`wireguard::padded_len`] frame it; the crate `noise`
//!    encrypts it in place.
//! 4. At the peer, [`wireguard::classify`] sorts the datagram by type and length, and after
//!    decryption [`packet::parse`] (or just [`packet::source`]) views the inner packet.
//! 5. [`coalesce::Coalescer`] collects the packets of one batch, verifies checksums, and joins
//!    neighbours of a flow into a superpacket again, without moving their payload.
//!
//! The way is the same for UDP where the queue supports it; everything else passes alone.
//!
//! Beside that stand [`checksum`] (RFC 1071 and its incremental form), the plain views [`tcp`],
//! [`udp`] and [`icmp`], all of which borrow and none of which copy, [`stun`], by which a server
//! tells from where it sees us, [`prefix`], the text form of a network, [`relay`], the frames on a
//! stream between a node and a relay, [`websocket`], in which they ride where a proxy passes
//! nothing else, [`ping`], what rides in echoes of ICMP, [`arp`], by which gateways of a pair
//! share an address, and [`fnv`], a sum by which bytes are told apart.

#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod circuits;
pub mod coalesce;
pub mod fnv;
pub mod frame;
pub mod icmp;
pub mod ip;
mod malformed;
pub mod packet;
pub mod ping;
pub mod prefix;
pub mod relay;
pub mod stun;
pub mod superpacket;
pub mod tcp;
#[cfg(test)]
mod tests;
pub mod too_big;
pub mod udp;
pub mod unit;
pub mod virtio;
pub mod websocket;
pub mod wireguard;

pub use malformed::Malformed;
