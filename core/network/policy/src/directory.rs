//! The directory: the users and nodes that a policy speaks of.

use core::net::IpAddr;
use std::collections::BTreeMap;

use wire::prefix::Prefix;

/// Nodes of a directory, at most.
pub const NODES_MAX: usize = 1 << 16;

/// Names a node within one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// Everybody and everything. The order is of no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// All users.
    pub users: Vec<User>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// What no node may route, even if it was approved: the network's own addresses, and those of
    /// the coordination server and the relays. A default route may cover them.
    pub reserved: Vec<Prefix>,
    /// Nodes that are plain WireGuard peers and enforce nothing themselves, each with the node
    /// through which alone it is reached, its gateway.
    pub carried: BTreeMap<NodeId, NodeId>,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name: matched by `name@`, and by `name` itself where it is an address.
    pub name: String,
    /// The address by which a sign-in provider knows the user: matched by itself.
    pub email: Option<String>,
    /// Matched by `autogroup:` and the role: `admin`, `owner`, `network-admin` ...
    pub roles: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its name, for messages.
    pub name: String,
    /// Its addresses in the network.
    pub addresses: Vec<IpAddr>,
    /// The name of the user whose node it is. A node with tags acts for nobody.
    pub owner: Option<String>,
    /// Its tags, each with `tag:` in front.
    pub tags: Vec<String>,
    /// Routes it announces and that were approved: networks behind it. `0.0.0.0/0` or `::/0` make
    /// it an exit.
    pub routes: Vec<Prefix>,
}

impl Node {
    /// The user for whom it acts: its owner, unless it has tags.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.owner.as_deref().filter(|_| self.tags.is_empty())
    }
}

impl User {
    /// Whether `text`, as a policy names a user, means this one. Case is of no meaning.
    #[must_use]
    pub fn is_named(&self, text: &str) -> bool {
        let name = |name: &str| {
            name.eq_ignore_ascii_case(text)
                || text.strip_suffix('@').is_some_and(|text| name.eq_ignore_ascii_case(text))
        };
        name(&self.name) || self.email.as_ref().is_some_and(|e| e.eq_ignore_ascii_case(text))
    }

    /// Whether the user's address is of this mail domain.
    #[must_use]
    pub fn is_of_domain(&self, domain: &str) -> bool {
        let of = |address: &str| {
            address.rsplit_once('@').is_some_and(|(_, d)| d.eq_ignore_ascii_case(domain))
        };
        of(&self.name) || self.email.as_deref().is_some_and(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_address_and_domain() {
        let email = Some("Alice@example.com".to_owned());
        let alice = User { name: "alice".into(), email, ..User::default() };
        for (text, is) in [
            ("alice@", true),
            ("alice@example.com", true),
            ("ALICE@example.com", true),
            ("alice@example.org", false),
            ("alice@example.com@", false),
            ("lice@", false),
            ("@", false),
        ] {
            assert_eq!(alice.is_named(text), is, "{text}");
        }
        assert!(alice.is_of_domain("example.com") && !alice.is_of_domain("ample.com"));
        let bare = User { name: "bob@example.com".into(), ..User::default() };
        assert!(bare.is_named("bob@example.com") && !bare.is_named("bob@"));
        assert!(bare.is_of_domain("example.com"));
    }
}
