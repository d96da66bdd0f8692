//! What the filter costs a packet, beside one look-up in the standard library's hash table.
//!
//! `cargo run --release -p warren-policy --example judging`

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a bench asks the clock and prints its table; it is no part of the core"
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use policy::{
    Compiled, Direction, Directory, Filter, Node, NodeId, Peer, Policy, Rules, User, Verdict,
};
use wire::packet::{self, Packet};

/// Short rounds, of which the best counts: what else the machine does only makes a round slower.
const ROUNDS: usize = 30;
const PACKETS: usize = 200_000;
const NODES: u32 = 1000;
const GROUPS: u32 = 100;

fn main() {
    println!("ns a packet; table: flows known; ratio: to one look-up in a HashMap of as many");
    println!("{:>28} {:>8} {:>8} {:>8} {:>7}", "", "flows", "judge", "HashMap", "ratio");
    for flows in [1, 100, 10_000, 60_000] {
        let packets = packets(flows);
        let views: Vec<_> = packets.iter().map(|bytes| view(bytes)).collect();
        let mut filter = filter();
        let known = best(&views, |packet, at| {
            let verdict = filter.judge(Direction::Out, peer(at), packet, 1000);
            assert_eq!(verdict, Verdict::Pass);
        });
        assert_eq!(filter.flows(), flows);
        let mut table: HashMap<_, u64> = views.iter().map(|packet| (tuple(packet), 1)).collect();
        let model = best(&views, |packet, _| {
            *table.get_mut(&tuple(packet)).expect("it is known") += 1;
        });
        row("a packet of a known flow", flows, known, model);
    }
    let walked = rules();
    let (count, sources) = (walked.inward.len(), walked.inward[0].sources.as_slice().len());
    println!("a first packet walks {count} rules of {sources} ranges of sources and more:");
    let views: Vec<Vec<u8>> = (0..5000).map(|port| datagram(NODES + 7, 1, 1, port)).collect();
    let views: Vec<_> = views.iter().map(|bytes| view(bytes)).collect();
    let mut filter = filter();
    let denied = best(&views, |packet, _| {
        let verdict = filter.judge(Direction::In, Peer(1), packet, 1000);
        assert_ne!(verdict, Verdict::Pass);
    });
    println!("{:>28} {:>8} {denied:>8.0}", "denied by all of them", filter.flows());
    let open = best(&views, |packet, _| {
        let _ = black_box(packet.transport());
    });
    println!("{:>28} {:>8} {open:>8.0}", "a view of the transport", "");
    let begin = Instant::now();
    drop(black_box(rules()));
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    println!("text of {GROUPS} rules to rules of one of {NODES} nodes: {ms:.1} ms");
}

fn row(what: &str, flows: usize, known: f64, model: f64) {
    println!("{what:>28} {flows:>8} {known:>8.0} {model:>8.0} {:>7.2}", known / model);
}

/// Nanoseconds an item of the best round.
fn best<T>(items: &[T], mut act: impl FnMut(&T, usize)) -> f64 {
    let round = |_| {
        let begin = Instant::now();
        for at in 0..PACKETS {
            let at = at % items.len();
            act(black_box(&items[at]), at);
        }
        begin.elapsed().as_nanos() as f64 / PACKETS as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

fn view(bytes: &[u8]) -> Packet<'_> {
    packet::parse(bytes).expect("built to be whole")
}

fn peer(at: usize) -> Peer {
    Peer(at as u32 % 8)
}

type Tuple = (std::net::IpAddr, std::net::IpAddr, [u8; 4], u8);

fn tuple(packet: &Packet<'_>) -> Tuple {
    let ports = *packet.payload().first_chunk().expect("UDP has ports");
    (packet.source(), packet.destination(), ports, packet.protocol())
}

fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x6440_0000 + node)
}

/// Packets of node 1 to eight others, one a flow.
fn packets(flows: usize) -> Vec<Vec<u8>> {
    (0..flows).map(|at| datagram(1, 2 + at as u32 % 8, at as u16 / 8 + 1, 443)).collect()
}

fn datagram(from: u32, to: u32, source_port: u16, port: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend(address(from).octets().iter().chain(&address(to).octets()));
    bytes.extend([source_port, port, 108, 0].map(u16::to_be_bytes).concat());
    bytes.resize(128, 0);
    bytes
}

/// A network of 1000 nodes of as many users in 100 groups, each of which may reach the next.
fn rules() -> Rules {
    let group = |group: u32| {
        let members = (1..=NODES).filter(|node| node % GROUPS == group);
        let members: String = members.map(|node| format!("\"u{node}@\",")).collect();
        format!("\"group:g{group}\": [{members}],")
    };
    let groups: String = (0..GROUPS).map(group).collect();
    let rule = |group: u32| {
        format!(
            "{{\"action\": \"accept\", \"src\": [\"group:g{group}\"], \"dst\": [\"*:80,443\"]}},"
        )
    };
    let text: String = (0..GROUPS).map(rule).collect();
    let text = format!("{{\"groups\": {{{groups}}}, \"acls\": [{text}]}}");
    let (policy, _) = Policy::parse(text.as_bytes()).expect("a sound policy");
    let users = (1..=NODES).map(|n| User { name: format!("u{n}"), ..User::default() }).collect();
    let node = |n: u32| Node {
        id: NodeId(n.into()),
        name: format!("n{n}"),
        addresses: vec![address(n).into()],
        owner: Some(format!("u{n}")),
        tags: Vec::new(),
        routes: Vec::new(),
    };
    let nodes = (1..=NODES).map(node).collect();
    let directory = Directory { users, nodes, ..Directory::default() };
    Compiled::new(&policy, &directory).expect("a sound directory").rules_for(NodeId(1))
}

fn filter() -> Filter {
    let mut filter = Filter::new([0x1234_5678, 0x9abc_def0]);
    filter.set_rules(rules());
    filter
}
