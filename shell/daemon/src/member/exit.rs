//! Through whom this node reaches the Internet now, where it uses an exit.

use control::NodeId;
use link::Destination;
use noise::PublicKey;
use serde_json::Value;

use super::{Daemon, Fault};
use crate::exits::{Led, owner, shown};

impl Daemon {
    /// The exit that is used and why: null where none is wanted.
    pub(crate) fn way_out(&mut self) -> Result<Value, Fault> {
        let settings = &self.state.kept.settings;
        let map = self.map.as_deref();
        let defaults = self.plan.routes.iter().filter(|route| route.is_default());
        let led = |is_v4: bool| -> Option<NodeId> {
            let mut of_family = defaults.clone().filter(|r| r.address().is_ipv4() == is_v4);
            owner(&self.plan, of_family.next()?)
        };
        let led = [led(true), led(false)].map(|id| map?.peer(id?));
        let keys: [Option<PublicKey>; 2] = led.map(|peer| Some(peer?.key));
        let paths = self.remote.call(move |desk| {
            let (node, clock, _) = desk.node();
            keys.map(|key| node.path(&key?, clock.now).filter(|path| path.is_alive))
        })?;
        let [v4, v6] = led;
        let shown_as = |peer, path: Option<&link::PathStatus>| {
            let kind = path.map_or("none", |path| match path.to {
                Destination::Udp(_) | Destination::Carried(_) => "direct",
                Destination::Relay(_) => "relay",
            });
            Some(Led { peer: peer?, kind, rtt_us: path.and_then(|path| path.rtt_us) })
        };
        let led = [shown_as(v4, paths[0].as_ref()), shown_as(v6, paths[1].as_ref())];
        Ok(shown(map, settings, led, self.failover.why_exit()))
    }
}
