//! The cases of WireGuard's own namespace script that a TUN device can have, one test each.
//!
//! Upstream accepts its implementations with a script of some thirty cases that use nothing but
//! `ip`, `wg`, `ping` and `iperf3` between network namespaces. docs/threats.md lists them by
//! number. Here they are again in our own words, against the program that [`support::Sut`]
//! names. Interfaces are made in a host `outer` and moved to `one` and `two`, as upstream does:
//! the sockets stay behind, so a program that takes the namespace of its interface for that of
//! its sockets fails everywhere. Where a case is about addresses and routes of the outer
//! network, each daemon runs beside its interface and a veth joins the hosts.
//!
//! Cases that stand differently here:
//!
//! - **1**: `wg show` only has the exact outer byte counts; the counters of a TUN device count
//!   inner bytes; they are checked as such.
//! - **3, 5**: MTU 34736 as upstream, and the largest one, 65455.
//! - **6**: with the interface's MTU; a program behind a TUN is told the interface's MTU and
//!   never a route's.
//! - **17**: not applicable; the error is made by the kernel's own driver through
//!   `icmp_ndo_send`, which undoes the sender's NAT; a TUN has no such call.
//! - **29**: the interface's namespace goes; sockets hold no route beyond it; what can be left
//!   behind is a daemon without an interface.
//! - **30**: no kernel log is read; which needs a debug kernel; that the namespaces go is checked
//!   by their inode.
//!
//! The others are 1:1. Case 12, the routing loop, is a hard failure, which upstream tolerates.

#[path = "netns/config.rs"]
mod config;
#[path = "netns/life.rs"]
mod life;
#[path = "netns/nesting.rs"]
mod nesting;
#[path = "netns/roaming.rs"]
mod roaming;
#[path = "netns/routes.rs"]
mod routes;
mod support;
#[path = "netns/transport.rs"]
mod transport;
