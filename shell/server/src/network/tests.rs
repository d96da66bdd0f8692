//! The network in memory, against the state that it must tell of.

use control::{Code, address};
use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_800_000_000;
const NOBODY: [u64; 0] = [];

fn key(id: u64, round: u8) -> PublicKey {
    let mut bytes = [round; 32];
    bytes[..8].copy_from_slice(&id.to_be_bytes());
    PublicKey(bytes)
}

fn node(id: u64) -> Node {
    Node {
        id,
        machine_key: key(id, 1),
        node_key: key(id, 2),
        name: format!("n{id}"),
        number: id as u32,
        user: None,
        tags: Vec::new(),
        ephemeral: false,
        approved: true,
        created: NOW,
        begun: None,
        expires: None,
        renewable: None,
        last_seen: None,
        host: HostInfo::default(),
        approved_routes: Vec::new(),
        gateway: None,
        ways: control::Ways::default(),
    }
}

/// Both clocks agree, unless a test is about that.
const fn at(unix_s: u64) -> Moment {
    Moment { unix_s, up_s: unix_s }
}

fn network() -> Network {
    let v4 = address::DEFAULT_V4.parse().unwrap();
    let pool = Pool::new(v4, "fd00::/48".parse().unwrap()).unwrap();
    let domain = "warren.internal".to_owned();
    let (stun, reserved, relays) = (Vec::new(), Vec::new(), Vec::new());
    let (urls, resolvers) = (Vec::new(), Resolvers::default());
    let shared = Shared { pool, domain, stun, reserved, relays, urls, resolvers };
    Network::new(shared, 5, vec![node(1)], Vec::new(), Rulebook::new(None), at(NOW))
}

fn news(network: &mut Network, map: Option<&Map>, now: u64) -> News {
    let poll = map.map_or_else(Poll::default, |map| Poll {
        epoch: map.epoch,
        sequence: map.sequence,
        ..Poll::default()
    });
    network.news(&key(1, 1), &key(1, 2), &poll, now, || true)
}

/// What a client reads.
fn statement(news: &News) -> Statement {
    let News::Statement(text) = news else { panic!("{news:?}") };
    Statement::read(text).unwrap()
}

/// Brings a map up to date as a client does.
fn follow(network: &mut Network, map: &mut Option<Map>, now: u64) {
    match news(network, map.as_ref(), now) {
        News::Nothing => {}
        news => match statement(&news) {
            Statement::Map(whole) => *map = Some(*whole),
            Statement::Delta(delta) => map.as_mut().unwrap().apply(*delta).unwrap(),
        },
    }
}

#[test]
fn a_node_that_waits_for_approval_sees_and_is_seen_by_nobody() {
    let mut network = network();
    let mut map = None;
    network.put(Node { approved: false, ..node(2) }, true, NOW);
    follow(&mut network, &mut map, NOW);
    assert_eq!(map.as_ref().unwrap().peers, []);
    let theirs = network.news(&key(2, 1), &key(2, 2), &Poll::default(), NOW, || true);
    let Statement::Map(theirs) = statement(&theirs) else { panic!("{theirs:?}") };
    assert!(theirs.peers.is_empty() && !theirs.me.approved);
    network.put(node(2), true, NOW);
    follow(&mut network, &mut map, NOW);
    assert_eq!(map.unwrap().peers[0].name, "n2");
}

#[test]
fn co_05_a_machine_with_another_nodes_key_is_refused() {
    let mut network = network();
    network.put(node(2), true, NOW);
    for (machine, node, code) in [
        (key(1, 1), key(2, 2), Code::WrongKey),
        (key(2, 1), key(1, 2), Code::WrongKey),
        (key(3, 1), key(1, 2), Code::NotEnrolled),
    ] {
        let Err(Answer::Refused(refusal)) = network.member(&machine, &node, NOW) else {
            panic!("it is refused");
        };
        assert_eq!(refusal.code, code);
    }
    assert!(network.member(&key(1, 1), &key(1, 2), NOW).is_ok());
}

#[test]
fn expiry_takes_a_node_from_every_map_at_its_time() {
    let mut network = network();
    network.put(Node { expires: Some(NOW + 10), ..node(2) }, true, NOW);
    let mut map = None;
    follow(&mut network, &mut map, NOW);
    network.sweep(at(NOW + 9));
    assert!(matches!(news(&mut network, map.as_ref(), NOW + 9), News::Nothing));
    network.sweep(at(NOW + 10));
    follow(&mut network, &mut map, NOW + 10);
    assert_eq!(map.unwrap().peers, []);
    let refused = network.news(&key(2, 1), &key(2, 2), &Poll::default(), NOW + 10, || true);
    assert!(matches!(refused, News::Refused(Answer::Refused(r)) if r.code == Code::Expired));
}

#[test]
fn lc_04_lc_05_a_clock_that_jumps_a_year_and_back_takes_nobody_out_for_good() {
    const YEAR_S: u64 = 365 * 86_400;
    let mut network = network();
    network.put(Node { expires: Some(NOW + 1000), ..node(2) }, true, NOW);
    network.put(Node { ephemeral: true, ..node(3) }, true, NOW);
    (1..4).for_each(|id| network.arrive(id, at(NOW)));
    let mut map = None;
    follow(&mut network, &mut map, NOW);
    assert_eq!(map.as_ref().unwrap().peers.len(), 2);
    for (jumped, peers) in [(NOW + YEAR_S, 1), (NOW, 2), (NOW - YEAR_S, 2), (NOW, 2)] {
        let moment = |up_s| Moment { unix_s: jumped, up_s };
        assert_eq!(network.sweep(moment(NOW + 1)), NOBODY, "nobody went away by {jumped}");
        network.leave(3, moment(NOW + 1));
        assert_eq!(network.abandoned(NOW + 200, 300), NOBODY, "it was away for 199 s");
        network.arrive(3, moment(NOW + 1));
        follow(&mut network, &mut map, jumped);
        assert_eq!(map.as_ref().unwrap().peers.len(), peers, "at {jumped}");
    }
    // And absence is seen whatever the date says.
    network.leave(3, Moment { unix_s: NOW + YEAR_S, up_s: NOW + 10 });
    assert_eq!(network.sweep(Moment { unix_s: NOW - YEAR_S, up_s: NOW + 25 }), [3]);
    assert_eq!(network.abandoned(NOW + 310, 300), [3]);
}

#[test]
fn co_15_an_old_connection_that_ends_late_says_nothing_of_a_new_one() {
    let mut network = network();
    network.arrive(1, at(NOW));
    network.arrive(1, at(NOW + 100));
    network.leave(1, at(NOW + 101));
    assert_eq!(network.sweep(at(NOW + 1000)), NOBODY, "one poll is under way");
    network.leave(1, at(NOW + 1000));
    assert_eq!(network.sweep(at(NOW + 1001)), NOBODY, "it may come back");
    network.arrive(1, at(NOW + 1010));
    network.leave(1, at(NOW + 1011));
    assert_eq!(network.sweep(at(NOW + 1020)), NOBODY);
    assert_eq!(network.sweep(at(NOW + 1026)), [1]);
    assert_eq!(network.sweep(at(NOW + 1027)), NOBODY, "once");
    let mut ephemeral = Node { ephemeral: true, ..node(2) };
    network.put(ephemeral.clone(), true, NOW);
    assert_eq!(network.abandoned(NOW + 299, 300), NOBODY);
    network.arrive(2, at(NOW + 299));
    assert_eq!(network.abandoned(NOW + 9000, 300), NOBODY);
    network.leave(2, at(NOW + 9000));
    assert_eq!(network.abandoned(NOW + 9300, 300), [2]);
    ephemeral.ephemeral = false;
    network.put(ephemeral, true, NOW + 9300);
    assert_eq!(network.abandoned(NOW + 9300, 300), NOBODY);
}

#[test]
fn who_is_behind_the_log_or_from_another_epoch_gets_a_whole_map() {
    let mut network = network();
    let mut map = None;
    follow(&mut network, &mut map, NOW);
    for round in 0..LOG_MAX as u64 {
        network.put(node(2 + round % 3), false, NOW);
    }
    let at_floor = news(&mut network, map.as_ref(), NOW);
    assert!(matches!(statement(&at_floor), Statement::Delta(_)), "all of it is there");
    network.put(node(2), false, NOW);
    for (epoch, sequence) in [(5, 1), (4, network.sequence()), (6, 1), (5, u64::MAX)] {
        let poll = Poll { epoch, sequence, ..Poll::default() };
        let told = network.news(&key(1, 1), &key(1, 2), &poll, NOW, || true);
        assert!(matches!(statement(&told), Statement::Map(_)), "{epoch} {sequence}");
    }
    assert_eq!(network.log.len(), LOG_MAX);
}

/// Policies that differ in whom they let meet.
const POLICIES: [&str; 5] = [
    "{}",
    "{\"acls\": []}",
    "{\"grants\": [{\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\"]}]}",
    "{\"tagOwners\": {\"tag:a\": [], \"tag:b\": []}, \"acls\": [\
      {\"action\": \"accept\", \"src\": [\"tag:a\"], \"dst\": [\"tag:b:22\"]}]}",
    "{\"groups\": {\"group:x\": [\"ann@\"]}, \"tagOwners\": {\"tag:b\": []}, \"acls\": [\
      {\"action\": \"accept\", \"src\": [\"group:x\"],\
       \"dst\": [\"tag:b:*\", \"10.1.0.0/16:80\"]}]}",
];

fn set(network: &mut Network, version: u64, which: usize) {
    let checked =
        crate::policy::check(POLICIES[which], &network.directory(NOW), &network.groups()).unwrap();
    network.set_policy(version, checked.policy);
}

fn whole(network: &mut Network) -> Map {
    let Statement::Map(map) = statement(&news(network, None, NOW)) else { panic!("a map") };
    *map
}

fn names(map: &Map) -> Vec<&str> {
    map.peers.iter().map(|peer| peer.name.as_str()).collect()
}

#[test]
fn co_14_a_node_is_told_of_those_whom_policy_lets_it_meet_and_of_nobody_else() {
    let mut network = network();
    let tagged = |id: u64, tag: &str| Node { tags: vec![tag.to_owned()], ..node(id) };
    for other in [tagged(1, "tag:a"), tagged(2, "tag:b"), tagged(3, "tag:a"), node(4)] {
        network.put(other, true, NOW);
    }
    let ann = Some("ann".to_owned());
    let routes = vec!["10.1.2.0/24".parse().unwrap()];
    let host = HostInfo { routes: routes.clone(), ..HostInfo::default() };
    network.put(Node { user: ann, ..node(5) }, true, NOW);
    network.put(Node { host, approved_routes: routes, ..node(6) }, true, NOW);
    let mut map = None;
    follow(&mut network, &mut map, NOW);
    assert_eq!(names(map.as_ref().unwrap()), ["n2", "n3", "n4", "n5", "n6"], "no policy");
    let rules = |map: &Option<Map>| ::policy::Rules::read(&map.as_ref().unwrap().policy.rules);
    assert_eq!(rules(&map), Ok(None), "nothing is enforced");
    for (which, seen) in
        [(3, &["n2"][..]), (1, &[]), (4, &[]), (2, &["n2", "n3", "n4", "n5", "n6"])]
    {
        set(&mut network, which as u64, which);
        assert!(matches!(statement(&news(&mut network, map.as_ref(), NOW)), Statement::Delta(_)));
        follow(&mut network, &mut map, NOW);
        assert_eq!(names(map.as_ref().unwrap()), seen, "policy {which}");
        assert!(rules(&map).unwrap().is_some(), "policy {which}");
    }
    // Ann, and the gateway of what she may reach.
    set(&mut network, 9, 4);
    network.put(Node { user: Some("ann".to_owned()), ..node(1) }, true, NOW);
    follow(&mut network, &mut map, NOW);
    assert_eq!(names(map.as_ref().unwrap()), ["n2", "n6"]);
    let outward = rules(&map).unwrap().unwrap().outward;
    let may = |to: &str, port| {
        let own = map.as_ref().unwrap().me.addresses[0];
        outward.iter().any(|rule| rule.allows(own, to.parse().unwrap(), 6, port))
    };
    assert!(may("10.1.2.3", 80) && !may("10.1.2.3", 81) && may("100.64.0.2", 22));
    assert_eq!(*map.as_ref().unwrap(), whole(&mut network));
}

#[test]
fn co_10_that_nodes_come_and_go_waits_for_the_sweep_and_all_else_does_not() {
    let mut network = network();
    (2..40).for_each(|id| network.put(node(id), true, NOW));
    let mut map = None;
    follow(&mut network, &mut map, NOW);
    (2..40).for_each(|id| network.arrive(id, at(NOW)));
    assert!(matches!(news(&mut network, map.as_ref(), NOW), News::Nothing));
    network.sweep(at(NOW));
    follow(&mut network, &mut map, NOW);
    assert!(map.as_ref().unwrap().peers.iter().all(|peer| peer.online));
    network.remove(7);
    follow(&mut network, &mut map, NOW);
    assert!(map.as_ref().unwrap().peer(NodeId(7)).is_none(), "a removal waits for nothing");
}

#[test]
fn pf_12_what_the_policy_approves_is_found_among_what_is_offered() {
    let mut network = network();
    let text = "{\"tagOwners\": {\"tag:gw\": []}, \"autoApprovers\": {\"routes\": \
        {\"10.0.0.0/8\": [\"tag:gw\"]}}}";
    let checked = crate::policy::check(text, &network.directory(NOW), &network.groups()).unwrap();
    network.set_policy(1, checked.policy);
    let routes = ["10.1.0.0/16", "11.0.0.0/8", "100.64.0.0/16"].map(|text| text.parse().unwrap());
    let host = HostInfo { routes: routes.to_vec(), ..HostInfo::default() };
    network.put(Node { host: host.clone(), ..node(2) }, false, NOW);
    assert_eq!(network.automatic_routes(2, NOW), []);
    let gateway = Node { host, tags: vec!["tag:gw".to_owned()], ..node(2) };
    network.put(gateway.clone(), true, NOW);
    assert_eq!(network.automatic_routes(2, NOW), routes[..1]);
    network.put(Node { approved_routes: routes[..1].to_vec(), ..gateway }, true, NOW);
    assert_eq!(network.automatic_routes(2, NOW), [], "once");
    assert_eq!(network.automatic_routes(99, NOW), []);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, bool, Option<u64>, usize),
    Remove(u64),
    Arrive(u64),
    Leave(u64),
    /// The clock goes on, or is set.
    Time(i64),
    Policy(usize),
    Follow,
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..12, any::<bool>(), prop::option::of(0_u64..40), 0_usize..4)
            .prop_map(|(id, approved, expires, tags)| Step::Put(id, approved, expires, tags)),
        2 => (2_u64..12).prop_map(Step::Remove),
        2 => (1_u64..12).prop_map(Step::Arrive),
        2 => (1_u64..12).prop_map(Step::Leave),
        2 => (-5_i64..10).prop_map(Step::Time),
        1 => (0..POLICIES.len()).prop_map(Step::Policy),
        4 => Just(Step::Follow),
        1 => Just(Step::Lost),
    ]
}

/// A node as a step wants it. The first one stays a member, so that it can be asked for.
fn wanted(id: u64, approved: bool, expires: Option<u64>, tags: usize) -> Node {
    let tags = ["tag:a", "tag:b"][..tags % 3].iter().map(|tag| (*tag).to_owned()).collect();
    let expires = expires.filter(|_| id != 1).map(|s| NOW + s);
    let user = (id.is_multiple_of(3)).then(|| "ann".to_owned());
    Node { approved, expires, tags, user, ..node(id) }
}

proptest! {
    /// A map that followed deltas is the map that is made at the end.
    #[test]
    fn co_16_pf_13_whatever_happens_the_map_is_that_of_the_final_state(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let (mut network, mut map, mut now, mut up_s) = (network(), None, NOW, NOW);
        for (version, step) in (1..).zip(steps) {
            up_s += 3;
            let at = |unix_s| Moment { unix_s, up_s };
            match step {
                Step::Put(id, approved, expires, tags) => {
                    network.put(wanted(id, approved, expires, tags), true, now);
                }
                Step::Remove(id) => network.remove(id),
                Step::Arrive(id) => network.arrive(id, at(now)),
                Step::Leave(id) => network.leave(id, at(now)),
                Step::Time(s) => now = now.saturating_add_signed(s),
                Step::Policy(which) => set(&mut network, version, which),
                Step::Follow => follow(&mut network, &mut map, now),
                // An answer that never came.
                Step::Lost => drop(news(&mut network, map.as_ref(), now)),
            }
            network.sweep(at(now));
        }
        follow(&mut network, &mut map, now);
        let followed = map.unwrap();
        let viewer = Arc::clone(&network.nodes[&1]);
        let Statement::Map(whole) = statement(&network.whole(&viewer, now)) else {
            panic!("a map");
        };
        prop_assert_eq!(followed.peers, whole.peers);
        prop_assert_eq!(followed.me, whole.me);
        prop_assert_eq!(followed.policy, whole.policy);
    }
}

/// Nodes that come and go, each told of the others as it polls; what is remembered of it all is
/// bounded by who is there.
fn churn(changes: u64) {
    const LIVE: u64 = 40;
    let mut network = network();
    let mut map = None;
    for n in 2..changes {
        let now = NOW + n / 10;
        network.put(node(n), true, now);
        network.arrive(n, at(now));
        let poll = Poll::default();
        assert!(matches!(
            network.news(&key(n, 1), &key(n, 2), &poll, now, || true),
            News::Statement(_)
        ));
        if let Some(old) = n.checked_sub(LIVE).filter(|old| *old > 1) {
            network.leave(old, at(now));
            network.remove(old);
        }
        if n % 7 == 0 {
            follow(&mut network, &mut map, now);
        }
        if n % 1000 == 0 {
            network.sweep(at(now));
            let Memory(told) = &network.memory;
            let sizes = [
                network.nodes.len(),
                network.machines.len(),
                network.presence.len(),
                network.sights.len(),
                told.len(),
            ];
            assert!(sizes.iter().all(|size| *size <= LIVE as usize + 1), "{n}: {sizes:?}");
            assert!(network.log.len() <= LOG_MAX && network.expired.is_empty(), "{n}");
        }
    }
    follow(&mut network, &mut map, NOW + changes);
    let peers: Vec<u64> = map.unwrap().peers.iter().map(|peer| peer.id.0).collect();
    assert_eq!(peers, (changes - LIVE..changes).collect::<Vec<_>>());
}

#[test]
fn lc_15_what_is_remembered_of_nodes_that_come_and_go_is_bounded_by_who_is_there() {
    churn(20_000);
}

#[test]
#[ignore = "soak: a million machines"]
fn lc_15_a_million_machines_come_and_go() {
    churn(1_000_000);
}
