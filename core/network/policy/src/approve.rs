//! Whose routes need no further word, and who may give which tag.

use wire::prefix::Prefix;

use crate::address;
use crate::compile::{Compiled, is_user};
use crate::directory::{NodeId, User};
use crate::ranges::Ranges;
use crate::selector::Selector;

/// What `autoApprovers` say of a route that a node announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// It needs no further word.
    Automatic,
    /// An administrator has to approve it.
    Asked,
    /// It must not be used, whoever approves it.
    Refused(Refusal),
}

/// Why a route must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It covers addresses of the network itself, of the coordination server or of a relay.
    Reserved,
    /// It is no unicast network.
    NotUnicast,
    /// The directory does not have the node.
    UnknownNode,
}

impl Compiled {
    /// Whether `route`, announced by a node, is approved by the file itself (PF-12). A route inside
    /// of an approved prefix is approved; one that is wider is not.
    #[must_use]
    pub fn approval(&self, id: NodeId, route: Prefix) -> Approval {
        let Some(at) = self.by_id.get(&id) else {
            return Approval::Refused(Refusal::UnknownNode);
        };
        let approved = |owners: &[Selector]| owners.iter().any(|owner| self.acts_as(*at, owner));
        if route.is_default() {
            return if approved(&self.policy.exits) {
                Approval::Automatic
            } else {
                Approval::Asked
            };
        }
        if !address::is_routable(route) {
            return Approval::Refused(Refusal::NotUnicast);
        }
        let reserved = Ranges::of_prefixes(self.directory.reserved.iter().copied());
        if reserved.intersects(&Ranges::of_prefixes([route])) {
            return Approval::Refused(Refusal::Reserved);
        }
        let inside =
            |prefix: &Prefix| prefix.bits() <= route.bits() && prefix.contains(route.address());
        let mut routes = self.policy.routes.iter();
        let found = routes.any(|(prefix, owners)| inside(prefix) && approved(owners));
        if found { Approval::Automatic } else { Approval::Asked }
    }

    /// Whether `tagOwners` let a user give `tag` (with its `tag:`) to a node.
    #[must_use]
    pub fn user_may_tag(&self, name: &str, tag: &str) -> bool {
        let Some(user) = self.directory.users.iter().find(|user| user.name == name) else {
            return false;
        };
        let owners = self.policy.tag_owners.get(tag);
        owners.is_some_and(|owners| owners.iter().any(|owner| is_user(&self.policy, owner, user)))
    }

    /// Whether a node has this tag, or acts for a user who is meant.
    fn acts_as(&self, at: usize, selector: &Selector) -> bool {
        let node = &self.members[at].node;
        if let Selector::Tag(tag) = selector {
            return node.tags.contains(tag);
        }
        let user = |name: &str| self.directory.users.iter().find(|user: &&User| user.name == name);
        node.user().and_then(user).is_some_and(|user| is_user(&self.policy, selector, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::tests::{directory, policy};

    #[test]
    fn pf_12_a_route_needs_an_approver_and_may_not_be_reserved() {
        let policy = policy(
            "{\"acls\": [], \"groups\": {\"group:net\": [\"ann@\"]},\n\
             \"tagOwners\": {\"tag:gw\": [], \"tag:web\": []},\n\
             \"autoApprovers\": {\"routes\": {\"10.0.0.0/8\": [\"tag:gw\"],\n\
             \"fd00:1::/32\": [\"group:net\"]}, \"exitNode\": [\"tag:gw\"]}}",
        );
        let compiled = Compiled::new(&policy, &directory()).unwrap();
        let refused = Approval::Refused;
        // Node 1 is Ann's, node 5 has tag:gw, node 4 has tag:web.
        for (node, route, approval) in [
            (5, "10.0.0.0/8", Approval::Automatic),
            (5, "10.9.8.0/24", Approval::Automatic),
            (5, "8.0.0.0/5", Approval::Asked),
            (5, "11.0.0.0/8", Approval::Asked),
            (5, "0.0.0.0/0", Approval::Automatic),
            (5, "::/0", Approval::Automatic),
            (4, "10.0.0.0/8", Approval::Asked),
            (4, "0.0.0.0/0", Approval::Asked),
            (1, "fd00:1::/64", Approval::Automatic),
            (3, "fd00:1::/64", Approval::Asked),
            (5, "100.64.0.0/16", refused(Refusal::Reserved)),
            (5, "198.51.100.7/32", refused(Refusal::Reserved)),
            (5, "198.51.100.0/24", refused(Refusal::Reserved)),
            (5, "127.0.0.0/8", refused(Refusal::NotUnicast)),
            (5, "224.0.0.0/4", refused(Refusal::NotUnicast)),
            (5, "0.0.0.0/1", refused(Refusal::NotUnicast)),
            (99, "10.0.0.0/8", refused(Refusal::UnknownNode)),
        ] {
            let is = compiled.approval(NodeId(node), route.parse().unwrap());
            assert_eq!(is, approval, "{node} {route}");
        }
    }

    #[test]
    fn tags_are_given_by_their_owners() {
        let policy = policy(
            "{\"acls\": [], \"groups\": {\"group:net\": [\"ann@\"]}, \"tagOwners\": {\n\
             \"tag:gw\": [\"group:net\"], \"tag:web\": [\"tag:gw\", \"autogroup:admin\"]}}",
        );
        let compiled = Compiled::new(&policy, &directory()).unwrap();
        assert!(compiled.user_may_tag("ann", "tag:gw") && !compiled.user_may_tag("ann", "tag:web"));
        assert!(!compiled.user_may_tag("ben", "tag:gw") && compiled.user_may_tag("ben", "tag:web"));
        assert!(!compiled.user_may_tag("eve", "tag:gw") && !compiled.user_may_tag("ann", "tag:x"));
    }
}
