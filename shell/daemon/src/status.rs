//! The status, as JSON with a documented form (docs/commands.md).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use control::limits::LINKS_MAX;
use control::{Available, LinkReport, Map, NodeId, Peer};
use host::driver::link_status;
use host::sockets::relay::StreamStatus;
use node::{Counters, Destination, PathStatus, PeerStatus, ReachStatus, Status, Weather};
use noise::{Instant, PublicKey};
use serde_json::{Value, json};

use crate::bandwidth::Bandwidths;
use crate::member::stun_names;
use crate::member::{Daemon, Fault};
use crate::plan::shared_addresses;
use crate::protocol::SCHEMA;

fn state(daemon: &Daemon) -> &'static str {
    let kept = &daemon.state.kept;
    match &daemon.map {
        _ if kept.member.is_none() => "no-network",
        _ if !kept.wanted => "stopped",
        _ if daemon.refusal.is_some() => "refused",
        _ if daemon.link.is_some() => "needs-sign-in",
        None => "starting",
        Some(map) if !map.me.approved => "needs-approval",
        Some(_) => "running",
    }
}

fn health(daemon: &Daemon) -> Vec<String> {
    let refusal = daemon.refusal.as_ref().map(|refusal| refusal.detail.clone());
    let twin = daemon.twin();
    // Who belongs to no network has no server that could be away.
    let trouble = daemon.trouble.clone().filter(|_| daemon.state.kept.member.is_some());
    let texts = [&refusal, &twin, &trouble, &daemon.complaint];
    let texts = texts.into_iter().flatten().chain(daemon.gate.said());
    let texts = texts.chain(daemon.circuit_trouble()).cloned();
    let texts = texts.chain(daemon.proxies_to_mend()).chain(daemon.lan_trouble());
    texts.chain(daemon.map.as_deref().into_iter().flat_map(shared_addresses)).collect()
}

/// What `warren status --json` prints.
pub(crate) fn status(daemon: &mut Daemon) -> Result<Value, Fault> {
    let circuits = daemon.shown_circuits()?;
    let exit = daemon.way_out()?;
    let (node, now, links, paths, drops, reach, streams) = daemon.remote.call(|desk| {
        let status = desk.status();
        let (node, clock, _) = desk.node();
        let now = clock.now;
        let path = |peer: &PeerStatus| Some((peer.key, node.path(&peer.key, now)?));
        let paths: BTreeMap<PublicKey, PathStatus> = status.peers.iter().filter_map(path).collect();
        let known = |peer: &PeerStatus| Some((peer.key, node.weather(&peer.key)?));
        let links: BTreeMap<PublicKey, Weather> = status.peers.iter().filter_map(known).collect();
        let reach = node.reach();
        let drops = desk.drops();
        let relays = desk.relays();
        (status, now, links, paths, drops, reach, relays)
    })?;
    let carriers = carriers(&streams);
    let kept = &daemon.state.kept;
    let urls: Vec<String> =
        kept.member.iter().flat_map(|member| &member.urls).map(ToString::to_string).collect();
    let bandwidths = &daemon.bandwidths;
    let seen = Seen { node: &node, now, links: &links, paths: &paths, reach: &reach, bandwidths };
    let peers = peers(daemon.map.as_deref(), &seen, &carriers, &daemon.plan.behind);
    let me = daemon.map.as_deref().map(|map| &map.me);
    Ok(json!({
        "schema": SCHEMA,
        "state": state(daemon),
        "version": env!("CARGO_PKG_VERSION"),
        "server": {
            "urls": urls, "in_touch": daemon.is_in_touch, "trying": trying(daemon),
            "carrier": server_carrier(daemon),
        },
        "sign_in": daemon.link.as_ref().map(|link| {
            json!({ "url": link.url, "expires_unix_s": link.expires_unix_s })
        }),
        "interface": daemon.interface.name(),
        "port": node.listen_port,
        "health": health(daemon),
        "settings": kept.settings,
        "exit": exit,
        "domain": daemon.map.as_deref().map(|map| map.dns.domain.clone()),
        "self": {
            "id": me.map(|me| me.id.0),
            "name": me.map(|me| me.name.clone()),
            "addresses": me.map(|me| me.addresses.clone()).unwrap_or_default(),
            "key": kept.node.public().to_string(),
            "online": daemon.is_in_touch,
            "tags": me.map(|me| me.tags.clone()).unwrap_or_default(),
            "routes": me.map(|me| me.routes.clone()).unwrap_or_default(),
            "ways": me.map(|me| me.ways.clone()),
            "approved": me.is_some_and(|me| me.approved),
            "expires_unix_s": me.and_then(|me| me.expires_unix_s),
            "path": no_path(),
            "rtt_ms": null,
            "rx_bytes": node.peers.iter().map(|peer| peer.rx_bytes).sum::<u64>(),
            "tx_bytes": node.peers.iter().map(|peer| peer.tx_bytes).sum::<u64>(),
        },
        "peers": peers,
        "port_mapping": daemon.port_mapping(),
        "relays": relays(daemon, &streams),
        "circuits": circuits,
        "mdns": daemon.shown_mdns(),
        "shared": daemon.shown_sharing(),
        "drops": drops,
    }))
}

/// What the server is told of links: those on which something was heard.
pub(crate) fn links(daemon: &mut Daemon) -> Result<Vec<LinkReport>, Fault> {
    let status = status(daemon)?;
    let peers = status["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_used = |peer: &&Value| !peer["last_handshake_unix_s"].is_null();
    let report = |peer: &Value| {
        let loss = peer["link"]["out"]["loss_before"].as_f64().unwrap_or(0.0);
        Some(LinkReport {
            peer: peer["id"].as_u64()?,
            path: peer["path"]["kind"].as_str()?.to_owned(),
            rtt_us: peer["rtt_ms"].as_f64().map(|ms| (ms * 1000.0) as u32),
            loss_ppm: (loss.clamp(0.0, 1.0) * 1e6) as u32,
            rx_bytes: peer["rx_bytes"].as_u64().unwrap_or(0),
            tx_bytes: peer["tx_bytes"].as_u64().unwrap_or(0),
            available: available(&peer["bandwidth"]),
        })
    };
    Ok(peers.iter().filter(is_used).filter_map(report).take(LINKS_MAX).collect())
}

/// What the server is told of a path's bandwidth: a range, if one was found.
fn available(found: &Value) -> Option<Available> {
    Some(Available {
        low_bps: found["low_bps"].as_u64()?,
        high_bps: found["high_bps"].as_u64()?,
        age_s: found["age_s"].as_f64()? as u32,
    })
}

/// Addresses of the server that were tried since one answered.
fn trying(daemon: &Daemon) -> Vec<SocketAddr> {
    daemon.membership.as_ref().map(dial::Membership::trying).unwrap_or_default()
}

/// What the node knows of its peers.
struct Seen<'a> {
    node: &'a Status,
    now: Instant,
    links: &'a BTreeMap<PublicKey, Weather>,
    paths: &'a BTreeMap<PublicKey, PathStatus>,
    reach: &'a ReachStatus,
    bandwidths: &'a Bandwidths,
}

fn peers(
    map: Option<&Map>,
    seen: &Seen<'_>,
    carriers: &Carriers,
    behind: &BTreeMap<NodeId, Option<NodeId>>,
) -> Vec<Value> {
    let mut peers = Vec::new();
    for peer in map.into_iter().flat_map(|map| &map.peers) {
        let known = seen.node.peers.iter().find(|known| known.key == peer.key);
        let mut value = json!({
            "id": peer.id.0,
            "name": peer.name,
            "addresses": peer.addresses,
            "key": peer.key.to_string(),
            "online": peer.online,
            "tags": peer.tags,
            "routes": peer.routes,
            "gateway": peer.gateway.or_else(|| *behind.get(&peer.id)?).map(|id| name_of(map, id)),
        });
        let path = seen.paths.get(&peer.key);
        add_path(&mut value, known, path, map, carriers);
        let rtt_at = path.and_then(|path| path.rtt_at).filter(|_| !value["rtt_ms"].is_null());
        value["rtt_age_s"] = json!(rtt_at.map(|at| seen.now.since(at).as_secs_f64()));
        value["path"]["why"] = json!(match peer.gateway {
            Some(_) => "a plain WireGuard peer, reached through its gateway",
            None if behind.contains_key(&peer.id) => "reached through another: a hub or a parent",
            None => reason(&value["path"], peer, seen.reach),
        });
        let link = seen.links.get(&peer.key);
        link_status::add(&mut value, known, link, seen.now);
        value["bandwidth"] = seen.bandwidths.shown(&peer.key);
        value["quality"] = json!(quality(&value, || link_status::quality(link, seen.now)));
        peers.push(value);
    }
    peers
}

/// What a node is called: this one, or a peer.
fn name_of(map: Option<&Map>, id: NodeId) -> Option<String> {
    let map = map?;
    if map.me.id == id {
        return Some(map.me.name.clone());
    }
    map.peer(id).map(|peer| peer.name.clone())
}

fn no_path() -> Value {
    json!({ "kind": "none", "was": null, "carrier": null, "endpoint": null, "relay": null,
            "mtu": null, "why": null })
}

/// One word for a peer: how its link is, or why there is none.
fn quality(peer: &Value, link: impl FnOnce() -> &'static str) -> &'static str {
    let is_reached = peer["path"]["kind"] != "none";
    let is_unused = peer["tx_bytes"].as_u64() == Some(0);
    match (is_reached, peer["online"] == true, &peer["last_handshake_unix_s"]) {
        (true, _, _) => link(),
        (false, true, Value::Null) if !is_unused => "unreached",
        (false, true, _) => "idle",
        (false, false, _) => "offline",
    }
}

/// Why the path is the one that it is, as far as this end knows.
fn reason(path: &Value, peer: &Peer, reach: &ReachStatus) -> &'static str {
    match path["kind"].as_str().unwrap_or_default() {
        "direct" => "the best of the direct paths that answer",
        "relay" if reach.udp_works == Some(false) => "no UDP leaves this network",
        "relay" if peer.endpoints.is_empty() => {
            "the peer names no place where it is reached by UDP"
        }
        "relay" if reach.varies == Some(true) => {
            "no direct path answers; this network's translator maps by destination"
        }
        "relay" => "no direct path answers",
        _ if peer.online => "nothing was sent lately, or no path answers",
        _ => "the peer is not connected to the server, and no path answers",
    }
}

/// By what each relay is reached now.
type Carriers = BTreeMap<u32, &'static str>;

fn carriers(streams: &[StreamStatus]) -> Carriers {
    streams.iter().map(|stream| (stream.relay, stream.carrier.name())).collect()
}

fn add_path(
    value: &mut Value,
    known: Option<&PeerStatus>,
    path: Option<&PathStatus>,
    map: Option<&Map>,
    carriers: &Carriers,
) {
    // Who has never answered is not reached, wherever handshakes are sent.
    let is_known = known.is_some_and(|known| known.last_handshake.is_some());
    let before = path.filter(|_| is_known);
    let path = before.filter(|path| path.is_alive);
    value["path"] = path.map_or_else(no_path, |path| match path.to {
        Destination::Udp(endpoint) => json!({
            "kind": "direct", "carrier": "udp", "endpoint": endpoint.remote.to_string(),
            "relay": null, "mtu": path.mtu_bytes,
        }),
        Destination::Carried(carried) => json!({
            "kind": "direct", "carrier": carried.by.to_string(),
            "endpoint": carried.at.remote.ip().to_string(), "relay": null, "mtu": path.mtu_bytes,
        }),
        Destination::Relay(relayed) => {
            let relay = map.and_then(|map| map.relays.iter().find(|r| r.id == relayed.relay));
            json!({
                "kind": "relay", "endpoint": null,
                "carrier": carriers.get(&relayed.relay).copied().unwrap_or("https"),
                "relay": relay.map(|relay| relay.url.to_string()), "mtu": path.mtu_bytes,
            })
        }
    });
    let was = before.filter(|_| path.is_none()).map(|before| match before.to {
        Destination::Udp(_) | Destination::Carried(_) => "direct",
        Destination::Relay(_) => "relay",
    });
    value["path"]["was"] = json!(was);
    let rtt_us = path.and_then(|path| path.rtt_us);
    value["rtt_ms"] = json!(rtt_us.map(|us| f64::from(us) / 1000.0));
    let handshake = known.and_then(|known| known.last_handshake);
    value["last_handshake_unix_s"] = json!(handshake.map(|at| at.as_secs()));
    value["rx_bytes"] = json!(known.map_or(0, |known| known.rx_bytes));
    value["tx_bytes"] = json!(known.map_or(0, |known| known.tx_bytes));
}

/// The relays of the map: how each is reached, and what became of datagrams on the stream there is.
fn relays(daemon: &Daemon, streams: &[StreamStatus]) -> Vec<Value> {
    let known = daemon.relays.as_ref().map(|relays| relays.states()).unwrap_or_default();
    let told = known.iter().map(|(id, state)| {
        let stream = streams.iter().find(|stream| stream.relay == *id);
        let rtt_us = stream.and_then(|stream| stream.rtt_us);
        let tries = state.tries;
        json!({
            "id": id,
            "url": daemon.map.as_deref().and_then(|map| url_of(map, *id)),
            "connected": state.is_connected,
            "carrier": stream.map(|stream| stream.carrier.name()),
            "rtt_ms": rtt_us.map(|us| us as f64 / 1000.0),
            "trouble": state.trouble,
            "streams": { "https": tries.https, "quic": tries.quic, "icmp": tries.icmp },
            "quic_unanswered": tries.quic_unanswered,
            "quic_broken": tries.quic_broken,
            "stream": stream.map(datagrams),
        })
    });
    told.collect()
}

fn datagrams(stream: &StreamStatus) -> Value {
    let counters = &stream.counters;
    json!({
        "sent": counters.sent,
        "received": stream.received,
        "queued": stream.queued,
        "drops": {
            "stale": counters.stale,
            "overflow": counters.overflow,
            "refused": counters.refused,
            "malformed": stream.dropped,
        },
    })
}

/// What the network lets through.
pub(crate) fn netcheck(daemon: &mut Daemon) -> Result<Value, Fault> {
    let (port, streams, reach) = daemon
        .remote
        .call(|desk| (desk.status().listen_port, desk.relays(), desk.node().0.reach()))?;
    let relays = relays(daemon, &streams);
    let local = crate::system::local_addresses(daemon.interface.name()).unwrap_or_default();
    Ok(json!({
        "schema": SCHEMA,
        "port": port,
        "clock_off_s": daemon.seen.clock_off_s(),
        "local": local,
        "server": {
            "in_touch": daemon.is_in_touch, "trouble": daemon.trouble,
            "carrier": server_carrier(daemon),
        },
        "udp": reach.udp_works,
        "mapped": reach.mapped,
        "mapping_varies": reach.varies,
        "endpoints": reach.endpoints,
        "port_mapping": daemon.port_mapping(),
        "relays": relays,
        "home_relay": daemon.home.relay(),
        "stun": daemon.map.as_deref().map(stun_names).unwrap_or_default(),
        "stun_servers": reach.servers.iter().map(stun_server).collect::<Vec<_>>(),
    }))
}

/// By what the server is spoken to.
fn server_carrier(daemon: &Daemon) -> Option<&'static str> {
    let name = if daemon.pings.worked() { "icmp" } else { "https" };
    daemon.is_in_touch.then_some(name)
}

fn url_of(map: &Map, relay: u32) -> Option<String> {
    map.relays.iter().find(|known| known.id == relay).map(|known| known.url.to_string())
}

fn stun_server((address, rtt_us): &(SocketAddr, u32)) -> Value {
    json!({ "address": address, "rtt_ms": f64::from(*rtt_us) / 1000.0 })
}

/// What helps to find out what is wrong.
pub(crate) fn debug(daemon: &mut Daemon) -> Result<Value, Fault> {
    let counters = daemon.remote.call(|desk| counters(desk.node().0.counters()))?;
    let status = status(daemon)?;
    let map = daemon.map.as_deref().map(serde_json::to_value).and_then(Result::ok);
    Ok(json!({
        "schema": SCHEMA,
        "status": status,
        "netcheck": netcheck(daemon)?,
        "map": map,
        "counters": counters,
        "plan": format!("{:#?}", daemon.plan),
        "log": (daemon.last_lines)(),
    }))
}

/// Counters of the packets' way, by name.
fn counters(counters: &Counters) -> Value {
    let drops: BTreeMap<&str, u64> =
        counters.drops().map(|(reason, count)| (reason.name(), count)).collect();
    json!({
        "packets_out": counters.packets_out,
        "sealed": counters.sealed,
        "datagrams_in": counters.datagrams_in,
        "delivered": counters.delivered,
        "framed": counters.framed,
        "keepalives_in": counters.keepalives_in,
        "frames_in": counters.frames_in,
        "handshakes_in": counters.handshakes_in,
        "reach_in": counters.reach_in,
        "drops": drops,
    })
}
