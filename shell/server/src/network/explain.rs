//! Questions that an administrator asks of the network as it is.

use std::net::IpAddr;
use std::sync::Arc;

use ::policy::Explanation;

use super::Network;
use crate::store::Node;

impl Network {
    /// The addresses that a node's name, or an address itself, stands for, or a name of the
    /// policy's `hosts`, or a user: then those of the first of the user's nodes. None if nobody has
    /// the name.
    pub(crate) fn called(&self, named: &str) -> Vec<IpAddr> {
        if let Ok(address) = named.parse() {
            return vec![address];
        }
        let label = named.split('.').next().unwrap_or_default();
        let is_called = |node: &&Arc<Node>| node.name.eq_ignore_ascii_case(label);
        if let Some(node) = self.nodes.values().find(is_called) {
            return self.addresses(node);
        }
        if let Some(host) = self.book.host(named) {
            return vec![host];
        }
        let is_theirs = |node: &&Arc<Node>| {
            node.user.as_ref().is_some_and(|user| user.eq_ignore_ascii_case(named))
        };
        let theirs = self.nodes.values().find(is_theirs);
        theirs.map(|node| self.addresses(node)).unwrap_or_default()
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
