//! Hosts that somebody outside the world tells everything: who their peers are, where those may
//! be, what is allowed. So a daemon tells its node what a map means.

use node::{Candidate, Change, Reach, ReachStatus};
use noise::{Identity, PrivateKey};

use super::*;

impl World {
    /// A host's machine starts anew, with this key and nothing else.
    pub fn begin(&mut self, id: HostId, key: PrivateKey) {
        self.tell(format!("{id} begins anew"));
        self.resets += 1;
        let host = &mut self.hosts[id.0];
        host.peers.clear();
        host.set_key(key);
        host.rules = None;
        host.up = true;
        host.forgot = true;
        host.boot();
        self.drain(id);
    }

    /// Takes steps of configuration, as a driver does.
    pub fn change(&mut self, id: HostId, changes: &[Change]) {
        for change in changes {
            let host = &mut self.hosts[id.0];
            let done = match change {
                Change::Peer(change) => host.node.change_peer(change, &mut host.random),
                Change::ReplacePeers => {
                    host.node.remove_peers();
                    Ok(())
                }
                Change::PrivateKey(Some(key)) => {
                    host.set_key(key.clone());
                    let identity = Identity::new(key.clone());
                    host.node.set_identity(Some(identity), &mut host.random);
                    Ok(())
                }
                Change::PrivateKey(None) => {
                    host.node.set_identity(None, &mut host.random);
                    Ok(())
                }
                // Sockets are the world's.
                Change::ListenPort(_)
                | Change::ListenIcmp(_)
                | Change::ListenIp(_)
                | Change::Fwmark(_) => Ok(()),
            };
            if done.is_err() {
                self.fail("a node did not take a change");
            }
            self.drain(id);
        }
    }

    /// Says where a peer of a host may be.
    pub fn set_candidates(&mut self, id: HostId, peer: &PublicKey, candidates: &[Candidate]) {
        let now = self.now();
        let host = &mut self.hosts[id.0];
        let now = host.instant(now);
        host.node.set_candidates(peer, candidates, now);
        self.drain(id);
    }

    /// Says what a host's machine knows of the way to itself; its own address is the world's.
    pub fn set_reach(&mut self, id: HostId, reach: Reach) {
        let now = self.now();
        let host = &mut self.hosts[id.0];
        let now = host.instant(now);
        let local = vec![host.address];
        host.node.set_reach(Reach { local, ..reach }, now);
        self.drain(id);
    }

    /// Where a host may be reached, if that is another place than when it was last asked.
    pub fn poll_reach(&mut self, id: HostId) -> Option<ReachStatus> {
        let node = &mut self.hosts[id.0].node;
        node.poll_reach().then(|| node.reach())
    }

    /// A host's machine is in another network: behind this translator, or with an address of its
    /// own. Nobody is told.
    pub fn place_at(&mut self, id: HostId, nat: Option<NatId>, v6: bool) {
        let address = match nat {
            Some(nat) => self.inside_address(nat),
            None => self.fresh_address(v6),
        };
        self.tell(format!("{id} is at {address} now"));
        let host = &mut self.hosts[id.0];
        host.address = address;
        host.nat = nat;
        host.node.forget_sources();
    }

    /// A host's node is told that its network is another one.
    pub fn network_changed(&mut self, id: HostId) {
        let now = self.now();
        let host = &mut self.hosts[id.0];
        let now = host.instant(now);
        host.node.handle_network_change(now);
        self.drain(id);
    }

    /// Hands a datagram of UDP to a host, between addresses that the world need not know, and
    /// returns its marker.
    pub fn send_by(&mut self, route: Route, ports: Ports, len: usize) -> u64 {
        let marker = self.ledger.next_marker();
        let made = self.ledger.datagram(route, ports, len);
        self.hand(route.from, route.to, made);
        marker
    }
}
