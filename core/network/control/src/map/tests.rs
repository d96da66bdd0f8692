//! Maps and deltas, by what they are made of.

use proptest::prelude::*;

use super::*;

pub(crate) fn peer(id: u64) -> Peer {
    Peer {
        addresses: vec![IpAddr::from([100, 64, 0, id as u8])],
        online: true,
        ..Peer::new(NodeId(id), format!("node-{id}"), PublicKey([id as u8; 32]))
    }
}

pub(crate) fn map(peers: &[u64]) -> Map {
    let addresses = vec![IpAddr::from([100, 64, 0, 1])];
    Map {
        sequence: 10,
        made_unix_s: 1000,
        peers: peers.iter().map(|id| peer(*id)).collect(),
        dns: Dns { domain: "warren.internal".to_owned(), ..Dns::default() },
        ..Map::new(PublicKey([9; 32]), 3, SelfNode { addresses, ..SelfNode::new(NodeId(1), "me") })
    }
}

pub(crate) fn delta(from: u64, to: u64) -> Delta {
    Delta { from, ..map(&[]).delta(to, 2000) }
}

#[test]
fn a_delta_changes_what_it_says_and_a_gap_changes_nothing() {
    let mut ours = map(&[2, 3, 5]);
    let mut change = delta(10, 12);
    change.upsert = vec![Peer { online: false, ..peer(3) }, peer(4)];
    change.remove = vec![NodeId(5), NodeId(77)];
    change.policy = Some(Policy { version: 7, rules: "x".to_owned() });
    ours.apply(change.clone()).unwrap();
    let ids: Vec<u64> = ours.peers.iter().map(|peer| peer.id.0).collect();
    assert_eq!((ids, ours.sequence, ours.made_unix_s), (vec![2, 3, 4], 12, 2000));
    assert!(!ours.peer(NodeId(3)).unwrap().online);
    assert_eq!(ours.policy.version, 7);
    let peers = Changed::Peers { upserted: Vec::new(), removed: Vec::new() };
    assert_eq!(Changed::by(&delta(1, 2)), peers);
    assert_eq!(Changed::by(&change), Changed::Whole, "who has rules reads all anew");
    let long = Some(Policy { version: 8, rules: "x".repeat(POLICY_BYTES_MAX + 1) });
    let long = Delta { policy: long, ..delta(12, 13) };
    assert_eq!(ours.apply(long), Err(BadMap::Bound("policy")));

    let before = ours.clone();
    for (from, to) in [(10, 12), (11, 13), (13, 14), (12, 12), (12, 11)] {
        assert_eq!(ours.apply(delta(from, to)), Err(BadMap::Gap), "{from} {to}");
    }
    assert_eq!(ours.apply(Delta { epoch: 4, ..delta(12, 13) }), Err(BadMap::Gap));
    let foreign = Delta { machine: PublicKey([8; 32]), ..delta(12, 13) };
    assert_eq!(ours.apply(foreign), Err(BadMap::Machine));
    assert_eq!(ours, before);
}

#[test]
fn co_19_what_is_too_long_or_no_name_is_refused() {
    assert_eq!(map(&[2, 3]).check(), Ok(()));
    let break_peer = |change: &dyn Fn(&mut Peer)| {
        let mut ours = map(&[2, 3]);
        change(&mut ours.peers[1]);
        ours.check().unwrap_err()
    };
    for name in ["", "A", "-a", "a.b", "<b>", &"a".repeat(64)] {
        let why = break_peer(&|peer| name.clone_into(&mut peer.name));
        assert_eq!(why, BadMap::Content("name"), "{name}");
    }
    let why = break_peer(&|peer| peer.tags = vec!["robot".to_owned()]);
    assert_eq!(why, BadMap::Content("tag"));
    let route: Prefix = "10.0.0.0/8".parse().unwrap();
    let why = break_peer(&|peer| peer.routes = vec![route; ROUTES_MAX + 1]);
    assert_eq!(why, BadMap::Bound("routes"));
    let why = break_peer(&|peer| peer.id = NodeId(2));
    assert_eq!(why, BadMap::Content("order of peers"), "no number twice");
    let many: Vec<u64> = (2..PEERS_MAX as u64 + 3).collect();
    assert_eq!(map(&many).check(), Err(BadMap::Bound("peers")));
    let mut ours = map(&[]);
    ours.policy.rules = "x".repeat(POLICY_BYTES_MAX + 1);
    assert_eq!(ours.check(), Err(BadMap::Bound("policy")));
}

proptest! {
    /// Deltas against a model: a set of peers.
    #[test]
    fn deltas_lead_where_the_model_goes(
        steps in prop::collection::vec((prop::collection::btree_set(2_u64..30, 0..6),
                                        prop::collection::vec(2_u64..30, 0..6)), 0..20),
    ) {
        let mut ours = map(&[]);
        let mut model = BTreeSet::new();
        for (upsert, remove) in steps {
            let mut change = delta(ours.sequence, ours.sequence + 1);
            change.remove = remove.iter().map(|id| NodeId(*id)).collect();
            change.upsert = upsert.iter().map(|id| peer(*id)).collect();
            ours.apply(change).unwrap();
            model.retain(|id| !remove.contains(id));
            model.extend(upsert);
            let ids: Vec<u64> = ours.peers.iter().map(|peer| peer.id.0).collect();
            prop_assert_eq!(ids, model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ours.check(), Ok(()));
        }
    }
}
