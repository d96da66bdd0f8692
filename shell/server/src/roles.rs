//! What people may do: five roles, and the scopes of each (threat CO-09).
//!
//! A role gives scopes, the same that tokens have, so that one rule holds for both: nobody gives
//! away, or takes from somebody, what they do not have themselves. An owner has all; an admin has
//! all but the copy of everything; an operator looks after nodes, keys and names; an auditor reads.
//! A member has no scope: what is its own it sees and manages on those routes that say so.

use serde::Deserialize;

/// What a caller may do. The names are those in tokens.
#[rustfmt::skip]
pub(crate) const SCOPES: [&str; 16] = [
    "nodes:read", "nodes:write", "keys:read", "keys:write", "users:read", "users:write",
    "policy:read", "policy:write", "audit:read", "tokens:read", "tokens:write",
    "relay:serve", "metrics:read", "dns:read", "dns:write",
    "backup:read",
];

/// What somebody is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees and manages its own nodes.
    Member,
    /// Reads everything.
    Auditor,
    /// Looks after nodes, join keys and names.
    Operator,
    /// Does everything but take a copy of everything.
    Admin,
    /// Does everything.
    Owner,
}

const AUDITOR: [&str; 8] = [
    "nodes:read",
    "keys:read",
    "users:read",
    "policy:read",
    "audit:read",
    "tokens:read",
    "metrics:read",
    "dns:read",
];
const OPERATOR: [&str; 9] = [
    "nodes:read",
    "nodes:write",
    "keys:read",
    "keys:write",
    "users:read",
    "policy:read",
    "metrics:read",
    "dns:read",
    "dns:write",
];
/// What only an owner has.
const OWNERS: &str = "backup:read";

impl Role {
    /// All, the least first.
    pub const ALL: [Self; 5] =
        [Self::Member, Self::Auditor, Self::Operator, Self::Admin, Self::Owner];

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Auditor => "auditor",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The role with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == word)
    }

    /// What it may do everywhere.
    #[must_use]
    pub fn scopes(self) -> Vec<&'static str> {
        match self {
            Self::Member => Vec::new(),
            Self::Auditor => AUDITOR.to_vec(),
            Self::Operator => OPERATOR.to_vec(),
            Self::Admin => SCOPES.into_iter().filter(|scope| *scope != OWNERS).collect(),
            Self::Owner => SCOPES.to_vec(),
        }
    }

    /// What a policy calls it, behind `autogroup:`; an operator is Tailscale's network admin.
    #[must_use]
    pub const fn autogroup(self) -> Option<&'static str> {
        match self {
            Self::Member => None,
            Self::Auditor => Some("auditor"),
            Self::Operator => Some("network-admin"),
            Self::Admin => Some("admin"),
            Self::Owner => Some("owner"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_09_the_document_has_the_scopes_of_each_role() {
        let document: serde_json::Value = serde_json::from_str(crate::api::OPENAPI).unwrap();
        let told = document["x-roles"].as_object().unwrap();
        assert_eq!(told.len(), Role::ALL.len());
        for role in Role::ALL {
            assert_eq!(told[role.name()], serde_json::json!(role.scopes()), "{role:?}");
        }
    }

    #[test]
    fn co_09_a_role_has_what_lesser_ones_have_but_for_reading_and_no_scope_is_made_up() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.name()), Some(role));
            assert!(role.scopes().iter().all(|scope| SCOPES.contains(scope)), "{role:?}");
            let is_within = |more: Role| role.scopes().iter().all(|s| more.scopes().contains(s));
            assert!(is_within(Role::Owner));
            assert_eq!(is_within(Role::Admin), role != Role::Owner);
        }
        assert!(Role::Auditor.scopes().iter().all(|scope| scope.ends_with(":read")));
        assert_eq!(Role::parse("root"), None);
    }
}
