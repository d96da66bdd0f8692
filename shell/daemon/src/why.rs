//! `warren why`: what stands between this node and an address, in one answer: who is meant, which
//! rule speaks, which route leads there, by which path, and what that path does to packets.
//!
//! A node knows the rules that it enforces itself, so one of the two ends must lie at it; about
//! any two nodes the server answers (`warren why --data`). The other end enforces the same rules,
//! compiled from the same policy.

use std::net::IpAddr;

use control::{Map, Prefix};
use policy::{Rule, Rules, in_family, pair};
use serde_json::{Value, json};

use crate::called::is_called;
use crate::member::{Daemon, Fault};
use crate::plan::Plan;
use crate::protocol::{SCHEMA, refused};
use crate::{status, system};

/// Peers that are named where a name is not known, at most.
const NEAR_MAX: usize = 8;

/// What is asked about.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Who sends: this node if it is not said.
    pub(crate) source: Option<String>,
    pub(crate) destination: String,
    /// IP protocol number.
    pub(crate) protocol: u8,
    /// Without a meaning where the protocol has no ports.
    pub(crate) port: u16,
}

/// An end of the way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    /// The node there, or the node that routes for it.
    name: String,
    /// The peer's number; none if it is this node.
    peer: Option<u64>,
    /// Where packets come from or go to; of both families if a name was said.
    addresses: Vec<IpAddr>,
    /// What leads there, if it is not an address of the node itself.
    route: Option<Prefix>,
}

/// Answers.
pub(crate) fn why(daemon: &mut Daemon, question: &Question) -> Result<Value, Fault> {
    let Some(map) = &daemon.map else {
        return Ok(refused("this node is not running; see `warren status`"));
    };
    let source = question.source.as_deref().unwrap_or(&map.me.name);
    let ends = end(map, &daemon.plan, source)
        .and_then(|from| Ok((from, end(map, &daemon.plan, &question.destination)?)));
    let (from, to) = match ends {
        Ok(ends) => ends,
        Err(why) => return Ok(refused(why)),
    };
    let far = match (from.peer, to.peer) {
        (None, Some(_)) => &to,
        (Some(_), None) => &from,
        (None, None) => return Ok(refused("both ends are at this node; nothing crosses a link")),
        (Some(_), Some(_)) => {
            return Ok(refused(
                "both ends are elsewhere, and a node knows only its own rules; ask at one of the \
                 two, or the server: warren why --data DIR",
            ));
        }
    };
    let Some((source, destination)) = pair(&from.addresses, &to.addresses) else {
        return Ok(refused("the two have no address of the same family"));
    };
    let protocol = in_family(question.protocol, destination);
    let is_out = from.peer.is_none();
    let rules = Rules::read(&map.policy.rules).unwrap_or_else(|_| Some(Rules::default()));
    let policy = judged(rules.as_ref(), is_out, (source, destination), (protocol, question.port));
    let mut answer = json!({
        "schema": SCHEMA,
        "source": { "node": from.name, "address": source },
        "destination": { "node": to.name, "address": destination },
        "protocol": protocol,
        "port": question.port,
        "policy": policy,
        "route": { "peer": far.name, "prefix": far.route },
    });
    let is_default = is_out && far.route.is_some_and(|route| route.bits() == 0);
    let by_exit = is_default.then_some(destination);
    let name = far.name.clone();
    let far = far.peer;
    let status = status::status(daemon)?;
    let mut peers = status["peers"].as_array().into_iter().flatten();
    let peer = peers.find(|peer| peer["id"].as_u64() == far).cloned().unwrap_or_default();
    for field in
        ["online", "path", "rtt_ms", "rtt_age_s", "tx_bytes", "link", "link_state", "link_why"]
    {
        answer[field] = peer[field].clone();
    }
    // The machine is asked, and what we think to have set there is not believed.
    daemon.gate.look();
    let hindrances = match is_out {
        true => system::astray(daemon.interface.name(), destination).into_iter().collect(),
        false => daemon.gate.hindrances(to.route.is_some()),
    };
    answer["machine"] = json!(hindrances);
    answer["verdict"] = json!(verdict(&answer, &name, by_exit));
    Ok(answer)
}

/// Who is meant: a node by name or address, or who routes for an address.
fn end(map: &Map, plan: &Plan, called: &str) -> Result<End, String> {
    let address: Option<IpAddr> = called.parse().ok();
    let of = |own: &[IpAddr]| address.map_or_else(|| own.to_vec(), |address| vec![address]);
    let label = called.split('.').next().unwrap_or_default();
    let me = &map.me;
    let is_me = match address {
        Some(address) => me.addresses.contains(&address),
        None => me.name.eq_ignore_ascii_case(label),
    };
    if is_me {
        let addresses = of(&me.addresses);
        return Ok(End { name: me.name.clone(), peer: None, addresses, route: None });
    }
    if let Some(peer) = map.peers.iter().find(|peer| is_called(peer, called)) {
        let addresses = of(&peer.addresses);
        let way = peer.gateway.filter(|gateway| *gateway != me.id).unwrap_or(peer.id);
        let name = peer.name.clone();
        let way = Some(way.0);
        return Ok(End { name, peer: way, addresses, route: None });
    }
    let Some(address) = address else { return Err(nobody(map, called)) };
    let mine = me.routes.iter().filter(|route| route.contains(address)).map(|route| (*route, None));
    let theirs = plan.peers.values().flat_map(|peer| {
        let fits = peer.allowed.iter().filter(move |prefix| prefix.contains(address));
        fits.map(move |prefix| (*prefix, Some(peer.id)))
    });
    let Some((route, id)) = mine.chain(theirs).max_by_key(|(route, _)| route.bits()) else {
        return Err(no_route(map, address));
    };
    let by_id = |id| map.peers.iter().find(|peer| peer.id == id).map(|peer| peer.name.clone());
    let name = id.map_or_else(|| Some(me.name.clone()), by_id).unwrap_or_default();
    let peer = id.map(|id| id.0);
    Ok(End { name, peer, addresses: vec![address], route: Some(route) })
}

/// Why a name is no end of the way, and who knows more.
fn nobody(map: &Map, called: &str) -> String {
    if called.contains('@') {
        return format!(
            "{called} is a user, and a node knows other nodes only; say which node, or ask the \
             server about the first of the user's: warren why --data DIR {called} DST"
        );
    }
    let near = map.peers.iter().map(|peer| peer.name.as_str()).take(NEAR_MAX);
    let near: Vec<&str> = near.collect();
    format!(
        "no peer of this node is called {called:?} (there are {}): there is none, the policy lets \
         the two not meet, or the name stands in `hosts` of the policy, which the server knows: \
         warren why --data DIR",
        if near.is_empty() { "none".to_owned() } else { near.join(", ") }
    )
}

fn no_route(map: &Map, address: IpAddr) -> String {
    let offers = |peer: &&control::Peer| peer.routes.iter().any(|route| route.contains(address));
    match map.peers.iter().find(offers) {
        Some(peer) => format!(
            "{} routes for {address}, but this node does not use it: `warren set --accept-routes` \
             for subnets, `warren set --exit-node {}` for everything else",
            peer.name, peer.name
        ),
        None => format!(
            "no node has {address}, and none that this node may talk to routes for it; is the \
             route approved? `warren node show` on the server tells"
        ),
    }
}

/// What the rules say of a first packet. No rules at all mean that no policy was ever set.
fn judged(rules: Option<&Rules>, is_out: bool, ends: (IpAddr, IpAddr), asked: (u8, u16)) -> Value {
    let (source, destination) = ends;
    let (protocol, port) = asked;
    let Some(rules) = rules else {
        return json!({ "allowed": true, "line": null, "others": [],
                       "why": "there is no policy, so everything is allowed" });
    };
    let rules = if is_out { &rules.outward } else { &rules.inward };
    if let Some(rule) = rules.iter().find(|r| r.allows(source, destination, protocol, port)) {
        let why = format!("line {} of the policy allows it", rule.line);
        let mut allowing = rules.iter().filter(|r| r.allows(source, destination, protocol, port));
        let is_left_alone = link::PORTS_LEFT_ALONE.contains(&port) || !matches!(protocol, 6 | 17);
        let compress = !is_left_alone && allowing.any(|rule| rule.compress);
        return json!({ "allowed": true, "line": rule.line, "others": [], "why": why,
                       "compress": compress });
    }
    let joins = |r: &&Rule| r.sources.contains(source) && r.destinations.contains(destination);
    let services = rules.iter().filter(joins).flat_map(|rule| &rule.services);
    let mut others: Vec<String> = services.map(ToString::to_string).collect();
    others.dedup();
    let why = if others.is_empty() {
        "no rule lets the one talk to the other".to_owned()
    } else {
        format!("only other protocols or ports are allowed: {}", others.join(" "))
    };
    json!({ "allowed": false, "line": null, "others": others, "why": why })
}

/// All of it in a plain sentence, the first hindrance first. `by_exit` is an address that only a
/// default route leads to.
fn verdict(answer: &Value, name: &str, by_exit: Option<IpAddr>) -> String {
    if answer["policy"]["allowed"] != true {
        return "packets are dropped at both ends: the policy does not allow it".to_owned();
    }
    let hindrances: Vec<&str> =
        answer["machine"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !hindrances.is_empty() {
        return format!("this machine is in the way, or may be: {}", hindrances.join("; "));
    }
    if let Some(address) = by_exit.filter(|address| !is_of_internet(*address)) {
        return format!(
            "packets do not reach {address}: the exit {name} leads to the Internet only, and this \
             is a private address; let a node there say `warren set --advertise-routes PREFIX`"
        );
    }
    let path = &answer["path"];
    let is_idle = answer["link_state"] == "idle" || path["was"].is_string();
    let is_unused = answer["tx_bytes"].as_u64() == Some(0);
    let end = by_exit.map_or_else(|| name.to_owned(), |_| format!("the exit {name}"));
    let onward =
        by_exit.map_or_else(String::new, |to| format!(", and {name} sends them on to {to}"));
    match (path["kind"].as_str().unwrap_or_default(), answer["online"] == true) {
        ("direct", _) => format!("packets reach {end} by a direct path{onward}"),
        ("relay", _) if path["carrier"] == "icmp" => format!(
            "packets reach {end} by a relay{onward}, in pings: nothing else leads out of this \
             network"
        ),
        ("relay", _) => format!("packets reach {end} by a relay{onward}"),
        (_, true) if is_idle => format!(
            "packets may reach {name}, which is there: nothing was sent for a while, and the next \
             packet opens the path again"
        ),
        (_, true) if is_unused => format!(
            "packets may reach {name}, which is there: nothing was sent yet, and the first packet \
             opens a path"
        ),
        (_, true) => format!(
            "no path to {name} has answered yet; `warren ping {name}` tries, `warren netcheck` at \
             both ends tells what is let through"
        ),
        (_, false) => format!("{name} is not there: it is not connected to the server"),
    }
}

/// Whether an exit leads to an address: to none that is private, of one network, or of no machine.
fn is_of_internet(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            !(v4.is_private() || v4.is_link_local() || v4.is_loopback() || is_shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use policy::{Compiled, Directory, Node, NodeId, Policy};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// What node 1 enforces under a policy of which it may begin SSH to node 2.
    fn rules() -> Rules {
        let text = r#"{ "hosts": { "a": "100.64.0.1", "b": "100.64.0.2" },
            "acls": [{ "action": "accept", "src": ["a"], "dst": ["b:22", "b:80-81"] }],
            "grants": [{ "src": ["a"], "dst": ["b"], "ip": ["tcp:22-80", "icmp:*"],
                         "compress": true }] }"#;
        let (policy, _) = Policy::parse(text.as_bytes()).expect("a policy");
        let node = |id: u8| Node {
            id: NodeId(u64::from(id)),
            name: format!("n{id}"),
            addresses: vec![IpAddr::from([100, 64, 0, id])],
            owner: None,
            tags: Vec::new(),
            routes: Vec::new(),
        };
        let directory = Directory { nodes: vec![node(1), node(2)], ..Directory::default() };
        Compiled::new(&policy, &directory).expect("compiles").rules_for(NodeId(1))
    }

    #[test]
    fn the_rule_that_allows_is_named_and_what_else_is_allowed_and_what_is_compressed() {
        let ends = (ip("100.64.0.1"), ip("100.64.0.2"));
        let ssh = judged(Some(&rules()), true, ends, (6, 22));
        assert_eq!((&ssh["allowed"], &ssh["line"]), (&json!(true), &json!(2)));
        let web = judged(Some(&rules()), true, ends, (6, 443));
        assert_eq!(web["allowed"], false);
        let others: Vec<&str> =
            web["others"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert!(others.contains(&"tcp:22") && others.contains(&"tcp:80-81"), "{others:?}");
        let back = judged(Some(&rules()), false, (ends.1, ends.0), (6, 22));
        assert_eq!(back["why"], "no rule lets the one talk to the other");
        assert_eq!(judged(None, true, ends, (17, 9))["allowed"], true);
        for (asked, compress) in [((6, 80), true), ((6, 81), false), ((6, 22), false)] {
            let judged = judged(Some(&rules()), true, ends, asked);
            assert_eq!((&judged["allowed"], &judged["compress"]), (&json!(true), &json!(compress)));
        }
        assert_eq!(judged(Some(&rules()), true, ends, (1, 0))["compress"], false);
    }

    /// Trials 0.6 and B: what is idle is reached, and what an exit does not lead to is not.
    #[test]
    fn the_verdict_is_what_comes_of_a_packet() {
        let answer = |allowed: bool, online: bool, kind: &str, was: Value, state: &str| {
            json!({ "policy": { "allowed": allowed }, "online": online,
                    "path": { "kind": kind, "was": was }, "link_state": state })
        };
        let direct = answer(true, true, "direct", Value::Null, "frames");
        for (answer, by_exit, said) in [
            (direct.clone(), None, "packets reach gw by a direct path"),
            (
                answer(true, true, "relay", Value::Null, "plain"),
                None,
                "packets reach gw by a relay",
            ),
            (answer(false, true, "direct", Value::Null, "frames"), None, "packets are dropped at"),
            (
                answer(true, true, "none", json!("relay"), "idle"),
                None,
                "packets may reach gw, which",
            ),
            (answer(true, true, "none", Value::Null, "none"), None, "no path to gw has answered"),
            (answer(true, false, "none", Value::Null, "none"), None, "gw is not there"),
            (direct.clone(), Some("10.71.1.3"), "packets do not reach 10.71.1.3: the exit gw"),
            (direct.clone(), Some("fd00::9"), "packets do not reach fd00::9"),
            (
                direct,
                Some("203.0.113.9"),
                "packets reach the exit gw by a direct path, and gw sends",
            ),
        ] {
            let verdict = verdict(&answer, "gw", by_exit.map(ip));
            assert!(verdict.starts_with(said), "{verdict}");
        }
    }
}
