//! A site at an OpenStack cloud and one by `ssh`, joined: `stack.py` is the cloud's API with a
//! memory, and what it believes is made into namespaces and `nft`, so that real packets decide.

use std::path::Path;
use std::process::Command;

use lab::process::Process;
use lab::sites::boots;
use serde_json::{Value, json};

use crate::aws::{booting, forget_connections, moto, readdress, start};
use crate::ssh::{self, World, said};
use crate::support::*;

const STACK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab/sites/stack.py");
const API: &str = "198.51.100.254";
const PUBLIC: &str = "198.51.100.78";
/// The same later, in a test that changes it.
const LATER: &str = "198.51.100.88";
const MACHINE: &str = "10.3.0.10";
const REMOTE: &str = "10.4.0.1";

struct Stack<'w> {
    world: &'w World,
    /// A Python that reads YAML, as cloud-init does.
    python: String,
    serving: Process,
    fabric: Host,
    gateway: Host,
    machine: Host,
    /// What the world calls the gateway.
    public: &'static str,
}

impl<'w> Stack<'w> {
    fn open(scene: &Scene, world: &'w World, python: &Path) -> Result<Self> {
        world.server.sh("ip link set lo up")?;
        let folder = world.path("").display().to_string();
        let serving = world.server.spawn(&["python3", STACK, "serve", &folder, API, "9500"])?;
        serving.wait_for(|log| log.contains("the cloud is open"))?;
        let text = "network = \"acme\"\nssh_config = \"ssh_config\"\n\
             program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n\
             [[site]]\nname = \"paris\"\nprovider = \"ssh\"\n\
             hosts = [\"root@gw-paris\", \"root@app-paris:22\"]\n\
             [[site]]\nname = \"stack\"\nprovider = \"openstack\"\nregion = \"RegionOne\"\n";
        std::fs::write(world.path("sites.toml"), text)?;
        let [fabric, gateway, machine] = fabric(scene, world)?;
        let python = python.display().to_string();
        Ok(Self { world, python, serving, fabric, gateway, machine, public: PUBLIC })
    }

    fn command(&self, words: &[&str], password: &str) -> Command {
        let mut command = self.world.command(words);
        command
            .env("OS_AUTH_URL", format!("http://{API}:9500/v3"))
            .env("OS_USERNAME", "member")
            .env("OS_PASSWORD", password)
            .env("OS_PROJECT_NAME", "demo");
        command
    }

    fn sites(&self, words: &[&str]) -> Result<String> {
        said(&mut self.command(words, "secret"))
    }

    fn refused(&self, words: &[&str]) -> Result<String> {
        Ok(self.sites(words).err().context("it should have been refused")?.to_string())
    }

    fn faults(&self, faults: &Value) -> Result<()> {
        Ok(std::fs::write(self.world.path("faults.json"), faults.to_string())?)
    }

    fn asked(&self, words: &[&str]) -> Result<String> {
        let folder = self.world.path("").display().to_string();
        self.world.server.run(&[&["python3", STACK, "ask", &folder], words].concat())
    }

    fn census(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.asked(&["census"])?)?)
    }

    fn booting(&self, words: &[&str]) -> Result<String> {
        let boot = || {
            for boot in boots(&self.world.path(""))? {
                self.materialise()?;
                start(&self.python, &self.gateway, &boot)?;
            }
            Ok(())
        };
        let told = booting(self.world, self.command(words, "secret"), &boot);
        told.with_context(|| self.serving.log())
    }

    fn materialise(&self) -> Result<()> {
        let script = self.asked(&["fabric", self.public])?;
        self.fabric.sh(&script).map(drop)
    }

    fn joined(&self) -> Result<()> {
        self.materialise()?;
        let pings = |host: &Host, to: &str| host.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        let there = || pings(&self.machine, REMOTE) && pings(&self.world.apps[0], MACHINE);
        eventually("both reach each other", seconds(30), there).map(drop)
    }
}

/// The cloud's router and switches as one host with a port for each interface.
fn fabric(scene: &Scene, world: &World) -> Result<[Host; 3]> {
    let fabric = scene.host("fabric")?;
    let gateway = scene.host("stackgw")?;
    let machine = scene.host("stackapp")?;
    scene.veth((&world.server, "p78", &[]), (&fabric, "wan0", &[&format!("{PUBLIC}/24")]))?;
    world.server.sh("ip link set p78 master br0")?;
    scene.veth((&fabric, "gw0", &[]), (&gateway, "ens3", &["172.31.254.10/24"]))?;
    scene.veth((&fabric, "gw1", &[]), (&gateway, "ens4", &["10.3.0.254/24"]))?;
    scene.veth((&fabric, "app0", &[]), (&machine, "ens3", &[&format!("{MACHINE}/24")]))?;
    fabric.sh(&format!(
        "ip addr add 10.3.0.1/32 dev app0; ip route add {MACHINE}/32 dev app0
         ip route add 10.3.0.254/32 dev gw1; ip route add default via {API}
         for port in gw0 gw1 app0; do
           sysctl -qw net.ipv4.conf.$port.proxy_arp=1 net.ipv4.conf.$port.send_redirects=0
           sysctl -qw net.ipv4.conf.$port.rp_filter=0
         done
         sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.all.rp_filter=0
         sysctl -qw net.ipv4.ip_forward=1"
    ))?;
    gateway.sh("ip route add default via 172.31.254.1")?;
    machine.sh("ip route add default via 10.3.0.1")?;
    gateway.sh(&format!(
        "mkdir -p /run/warren-bin; cp {} /run/warren-bin/warren",
        env!("CARGO_BIN_EXE_warren")
    ))?;
    Ok([fabric, gateway, machine])
}

fn reaches(stack: &Stack<'_>) -> bool {
    stack.machine.sh(&format!("ping -c 1 -W 0.5 {REMOTE}")).is_ok()
}

/// A wrong password, a region that is none, and a right that is missing are told by name.
fn is_told_who_may_not(stack: &Stack<'_>) -> Result<()> {
    let why = said(&mut stack.command(&["apply", "--yes"], "wrong"));
    let why = why.err().context("a wrong password is refused")?.to_string();
    ensure!(why.contains("user or password is wrong"), "{why}");
    let file = stack.world.path("sites.toml");
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(&file, text.replace("RegionOne", "RegionTwo"))?;
    let why = stack.refused(&["apply", "--yes"])?;
    ensure!(why.contains("no network service in RegionTwo, only in RegionOne"), "{why}");
    std::fs::write(&file, text)?;
    stack.faults(&json!({ "forbidden": ["POST networks"] }))?;
    let why = stack.refused(&["apply", "--yes", "--only", "stack"])?;
    ensure!(why.contains("the right to POST networks is missing"), "{why}");
    stack.faults(&json!({}))
}

fn each_is_there_once(before: &Value, now: &Value) -> Result<()> {
    for (kind, more) in [
        ("networks", 2),
        ("subnets", 2),
        ("routers", 1),
        ("ports", 3),
        ("floatingips", 1),
        ("servers", 1),
        ("security-groups", 1),
    ] {
        let count = |census: &Value| census[kind].as_u64().unwrap_or_default();
        ensure!(count(now) == count(before) + more, "{kind}: {before} became {now}");
    }
    Ok(())
}

/// The lock is another's, and one whose time is over is taken over.
fn two_operators(stack: &Stack<'_>) -> Result<()> {
    let rules = stack.census()?["security-group-rules"].clone();
    stack.asked(&["spoil"])?;
    stack.asked(&["lock", "600"])?;
    let why = stack.refused(&["apply", "--yes"])?;
    ensure!(why.contains("somebody@elsewhere is changing stack now"), "{why}");
    stack.asked(&["lock", "-5"])?;
    stack.sites(&["apply", "--yes"])?;
    ensure!(stack.census()?["security-group-rules"] == rules, "no lock is left");
    stack.joined()
}

/// Its floating address was given back by hand: it gets another one, and is found there.
fn its_address_is_another(stack: &mut Stack<'_>) -> Result<()> {
    stack.asked(&["release"])?;
    readdress(&stack.fabric, PUBLIC, LATER)?;
    stack.public = LATER;
    stack.materialise()?;
    forget_connections(&stack.fabric)?;
    ensure!(!reaches(stack), "the control: nobody knows where it is");
    let told: Value = serde_json::from_str(&stack.sites(&["apply", "--yes", "--json"])?)?;
    ensure!(told["done"] == 1 && told["steps"][0]["kind"] == "public-address", "{told}");
    stack.materialise()?;
    forget_connections(&stack.fabric)?;
    stack.joined()
}

#[test]
fn source_001_4_a_site_at_openstack_has_a_gateway_with_two_interfaces_and_is_taken_away()
-> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites23", |scene| {
        let world = World::new(scene, "sites23", &sshd)?;
        let mut stack = Stack::open(scene, &world, &python)?;
        let before = stack.census()?;
        is_told_who_may_not(&stack)?;
        ensure!(stack.census()? == before, "nothing was made");

        // Throttled, failing by itself, down for a moment, and with answers that are lost, each
        // thing is there once.
        let kinds = ["networks", "ports", "servers", "floatingips", "security-group-rules"];
        let lost = kinds.map(|kind| format!("POST {kind}"));
        stack.faults(&json!({ "throttle": 9, "lost": lost, "down": { "POST routers": 8 },
            "broken": ["GET ports", "POST subnets", "PUT add_router_interface", "GET detail"] }))?;
        let begin = std::time::Instant::now();
        let told = stack.booting(&["apply", "--yes"])?;
        println!("apply: {:?}: {}", begin.elapsed(), told.trim());
        let log = stack.serving.log();
        for word in [" 429", " None", " 500"] {
            ensure!(log.contains(word), "{word} did not happen");
        }
        stack.faults(&json!({}))?;
        stack.joined()?;
        let now = stack.census()?;
        each_is_there_once(&before, &now)?;
        let begin = std::time::Instant::now();
        ensure!(stack.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        println!("apply again: {:?}", begin.elapsed());

        // The checks of sources, a port, the machines' rule and the route, changed by hand.
        stack.asked(&["spoil"])?;
        stack.materialise()?;
        ensure!(!reaches(&stack), "the control: the fabric does what the cloud says");
        let told: Value = serde_json::from_str(&stack.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 5, "{told}");
        stack.joined()?;

        // Both ports of the machine, deleted by hand, with what hung on them.
        stack.asked(&["unplug"])?;
        let told: Value = serde_json::from_str(&stack.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 5, "{told}");
        stack.joined()?;
        for kind in ["ports", "servers"] {
            ensure!(stack.census()?[kind] == now[kind], "{kind}: {now}");
        }

        two_operators(&stack)?;

        its_address_is_another(&mut stack)?;
        stack.asked(&["terminate"])?;
        stack.booting(&["apply", "--yes"])?;
        stack.joined()?;
        stack.sites(&["destroy", "--yes"])?;
        ensure!(stack.census()? == before, "{before} became {}", stack.census()?);
        ensure!(stack.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
        Ok(())
    })
}
