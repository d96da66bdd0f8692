//! Plain peers, which a node with a daemon carries: phones, routers, whatever speaks WireGuard.

use control::{Prefix, text};
use noise::PublicKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::handlers::{Answer, lifetime, may_give, shown};
use super::{Call, Problem, Reply};
use crate::store::{NewPeer, Node};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    #[serde(with = "text::key")]
    key: PublicKey,
    gateway: u64,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    expires_in_s: Option<u64>,
}

/// A plain peer and what its file says of the network.
fn one(call: &Call, peer: &Node, gateway: &Node) -> Value {
    let shown_peer = shown(call, peer);
    let network = call.app.network();
    let ranges: Vec<Prefix> = network.ranges().to_vec();
    json!({
        "schema": 1,
        "peer": shown_peer,
        "gateway": {
            "id": gateway.id,
            "name": gateway.name,
            "key": gateway.node_key.to_string(),
            "addresses": network.addresses(gateway),
            "endpoints": gateway.host.endpoints,
        },
        "network": { "ranges": ranges, "domain": network.domain() },
    })
}

pub(super) fn add(call: &Call) -> Answer {
    let wanted: Wanted = call.json()?;
    may_give(call, wanted.user.as_deref(), &wanted.tags)?;
    let gateway = call.app.store().node(wanted.gateway)?;
    let new = NewPeer {
        name: wanted.name,
        key: wanted.key,
        gateway: wanted.gateway,
        user: wanted.user,
        tags: wanted.tags,
        lifetime_s: lifetime(wanted.expires_in_s)?,
    };
    let peer = call.app.write_node(true, |store, now| store.add_peer(&new, &call.actor, now))?;
    Ok(Reply::Created(one(call, &peer, &gateway)))
}

pub(super) fn list(call: &Call) -> Answer {
    let nodes = call.app.store().nodes()?;
    let name = |id| nodes.iter().find(|node| node.id == id).map(|node| node.name.clone());
    let peers = nodes.iter().filter_map(|node| {
        let gateway = node.gateway?;
        let mut peer = shown(call, node);
        let (online, _) = call.app.network().presence(gateway);
        peer["gateway"] = json!({ "id": gateway, "name": name(gateway), "online": online });
        Some(peer)
    });
    Ok(Reply::Json(json!({ "schema": 1, "peers": peers.collect::<Vec<_>>() })))
}

pub(super) fn remove(call: &Call) -> Answer {
    if call.app.store().node(call.id)?.gateway.is_none() {
        let why = "it has a daemon of its own; `warren node remove` takes it out";
        return Err(Problem::new(400, "this node is no plain peer", why));
    }
    call.app.dismiss_node(call.id, &call.actor)?;
    Ok(Reply::Empty)
}
