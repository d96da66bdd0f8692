//! Two sites whose machines have the same addresses, in one network.

use std::net::{IpAddr, Ipv4Addr};

use dns::{Names, Settings};
use host::names::{Place, Server};

use crate::support::capture::Capture;
use crate::support::{Context as _, Host, Result, ensure, eventually, inside, scene, seconds};
use crate::world::{LAN, World, asks};

/// What the network knows 192.168.5.0/24 behind `b` and behind `c` by.
const ALIASES: [&str; 2] = ["10.99.1.0/24", "10.99.2.0/24"];

/// Addresses of 192.168.5.9, behind `b` and behind `c`.
const KNOWN: [&str; 2] = ["10.99.1.9", "10.99.2.9"];

/// `b` and `c` are up as gateways of sites, `a` is a machine of the network.
fn join(world: &mut World) -> Result<()> {
    let token = world.admin(&["key", "create", "--reusable"])?;
    let up = ["up", token.trim(), "--timeout", "20s", "--accept-routes", "--hostname"];
    for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
        world.daemon(i)?;
        let mut words = [&up[..], &[name]].concat();
        let offer = match i {
            1 => format!("192.168.5.0/24={},fd05::/64=fd99:1::/64", ALIASES[0]),
            _ => format!("192.168.5.0/24={}", ALIASES[1]),
        };
        if i > 0 {
            words.extend(["--site-gateway", "--advertise-routes", &offer]);
        }
        world.node(i, &words)?;
    }
    Ok(())
}

/// The site's own name server, which knows nothing of an alias.
fn resolver(host: &Host) -> Result<Server> {
    let settings = Settings {
        domain: "office.test".to_owned(),
        own: "ns".to_owned(),
        hosts: vec![("www".to_owned(), vec![LAN[0].parse()?])],
        ..Settings::default()
    };
    let also = vec!["0.0.0.0/0".parse()?];
    let place = Place { addresses: vec![LAN[0].parse()?], also };
    inside::inside(host, || Ok(Server::start(&place, Names::new(settings)?)?))
}

/// Whether `from` reaches the site at `to`, and what it is told.
fn tells(from: &Host, to: &str) -> Result<String> {
    let last = std::cell::RefCell::new(String::new());
    eventually(&format!("{to} answers"), seconds(20), || {
        asks(from, to, 80).map(|told| last.replace(told)).is_ok()
    })?;
    Ok(last.take())
}

/// Sources and destinations of packets of TCP over IPv4.
fn ends(packets: &[Vec<u8>]) -> Vec<[IpAddr; 2]> {
    let address = |p: &[u8], at: usize| Some(Ipv4Addr::from(*p.get(at..)?.first_chunk::<4>()?));
    let tcp = packets.iter().filter(|p| p.first().is_some_and(|b| b >> 4 == 4) && p[9] == 6);
    let both = tcp.filter_map(|p| Some([address(p, 12)?.into(), address(p, 16)?.into()]));
    both.collect()
}

#[test]
fn source_001_3_two_sites_with_one_prefix_reach_each_other_by_their_aliases() -> Result<()> {
    scene("gate30", |scene| {
        let mut world = World::new(scene, "30")?;
        join(&mut world)?;
        let lan2 = world.lan2.clone();
        lan2.sh("ip route add default via 192.168.5.1")?;
        // What is not approved leads nowhere, and is told with its alias.
        let waits = world.node(1, &["status"])?;
        ensure!(waits.contains("192.168.5.0/24 as 10.99.1.0/24"), "{waits}");
        world.admin(&["route", "approve", "b", "192.168.5.0/24=10.99.1.0/24", "fd99:1::/64"])?;
        world.admin(&["route", "approve", "c", ALIASES[1]])?;
        let shown: serde_json::Value =
            serde_json::from_str(&world.admin(&["node", "list", "--json"])?)?;
        let nodes = shown["nodes"].as_array().context("nodes")?;
        let b = nodes.iter().find(|node| node["name"] == "b").context("b")?;
        let expected = serde_json::json!({ "prefix": "192.168.5.0/24", "alias": ALIASES[0] });
        ensure!(b["routes"]["aliases"][0] == expected, "{b}");
        ensure!(b["routes"]["active"].as_array().is_some_and(|all| all.len() == 2), "{b}");

        // A machine of the network reaches both, each by its alias, and neither by its own address.
        for (to, name) in [(KNOWN[0], "lan "), (KNOWN[1], "lan2 "), ("fd99:1::9", "lan ")] {
            let told = world.reaches(0, to)?;
            ensure!(told.starts_with(name), "{to} is {told}");
        }
        ensure!(asks(&world.a, LAN[0], 80).is_err(), "the site's own prefix leads nowhere");
        let serves = world.node(1, &["status"])?;
        ensure!(serves.contains("192.168.5.0/24 as 10.99.1.0/24"), "{serves}");

        // The sites reach each other, from 192.168.5.9 to 192.168.5.9.
        let outside = Capture::start(&world.b, "warren0")?;
        let [near, far] = [Capture::start(&world.lan, "eth0")?, Capture::start(&lan2, "eth0")?];
        ensure!(tells(&world.lan, KNOWN[1])?.starts_with("lan2 10.99.1.9 "));
        ensure!(tells(&lan2, KNOWN[0])?.starts_with("lan 10.99.2.9 "));
        let [own, one, two] = [LAN[0], KNOWN[0], KNOWN[1]].map(|text| text.parse::<IpAddr>());
        let (own, one, two) = (own?, one?, two?);
        for (capture, known) in [(near, two), (far, one), (outside, two)] {
            let ends = ends(&capture.stop()?);
            ensure!(ends.len() > 10, "{} packets of TCP", ends.len());
            let fits =
                |[from, to]: &[IpAddr; 2]| [[own, known], [known, own]].contains(&[*from, *to]);
            ensure!(ends.iter().all(fits), "{ends:?}");
        }

        // A name of the site leads to its alias, whatever its own resolver says.
        let _resolver = resolver(&world.lan)?;
        world.admin(&["dns", "set", "--split", &format!("office.test={}", KNOWN[0])])?;
        let own = world.node(0, &["ip", "-4"])?;
        let at = format!("@{}", own.trim());
        for carrier in ["+notcp", "+tcp"] {
            let words = ["dig", "+short", "+tries=1", "+time=2", carrier, &at, "www.office.test"];
            let told = || world.a.run(&words).unwrap_or_default();
            eventually("the name is the alias", seconds(20), || told().trim() == KNOWN[0])?;
        }

        // Errors name what their reader sent: a hop limit that ends at the far gateway.
        let told = world.lan.output(&["ping", "-n", "-c", "1", "-W", "3", "-t", "2", KNOWN[1]])?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure!(told.contains("Time to live exceeded"), "{told}");
        // In fragments, too.
        world.lan.run(&["ping", "-n", "-c", "3", "-W", "3", "-s", "3000", KNOWN[1]])?;

        // Without approval nothing is left.
        world.admin(&["route", "approve", "b", "--none"])?;
        eventually("b serves nothing", seconds(20), || asks(&world.a, KNOWN[0], 80).is_err())?;
        ensure!(world.reaches(0, KNOWN[1])?.starts_with("lan2 "));
        Ok(())
    })
}

#[test]
fn a_policy_speaks_of_aliases_and_an_address_of_the_gateways_own_is_used_without_a_site()
-> Result<()> {
    scene("gate31", |scene| {
        let mut world = World::new(scene, "31")?;
        let policy = world.folder.path("policy.json");
        std::fs::write(
            &policy,
            r#"{ "hosts": { "office": "10.99.1.0/24" },
                 "acls": [{ "action": "accept", "src": ["*"], "dst": ["office:80"] }] }"#,
        )?;
        world.admin(&["policy", "set", &policy])?;
        let offers = "192.168.5.0/24=10.99.1.0/24";
        world.join(offers, &[], &[])?;
        let told = world.reaches(0, KNOWN[0])?;
        ensure!(told.starts_with("lan 192.168.5.1 "), "{told}");
        let other = world.node(0, &["why", "--json", "10.99.1.9:81"])?;
        let other: serde_json::Value = serde_json::from_str(&other)?;
        ensure!(other["policy"]["allowed"] == false, "the rule names a port: {other}");
        let why = world.node(0, &["why", "10.99.1.9:80"])?;
        ensure!(why.contains("10.99.1.0/24"), "{why}");
        Ok(())
    })
}
