//! Questions that an administrator asks of the network as it is.

use std::net::IpAddr;

use ::policy::Explanation;

use super::Network;

impl Network {
    /// The addresses that a node's name, or an address itself, stands for; none if nobody
    /// has the name.
    pub(crate) fn called(&self, named: &str) -> Vec<IpAddr> {
        if let Ok(address) = named.parse() {
            return vec![address];
        }
        let label = named.split('.').next().unwrap_or_default();
        let node = self.nodes.values().find(|node| node.name.eq_ignore_ascii_case(label));
        node.map(|node| self.addresses(node)).unwrap_or_default()
    }

    /// What becomes of a first packet; nothing if the policy cannot be read.
    pub(crate) fn explain(
        &mut self,
        ends: (IpAddr, IpAddr),
        service: (u8, u16),
        now: u64,
    ) -> Option<Explanation> {
        self.compile(now);
        self.book.explain(ends, service)
    }
}
