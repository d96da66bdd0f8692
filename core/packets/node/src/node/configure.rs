//! Configuration of a node, and its answers about itself.

use std::net::{IpAddr, SocketAddr};

use link::{Carried, Carrier, Link, Weather};
use noise::PublicKey;
use wire::frame::Hello;

use super::*;

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There are [`PEERS_MAX`] peers already.
    TooManyPeers,
    /// There are [`allowed::PREFIXES_MAX`] allowed prefixes already.
    TooManyPrefixes,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManyPeers => write!(f, "no more than {PEERS_MAX} peers can be configured"),
            Self::TooManyPrefixes => {
                let max = allowed::PREFIXES_MAX;
                write!(f, "no more than {max} allowed prefixes can be configured")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Node {
    /// The interface's MTU in bytes; plaintext is never padded above it.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// The interface's MTU in bytes, as last told.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether to speak frames with peers that know them, from their next handshake on. Toward
    /// all others nothing changes, not a bit.
    pub fn set_frames(&mut self, frames: bool) {
        self.frames = frames;
        let own = self.own_hello();
        self.tell_links(|link| link.set_frames(own));
    }

    fn tell_links(&mut self, tell: impl Fn(&mut Link)) {
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                tell(link);
            }
        }
    }

    /// Says whether this machine has instructions for AES: then sessions with peers that speak
    /// frames, and have them too, are sealed with AES-256-GCM, from their next session on.
    pub fn set_aes(&mut self, aes: bool) {
        self.aes = aes;
        self.tell_links(|link| link.set_aes(aes));
    }

    /// Whether what goes to peers is compressed where they read that, unless a change of a peer or
    /// a policy says otherwise; off at first.
    pub fn set_compress(&mut self, compress: bool) {
        self.compress = compress;
        self.tell_links(|link| link.set_squeeze(compress));
    }

    /// How long small packets wait for others, unless a change of a peer says otherwise; zero at
    /// first: until their turn is over.
    pub fn set_hold(&mut self, hold: Duration) {
        self.hold = hold;
        self.tell_links(|link| link.set_hold(hold));
    }

    /// Other tuned numbers hold in links to peers that are added from now on; for measurements.
    pub fn set_tuning(&mut self, tuning: &'static Tuning) {
        self.tuning = tuning;
    }

    /// How long a piece of a flow waits for an older one at most; 30 ms at first, and never more
    /// than 100. With zero what comes passes at once.
    pub fn set_order(&mut self, order: Duration) {
        self.order = order;
        self.tell_links(|link| link.set_order(order));
    }

    /// How much repair may be sent for what is sent, at most, percent: [`REPAIR_PERCENT`] at first,
    /// and never more. Lines that are paid for by the byte want less.
    pub fn set_repair_max(&mut self, percent: u8) {
        self.repair_percent = percent;
        self.tell_links(|link| link.set_repair_max(f64::from(percent) / 100.0));
    }

    /// The session that a live receiver index of ours, its first or its second, belongs to, by
    /// its first; for those who watch the wire and know no more than the index.
    #[must_use]
    pub fn session_of(&self, index: Index) -> Option<Index> {
        let id = self.indices.owner(index)?;
        self.peers.link_ref(id)?.peer().session_of(index)
    }

    /// What the peer with this key said it can do, if it speaks frames on the current session.
    #[must_use]
    pub fn hello(&self, key: &PublicKey) -> Option<Hello> {
        self.peers.link_ref(self.peers.id(key)?)?.hello()
    }

    /// What is known of the weather between us and the peer with this key, if it speaks frames.
    #[must_use]
    pub fn weather(&self, key: &PublicKey) -> Option<Weather> {
        self.peers.link_ref(self.peers.id(key)?)?.weather()
    }

    /// What came in frames, by what became of it: of all peers, and of those that are gone.
    #[must_use]
    pub fn pieces(&self) -> PieceCounters {
        let links = self.peers.iter().map(|(_, link)| link.pieces());
        links.fold(self.pieces_gone, |sum, pieces| sum.plus(&pieces))
    }

    /// Steps so far that what came in frames took, from entry to entry of what remembers it: of all
    /// peers that are there.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.peers.iter().map(|(_, link)| link.steps()).sum()
    }

    fn own_hello(&self) -> Option<Hello> {
        let mtu = u16::try_from(self.mtu).unwrap_or(u16::MAX);
        self.frames.then(|| Hello { mtu, features: link::features(), ..Hello::default() })
    }

    /// The UDP port that our datagrams leave from, to recognise them where they must not appear.
    pub fn set_listen_port(&mut self, port: u16) {
        self.listen_port = port;
    }

    /// The interface came up or went down. Down ends every session; up wakes the peers with a
    /// persistent keepalive.
    pub fn set_up(&mut self, up: bool, random: &mut dyn Random) {
        if up == self.up {
            return;
        }
        self.up = up;
        for id in self.peers.ids() {
            let Some(link) = self.peers.link(id) else { continue };
            if up {
                let keepalive_s = link.peer().keepalive_s();
                if keepalive_s > 0 {
                    link.peer_mut().set_keepalive_s(0);
                    link.peer_mut().set_keepalive_s(keepalive_s);
                }
            } else {
                self.pieces_gone = self.pieces_gone.plus(&link.pieces());
                let dropped = link.clear(&mut self.indices);
                self.counters.drop(Reason::StageExpired, dropped);
            }
            self.touch(id);
        }
        if let (true, Some(identity)) = (up, &self.identity) {
            self.gate = Some(Gate::new(identity, random));
        }
    }

    /// Sets or takes away our key pair. A peer with our own public key is removed, as the
    /// kernel's WireGuard does; all others shake hands anew.
    pub fn set_identity(&mut self, identity: Option<Identity>, random: &mut dyn Random) {
        let same = match (&self.identity, &identity) {
            (Some(old), Some(new)) => old.public() == new.public(),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        if let Some(id) = identity.as_ref().and_then(|own| self.peers.id(own.public())) {
            self.remove(id);
        }
        self.gate = identity.as_ref().map(|identity| Gate::new(identity, random));
        self.circuits.set_key(identity.as_ref().map(|own| own.private().clone()));
        self.identity = identity;
        self.counters.drop(Reason::NoIdentity, self.handshakes.len() as u64);
        self.handshakes.clear();
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                link.peer_mut().handle_identity(&mut self.indices);
            }
            self.touch(id);
        }
    }

    /// Our key pair.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Forgets every peer.
    pub fn remove_peers(&mut self) {
        for id in self.peers.ids() {
            self.remove(id);
        }
    }

    /// Makes, changes or removes a peer.
    ///
    /// # Errors
    /// A table is full; what came before in the same change stays done.
    pub fn change_peer(
        &mut self,
        change: &PeerChange,
        random: &mut dyn Random,
    ) -> Result<(), ConfigError> {
        self.note_member(&change.key);
        let known = self.peers.id(&change.key);
        if change.remove {
            if let Some(id) = known {
                self.remove(id);
            }
            return Ok(());
        }
        // Our own key as a peer is ignored, as the kernel's WireGuard does.
        let own = self.identity.as_ref().is_some_and(|own| *own.public() == change.key);
        if own || (change.update_only && known.is_none()) {
            return Ok(());
        }
        let own = self.own_hello();
        let id = match known {
            Some(id) => id,
            None if self.peers.len() >= PEERS_MAX => return Err(ConfigError::TooManyPeers),
            None => self.peers.add(change.key, |id| {
                Link::new(id, change.key, self.budget.clone(), self.tuning, random)
            }),
        };
        if let Some(link) = self.peers.link(id) {
            if known.is_none() {
                link.set_frames(own);
                link.set_aes(self.aes);
                link.set_squeeze(self.compress);
                link.set_hold(self.hold);
                link.set_order(self.order);
                link.set_repair_max(f64::from(self.repair_percent) / 100.0);
            }
            if let Some(key) = &change.preshared_key {
                link.set_preshared(key.clone(), known.is_none());
            }
            if let Some(compress) = change.compress {
                link.set_squeeze(compress);
            }
            if let Some(hold) = change.hold {
                link.set_hold(hold);
            }
            if let Some(remote) = change.endpoint {
                link.set_endpoint(destination(remote, change.carrier));
            }
            if let Some(seconds) = change.keepalive_s
                && seconds != link.peer().keepalive_s()
            {
                link.peer_mut().set_keepalive_s(seconds);
            }
        }
        if let Some(table) = &change.translate {
            self.tables.set(id, table);
        }
        self.rules = self.rules.wrapping_add(1);
        if change.replace_allowed_ips && known.is_some() {
            self.allowed.remove_owner(id);
        }
        for allowed in &change.allowed_ips {
            if allowed.remove {
                self.allowed.remove(allowed.prefix, id);
            } else {
                let full = |_| ConfigError::TooManyPrefixes;
                self.allowed.insert(allowed.prefix, id).map_err(full)?;
            }
        }
        self.touch(id);
        Ok(())
    }

    /// Routes or addresses have changed: the kernel shall choose source addresses again.
    pub fn forget_sources(&mut self) {
        for id in self.peers.ids() {
            if let Some(link) = self.peers.link(id) {
                link.forget_source();
            }
        }
    }

    /// What carries what goes to the peer with this key, if that is neither UDP nor a relay.
    #[must_use]
    pub fn carrier(&self, key: &PublicKey) -> Option<Carrier> {
        self.peers.link_ref(self.peers.id(key)?)?.endpoint()?.carrier()
    }

    /// Every peer's state, in the order of their keys. `wall` is the time since 1970.
    #[must_use]
    pub fn peers(&self, now: Instant, wall: Duration) -> Vec<PeerStatus> {
        let mut prefixes: Vec<(PeerId, Prefix)> = Vec::with_capacity(self.allowed.len());
        self.allowed.for_each(|prefix, owner| prefixes.push((owner, prefix)));
        prefixes.sort_by_key(|entry| entry.0);
        let status = |(id, link): (PeerId, &Link)| {
            let start = prefixes.partition_point(|entry| entry.0 < id);
            let own = prefixes[start..].iter().take_while(|entry| entry.0 == id);
            PeerStatus {
                key: *link.peer().key(),
                preshared_key: link.peer().preshared_key().clone(),
                endpoint: link.endpoint().and_then(|to| to.endpoint()).map(|at| at.remote),
                last_handshake: link
                    .peer()
                    .last_handshake()
                    .map(|at| wall.saturating_sub(now.since(at))),
                rx_bytes: link.rx_bytes(),
                tx_bytes: link.tx_bytes(),
                keepalive_s: link.peer().keepalive_s(),
                allowed_ips: own.map(|entry| entry.1).collect(),
                keys: link.key_status(wall),
            }
        };
        self.peers.iter().map(status).collect()
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        // Its number may be another's soon.
        self.rules = self.rules.wrapping_add(1);
        self.allowed.remove_owner(id);
        self.guard.forget(id);
        self.circuits.forget_peer(id);
        self.soundings.forget(id);
        self.tables.forget(id);
        let held = self.shaper.forget(id);
        self.counters.drop(Reason::StageExpired, held);
        if let Some(mut link) = self.peers.remove(id) {
            self.pieces_gone = self.pieces_gone.plus(&link.pieces());
            let dropped = link.clear(&mut self.indices);
            self.counters.drop(Reason::StageExpired, dropped);
        }
    }
}

fn destination(remote: SocketAddr, carrier: Option<Carrier>) -> Destination {
    let at = Endpoint::new(canonical(remote));
    match carrier {
        Some(by) => Carried { by, at }.into(),
        None => at.into(),
    }
}

/// An IPv4-mapped endpoint is an IPv4 endpoint: it must leave by the IPv4 socket. Anything else
/// keeps its scope.
fn canonical(remote: SocketAddr) -> SocketAddr {
    match remote.ip().to_canonical() {
        IpAddr::V4(address) => SocketAddr::from((address, remote.port())),
        IpAddr::V6(_) => remote,
    }
}
