//! Labs that stand while no command runs: what `warren-lab` does.
//!
//! `up` builds a network, leaves its wires to one process in the background (the *pump*) and
//! ends. The others find the lab by its records under `/run/warren-lab/<name>`: the topology
//! as it was read, and the pump's socket, which answers one line with one line.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::netns::{self, Host, Net};
use crate::sys;
use crate::topology::{self, NodeKind, Plan, Topology};

mod pump;
mod status;

pub use pump::pump;
pub use status::{DirectionStatus, HostStatus, LinkStatus, Status, WireStatus};

/// How long the pump may take to make its wires.
const PUMP_START: Duration = Duration::from_secs(20);

/// Builds the network of `file` and leaves it standing. `pump_command` makes the command that
/// runs [`pump`] for the lab of the given name; it is only called if there are wires.
///
/// # Errors
/// Returns the first mistake of the file, or what could not be made; then nothing is left.
/// SIGINT and SIGTERM, once this is called, are such an error.
pub fn up(file: &Path, pump_command: impl FnOnce(&str) -> Result<Command>) -> Result<Plan> {
    let topology = Topology::read(file)?;
    let plan = Plan::new(&topology)?;
    sys::catch_interrupts();
    let mut net = Net::new(&plan.name)?;
    net.give_own_run();
    fs::write(topology_file(&plan.name), topology.text()).context("cannot record the topology")?;
    topology::lay_out(&plan, &mut net)?;
    if plan.links.iter().any(topology::LinkPlan::is_wire) {
        start_pump(&plan.name, pump_command(&plan.name)?)?;
    }
    topology::finish(&plan, &net)?;
    sys::check_interrupted()?;
    net.keep()?;
    Ok(plan)
}

/// Becomes `argv`, inside a host of a standing lab.
///
/// # Errors
/// Returns only on failure.
pub fn exec(lab: Option<&str>, host: &str, argv: &[&str]) -> Result<std::convert::Infallible> {
    ensure!(!argv.is_empty(), "nothing to run: write `warren-lab exec HOST COMMAND...`");
    let lab = find(lab)?;
    let hosts = netns::kept_hosts(&lab);
    let known = || hosts.iter().map(Host::name).collect::<Vec<_>>().join(", ");
    let found = hosts.iter().find(|h| h.name() == host);
    let found = found.with_context(|| format!("no host {host} in {lab}: there are {}", known()))?;
    let error = found.command(argv).exec();
    Err(error).with_context(|| format!("cannot run {} in {host}", argv[0]))
}

/// Changes the weather of a wire: `direction` is `forth`, `back` or both without a word;
/// `words` are names of profiles and `key=value`.
///
/// # Errors
/// Says which link, direction or word was wrong.
pub fn impair(
    lab: Option<&str>,
    link: &str,
    direction: Option<&str>,
    words: &[&str],
) -> Result<()> {
    ensure!(!words.is_empty(), "nothing to change: name a profile, or key=value");
    let lab = find(lab)?;
    ensure!(
        plan_of(&lab)?.links.iter().any(topology::LinkPlan::is_wire),
        "nothing can be changed in {lab}: none of its links has `impair` in the topology, as those \
         of lab/lab/topologies/ring.toml have"
    );
    let request = format!("impair {link} {} {}", direction.unwrap_or("both"), words.join(" "));
    let answer = pump::ask(&lab, &request)?;
    ensure!(answer == "ok", "{answer}");
    Ok(())
}

/// Takes a standing lab down.
///
/// # Errors
/// Returns what could not be removed; it stays recorded, so that `down` can be repeated.
pub fn down(lab: Option<&str>) -> Result<String> {
    let lab = find(lab)?;
    let net = Net::adopt(&lab)?;
    net.remove()?;
    Ok(lab)
}

/// The lab that is meant: the one named, or the only one.
///
/// # Errors
/// Says which labs are up.
pub fn find(lab: Option<&str>) -> Result<String> {
    let mut labs = netns::kept_labs();
    if let Some(lab) = lab {
        let known = if labs.is_empty() { "none".to_owned() } else { labs.join(", ") };
        ensure!(labs.iter().any(|l| l == lab), "no lab {lab} is up; up are: {known}");
        return Ok(lab.to_owned());
    }
    match labs.len() {
        0 => bail!("no lab is up: start one with `warren-lab up FILE`"),
        1 => Ok(labs.remove(0)),
        _ => bail!("several labs are up: name one with --lab: {}", labs.join(", ")),
    }
}

/// Starts the pump and waits until it answers.
fn start_pump(lab: &str, mut command: Command) -> Result<()> {
    let log = netns::state_dir(lab).join("pump.log");
    let file = fs::File::create(&log).context("cannot make the pump's log")?;
    let both = file.try_clone()?;
    command.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
    let mut child = command.spawn().context("cannot start the pump of the wires")?;
    netns::record_pump(lab, child.id())?;
    let start = Instant::now();
    loop {
        let answer = pump::ask(lab, "ready");
        if answer.as_deref().is_ok_and(|answer| answer == "ok") {
            return Ok(());
        }
        sys::check_interrupted()?;
        if let Some(status) = child.try_wait()? {
            let said = fs::read_to_string(&log).unwrap_or_default();
            bail!("the pump of the wires ended with {status}: {}", said.trim());
        }
        ensure!(start.elapsed() < PUMP_START, "the pump of the wires does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The plan of a lab, made again from the file it was built from.
fn plan_of(lab: &str) -> Result<Plan> {
    let topology = Topology::read(&topology_file(lab))?;
    let mut plan = Plan::new(&topology)?;
    // The file may have had its name from its own.
    plan.name = lab.to_owned();
    Ok(plan)
}

fn topology_file(lab: &str) -> PathBuf {
    // Named after the lab, so that the same name follows from it.
    netns::state_dir(lab).join(format!("{lab}.toml"))
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Describes a standing lab.
///
/// # Errors
/// Returns an error when it is not up, or its wires do not answer.
pub fn status(lab: Option<&str>) -> Result<Status> {
    let lab = find(lab)?;
    let plan = plan_of(&lab)?;
    let mut wires: Vec<WireStatus> = Vec::new();
    if plan.links.iter().any(topology::LinkPlan::is_wire) {
        let answer = pump::ask(&lab, "wires")?;
        wires = serde_json::from_str(&answer).context("the wires' answer cannot be read")?;
    }
    let host = |node: &topology::NodePlan| {
        let ends = plan.links.iter().flat_map(|link| &link.ends).filter(|e| e.node == node.name);
        let show = |e: &topology::EndPlan| -> Vec<String> {
            e.addresses.iter().map(|address| format!("{} {address}", e.ifname)).collect()
        };
        HostStatus {
            name: node.name.clone(),
            kind: kind_word(node.kind).to_owned(),
            namespace: netns::namespace_of(&lab, &node.name),
            addresses: ends.flat_map(show).collect(),
        }
    };
    let hosts = plan.nodes.iter().map(host).collect();
    let links = plan.links.iter().map(|link| LinkStatus {
        name: link.name.clone(),
        between: std::array::from_fn(|i| format!("{}:{}", link.ends[i].node, link.ends[i].ifname)),
        wire: wires.iter().find(|wire| wire.link == link.name).cloned(),
    });
    let links = links.collect();
    Ok(Status { version: 1, lab, hosts, links })
}

fn kind_word(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Switch => "switch",
    }
}
