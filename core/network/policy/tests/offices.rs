//! Policies as people write them, and what each lets pass.
//!
//! Every case is a whole file, the warnings it deserves, and a list of questions: who, to what,
//! with what, and whether it passes. The network is one of three people and six machines, with a
//! gateway to two sites and an exit.

use policy::{
    Compiled, Direction, Directory, Explanation, Filter, Node, NodeId, Peer, Policy, User, Verdict,
    check,
};

fn directory() -> Directory {
    let user = |name: &str, roles: &[&str]| User {
        name: name.to_owned(),
        email: Some(format!("{name}@example.com")),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    let node = |id: u64, owner: &str, tags: &[&str], routes: &[&str]| Node {
        id: NodeId(id),
        name: format!("n{id}"),
        addresses: [format!("100.64.0.{id}"), format!("fd7a::{id}")]
            .map(|text| text.parse().expect("an address"))
            .to_vec(),
        owner: (!owner.is_empty()).then(|| owner.to_owned()),
        tags: tags.iter().map(|tag| format!("tag:{tag}")).collect(),
        routes: routes.iter().map(|route| route.parse().expect("a prefix")).collect(),
    };
    Directory {
        users: vec![user("ann", &["owner"]), user("ben", &[]), user("cid", &[])],
        nodes: vec![
            node(1, "ann", &[], &[]),
            node(2, "ben", &[], &[]),
            node(3, "ben", &[], &[]),
            node(4, "", &["web", "prod"], &[]),
            node(5, "", &["db"], &[]),
            node(6, "", &["gw"], &["192.168.10.0/24", "192.168.20.0/24", "fd00:10::/64"]),
            node(7, "", &["exit"], &["0.0.0.0/0", "::/0"]),
        ],
        reserved: vec!["100.64.0.0/10".parse().expect("a prefix")],
        carried: std::collections::BTreeMap::new(),
    }
}

/// Names of addresses in the questions.
fn address(name: &str) -> String {
    match name {
        "ann" => "100.64.0.1".into(),
        "ben" => "100.64.0.2".into(),
        "ben2" => "100.64.0.3".into(),
        "web" => "100.64.0.4".into(),
        "web6" => "fd7a::4".into(),
        "ann6" => "fd7a::1".into(),
        "db" => "100.64.0.5".into(),
        "gw" => "100.64.0.6".into(),
        "exit" => "100.64.0.7".into(),
        other => other.to_owned(),
    }
}

fn compiled(text: &str, warnings: &[&str]) -> Compiled {
    let (policy, found) = Policy::parse(text.as_bytes()).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(|f| format!("{f}\n")).collect::<String>())
    });
    assert_eq!(found.len(), warnings.len(), "{found:?}");
    for (found, wanted) in found.iter().zip(warnings) {
        assert!(found.to_string().starts_with(wanted), "{found}");
    }
    check(&policy, &directory()).unwrap_or_else(|failures| panic!("{failures:?}"))
}

/// A question is `who > whom protocol port`, one a line; `+` passes and `-` does not. What is said
/// is compared with what the filters of both ends do.
fn ask(compiled: &Compiled, questions: &str) {
    for question in questions.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = question.split_whitespace().collect();
        let [sign, from, ">", to, protocol, port] = words[..] else { panic!("{question}") };
        let (from, to) = (address(from), address(to));
        let v6 = from.contains(':');
        let number = match protocol {
            "tcp" => 6,
            "udp" => 17,
            "icmp" if v6 => 58,
            "icmp" => 1,
            _ => 132,
        };
        let port = port.parse().expect("a port");
        let [source, destination] = [&from, &to].map(|text| text.parse().expect("an address"));
        let said = compiled.explain(source, destination, number, port);
        assert_eq!(
            matches!(said, Explanation::Allowed { .. }),
            sign == "+",
            "{question}: {said:?}"
        );
        let Explanation::Allowed { sender, receiver, .. } = said else { continue };
        let bytes = first_packet(source, destination, number, port);
        let packet = wire::packet::parse(&bytes).expect("it is whole");
        for (id, direction) in [(sender, Direction::Out), (receiver, Direction::In)] {
            let mut filter = Filter::new([1, 2]);
            filter.set_rules(compiled.rules_for(id));
            assert_eq!(filter.judge(direction, Peer(1), &packet, 0), Verdict::Pass, "{question}");
        }
        assert!(compiled.peers_of(sender).contains(&receiver), "{question}");
    }
}

fn first_packet(from: std::net::IpAddr, to: std::net::IpAddr, number: u8, port: u16) -> Vec<u8> {
    use std::net::IpAddr::{V4, V6};
    let mut bytes = match (from, to) {
        (V4(from), V4(to)) => {
            let head = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, number, 0, 0];
            [&head[..], &from.octets(), &to.octets()].concat()
        }
        (V6(from), V6(to)) => {
            let head = [0x60, 0, 0, 0, 0, 20, number, 64];
            [&head[..], &from.octets(), &to.octets()].concat()
        }
        _ => panic!("one family"),
    };
    let mut upper = [[0x90, 0], port.to_be_bytes(), [0, 20], [0, 0]].concat();
    upper.extend([0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    match number {
        1 => upper[0] = 8,
        58 => upper[0] = 128,
        _ => (),
    }
    bytes.extend(upper);
    bytes
}

#[test]
fn a_family_lets_everybody_do_everything_but_the_internet() {
    let all = "{ // as in the first example of every manual\n\"acls\": [\n\
               {\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]},\n]}";
    ask(
        &compiled(all, &[]),
        "+ ann > ben tcp 22
         + web > db udp 9
         + ann6 > web6 icmp 0
         + ann > 192.168.10.5 tcp 445
         - ann > 1.1.1.1 tcp 443
         - 192.168.10.5 > ann tcp 22
         - ann > web sctp 9",
    );
}

#[test]
fn no_policy_lets_everybody_do_everything() {
    let open = compiled("{}", &["1:1: neither acls nor grants: everything is allowed"]);
    ask(
        &open,
        "+ ann > ben tcp 22
         + ann > web sctp 9
         + ann > 1.1.1.1 tcp 443
         + ann > 192.168.10.5 tcp 445
         - 192.168.10.5 > ann tcp 22
         - ann > 169.254.169.254 tcp 80",
    );
}

#[test]
fn a_shop_with_tiers() {
    let text = r#"{
        "groups": {
            "group:dev": ["ben@example.com"],
            "group:ops": ["ann@example.com", "cid@example.com"],
        },
        "tagOwners": {
            "tag:web": ["group:ops"], "tag:prod": ["group:ops"], "tag:db": ["group:ops"],
            "tag:gw": ["autogroup:admin"], "tag:exit": ["autogroup:owner"],
        },
        "acls": [
            // Developers see the shop; operators the machines.
            {"action": "accept", "proto": "tcp", "src": ["group:dev"], "dst": ["tag:web:80,443"]},
            {"action": "accept", "src": ["group:ops"], "dst": ["tag:prod:*", "tag:db:22,5432"]},
            {"action": "accept", "proto": "tcp", "src": ["tag:web"], "dst": ["tag:db:5432"]},
            // Everybody their own machines.
            {"action": "accept", "src": ["autogroup:member"], "dst": ["autogroup:self:*"]},
        ],
        "ssh": [{"action": "check", "src": ["autogroup:member"], "dst": ["autogroup:self"],
                 "users": ["autogroup:nonroot", "root"]}],
        "nodeAttrs": [{"target": ["*"], "attr": ["funnel"]}],
        "tests": [
            {"src": "ben@example.com", "accept": ["tag:web:443"], "deny": ["tag:db:5432"]},
            {"src": "cid@example.com", "accept": ["tag:db:22", "tag:prod:9999"]},
            {"src": "tag:web", "accept": ["tag:db:5432"], "deny": ["tag:db:22", "group:ops:22"]},
        ],
    }"#;
    let compiled = compiled(text, &["18:9: \"ssh\" is not", "20:9: \"nodeAttrs\" is not"]);
    ask(
        &compiled,
        "+ ben > web tcp 443
         - ben > web udp 443
         - ben > web icmp 0
         - ben > db tcp 5432
         + ann > web udp 4000
         + ann6 > web6 tcp 1
         + ann > db tcp 22
         + ann > db icmp 0
         - ann > db tcp 80
         + web > db tcp 5432
         - db > web tcp 80
         + ben > ben2 tcp 22
         - ben > ann tcp 22
         - ann > ben tcp 22
         - ann > exit tcp 22",
    );
    let knows = |id| compiled.peers_of(NodeId(id)).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(knows(2), [3, 4]);
    assert_eq!(knows(5), [1, 4]);
    assert_eq!(knows(7), [0; 0]);
}

#[test]
fn sites_exits_and_services_by_grants() {
    let text = r#"{
        "hosts": {"office": "192.168.10.0/24", "plant": "192.168.20.0/24", "nas": "192.168.10.9",
                  "office6": "fd00:10::/64"},
        "tagOwners": {"tag:gw": ["ann@"], "tag:exit": ["ann@"], "tag:db": []},
        "autoApprovers": {
            "routes": {"192.168.0.0/16": ["tag:gw"]},
            "exitNode": ["tag:exit"],
        },
        "grants": [
            {"src": ["autogroup:member"], "dst": ["nas"], "ip": ["tcp:445", "icmp:*"]},
            {"src": ["ann@"], "dst": ["office", "office6", "plant"], "ip": ["*"]},
            {"src": ["ben@"], "dst": ["autogroup:internet"], "ip": ["tcp:443", "udp:53"]},
            // The plant sends its measurements by itself.
            {"src": ["plant"], "dst": ["tag:db"], "ip": ["tcp:8086"]},
            {"src": ["ann@"], "dst": ["tag:db"], "app": {"example.com/cap/backup": [{}]}},
        ],
        "tests": [
            {"src": "plant", "accept": ["tag:db:8086"], "deny": ["tag:db:22", "office:22"]},
            {"src": "ben@", "proto": "icmp", "accept": ["nas:*"]},
        ],
    }"#;
    let compiled = compiled(text, &["15:50: capabilities of applications are not handed on"]);
    ask(
        &compiled,
        "+ ben > 192.168.10.9 tcp 445
         + ben > 192.168.10.9 icmp 0
         - ben > 192.168.10.9 tcp 22
         - ben > 192.168.10.8 tcp 445
         + ann > 192.168.20.7 sctp 77
         + ann6 > fd00:10::5 tcp 1
         - ann > 192.168.30.1 tcp 1
         + ben > 1.1.1.1 udp 53
         - ben > 1.1.1.1 udp 54
         - ben > 10.0.0.1 tcp 443
         - ann > 1.1.1.1 tcp 443
         + 192.168.20.7 > db tcp 8086
         - 192.168.20.7 > db tcp 22
         - 192.168.10.7 > db tcp 8086
         - 192.168.20.7 > ann tcp 8086
         - ann > db tcp 8086",
    );
}

#[test]
fn a_file_of_the_old_kind() {
    let text = r#"{
        "Groups": {"group:all": ["ann@", "ben@", "cid@"]},
        "Hosts": {"db": "100.64.0.5"},
        "ACLs": [
            {"Action": "accept", "Users": ["group:all", "100.64.0.4"], "Ports": ["db:5432,22"]},
        ],
        "OneCGNATRoute": "", "randomizeClientPort": false,
    }"#;
    let compiled = compiled(text, &["7:9: \"OneCGNATRoute\"", "7:30: \"randomizeClientPort\""]);
    ask(
        &compiled,
        "+ ann > db tcp 5432
         + web > db udp 22
         + ben > db icmp 0
         - ben > db tcp 80
         - gw > db tcp 22
         - db > ann tcp 22",
    );
}

#[test]
fn nobody_talks_under_an_empty_list() {
    let compiled = compiled("{\"acls\": []}", &[]);
    ask(&compiled, "- ann > ben tcp 22\n- ben > ben2 icmp 0\n- ann > 1.1.1.1 udp 53");
    assert!((1..=7).all(|id| compiled.peers_of(NodeId(id)).is_empty()));
}
