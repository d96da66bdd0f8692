//! Words of other programs: what means nobody here, and how things were written once.

use super::*;
use crate::selector::{is_autogroup, is_name};

impl Reader {
    /// Whether a name means something to others and nobody here. To leave it out narrows its rule.
    pub(super) fn is_of_others(&mut self, place: Place, text: &str, role: Role) -> bool {
        let (what, mend) = match (text, role) {
            (_, Role::Destination) if text.starts_with("svc:") => {
                ("names a service of Tailscale's, and is left out", "name the nodes that offer it")
            }
            ("autogroup:internet", Role::Owner) => {
                ("cannot own anything, and is left out", "name users, groups, tags or a role")
            }
            ("autogroup:shared", Role::Source) => {
                ("means nobody here, for no network shares nodes", "name users or groups")
            }
            (text, _) if is_strange_autogroup(text) => (
                "means nobody here, and is left out",
                "see docs/policy.md for those that are known",
            ),
            _ => return false,
        };
        self.warn(place, format!("{} {what}", quoted(text)), mend);
        true
    }

    /// A user without an `@`, as files for Headscale had them: taken in a group, and elsewhere if
    /// a group has it so. Any other bare word may be a misspelt host.
    pub(super) fn old_user(&mut self, place: Place, text: &str, role: Role) -> Option<Selector> {
        let is_bare = is_name(text) && !text.contains('@');
        let is_host = self.policy.hosts.keys().any(|host| host.eq_ignore_ascii_case(text));
        let is_address = prefix(text).is_ok();
        if !is_bare || is_host || is_address {
            return None;
        }
        let name = text.to_ascii_lowercase();
        match role {
            Role::Member => drop(self.old_users.insert(name.clone())),
            _ if self.old_users.contains(&name) => {}
            _ => return None,
        }
        let user = format!("{name}@");
        self.warn(place, format!("{} is read as a user", quoted(text)), format!("write {user}"));
        Some(Selector::User(user))
    }

    /// A group with an address for a name is one that a provider keeps: it has no members of the
    /// file's own.
    pub(super) fn note_synced(&mut self, place: Place, name: &str) {
        if !name.contains('@') || self.policy.groups.contains_key(name) {
            return;
        }
        let what = format!("{} has the members that an identity provider names", quoted(name));
        self.warn(place, what, "without `warren serve --oidc` define it in groups");
        self.policy.groups.insert(name.to_owned(), Vec::new());
    }
}

/// A policy in YAML begins with a bare word.
pub(super) fn of_yaml(finding: Finding) -> Finding {
    if finding.place.column != 1 || !finding.what.starts_with("the bare word") {
        return finding;
    }
    let mend = "a policy is HuJSON and begins with {; of YAML make JSON first: yq -o=json FILE";
    Finding::new(finding.place, finding.what, mend)
}

fn is_strange_autogroup(text: &str) -> bool {
    text.strip_prefix("autogroup:").is_some_and(|name| is_name(name) && !is_autogroup(name))
}
