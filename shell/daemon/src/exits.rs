//! Whether a node is an exit, whether rules let anything through it, and which one is used where
//! any is meant.

use control::{Map, NodeId, Peer, Prefix};
use policy::{Ranges, Rules};
use routes::Health;
use serde_json::{Value, json};

use crate::Settings;
use crate::called::is_called;
use crate::plan::Plan;
use crate::settings::is_auto;

/// What to tell where there is none.
const NONE: &str = "no exit node is there; one offers itself with `warren set \
                    --advertise-exit-node` and is approved with `warren route approve`";
/// Exits that an answer names, at most.
const NAMED_MAX: usize = 8;

/// Whether the settings leave it to this node which exit it uses.
pub(crate) fn is_free(settings: &Settings) -> bool {
    settings.exit_node.as_deref().is_some_and(is_auto)
}

fn leads_out(peer: &&Peer) -> bool {
    peer.routes.iter().any(Prefix::is_default)
}

/// Why `called` is no exit of this network; `None` if it is one.
pub(crate) fn no_exit(map: &Map, called: &str) -> Option<String> {
    let me = &map.me;
    if is_auto(called) {
        return (!map.peers.iter().any(|peer| leads_out(&peer))).then(|| NONE.to_owned());
    }
    if let Some(peer) = map.peers.iter().find(|peer| is_called(peer, called)) {
        let name = &peer.name;
        return (!leads_out(&peer)).then(|| {
            // Exactly what is named is approved: what is in use stays only if it is named, too.
            let known: String = peer.routes.iter().map(|route| format!("{route} ")).collect();
            format!(
                "{name} is no exit node: its default routes are not offered or not approved; there \
                 `warren set --advertise-exit-node`, on the server `warren route approve {name} \
                 {known}0.0.0.0/0 ::/0`"
            )
        });
    }
    let is_me = me.name.eq_ignore_ascii_case(called.split('.').next().unwrap_or_default())
        || called.parse().is_ok_and(|address| me.addresses.contains(&address));
    if is_me {
        return Some(format!("{called} is this node, which is no exit for itself"));
    }
    let exits: Vec<&str> =
        map.peers.iter().filter(leads_out).map(|peer| &peer.name[..]).take(NAMED_MAX).collect();
    let known = match exits.is_empty() {
        true => NONE.to_owned(),
        false => format!("exit nodes are: {}", exits.join(", ")),
    };
    Some(format!("no node that this one may talk to is called {called:?}; {known}"))
}

/// What to tell of rules that let nothing pass to the Internet, where an exit leads there.
pub(crate) fn no_internet(rules: &str, exit: &str) -> Option<String> {
    let Ok(Some(rules)) = Rules::read(rules) else { return None };
    let internet = Ranges::internet();
    let leads_out = rules.outward.iter().any(|rule| rule.destinations.intersects(&internet));
    let exit = if is_auto(exit) { "any exit node" } else { &format!("the exit node {exit}") };
    (!leads_out).then(|| {
        format!(
            "nothing is reached through {exit}: the policy lets this node reach no \
             address of the Internet (`*` is nodes and subnets); name autogroup:internet in the \
             dst of a rule, or `warren set --exit-node=`"
        )
    })
}

/// Why an exit is the one that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Why {
    pub(crate) text: &'static str,
    /// It does not answer.
    pub(crate) is_dead: bool,
}

/// A peer that leads out now, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Led<'m> {
    pub(crate) peer: &'m Peer,
    /// How its path answers; none if it does not.
    pub(crate) path: Option<Health>,
    pub(crate) rtt_us: Option<u32>,
}

/// The way out as it is now: null where no exit is wanted. Who leads out by IPv4 comes first.
pub(crate) fn shown(
    map: Option<&Map>,
    settings: &Settings,
    led: [Option<Led<'_>>; 2],
    chosen: Why,
) -> Value {
    let Some(wanted) = &settings.exit_node else { return Value::Null };
    let used = led[0].or(led[1]);
    let kind = match used.and_then(|led| led.path) {
        Some(Health::Direct) => "direct",
        Some(Health::Relayed) => "relay",
        Some(Health::Dead) | None => "none",
    };
    let is_away = used.is_none_or(|led| kind == "none" && !led.peer.online);
    let why = match map.and_then(|map| no_exit(map, wanted)) {
        Some(none) => none,
        None if !is_auto(wanted) => "it was named".to_owned(),
        None if is_away || chosen.is_dead => "no exit node answers".to_owned(),
        None => chosen.text.to_owned(),
    };
    let rtt_us = used.and_then(|led| led.rtt_us);
    json!({
        "wanted": wanted,
        "through": used.map(|led| &led.peer.name),
        "through_v6": led[1].map(|led| &led.peer.name),
        "closed": is_away || chosen.is_dead,
        "kind": kind,
        "rtt_ms": rtt_us.map(|us| f64::from(us) / 1000.0),
        "why": why,
    })
}

/// Whose a default route is.
pub(crate) fn owner(plan: &Plan, route: &Prefix) -> Option<NodeId> {
    plan.peers.values().find(|peer| peer.allowed.contains(route)).map(|peer| peer.id)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use control::SelfNode;
    use noise::PublicKey;

    use super::*;
    use crate::{Changes, plan};

    #[test]
    fn rules_without_the_internet_are_told_of() {
        let rule = |to: &str| policy::Rule {
            sources: Ranges::everything(),
            destinations: Ranges::of_prefixes([to.parse().unwrap()]),
            services: vec![policy::Service { protocol: None, first: 0, last: 65_535 }],
            line: 1,
            compress: false,
        };
        let text = |to: &[&str]| {
            let outward = to.iter().map(|to| rule(to)).collect();
            Rules::new(Vec::new(), outward).print().unwrap()
        };
        let told = no_internet(&text(&["100.64.0.0/10", "10.0.0.0/8"]), "vps").unwrap();
        assert!(told.contains("autogroup:internet") && told.contains("vps"), "{told}");
        assert_eq!(no_internet(&text(&["100.64.0.0/10", "9.9.9.9/32"]), "vps"), None);
        let told = no_internet(&text(&["100.64.0.0/10"]), "auto").unwrap();
        assert!(told.starts_with("nothing is reached through any exit node: "), "{told}");
        assert_eq!(no_internet(policy::OPEN, "vps"), None, "without a policy all is allowed");
    }

    fn peer(id: u64, name: &str, routes: &[&str]) -> Peer {
        Peer {
            addresses: vec![IpAddr::from([100, 64, 0, id as u8])],
            routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
            online: true,
            ..Peer::new(NodeId(id), name, PublicKey([id as u8; 32]))
        }
    }

    fn map(peers: Vec<Peer>) -> Map {
        let me = SelfNode::new(NodeId(1), "me");
        Map { peers, ..Map::new(PublicKey([9; 32]), 1, me) }
    }

    fn called(words: &str) -> Settings {
        let exit_node = Some(words.to_owned());
        Settings::default().with(&Changes { exit_node, ..Changes::default() })
    }

    const BOTH: [&str; 2] = ["0.0.0.0/0", "::/0"];

    #[test]
    fn with_auto_every_exit_is_a_candidate_for_both_families_and_nobody_else() {
        let mut phone = peer(5, "phone", &BOTH);
        phone.gateway = Some(NodeId(2));
        let subnet = "10.7.0.0/16";
        let peers = vec![peer(2, "gw", &[subnet]), peer(3, "b", &BOTH), peer(4, "c", &BOTH), phone];
        let map = map(peers);
        let ids = |settings: &Settings| {
            let all = plan::candidates(&map, settings, 0);
            let of = |text: &str| all.get(&text.parse().unwrap()).cloned().unwrap_or_default();
            let ids = |ids: Vec<NodeId>| ids.iter().map(|id| id.0).collect::<Vec<u64>>();
            [of(BOTH[0]), of(BOTH[1]), of(subnet)].map(ids)
        };
        let none: Vec<u64> = Vec::new();
        for word in ["auto", "auto:any", "AUTO"] {
            assert_eq!(called(word).exit_node.as_deref(), Some("auto"), "{word}");
            assert_eq!(ids(&called(word)), [vec![3, 4], vec![3, 4], none.clone()], "{word}");
        }
        assert_eq!(ids(&called("c")), [vec![4], vec![4], none.clone()]);
        assert_eq!(ids(&Settings::default()), [none.clone(), none.clone(), none]);
        // The plan leads both through the one that is chosen, and without a word through one.
        let led = |chosen: &[u64]| {
            let chosen = BOTH.iter().zip(chosen).map(|(p, id)| (p.parse().unwrap(), NodeId(*id)));
            let plan = Plan::new(&map, &called("auto"), 0, &chosen.collect());
            BOTH.map(|text| owner(&plan, &text.parse().unwrap()).unwrap().0)
        };
        assert_eq!((led(&[4, 4]), led(&[])), ([4, 4], [3, 3]));
    }

    #[test]
    fn an_exit_that_is_behind_another_is_none_for_auto() {
        let site = peer(3, "b", &["10.7.0.0/16", BOTH[0], BOTH[1]]);
        let map = map(vec![peer(2, "hub", &[]), site, peer(4, "c", &BOTH)]);
        let through = vec!["10.0.0.0/8=hub".parse().unwrap()];
        let settings = Settings { routes_through: through, ..called("auto") };
        let ids = |settings: &Settings| {
            plan::candidates(&map, settings, 0)[&BOTH[0].parse().unwrap()].clone()
        };
        assert_eq!(ids(&settings), [NodeId(4)]);
        assert_eq!(ids(&called("auto")), [NodeId(3), NodeId(4)], "the control");
    }

    #[test]
    fn a_node_that_is_named_auto_is_meant_by_its_full_name_or_address() {
        let map = map(vec![peer(2, "auto", &BOTH), peer(3, "b", &BOTH)]);
        let first: Prefix = BOTH[0].parse().unwrap();
        for (words, ids) in
            [("auto", &[2, 3][..]), ("auto.warren.internal", &[2]), ("100.64.0.2", &[2])]
        {
            let found = plan::candidates(&map, &called(words), 0)[&first].clone();
            assert_eq!(found, ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>(), "{words}");
        }
    }

    #[test]
    fn without_an_exit_auto_is_closed_and_says_how_one_comes() {
        let none = map(vec![peer(2, "gw", &["10.7.0.0/16"])]);
        let why = no_exit(&none, "auto").unwrap();
        assert!(why.contains("--advertise-exit-node") && !why.contains("\"auto\""), "{why}");
        let settings = called("auto");
        let way = shown(Some(&none), &settings, [None; 2], Why { text: "", is_dead: false });
        assert_eq!((&way["closed"], &way["through"]), (&json!(true), &Value::Null));
        let one = map(vec![peer(2, "gw", &BOTH)]);
        assert_eq!(no_exit(&one, "auto"), None);
        let way = |path, is_online, is_dead| {
            let peer = Peer { online: is_online, ..one.peers[0].clone() };
            let led = Some(Led { peer: &peer, path, rtt_us: Some(12_000) });
            let why = Why { text: "it is the only exit node", is_dead };
            shown(Some(&one), &settings, [led; 2], why)
        };
        let due = json!({ "wanted": "auto", "through": "gw", "through_v6": "gw", "closed": false,
                          "kind": "direct", "rtt_ms": 12.0, "why": "it is the only exit node" });
        assert_eq!(way(Some(Health::Direct), true, false), due);
        assert_eq!(way(Some(Health::Direct), true, true)["why"], "no exit node answers");
        assert_eq!(way(None, true, false)["closed"], false, "it may answer");
        assert_eq!(way(None, false, false)["closed"], true);
    }
}
