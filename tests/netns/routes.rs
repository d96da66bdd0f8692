//! Cases 13, 14, 16 and 18 to 21: NAT, marks, default routes and source addresses.

use std::thread::sleep;

use crate::support::{Outer, Pair, Plan, Result, ensure, eventually, scene, seconds};

#[test]
fn case_13_keepalive_holds_a_nat_mapping_open() -> Result<()> {
    scene("n13", |scene| {
        let nat = scene.host("nat")?;
        // The pair's own veth is left unused; `one` is behind the NAT, `two` in front of it.
        let pair = Pair::with(
            scene,
            Plan { outer: Outer::Veth, endpoints: [false, false], ..Plan::default() },
        )?;
        let (one, two) = (&pair.one, &pair.two);
        scene.veth((&one.host, "vn", &["192.168.1.100/24"]), (&nat, "vi", &["192.168.1.1/24"]))?;
        scene
            .veth((&two.host, "vn", &["198.51.100.100/24"]), (&nat, "vo", &["198.51.100.1/24"]))?;
        one.host.sh("ip link set va down; ip route add default via 192.168.1.1")?;
        nat.sh("sysctl -qw net.ipv4.ip_forward=1
             nft 'add table ip nat; \
             add chain ip nat post { type nat hook postrouting priority 100; }; \
             add rule ip nat post ip saddr 192.168.1.0/24 oif vo snat to 198.51.100.1'
             sysctl -qw net.netfilter.nf_conntrack_udp_timeout=2
             sysctl -qw net.netfilter.nf_conntrack_udp_timeout_stream=2")?;
        let peer = two.keys.public_text();
        let words = format!("peer {peer} endpoint 198.51.100.100:10002 persistent-keepalive 1");
        one.daemon.set(&words)?;
        one.ping_once(two.v4)?;
        two.ping_once(one.v4)?;
        let learned = two.daemon.endpoint(&one.keys.public_text())?;
        ensure!(learned == "198.51.100.1:10001", "learned {learned} instead of the NAT's address");
        // Longer than the mapping lives by itself.
        sleep(seconds(3));
        two.ping_once(one.v4)?;
        // The control: without the keepalive the mapping is gone, else the case shows nothing.
        one.daemon.set(&format!("peer {peer} persistent-keepalive 0"))?;
        let forgotten = (0..3).any(|_| {
            sleep(seconds(3));
            two.ping_once(one.v4).is_err()
        });
        ensure!(forgotten, "the NAT forgets nothing, so nothing was shown");
        Ok(())
    })
}

#[test]
fn case_14_a_socket_bound_to_the_interface_reaches_the_peer_also_when_rerouted() -> Result<()> {
    scene("n14", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        pair.settle()?;
        let bound = ["ping", "-n", "-I", &one.daemon.ifname, "-c", "1", "-W", "1", two.v4];
        one.host.run(&bound)?;
        one.host.sh("nft 'add table inet t; \
             add chain inet t o { type route hook output priority mangle; }; \
             add rule inet t o meta mark set 1'")?;
        one.ping_once(two.v4)?;
        one.host.run(&bound)?;
        Ok(())
    })
}

#[test]
fn case_16_a_default_route_as_wg_quick_makes_it_carries_both_families() -> Result<()> {
    scene("n16", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let name = &one.daemon.ifname;
        two.host.sh(&format!(
            "ip addr add 192.0.2.7/32 dev {0}; ip addr add 2001:db8::1111/128 dev {0}",
            two.daemon.ifname
        ))?;
        let peer = two.keys.public_text();
        one.daemon.set(&format!("fwmark 51820 peer {peer} allowed-ips 0.0.0.0/0,::/0"))?;
        one.host.sh(&format!(
            "ip route add default via 10.9.0.2; ip -6 route add default via fd09::2
             ip route add default dev {name} table 51820
             ip -6 route add default dev {name} table 51820
             for f in -4 -6; do
               ip $f rule add not fwmark 51820 table 51820
               ip $f rule add table main suppress_prefixlength 0
             done
             echo 0 > /proc/sys/net/ipv4/conf/va/rp_filter
             echo 1 > /proc/sys/net/ipv4/conf/all/src_valid_mark"
        ))?;
        one.flood_ping("192.0.2.7", 100)?;
        one.flood_ping("2001:db8::1111", 100)?;
        pair.use_ipv6()?;
        one.flood_ping("192.0.2.7", 100)?;
        one.flood_ping("2001:db8::1111", 100)?;
        let at = two.daemon.endpoint(&one.keys.public_text())?;
        ensure!(at == one.endpoint_v6(), "datagrams came from {at}");
        Ok(())
    })
}

#[test]
fn case_18_a_source_address_that_goes_away_is_not_stuck_to() -> Result<()> {
    scene("n18", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        one.host.sh("echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries")?;
        let replaced = |old: &str, new: &str| -> Result<()> {
            one.host.sh(&format!("ip addr add {new} dev va nodad; ip addr del {old} dev va"))?;
            one.ping_once(two.v4)?;
            let at = two.daemon.endpoint(&one.keys.public_text())?;
            let address = new.split('/').next().unwrap_or_default();
            ensure!(at.contains(address), "datagrams come from {at}, not from {address}");
            two.ping_once(one.v4)?;
            Ok(())
        };
        one.ping_once(two.v4)?;
        replaced("10.9.0.1/24", "10.9.0.10/24")?;
        replaced("10.9.0.10/24", "10.9.0.11/24")?;
        one.point_at(two, &two.endpoint_v6())?;
        one.ping_once(two.v4)?;
        replaced("fd09::1/64", "fd09::10/64")?;
        replaced("fd09::10/64", "fd09::11/64")
    })
}

/// Points `two` at each address of `one` in turn; what comes back must come from there.
fn answers_come_from_the_address_asked(pair: &Pair, endpoints: &[&str]) -> Result<()> {
    let (one, two) = (&pair.one, &pair.two);
    for &endpoint in endpoints {
        two.point_at(one, endpoint)?;
        two.ping_once(one.v4)?;
        let at = two.daemon.endpoint(&one.keys.public_text())?;
        ensure!(at == endpoint, "asked at {endpoint}, answered from {at}");
    }
    Ok(())
}

#[test]
fn case_19_answers_come_from_the_address_that_was_asked() -> Result<()> {
    scene("n19", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [false, true], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        pair.one.host.sh("ip addr add 10.9.0.21/24 dev va
             ip addr add fd09::21/64 dev va nodad")?;
        let asked = ["10.9.0.1:10001", "10.9.0.21:10001", "[fd09::1]:10001", "[fd09::21]:10001"];
        answers_come_from_the_address_asked(&pair, &asked)?;
        answers_come_from_the_address_asked(&pair, &[asked[1], asked[0], asked[3], asked[2]])
    })
}

#[test]
fn case_20_an_address_on_another_interface_than_the_route_answers_as_itself() -> Result<()> {
    scene("n20", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [false, true], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        pair.one.host.sh("ip link add br0 type bridge")?;
        pair.one.host.bring_up("br0", &["10.50.0.1/24", "fd50::1/64"])?;
        pair.two
            .host
            .sh("ip route add 10.50.0.0/24 dev vb; ip -6 route add fd50::/64 via fd09::1")?;
        answers_come_from_the_address_asked(&pair, &["10.50.0.1:10001", "[fd50::1]:10001"])
    })
}

#[test]
fn case_21_a_better_route_takes_over_a_running_session() -> Result<()> {
    scene("n21", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [false, false], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        let (one, two) = (&pair.one, &pair.two);
        scene.veth(
            (&one.host, "va2", &["10.10.0.1/24", "fd10::1/64"]),
            (&two.host, "vb2", &["10.10.0.2/24", "fd10::2/64"]),
        )?;
        let key = one.keys.public_text();
        two.host.sh("ip addr add 172.20.0.1/32 dev lo; ip addr add fd20::1/128 dev lo nodad")?;
        one.host.sh("ip route add 172.20.0.1 via 10.9.0.2 dev va src 10.9.0.1 metric 1024
             ip -6 route add fd20::1 via fd09::2 dev va src fd09::1 metric 1024")?;
        let follows = |what: &str, expected: &str| -> Result<()> {
            let moved = || {
                let pinged = one.ping_once(two.v4).is_ok();
                pinged && two.daemon.endpoint(&key).is_ok_and(|at| at == expected)
            };
            eventually(&format!("{what}: datagrams come from {expected}"), seconds(3), moved)?;
            two.ping_once(one.v4).map(drop)
        };
        one.point_at(two, "172.20.0.1:10002")?;
        follows("IPv4, first route", "10.9.0.1:10001")?;
        one.host.sh("ip route add 172.20.0.1 via 10.10.0.2 dev va2 src 10.10.0.1 metric 100")?;
        follows("IPv4, better route", "10.10.0.1:10001")?;
        one.host.sh("ip route del 172.20.0.1 via 10.10.0.2 dev va2")?;
        follows("IPv4, better route gone", "10.9.0.1:10001")?;
        one.point_at(two, "[fd20::1]:10002")?;
        follows("IPv6, first route", "[fd09::1]:10001")?;
        one.host.sh("ip -6 route add fd20::1 via fd10::2 dev va2 src fd10::1 metric 100")?;
        follows("IPv6, better route", "[fd10::1]:10001")
    })
}
