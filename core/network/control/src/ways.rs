//! A node's place among gateways of sites that are a tree or a star: through whom it reaches
//! networks that others serve, and whether it passes on what others send each other.
//!
//! A gateway says both of itself, by its own settings, or is told by the server in its map.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Prefix;
use crate::limits::LABEL_LEN_MAX;

/// One word of `--routes-through`: `PREFIX=NODE`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Through {
    /// What is reached so.
    pub prefix: Prefix,
    /// Through whom: a node's name.
    pub node: String,
}

/// What a server tells a node of its place.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ways {
    /// Whether it passes on what others send each other.
    pub passes_on: bool,
    /// Through whom it reaches what.
    pub through: Vec<Through>,
}

impl Ways {
    /// Whether nothing is said.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.passes_on && self.through.is_empty()
    }
}

impl FromStr for Through {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((prefix, node)) = text.split_once('=') else {
            return Err(format!("{text:?}: a prefix and a node, as in 10.7.0.0/16=hub"));
        };
        let read = prefix.trim().parse::<Prefix>();
        let prefix = read.map_err(|why| format!("{prefix:?}: {why}"))?;
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !(1..=LABEL_LEN_MAX).contains(&node.len()) || !node.chars().all(is_inner) {
            return Err(format!("{node:?} is no name of a node"));
        }
        Ok(Self { prefix, node: node.to_owned() })
    }
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.prefix, self.node)
    }
}

impl From<Through> for String {
    fn from(word: Through) -> Self {
        word.to_string()
    }
}

impl TryFrom<String> for Through {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_prefix_and_the_name_of_a_node() {
        let word: Through = "10.4.0.0/16=down-2".parse().unwrap();
        assert_eq!((word.to_string(), word.node.as_str()), ("10.4.0.0/16=down-2".into(), "down-2"));
        for bad in ["10.0.0.0/8", "10.0.0.0/8=", "10.0.0.1/8=up", "=up", "10.0.0.0/8=a b"] {
            assert!(bad.parse::<Through>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_server_tells_is_read_as_it_was_said() {
        let ways: Ways = serde_json::from_str("{\"through\":[\"10.0.0.0/8=up\"]}").unwrap();
        assert!(!ways.passes_on && !ways.is_empty());
        let said = serde_json::to_string(&ways).unwrap();
        assert_eq!(said, "{\"passes_on\":false,\"through\":[\"10.0.0.0/8=up\"]}");
        assert!(serde_json::from_str::<Ways>("{\"through\":[\"up\"]}").is_err());
        assert!(Ways::default().is_empty());
    }
}
