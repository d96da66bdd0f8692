//! A hub and its edges: what each of them costs the hub's gateway.
//!
//! Up to [`DAEMONS_MAX`] edges are gateways of sites that `apply` joins, with a daemon each. More
//! of them one process plays ([`Edges`]), to a hub that is the same daemon.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::{Kind, Token};
use lab::process::{cpu_s, rss_kib};
use lab::sites::{APPLY, Tools, command, start_sshds};

use super::edges::{Edges, HUB};
use super::ground::{Ground, PATIENCE};
use super::{Found, Settings};

/// Edges that have a daemon each, at most: as many as two cores start in some minutes.
pub(super) const DAEMONS_MAX: u32 = 100;
/// Of the edges' echoes so many are answered at least while the hub is watched.
const ANSWERED_MIN: f64 = 0.99;
const HUB_AT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const EDGES_AT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

const SERVER: &str = "198.51.100.254";
/// So much longer an `apply` may take for each edge.
const EACH: Duration = Duration::from_secs(6);
/// How long the gateway is watched while all echo.
const WATCHED: Duration = Duration::from_secs(10);

/// The gateway's memory, MiB, and its share of a core in percent, with so many edges.
pub(super) fn measure(settings: &Settings, tools: &Tools, edges: u32) -> Result<Found> {
    let daemons = u8::try_from(edges).ok().filter(|_| edges <= DAEMONS_MAX);
    let [rss, share] = match daemons {
        Some(edges) => joined(settings, tools, edges)?,
        None => played(settings, edges as usize)?,
    };
    Ok(vec![(format!("star-{edges}-rss"), rss), (format!("star-{edges}-cpu"), share)])
}

/// Sites that `apply` joins.
fn joined(settings: &Settings, tools: &Tools, edges: u8) -> Result<[f64; 2]> {
    let gateways: Vec<String> = (0..=edges).map(gateway).collect();
    let mut topology =
        "name = \"star\"\n[hosts.server]\n[hosts.app]\n[switches.internet]\n".to_owned();
    topology.extend(gateways.iter().map(|name| format!("[hosts.{name}]\n")));
    let mut ground = Ground::lay(settings, &topology)?;
    join(&ground, edges)?;
    let own = ground.room.folder().join("server");
    let mut hosts = vec![ground.host("app")?];
    for name in &gateways {
        hosts.push(ground.host(name)?);
    }
    let sshd = tools.sshd.as_ref().context("there is no sshd")?;
    let sshds = start_sshds(&own, sshd, &hosts)?;
    ground.keep(sshds);
    fs::write(own.join("sites.toml"), file(edges))?;
    fs::write(own.join("ssh_config"), config(edges, &own.display().to_string()))?;
    fs::write(own.join("accounts"), "export TMPDIR=/run\n")?;
    ground.serve(SERVER)?;
    ground.run_within("server", &command(APPLY), PATIENCE + EACH * u32::from(edges))?;
    let mut echoes = String::new();
    for number in 1..=edges {
        let to = format!("10.4.{number}.254");
        ground.until_reached("app", &to)?;
        let _ = writeln!(echoes, "ping -n -q -i 1 {to} &");
    }
    let pid = ground.host(&gateways[0])?.sh("cat /run/warren-site.pid")?;
    let pid: u32 = pid.trim().parse().context("the gateway's process")?;
    ground.stay("app", &format!("{echoes}echo all of them; wait"), "all of them")?;
    Ok(watched(pid))
}

/// A hub's daemon, and edges that one process plays. They see the hub alone, as in a star.
fn played(settings: &Settings, edges: usize) -> Result<[f64; 2]> {
    let topology = "name = \"star\"\n[hosts.server]\n[hosts.hub]\n[hosts.edges]\n\
                    [switches.internet]\n";
    let mut ground = Ground::lay(settings, topology)?;
    for [name, address] in
        [["server", SERVER], ["hub", &HUB_AT.to_string()], ["edges", &EDGES_AT.to_string()]]
    {
        wan(&ground, name, name, address)?;
    }
    ground.serve(SERVER)?;
    let token = |tag: &str| -> Result<String> {
        let create = format!("warren key create --reusable --tag tag:{tag} --data .");
        let said = ground.run("server", &create)?;
        // What is said to people stands beside it.
        let token = said.split_whitespace().find(|word| word.starts_with("warren-join-"));
        token.map(str::to_owned).with_context(|| format!("no token was made: {said}"))
    };
    let [hub, edge] = [token("hub")?, token("edge")?];
    let rule = |from: &str, to: &str| {
        format!("{{\"src\": [\"tag:{from}\"], \"dst\": [\"tag:{to}\"], \"ip\": [\"*\"]}}")
    };
    let text = format!(
        "{{\"tagOwners\": {{\"tag:hub\": [], \"tag:edge\": []}}, \"grants\": [{}, {}]}}",
        rule("edge", "hub"),
        rule("hub", "edge")
    );
    fs::write(ground.room.file("server", "policy.hujson"), text)?;
    ground.run("server", "warren policy set policy.hujson --data .")?;
    let daemon = ground.room.start("hub", "warren daemon --state state")?;
    let pid = daemon.process.pid();
    ground.keep(vec![daemon.process]);
    fs::write(ground.room.file("hub", "token"), hub)?;
    ground.run(
        "hub",
        &format!(
            "for i in $(seq 100); do
               if warren status --json >/dev/null 2>&1; then break; fi
               sleep 0.1
             done
             warren up - --hostname {HUB} --advertise-routes 10.4.0.0/24 --accept-dns=false \
               --site-gateway <token"
        ),
    )?;
    let edge = Token::parse(&edge, Kind::Join)
        .map_err(|why| anyhow::anyhow!("no token was made: {why}"))?;
    let edges = Edges::start(ground.host("edges")?, EDGES_AT, &edge, edges)?;
    edges.until_all_reached(PATIENCE)?;
    let before = edges.echoes();
    let found = watched(pid);
    let after = edges.echoes();
    let [asked, answered] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64);
    ensure!(answered >= asked * ANSWERED_MIN, "{answered} of {asked} echoes were answered");
    Ok(found)
}

/// A gateway's memory and its share of a core, while all echo.
fn watched(pid: u32) -> [f64; 2] {
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu_s(pid);
    std::thread::sleep(WATCHED);
    let share = (cpu_s(pid) - before) / WATCHED.as_secs_f64() * 100.0;
    [rss_kib(pid) as f64 / 1024.0, share]
}

/// Joins a host to the Internet by a port of its own.
fn wan(ground: &Ground, name: &str, port: &str, address: &str) -> Result<()> {
    let internet = ground.host("internet")?;
    let address = format!("{address}/24");
    let end = (ground.host(name)?, "wan0", &[address.as_str()][..]);
    ground.room.lab().net().veth((internet, port, &[]), end)?;
    internet.sh(&format!("ip link set {port} master br0")).map(drop)
}

fn gateway(number: u8) -> String {
    format!("edge-{number}")
}

/// Everybody on one Internet; each gateway has a network of its own, the first one a machine in it.
fn join(ground: &Ground, edges: u8) -> Result<()> {
    let net = ground.room.lab().net();
    wan(ground, "server", "server", SERVER)?;
    for number in 0..=edges {
        let name = gateway(number);
        wan(ground, &name, &format!("p{number}"), &outside(number))?;
        let inside = format!("10.4.{number}.254/24");
        let host = ground.host(&name)?;
        if number == 0 {
            net.veth((host, "lan0", &[&inside]), (ground.host("app")?, "eth0", &["10.4.0.1/24"]))?;
        } else {
            host.sh(&format!(
                "ip link add lan0 type bridge; ip link set lan0 up; ip addr add {inside} dev lan0"
            ))?;
        }
    }
    Ok(())
}

fn outside(number: u8) -> String {
    format!("198.51.100.{}", u16::from(number) + 1)
}

fn file(edges: u8) -> String {
    let mut text = "network = \"acme\"\ntopology = \"star\"\nssh_config = \"ssh_config\"\n\
                    program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n"
        .to_owned();
    for number in 0..=edges {
        let name = gateway(number);
        let app = if number == 0 { ", \"root@app\"" } else { "" };
        let _ = write!(
            text,
            "\n[[site]]\nname = \"{name}\"\nprovider = \"ssh\"\nhosts = [\"root@{name}\"{app}]\n"
        );
    }
    text
}

fn config(edges: u8, place: &str) -> String {
    let mut text = String::new();
    for number in 0..=edges {
        let name = gateway(number);
        let at = outside(number);
        let _ = write!(text, "Host {name}\n  HostName {at}\n  HostKeyAlias {name}\n");
    }
    let hub = gateway(0);
    let _ = write!(
        text,
        "Host app\n  HostName 10.4.0.1\n  HostKeyAlias app\n  ProxyJump root@{hub}\n\
         Host *\n  User root\n  IdentityFile {place}/key\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile {place}/known_hosts\n  StrictHostKeyChecking yes\n"
    );
    text
}
