//! Through whom a network is reached that another node serves: a word of a gateway in a tree or a
//! star of sites, which has no link to that node.

use std::fmt;
use std::str::FromStr;

use control::Prefix;
use serde::{Deserialize, Serialize};

/// One word of `--routes-through`: `PREFIX=NODE`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Through {
    prefix: Prefix,
    /// A node's name.
    node: String,
}

/// Through whom a route goes, by the words for the longest prefix that holds it; nobody where
/// nothing is said of it.
pub(crate) fn hops<'w>(words: &'w [Through], route: &Prefix) -> Vec<&'w str> {
    let holds = |word: &&Through| {
        word.prefix.bits() <= route.bits() && word.prefix.contains(route.address())
    };
    let longest = words.iter().filter(holds).map(|word| word.prefix.bits()).max();
    let meant = words.iter().filter(holds).filter(|word| Some(word.prefix.bits()) == longest);
    meant.map(|word| word.node.as_str()).collect()
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
        if !(1..=63).contains(&node.len()) || !node.chars().all(is_inner) {
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
    fn the_longest_prefix_says_through_whom() {
        let read = |text: &str| text.parse::<Through>().unwrap();
        let words = ["10.0.0.0/8=up", "10.4.0.0/16=down", "10.4.0.0/16=down-2"].map(read);
        assert_eq!(words[2].to_string(), "10.4.0.0/16=down-2");
        let hops = |route: &str| hops(&words, &route.parse().unwrap());
        assert_eq!(hops("10.7.0.0/24"), ["up"]);
        assert_eq!(hops("10.4.7.0/24"), ["down", "down-2"]);
        assert_eq!(hops("10.0.0.0/7"), [""; 0], "wider than what was said");
        assert_eq!(hops("fd00::/64"), [""; 0]);
        for bad in ["10.0.0.0/8", "10.0.0.0/8=", "10.0.0.1/8=up", "=up", "10.0.0.0/8=a b"] {
            assert!(bad.parse::<Through>().is_err(), "{bad}");
        }
    }
}
