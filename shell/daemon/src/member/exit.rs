//! Through whom this node reaches the Internet now, where it uses an exit.

use control::Peer;
use noise::PublicKey;
use serde_json::Value;

use super::{Daemon, Fault};
use crate::exits::{Led, owner, shown};
use crate::failover::ask;

impl Daemon {
    /// The exit that is used and why: null where none is wanted.
    pub(crate) fn way_out(&mut self) -> Result<Value, Fault> {
        let settings = &self.state.kept.settings;
        if settings.exit_node.is_none() {
            return Ok(Value::Null);
        }
        let map = self.map.as_deref();
        let defaults = self.plan.routes.iter().filter(|route| route.is_default());
        let led = |is_v4: bool| -> Option<&Peer> {
            let mut of_family = defaults.clone().filter(|r| r.address().is_ipv4() == is_v4);
            map?.peer(owner(&self.plan, of_family.next()?)?)
        };
        let led = [led(true), led(false)];
        let keys: Vec<PublicKey> = led.iter().flatten().map(|peer| peer.key).collect();
        let (_, seen) = self.remote.call(move |desk| ask(desk, &keys))?;
        let mut seen = seen.into_iter();
        let led = led.map(|peer| {
            let peer = peer?;
            let seen = seen.next()?;
            Some(Led { peer, path: seen.path, rtt_us: seen.rtt_us })
        });
        Ok(shown(map, settings, led, self.failover.why_exit()))
    }
}
