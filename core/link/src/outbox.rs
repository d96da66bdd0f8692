//! Where datagrams go, and the memory that the shell lends for them.

use std::net::{IpAddr, SocketAddr};

/// Our own address that a peer spoke to, and the interface it came in by. Answers leave from it,
/// so that a machine with several addresses answers with the one that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Our address.
    pub address: IpAddr,
    /// The kernel's number of the interface; 0 = unknown.
    pub interface: u32,
}

/// One end of a UDP path as we see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Ours, once the peer was heard on it.
    pub source: Option<Source>,
}

impl Endpoint {
    /// An endpoint from configuration: nothing was heard from it yet.
    #[must_use]
    pub fn new(remote: SocketAddr) -> Self {
        Self { remote, source: None }
    }
}

/// How a datagram leaves. A relay, an ICMP requester or a raw protocol will be further
/// destinations, never a second code path (docs/decisions.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A UDP datagram.
    Udp(Endpoint),
}

/// Memory for outgoing datagrams, lent by the shell: a packet is written once, here, encrypted in
/// place, and sent from here.
///
/// The core calls [`Outbox::reserve`], fills the slot to its last byte and calls
/// [`Outbox::commit`]. A slot that is not committed before the next `reserve` never existed. The
/// shell may send earlier commits from inside `reserve` when its memory is full; it promises to
/// keep the order per destination, and to send what is left when the core returns.
pub trait Outbox {
    /// A slot of exactly `len` bytes (1 to 65,535) with undefined content; `None` where the shell
    /// cannot take a datagram of that size.
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]>;

    /// The slot reserved last is complete.
    fn commit(&mut self);
}
