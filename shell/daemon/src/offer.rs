//! What a gateway offers to route: a prefix behind it, under its own name or another.

use std::fmt;
use std::str::FromStr;

use control::{Alias, Prefix};
use node::translate::Pair;
use serde::{Deserialize, Serialize};

/// One word of `--advertise-routes`: `PREFIX`, or `PREFIX=ALIAS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Offer {
    prefix: Prefix,
    alias: Option<Prefix>,
}

impl Offer {
    /// What is behind the gateway.
    #[must_use]
    pub const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// What the network knows it by: what is approved, and what peers and the policy speak of.
    #[must_use]
    pub fn route(&self) -> Prefix {
        self.alias.unwrap_or(self.prefix)
    }

    /// What the server is told of an alias.
    #[must_use]
    pub fn alias(&self) -> Option<Alias> {
        self.alias.map(|alias| Alias { prefix: self.prefix, alias })
    }

    /// How the addresses of what peers send are rewritten.
    pub(crate) fn pair(&self) -> Option<Pair> {
        Pair::new(self.alias?.into(), self.prefix.into()).ok()
    }
}

impl From<Prefix> for Offer {
    fn from(prefix: Prefix) -> Self {
        Self { prefix, alias: None }
    }
}

impl FromStr for Offer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.trim().parse::<Prefix>().map_err(|why| why.to_string());
        let Some((prefix, alias)) = text.split_once('=') else { return Ok(read(text)?.into()) };
        let prefix = read(prefix)?;
        let alias = read(alias)?;
        Pair::new(prefix.into(), alias.into()).map_err(|why| why.to_string())?;
        Ok(Self { prefix, alias: Some(alias) })
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias {
            Some(alias) => write!(f, "{}={alias}", self.prefix),
            None => self.prefix.fmt(f),
        }
    }
}

impl From<Offer> for String {
    fn from(offer: Offer) -> Self {
        offer.to_string()
    }
}

impl TryFrom<String> for Offer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_a_prefix_or_two_of_one_length() {
        let offer: Offer = "192.168.1.0/24=10.99.1.0/24".parse().unwrap();
        assert_eq!(offer.to_string(), "192.168.1.0/24=10.99.1.0/24");
        assert_eq!(offer.route().to_string(), "10.99.1.0/24");
        assert_eq!(offer.pair().unwrap().to_string(), "10.99.1.0/24=192.168.1.0/24");
        assert_eq!(offer.alias().unwrap().to_string(), "192.168.1.0/24 as 10.99.1.0/24");
        assert_eq!("10.7.0.0/16".parse::<Offer>().unwrap().pair(), None);
        for bad in ["10.7.0.0/16=10.8.0.0/24", "10.7.0.0/16=fd00::/16", "10.7.0.1/16", "=", ""] {
            assert!(bad.parse::<Offer>().is_err(), "{bad}");
        }
    }
}
