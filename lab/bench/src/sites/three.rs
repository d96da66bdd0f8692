//! Three sites: how long they take to be there, and to get over a gateway's death.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::sites::three::{MACHINES, Provider, SERVER, Site, Three, sites, topology};
use lab::sites::{Tools, command};
use serde_json::Value;

use super::ground::{Ground, PATIENCE};
use super::{Found, Settings};
use crate::ping;
use crate::ratio::Spread;

/// Gateways of the pair that are killed in a round, one after another.
pub(super) const KILLED: usize = 2;
/// Echoes of which a round trip is the median.
const ECHOES: usize = 300;
/// Sites of the file whose plan is timed.
const SITES: usize = 200;

/// All of it, on new ground; names begin with `way`.
pub(super) fn measure(settings: &Settings, tools: Tools, way: &str) -> Result<Found> {
    let known = sites(&tools)?;
    let mut ground = Ground::lay(settings, &topology(&known))?;
    let room = &ground.room;
    let program = &settings.origin.program;
    let mut three = Three::build(room.lab(), known, tools, room.folder(), program)?;
    ground.serve(SERVER)?;
    if three.sites.iter().any(|site| site.provider != Provider::Ssh) {
        ground.run("server", "warren sites export --rights sites.toml > rights.json")?;
    }
    for (host, line, ready) in three.to_start()? {
        ground.stay(&host, &line, ready)?;
    }
    three.opened()?;
    let mut found = Found::new();
    let mut put = |name: &str, value| found.push((name.to_owned(), value));
    let native = match three.sites.iter().all(|site| site.provider == Provider::Ssh) {
        true => Some(native_ms(&ground, &three.sites)?),
        false => None,
    };
    put(&format!("{way}-apply"), apply(&ground, &mut three)?);
    until_joined(&ground, &three.sites)?;
    put(&format!("{way}-again"), ground.again()?);
    if let Some(native) = native {
        let through = rtt_ms(&ground, &three.sites)?;
        put("rtt-native", native);
        put("rtt-sites", through);
        put("rtt-added", through - native);
    }
    for _ in 0..KILLED {
        put(&format!("{way}-failover"), fail_over(&ground, &three.sites)?);
        apply(&ground, &mut three)?;
        until_joined(&ground, &three.sites)?;
    }
    ground.run("server", &command("destroy --yes"))?;
    Ok(found)
}

/// Seconds of an `apply`; machines that clouds run meanwhile start.
fn apply(ground: &Ground, three: &mut Three) -> Result<f64> {
    Ok(three.apply(&ground.room, PATIENCE, |_| Ok(()))?.took.as_secs_f64())
}

/// Machines of each site reach all others.
fn until_joined(ground: &Ground, sites: &[Site]) -> Result<()> {
    let machines = |site: &Site| -> Vec<(String, String)> {
        (1..=MACHINES).map(|number| (site.machine(number), site.address(number))).collect()
    };
    let all: Vec<(String, String)> = sites.iter().flat_map(machines).collect();
    for (from, _) in &all {
        for (_, to) in &all {
            ground.until_reached(from, to)?;
        }
    }
    Ok(())
}

/// Seconds from the death of the gateway that leads until machines of both sites reach each
/// other.
fn fail_over(ground: &Ground, sites: &[Site]) -> Result<f64> {
    let [pair, other] = [&sites[0], &sites[1]];
    let holds = |number: &u8| -> bool {
        let host = ground.host(&pair.gateway(*number));
        let said = host.and_then(|host| host.sh("/run/warren-bin/warren status --json"));
        let status: Value =
            said.ok().and_then(|s| serde_json::from_str(&s).ok()).unwrap_or_default();
        status["shared"]["holds"] == true
    };
    let holder = (1..=2).find(holds).context("no gateway holds the shared address")?;
    let begin = Instant::now();
    ground.host(&pair.gateway(holder))?.sh("kill -9 $(cat /run/warren-site.pid)")?;
    let [from, to] = [pair.machine(1), other.machine(1)];
    ensure!(!ground.reaches(&from, &other.address(1)), "a site is reached without a gateway");
    ground.until_reached(&from, &other.address(1))?;
    ground.until_reached(&to, &pair.address(1))?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The median round trip between machines of the first two sites, ms.
fn rtt_ms(ground: &Ground, sites: &[Site]) -> Result<f64> {
    let [from, to] = [sites[0].machine(1), sites[1].address(1)];
    // The first ones find the way.
    ground.until_reached(&from, &to)?;
    let said = ground.run(&from, &format!("ping -n -i 0.01 -c {ECHOES} -W 1 {to}"))?;
    let times = ping::parse(&said, ECHOES)?;
    let spread = Spread::of(&times).context("no echo")?;
    Ok(spread.median / 1e3)
}

/// The same where gateways are plain routers, and nothing encrypts.
fn native_ms(ground: &Ground, sites: &[Site]) -> Result<f64> {
    let ends = [(&sites[0], &sites[1]), (&sites[1], &sites[0])];
    let all = |word: &str, forwards: u8| -> Result<()> {
        for (own, other) in ends {
            let [net, via] = [format!("{}.0/24", other.net), other.outside(1)];
            ground.host(&own.gateway(1))?.sh(&format!(
                "ip route {word} {net} via {via}; sysctl -qw net.ipv4.ip_forward={forwards}"
            ))?;
            let via = format!("{}.254", own.net);
            ground.host(&own.machine(1))?.sh(&format!("ip route {word} {net} via {via}"))?;
        }
        Ok(())
    };
    all("add", 1)?;
    let found = rtt_ms(ground, sites);
    all("del", 0)?;
    found
}

/// Seconds that `warren sites check` takes for a file of 200 sites.
pub(super) fn plan(settings: &Settings) -> Result<Found> {
    let mut text = "network = \"acme\"\n".to_owned();
    for number in 0..SITES {
        let name = format!("site-{number}");
        let _ = write!(
            text,
            "[[site]]\nname = \"{name}\"\nprovider = \"ssh\"\nhosts = [\"root@{name}\"]\n"
        );
    }
    let file = std::env::temp_dir().join(format!("{}-sites.toml", settings.prefix));
    fs::write(&file, text)?;
    let mut command = Command::new(&settings.origin.program);
    command.args(["sites", "check"]).arg(&file).stdin(Stdio::null());
    let begin = Instant::now();
    let output = command.output();
    let took = begin.elapsed();
    let _ = fs::remove_file(&file);
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = format!("site-{}", SITES - 1);
    ensure!(output.status.success() && said.contains(&last), "no plan: {output:?}");
    Ok(vec![("plan".to_owned(), took.as_secs_f64())])
}
