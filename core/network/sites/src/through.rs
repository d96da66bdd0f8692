//! Through whom a site reaches others, where sites are joined as a tree or a star.
//!
//! Each site but the first has a parent that stands above it. What is below a site it reaches
//! through the child that leads there, and everything else through its parent. So a gateway needs
//! few words: all through the parent, and what is below through whom.

use std::collections::BTreeSet;

use wire::prefix::Prefix;

use crate::file::{File, Topology};
use crate::graph::{Kind, Resource, links, neighbours, node_name, yes_or_no};
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

/// Whether a site's gateways pass on what sites send to each other; in a mesh nobody needs that.
#[must_use]
pub fn is_hub(file: &File, site: usize) -> bool {
    file.topology != Topology::Mesh && neighbours(file, site).len() > 1
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

/// Whether a site's gateways pass on, as a plan writes it.
pub(crate) fn passes_on(file: &File, site: usize) -> &'static str {
    yes_or_no(is_hub(file, site))
}

/// What a gateway of a tree or a star does beside, for people.
pub(crate) fn told(file: &File, site: usize) -> String {
    let parent = parents(file)[site].map(|parent| file.sites[parent].name.as_str());
    let parent = parent.map(|parent| format!(", and reaches other sites through {parent}"));
    let hub = is_hub(file, site);
    let hub = hub.then(|| ", and passes on what sites send to each other".to_owned());
    [parent, hub].into_iter().flatten().collect()
}

/// A gateway at a cloud, which nobody logs into, is told its place by the server, with the approval
/// of its routes: adds that to what must be true of a site's.
pub(crate) fn by_the_server(
    file: &File,
    numbering: &Numbering,
    site: usize,
    resources: &mut [Resource],
) {
    let through = through(file, numbering, site);
    for approval in resources.iter_mut().filter(|one| one.id.kind == Kind::Approval) {
        let words = [("passes_on", passes_on(file, site)), ("through", through.as_str())];
        let owned = words.map(|(key, word)| (key.to_owned(), word.to_owned()));
        approval.properties.extend(owned);
        approval.why += &told(file, site);
    }
}
