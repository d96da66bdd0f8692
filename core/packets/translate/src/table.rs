//! What a peer's addresses become, and what they were: both ways.

use core::fmt;
use core::net::IpAddr;

use wire::prefix::Prefix;
use wire::virtio;

use crate::rewrite::{self, Sums, Way};
use crate::{Pair, Refusal};

/// Pairs of each kind in a table, at most: they are looked through one by one.
pub const PAIRS_MAX: usize = 64;

/// The pairs of one peer. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    source: Vec<Pair>,
    destination: Vec<Pair>,
}

/// Why pairs are no [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// More than [`PAIRS_MAX`] of one kind.
    TooMany,
    /// Two pairs of one kind that change one address, or change to one.
    Overlap(Pair, Pair),
}

impl fmt::Display for BadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "there are more than {PAIRS_MAX}"),
            Self::Overlap(one, other) => {
                write!(f, "{one} and {other} overlap; each address may be in one on either side")
            }
        }
    }
}

impl core::error::Error for BadTable {}

impl Table {
    /// A table: what a peer's packets come from is changed by `source`, what they go to by
    /// `destination`; what is sent to the peer is changed back.
    ///
    /// # Errors
    /// [`BadTable`].
    pub fn new(source: Vec<Pair>, destination: Vec<Pair>) -> Result<Self, BadTable> {
        for pairs in [&source, &destination] {
            if pairs.len() > PAIRS_MAX {
                return Err(BadTable::TooMany);
            }
            for (at, pair) in pairs.iter().enumerate() {
                let meets = |other: &&Pair| {
                    overlap(pair.from(), other.from()) || overlap(pair.to(), other.to())
                };
                if let Some(other) = pairs[..at].iter().find(meets) {
                    return Err(BadTable::Overlap(*other, *pair));
                }
            }
        }
        Ok(Self { source, destination })
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.is_empty() && self.destination.is_empty()
    }

    /// The pairs for what a peer's packets come from.
    #[must_use]
    pub fn source(&self) -> &[Pair] {
        &self.source
    }

    /// The pairs for what a peer's packets go to.
    #[must_use]
    pub fn destination(&self) -> &[Pair] {
        &self.destination
    }

    /// What a source becomes on the way from the peer.
    #[inline]
    #[must_use]
    pub fn source_of(&self, address: IpAddr) -> IpAddr {
        ahead(&self.source, address)
    }

    /// What becomes this destination on the way from the peer.
    #[must_use]
    pub fn destination_before(&self, address: IpAddr) -> IpAddr {
        back(&self.destination, address)
    }

    /// Rewrites a packet that came from the peer, of which at least the headers are there. Returns
    /// whether anything changed.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was changed.
    #[inline]
    pub fn inward(&self, packet: &mut [u8]) -> Result<bool, Refusal> {
        rewrite::rewrite(packet, Sums::Complete, &Inward(self))
    }

    /// Rewrites a packet that goes to the peer, likewise.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was changed.
    #[inline]
    pub fn outward(&self, packet: &mut [u8]) -> Result<bool, Refusal> {
        rewrite::rewrite(packet, Sums::Complete, &Outward(self))
    }

    /// Rewrites what the machine handed over, once `wire::superpacket` has parsed it: a plain
    /// packet's checksum is complete then, a superpacket's is not, where `header` says so. Returns
    /// the header with which to parse it again.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was changed.
    pub fn outward_super(
        &self,
        header: virtio::Header,
        bytes: &mut [u8],
    ) -> Result<virtio::Header, Refusal> {
        if header.gso_type == virtio::GSO_NONE {
            self.outward(bytes)?;
            return Ok(virtio::Header::default());
        }
        let sums = if header.needs_checksum() { Sums::Partial } else { Sums::Complete };
        rewrite::rewrite(bytes, sums, &Outward(self))?;
        Ok(header)
    }
}

/// From the peer.
struct Inward<'t>(&'t Table);

impl Way for Inward<'_> {
    fn source(&self, address: IpAddr) -> IpAddr {
        ahead(&self.0.source, address)
    }

    fn destination(&self, address: IpAddr) -> IpAddr {
        ahead(&self.0.destination, address)
    }
}

/// To the peer.
struct Outward<'t>(&'t Table);

impl Way for Outward<'_> {
    fn source(&self, address: IpAddr) -> IpAddr {
        back(&self.0.destination, address)
    }

    fn destination(&self, address: IpAddr) -> IpAddr {
        back(&self.0.source, address)
    }
}

#[inline]
fn ahead(pairs: &[Pair], address: IpAddr) -> IpAddr {
    pairs.iter().find_map(|pair| pair.map(address)).unwrap_or(address)
}

#[inline]
fn back(pairs: &[Pair], address: IpAddr) -> IpAddr {
    pairs.iter().find_map(|pair| pair.reversed().map(address)).unwrap_or(address)
}

fn overlap(one: Prefix, other: Prefix) -> bool {
    one.contains(other.address()) || other.contains(one.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(texts: &[&str]) -> Vec<Pair> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn pairs_of_one_kind_may_not_overlap_on_either_side() {
        let bad = |texts: &[&str]| match Table::new(pairs(texts), Vec::new()) {
            Err(BadTable::Overlap(one, other)) => vec![one, other],
            other => panic!("{other:?}"),
        };
        let same_from = ["10.0.0.0/24=10.1.0.0/24", "10.0.0.7=10.2.0.7"];
        assert_eq!(bad(&same_from), pairs(&same_from));
        let same_to = ["10.0.0.0/24=10.1.0.0/24", "10.2.0.7=10.1.0.9"];
        assert_eq!(bad(&same_to), pairs(&same_to));
        // A swap is one to one, and each kind stands for itself.
        let swap = pairs(&["10.0.0.0/24=10.1.0.0/24", "10.1.0.0/24=10.0.0.0/24"]);
        let table = Table::new(swap.clone(), swap).unwrap();
        assert_eq!(table.source_of("10.0.0.9".parse().unwrap()).to_string(), "10.1.0.9");
        assert_eq!(table.source_of("10.1.0.9".parse().unwrap()).to_string(), "10.0.0.9");
    }

    #[test]
    fn a_table_has_its_bound() {
        let many = |count: usize| {
            let pair = |at| format!("10.0.0.{at}=10.1.0.{at}").parse::<Pair>().unwrap();
            Table::new(Vec::new(), (0..count).map(pair).collect())
        };
        assert!(many(PAIRS_MAX).is_ok_and(|table| !table.is_empty()));
        assert_eq!(many(PAIRS_MAX + 1), Err(BadTable::TooMany));
    }
}
