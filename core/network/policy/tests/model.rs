//! The compiler and the filter against a naive reading of the text (PF-14).
//!
//! A policy is made up as lists of words and written as HuJSON. What the crate makes of it is
//! compared with a model that knows the words only: it looks at one packet, one rule and one word
//! at a time, and knows neither sets nor tables. `PROPTEST_CASES=100000` makes it a long test.

use std::collections::BTreeSet;
use std::net::IpAddr;

use policy::{
    Compiled, Direction, Directory, Explanation, Filter, Node, NodeId, Peer, Policy, User, Verdict,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::prefix::Prefix;

const USERS: [&str; 3] = ["ann", "ben", "cid"];
const GROUPS: [&str; 2] = ["group:a", "group:b"];
const TAGS: [&str; 3] = ["tag:x", "tag:y", "tag:z"];
const RESERVED: [&str; 2] = ["100.64.0.0/10", "fd7a::/48"];
const ROUTES: [&str; 9] = [
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.0.0.0/8",
    "fd00:1::/64",
    "0.0.0.0/0",
    "::/0",
    "100.64.7.0/24",
    "100.64.0.0/24",
    "9.9.9.0/24",
];
/// Every prefix in a rule or route holds one of these.
const PLACES: [&str; 13] = [
    "10.1.0.5",
    "10.1.2.5",
    "10.9.0.5",
    "192.168.1.1",
    "9.9.9.9",
    "1.1.1.1",
    "100.64.7.7",
    "100.64.0.99",
    "100.64.0.0",
    "fd7a::",
    "fd00:1::5",
    "fd00:2::5",
    "2606::1",
];
const SOURCES: [&str; 20] = [
    "*",
    "ann@",
    "ben@example.com",
    "user:*@example.com",
    "group:a",
    "group:b",
    "tag:x",
    "tag:y",
    "autogroup:member",
    "autogroup:tagged",
    "autogroup:admin",
    "autogroup:danger-all",
    "lan",
    "100.64.0.2",
    "100.64.0.0/30",
    "fd7a::/126",
    "10.1.2.0/24",
    "0.0.0.0/0",
    "::/0",
    "fd00:1::5",
];
const DESTINATIONS: [&str; 18] = [
    "*",
    "ann@",
    "cid@",
    "group:a",
    "group:b",
    "tag:x",
    "tag:z",
    "autogroup:member",
    "autogroup:tagged",
    "autogroup:self",
    "autogroup:internet",
    "lan",
    "100.64.0.3",
    "10.1.2.0/24",
    "0.0.0.0/0",
    "::/0",
    "192.168.1.1",
    "fd7a::2",
];
const PORTS: [&str; 5] = ["*", "80", "22,443", "400-500", "80,1000"];
const ACL_PROTOCOLS: [&str; 7] = ["", "tcp", "udp", "icmp", "sctp", "47", "ipv6-icmp"];
const GRANT_PORTS: [&str; 8] =
    ["*", "80", "tcp:80", "udp:*", "tcp:400-500", "icmp:*", "47:*", "132:80"];
const PACKET_PORTS: [u16; 5] = [22, 80, 443, 1000, 7];

/// A rule as words: sources, destinations, and (ports, protocol) or a grant's capabilities.
#[derive(Clone, Debug)]
enum Words {
    Acl { src: Vec<&'static str>, proto: &'static str, dst: Vec<(&'static str, &'static str)> },
    Grant { src: Vec<&'static str>, dst: Vec<&'static str>, ip: Vec<&'static str> },
}

#[derive(Clone, Debug)]
struct World {
    groups: [Vec<&'static str>; 2],
    rules: Vec<Words>,
    directory: Directory,
}

fn has_ports(proto: &str) -> bool {
    matches!(proto, "" | "tcp" | "udp" | "sctp")
}

impl World {
    fn text(&self) -> String {
        let list = |words: &[&str]| {
            words.iter().map(|word| format!("\"{word}\",")).collect::<Vec<_>>().join(" ")
        };
        let (mut acls, mut grants) = (String::new(), String::new());
        for rule in &self.rules {
            match rule {
                Words::Acl { src, proto, dst } => {
                    let dst: Vec<_> =
                        dst.iter().map(|(to, ports)| format!("{to}:{ports}")).collect();
                    let dst: Vec<_> = dst.iter().map(String::as_str).collect();
                    acls += &format!(
                        "{{\"action\": \"accept\", \"proto\": \"{proto}\", \"src\": [{}], \
                         \"dst\": [{}]}}, // one\n",
                        list(src),
                        list(&dst)
                    );
                }
                Words::Grant { src, dst, ip } => {
                    grants += &format!(
                        "{{\"src\": [{}], \"dst\": [{}], \"ip\": [{}]}},\n",
                        list(src),
                        list(dst),
                        list(ip)
                    );
                }
            }
        }
        let tags: String = TAGS.iter().map(|tag| format!("\"{tag}\": [],")).collect();
        format!(
            "{{\"tagOwners\": {{{tags}}},\n\"hosts\": {{\"lan\": \"10.1.0.0/16\"}},\n\"groups\": \
             {{\"group:a\": [{}], \"group:b\": [{}]}},\n\"acls\": [{acls}],\n\
             \"grants\": [{grants}]}}",
            list(&self.groups[0]),
            list(&self.groups[1])
        )
    }

    fn node_of(&self, address: IpAddr) -> Option<&Node> {
        self.directory.nodes.iter().find(|node| node.addresses.contains(&address))
    }

    fn user_of(&self, address: IpAddr) -> Option<&User> {
        let name = self.node_of(address)?.user()?;
        self.directory.users.iter().find(|user| user.name == name)
    }

    fn is_reserved(&self, address: IpAddr) -> bool {
        self.directory.reserved.iter().any(|prefix| prefix.contains(address))
    }

    fn routes<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Prefix> + 'a {
        let refused = |route: &Prefix| !route.is_default() && self.is_reserved(route.address());
        node.routes.iter().copied().filter(move |route| !refused(route))
    }

    /// What a node answers for: its own, what its routes say, an exit for what nobody else has.
    fn answers(&self, node: &Node, address: IpAddr) -> bool {
        if let Some(owner) = self.node_of(address) {
            return owner.id == node.id;
        }
        let narrow = |node: &Node| {
            self.routes(node).any(|route| !route.is_default() && route.contains(address))
        };
        let is_exit = self.routes(node).any(|route| route.is_default() && route.contains(address));
        narrow(node)
            || is_exit && !self.is_reserved(address) && !self.directory.nodes.iter().any(narrow)
    }

    fn owner(&self, address: IpAddr) -> Option<NodeId> {
        let length = |node: &Node| {
            let covering = self.routes(node).filter(|route| route.contains(address));
            covering.map(|route| route.bits()).max().unwrap_or(0)
        };
        let answering = self.directory.nodes.iter().filter(|node| self.answers(node, address));
        answering.max_by_key(|node| (length(node), std::cmp::Reverse(node.id))).map(|node| node.id)
    }

    fn means(&self, word: &str, address: IpAddr, source: Option<IpAddr>) -> bool {
        let node = self.node_of(address);
        let user = self.user_of(address);
        let is_user = |word: &str, user: &User| {
            word == format!("{}@", user.name) || Some(word) == user.email.as_deref()
        };
        match word {
            "*" => {
                let mut routes = self.directory.nodes.iter().flat_map(|node| self.routes(node));
                let routed = || routes.any(|route| !route.is_default() && route.contains(address));
                node.is_some() || source.is_some() && { routed }()
            }
            "autogroup:danger-all" => true,
            "autogroup:member" => user.is_some(),
            "autogroup:tagged" => node.is_some_and(|node| !node.tags.is_empty()),
            "autogroup:admin" => user.is_some_and(|user| user.roles.contains(&"admin".to_owned())),
            "autogroup:self" => {
                let source = source.and_then(|source| self.user_of(source));
                user.is_some() && user == source
            }
            "autogroup:internet" => {
                ["9.9.9.9", "1.1.1.1", "2606::1"].contains(&&*address.to_string())
            }
            "user:*@example.com" => user.is_some(),
            "group:a" | "group:b" => {
                let members = &self.groups[usize::from(word == "group:b")];
                user.is_some_and(|user| members.iter().any(|word| is_user(word, user)))
            }
            "lan" => parse("10.1.0.0/16").contains(address),
            tag if tag.starts_with("tag:") => {
                node.is_some_and(|n| n.tags.contains(&tag.to_owned()))
            }
            name if name.contains('@') => user.is_some_and(|user| is_user(name, user)),
            prefix => parse(prefix).contains(address),
        }
    }

    /// Whether one rule allows it; without a protocol, whether it allows the pair anything.
    fn allows(&self, from: IpAddr, to: IpAddr, what: Option<(u8, u16)>) -> bool {
        let any = |words: &[&str], address, source| {
            words.iter().any(|word| self.means(word, address, source))
        };
        self.rules.iter().any(|rule| match rule {
            Words::Acl { src, proto, dst } => {
                any(src, from, None)
                    && dst.iter().any(|(word, ports)| {
                        let ports = if has_ports(proto) { ports } else { "*" };
                        self.means(word, to, Some(from))
                            && what.is_none_or(|(number, port)| serves(proto, ports, number, port))
                    })
            }
            Words::Grant { src, dst, ip } => {
                any(src, from, None)
                    && any(dst, to, Some(from))
                    && ip.iter().any(|word| {
                        what.is_none_or(|(number, port)| match word.split_once(':') {
                            None if *word == "*" => true,
                            None => serves("", word, number, port),
                            Some((proto, ports)) => serves(proto, ports, number, port),
                        })
                    })
            }
        })
    }
}

fn parse(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn serves(proto: &str, ports: &str, number: u8, port: u16) -> bool {
    let is_protocol = match proto {
        "" => [6, 17, 1, 58].contains(&number),
        "tcp" => number == 6,
        "udp" => number == 17,
        "icmp" => number == 1 || number == 58,
        "ipv6-icmp" => number == 58,
        "sctp" | "132" => number == 132,
        "47" => number == 47,
        _ => panic!("{proto}"),
    };
    let in_ports = ports.split(',').any(|part| match part.split_once('-') {
        _ if part == "*" => true,
        Some((first, last)) => (first.parse::<u16>().expect("made for this")
            ..=last.parse().expect("made for this"))
            .contains(&port),
        None => part == port.to_string(),
    });
    is_protocol && (in_ports || ![6, 17, 132].contains(&number))
}

/// A first packet of a protocol to a port, and the reply to it.
fn packets(from: IpAddr, to: IpAddr, number: u8, port: u16) -> [Vec<u8>; 2] {
    let build = |from: IpAddr, to: IpAddr, ports: [u16; 2], is_reply: bool| {
        let mut upper = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
        upper.extend([0, 24, 0, 0]);
        upper.resize(24, 0);
        match number {
            6 => upper[12..14].copy_from_slice(&[0x50, if is_reply { 0x12 } else { 2 }]),
            1 => upper[..2].copy_from_slice(&[if is_reply { 0 } else { 8 }, 0]),
            58 => upper[..2].copy_from_slice(&[if is_reply { 129 } else { 128 }, 0]),
            _ => (),
        }
        let mut bytes;
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes = vec![0x45, 0, 0, 44, 0, 0, 0, 0, 64, number, 0, 0];
                bytes.extend(from.octets().iter().chain(&to.octets()));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes = vec![0x60, 0, 0, 0, 0, 24, number, 64];
                bytes.extend(from.octets().iter().chain(&to.octets()));
            }
            _ => panic!("one family"),
        }
        bytes.extend(upper);
        bytes
    };
    [build(from, to, [5000, port], false), build(to, from, [port, 5000], true)]
}

/// Owner, tags and routes of a node.
type Drawn = (Option<&'static str>, Option<Vec<&'static str>>, Option<Vec<&'static str>>);

fn worlds() -> impl Strategy<Value = World> {
    let acl = (
        vec(select(&SOURCES[..]), 0..4),
        select(&ACL_PROTOCOLS[..]),
        vec((select(&DESTINATIONS[..]), select(&PORTS[..])), 0..4),
    );
    let acl = acl.prop_map(|(src, proto, mut dst)| {
        if !has_ports(proto) {
            dst.iter_mut().for_each(|(_, ports)| *ports = "*");
        }
        Words::Acl { src, proto, dst }
    });
    let grant = (
        vec(select(&SOURCES[..]), 0..4),
        vec(select(&DESTINATIONS[..]), 0..4),
        vec(select(&GRANT_PORTS[..]), 1..3),
    );
    let grant = grant.prop_map(|(src, dst, ip)| Words::Grant { src, dst, ip });
    let member = || select(&["ann@", "ben@", "cid@example.com", "gone@"][..]);
    let node = (
        proptest::option::of(select(&USERS[..])),
        proptest::option::weighted(0.4, vec(select(&TAGS[..]), 1..3)),
        proptest::option::weighted(0.5, vec(select(&ROUTES[..]), 1..4)),
    );
    let rules = vec(prop_oneof![acl, grant], 0..5);
    (vec(member(), 0..3), vec(member(), 0..3), rules, vec(node, 3..6), any::<bool>()).prop_map(
        |(a, b, rules, nodes, is_reserved)| {
            let user = |name: &&str| User {
                name: (*name).to_owned(),
                email: Some(format!("{name}@example.com")),
                roles: if *name == "cid" { vec!["admin".into()] } else { Vec::new() },
            };
            let node = |(at, (owner, tags, routes)): (usize, Drawn)| {
                let id = at + 1;
                let addresses = [format!("100.64.0.{id}"), format!("fd7a::{id}")];
                Node {
                    id: NodeId(id as u64),
                    name: format!("n{id}"),
                    addresses: addresses
                        .iter()
                        .map(|text| text.parse().expect("made for this"))
                        .collect(),
                    owner: owner.map(str::to_owned),
                    tags: tags.unwrap_or_default().into_iter().map(str::to_owned).collect(),
                    routes: routes.unwrap_or_default().into_iter().map(parse).collect(),
                }
            };
            let directory = Directory {
                users: USERS.iter().map(user).collect(),
                nodes: nodes.into_iter().enumerate().map(node).collect(),
                reserved: RESERVED.iter().filter(|_| is_reserved).map(|text| parse(text)).collect(),
                carried: std::collections::BTreeMap::new(),
            };
            World { groups: [a, b], rules, directory }
        },
    )
}

fn compile(world: &World) -> Compiled {
    let text = world.text();
    let (policy, _) = Policy::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    assert_eq!(GROUPS.map(|group| policy.groups.contains_key(group)), [true; 2]);
    Compiled::new(&policy, &world.directory).expect("the directory is sound")
}

fn addresses(world: &World) -> Vec<IpAddr> {
    let own = world.directory.nodes.iter().flat_map(|node| node.addresses.iter().copied());
    own.chain(PLACES.iter().map(|text| text.parse().expect("made for this"))).collect()
}

proptest! {
    #[test]
    fn pf_14_filters_and_explanations_agree_with_a_naive_reading(
        world in worlds(),
        packets_of in vec((any::<u16>(), any::<u16>(), 0usize..5, select(&PACKET_PORTS[..])), 40),
    ) {
        let compiled = compile(&world);
        let all = addresses(&world);
        for (from, to, protocol, port) in packets_of {
            let from = all[usize::from(from) % all.len()];
            let same: Vec<_> = all.iter().filter(|to| to.is_ipv4() == from.is_ipv4()).collect();
            let to = *same[usize::from(to) % same.len()];
            let number = [6, 17, if from.is_ipv4() { 1 } else { 58 }, 132, 47][protocol];
            let allowed = world.allows(from, to, Some((number, port)));
            let (sender, receiver) = (world.owner(from), world.owner(to));
            let crosses = sender.is_some() && receiver.is_some() && sender != receiver;
            let explained = compiled.explain(from, to, number, port);
            let is_allowed = matches!(explained, Explanation::Allowed { .. });
            prop_assert_eq!(is_allowed, allowed && crosses, "{} {} {:?}", from, to, explained);
            prop_assert_eq!(compiled.owner_of(from), sender);

            let [question, answer] = packets(from, to, number, port);
            let question = wire::packet::parse(&question).unwrap();
            let answer = wire::packet::parse(&answer).unwrap();
            for node in &world.directory.nodes {
                for (direction, back, near) in
                    [(Direction::Out, Direction::In, from), (Direction::In, Direction::Out, to)]
                {
                    let mut filter = Filter::new([5, 6]);
                    filter.set_rules(compiled.rules_for(node.id));
                    let verdict = filter.judge(direction, Peer(1), &question, 0);
                    let wanted = allowed && world.answers(node, near);
                    prop_assert_eq!(
                        verdict == Verdict::Pass, wanted,
                        "node {} {:?} {} {} {}:{}", node.id.0, direction, from, to, number, port
                    );
                    if wanted {
                        prop_assert_eq!(filter.judge(back, Peer(1), &answer, 1), Verdict::Pass);
                    }
                }
            }
        }
    }

    #[test]
    fn pf_14_co_14_a_node_knows_exactly_those_it_may_talk_with(world in worlds()) {
        let compiled = compile(&world);
        let all = addresses(&world);
        for node in &world.directory.nodes {
            let talks = |other: &Node| all.iter().any(|from| all.iter().any(|to| {
                from.is_ipv4() == to.is_ipv4()
                    && world.allows(*from, *to, None)
                    && (world.answers(node, *from) && world.answers(other, *to)
                        || world.answers(other, *from) && world.answers(node, *to))
            }));
            let others = world.directory.nodes.iter().filter(|other| other.id != node.id);
            let wanted: BTreeSet<NodeId> = others.filter(|o| talks(o)).map(|o| o.id).collect();
            let known: BTreeSet<NodeId> = compiled.peers_of(node.id).into_iter().collect();
            prop_assert_eq!(known, wanted, "node {}", node.id.0);
        }
    }
}
