//! What the machine itself sends through a circuit.

use std::net::{IpAddr, Ipv6Addr};

use super::six::{ends6, udp6};
use super::*;

/// What the machine itself sends goes through the circuit or nowhere, and what comes out of it is
/// never a neighbour's (CI-12, CI-22).
#[test]
fn ci_12_the_machine_sends_through_a_circuit_or_not_at_all() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    let own = Ipv4Addr::new(100, 64, 0, 7);
    let peer = Ipv4Addr::new(100, 64, 0, 9);
    let prefix = |text: &str| text.parse::<wire::prefix::Prefix>().expect("a prefix");
    let into = [prefix("0.0.0.0/0"), prefix("203.0.113.0/24")];
    let beside = [prefix("100.64.0.0/10"), prefix("203.0.113.0/28")];
    let machine = |circuit| Some(Machine::new(vec![own.into()], circuit, &into, &beside));
    let claims = |net: &Net, from: Ipv4Addr, to: Ipv4Addr| {
        net.machines[0].claims(IpAddr::V4(from), IpAddr::V4(to))
    };
    assert_eq!(claims(&net, own, SERVER), None, "nothing is led yet");
    net.machines[0].set_machine(machine(Some(id)));
    let far = Ipv4Addr::new(203, 0, 113, 99);
    assert_eq!(claims(&net, own, far), Some(Claim::Own(id)));
    assert_eq!(claims(&net, own, SERVER), None, "the longer prefix leads beside it");
    assert_eq!(claims(&net, own, peer), None, "the network's own does not");
    assert_eq!(claims(&net, peer, far), None, "nor what somebody else sends");

    net.send(id, &udp((own, 5000), (far, 443), MARKER)).expect("open");
    net.run();
    let (_, out) = net.got.pop().expect("it left");
    let (outer, _) = ends(&out);
    assert_eq!(outer.0, EXIT_ADDRESS, "the machine's address is not told");
    net.answer(3, udp((far, 443), outer, MARKER)).expect("a flow");
    net.run();
    let (at, back) = net.got.pop().expect("it came back");
    assert_eq!((at, ends(&back)), (0, ((far, 443), (own, 5000))));

    // An exit that lies about who sends: a packet as from a peer of the network.
    let hop = *net.machines[3].hops.keys().next().expect("one circuit");
    for (from, arrives) in [(peer, false), (SERVER, false), (far, true)] {
        let to = net.machines[3].hops[&hop].address;
        let packet = udp((from, 443), (to, 5000), MARKER);
        let len = net.machines[3].hops[&hop].frame_len(packet.len()).expect("it fits");
        let mut bytes = vec![0; len];
        net.machines[3].write_answer(hop, &packet, &mut bytes, net.now).expect("open");
        net.queue.push_back(Sent { from: 3, to: 2, bytes });
        net.run();
        assert_eq!(net.got.pop().is_some(), arrives, "from {from}");
    }

    // The circuit is dead: what would go through it goes nowhere.
    net.with(0, |client, world| client.close(id, true, world.now));
    assert_eq!(claims(&net, own, far), Some(Claim::Own(id)));
    assert_eq!(net.machines[0].plan(id, 40, false), Err(Drop::NoCircuit));
    net.machines[0].set_machine(machine(None));
    let Some(Claim::Own(none)) = claims(&net, own, far) else { panic!("it left beside") };
    assert_eq!(net.machines[0].plan(none, 40, false), Err(Drop::NoCircuit));
}

/// The same of IPv6: the machine's own address of that version stands for it at both ends.
#[test]
fn ci_12_what_the_machine_sends_by_ipv6_goes_through_a_circuit_or_not_at_all() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    let own: Ipv6Addr = "fd77::7".parse().expect("an address");
    let far: Ipv6Addr = "2001:db8:1::9".parse().expect("an address");
    let into = ["::/0".parse::<wire::prefix::Prefix>().expect("a prefix")];
    let beside = ["fd77::/48".parse::<wire::prefix::Prefix>().expect("a prefix")];
    let machine = |addresses: &[IpAddr], circuit| {
        Some(Machine::new(addresses.to_vec(), circuit, &into, &beside))
    };
    let four = IpAddr::V4(Ipv4Addr::new(100, 64, 0, 7));
    net.machines[0].set_machine(machine(&[four, IpAddr::V6(own)], Some(id)));
    let claims = |net: &Net, from: IpAddr, to: &str| {
        net.machines[0].claims(from, to.parse().expect("an address"))
    };
    assert_eq!(claims(&net, own.into(), "2001:db8:1::9"), Some(Claim::Own(id)));
    assert_eq!(claims(&net, own.into(), "fd77::9"), None, "the network's own");
    assert_eq!(claims(&net, four, "203.0.113.9"), None, "IPv4 is not led");
    net.send(id, &udp6((own, 5000), (far, 443), MARKER)).expect("open");
    net.run();
    let (_, out) = net.got.pop().expect("it left");
    let outer = (rewrite::six(EXIT_ADDRESS), ends6(&out).0.1);
    assert_eq!(ends6(&out).0.0, outer.0, "the machine's address is not told");
    net.answer(3, udp6((far, 443), outer, MARKER)).expect("a flow");
    net.run();
    let (at, back) = net.got.pop().expect("it came back");
    assert_eq!((at, ends6(&back)), (0, ((far.into(), 443), (own.into(), 5000))));
    // A machine without such an address is handed nothing.
    net.machines[0].set_machine(machine(&[four], Some(id)));
    net.answer(3, udp6((far, 443), outer, MARKER)).expect("a flow");
    net.run();
    assert!(net.got.is_empty());
    assert_eq!(net.dropped(0, Drop::NotCarried), 1);
}
