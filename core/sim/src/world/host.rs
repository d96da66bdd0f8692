//! One machine of a world: a node, its clocks, its place in the network, and what it was told.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use node::{
    AllowedIp, Clock, Destination, Endpoint, Inbox, Node, Outbox, PeerChange, Prefix, Preshared,
    Source,
};
use noise::{Identity, Instant, PrivateKey, PublicKey, Tai64n};
use policy::Rules;

use super::{HostId, NatId};
use crate::rng::Rng;

/// Longest datagram that a host can send: what UDP over IPv4 carries.
pub const DATAGRAM_MAX: usize = 65_507;
/// Buffers kept for use again, at most.
const POOL_MAX: usize = 256;
/// Inner MTU of every host, bytes.
pub const MTU: usize = 1420;
const NS: i128 = 1_000_000_000;

/// What a host was told of a peer.
#[derive(Clone, Debug)]
pub struct Peering {
    /// Where it is; `None` waits to hear from it.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between persistent keepalives, 0 for none.
    pub keepalive_s: u16,
    /// The pre-shared key; all zero for none.
    pub preshared_key: Preshared,
    /// What the peer may send from and be sent to.
    pub prefixes: Vec<Prefix>,
}

pub(super) struct Host {
    pub(super) node: Node,
    pub(super) random: Rng,
    pub(super) key: PrivateKey,
    /// What follows from it, which costs too much to be asked for each datagram.
    public: PublicKey,
    pub(super) address: SocketAddr,
    pub(super) nat: Option<NatId>,
    pub(super) peers: BTreeMap<HostId, Peering>,
    pub(super) up: bool,
    pub(super) frames: bool,
    pub(super) aes: bool,
    pub(super) compress: bool,
    /// What it was told to enforce, if there is a policy.
    pub(super) rules: Option<Rules>,
    /// It finds its peers by the map.
    pub(super) managed: bool,
    /// Where peers were last reached, as it has written down.
    pub(super) reached: BTreeMap<HostId, SocketAddr>,
    pub(super) udp_blocked: bool,
    pub(super) asleep_until: Option<Instant>,
    /// What one handshake message costs, and until when the last ones take.
    pub(super) handshake_cost: Duration,
    pub(super) busy_until: Instant,
    /// How long the machine ran before the world began.
    uptime: Duration,
    /// The wall clock at the world's beginning, and the latest it ever showed.
    wall_start_ns: i128,
    wall_latest_ns: i128,
    /// The node has forgotten timestamps that it sent: in a restart, or with a peer.
    pub(super) forgot: bool,
    /// The instant of the last wake, and how many came at it.
    pub(super) wakes: (Instant, u32),
    /// Bytes of datagrams that the node was given.
    pub(super) heard_bytes: u64,
}

impl Host {
    pub(super) fn new(address: SocketAddr, nat: Option<NatId>, mut random: Rng) -> Self {
        let key = PrivateKey::generate(&mut random);
        // Some machines have just booted, most have not.
        let uptime = Duration::from_millis(random.below(4) * random.below(1 << 30));
        let skew_s = i128::from(random.below(120)) - 60;
        let mut host = Self {
            node: Node::new(),
            random,
            public: key.public(),
            key,
            address,
            nat,
            peers: BTreeMap::new(),
            up: true,
            frames: false,
            aes: false,
            compress: false,
            rules: None,
            managed: false,
            reached: BTreeMap::new(),
            udp_blocked: false,
            asleep_until: None,
            handshake_cost: Duration::ZERO,
            busy_until: Instant::ZERO,
            uptime,
            wall_start_ns: (1_800_000_000 + skew_s) * NS,
            wall_latest_ns: 0,
            forgot: false,
            wakes: (Instant::ZERO, 0),
            heard_bytes: 0,
        };
        host.boot();
        host
    }

    /// A fresh node without peers.
    pub(super) fn boot(&mut self) {
        self.node = Node::new();
        self.node.set_mtu(MTU);
        self.node.set_frames(self.frames);
        self.node.set_aes(self.aes);
        self.node.set_compress(self.compress);
        self.node.set_policy(self.rules.clone(), &mut self.random);
        self.node.set_identity(Some(Identity::new(self.key.clone())), &mut self.random);
        if self.up {
            self.node.set_up(true, &mut self.random);
        }
    }

    /// The node's clock when the world's shows `now`.
    pub(super) fn clock(&mut self, now: Instant) -> Clock {
        self.wall_latest_ns = self.wall_latest_ns.max(self.wall_ns(now));
        let wall = self.wall_ns(now);
        let secs = u64::try_from(wall / NS).unwrap_or(0);
        let nanos = u32::try_from(wall % NS).unwrap_or(0);
        Clock { now: now + self.uptime, wall: Tai64n::from_unix(secs, nanos) }
    }

    /// The node's monotonic clock when the world's shows `now`.
    pub(super) fn instant(&self, now: Instant) -> Instant {
        now + self.uptime
    }

    /// Wall time since 1970; a clock set before shows 1970.
    pub(super) fn wall_ns(&self, now: Instant) -> i128 {
        (self.wall_start_ns + i128::from(now.0)).max(0)
    }

    pub(super) fn jump_wall(&mut self, by_s: i64) {
        self.wall_start_ns += i128::from(by_s) * NS;
    }

    pub(super) fn set_wall(&mut self, now: Instant, unix_s: u64) {
        self.wall_start_ns = i128::from(unix_s) * NS - i128::from(now.0);
    }

    /// Sets a clock that went back to what it showed at the latest, and a minute more: somebody
    /// has seen to it.
    pub(super) fn mend_wall(&mut self, now: Instant) {
        let latest = self.wall_latest_ns + 60 * NS;
        if self.wall_ns(now) < self.wall_latest_ns {
            self.wall_start_ns = latest - i128::from(now.0);
        }
    }

    /// When the node wants to be woken, in the world's time.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let wanted = self.node.poll_timeout()? - self.uptime;
        let ready = if self.node.has_handshakes() { self.busy_until } else { Instant::ZERO };
        Some(wanted.max(ready).max(self.asleep_until.unwrap_or(Instant::ZERO)).max(now))
    }

    pub(super) fn public_key(&self) -> PublicKey {
        self.public
    }

    pub(super) fn set_key(&mut self, key: PrivateKey) {
        self.public = key.public();
        self.key = key;
    }

    /// A datagram from `remote`, as the host's kernel would tell of it.
    pub(super) fn endpoint(&self, remote: SocketAddr) -> Endpoint {
        Endpoint { remote, source: Some(Source { address: self.address.ip(), interface: 1 }) }
    }
}

impl Peering {
    /// The change that makes a node know this peer.
    pub(super) fn change(&self, key: PublicKey) -> PeerChange {
        PeerChange {
            endpoint: self.endpoint,
            keepalive_s: Some(self.keepalive_s),
            preshared_key: Some(self.preshared_key.clone()),
            replace_allowed_ips: true,
            allowed_ips: self.prefixes.iter().copied().map(AllowedIp::give).collect(),
            ..PeerChange::new(key)
        }
    }
}

/// The inner addresses of a host.
#[must_use]
pub fn inner(host: HostId) -> (IpAddr, IpAddr) {
    let number = u16::try_from(host.0 + 1).expect("worlds are small");
    let [high, low] = number.to_be_bytes();
    let v4 = Ipv4Addr::new(10, 77, high, low);
    let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number);
    (v4.into(), v6.into())
}

/// The memory that a world lends to its nodes. A slot is full of rubbish until it is written.
#[derive(Debug, Default)]
pub(crate) struct Tray {
    pool: Vec<Vec<u8>>,
    slot: Option<(Destination, Vec<u8>)>,
    pub(crate) sent: Vec<(Destination, Vec<u8>)>,
    pub(crate) inbox: Inbox,
}

impl Tray {
    /// A buffer of `len` bytes of rubbish.
    pub(crate) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(len, 0xaa);
        bytes
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        if self.pool.len() < POOL_MAX {
            self.pool.push(bytes);
        }
    }
}

impl Outbox for Tray {
    fn reserve(&mut self, to: &Destination, len: usize) -> Option<&mut [u8]> {
        if let Some((_, bytes)) = self.slot.take() {
            self.give_back(bytes);
        }
        if len == 0 || len > DATAGRAM_MAX {
            return None;
        }
        let bytes = self.buffer(len);
        let slot = self.slot.insert((*to, bytes));
        Some(&mut slot.1)
    }

    fn commit(&mut self) {
        self.sent.extend(self.slot.take());
    }
}
