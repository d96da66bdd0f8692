//! Plain WireGuard peers behind a gateway: wireguard-go and `wg` as the phone.

use std::rc::Rc;

use serde_json::Value;

use crate::support::{Daemon, Host, Result, Scene, Sut, bail, ensure, eventually, scene, seconds};
use crate::world::{LAN, World, asks};

/// A machine on the same LAN as the nodes that runs nothing of ours.
struct Phone {
    host: Host,
    daemon: Rc<Daemon>,
    /// Its addresses in the network, IPv4 first.
    own: Vec<String>,
    /// Whom it asks for names.
    names: String,
}

/// A value of a wg-quick file.
fn value<'f>(file: &'f str, name: &str) -> &'f str {
    let found = file.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
    found.unwrap_or_default()
}

impl Phone {
    /// Takes the file as an app would: addresses, routes, and the rest by `wg setconf`.
    fn start(scene: &Scene, world: &World, name: &str, file: &str, at: &str) -> Result<Self> {
        let host = scene.host(name)?;
        let port = format!("p{name}");
        scene.veth((&world.server, &port, &[]), (&host, "eth0", &[at]))?;
        world.server.sh(&format!("ip link set {port} master br0"))?;
        let Some(program) = Sut::wireguard_go() else {
            bail!("there is no wireguard-go: install the package wireguard-go")
        };
        let daemon = scene.daemon(&program, &host, &scene.ifname(name))?;
        let path = world.folder.path("phone.conf");
        std::fs::write(&path, file)?;
        daemon.set_config(&host.run(&["wg-quick", "strip", &path])?)?;
        let link = &daemon.ifname;
        let own: Vec<&str> = value(file, "Address").split(", ").collect();
        for address in &own {
            host.run(&["ip", "addr", "add", address, "dev", link])?;
        }
        host.run(&["ip", "link", "set", link, "mtu", value(file, "MTU"), "up"])?;
        for prefix in value(file, "AllowedIPs").split(", ") {
            host.run(&["ip", "route", "replace", prefix, "dev", link])?;
        }
        let bare = |address: &&str| address.split('/').next().unwrap_or_default().to_owned();
        let own = own.iter().map(bare).collect();
        let names = value(file, "DNS").split(", ").next().unwrap_or_default().to_owned();
        Ok(Self { host, daemon, own, names })
    }

    fn hears(&self, to: &str) -> Result<()> {
        eventually(&format!("{to} answers the phone"), seconds(20), || {
            self.host.run(&["ping", "-n", "-c", "1", "-W", "1", to]).is_ok()
        })
        .map(drop)
    }
}

fn status(world: &World, i: usize) -> Result<Value> {
    Ok(serde_json::from_str(&world.node(i, &["status", "--json"])?)?)
}

/// The addresses of a node, IPv4 first.
fn addresses(world: &World, i: usize) -> Result<[String; 2]> {
    let told = world.node(i, &["ip"])?;
    let mut lines = told.lines().map(str::to_owned);
    match (lines.next(), lines.next()) {
        (Some(v4), Some(v6)) => Ok([v4, v6]),
        _ => bail!("no two addresses: {told}"),
    }
}

/// Whether a program in `host` is told by the teller of `name` at `to`.
fn told(host: &Host, to: &str, name: &str) -> bool {
    asks(host, to, 80).is_ok_and(|told| told.starts_with(name))
}

fn set_policy(world: &World, text: &str) -> Result<()> {
    let path = world.folder.path("policy.hujson");
    std::fs::write(&path, text)?;
    world.admin(&["policy", "set", &path]).map(drop)
}

/// What is asked for over TCP within 20 s, of both families.
fn meets(from: &Host, to: &[String], name: &str) -> Result<()> {
    for to in to {
        let what = format!("{name} at {to} answers {}", from.name());
        eventually(&what, seconds(20), || told(from, to, name))?;
    }
    Ok(())
}

#[test]
fn a_phone_is_in_by_a_file_and_is_reached_named_and_judged_as_itself() -> Result<()> {
    scene("gate2p", |scene| {
        let mut world = World::new(scene, "32")?;
        world.join("192.168.5.0/24,fd05::/64", &[], &[])?;
        let endpoint = ["--endpoint", "10.9.0.2:41820", "--route", "192.168.5.0/24"];
        let words = [&["peer", "add", "phone", "--gateway", "b"][..], &endpoint].concat();
        let file = world.admin(&words)?;
        let phone = Phone::start(scene, &world, "ph", &file, "10.9.0.4/24")?;
        let (a, b) = (addresses(&world, 0)?, addresses(&world, 1)?);
        // Gateway, another node behind it, and back, over both families.
        phone.hears(&b[0])?;
        meets(&phone.host, &a, "a")?;
        meets(&phone.host, &b, "b")?;
        let _teller = crate::world::Teller::start(&phone.host, "0.0.0.0", 80, "phone")?;
        meets(&world.a, &phone.own[..1], "phone")?;
        ensure!(
            asks(&phone.host, &a[0], 80)?.contains(&phone.own[0]),
            "it comes under its own address"
        );
        // A subnet behind the gateway, and names through it.
        eventually("the subnet answers", seconds(20), || told(&phone.host, LAN[0], "lan"))?;
        let server = format!("@{}", phone.names);
        let dig = ["dig", "+short", "+time=2", "+tries=1", &server, "a.warren.internal", "A"];
        ensure!(phone.host.run(&dig)?.trim() == a[0], "names are answered");
        // Everybody sees it, and how it is reached.
        let seen = status(&world, 0)?;
        let peers = seen["peers"].as_array().cloned().unwrap_or_default();
        let shown = peers.iter().find(|peer| peer["name"] == "phone");
        ensure!(shown.is_some_and(|peer| peer["gateway"] == "b"), "{seen}");
        ensure!(world.node(0, &["status"])?.contains("through b"), "as people see it");
        ensure!(world.admin(&["peer", "list"])?.contains("phone"), "the list has it");
        // The policy speaks of it as of any node: it may reach a, and is reached by nobody.
        let hosts = format!("\"hosts\": {{\"phone\": \"{}\"}}", phone.own[0]);
        let rule = |from: &str, to: &str| {
            format!(
                "{{{hosts}, \"acls\": [{{\"action\": \"accept\", \"src\": [\"{from}\"], \"dst\": \
                 [\"{to}:80\"]}}]}}"
            )
        };
        set_policy(&world, &rule("phone", &a[0]))?;
        eventually("nobody reaches the phone", seconds(20), || {
            !told(&world.a, &phone.own[0], "phone") && !told(&phone.host, &b[0], "b")
        })?;
        meets(&phone.host, &a[..1], "a")?;
        ensure!(phone.host.run(&dig)?.trim() == a[0], "names need no rule");
        ensure!(!told(&phone.host, LAN[0], "lan"), "the subnet does");
        set_policy(&world, &rule(&a[0], "phone"))?;
        meets(&world.a, &phone.own[..1], "phone")?;
        ensure!(!told(&phone.host, &a[0], "a"), "not the other way");
        // It sends as nobody else.
        let link = &phone.daemon.ifname;
        phone.host.sh(&format!("ip addr add {}/32 dev {link}", b[0]))?;
        let forged = ["ping", "-n", "-c", "1", "-W", "1", "-I", &b[0], &a[0]];
        ensure!(phone.host.run(&forged).is_err(), "the gateway's own address is not its");
        // It is taken out, and is out.
        let refused = world.admin(&["peer", "remove", "a"]).unwrap_err().to_string();
        ensure!(refused.contains("warren node remove"), "{refused}");
        world.admin(&["peer", "remove", "phone"])?;
        eventually("it is gone", seconds(20), || !told(&world.a, &phone.own[0], "phone"))?;
        Ok(())
    })
}

#[test]
fn two_phones_of_one_gateway_meet_and_the_gateway_takes_them_along() -> Result<()> {
    scene("gate3p", |scene| {
        let mut world = World::new(scene, "33")?;
        world.join("", &[], &[])?;
        let mut phones = Vec::new();
        for (name, at) in [("p1", "10.9.0.5/24"), ("p2", "10.9.0.6/24")] {
            let words = ["peer", "add", name, "--gateway", "b", "--endpoint", "10.9.0.2:41820"];
            let file = world.admin(&words)?;
            phones.push(Phone::start(scene, &world, name, &file, at)?);
        }
        let file = world.admin(&["peer", "add", "p0", "--gateway", "b"])?;
        let place = value(&file, "Endpoint");
        ensure!(place == "192.0.2.1:41820", "what the gateway says, public first: {place}");
        let [one, two] = &phones[..] else { bail!("two phones") };
        one.hears(&two.own[0])?;
        two.hears(&one.own[1])?;
        // The gateway dies: they are cut off, and back when it is, which knows where they were.
        let seen = world.folder.path("b/seen.json");
        eventually("it is kept where the phones are", seconds(30), || {
            std::fs::read_to_string(&seen).is_ok_and(|text| text.contains("10.9.0.6"))
        })?;
        world.daemons[1] = None;
        let lost = ["ping", "-n", "-c", "1", "-W", "1", &two.own[0]];
        ensure!(one.host.run(&lost).is_err(), "nobody else carries them");
        world.daemon(1)?;
        eventually("the phones meet again", seconds(40), || {
            one.host.run(&["ping", "-n", "-c", "1", "-W", "1", &two.own[0]]).is_ok()
        })?;
        let taken = world.admin(&["peer", "add", "p1", "--gateway", "a"]).unwrap_err().to_string();
        ensure!(taken.contains("another node is called"), "{taken}");
        let wrong = world.admin(&["peer", "add", "p3", "--gateway", "p1", "--endpoint", "x:1"]);
        ensure!(wrong.unwrap_err().to_string().contains("carries nobody"), "a phone carries none");
        world.admin(&["node", "remove", "b"])?;
        let left = world.admin(&["node", "list"])?;
        ensure!(!left.contains("p1") && !left.contains("p2"), "they went with it: {left}");
        Ok(())
    })
}
