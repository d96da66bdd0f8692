//! What is asked of the kernel and of the system around it: devices, interfaces, addresses, routes,
//! namespaces, signals, processes, system calls. It knows no packet of ours and no peer.

pub mod affinity;
pub mod arp;
pub mod background;
pub(crate) mod hooks;
pub mod ipv6_route;
pub mod monitor;
pub mod netlink;
pub(crate) mod processor;
pub(crate) mod program;
pub mod room;
pub mod signals;
pub(crate) mod sys;
pub mod systemd;
pub mod terminal;
pub mod tun;
