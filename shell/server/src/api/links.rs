//! What nodes report of their links.

use control::Available;
use serde::Serialize;

use super::handlers::Answer;
use super::{Call, Reach, Reply};
use crate::links::{Kept, Links, Step};
use crate::store::Node;

/// Links in one answer, about 2 MB of JSON.
const TOLD_MAX: usize = 20_000;

/// The answer, written as it is read: as values it would have names and words for each link.
#[derive(Serialize)]
struct Told {
    schema: u32,
    links: Vec<Shown>,
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<Step>>,
}

#[derive(Serialize)]
struct Shown {
    node: u64,
    peer: u64,
    path: &'static str,
    rtt_us: Option<u32>,
    loss: f64,
    rx_bytes: u64,
    tx_bytes: u64,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<ShownAvailable>,
}

/// What the way to the peer has left.
#[derive(Serialize)]
struct ShownAvailable {
    low_bps: u64,
    high_bps: u64,
    /// When that was measured.
    at: u64,
}

/// The latest word on each link, by both ends, between nodes that the caller sees; with `node=N`
/// those of one, and its last day.
pub(super) fn links(call: &Call) -> Answer {
    let mut nodes = call.app.store().nodes()?;
    let all: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    if let Reach::Own(name) = &call.reach {
        nodes.retain(|node| node.user.as_ref() == Some(name));
    }
    let wanted = call.number("node")?;
    let now = call.app.now();
    if let Some(id) = wanted {
        nodes.retain(|node| node.id == id);
    }
    let links = call.app.links();
    let mut told: Vec<Shown> = Vec::new();
    let mut left_out = 0;
    for Node { id, .. } in &nodes {
        let Some((at, found)) = links.of(*id, now) else { continue };
        // Who sees its own nodes alone is told of their links, and nothing of others but numbers.
        for link in found.iter().filter(|link| all.binary_search(&link.peer).is_ok()) {
            if told.len() < TOLD_MAX {
                told.push(Shown {
                    available: available(&links, *id, link, at),
                    ..shown(*id, link, at)
                });
            } else {
                left_out += 1;
            }
        }
    }
    let history = wanted.map(|id| match nodes.is_empty() {
        true => Vec::new(),
        false => links.history(id, now),
    });
    let told = Told { schema: 1, links: told, left_out, node: wanted, history };
    drop(links);
    Ok(Reply::Written(serde_json::to_string(&told).unwrap_or_default()))
}

const fn shown(node: u64, link: &Kept, at: u64) -> Shown {
    Shown {
        node,
        peer: link.peer,
        path: link.path.word(),
        rtt_us: link.rtt_us,
        loss: link.loss_ppm as f64 / 1e6,
        rx_bytes: link.rx_bytes,
        tx_bytes: link.tx_bytes,
        at,
        available: None,
    }
}

fn available(links: &Links, node: u64, link: &Kept, at: u64) -> Option<ShownAvailable> {
    let Available { low_bps, high_bps, age_s } = links.available(node, link.peer)?;
    Some(ShownAvailable { low_bps, high_bps, at: at.saturating_sub(age_s.into()) })
}
