//! A site at a real OpenStack cloud and one by `ssh`. Keystone, nova and neutron are Debian's, and
//! neutron's agents decide in the kernel about every packet (`tests/openstack/cloud.py`). Nova's
//! machines are hosts of the lab that have the other end of their ports. `make test-openstack` runs
//! it, and gets the cloud first.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lab::process::Process;
use lab::sites::{Tools, boots, give_image};
use serde_json::{Value, json};

use crate::aws::{booting, nothing_else_is_open, start};
use crate::openstack_port::deleted_ports_are_given_to_the_machine_again;
use crate::ssh::{self, World, said};
use crate::support::*;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openstack");
const API: &str = "203.0.113.2";
const SERVER: &str = "198.51.100.254";
pub(crate) const REMOTE: &str = "10.4.0.1";
const GATEWAY: &str = "10.3.0.254";
const RANGE: &str = "10.0.0.0/8";
/// What a machine does with an answer by DHCP: the routes that it names, or else its router.
const LEASE: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
ip addr replace \"$ip/$mask\" dev \"$interface\"
routes=${staticroutes:-${msstaticroutes:-}}
if [ -n \"$routes\" ]; then
  set -- $routes
  while [ $# -ge 2 ]; do
    [ \"$2\" = 0.0.0.0 ] || ip route replace \"$1\" via \"$2\" dev \"$interface\" || true
    shift 2
  done
elif [ -n \"${router:-}\" ]; then
  ip route replace default via \"$router\" dev \"$interface\"
fi
";

/// A machine bears one such cloud at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder that `make setup-openstack` fills.
pub(crate) fn installed() -> Option<PathBuf> {
    let folder = tools().join("openstack");
    let is_there = folder.join("installed").exists();
    if !is_there {
        eprintln!("\n*** SKIPPED: there is no OpenStack; `make test-openstack` gets one ***\n");
    }
    is_there.then_some(folder)
}

fn tools() -> PathBuf {
    target().join("tools")
}

pub(crate) struct Cloud<'w> {
    scene: &'w Scene,
    pub(crate) world: &'w World,
    /// A Python that reads YAML, as cloud-init does.
    python: String,
    _serving: Process,
    /// Where its services and agents run, with their bridges.
    fabric: Host,
    /// The site's gateways; the second one is of a pair.
    pub(crate) gateways: [Host; 2],
    /// A machine of the operator's own in the site.
    pub(crate) app: Host,
}

impl<'w> Cloud<'w> {
    /// `more` is what the file says of its site beside.
    pub(crate) fn open(
        scene: &'w Scene,
        world: &'w World,
        folder: &Path,
        more: &str,
    ) -> Result<Self> {
        let python = Tools::find(&tools()).yaml.context("no Python reads YAML: make setup")?;
        let fabric = scene.host("cloud")?;
        let gateways = [scene.host("stackgw")?, scene.host("stackgw2")?];
        let app = scene.host("stackapp")?;
        let server = &world.server;
        server.sh("ip link set lo up")?;
        scene
            .veth((server, "api0", &["203.0.113.1/24"]), (&fabric, "api0", &["203.0.113.2/24"]))?;
        scene.veth((server, "p79", &[]), (&fabric, "ext0", &[]))?;
        server.sh("ip link set p79 master br0")?;
        for gateway in &gateways {
            give_image(gateway, Path::new(env!("CARGO_BIN_EXE_warren")))?;
        }
        std::fs::write(world.path("lease"), LEASE)?;
        world.server.sh(&format!("chmod 755 {}", world.path("lease").display()))?;
        let text = format!(
            "network = \"acme\"\nssh_config = \"ssh_config\"\n\
             program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n\
             [[site]]\nname = \"paris\"\nprovider = \"ssh\"\n\
             hosts = [\"root@gw-paris\", \"root@app-paris:22\"]\n\
             [[site]]\nname = \"vienna\"\nprovider = \"openstack\"\nregion = \"RegionOne\"\n{more}"
        );
        std::fs::write(world.path("sites.toml"), text)?;
        let root = format!("{SCRIPTS}/root.sh");
        let place = folder.display().to_string();
        let serve = ["python3", "/srv/cloud.py", "serve"];
        let serving = fabric.spawn(&[&["sh", &root, "forget", &place], &serve[..]].concat())?;
        serving.wait_for_within(seconds(400), |log| log.contains("the cloud is open"))?;
        eprintln!("{}", serving.log().trim());
        let python = python.display().to_string();
        Ok(Self { scene, world, python, _serving: serving, fabric, gateways, app })
    }

    /// `warren sites` with the credentials of a member of the project.
    pub(crate) fn command(&self, words: &[&str], password: &str) -> Command {
        let mut command = self.world.command(words);
        command
            .env("OS_AUTH_URL", format!("http://{API}:5000/v3"))
            .env("OS_USERNAME", "member")
            .env("OS_PASSWORD", password)
            .env("OS_PROJECT_NAME", "demo");
        command
    }

    pub(crate) fn sites(&self, words: &[&str]) -> Result<String> {
        said(&mut self.command(words, "secret"))
    }

    pub(crate) fn told(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.sites(words)?)?)
    }

    pub(crate) fn asked(&self, words: &[&str]) -> Result<Value> {
        let script = format!("{SCRIPTS}/asked.py");
        let told = self.world.server.run(&[&["python3", "-B", &script], words].concat())?;
        Ok(serde_json::from_str(&told)?)
    }

    /// What the project has, once its agents have done their part.
    pub(crate) fn settled(&self) -> Result<Value> {
        let census = || self.asked(&["census"]);
        let last = RefCell::new(census()?);
        eventually("the cloud stays as it is", seconds(60), || {
            std::thread::sleep(seconds(3));
            census().is_ok_and(|now| last.replace(now.clone()) == now)
        })?;
        Ok(last.take())
    }

    pub(crate) fn booting(&self, words: &[&str]) -> Result<String> {
        booting(self.world, self.command(words, "secret"), &|| self.boot())
    }

    /// Does what nova's driver says it did: starts gateways that were run.
    fn boot(&self) -> Result<()> {
        std::thread::sleep(seconds(1));
        let folder = self.world.path("");
        self.asked(&["boots", &folder.display().to_string()])?;
        for boot in boots(&folder)? {
            let name = boot.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let ports = self.asked(&["ports", name.trim_start_matches("boot-")])?;
            let ports = ports.as_array().context("ports")?;
            ensure!(ports.len() == 2, "a gateway has two interfaces: {ports:?}");
            let is_second = ports.iter().any(|port| text(&port["description"]).contains("-gw2"));
            let gateway = &self.gateways[usize::from(is_second)];
            for port in ports {
                let is_outer = text(&port["description"]).ends_with("-outside");
                self.plug(gateway, if is_outer { "ens3" } else { "ens4" }, port)?;
            }
            start(&self.python, gateway, &boot)?;
        }
        Ok(())
    }

    /// Makes a host the other end of a port. It asks for its address by DHCP.
    pub(crate) fn plug(&self, host: &Host, ifname: &str, port: &Value) -> Result<()> {
        let short = |key: &str| text(&port[key]).chars().take(11).collect::<String>();
        let tap = format!("tap{}", short("id"));
        let bridge = format!("brq{}", short("network_id"));
        let show = format!("ip link show {bridge}");
        eventually("the network has a bridge", seconds(60), || self.fabric.sh(&show).is_ok())?;
        host.sh(&format!("ip link del {ifname} 2>/dev/null || true"))?;
        self.scene.veth((&self.fabric, &tap, &[]), (host, ifname, &[]))?;
        let mac = text(&port["mac_address"]);
        host.sh(&format!(
            "ip link set {ifname} down; ip link set {ifname} address {mac}; ip link set {ifname} up"
        ))?;
        self.fabric.sh(&format!("ip link set {tap} master {bridge}"))?;
        let lease = self.world.path("lease");
        let ask = format!(
            "busybox udhcpc -f -q -n -t 60 -T 1 -i {ifname} -O staticroutes -O msstaticroutes \
             -s {}",
            lease.display()
        );
        host.sh(&ask).map(drop)
    }

    /// Starts a machine of the operator's own in the site; its number and its address. `hop` is
    /// where its route leads.
    pub(crate) fn start_app(&self, hop: &str) -> Result<[String; 2]> {
        let seen = self.asked(&["seen"])?;
        let network = text(&ours(&seen, "networks", "inside")?["id"]);
        let number = text(&self.asked(&["start", &network])?);
        let ports = self.asked(&["ports", &number])?;
        self.plug(&self.app, "ens3", &ports[0])?;
        let routes = self.app.sh("ip route")?;
        let route = format!("{RANGE} via {hop} dev ens3");
        ensure!(routes.contains(&route), "it learns its route by DHCP: {routes}");
        Ok([number, text(&ports[0]["fixed_ips"][0]["ip_address"])])
    }

    pub(crate) fn joined(&self, app: &str) -> Result<()> {
        let pings = |host: &Host, to: &str| host.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        let there = || pings(&self.app, REMOTE) && pings(&self.world.apps[0], app);
        let took = eventually("both reach each other", seconds(60), there)?;
        eprintln!("both reach each other: {took:?}");
        Ok(())
    }

    /// The number of a gateway's machine, as the cloud has it.
    pub(crate) fn machine(&self, name: &str) -> Result<String> {
        let seen = self.asked(&["seen"])?;
        let mark = format!("warren acme vienna {name}");
        let mut all = seen["servers"].as_array().into_iter().flatten();
        let found = all.find(|server| server["metadata"]["warren"] == mark.as_str());
        Ok(text(&found.with_context(|| format!("no machine {name}: {seen}"))?["id"]))
    }

    /// An `apply` of everything, which does so many steps.
    pub(crate) fn mends(&self, count: usize) -> Result<Value> {
        let told = self.told(&["apply", "--yes", "--json"])?;
        ensure!(told["done"] == count, "{count} steps: {told}");
        Ok(told)
    }

    /// An `apply` that finds nothing to be done touches nothing either.
    pub(crate) fn rests(&self) -> Result<()> {
        let changes = || self.asked(&["changes"]);
        self.settled()?;
        let before = changes()?;
        let begin = Instant::now();
        for _ in 0..2 {
            self.mends(0)?;
        }
        eprintln!("apply again: {:?}", begin.elapsed() / 2);
        ensure!(changes()? == before, "it changed something");
        Ok(())
    }

    /// Takes everything away; what is left is what was there before.
    pub(crate) fn vanishes(&self, before: &Value, foreign: &Value) -> Result<()> {
        let begin = Instant::now();
        eprintln!("destroy: {}", self.sites(&["destroy", "--yes"])?.trim());
        eprintln!("destroy: {:?}", begin.elapsed());
        let left = self.settled()?;
        ensure!(left == *before, "{before} became {left}");
        ensure!(self.asked(&["foreign"])? == *foreign, "what others made is as it was");
        ensure!(self.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
        ensure!(self.world.admin(&["node", "list"])?.lines().count() == 1, "no node is left");
        Ok(())
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What `warren sites` made for a role in the site, by its mark.
pub(crate) fn ours(seen: &Value, kind: &str, role: &str) -> Result<Value> {
    let mark = format!("warren acme vienna {role}");
    let is_it = |one: &&Value| {
        let said = text(&one["description"]);
        said == mark || said.starts_with(&format!("{mark} "))
    };
    let mut all = seen[kind].as_array().context("a list")?.iter().filter(is_it);
    let found = all.next().with_context(|| format!("no {role} of {kind}: {seen}"))?;
    ensure!(all.next().is_none(), "several {role} of {kind}: {seen}");
    Ok(found.clone())
}

/// What lets packets in, as a plan prints it.
fn ingress(group: &Value) -> String {
    let rules = group["security_group_rules"].as_array().into_iter().flatten();
    let mut all: Vec<String> = rules
        .filter(|rule| rule["direction"] == "ingress")
        .map(|rule| {
            let from = text(&rule["remote_ip_prefix"]);
            match rule["protocol"].as_str() {
                Some(protocol) if rule["port_range_min"] == rule["port_range_max"] => {
                    format!("{protocol} {} {from}", rule["port_range_min"])
                }
                Some(protocol) => format!("{protocol} ? {from}"),
                None => format!("all {from}"),
            }
        })
        .collect();
    all.sort();
    all.join(",")
}

/// Neutron has what the plan says: two interfaces, what they let pass, groups, routes, a floating
/// address; the floating address.
fn made_as_planned(cloud: &Cloud<'_>, plan: &Value) -> Result<String> {
    let seen = cloud.asked(&["seen"])?;
    let group = ours(&seen, "security-groups", "gateway")?;
    let steps = plan["steps"].as_array().context("steps")?;
    let step = steps.iter().find(|step| step["kind"] == "security-group").context("a group")?;
    let printed = text(&step["properties"]["ingress"]);
    ensure!(printed == "all 10.3.0.0/24,udp 41820 0.0.0.0/0", "{step}");
    ensure!(ingress(&group) == printed, "{printed} became {group}");

    let inner = ours(&seen, "ports", "acme-vienna-gw1")?;
    let outer = ours(&seen, "ports", "acme-vienna-gw1-outside")?;
    let server = cloud.machine("acme-vienna-gw1")?;
    for port in [&inner, &outer] {
        let is_its = port["device_id"] == server.as_str();
        ensure!(port["port_security_enabled"] == true && is_its, "{port}");
        ensure!(port["security_groups"] == json!([group["id"]]), "{port}");
    }
    ensure!(inner["fixed_ips"][0]["ip_address"] == GATEWAY, "{inner}");
    let pairs = inner["allowed_address_pairs"].as_array().context("pairs")?;
    ensure!(pairs.len() == 1 && pairs[0]["ip_address"] == RANGE, "{inner}");
    ensure!(outer["allowed_address_pairs"] == json!([]), "{outer}");

    let subnet = ours(&seen, "subnets", "inside")?;
    let route = json!([{ "destination": RANGE, "nexthop": GATEWAY }]);
    ensure!(subnet["host_routes"] == route && subnet["gateway_ip"].is_null(), "{subnet}");
    let floating = ours(&seen, "floatingips", "acme-vienna-gw1")?;
    ensure!(floating["port_id"] == outer["id"], "{floating}");
    let router = ours(&seen, "routers", "router")?;
    ensure!(floating["router_id"] == router["id"], "{floating} {router}");
    let rules = seen["security-group-rules"].as_array().context("rules")?;
    let mine: Vec<&Value> = rules.iter().filter(|r| r["description"] == "warren acme").collect();
    ensure!(mine.len() == 1 && mine[0]["remote_ip_prefix"] == RANGE, "{mine:?}");
    ensure!(mine[0]["direction"] == "ingress" && mine[0]["protocol"].is_null(), "{mine:?}");
    Ok(text(&floating["floating_ip_address"]))
}

/// How many packets a host sees that are as `rule` says, before it decides about them itself.
fn arrived(host: &Host, rule: &str, send: impl FnOnce() -> Result<String>) -> Result<u64> {
    host.sh(&format!(
        "nft add table ip spy
         nft 'add chain ip spy in {{ type filter hook prerouting priority -310; }}'
         nft 'add rule ip spy in {rule} counter'"
    ))?;
    let sent = send();
    std::thread::sleep(seconds(1));
    let told = host.sh("nft list table ip spy; nft delete table ip spy")?;
    sent?;
    let count = told.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).with_context(|| told.clone())
}

/// Three pings of somebody, whether the host is that one or not.
fn forge(from: &Host, source: &str, to: &str) -> Result<String> {
    from.sh(&format!(
        "had=$(ip -br addr | grep -c ' {source}/' || true)
         [ $had = 1 ] || ip addr add {source}/32 dev lo
         ping -c 3 -i 0.3 -W 1 -I {source} {to} >/dev/null || true
         [ $had = 1 ] || ip addr del {source}/32 dev lo"
    ))
}

/// The DMZ has a router, and the site's own network has none.
fn the_gateway_alone_leads_out(cloud: &Cloud<'_>) -> Result<()> {
    let seen = cloud.asked(&["seen"])?;
    let router = &ours(&seen, "routers", "router")?["id"];
    let ports = seen["ports"].as_array().into_iter().flatten();
    let led: Vec<&Value> = ports.filter(|port| port["device_id"] == *router).collect();
    let outside = &ours(&seen, "networks", "outside")?["id"];
    ensure!(led.len() == 1 && led[0]["network_id"] == *outside, "{led:?}");
    let dmz = ours(&seen, "subnets", "outside")?;
    ensure!(dmz["cidr"] == "172.31.254.0/24", "{dmz}");
    ensure!(cloud.app.sh(&format!("ping -c 1 -W 1 {SERVER}")).is_err(), "a machine leads out");
    Ok(())
}

/// How many of three datagrams to a port of the floating address come to the gateway.
fn datagrams(cloud: &Cloud<'_>, public: &str, port: u16) -> Result<u64> {
    // Each has one byte; the server's answers by STUN come to that port, too.
    let rule = format!("ip saddr {SERVER} udp dport {port} udp length 9");
    let send = format!(
        "import socket
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3): sending.sendto(b'x', ('{public}', {port}))"
    );
    arrived(&cloud.gateways[0], &rule, || cloud.world.server.run(&["python3", "-c", &send]))
}

/// The floating address leads to the gateway, and the group lets in the port of the plan alone.
fn only_the_port_of_the_plan_is_open(cloud: &Cloud<'_>, public: &str) -> Result<()> {
    let server = &cloud.world.server;
    let gateway = &cloud.gateways[0];
    nothing_else_is_open(cloud.world, public)?;
    for (port, is_open) in [(41820, true), (41821, false)] {
        let count = datagrams(cloud, public, port)?;
        ensure!((count == 3) == is_open, "{count} datagrams came to {port}");
    }
    // Somebody listens, so it is the group that keeps a port closed; the control opens it.
    let web = ["python3", "-m", "http.server", "8080", "--bind", "0.0.0.0"];
    let _listening = gateway.spawn(&web)?;
    let connects = |host: &Host, to: &str| {
        let connect = format!("import socket; socket.create_connection(('{to}', 8080), 1)");
        host.run(&["python3", "-c", &connect]).is_ok()
    };
    eventually("it listens", seconds(20), || connects(gateway, "127.0.0.1"))?;
    let reaches = || connects(server, public);
    ensure!(!reaches(), "port 8080 is open");
    cloud.asked(&["open", "8080"])?;
    eventually("a rule opens it", seconds(60), reaches)?;
    let told = cloud.mends(1)?;
    ensure!(told["steps"][0]["kind"] == "security-group", "{told}");
    eventually("apply closes it", seconds(60), || !reaches()).map(drop)
}

/// The world knows the gateway by its floating address and by nothing else, in both directions.
fn the_floating_address_is_the_gateways(cloud: &Cloud<'_>, public: &str) -> Result<()> {
    let server = &cloud.world.server;
    let gateway = &cloud.gateways[0];
    let own = gateway.sh("ip -4 -br addr show ens3 | awk '{print $3}' | cut -d/ -f1")?;
    let own = own.trim();
    let known = format!("ip saddr {public} icmp type echo-request");
    let count = arrived(server, &known, || forge(gateway, own, SERVER))?;
    ensure!(count == 3, "{count} packets of {own} came from {public}");
    // As somebody else it sends nothing out, until its port lets it.
    let other = if own.ends_with(".77") { "172.31.254.78" } else { "172.31.254.77" };
    let any = "icmp type echo-request";
    let forged = || arrived(server, any, || forge(gateway, other, SERVER));
    let count = forged()?;
    ensure!(count == 0, "{count} packets of somebody else came out");
    cloud.asked(&["trust"])?;
    let passes = || forged().is_ok_and(|count| count == 3);
    eventually("the control: a port that is trusted sends them", seconds(60), passes)?;
    let told = cloud.mends(1)?;
    ensure!(told["steps"][0]["kind"] == "interface", "{told}");
    let is_dropped = || forged().is_ok_and(|count| count == 0);
    eventually("its port is checked again", seconds(60), is_dropped)?;

    cloud.asked(&["unfloat"])?;
    let comes = || datagrams(cloud, public, 41820).unwrap_or(0);
    eventually("nothing comes to an address of nobody", seconds(60), || comes() == 0)?;
    let told = cloud.mends(1)?;
    ensure!(told["steps"][0]["kind"] == "public-address", "{told}");
    eventually("the address is its own again", seconds(60), || comes() == 3).map(drop)
}

/// How many of three announcements of an address, by ARP, come from the machine to the gateway.
fn announced(cloud: &Cloud<'_>, address: &str) -> Result<u64> {
    let hear = "import socket, sys, time
hearing = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
hearing.bind(('ens4', 0x0806))
hearing.settimeout(0.5)
print('ready', flush=True)
count, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    try: count += hearing.recv(64)[28:32] == socket.inet_aton(sys.argv[1])
    except TimeoutError: pass
print('heard', count, flush=True)";
    let say = "import socket, sys
saying = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
saying.bind(('ens3', 0x0806))
mac, address = saying.getsockname()[4], socket.inet_aton(sys.argv[1])
frame = bytes([255] * 6) + mac + bytes([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]) + mac + address
for _ in range(3): saying.send(frame + bytes(6) + address)";
    let hearing = cloud.gateways[0].spawn(&["python3", "-c", hear, address])?;
    hearing.wait_for(|log| log.contains("ready"))?;
    cloud.app.run(&["python3", "-c", say, address])?;
    hearing.wait_for(|log| log.contains("heard"))?;
    let log = hearing.log();
    let count = log.lines().find_map(|line| line.strip_prefix("heard "));
    count.and_then(|count| count.parse().ok()).with_context(|| log.clone())
}

/// Who may send as others: the gateway as other sites, and nobody else.
fn only_the_gateway_sends_as_others(cloud: &Cloud<'_>, app: &str) -> Result<()> {
    let gateway = &cloud.gateways[0];
    // A machine knows by then where the gateway is, so nothing but the packets decides.
    cloud.app.sh(&format!("ping -c 1 {GATEWAY}"))?;
    let by_app = |source: &str| {
        let rule = format!("iifname ens4 ip saddr {source} icmp type echo-request");
        arrived(gateway, &rule, || forge(&cloud.app, source, GATEWAY))
    };
    ensure!(by_app(app)? == 3, "the control: the machine reaches the gateway as itself");
    let count = by_app("10.3.0.77")?;
    ensure!(count == 0, "{count} packets with another's address came from the machine");
    ensure!(announced(cloud, app)? >= 3, "the control: the machine says where it is");
    for address in [GATEWAY, "10.3.0.252"] {
        let count = announced(cloud, address)?;
        ensure!(count == 0, "{count} times the machine said that it has {address}");
    }

    let by_gateway = || {
        let rule = "iifname ens3 ip saddr 10.9.9.9 icmp type echo-request";
        arrived(&cloud.app, rule, || forge(gateway, "10.9.9.9", app))
    };
    ensure!(by_gateway()? == 3, "the gateway sends as other sites");
    cloud.asked(&["check"])?;
    let is_dropped = || by_gateway().is_ok_and(|count| count == 0);
    eventually("without its pairs it may not", seconds(60), is_dropped)?;
    cloud.mends(1)?;
    let passes = || by_gateway().is_ok_and(|count| count == 3);
    eventually("it sends as other sites again", seconds(60), passes).map(drop)
}

/// The rule of the default group lets other sites in, and the subnet tells machines their route.
fn machines_need_the_rule_and_the_routes(cloud: &Cloud<'_>, app: &str) -> Result<()> {
    cloud.joined(app)?;
    cloud.asked(&["silence"])?;
    cloud.asked(&["astray"])?;
    let ping = || cloud.world.apps[0].sh(&format!("ping -c 1 -W 0.5 {app}"));
    eventually("without the rule it is silent", seconds(60), || ping().is_err())?;
    // What it asks for itself is answered: the group knows that.
    cloud.app.sh(&format!("ping -c 1 -W 2 {REMOTE}"))?;
    cloud.mends(2)?;
    cloud.joined(app)
}

/// A gateway that somebody ended is made again, with the same interfaces and the same address.
fn an_ended_gateway_is_made_again(cloud: &Cloud<'_>, app: &str, public: &str) -> Result<()> {
    let number = cloud.machine("acme-vienna-gw1")?;
    cloud.asked(&["end", &number])?;
    cloud.booting(&["apply", "--yes"])?;
    ensure!(cloud.machine("acme-vienna-gw1")? != number, "another machine");
    let routes = cloud.gateways[0].sh("ip route show dev ens4")?;
    ensure!(!routes.contains(RANGE), "a gateway hears no routes of its machines: {routes}");
    cloud.joined(app)?;
    let seen = cloud.asked(&["seen"])?;
    let floating = ours(&seen, "floatingips", "acme-vienna-gw1")?;
    ensure!(floating["floating_ip_address"] == public, "{floating}");
    Ok(())
}

/// A machine of the operator's own keeps the site's network, and `destroy` says so. What it took
/// away by then the next `apply` makes again.
fn a_site_that_is_half_destroyed_is_made_whole(cloud: &Cloud<'_>, app: &str) -> Result<()> {
    let begin = Instant::now();
    let why = cloud.sites(&["destroy", "--yes"]).err().context("a machine is in it")?.to_string();
    eprintln!("half destroyed: {:?}", begin.elapsed());
    ensure!(why.contains("remove the site's own machines first"), "{why}");
    let seen = cloud.asked(&["seen"])?;
    ensure!(cloud.machine("acme-vienna-gw1").is_err(), "the gateway is gone: {seen}");
    ours(&seen, "subnets", "inside")?;
    cloud.booting(&["apply", "--yes"])?;
    cloud.joined(app)?;
    cloud.rests()
}

#[test]
#[ignore = "openstack"]
fn a_real_openstack_has_the_site_and_its_agents_decide_who_may_send_what() -> Result<()> {
    let (Some(sshd), Some(folder)) = (ssh::sshd(), installed()) else { return Ok(()) };
    let _alone = alone();
    scene("sites50", |scene| {
        let world = World::new(scene, "sites50", &sshd)?;
        let cloud = Cloud::open(scene, &world, &folder, "")?;
        // What is there before has the names and addresses of the site, and not its mark.
        cloud.asked(&["foreign"])?;
        let before = cloud.settled()?;
        let foreign = cloud.asked(&["foreign"])?;
        let why = said(&mut cloud.command(&["apply", "--yes"], "wrong")).err();
        let why = why.context("a wrong password is refused")?.to_string();
        ensure!(why.contains("user or password is wrong"), "{why}");
        let plan = cloud.told(&["plan", "--json"])?;
        ensure!(plan["unable"] == json!([]), "{plan}");
        ensure!(cloud.settled()? == before, "a plan changes nothing");

        let begin = Instant::now();
        eprintln!("apply: {}", cloud.booting(&["apply", "--yes"])?.trim());
        eprintln!("apply: {:?}", begin.elapsed());
        let public = made_as_planned(&cloud, &plan)?;
        let [number, app] = cloud.start_app(GATEWAY)?;
        cloud.joined(&app)?;
        cloud.rests()?;
        let status = cloud.told(&["status", "--json"])?;
        for gateway in status["gateways"].as_array().context("gateways")? {
            ensure!(gateway["online"] == true && gateway["state"] == "running", "{status}");
        }

        the_gateway_alone_leads_out(&cloud)?;
        only_the_port_of_the_plan_is_open(&cloud, &public)?;
        the_floating_address_is_the_gateways(&cloud, &public)?;
        only_the_gateway_sends_as_others(&cloud, &app)?;
        machines_need_the_rule_and_the_routes(&cloud, &app)?;
        deleted_ports_are_given_to_the_machine_again(&cloud, &app)?;
        an_ended_gateway_is_made_again(&cloud, &app, &public)?;
        a_site_that_is_half_destroyed_is_made_whole(&cloud, &app)?;

        cloud.asked(&["end", &number])?;
        cloud.vanishes(&before, &foreign)
    })
}
