//! Where this node and its peers may be reached, as far as map and machine know: candidates and
//! STUN servers for the data loop, which finds out, and what it found for the server, which tells
//! the peers.

use std::net::{SocketAddr, ToSocketAddrs};

use control::Map;
use control::limits::ENDPOINTS_MAX;
use node::Reach;

use super::{Daemon, Fault, Input};
use crate::home::Answering;
use crate::{plan, system};

/// STUN servers that are asked, by name.
const STUN_MAX: usize = 8;

/// What was told to the data loop last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Told {
    names: Vec<String>,
    stun: Vec<SocketAddr>,
    local: Vec<SocketAddr>,
    relays: Vec<u32>,
    overlay: Vec<node::Prefix>,
    opened: Option<SocketAddr>,
    /// An exit is used, so that no gateway is asked for a port.
    has_exit: bool,
}

/// What the data loop was told of this machine itself.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Served {
    /// What it answers for.
    prefixes: Vec<node::Prefix>,
    /// What passes between two peers through it: plain peers, and what a hub of sites passes on,
    /// which both ends judge.
    carried: Vec<node::Prefix>,
    /// How addresses are rewritten.
    table: node::translate::Table,
    /// How fast its line is.
    line_rate: node::LineRate,
}

impl Told {
    /// What is inside the network.
    pub(crate) fn overlay(&self) -> &[node::Prefix] {
        &self.overlay
    }

    /// Whether an exit is used.
    pub(crate) const fn has_exit(&self) -> bool {
        self.has_exit
    }

    fn reach(&self) -> Reach {
        Reach {
            stun: self.stun.clone(),
            local: self.local.clone(),
            opened: self.opened,
            relays: self.relays.clone(),
            overlay: self.overlay.clone(),
        }
    }
}

/// Who is asked for our address: the server, and relays that answer; a few are enough.
pub(crate) fn stun_names(map: &Map) -> Vec<String> {
    let relays = map.relays.iter().flat_map(|relay| &relay.stun);
    map.stun.iter().chain(relays).take(STUN_MAX).cloned().collect()
}

impl Daemon {
    /// Where this node may be reached, as far as is known.
    pub(super) fn endpoints(&mut self) -> Result<Vec<SocketAddr>, Fault> {
        let mut endpoints = self.remote.call(|desk| desk.node().0.reach().endpoints)?;
        endpoints.truncate(ENDPOINTS_MAX);
        Ok(endpoints)
    }

    /// Tells the data loop what map and machine know. `is_changed` if the machine's network is
    /// another one.
    pub(crate) fn tell_reach(&mut self, is_changed: bool) -> Result<(), Fault> {
        let port = self.remote.call(|desk| desk.status().listen_port)?;
        let local = system::local_addresses(self.interface.name()).unwrap_or_else(|error| {
            self.complain(&error);
            Vec::new()
        });
        let map = self.map.as_deref();
        let names = map.map(stun_names).unwrap_or_default();
        if names != self.told.names || is_changed {
            self.resolve(&names);
        }
        let told = Told {
            names,
            local: local.into_iter().map(|address| (address, port).into()).collect(),
            relays: map.map(plan::relays).unwrap_or_default(),
            overlay: map.map(plan::overlay).unwrap_or_default(),
            stun: self.told.stun.clone(),
            opened: self.told.opened,
            has_exit: self.state.kept.settings.exit_node.is_some(),
        };
        if told == self.told && !is_changed {
            return Ok(());
        }
        let reach = told.reach();
        self.told = told;
        self.want_port(port, is_changed);
        self.remote.call(move |desk| {
            let (node, clock, _) = desk.node();
            node.set_reach(reach, clock.now);
            if is_changed {
                node.handle_network_change(clock.now);
            }
        })?;
        Ok(())
    }

    /// Finds the addresses of STUN servers, on a thread: names may take their time.
    fn resolve(&self, names: &[String]) {
        let names = names.to_vec();
        let inputs = self.inputs.clone();
        let run = move || {
            // Both families of each, all asked at once: one that is dead holds up nobody.
            let each = |name: &String| name.to_socket_addrs().ok().map(dial::one_of_each);
            let found = names.iter().filter_map(each).flatten().collect();
            let _ = inputs.send(Input::Stun(found));
        };
        // Without a thread nobody is asked; the next change of the network tries again.
        let _ = std::thread::Builder::new().name("warren-stun".to_owned()).spawn(run);
    }

    /// Takes the addresses of STUN servers.
    pub(crate) fn take_stun(&mut self, stun: Vec<SocketAddr>) -> Result<(), Fault> {
        if stun == self.told.stun {
            return Ok(());
        }
        self.told.stun = stun;
        self.tell_told()
    }

    /// Takes what the gateway opened, if anything.
    pub(crate) fn tell_opened(&mut self, opened: Option<SocketAddr>) -> Result<(), Fault> {
        if opened == self.told.opened {
            return Ok(());
        }
        self.told.opened = opened;
        self.tell_told()
    }

    fn tell_told(&self) -> Result<(), Fault> {
        let reach = self.told.reach();
        self.remote.call(move |desk| {
            let (node, clock, _) = desk.node();
            node.set_reach(reach, clock.now);
        })?;
        Ok(())
    }

    /// Tells the data loop the map's rules; what cannot be read lets nothing pass (threat PF-08).
    pub(crate) fn tell_policy(&mut self) -> Result<(), Fault> {
        let rules = self.map.as_deref().map(|map| map.policy.rules.clone());
        if rules == self.rules {
            return Ok(());
        }
        self.rules.clone_from(&rules);
        let failed = self.remote.call(move |desk| {
            let (node, _, random) = desk.node();
            match rules {
                Some(text) => node.set_policy_text(&text, random).err(),
                None => {
                    node.set_policy(None, random);
                    None
                }
            }
        })?;
        if let Some(bad) = failed {
            self.complain(&format_args!("the server's rules let nothing pass: {bad}"));
        }
        Ok(())
    }

    /// Tells the data loop what this machine answers for: its own addresses, and of the approved
    /// routes those that its filter is ready for (threat PF-02).
    pub(crate) fn tell_served(&mut self) -> Result<(), Fault> {
        let settings = &self.state.kept.settings;
        let me = self.map.as_deref().map(|map| &map.me);
        let own = me.map(|me| &me.addresses[..]).unwrap_or_default();
        let routes = me.map(|me| &me.routes[..]).unwrap_or_default();
        let served: Vec<node::Prefix> = own
            .iter()
            .map(|address| node::Prefix::host(*address))
            .chain(self.gate.ready(routes, settings).map(plan::wire_prefix))
            .chain(self.plan.carried().map(|prefix| plan::wire_prefix(&prefix)))
            .collect();
        let table = settings.translation(self.gate.ready(routes, settings));
        let line_rate = settings.line_rate.unwrap_or_default();
        let carried = self.plan.carried().chain(self.plan.passed.iter().copied());
        let carried = carried.map(|prefix| plan::wire_prefix(&prefix)).collect();
        let told = Some(Served { prefixes: served, carried, table, line_rate });
        if self.served == told {
            return Ok(());
        }
        self.served.clone_from(&told);
        let Some(Served { prefixes, carried, table, line_rate }) = told else { return Ok(()) };
        // A table holds more than a map can name.
        let full = self.remote.call(move |desk| {
            let (node, ..) = desk.node();
            node.set_translation(table);
            node.set_line_rate(line_rate);
            node.set_served(&prefixes).is_err() | node.set_carried(&carried).is_err()
        })?;
        if full {
            self.complain(&"more routes are approved for this node than it can serve");
        }
        Ok(())
    }

    /// Notes where peers are reached, for a start without a server.
    pub(crate) fn note_reached(&mut self) -> Result<(), Fault> {
        let paths = self.remote.call(|desk| {
            let peers = desk.status().peers;
            let (node, clock, _) = desk.node();
            let direct = |peer: &node::PeerStatus| {
                let Some(path) = node.path(&peer.key, clock.now) else {
                    // A plain peer has no paths; where it was heard last is where it is.
                    return peer.endpoint.filter(|_| peer.last_handshake.is_some());
                };
                Some(path.to.udp().filter(|_| path.is_alive)?.remote)
            };
            let place = |peer: &node::PeerStatus| Some((peer.key, direct(peer)?));
            peers.iter().filter_map(place).collect::<Vec<_>>()
        })?;
        self.seen.note(&paths, &self.plan.peers, self.now_unix_s());
        if let Err(error) = self.seen.save(&self.state) {
            tracing::warn!("{error}");
        }
        Ok(())
    }

    /// Looks whether what the server is to be told of us has changed.
    pub(crate) fn look_at_reach(&mut self) -> Result<(), Fault> {
        let (is_changed, streams) =
            self.remote.call(|desk| (desk.node().0.poll_reach(), desk.relays()))?;
        let answering: Vec<Answering> =
            streams.iter().map(|stream| (stream.relay, stream.rtt_us)).collect();
        let has_moved = self.home.choose(&self.state.kept.node.public(), &answering);
        if is_changed || has_moved {
            self.report()?;
        }
        Ok(())
    }
}
