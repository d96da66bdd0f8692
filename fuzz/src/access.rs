//! A policy file, and the filter that enforces what was made of it.

use std::collections::BTreeMap;

use policy::{
    Compiled, Direction, Directory, Explanation, Filter, Node, NodeId, Peer, Policy, Reason, Rules,
    User, Verdict,
};
use wire::packet::{self, Packet};

fn directory() -> Directory {
    let user = |name: &str| User {
        name: name.to_owned(),
        email: Some(format!("{name}@example.com")),
        roles: vec!["admin".to_owned()],
    };
    let node = |id: u64, owner: Option<&str>, tag: Option<&str>, routes: &[&str]| Node {
        id: NodeId(id),
        name: format!("n{id}"),
        addresses: [format!("100.64.0.{id}"), format!("fd7a::{id}")]
            .map(|text| text.parse().expect("an address"))
            .to_vec(),
        owner: owner.map(str::to_owned),
        tags: tag.map(str::to_owned).into_iter().collect(),
        routes: routes.iter().map(|route| route.parse().expect("a prefix")).collect(),
    };
    Directory {
        users: vec![user("ann"), user("ben")],
        nodes: vec![
            node(1, Some("ann"), None, &[]),
            node(2, Some("ben"), None, &[]),
            node(3, None, Some("tag:web"), &[]),
            node(4, None, Some("tag:gw"), &["10.0.0.0/8", "0.0.0.0/0"]),
        ],
        reserved: vec!["100.64.0.0/10".parse().expect("a prefix")],
        carried: BTreeMap::new(),
    }
}

/// A policy file. A mistake has a place in the file and stays on one line; what is good always
/// means the same, and the filters of both ends agree with what is said of it.
pub fn policy(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<&str> = text.split('\n').collect();
    let check_findings = |findings: &[policy::Finding]| {
        assert!(findings.len() <= 20);
        for finding in findings {
            let line = finding.place.line as usize;
            let column = finding.place.column as usize;
            assert!((1..=lines.len()).contains(&line), "{finding}");
            assert!((1..=lines[line - 1].chars().count() + 1).contains(&column), "{finding}");
            assert!(!finding.to_string().contains(char::is_control), "{finding}");
            assert!(!finding.what.is_empty() && !finding.mend.is_empty());
        }
    };
    let parsed = Policy::parse(data);
    assert_eq!(parsed, Policy::parse(data));
    let (policy, warnings) = match parsed {
        Ok(read) => read,
        Err(faults) => {
            assert!(!faults.is_empty());
            return check_findings(&faults);
        }
    };
    check_findings(&warnings);
    if let Err(failures) = policy::check(&policy, &directory()) {
        check_findings(&failures);
    }
    let compiled = Compiled::new(&policy, &directory()).expect("the directory is sound");
    for (from, to) in [(1, 2), (2, 3), (3, 1), (1, 4)] {
        let [source, destination] =
            [from, to].map(|id| format!("100.64.0.{id}").parse().expect("an address"));
        let said = compiled.explain(source, destination, 17, 443);
        let is_allowed = matches!(said, Explanation::Allowed { .. });
        let bytes = datagram(from, to);
        let packet = packet::parse(&bytes).expect("it is whole");
        for (id, direction) in [(from, Direction::Out), (to, Direction::In)] {
            let mut filter = Filter::new([1, 2]);
            filter.set_rules(compiled.rules_for(NodeId(id.into())));
            let verdict = filter.judge(direction, Peer(0), &packet, 0);
            assert_eq!(verdict == Verdict::Pass, is_allowed, "{said:?}");
        }
        let known = compiled.peers_of(NodeId(from.into())).contains(&NodeId(to.into()));
        assert!(known || !is_allowed);
    }
}

fn datagram(from: u8, to: u8) -> Vec<u8> {
    let mut bytes =
        vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 100, 64, 0, from, 100, 64, 0, to];
    bytes.extend([0x10, 0, 1, 0xbb, 0, 8, 0, 0]);
    bytes
}

/// Packets one behind the other, each with three bytes of direction, peer and time in front. All
/// are counted, the table keeps its bound, and what the rules deny both ways does not pass.
pub fn filter(mut data: &[u8]) {
    const FLOWS_MAX: usize = 8;
    let compiled = Compiled::new(&Policy::open(), &directory()).expect("the directory is sound");
    let rules = compiled.rules_for(NodeId(1));
    let mut filter = Filter::with_flows_max([3, 4], FLOWS_MAX);
    filter.set_rules(rules.clone());
    let mut judged = 0;
    let mut now_ms = 0;
    while let [direction, peer, time, rest @ ..] = data {
        data = rest;
        let Ok(packet) = packet::parse(data) else { break };
        data = &data[packet.bytes().len()..];
        let direction = if direction & 1 == 0 { Direction::In } else { Direction::Out };
        now_ms += u64::from(*time) * 100;
        let verdict = filter.judge(direction, Peer(u32::from(peer & 3)), &packet, now_ms);
        judged += 1;
        assert!(verdict != Verdict::Pass || is_ours(&packet, direction), "{packet:?}");
        assert!(filter.flows() <= FLOWS_MAX);
        if *peer == 0xff {
            let flows = filter.flows();
            assert_eq!(filter.set_rules(Rules::default()), flows);
            assert_ne!(filter.judge(direction, Peer(0), &packet, now_ms), Verdict::Pass);
            judged += 1;
            filter.set_rules(rules.clone());
        }
    }
    let dropped: u64 = Reason::ALL.iter().map(|reason| filter.dropped(*reason)).sum();
    assert_eq!(filter.passed() + dropped, judged);
}

/// Whether the near end of a packet is node 1: under its rules nothing else can pass.
fn is_ours(packet: &Packet<'_>, direction: Direction) -> bool {
    let near = match direction {
        Direction::In => packet.destination(),
        Direction::Out => packet.source(),
    };
    ["100.64.0.1", "fd7a::1"].contains(&&*near.to_string())
}

/// Texts that are good, and packets of a few flows.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    if target == "policy" {
        let texts = [
            "{}",
            "// none\n{\"acls\": [],}",
            "{\"groups\": {\"group:dev\": [\"ann@\", \"ben@example.com\"]},\n\
             \"tagOwners\": {\"tag:web\": [\"group:dev\"], \"tag:gw\": [\"autogroup:admin\"]},\n\
             \"hosts\": {\"db\": \"10.1.2.3\", \"lan\": \"10.0.0.0/8\"},\n\
             \"acls\": [{\"action\": \"accept\", \"src\": [\"group:dev\", \"100.64.0.0/10\"],\n\
             \"dst\": [\"tag:web:80,443\", \"db:5432\", \"autogroup:internet:*\"]},\n\
             {\"action\": \"accept\", \"proto\": \"udp\", \"src\": [\"*\"], \
             \"dst\": [\"*:53\"]}],\n\
             \"tests\": [{\"src\": \"ann@\", \"accept\": [\"tag:web:443\"], \
             \"deny\": [\"db:22\"]}]}",
            "{\"grants\": [{\"src\": [\"autogroup:member\"], \"dst\": [\"autogroup:self\"],\n\
             \"ip\": [\"tcp:443\", \"udp:1-99\", \"icmp:*\", \"*\"]}],\n\
             \"autoApprovers\": {\"routes\": {\"10.0.0.0/8\": [\"ann@\"]}, \"exitNode\": []},\n\
             \"ssh\": [], /* not here */ \"nodeAttrs\": [{\"a\": [1, -2.5e3, null, true]}]}",
        ];
        return texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    }
    let step = |head: [u8; 3], packet: Vec<u8>| [&head[..], &packet].concat();
    let fragment = |offset: u8, more: u8| {
        let mut bytes = datagram(1, 2);
        bytes.resize(120, 0);
        bytes[2..8].copy_from_slice(&[0, 120, 0, 9, more, offset]);
        bytes
    };
    let error = {
        let mut bytes = datagram(2, 1);
        bytes.truncate(20);
        bytes[9] = 1;
        bytes.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend(datagram(1, 2));
        bytes[3] = bytes.len() as u8;
        bytes
    };
    vec![
        [step([1, 0, 1], datagram(1, 2)), step([0, 0, 1], datagram(2, 1))].concat(),
        [step([1, 0, 1], datagram(1, 2)), step([0, 0, 1], error)].concat(),
        [step([1, 0, 1], fragment(0, 0x20)), step([1, 0, 1], fragment(13, 0))].concat(),
        (2..20).flat_map(|to| step([1, 1, 0], datagram(1, to))).collect(),
        [step([0, 0xff, 9], datagram(3, 1)), step([0, 0, 200], datagram(4, 1))].concat(),
    ]
}
