//! Addresses that circuits use, out of the block for benchmarks (RFC 2544), which nobody routes.

use core::net::Ipv4Addr;

/// Addresses that hops give to circuits. As a route of a node it says that the node is a hop.
pub const HOPS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);
/// Addresses at exits. As a route of a node it says that packets may leave there.
pub const EXITS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 255, 0), 24);
