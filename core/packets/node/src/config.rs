//! What a node can be told and what it says of itself: the configuration language that the control
//! socket, the reader of wg-quick files and the tests share. Values only; nothing here acts.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use link::{Carrier, KeyStatus, Preshared};
use noise::{Instant, PresharedKey, PrivateKey, PublicKey, Tai64n};
use translate::Table;
pub use wire::prefix::{BadPrefix, Prefix};

/// The time, as a driver reads it once a turn.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since boot, suspend included.
    pub now: Instant,
    /// The wall clock; may be wrong and may jump.
    pub wall: Tai64n,
}

/// One step of configuration. Steps are applied in order, each complete in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Our static key; `None` takes it away, and with it every session.
    PrivateKey(Option<PrivateKey>),
    /// The UDP port to listen on; 0 lets the system choose.
    ListenPort(u16),
    /// The mark on every datagram that leaves; 0 for none.
    Fwmark(u32),
    /// Answer echo requests to this address of ours that carry datagrams.
    ListenIcmp(IpAddr),
    /// Take packets of this IP protocol.
    ListenIp(u8),
    /// Forget every peer.
    ReplacePeers,
    /// Make, change or remove one peer.
    Peer(PeerChange),
}

/// What is to change on one peer; a field that is `None` or empty stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerChange {
    /// The peer's static key, its only name.
    pub key: PublicKey,
    /// Do nothing if the peer is not known yet.
    pub update_only: bool,
    /// Forget the peer; everything else in this change is void.
    pub remove: bool,
    /// A new pre-shared key, all zero for none, or a schedule of them.
    pub preshared_key: Option<Preshared>,
    /// Where to send until the peer is heard from elsewhere.
    pub endpoint: Option<SocketAddr>,
    /// What carries datagrams to `endpoint`; `None` is UDP.
    pub carrier: Option<Carrier>,
    /// How often a responder is asked at least, where the carrier is ICMP.
    pub poll: Option<Duration>,
    /// Seconds between persistent keepalives, 0 for none.
    pub keepalive_s: Option<u16>,
    /// Take away all prefixes the peer has before `allowed_ips` is applied.
    pub replace_allowed_ips: bool,
    /// Prefixes to give to the peer or to take from it, in order.
    pub allowed_ips: Vec<AllowedIp>,
    /// Whether what goes to the peer is compressed, where the peer reads that.
    pub compress: Option<bool>,
    /// How long a small packet to the peer waits for others, where the peer reads bundles.
    pub hold: Option<Duration>,
    /// How addresses are rewritten between the peer and this machine; an empty table ends it.
    pub translate: Option<Table>,
}

impl PeerChange {
    /// A change that makes the peer known and alters nothing else.
    pub fn new(key: PublicKey) -> Self {
        Self {
            key,
            update_only: false,
            remove: false,
            preshared_key: None,
            endpoint: None,
            carrier: None,
            poll: None,
            keepalive_s: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
            compress: None,
            hold: None,
            translate: None,
        }
    }
}

/// One prefix in a [`PeerChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllowedIp {
    /// The prefix.
    pub prefix: Prefix,
    /// Take it from the peer, if the peer has it, instead of giving it.
    pub remove: bool,
}

impl AllowedIp {
    /// Give `prefix` to the peer.
    pub fn give(prefix: Prefix) -> Self {
        Self { prefix, remove: false }
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Our static key, if one is set.
    pub private_key: Option<PrivateKey>,
    /// The UDP port in use; 0 while no socket is open.
    pub listen_port: u16,
    /// The mark on what leaves; 0 for none.
    pub fwmark: u32,
    /// Every peer.
    pub peers: Vec<PeerStatus>,
}

/// What a node says of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's static key.
    pub key: PublicKey,
    /// The pre-shared key; all zero if there is none.
    pub preshared_key: PresharedKey,
    /// Where the peer was last heard from, or was said to be.
    pub endpoint: Option<SocketAddr>,
    /// When the newest handshake was completed, since the Unix epoch.
    pub last_handshake: Option<Duration>,
    /// Bytes received from the peer, as they came off the wire.
    pub rx_bytes: u64,
    /// Bytes sent to the peer, as they went onto the wire.
    pub tx_bytes: u64,
    /// Seconds between persistent keepalives, 0 for none.
    pub keepalive_s: u16,
    /// The prefixes the peer has.
    pub allowed_ips: Vec<Prefix>,
    /// The schedule of its pre-shared keys, if there is one.
    pub keys: Option<KeyStatus>,
}
