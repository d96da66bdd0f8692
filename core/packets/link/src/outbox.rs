//! The outbox: the memory that the shell lends for datagrams, and their destinations.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use noise::PublicKey;

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

/// A peer as a relay reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The relay, by its number in the map.
    pub relay: u32,
    /// The peer's static key, by which the relay knows it.
    pub peer: PublicKey,
}

/// What carries datagrams where UDP does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// ICMP echo requests to a responder; its port is 0.
    IcmpRequest,
    /// ICMP echo replies to a requester, whose port is its identifier.
    IcmpReply,
    /// IP packets of this protocol; ports are 0.
    Ip(u8),
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IcmpRequest | Self::IcmpReply => f.write_str("icmp"),
            Self::Ip(protocol) => write!(f, "ip:{protocol}"),
        }
    }
}

/// A path that is not of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What carries the datagrams.
    pub by: Carrier,
    /// Where they go.
    pub at: Endpoint,
}

/// How a datagram leaves, and how one came; never a second code path (docs/decisions.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A UDP datagram.
    Udp(Endpoint),
    /// An ICMP echo, or a packet of a raw protocol.
    Carried(Carried),
    /// A frame to a relay, which hands it on.
    Relay(Relayed),
}

impl Destination {
    /// The UDP path, if it is one.
    #[must_use]
    pub fn udp(&self) -> Option<Endpoint> {
        match self {
            Self::Udp(endpoint) => Some(*endpoint),
            Self::Carried(_) | Self::Relay(_) => None,
        }
    }

    /// Both ends of the path, if it leads straight to the peer.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        match self {
            Self::Udp(at) | Self::Carried(Carried { at, .. }) => Some(*at),
            Self::Relay(_) => None,
        }
    }

    /// What carries it, if that is neither UDP nor a relay's stream.
    #[must_use]
    pub fn carrier(&self) -> Option<Carrier> {
        match self {
            Self::Carried(carried) => Some(carried.by),
            Self::Udp(_) | Self::Relay(_) => None,
        }
    }

    /// The kernel shall choose our address again.
    pub(crate) fn forget_source(&mut self) {
        if let Self::Udp(at) | Self::Carried(Carried { at, .. }) = self {
            at.source = None;
        }
    }

    /// Whether a datagram from there takes another path than one from here: another address of the
    /// peer, or another one of ours, where both are known.
    #[must_use]
    pub fn is_elsewhere(&self, there: &Self) -> bool {
        let ours = |place: &Self| place.endpoint().and_then(|at| at.source).map(|own| own.address);
        let apart = ours(self).zip(ours(there)).is_some_and(|(before, after)| before != after);
        apart || self.source() != there.source()
    }

    /// The source that allowances and cookies go by: the address of a UDP path; for a relayed peer
    /// one made of its key, which the relay vouches for.
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        match self {
            Self::Udp(at) | Self::Carried(Carried { at, .. }) => at.remote,
            Self::Relay(relayed) => {
                let mut address = [0; 16];
                address.copy_from_slice(&relayed.peer.0[..16]);
                SocketAddr::from((Ipv6Addr::from(address), 0))
            }
        }
    }
}

impl From<Endpoint> for Destination {
    fn from(endpoint: Endpoint) -> Self {
        Self::Udp(endpoint)
    }
}

impl From<Carried> for Destination {
    fn from(carried: Carried) -> Self {
        Self::Carried(carried)
    }
}

impl From<Relayed> for Destination {
    fn from(relayed: Relayed) -> Self {
        Self::Relay(relayed)
    }
}

/// Memory for outgoing datagrams, lent by the shell: a packet is written once, here, encrypted in
/// place, and sent from here.
///
/// The core calls [`Outbox::reserve`], fills the slot to its last byte and calls
/// [`Outbox::commit`]. A slot that is not committed before the next `reserve` never existed. The
/// shell may send earlier commits from inside `reserve` when its memory is full; it promises to
/// keep the order per destination, and to send what is left when the core returns, or some
/// milliseconds later where it is paced.
pub trait Outbox {
    /// A slot of exactly `len` bytes (1 to 65,535) with undefined content; `None` where the shell
    /// cannot take a datagram of that size.
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]>;

    /// The slot reserved last is complete.
    fn commit(&mut self);

    /// The same, of a path with a queue of its own that others may share: the datagram should not
    /// leave within `gap_ns` of the one before it to the same destination. A burst takes what room
    /// that queue has, and who comes next finds none. A shell without a clock may ignore it.
    #[inline]
    fn commit_paced(&mut self, gap_ns: u32) {
        let _ = gap_ns;
        self.commit();
    }
}
