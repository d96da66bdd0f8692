//! Containers behind a node, as Docker has them: a bridge, a translated address, and a copy of the
//! machine's resolv.conf. They keep their names and their peers.

use std::net::IpAddr;

use dns::{Names, Settings};
use host::names::{Place, Server};

use crate::support::{Host, Result, Scene, ensure, eventually, inside, scene, seconds};
use crate::world::{NET, World, asks};

/// A container of `a`, by what Docker does to a machine.
fn container(scene: &Scene, a: &Host) -> Result<Host> {
    let host = scene.host("box")?;
    a.sh("ip link add docker0 type bridge; ip link set docker0 addrgenmode none
         ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
         echo 1 > /proc/sys/net/ipv4/ip_forward
         nft add table ip docker
         nft 'add chain ip docker post { type nat hook postrouting priority srcnat; }'
         nft 'add rule ip docker post ip saddr 172.17.0.0/16 oifname != docker0 masquerade'")?;
    scene.veth((a, "vbox", &[]), (&host, "eth0", &["172.17.0.2/16"]))?;
    a.sh("ip link set vbox master docker0")?;
    host.sh("ip route add default via 172.17.0.1")?;
    Ok(host)
}

/// A resolver of the LAN.
fn resolver(world: &World) -> Result<Server> {
    let settings = Settings {
        domain: "lan.test".to_owned(),
        own: "ns".to_owned(),
        hosts: vec![("www".to_owned(), vec![IpAddr::from([198, 51, 100, 7])])],
        ..Settings::default()
    };
    let also = vec!["0.0.0.0/0".parse()?];
    let place = Place { addresses: vec!["10.9.0.254".parse()?], also };
    inside::inside(&world.server, || Ok(Server::start(&place, Names::new(settings)?)?))
}

fn dig(host: &Host, words: &str) -> Result<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let base = ["dig", "+tries=1", "+time=2", "+short"];
    Ok(host.run(&[&base[..], &words[..]].concat())?.trim().to_owned())
}

/// Copies the machine's resolv.conf, as Docker does at a container's start.
fn copy(a: &Host, container: &Host) -> Result<String> {
    let text = std::fs::read_to_string(a.etc().join("resolv.conf"))?;
    std::fs::write(container.etc().join("resolv.conf"), &text)?;
    Ok(text)
}

#[test]
fn a_container_behind_a_node_keeps_its_names_and_peers_with_an_exit_too() -> Result<()> {
    scene("gate27", |scene| {
        let mut world = World::new(scene, "27")?;
        let inner = container(scene, &world.a)?;
        std::fs::write(world.a.etc().join("resolv.conf"), "nameserver 10.9.0.254\n")?;
        let _resolver = resolver(&world)?;
        ensure!(copy(&world.a, &inner)?.contains("10.9.0.254"));
        ensure!(dig(&inner, "www.lan.test")? == "198.51.100.7", "the control: before Warren");
        world.join("", &["--advertise-exit-node"], &[])?;
        let text = || copy(&world.a, &inner).unwrap_or_default();
        eventually("resolv.conf names us", seconds(10), || text().contains("100.64.0.1"))?;
        let named = |words: &str| {
            eventually(words, seconds(5), || {
                dig(&inner, &format!("{words} b.warren.internal")).is_ok_and(|t| t == "100.64.0.2")
            })
        };
        let peers = |stage: &str| {
            eventually(stage, seconds(10), || {
                asks(&inner, "100.64.0.2", 80).is_ok_and(|told| told.starts_with("b 100.64.0.1 "))
            })
        };
        for words in ["+notcp", "+tcp"] {
            named(words)?;
            ensure!(dig(&inner, &format!("{words} www.lan.test"))? == "198.51.100.7", "{words}");
        }
        peers("a peer answers a container")?;
        // with an exit: nothing but the copy of resolv.conf says where to ask
        world.node(0, &["set", "--exit-node", "b", "--exit-node-allow-lan-access"])?;
        for lan in ["--exit-node-allow-lan-access=true", "--exit-node-allow-lan-access=false"] {
            world.node(0, &["set", lan])?;
            eventually("the exit leads a container out", seconds(20), || {
                asks(&inner, NET[0], 80).is_ok_and(|told| told.starts_with("net "))
            })?;
            for words in ["+notcp", "+tcp"] {
                named(words)?;
            }
            peers("a peer answers a container beside an exit")?;
            // the LAN's resolver is hidden by the exit: told, with what mends it
            let is_hidden = lan.ends_with("false");
            let names = dig(&inner, "www.lan.test").unwrap_or_default();
            ensure!(names.contains("198.51.100.7") != is_hidden, "{lan}: {names:?}");
            let told = world.node(0, &["status", "--json"])?;
            ensure!(told.contains("warren dns set --upstream") == is_hidden, "{lan}: {told}");
        }
        // a LAN's host is nobody's container
        world.server.sh("ip route add 100.64.0.1 via 10.9.0.1")?;
        ensure!(dig(&world.server, "@100.64.0.1 b.warren.internal").is_err(), "an open resolver");
        // and a bridge that leads elsewhere is a LAN
        world.node(0, &["set", "--exit-node="])?;
        named("+notcp")?;
        world.a.sh("ip link add far0 link isp0 type macvlan; ip link set far0 master docker0")?;
        eventually("it is a LAN", seconds(5), || dig(&inner, "b.warren.internal").is_err())?;
        Ok(())
    })
}
