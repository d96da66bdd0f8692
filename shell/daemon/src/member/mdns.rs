//! `warren set --mdns`: services on this machine's LAN that are found by multicast DNS are told to
//! the network, and the network's to the LAN.

use dns::mdns::Service;
use host::names::mdns::Relay;
use serde_json::{Value, json};

use super::Daemon;

impl Daemon {
    /// Has told on what the settings want, where that can be.
    pub(crate) fn keep_mdns(&mut self) {
        let wanted = self.state.kept.settings.mdns.clone();
        if self.mdns.as_ref().map(|(known, _)| known) == wanted.as_ref() {
            return;
        }
        self.mdns = None;
        let Some(wanted) = wanted else { return };
        match Relay::start(&wanted.link, self.interface.name(), &wanted.services) {
            Ok(relay) => self.mdns = Some((wanted, relay)),
            Err(error) => {
                self.complain(&format_args!("--mdns {wanted}: {}: {error}", wanted.link));
            }
        }
    }

    /// For `status --json`.
    pub(crate) fn shown_mdns(&self) -> Value {
        let Some((mdns, relay)) = &self.mdns else { return Value::Null };
        let counts = relay.counts();
        json!({
            "link": mdns.link,
            "services": mdns.services.iter().map(Service::to_string).collect::<Vec<_>>(),
            "told": counts.told,
            "others": counts.others,
            "dropped": counts.dropped,
        })
    }
}
