//! What a compiled policy says of a small office, and that it says what the text says.

use super::*;
use crate::directory::User;
use crate::explain::{Explanation, Why};

pub(crate) fn policy(text: &str) -> Policy {
    match Policy::parse(text.as_bytes()) {
        Ok((policy, _)) => policy,
        Err(faults) => panic!("{faults:#?}"),
    }
}

fn node(id: u64, owner: Option<&str>, tags: &[&str], routes: &[&str]) -> Node {
    Node {
        id: NodeId(id),
        name: format!("n{id}"),
        addresses: vec![
            format!("100.64.0.{id}").parse().unwrap(),
            format!("fd7a::{id}").parse().unwrap(),
        ],
        owner: owner.map(str::to_owned),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
    }
}

/// Ann has nodes 1 and 2, Ben 3; 4 is a web server, 5 a gateway and 6 an exit.
pub(crate) fn directory() -> Directory {
    let user = |name: &str, roles: &[&str]| User {
        name: name.to_owned(),
        email: Some(format!("{name}@example.com")),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    Directory {
        users: vec![user("ann", &[]), user("ben", &["admin"])],
        nodes: vec![
            node(1, Some("ann"), &[], &[]),
            node(2, Some("ann"), &[], &[]),
            node(3, Some("ben"), &[], &[]),
            node(4, Some("ben"), &["tag:web"], &[]),
            node(5, None, &["tag:gw"], &["10.1.0.0/16", "fd00:1::/64"]),
            node(6, None, &["tag:exit"], &["0.0.0.0/0", "::/0"]),
        ],
        reserved: vec!["100.64.0.0/10".parse().unwrap(), "198.51.100.7/32".parse().unwrap()],
        carried: BTreeMap::new(),
    }
}

fn compiled(rules: &str) -> Compiled {
    let tags = "\"tagOwners\": {\"tag:web\": [], \"tag:gw\": [], \"tag:exit\": []}";
    let groups = "\"groups\": {\"group:dev\": [\"ann@\", \"gone@\"]}";
    Compiled::new(&policy(&format!("{{{tags},\n{groups},\n{rules}}}")), &directory()).unwrap()
}

fn acl(src: &str, dst: &str) -> Compiled {
    compiled(&format!(
        "\"acls\": [{{\"action\": \"accept\", \"src\": [\"{src}\"], \"dst\": [\"{dst}\"]}}]"
    ))
}

fn ids(compiled: &Compiled, id: u64) -> Vec<u64> {
    compiled.peers_of(NodeId(id)).iter().map(|id| id.0).collect()
}

/// Sources that may reach `destination` at TCP 80.
fn reaching(compiled: &Compiled, destination: &str) -> Vec<u64> {
    let may = |id: &u64| {
        let source = format!("100.64.0.{id}").parse().unwrap();
        let destination = destination.parse().unwrap();
        matches!(compiled.explain(source, destination, 6, 80), Explanation::Allowed { .. })
    };
    (1..=6).filter(may).collect()
}

#[test]
fn selectors_mean_nodes() {
    for (src, sources) in [
        ("*", &[1, 2, 3, 5, 6][..]),
        ("ann@", &[1, 2]),
        ("ann@example.com", &[1, 2]),
        ("BEN@example.com", &[3]),
        ("user:*@example.com", &[1, 2, 3]),
        ("user:*@example.org", &[]),
        ("group:dev", &[1, 2]),
        ("autogroup:member", &[1, 2, 3]),
        ("autogroup:tagged", &[5, 6]),
        ("autogroup:admin", &[3]),
        ("autogroup:owner", &[]),
        ("tag:gw", &[5]),
        ("100.64.0.2", &[2]),
        ("100.64.0.2/31", &[2, 3]),
        ("autogroup:danger-all", &[1, 2, 3, 5, 6]),
        ("gone@", &[]),
    ] {
        assert_eq!(reaching(&acl(src, "tag:web:80"), "100.64.0.4"), sources, "{src}");
    }
    let own = acl("autogroup:member", "autogroup:self:*");
    assert_eq!(reaching(&own, "100.64.0.1"), [2]);
    assert_eq!(reaching(&own, "100.64.0.3"), [0; 0]);
    assert_eq!(reaching(&own, "100.64.0.4"), [0; 0], "a tagged node is nobody's");
    assert_eq!([1, 2, 3, 4].map(|id| ids(&own, id)), [vec![2], vec![1], vec![], vec![]]);
}

#[test]
fn pf_15_a_star_is_the_network_and_what_is_behind_it_but_not_the_internet() {
    let star = acl("ann@", "*:*");
    assert_eq!(reaching(&star, "100.64.0.3"), [1, 2]);
    assert_eq!(reaching(&star, "10.1.2.3"), [1, 2]);
    assert_eq!(reaching(&star, "10.2.0.1"), [0; 0]);
    assert_eq!(reaching(&star, "1.1.1.1"), [0; 0]);
    let internet = acl("ann@", "autogroup:internet:*");
    assert_eq!(reaching(&internet, "1.1.1.1"), [1, 2]);
    for private in ["100.64.0.3", "10.1.2.3", "10.2.0.1", "169.254.169.254", "192.168.1.1"] {
        assert_eq!(reaching(&internet, private), [0; 0], "{private}");
    }
    let exact = acl("ann@", "192.168.1.1:80");
    assert_eq!(reaching(&exact, "192.168.1.1"), [1, 2], "what is named may be behind an exit");
}

#[test]
fn a_node_knows_those_it_may_talk_with_in_either_direction() {
    let web = acl("group:dev", "tag:web:443");
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(|id| ids(&web, id)),
        [vec![4], vec![4], vec![], vec![1, 2], vec![], vec![]]
    );
    let route = acl("ben@", "10.1.9.0/24:*");
    assert_eq!([3, 5, 6].map(|id| ids(&route, id)), [vec![5], vec![3], vec![]]);
    let back = acl("10.1.0.0/16", "ben@:22");
    assert_eq!([3, 5].map(|id| ids(&back, id)), [vec![5], vec![3]]);
    let internet = acl("tag:web", "autogroup:internet:443");
    assert_eq!([4, 5, 6].map(|id| ids(&internet, id)), [vec![6], vec![], vec![4]]);
    let none = compiled("\"acls\": []");
    assert!((0..9).all(|id| ids(&none, id).is_empty()));
    assert_eq!(none.rules_for(NodeId(1)), Rules::default());
}

#[test]
fn co_14_a_rule_from_one_family_to_the_other_shows_nobody_to_anybody() {
    for (src, dst) in [
        ("100.64.0.1", "fd7a::4:*"),
        ("fd7a::1", "100.64.0.4:*"),
        ("100.64.0.1", "fd00:1::/64:*"),
        ("fd00:1::/64", "100.64.0.1:*"),
        ("0.0.0.0/0", "::/0:*"),
    ] {
        let across = acl(src, dst);
        assert!((1..=6).all(|id| ids(&across, id).is_empty()), "{src} to {dst}");
        let rules = |id| across.rules_for(NodeId(id));
        assert!((1..=6).all(|id| rules(id) == Rules::default()), "{src} to {dst}");
    }
    let one = acl("fd7a::1", "autogroup:self:*");
    assert_eq!([1, 2, 3].map(|id| ids(&one, id)), [vec![2], vec![1], vec![]]);
    // A node that has one family only is no destination of the other.
    let mut narrow = directory();
    narrow.nodes[1].addresses.retain(|address| address.is_ipv4());
    let compile = |text: &str| Compiled::new(&policy(text), &narrow).unwrap();
    let one = compile(
        "{\"acls\": [{\"action\": \"accept\", \"src\": [\"fd7a::1\"],
                    \"dst\": [\"autogroup:self:*\"]}]}",
    );
    assert_eq!([1, 2].map(|id| ids(&one, id)), [vec![0; 0], vec![]]);
    // Of a rule with both families, a node is told the one that it can use.
    let both = compile(
        "{\"acls\": [{\"action\": \"accept\", \"src\": [\"100.64.0.2\"],
                    \"dst\": [\"100.64.0.3:*\", \"fd7a::1:*\"]}]}",
    );
    assert_eq!([1, 2, 3].map(|id| ids(&both, id)), [vec![], vec![3], vec![2]]);
    let told = both.rules_for(NodeId(2));
    assert_eq!(told.outward[0].destinations.to_string(), "100.64.0.3");
}

#[test]
fn pf_02_a_node_answers_for_itself_and_its_routes_only() {
    let compiled =
        compiled("\"grants\": [{\"src\": [\"*\"], \"dst\": [\"0.0.0.0/0\"], \"ip\": [\"*\"]}]");
    let takes = |id: u64, destination: &str| {
        let rules = compiled.rules_for(NodeId(id));
        let (from, to) = ("100.64.0.1".parse().unwrap(), destination.parse().unwrap());
        rules.inward.iter().any(|rule| rule.allows(from, to, 6, 80))
    };
    for (id, destination, is) in [
        (4, "100.64.0.4", true),
        (4, "100.64.0.3", false),
        (4, "10.1.0.1", false),
        (4, "1.1.1.1", false),
        (5, "100.64.0.5", true),
        (5, "10.1.0.1", true),
        (5, "10.2.0.1", false),
        (5, "1.1.1.1", false),
        (6, "1.1.1.1", true),
        (6, "10.2.0.1", true),
        (6, "10.1.0.1", false),
        (6, "100.64.0.3", false),
        (6, "100.64.0.99", false),
        (6, "198.51.100.7", false),
    ] {
        assert_eq!(takes(id, destination), is, "{id} {destination}");
    }
}

#[test]
fn pf_12_reserved_routes_are_left_out_and_the_longest_of_others_wins() {
    let mut directory = directory();
    directory.nodes[0].routes = vec!["100.64.0.0/16".parse().unwrap()];
    directory.nodes[1].routes =
        vec!["198.51.100.0/24".parse().unwrap(), "10.1.2.0/24".parse().unwrap()];
    directory.nodes[2].routes =
        vec!["10.1.0.0/16".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
    let compiled = Compiled::new(&Policy::open(), &directory).unwrap();
    let refused: Vec<_> =
        compiled.refused_routes().iter().map(|r| (r.node.0, r.route.to_string())).collect();
    assert_eq!(
        refused,
        [
            (1, "100.64.0.0/16".to_owned()),
            (2, "198.51.100.0/24".to_owned()),
            (3, "127.0.0.0/8".to_owned())
        ]
    );
    let owner = |text: &str| compiled.owner_of(text.parse().unwrap()).map(|id| id.0);
    assert_eq!(owner("100.64.0.2"), Some(2));
    assert_eq!(owner("10.1.2.3"), Some(2));
    assert_eq!(owner("10.1.3.3"), Some(3), "the lowest number of two with one route");
    assert_eq!(owner("10.2.3.3"), Some(6));
    assert_eq!(owner("100.64.9.9"), None, "no exit answers for what is reserved");
    assert_eq!(owner("198.51.100.7"), None);
}

#[test]
fn an_open_policy_allows_nodes_everything_and_networks_behind_them_nothing() {
    let open = Compiled::new(&Policy::open(), &directory()).unwrap();
    assert_eq!(reaching(&open, "100.64.0.1"), [2, 3, 4, 5, 6]);
    assert_eq!(reaching(&open, "10.1.2.3"), [1, 2, 3, 4, 6]);
    assert_eq!(reaching(&open, "1.1.1.1"), [1, 2, 3, 4, 5]);
    let lan = open.explain("10.1.2.3".parse().unwrap(), "100.64.0.1".parse().unwrap(), 6, 22);
    assert_eq!(lan, Explanation::Denied(Why::NoSource));
}

#[test]
fn explanations_name_the_line_or_what_is_missing() {
    let compiled = compiled(
        "\"acls\": [\n\
         {\"action\": \"accept\", \"src\": [\"ann@\"], \"dst\": [\"tag:web:443\"]},\n\
         {\"action\": \"accept\", \"src\": [\"ann@\"], \"dst\": [\"tag:gw:22\"]}],\n\
         \"grants\": [{\"src\": [\"ann@\"], \"dst\": [\"tag:gw\"], \"ip\": [\"icmp:*\"]}]",
    );
    let ask = |from: &str, to: &str, protocol, port| match compiled.explain(
        from.parse().unwrap(),
        to.parse().unwrap(),
        protocol,
        port,
    ) {
        Explanation::Allowed { rule, sender, receiver } => {
            format!("{rule}: {} to {}", sender.0, receiver.0)
        }
        Explanation::Denied(why) => why.to_string(),
    };
    assert_eq!(ask("100.64.0.1", "100.64.0.4", 6, 443), "acls[0] (line 4): 1 to 4");
    assert_eq!(ask("fd7a::2", "fd7a::4", 17, 443), "acls[0] (line 4): 2 to 4");
    assert_eq!(ask("100.64.0.1", "100.64.0.4", 1, 0), "acls[0] (line 4): 1 to 4");
    assert_eq!(
        ask("100.64.0.1", "100.64.0.5", 6, 80),
        "only other protocols or ports are allowed: acls[1] (line 5) tcp:22 udp:22 icmp:* \
         ipv6-icmp:* grants[0] (line 6) icmp:* ipv6-icmp:*"
    );
    assert_eq!(
        ask("100.64.0.1", "100.64.0.3", 6, 80),
        "no rule with the source in its src has the destination in its dst: acls[0] (line 4) \
         acls[1] (line 5) grants[0] (line 6)"
    );
    assert_eq!(ask("100.64.0.3", "100.64.0.4", 6, 443), "no rule has the source in its src");
    assert!(ask("100.64.0.9", "100.64.0.4", 6, 1).starts_with("no node has the source"));
    assert!(ask("100.64.0.1", "100.64.0.9", 6, 1).starts_with("no node has the destination"));
    assert!(ask("100.64.0.1", "fd7a::1", 6, 1).contains("both at node 1"));
    assert!(ask("100.64.0.1", "224.0.0.1", 6, 1).contains("no rule can allow"));
}

#[test]
fn a_directory_that_contradicts_itself_compiles_to_nothing() {
    let fault = |change: fn(&mut Directory)| {
        let mut directory = directory();
        change(&mut directory);
        Compiled::new(&Policy::open(), &directory).expect_err("it is refused").to_string()
    };
    assert_eq!(fault(|d| d.nodes[1].id = NodeId(1)), "two nodes have the number 1");
    assert_eq!(
        fault(|d| d.nodes[1].addresses[0] = "100.64.0.1".parse().unwrap()),
        "nodes 1 and 2 share an address"
    );
    assert_eq!(
        fault(|d| d.nodes[1].addresses[0] = "::ffff:100.64.0.77".parse().unwrap()),
        "an address of node 2 is no plain unicast"
    );
    assert_eq!(fault(|d| drop(d.users.remove(0))), "node 1: no user is called \"ann\"");
    assert_eq!(
        fault(|d| d.users[1].email = Some("ANN@example.com".into())),
        "two users answer to \"ANN@example.com\""
    );
    assert_eq!(fault(|d| d.users[1].name = "Ann".into()), "two users answer to \"Ann\"");
    let many = |d: &mut Directory| {
        d.nodes = (0..=NODES_MAX as u64).map(|_| d.nodes[0].clone()).collect();
    };
    assert_eq!(fault(many), "65537 nodes, at most 65536");
}

/// A network of which Ann may use circuits over node 5, and 6 is an exit; the wide rules beside it
/// give nobody that right.
#[test]
fn only_circuits_lets_anybody_use_hops_and_approves_who_is_one() {
    let text = |circuits: &str| {
        format!(
            "{{\"tagOwners\": {{\"tag:gw\": [], \"tag:exit\": []}}, \"acls\": [{{\"action\": \
             \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\", \"0.0.0.0/0:*\", \
             \"198.19.0.0/16:*\"]}}]{circuits}}}"
        )
    };
    let with =
        ", \"circuits\": {\"use\": [\"ann@\"], \"hops\": [\"tag:gw\"], \"exits\": [\"tag:exit\"]}";
    let mut directory = directory();
    let routes = ["198.19.0.0/16", "198.18.255.0/24"].map(|text| text.parse::<Prefix>().unwrap());
    directory.nodes[4].routes.push(routes[0]);
    directory.nodes[5].routes.extend(routes);
    let uses = |circuits: &str, hop: u64| {
        let compiled = Compiled::new(&policy(&text(circuits)), &directory).unwrap();
        let rules = compiled.rules_for(NodeId(hop));
        let may = |id: &u64| {
            let source = format!("100.64.0.{id}").parse().unwrap();
            let destination = "198.19.0.0".parse().unwrap();
            rules.inward.iter().any(|rule| rule.allows(source, destination, 17, 0))
        };
        (1..=6).filter(may).collect::<Vec<_>>()
    };
    assert_eq!(uses("", 5), [0; 0], "wide rules are no right to circuits");
    assert_eq!((uses(with, 5), uses(with, 6)), (vec![1, 2, 5, 6], vec![1, 2, 5, 6]));
    assert_eq!(uses(with, 4), [0; 0], "who is no hop answers for none");
    let compiled = Compiled::new(&policy(&text(with)), &directory).unwrap();
    use crate::approve::Approval::{Asked, Automatic};
    for (node, expected) in [(5, [Automatic, Asked]), (6, [Automatic; 2]), (1, [Asked; 2])] {
        assert_eq!(routes.map(|route| compiled.approval(NodeId(node), route)), expected, "{node}");
    }
    let without = Compiled::new(&policy(&text("")), &directory).unwrap();
    assert_eq!(without.approval(NodeId(5), routes[0]), Asked);
}

/// Ann's 2 and Ben's 3 are plain peers that the exit, 6, carries.
fn with_carried(rules: &str) -> Compiled {
    let tags = "\"tagOwners\": {\"tag:web\": [], \"tag:gw\": [], \"tag:exit\": []}";
    let carried = [(2, 6), (3, 6)].map(|(peer, gateway)| (NodeId(peer), NodeId(gateway)));
    let directory = Directory { carried: carried.into(), ..directory() };
    Compiled::new(&policy(&format!("{{{tags},\n{rules}}}")), &directory).unwrap()
}

#[test]
fn a_gateway_enforces_for_the_plain_peers_that_it_carries() {
    let rule = |src: &str, dst: &str| {
        format!("{{\"action\": \"accept\", \"src\": [\"{src}\"], \"dst\": [\"{dst}\"]}}")
    };
    let carried = with_carried(&format!("\"acls\": [{}]", rule("ann@", "tag:web:80")));
    let seen = |compiled: &Compiled, id| {
        compiled.peers_of(NodeId(id)).into_iter().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(seen(&carried, 4), [1, 2, 6], "who meets a plain peer meets its gateway");
    assert_eq!(seen(&carried, 1), [4], "and nobody else does");
    assert_eq!(seen(&carried, 6), [2, 3, 4], "a gateway knows whom it carries, and whom they meet");
    let rules = carried.rules_for(NodeId(6));
    let has = |list: &[Rule], from: u8, to: u8, port: u16| {
        let at = |id: u8| number(format!("100.64.0.{id}").parse().unwrap());
        list.iter().any(|rule| {
            let services = rule.services.iter().any(|service| service.matches(6, port));
            rule.sources.has(at(from)) && rule.destinations.has(at(to)) && services
        })
    };
    assert!(has(&rules.outward, 2, 4, 80) && !has(&rules.outward, 3, 4, 80));
    assert!(!has(&rules.inward, 4, 2, 80) && !has(&rules.inward, 1, 2, 80));
    assert!(has(&rules.inward, 3, 6, 53) && !has(&rules.inward, 3, 6, 80), "names need no rule");
    assert!(!has(&rules.inward, 1, 6, 53), "of others they do");
    // Nodes of the own user: 1 reaches 2 through 6, which has no user.
    let own =
        with_carried(&format!("\"acls\": [{}]", rule("autogroup:member", "autogroup:self:*")));
    assert_eq!((seen(&own, 1), seen(&own, 6)), (vec![2, 6], vec![1, 2, 3]));
    let rules = own.rules_for(NodeId(6));
    assert!(has(&rules.inward, 1, 2, 80) && has(&rules.outward, 2, 1, 80));
    assert!(!has(&rules.inward, 3, 2, 80), "Ben's is not Ann's");
}
