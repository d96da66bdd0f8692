//! Through whom a site reaches others, where sites are joined as a tree or a star.
//!
//! Each site but the first has a parent that stands above it. What is below a site it reaches
//! through the child that leads there, and everything else through its parent. So a gateway needs
//! few words: all through the parent, and what is below through whom.

use std::collections::BTreeSet;

use wire::prefix::Prefix;

use crate::file::{File, Topology};
use crate::graph::{links, node_name};
use crate::number::Numbering;

/// Each site's parent; none of the first, and of all in a mesh.
fn parents(file: &File) -> Vec<Option<usize>> {
    let mut parents = vec![None; file.sites.len()];
    if file.topology != Topology::Mesh {
        for link in links(file) {
            parents[link.to] = Some(link.from);
        }
    }
    parents
}

/// The child of `site` that is `below`, or under which it is; none if it is elsewhere.
fn child(parents: &[Option<usize>], site: usize, below: usize) -> Option<usize> {
    let mut at = below;
    loop {
        match parents[at]? {
            parent if parent == site => return Some(at),
            // A parent stands above, so this ends.
            parent => at = parent,
        }
    }
}

/// With how many sites one is joined.
fn neighbours(parents: &[Option<usize>], site: usize) -> usize {
    let children = parents.iter().filter(|parent| **parent == Some(site)).count();
    children + usize::from(parents[site].is_some())
}

/// Whether a site's gateways pass on what sites send to each other.
#[must_use]
pub fn is_hub(file: &File, site: usize) -> bool {
    neighbours(&parents(file), site) > 1
}

/// Through which gateways a site reaches networks, as `--routes-through` has it:
/// `NETWORK=GATEWAY`, sorted, with commas; the longest network that holds another counts. Empty
/// where it is joined with everybody.
#[must_use]
pub fn through(file: &File, numbering: &Numbering, site: usize) -> String {
    let parents = parents(file);
    let mut all: BTreeSet<(Prefix, String)> = BTreeSet::new();
    let mut lead = |prefix: &Prefix, to: usize| {
        let gateways = 0..usize::from(file.sites[to].gateways);
        all.extend(gateways.map(|gateway| (*prefix, node_name(file, to, gateway))));
    };
    if let Some(parent) = parents[site] {
        numbering.routes_of(site).iter().for_each(|prefix| lead(prefix, parent));
    }
    for (below, place) in numbering.places.iter().enumerate() {
        let Some(child) = child(&parents, site, below) else { continue };
        // The first one has no parent who leads elsewhere, so its children need no words.
        if child != below || parents[site].is_some() {
            place.known_as.iter().for_each(|prefix| lead(prefix, child));
        }
    }
    let texts: Vec<String> = all.iter().map(|(prefix, node)| format!("{prefix}={node}")).collect();
    texts.join(",")
}

/// The site through which everything goes that is not below a site, for people.
pub(crate) fn parent(file: &File, site: usize) -> Option<&str> {
    parents(file)[site].map(|parent| file.sites[parent].name.as_str())
}
