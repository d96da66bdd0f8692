//! The port of the gateway, as this member wants it.

use std::num::NonZeroU16;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Daemon, Fault, Input};
use crate::ports::{Mapping, Ports, Wish, gateway};

impl Daemon {
    /// Starts the thread, unless the user wants no mappings.
    pub(crate) fn start_ports(&mut self) {
        let inputs = self.inputs.clone();
        let tell = move |mapping| drop(inputs.send(Input::Ports(mapping)));
        match Ports::start(tell) {
            Ok(ports) => self.ports = Some(ports),
            Err(error) => self.complain(&error),
        }
    }

    /// Wants `port` mapped by the gateway there is; 0 for no longer. `is_changed` if the machine's
    /// network is another one.
    pub(crate) fn want_port(&self, port: u16, is_changed: bool) {
        let Some(ports) = &self.ports else { return };
        // What is asked would leave through the exit, and its answer be the wrong gateway's.
        let is_direct = !self.told.has_exit() && self.map.is_some();
        let wish = NonZeroU16::new(port).filter(|_| is_direct);
        let wish = wish.and_then(|port| {
            let gateway = gateway(self.interface.name())?;
            Some(Wish { gateway, port, overlay: self.told.overlay().to_vec() })
        });
        ports.want(wish, is_changed);
    }

    /// Takes what came of it.
    pub(crate) fn take_ports(&mut self, mapping: Option<Mapping>) -> Result<(), Fault> {
        let external = match &mapping {
            Some(Mapping::Held { external, .. }) => Some(*external),
            _ => None,
        };
        self.mapping = mapping;
        self.tell_opened(external)
    }

    /// For `status` and `netcheck`.
    pub(crate) fn port_mapping(&self) -> Value {
        match &self.mapping {
            None => Value::Null,
            Some(Mapping::Held { gateway, protocol, external, until }) => json!({
                "gateway": gateway,
                "protocol": protocol,
                "external": external,
                "expires_in_s": until.saturating_duration_since(Instant::now()).as_secs(),
                "trouble": null,
            }),
            Some(Mapping::None { gateway, why }) => json!({
                "gateway": gateway,
                "protocol": null,
                "external": null,
                "expires_in_s": null,
                "trouble": why,
            }),
        }
    }
}
