//! What nodes report of their links.

use serde_json::{Value, json};

use super::handlers::Answer;
use super::{Call, Reach, Reply};
use crate::store::Node;

/// The latest word on each link, by both ends, between nodes that the caller sees; with `node=N`
/// the last day of one.
pub(super) fn links(call: &Call) -> Answer {
    let mut nodes = call.app.store().nodes()?;
    let all: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    if let Reach::Own(name) = &call.reach {
        nodes.retain(|node| node.user.as_ref() == Some(name));
    }
    let (wanted, now) = (call.number("node")?, call.app.now());
    let links = call.app.links();
    if let Some(id) = wanted {
        let is_seen = nodes.iter().any(|node| node.id == id);
        let history = if is_seen { links.history(id, now) } else { Vec::new() };
        return Ok(Reply::Json(json!({ "schema": 1, "node": id, "history": history })));
    }
    let mut shown: Vec<Value> = Vec::new();
    for Node { id, .. } in &nodes {
        let Some((at, found)) = links.of(*id, now) else { continue };
        // Who sees its own nodes alone is told of their links, and nothing of others but numbers.
        for link in found.iter().filter(|link| all.contains(&link.peer)) {
            shown.push(json!({
                "node": id,
                "peer": link.peer,
                "path": link.path,
                "rtt_us": link.rtt_us,
                "loss": f64::from(link.loss_ppm) / 1e6,
                "rx_bytes": link.rx_bytes,
                "tx_bytes": link.tx_bytes,
                "at": at,
            }));
        }
    }
    Ok(Reply::Json(json!({ "schema": 1, "links": shown })))
}
