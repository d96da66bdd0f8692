//! Cases 11, 12 and 15: WireGuard inside WireGuard, and inside itself.

use std::rc::Rc;
use std::thread::sleep;

use crate::support::{
    Daemon, KeyPair, Node, Pair, Plan, Result, Scene, Sut, ensure, scene, seconds, traffic,
};

/// What upstream allows to be sent after a loop was built.
const LOOP_BYTES_MAX: u64 = 70_000;

#[test]
fn case_11_wireguard_is_routed_through_wireguard() -> Result<()> {
    scene("n11", |scene| {
        let outside = Pair::new(scene)?;
        outside.settle()?;
        let inside = nested(scene, &outside)?;
        inside.set_mtu(1340)?;
        traffic::all_kinds(&inside)?;
        let before = outside.one.daemon.transfer(&outside.two.keys.public_text())?.1;
        inside.one.flood_ping(inside.two.v4, 10)?;
        let after = outside.one.daemon.transfer(&outside.two.keys.public_text())?.1;
        ensure!(after - before >= 10 * (128 + 28 + 32), "the inner link did not use the outer");
        Ok(())
    })
}

/// A second pair whose sockets are in the hosts of the first, toward its inner addresses.
fn nested(scene: &Scene, outside: &Pair) -> Result<Pair> {
    let nest = |below: &Node, suffix: &str, v4, v6| -> Result<Node> {
        let daemon = scene.daemon(&Sut::under_test(), &below.host, &scene.ifname(suffix))?;
        let keys = KeyPair::new();
        let (outer_v4, outer_v6) = (below.v4, below.v6);
        Ok(Node { host: below.host.clone(), daemon, keys, port: 10, v4, v6, outer_v4, outer_v6 })
    };
    let one = nest(&outside.one, "c", "10.78.0.1", "fd78::1")?;
    let two = nest(&outside.two, "d", "10.78.0.2", "fd78::2")?;
    let pair = Pair { one, two, outer: outside.outer.clone(), psk: None };
    for (me, peer) in [(&pair.one, &pair.two), (&pair.two, &pair.one)] {
        me.daemon.set_config(&me.config(peer, None, Some(&peer.endpoint_v4())))?;
        let addresses = [format!("{}/24", me.v4), format!("{}/64", me.v6)];
        me.host.bring_up(&me.daemon.ifname, &[&addresses[0], &addresses[1]])?;
        me.daemon.wait_bound(me.port)?;
    }
    Ok(pair)
}

/// One flood of pings into an interface whose datagrams come back to it; how much it sent.
fn sent_into_loop(daemon: &Rc<Daemon>, peer: &str, address: &str) -> Result<u64> {
    let before = daemon.transfer(peer)?.1;
    let cpu_before_s = daemon.process.cpu_s();
    let argv = ["ping", "-n", "-q", "-f", "-W", "1", "-c", "10", address];
    let output = daemon.home.output(&argv)?;
    ensure!(!output.status.success(), "a ping through a loop was answered");
    sleep(seconds(1));
    let sent = daemon.transfer(peer)?.1 - before;
    let cpu_s = daemon.process.cpu_s() - cpu_before_s;
    eprintln!("a routing loop sent {sent} bytes and cost {cpu_s:.2} s of processor time");
    ensure!(daemon.process.is_running(), "the program ended");
    Ok(sent)
}

#[test]
fn case_12_a_routing_loop_sends_less_than_70_000_bytes() -> Result<()> {
    scene("n12", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        // A second handshake within 20 ms of the first is refused, and moving begins one.
        sleep(std::time::Duration::from_millis(100));
        // The interface comes back to where its socket is, so now it can carry its own datagrams.
        let name = &one.daemon.ifname;
        one.host.run(&["ip", "link", "set", name, "netns", pair.outer.namespace()])?;
        pair.outer.bring_up(name, &["10.77.0.1/24"])?;
        pair.outer.run(&["ping", "-n", "-c", "1", "-W", "2", two.v4])?;
        one.point_at(two, &format!("{}:7", two.v4))?;
        two.daemon.process.stop()?;
        let sent = sent_into_loop(&one.daemon, &two.keys.public_text(), two.v4)?;
        ensure!(sent < LOOP_BYTES_MAX, "{sent} bytes were sent into a routing loop");
        Ok(())
    })
}

#[test]
fn case_12_a_routing_loop_of_large_packets_ends() -> Result<()> {
    scene("n12b", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        sleep(std::time::Duration::from_millis(100));
        let name = &one.daemon.ifname;
        one.host.run(&["ip", "link", "set", name, "netns", pair.outer.namespace()])?;
        pair.outer.bring_up(name, &["10.77.0.1/24", "fd77::1/64"])?;
        pair.outer.run(&["ping", "-n", "-c", "1", "-W", "2", two.v4])?;
        one.point_at(two, &format!("[{}]:7", two.v6))?;
        two.daemon.process.stop()?;
        let before = one.daemon.transfer(&two.keys.public_text())?.1;
        // These exceed the MTU once they are wrapped, so they come back as fragments.
        pair.outer.output(&["ping", "-n", "-q", "-c", "5", "-i", "0.01", "-s", "1380", two.v4])?;
        sleep(seconds(1));
        let sent = one.daemon.transfer(&two.keys.public_text())?.1 - before;
        ensure!(sent < LOOP_BYTES_MAX, "{sent} bytes were sent into a loop of fragments");
        Ok(())
    })
}

/// A third node in the host of `two`: 10.79.0.2 inside, port 5 outside, and `one` for its peer.
fn third_beside_two(scene: &Scene, pair: &Pair) -> Result<(Rc<Daemon>, KeyPair)> {
    let (one, two) = (&pair.one, &pair.two);
    let third = scene.daemon(&Sut::under_test(), &two.host, &scene.ifname("c"))?;
    let keys = KeyPair::new();
    third.set_config(&format!(
        "[Interface]\nPrivateKey={}\nListenPort=5\n[Peer]\nPublicKey={}\n\
         AllowedIPs=10.79.0.1/32\n",
        keys.private_text(),
        one.keys.public_text()
    ))?;
    two.host.bring_up(&third.ifname, &["10.79.0.2/24"])?;
    third.wait_bound(5)?;
    Ok((third, keys))
}

#[test]
fn case_15_a_peer_inside_another_peers_link_is_reached_even_when_it_loops() -> Result<()> {
    scene("n15", |scene| {
        let plan = Plan { outer: crate::support::Outer::Veth, ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        let (third, keys) = third_beside_two(scene, &pair)?;
        let peer = keys.public_text();
        one.daemon.set(&format!("peer {peer} allowed-ips 10.79.0.2/32 endpoint 10.77.0.2:5"))?;
        one.host.run(&["ip", "addr", "add", "10.79.0.1/24", "dev", &one.daemon.ifname])?;
        one.ping_once("10.79.0.2")?;
        third.process.stop()?;
        one.daemon.set(&format!("peer {peer} endpoint 10.79.0.2:5"))?;
        let sent = sent_into_loop(&one.daemon, &peer, "10.79.0.2")?;
        ensure!(sent < LOOP_BYTES_MAX, "{sent} bytes were sent to a peer inside itself");
        one.ping_once(two.v4)?;
        Ok(())
    })
}

/// Threat NT-07: each peer's endpoint lies in the other's allowed IPs, so that no datagram goes
/// back to the peer it was sealed for, and yet all go round.
#[test]
fn case_12_lc_11_a_routing_loop_through_two_peers_ends() -> Result<()> {
    scene("n12c", |scene| {
        let plan = Plan { outer: crate::support::Outer::Veth, ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        let (third, keys) = third_beside_two(scene, &pair)?;
        let (second, third_peer) = (two.keys.public_text(), keys.public_text());
        one.daemon
            .set(&format!("peer {third_peer} allowed-ips 10.79.0.2/32 endpoint 10.9.0.2:5"))?;
        one.host.run(&["ip", "addr", "add", "10.79.0.1/24", "dev", &one.daemon.ifname])?;
        one.ping_once("10.79.0.2")?;
        one.ping_once(two.v4)?;
        // Both have sessions, and now each is to be reached through the other only.
        third.process.stop()?;
        two.daemon.process.stop()?;
        one.daemon.set(&format!("peer {second} endpoint 10.79.0.2:7"))?;
        one.daemon.set(&format!("peer {third_peer} endpoint {}:7", two.v4))?;
        let total = || -> Result<u64> {
            Ok(one.daemon.transfer(&second)?.1 + one.daemon.transfer(&third_peer)?.1)
        };
        let (before, cpu_s) = (total()?, one.daemon.process.cpu_s());
        for address in [two.v4, "10.79.0.2"] {
            one.host.output(&["ping", "-n", "-q", "-f", "-W", "1", "-c", "10", address])?;
        }
        // These are fragments once they are wrapped.
        one.host.output(&["ping", "-n", "-q", "-c", "5", "-i", "0.01", "-s", "1380", two.v4])?;
        sleep(seconds(1));
        let (sent, cpu_s) = (total()? - before, one.daemon.process.cpu_s() - cpu_s);
        eprintln!("a loop through two peers sent {sent} bytes in {cpu_s:.2} s of processor time");
        ensure!(sent < LOOP_BYTES_MAX, "{sent} bytes were sent into a loop through two peers");
        Ok(())
    })
}
