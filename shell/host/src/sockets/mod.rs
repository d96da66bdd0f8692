//! What carries datagrams: UDP, echoes of ICMP and other protocols, streams to relays; and the
//! batch in which they leave.

pub mod batch;
pub mod bucket;
pub mod carriers;
pub mod echo;
pub mod outgoing;
pub mod relay;
pub mod soundings;
pub mod udp;
