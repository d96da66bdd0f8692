//! Subnets and exits through real daemons.

use std::net::UdpSocket;

use crate::support::{Result, ensure, eventually, inside, scene, seconds};
use crate::world::{LAN, NET, World, asks, machine};

const SUBNETS: &str = "192.168.5.0/24,fd05::/64";

/// The last two words of what a teller said.
fn seen(told: &str) -> (&str, u16) {
    let mut words = told.split(' ').skip(1);
    let address = words.next().unwrap_or_default();
    (address, words.next().and_then(|p| p.parse().ok()).unwrap_or_default())
}

#[test]
fn a_subnet_is_reached_with_the_gateways_address() -> Result<()> {
    scene("gate1", |scene| {
        let mut world = World::new(scene, "1")?;
        world.join(SUBNETS, &[], &[])?;
        for (to, gateway) in [(LAN[0], "192.168.5.1"), (LAN[1], "fd05::1")] {
            let told = world.reaches(0, to)?;
            let (address, port) = seen(&told);
            ensure!(told.starts_with("lan ") && address == gateway, "{told}");
            ensure!(port >= 61_000, "gw_03: a port where nobody listens: {told}");
        }
        // gw_03: a client that chooses the port of a service of the gateway gets another
        let told = inside::inside(&world.a, || {
            let kind = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            kind.bind(&std::net::SocketAddr::from(([0, 0, 0, 0], 41_820)).into())?;
            kind.connect(&std::net::SocketAddr::from(([192, 168, 5, 9], 80)).into())?;
            let mut told = String::new();
            std::io::Read::read_to_string(&mut std::net::TcpStream::from(kind), &mut told)?;
            Ok(told)
        })?;
        ensure!(seen(&told).1 >= 61_000, "{told}");
        // what is not served is not reached, and neither is the gateway's other address
        for to in ["203.0.113.1", "10.9.0.2"] {
            let told = asks(&world.a, to, 80);
            ensure!(told.is_err() || !told?.contains("100.64."), "{to}");
        }
        Ok(())
    })
}

#[test]
fn gw_02_without_translation_a_subnet_answers_but_does_not_begin() -> Result<()> {
    scene("gate2", |scene| {
        let mut world = World::new(scene, "2")?;
        world.join(SUBNETS, &["--snat-subnet-routes=false"], &[])?;
        for to in LAN {
            let told = world.reaches(0, to)?;
            let (address, _) = seen(&told);
            ensure!(address.starts_with("100.64.") || address.starts_with("fd"), "{told}");
            ensure!(!["192.168.5.1", "fd05::1"].contains(&address), "{told}");
        }
        // the reverse: the peer's program listens, and the gateway's own address too
        for to in ["100.64.0.1", "100.64.0.2"] {
            ensure!(
                asks(&world.lan, to, 80).is_err(),
                "gw_02, gw_10: {to} is reached from the LAN"
            );
        }
        let v6 = world.node(0, &["ip", "-6"])?;
        ensure!(asks(&world.lan, v6.trim(), 80).is_err());
        // and datagrams, which have no handshake
        let heard = inside::inside(&world.a, || {
            let socket = UdpSocket::bind("0.0.0.0:7777")?;
            socket.set_read_timeout(Some(seconds(1)))?;
            inside::inside(&world.lan, || {
                let lan = UdpSocket::bind("0.0.0.0:0")?;
                (0..20).try_for_each(|_| lan.send_to(b"x", "100.64.0.1:7777").map(drop))?;
                Ok(())
            })?;
            Ok(socket.recv(&mut [0; 9]).is_ok())
        })?;
        ensure!(!heard, "a datagram from the LAN came through");
        ensure!(asks(&world.a, "100.64.0.2", 80)?.starts_with("b 100.64.0.1"), "the control");
        // a large answer, whose segments are as large as the interface takes
        world.a.run(&["ping", "-n", "-c", "1", "-W", "2", "-s", "1300", LAN[0]])?;
        Ok(())
    })
}

#[test]
fn gw_01_an_exit_leads_to_the_internet_and_nowhere_else() -> Result<()> {
    scene("gate3", |scene| {
        let mut world = World::new(scene, "3")?;
        ensure!(asks(&world.a, NET[0], 80)?.starts_with("isp "), "the control");
        world.join("", &["--advertise-exit-node"], &[])?;
        ensure!(asks(&world.a, NET[0], 80)?.starts_with("isp "), "nobody asked for an exit");
        world.node(0, &["set", "--exit-node", "b"])?;
        eventually("the exit leads out", seconds(20), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
        })?;
        for (to, exit) in [(NET[0], "203.0.113.1"), (NET[1], "2001:db8:9::1")] {
            let told = world.reaches(0, to)?;
            ensure!(told.starts_with("net ") && seen(&told).0 == exit, "{told}");
        }
        let closed = [LAN[0], LAN[1], "169.254.169.254", "192.168.5.1", "203.0.113.1", "10.9.0.2"];
        let own = ["192.0.2.9", "2001:db8:5::9", "192.0.2.1"];
        for to in closed.into_iter().chain(own) {
            let told = asks(&world.a, to, 80);
            ensure!(told.is_err(), "{to} is reached through the exit: {told:?}");
        }
        // nor to a network that the machine is in from now on
        world.b.sh("ip addr add 203.0.114.1/24 dev lan0; ip route add 203.0.114.9 dev lan0")?;
        world.lan.sh("ip addr add 203.0.114.9/24 dev eth0")?;
        ensure!(asks(&world.b, "203.0.114.9", 80)?.starts_with("lan "), "the control");
        eventually("it is known to be near", seconds(5), || {
            let near = world.b.sh("nft list chain inet warren from_peers");
            near.is_ok_and(|near| near.contains("203.0.114.0/24"))
        })?;
        ensure!(asks(&world.a, "203.0.114.9", 80).is_err(), "through the exit to its LAN");
        ensure!(asks(&world.a, NET[0], 25).is_err(), "gw_08: no mail");
        ensure!(asks(&world.isp, NET[0], 80).is_ok());
        // this machine's own networks: only when it is wished
        let neighbour = "10.9.0.254";
        ensure!(world.a.run(&["ping", "-n", "-c", "1", "-W", "1", neighbour]).is_err());
        world.node(0, &["set", "--exit-node-allow-lan-access"])?;
        eventually("the LAN is reached", seconds(5), || {
            world.a.run(&["ping", "-n", "-c", "1", "-W", "1", neighbour]).is_ok()
        })?;
        world.node(0, &["set", "--exit-node", ""])?;
        eventually("out as before", seconds(5), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("isp "))
        })?;
        Ok(())
    })
}

/// Packets toward the Internet that came out of `a` beside the exit.
fn leaked(world: &World) -> Result<u64> {
    let listed = world.isp.run(&["nft", "list", "table", "inet", "leak"])?;
    let count = |line: &str| line.split_whitespace().nth_back(2)?.parse::<u64>().ok();
    Ok(listed.lines().filter(|l| l.contains("packets")).filter_map(count).sum())
}

#[test]
fn gw_11_gw_09_nothing_goes_around_an_exit_whatever_dies() -> Result<()> {
    scene("gate4", |scene| {
        let mut world = World::new(scene, "4")?;
        world.join("", &["--advertise-exit-node"], &["--exit-node", "b"])?;
        eventually("the exit leads out", seconds(20), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
        })?;
        world.isp.sh("nft add table inet leak
             nft 'add chain inet leak in { type filter hook prerouting priority 0; }'
             nft 'add rule inet leak in ip daddr 203.0.113.9 counter'
             nft 'add rule inet leak in ip6 daddr 2001:db8:9::9 counter'")?;
        // the exit itself is 203.0.113.1 and probed there, sealed and marked: no leak
        // a rogue DHCP server's routes (option 121)
        world.a.sh("ip route add 0.0.0.0/1 via 198.51.100.2
             ip route add 203.0.113.0/24 via 198.51.100.2")?;
        ensure!(asks(&world.a, NET[0], 80)?.starts_with("net "));
        let tries = |world: &World, stage: &str| -> Result<()> {
            for to in NET {
                ensure!(asks(&world.a, to, 80).is_err(), "{stage}: {to} is reached");
                let _ = world.a.run(&["ping", "-n", "-c", "2", "-i", "0.1", "-W", "1", to]);
            }
            // a program that names the other interface
            let _ = world.a.run(&["ping", "-n", "-c", "1", "-W", "1", "-I", "isp0", NET[0]]);
            ensure!(leaked(world)? == 0, "{stage}: {} packets leaked", leaked(world)?);
            Ok(())
        };
        let _ = world.a.run(&["ping", "-n", "-c", "1", "-W", "1", "-I", "isp0", NET[0]]);
        ensure!(leaked(&world)? == 0, "bound to an interface: {}", leaked(&world)?);
        // the exit dies
        world.daemons[1] = None;
        tries(&world, "the exit is dead")?;
        // we die
        world.daemons[0] = None;
        tries(&world, "the daemon was killed")?;
        // we come back, the exit does not
        world.daemon(0)?;
        tries(&world, "started again")?;
        world.daemon(1)?;
        eventually("the exit leads out again", seconds(30), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
        })?;
        ensure!(leaked(&world)? == 0, "{} packets leaked", leaked(&world)?);
        world.daemons[0] = None;
        world.cleanup(0)?;
        ensure!(asks(&world.a, NET[0], 80)?.starts_with("isp "), "and it is open when told so");
        ensure!(leaked(&world)? > 0, "the counter counts");
        Ok(())
    })
}

#[test]
fn lc_12_nothing_is_left_of_a_gateway_and_its_user() -> Result<()> {
    scene("gate5", |scene| {
        let mut world = World::new(scene, "5")?;
        for host in [&world.a, &world.b] {
            host.sh("printf 'search lan\\nnameserver 10.9.0.254\\n' > /etc/resolv.conf")?;
            host.sh("nft add table ip filter
                 nft 'add chain ip filter FORWARD { type filter hook forward priority 0; }'")?;
        }
        let before = [machine(&world.a)?, machine(&world.b)?];
        let check = |world: &World, what: &str| -> Result<()> {
            for (host, before) in [(&world.a, &before[0]), (&world.b, &before[1])] {
                let after = machine(host)?;
                ensure!(after == *before, "{what}: before:\n{before}\nafter:\n{after}");
            }
            Ok(())
        };
        world.join(SUBNETS, &["--advertise-exit-node"], &["--exit-node", "b"])?;
        let ready = |world: &World| {
            eventually("all is set", seconds(20), || {
                let told = asks(&world.a, NET[0], 80);
                told.is_ok_and(|told| told.starts_with("net "))
                    && world.a.sh("cat /etc/resolv.conf").is_ok_and(|t| t.contains("Warren"))
            })
        };
        ready(&world)?;
        ensure!(world.b.sh("nft list tables")?.contains("table inet warren"));
        for i in [0, 1] {
            world.node(i, &["down"])?;
        }
        let devices_aside = |text: String| text.replace("warren0\n", "");
        for (host, before) in [(&world.a, &before[0]), (&world.b, &before[1])] {
            let after = devices_aside(machine(host)?);
            let lines = |t: &str| -> Vec<String> {
                t.lines().filter(|l| !l.contains("warren0")).map(str::to_owned).collect()
            };
            ensure!(lines(&after) == lines(before), "down: {before}\nafter:\n{after}");
        }
        for i in [0, 1] {
            world.node(i, &["up", "--timeout", "10s"])?;
        }
        ready(&world)?;
        // killed, and cleaned up
        world.daemons = [None, None, None];
        ensure!(machine(&world.a)? != before[0] && machine(&world.b)? != before[1]);
        for i in [0, 1] {
            world.cleanup(i)?;
            world.cleanup(i)?;
        }
        check(&world, "kill -9 and cleanup")?;
        // killed, started again, ended in good order
        world.daemon(0)?;
        world.daemon(1)?;
        ready(&world)?;
        world.daemons = [None, None, None];
        world.daemon(0)?;
        world.daemon(1)?;
        ready(&world)?;
        for daemon in world.daemons.iter_mut().flatten() {
            let pid = daemon.0.id().to_string();
            std::process::Command::new("kill").arg(pid).status()?;
            ensure!(daemon.0.wait()?.success());
        }
        check(&world, "kill -9, restart and SIGTERM")
    })
}

#[test]
fn gw_06_a_second_gateway_takes_over_within_five_seconds() -> Result<()> {
    scene("gate7", |scene| {
        let mut world = World::new(scene, "7")?;
        world.join("192.168.5.0/24", &[], &[])?;
        ensure!(world.reaches(0, LAN[0])?.starts_with("lan "));
        let token = world.admin(&["key", "create", "--reusable"])?;
        world.daemon(2)?;
        let words = ["up", token.trim(), "--timeout", "20s", "--hostname", "c"];
        world.node(2, &[&words[..], &["--advertise-routes", "192.168.5.0/24"]].concat())?;
        world.admin(&["route", "approve", "c", "192.168.5.0/24"])?;
        // both are known and the path to the first is used
        for _ in 0..20 {
            ensure!(world.reaches(0, LAN[0])?.starts_with("lan "), "no move without a reason");
            std::thread::sleep(seconds(1) / 5);
        }
        let takes_over = |world: &World, name: &str| -> Result<std::time::Duration> {
            eventually(&format!("{name} answers"), seconds(15), || {
                asks(&world.a, LAN[0], 80).is_ok_and(|told| told.starts_with(name))
            })
        };
        let signal = |world: &World, i: usize, signal: &str| -> Result<()> {
            let pid = world.daemons[i].as_ref().map_or(0, |d| d.0.id()).to_string();
            ensure!(std::process::Command::new("kill").args([signal, &pid]).status()?.success());
            Ok(())
        };
        // frozen: its sockets and its connection to the server stay
        signal(&world, 1, "-STOP")?;
        let took = takes_over(&world, "lan2 ")?;
        println!("a frozen gateway was replaced after {took:?}");
        ensure!(took <= seconds(5), "{took:?}");
        signal(&world, 1, "-CONT")?;
        for _ in 0..30 {
            ensure!(world.reaches(0, LAN[0])?.starts_with("lan2 "), "no way back without a reason");
            std::thread::sleep(seconds(1) / 5);
        }
        world.daemons[2] = None;
        let took = takes_over(&world, "lan ")?;
        println!("a killed gateway was replaced after {took:?}");
        ensure!(took <= seconds(5), "{took:?}");
        Ok(())
    })
}

#[test]
fn dn_07_names_are_resolved_by_the_systems_own_resolver_and_it_is_put_back() -> Result<()> {
    scene("gate6", |scene| {
        let mut world = World::new(scene, "6")?;
        let before = "search lan\nnameserver 10.9.0.254\n";
        let file = world.a.etc().join("resolv.conf");
        std::fs::write(&file, before)?;
        world.join("", &[], &[])?;
        let finds = |world: &World, name: &str| {
            let found = world.a.run(&["getent", "ahostsv4", name]);
            found.is_ok_and(|text| text.starts_with("100.64.0.2"))
        };
        for name in ["b", "B.warren.internal"] {
            eventually(name, seconds(40), || finds(&world, name))?;
        }
        let v6 = world.node(1, &["ip", "-6"])?;
        ensure!(world.a.run(&["getent", "ahostsv6", "b"])?.contains(v6.trim()));
        let back = world.a.run(&["getent", "hosts", "100.64.0.2"])?;
        ensure!(back.contains("b.warren.internal"), "{back}");
        world.admin(&["node", "rename", "b", "robot"])?;
        // A name that is not found is asked of 10.9.0.254 too, which is not there: 5 s a question.
        eventually("the new name", seconds(40), || finds(&world, "robot") && !finds(&world, "b"))?;
        ensure!(world.b.run(&["dig", "+time=1", "+tries=1", "@100.64.0.1", "b"]).is_err(), "dn_05");
        // killed: the file is ours; started and ended: it is theirs
        world.daemons[0] = None;
        ensure!(std::fs::read_to_string(&file)?.contains("Warren"));
        world.daemon(0)?;
        eventually("names again", seconds(40), || finds(&world, "robot"))?;
        world.node(0, &["set", "--accept-dns=false"])?;
        eventually("the file as before", seconds(5), || {
            std::fs::read_to_string(&file).is_ok_and(|text| text == before)
        })?;
        ensure!(!world.a.sh("ss -Hlnu")?.contains("100.64.0.1:53"), "nobody listens");
        world.node(0, &["set", "--accept-dns"])?;
        eventually("names again", seconds(40), || finds(&world, "robot"))?;
        // somebody else writes the file meanwhile
        std::fs::write(&file, "nameserver 192.0.2.1\n")?;
        world.node(0, &["down"])?;
        ensure!(std::fs::read_to_string(&file)? == "nameserver 192.0.2.1\n", "theirs stays");
        Ok(())
    })
}
