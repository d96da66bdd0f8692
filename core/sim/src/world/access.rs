//! Worlds whose nodes enforce an access policy, and packets that one can speak of.

use policy::{BadRules, Rules};

use super::{HostId, World, route};

/// Where a datagram of UDP goes: source port and destination port.
pub type Ports = (u16, u16);

impl World {
    /// A host is told the text that stands in a map; also what it enforces after a restart. How
    /// many flows were cut.
    ///
    /// # Errors
    /// The text cannot be read. Nothing passes then.
    pub fn tell_rules(&mut self, id: HostId, text: &str) -> Result<usize, BadRules> {
        let host = &mut self.hosts[id.0];
        let told = host.node.set_policy_text(text, &mut host.random);
        host.rules = Rules::read(text).unwrap_or_else(|_| Some(Rules::default()));
        told
    }

    /// Hands a datagram of UDP for `to` to `from`.
    pub fn send_udp(&mut self, from: HostId, to: HostId, v6: bool, ports: Ports, len: usize) {
        let made = self.ledger.datagram(route(from, to, v6), ports, len);
        self.hand(from, to, made);
    }
}
