//! A hub and its edges: what each of them costs the hub's gateway.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::process::{cpu_s, rss_kib};
use lab::sites::{APPLY, Tools, command, start_sshds};

use super::ground::Ground;
use super::{Found, Settings};

const SERVER: &str = "198.51.100.254";
/// How long the gateway is watched while all echo.
const WATCHED: Duration = Duration::from_secs(10);

/// The gateway's memory, MiB, and its share of a core in percent, with so many edges.
pub(super) fn measure(settings: &Settings, tools: &Tools, edges: u8) -> Result<Found> {
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
    ground.run("server", &command(APPLY))?;
    let mut echoes = String::new();
    for number in 1..=edges {
        let to = format!("10.4.{number}.254");
        ground.until_reached("app", &to)?;
        let _ = writeln!(echoes, "ping -n -q -i 1 {to} &");
    }
    let pid = ground.host(&gateways[0])?.sh("cat /run/warren-site.pid")?;
    let pid: u32 = pid.trim().parse().context("the gateway's process")?;
    ground.stay("app", &format!("{echoes}echo all of them; wait"), "all of them")?;
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu_s(pid);
    std::thread::sleep(WATCHED);
    let share = (cpu_s(pid) - before) / WATCHED.as_secs_f64() * 100.0;
    let rss = rss_kib(pid) as f64 / 1024.0;
    Ok(vec![(format!("star-{edges}-rss"), rss), (format!("star-{edges}-cpu"), share)])
}

fn gateway(number: u8) -> String {
    format!("edge-{number}")
}

/// Everybody on one Internet; each gateway has a network of its own, the first one a machine in it.
fn join(ground: &Ground, edges: u8) -> Result<()> {
    let internet = ground.host("internet")?;
    let net = ground.room.lab().net();
    let wan = |name: &str, port: &str, address: &str| -> Result<()> {
        let end = (ground.host(name)?, "wan0", &[address][..]);
        net.veth((internet, port, &[]), end)?;
        internet.sh(&format!("ip link set {port} master br0")).map(drop)
    };
    wan("server", "server", &format!("{SERVER}/24"))?;
    for number in 0..=edges {
        let name = gateway(number);
        wan(&name, &format!("p{number}"), &format!("{}/24", outside(number)))?;
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
