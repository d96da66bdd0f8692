//! What commands ask of the daemon: a line of JSON each way over the local socket. An answer has
//! `"schema": 1`, and `"error"` where something was not done.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Changes;
pub use crate::circuits::{CircuitAsk, Wanted};

/// The version of every answer's form. Fields are added, never changed, under one number.
pub const SCHEMA: u32 = 1;
/// Bytes of a request, at most.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// To be up, and to join first if that is yet to be done.
    Up {
        /// The token, for a node that belongs to no network.
        token: Option<String>,
        /// What the command says of the settings.
        #[serde(default)]
        changes: Changes,
        /// Whether what it does not say goes back to what it is at first.
        #[serde(default)]
        reset: bool,
        /// Whether an exit is wanted that is none yet.
        #[serde(default)]
        force: bool,
    },
    /// Other settings, and no more.
    Set {
        /// Which.
        changes: Changes,
        /// In which way.
        #[serde(default)]
        how: How,
    },
    /// To be down: a member still, without an interface.
    Down,
    /// To leave the network.
    Logout,
    /// How things are.
    Status,
    /// What the network lets through.
    Netcheck,
    /// What stands between two ends, of which one is at this node.
    Why {
        /// Who sends, by name or address: this node if it is not said.
        source: Option<String>,
        /// Who receives.
        destination: String,
        /// IP protocol number.
        protocol: u8,
        /// Destination port, where the protocol has ports.
        #[serde(default)]
        port: u16,
    },
    /// To measure what the path to a peer has left; `status` says what comes of it.
    Bandwidth {
        /// The peer's number.
        peer: u64,
    },
    /// Something of circuits.
    Circuit {
        /// What.
        ask: CircuitAsk,
    },
    /// Everything that helps to find out what is wrong, without secrets.
    Debug,
}

/// How settings are changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct How {
    /// Whether an exit is wanted that is none yet, so that nothing leaves until it is.
    pub force: bool,
    /// They go back after so many seconds, unless they are confirmed.
    pub for_s: Option<u64>,
    /// What is on trial stays.
    pub confirm: bool,
}

impl Request {
    /// Whether it changes nothing, so that every user may ask.
    #[must_use]
    pub const fn is_harmless(&self) -> bool {
        matches!(self, Self::Status | Self::Netcheck | Self::Why { .. })
    }

    /// Whether the machine's operator may ask it: being up, down, settings but for who is the
    /// operator, and a measurement.
    #[must_use]
    pub const fn is_operating(&self) -> bool {
        match self {
            Self::Up { changes, .. } | Self::Set { changes, .. } => changes.operator.is_none(),
            Self::Down | Self::Bandwidth { .. } => true,
            _ => self.is_harmless(),
        }
    }
}

/// An answer that something was done.
#[must_use]
pub fn done() -> Value {
    json!({ "schema": SCHEMA })
}

/// An answer that the node is to be up, and whether that or a setting is new; what else there is to
/// say is for people.
#[must_use]
pub fn after_up(changed: bool) -> Value {
    json!({ "schema": SCHEMA, "changed": changed, "said": [] })
}

/// An answer that this node has left, and the server does not know.
#[must_use]
pub fn left_behind() -> Value {
    let note = "the server was not told, and still lists this node: remove it there, with `warren \
                node remove`";
    json!({ "schema": SCHEMA, "note": note })
}

/// An answer that something was not done, and why.
#[must_use]
pub fn refused(why: impl std::fmt::Display) -> Value {
    json!({ "schema": SCHEMA, "error": why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_06_an_operator_is_up_and_down_and_sets_but_makes_no_operator() {
        let changes = Changes { accept_routes: Some(true), ..Changes::default() };
        let operator = Changes { operator: Some("eve".to_owned()), ..Changes::default() };
        let set =
            |changes: &Changes| Request::Set { changes: changes.clone(), how: How::default() };
        let up = |changes: &Changes| Request::Up {
            token: None,
            changes: changes.clone(),
            reset: true,
            force: false,
        };
        for (request, is) in [
            (set(&changes), true),
            (up(&changes), true),
            (Request::Down, true),
            (Request::Bandwidth { peer: 1 }, true),
            (Request::Status, true),
            (set(&operator), false),
            (up(&operator), false),
            (Request::Logout, false),
            (Request::Debug, false),
        ] {
            assert_eq!(request.is_operating(), is, "{request:?}");
        }
        for request in [set(&changes), Request::Down, Request::Bandwidth { peer: 1 }] {
            assert!(!request.is_harmless(), "{request:?}");
        }
    }
}
