//! What could go wrong at a gateway or around it: errors from behind the translation, and names
//! that look for another way out.

use crate::support::{Context as _, Host, Result, ensure, eventually, inside, scene, seconds};
use crate::world::{LAN, NET, Running, World, asks};

#[test]
fn gw_05_errors_from_behind_a_translation_reach_who_caused_them() -> Result<()> {
    scene("gate9", |scene| {
        let mut world = World::new(scene, "9")?;
        world.join("192.168.5.0/24,fd05::/64", &[], &[])?;
        for to in LAN {
            ensure!(world.reaches(0, to)?.starts_with("lan "));
        }
        // behind `lan` networks begin into which less fits
        world.lan.sh("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
             ip link add narrow4 type veth peer name end4; ip link set end4 up
             ip link set narrow4 mtu 1000 up
             ip link add narrow6 type veth peer name end6; ip link set end6 up
             ip link set narrow6 mtu 1280 up
             ip addr add 192.168.5.129/25 dev narrow4
             ip -6 addr add fd05::1:0:0:1/96 dev narrow6 nodad
             ip route replace default via 192.168.5.1
             ip -6 route replace default via fd05::1")?;
        world.b.sh("ip route add 192.168.5.128/25 via 192.168.5.9
             ip -6 route add fd05::1:0:0:0/96 via fd05::9")?;
        let ping = |words: &str| -> Result<String> {
            let words: Vec<&str> = words.split(' ').collect();
            let output =
                world.a.output(&[&["ping", "-n", "-c", "2", "-W", "2"], &words[..]].concat())?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        for (to, router, size, mtu) in
            [("192.168.5.200", LAN[0], "1100", "1000"), ("fd05::1:0:0:200", LAN[1], "1270", "1280")]
        {
            let told = ping(&format!("-t 2 {to}"))?;
            let gone = told.contains("Time to live exceeded") || told.contains("Hop limit");
            ensure!(gone && told.contains(router), "gone on the way: {told}");
            let told = ping(&format!("-M do -s {size} {to}"))?;
            ensure!(
                told.contains(&format!("mtu = {mtu}")) || told.contains(&format!("mtu={mtu}")),
                "{told}"
            );
            // the kernel here has believed it: what is sent from now on fits
            let route = world.a.run(&["ip", "route", "get", to])?;
            ensure!(route.contains(&format!("mtu {mtu}")), "{route}");
        }
        Ok(())
    })
}

/// What a connection of TCP says that was begun earlier, after a byte to it.
fn goes_on(host: &Host, stream: &std::net::TcpStream) -> Result<bool> {
    use std::io::{Read as _, Write as _};
    inside::inside(host, || {
        let mut stream = stream;
        stream.set_read_timeout(Some(seconds(5)))?;
        stream.write_all(b"x")?;
        Ok(stream.read(&mut [0; 1])? == 1)
    })
}

#[test]
fn gw_09_who_came_from_outside_is_answered_there_and_nobody_else() -> Result<()> {
    scene("gate17", |scene| {
        let mut world = World::new(scene, "17")?;
        world.a.sh("for d in all default eth0 isp0; do
             echo 1 > /proc/sys/net/ipv4/conf/$d/rp_filter; done")?;
        world.join("", &["--advertise-exit-node"], &[])?;
        // a session of before, as an administrator's
        let echo = "import socket\nat = socket.create_server(('0.0.0.0', 2222))\nwhile True:\n \
                    one, _ = at.accept()\n while data := one.recv(1): one.send(data)";
        let _echo = Running(world.a.command(&["python3", "-c", echo]).spawn()?);
        let session = std::cell::RefCell::new(None);
        eventually("it listens", seconds(10), || {
            let stream = inside::inside(&world.isp, || {
                Ok(std::net::TcpStream::connect("198.51.100.1:2222")?)
            });
            stream.map(|stream| session.replace(Some(stream))).is_ok()
        })?;
        let session = session.take().context("a session")?;
        ensure!(goes_on(&world.isp, &session)?, "before");
        let told = world.node(0, &["set", "--exit-node", "b"])?;
        ensure!(told.contains("all traffic goes through b now"), "{told}");
        eventually("the exit leads out", seconds(20), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
        })?;
        let answered = |world: &World, stage: &str| -> Result<()> {
            ensure!(goes_on(&world.isp, &session)?, "{stage}: the session of before");
            for (host, to) in [
                (&world.isp, "198.51.100.1"),
                (&world.isp, "2001:db8:1::1"),
                (&world.server, "10.9.0.1"),
            ] {
                ensure!(asks(host, to, 80)?.starts_with("a "), "{stage}: {to} answers");
                host.run(&["ping", "-n", "-c", "1", "-W", "2", to])?;
            }
            Ok(())
        };
        answered(&world, "with an exit")?;
        // who forges a beginning from where a will send to opens no way beside the exit
        let leaks = inside::inside(&world.isp, || {
            let far = std::net::UdpSocket::bind("203.0.113.9:5353")?;
            far.set_read_timeout(Some(seconds(1)))?;
            far.send_to(b"forged", "198.51.100.1:4444")?;
            inside::inside(&world.a, || {
                let near = std::net::UdpSocket::bind("198.51.100.1:4444")?;
                near.send_to(b"secret", "203.0.113.9:5353")?;
                Ok(())
            })?;
            Ok(far.recv(&mut [0; 9]).is_ok())
        })?;
        ensure!(!leaks, "an answer to what was forged left beside the exit");
        // the exit is gone: closed for us, and open for who comes
        world.daemons[1] = None;
        ensure!(asks(&world.a, NET[0], 80).is_err());
        answered(&world, "the exit is dead")
    })
}

/// Questions to resolvers that came by, and what they were counted with.
fn questions(host: &Host) -> Result<u64> {
    let listed = host.run(&["nft", "list", "table", "inet", "questions"])?;
    let count =
        |line: &str| line.split("counter packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    Ok(listed.lines().filter_map(count).sum())
}

fn count_questions(host: &Host) -> Result<()> {
    host.sh("nft add table inet questions
         nft 'add chain inet questions in { type filter hook prerouting priority -300; }'
         nft 'add rule inet questions in meta l4proto { tcp, udp } th dport { 53, 853 } counter'")?;
    Ok(())
}

#[test]
fn dn_02_with_an_exit_no_name_is_asked_beside_it_whatever_dies() -> Result<()> {
    scene("gate10", |scene| {
        let mut world = World::new(scene, "10")?;
        std::fs::write(world.a.etc().join("resolv.conf"), format!("nameserver {}\n", NET[0]))?;
        count_questions(&world.isp)?;
        count_questions(&world.b)?;
        world.join("", &["--advertise-exit-node"], &["--exit-node", "b"])?;
        eventually("the exit leads out", seconds(20), || {
            asks(&world.a, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
        })?;
        // a router's own resolver, where the link has no other address of it
        let listed = world.isp.run(&["ip", "-6", "-o", "addr", "show", "eth0", "scope", "link"])?;
        let near = listed.split_whitespace().find_map(|word| word.strip_suffix("/64"));
        let near = format!("@{}%isp0", near.context("an address of the link")?);
        let begin = questions(&world.isp)?;
        let ask = |world: &World, stage: &str| -> Result<()> {
            for n in 0..3 {
                let name = format!("x{n}-{stage}.example");
                let words = ["dig", "+time=1", "+tries=1", &name];
                // whom the system asks, and a program that asks somebody by address
                let _ = world.a.output(&words)?;
                for at in NET {
                    let at = format!("@{at}");
                    let _ = world.a.output(&[&words[..], &[&at]].concat())?;
                    let _ = world.a.output(&[&words[..], &["+tcp", &at]].concat())?;
                }
                let _ = world.a.output(&[&words[..], &[&near]].concat())?;
            }
            let leaked = questions(&world.isp)? - begin;
            ensure!(leaked == 0, "{stage}: {leaked} questions beside the exit");
            Ok(())
        };
        let carried = questions(&world.b)?;
        ask(&world, "up")?;
        ensure!(questions(&world.b)? > carried, "the control: they go through the exit");
        world.daemons[1] = None;
        ask(&world, "exit-dead")?;
        world.daemons[0] = None;
        ask(&world, "killed")?;
        world.daemon(0)?;
        ask(&world, "again")?;
        world.daemons[0] = None;
        world.cleanup(0)?;
        let open = ask(&world, "open").is_err();
        ensure!(open, "the control: without an exit they leave where they did before");
        Ok(())
    })
}

#[test]
fn dn_08_names_of_the_network_are_asked_of_nobody_else() -> Result<()> {
    scene("gate11", |scene| {
        let mut world = World::new(scene, "11")?;
        std::fs::write(world.a.etc().join("resolv.conf"), "nameserver 10.9.0.254\n")?;
        count_questions(&world.server)?;
        world.join("", &[], &[])?;
        let ask = |world: &World, words: &str| -> Result<String> {
            let words: Vec<&str> = words.split(' ').collect();
            let output = world.a.output(&[&["dig", "+time=2", "+tries=1"], &words[..]].concat())?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        eventually("names", seconds(20), || {
            ask(&world, "b.warren.internal").is_ok_and(|told| told.contains("100.64.0.2"))
        })?;
        let begin = questions(&world.server)?;
        let internal = |world: &World, found: &str| -> Result<()> {
            for (words, says) in [
                ("b.warren.internal", found),
                ("+tcp b.warren.internal", found),
                ("nobody.warren.internal", "NXDOMAIN"),
                ("a.b.c.WARREN.Internal TXT", "NXDOMAIN"),
                ("-x 100.64.0.77", "NXDOMAIN"),
                ("_ldap._tcp.warren.internal SRV", "NXDOMAIN"),
            ] {
                let told = ask(world, words)?;
                ensure!(told.contains(says), "{words}: {told}");
            }
            let handed_on = questions(&world.server)? - begin;
            ensure!(handed_on == 0, "{handed_on} questions were handed on");
            Ok(())
        };
        internal(&world, "100.64.0.2")?;
        // nor while the peer and everything else of the network is away
        world.daemons[1] = None;
        internal(&world, "100.64.0.2")?;
        // nor once the peer is no member any more
        world.admin(&["node", "remove", "b"])?;
        eventually("it is unknown", seconds(20), || {
            ask(&world, "b.warren.internal").is_ok_and(|told| told.contains("NXDOMAIN"))
        })?;
        internal(&world, "NXDOMAIN")?;
        let _ = ask(&world, "www.example")?;
        ensure!(questions(&world.server)? > begin, "the control: others are asked there");
        Ok(())
    })
}
