//! The name server, asked by `dig`.

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use dns::{Names, Settings};
use host::names::{Place, Server};

use crate::support::{Host, Result, Scene, ensure, inside, scene};

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|text| text.parse().expect("an address")).collect()
}

fn settings(resolvers: &[&str]) -> Settings {
    let host = |label: &str, list: &[&str]| (label.to_owned(), addresses(list));
    Settings {
        domain: "warren.internal".to_owned(),
        own: "me".to_owned(),
        hosts: vec![
            host("me", &["100.64.0.1", "fd77::1"]),
            host("robot", &["100.64.0.2", "fd77::2"]),
            host("old", &["100.64.0.3"]),
        ],
        ranges: ["100.64.0.0/10", "fd77::/48"].map(|p| p.parse().expect("a prefix")).to_vec(),
        resolvers: addresses(resolvers),
        zones: vec![("corp.test".to_owned(), addresses(&["192.0.2.3"]))],
        records: Vec::new(),
        aliases: Vec::new(),
        serial: 1,
    }
}

/// A node and, behind a veth, a host with the resolvers 192.0.2.2 and .3, each an own server.
struct World {
    node: Host,
    server: Server,
    far: Host,
    _resolvers: [Server; 2],
}

fn world(scene: &Scene, resolvers: &[&str]) -> Result<World> {
    let [node, far] = [scene.host("node")?, scene.host("far")?];
    let here = ["192.0.2.1/24", "100.64.0.1/32", "fd77::1/128", "fd99::1/64"];
    let there = ["192.0.2.2/24", "192.0.2.3/24", "192.0.2.9/24", "fd99::2/64"];
    scene.veth((&node, "va", &here), (&far, "vb", &there))?;
    far.sh("ip route add 100.64.0.1 via 192.0.2.1; ip -6 route add fd77::1 via fd99::1")?;
    let start = |host: &Host, list: &[&str], also: &[&str], settings: Settings| {
        let also = also.iter().map(|p| p.parse().expect("a prefix")).collect();
        let place = Place { addresses: addresses(list), also };
        inside::inside(host, || {
            let names = Names::new(settings)?;
            Ok(Server::start(&place, names)?)
        })
    };
    let everyone = ["0.0.0.0/0", "::/0"];
    let zone = |domain: &str, address: &str| Settings {
        domain: domain.to_owned(),
        own: "ns".to_owned(),
        hosts: vec![
            ("www".to_owned(), addresses(&[address])),
            ("many".to_owned(), (1..120).map(|n| IpAddr::from([198, 51, 100, n])).collect()),
        ],
        ..Settings::default()
    };
    Ok(World {
        server: start(&node, &["100.64.0.1", "fd77::1"], &[], settings(resolvers))?,
        _resolvers: [
            start(&far, &["192.0.2.2"], &everyone, zone("debian.test", "198.51.100.7"))?,
            start(&far, &["192.0.2.3"], &everyone, zone("corp.test", "198.51.100.8"))?,
        ],
        node,
        far,
    })
}

/// What `dig` says in `host` to these words, without its comments' times.
fn dig(host: &Host, words: &str) -> Result<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let base = ["dig", "+tries=1", "+time=5"];
    host.run(&[&base[..], &words[..]].concat())
}

fn short(host: &Host, words: &str) -> Result<String> {
    Ok(dig(host, &format!("{words} +short"))?.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn dig_finds_nodes_by_name_and_by_address() -> Result<()> {
    scene("names1", |scene| {
        let world = world(scene, &["192.0.2.2"])?;
        for server in ["@100.64.0.1", "@fd77::1"] {
            for way in ["+notcp", "+tcp", "+noedns", "+bufsize=4096", "+cookie"] {
                let ask = |words: &str| short(&world.node, &format!("{server} {way} {words}"));
                assert_eq!(ask("robot.warren.internal A")?, "100.64.0.2", "{server} {way}");
                assert_eq!(ask("ROBOT.warren.internal AAAA")?, "fd77::2");
                assert_eq!(ask("-x 100.64.0.2")?, "robot.warren.internal.");
                assert_eq!(ask("-x fd77::2")?, "robot.warren.internal.");
                assert_eq!(ask("+domain=warren.internal robot A")?, "100.64.0.2");
                assert_eq!(ask("warren.internal NS")?, "me.warren.internal.");
                ensure!(ask("warren.internal SOA")?.starts_with("me.warren.internal. hostmaster"));
            }
        }
        let status = |words: &str| -> Result<String> {
            let said = dig(&world.node, &format!("@100.64.0.1 {words}"))?;
            ensure!(!said.contains("Warning") && !said.contains("MALFORMED"), "{said}");
            let after = |key: &str| {
                let rest = said.split(key).nth(1).unwrap_or_default();
                rest.split([',', ';']).next().unwrap_or_default().trim().to_owned()
            };
            Ok(format!("{} {}", after("status:"), after("ANSWER:")))
        };
        for (words, expected) in [
            ("old.warren.internal AAAA", "NOERROR 0"),
            ("old.warren.internal TXT", "NOERROR 0"),
            ("nobody.warren.internal A", "NXDOMAIN 0"),
            ("nobody.warren.internal AAAA", "NXDOMAIN 0"),
            ("-x 100.64.0.9", "NXDOMAIN 0"),
            ("robot.warren.internal ANY", "REFUSED 0"),
            ("version.bind CH TXT", "REFUSED 0"),
            ("+edns=1 +noednsneg robot.warren.internal A", "BADVERS 0"),
            ("+opcode=2 robot.warren.internal A", "NOTIMP 0"),
        ] {
            assert_eq!(status(words)?, expected, "{words}");
        }
        let mut changed = settings(&[]);
        changed.hosts[1].1 = addresses(&["100.64.0.77"]);
        world.server.set(Names::new(changed)?);
        assert_eq!(short(&world.node, "@100.64.0.1 robot.warren.internal")?, "100.64.0.77");
        assert_eq!(status("www.debian.test")?, "REFUSED 0", "there is nobody to ask now");
        Ok(())
    })
}

#[test]
fn other_names_are_asked_of_the_resolvers_of_the_longest_zone() -> Result<()> {
    scene("names2", |scene| {
        let world = world(scene, &["192.0.2.2"])?;
        let ask = |words: &str| short(&world.node, &format!("@100.64.0.1 {words}"));
        assert_eq!(ask("www.debian.test")?, "198.51.100.7");
        assert_eq!(ask("www.corp.test")?, "198.51.100.8");
        assert_eq!(ask("+tcp www.corp.test")?, "198.51.100.8");
        for way in ["", "+noedns", "+bufsize=4096", "+tcp"] {
            // too long for a datagram: dig sees the TC bit and comes again over TCP
            let many = ask(&format!("{way} many.debian.test"))?;
            assert_eq!(many.split(' ').count(), 119, "{way}");
        }
        let cut = dig(&world.node, "@100.64.0.1 +ignore many.debian.test")?;
        ensure!(cut.contains(" tc ") && cut.contains("ANSWER: 0"), "{cut}");
        let counts = world.server.counts();
        ensure!(counts.forwarded >= 10 && counts.foreign_answer == 0, "{counts:?}");
        Ok(())
    })
}

#[test]
fn a_resolver_that_is_silent_or_not_there_is_passed_over() -> Result<()> {
    scene("names3", |scene| {
        let world = world(scene, &["192.0.2.9", "192.0.2.2"])?;
        // .9 answers with "port unreachable": at once
        let start = Instant::now();
        assert_eq!(short(&world.node, "@100.64.0.1 www.debian.test")?, "198.51.100.7");
        ensure!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        world.far.sh("nft add table ip t
             nft 'add chain ip t in { type filter hook input priority 0; }'
             nft add rule ip t in ip daddr 192.0.2.9 drop")?;
        let start = Instant::now();
        for way in ["+notcp", "+tcp"] {
            let words = format!("@100.64.0.1 {way} www.debian.test");
            assert_eq!(short(&world.node, &words)?, "198.51.100.7");
        }
        ensure!(start.elapsed() > Duration::from_secs(4), "each waits two seconds for the first");
        world.server.set(Names::new(settings(&["192.0.2.9", "192.0.2.200"]))?);
        let said = dig(&world.node, "+time=9 @100.64.0.1 www.debian.test")?;
        ensure!(said.contains("SERVFAIL"), "{said}");
        Ok(())
    })
}

#[test]
fn dn_05_nobody_else_is_answered() -> Result<()> {
    scene("names4", |scene| {
        let world = world(scene, &["192.0.2.2"])?;
        for server in ["@100.64.0.1", "@fd77::1"] {
            for way in ["+notcp", "+tcp"] {
                let words = format!("+time=1 {way} {server} robot.warren.internal");
                let said = dig(&world.far, &words);
                ensure!(said.is_err(), "{server} {way}: {said:?}");
            }
        }
        let ports = world.far.run(&["dig", "+time=1", "+tries=1", "@192.0.2.1", "x.y"]);
        ensure!(ports.is_err(), "it listens on its overlay addresses only");
        let counts = world.server.counts();
        ensure!(counts.foreign_source >= 4 && counts.queries == 0, "{counts:?}");
        assert_eq!(short(&world.node, "@100.64.0.1 robot.warren.internal")?, "100.64.0.2");
        Ok(())
    })
}

#[test]
fn dn_04_forged_answers_are_not_taken() -> Result<()> {
    scene("names5", |scene| {
        let world = world(scene, &["192.0.2.9"])?;
        let liar = inside::start(&world.far, || {
            let [socket, other] = [("192.0.2.9", 53), ("192.0.2.3", 5353)].map(UdpSocket::bind);
            let (socket, other) = (socket?, other?);
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            let mut query = [0; 1500];
            let (len, from) = socket.recv_from(&mut query)?;
            let mut right = query[..len].to_vec();
            (right[2], right[3], right[7]) = (0x81, 0x80, 1);
            let question_end = right.len() - 11 - 12; // OPT with a cookie of dig's own
            right.truncate(question_end);
            right[11] = 0;
            right.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 66]);
            let mut bad = right.clone();
            bad[question_end + 15] = 99;
            // from elsewhere, with all else right
            other.send_to(&bad, from)?;
            for id in 0..200_u16 {
                bad[..2].copy_from_slice(&(id ^ 0x5555).to_be_bytes());
                if bad[..2] != right[..2] {
                    socket.send_to(&bad, from)?;
                }
            }
            bad[..2].copy_from_slice(&right[..2]);
            bad[13] ^= 1;
            socket.send_to(&bad, from)?;
            std::thread::sleep(Duration::from_millis(200));
            socket.send_to(&right, from)?;
            Ok(from.port())
        })?;
        let said = short(&world.node, "@100.64.0.1 www.bank.test A")?;
        let port = inside::join(liar)?;
        assert_eq!(said, "203.0.113.66");
        let counts = world.server.counts();
        ensure!(counts.foreign_answer >= 200, "{counts:?}");
        ensure!(port >= 1024 && port != 53, "asked from port {port}");
        Ok(())
    })
}

#[test]
fn dn_05_a_program_that_asks_without_end_displaces_its_own_questions() -> Result<()> {
    scene("names6", |scene| {
        let world = world(scene, &["192.0.2.9"])?;
        world.far.sh("nft add table ip t
             nft 'add chain ip t in { type filter hook input priority 0; }'
             nft add rule ip t in ip daddr 192.0.2.9 drop")?;
        let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x03www\x04bank\x04test\x00\x00\x01\x00\x01");
        inside::inside(&world.node, || {
            let socket = UdpSocket::bind("100.64.0.1:0")?;
            for _ in 0..600 {
                socket.send_to(&query, "100.64.0.1:53")?;
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        })?;
        let start = Instant::now();
        assert_eq!(short(&world.node, "@100.64.0.1 robot.warren.internal")?, "100.64.0.2");
        assert_eq!(short(&world.node, "@100.64.0.1 www.corp.test")?, "198.51.100.8");
        ensure!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        let counts = world.server.counts();
        ensure!((300..=600).contains(&counts.evicted), "{counts:?}");
        Ok(())
    })
}
