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
use sim::impair::Impairment;
use sim::profile;

use crate::netns::{self, Host, Net};
use crate::sys;
use crate::topology::{self, EndPlan, LinkPlan, NodeKind, Plan, Topology};

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
    if plan.links.iter().any(LinkPlan::is_wire) {
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

/// Changes the weather of a link: `direction` is `forth`, `back` or both without a word;
/// `words` are names of profiles and `key=value`. A plain link becomes a wire first.
/// `pump_command` is that of [`up`], for a lab that had no wire.
///
/// # Errors
/// Says which link, direction or word was wrong.
pub fn impair(
    lab: Option<&str>,
    link: &str,
    direction: Option<&str>,
    words: &[&str],
    pump_command: impl FnOnce(&str) -> Result<Command>,
) -> Result<()> {
    ensure!(!words.is_empty(), "nothing to change: name a profile, or key=value");
    let lab = find(lab)?;
    let plan = plan_of(&lab)?;
    let found = plan.links.iter().find(|one| one.name == link);
    let found = found.with_context(|| {
        let known: Vec<&str> = plan.links.iter().map(|one| one.name.as_str()).collect();
        format!("no link {link}: there are {}", known.join(", "))
    })?;
    if !found.is_wire() && !wires(&lab, &plan)?.iter().any(|wire| wire.link == link) {
        make_wire(&lab, &plan, found, words, pump_command)?;
    }
    let request = format!("impair {link} {} {}", direction.unwrap_or("both"), words.join(" "));
    tell(&lab, &request)
}

/// Exchanges the devices of a plain link for a wire, with the same names, addresses and routes.
fn make_wire(
    lab: &str,
    plan: &Plan,
    link: &LinkPlan,
    words: &[&str],
    pump_command: impl FnOnce(&str) -> Result<Command>,
) -> Result<()> {
    ensure!(
        link.shape.is_none(),
        "{} is shaped, and a wire has a rate of its own: take `shape` out of the topology, and use \
         rate= and limit=",
        link.name
    );
    // A wrong word changes nothing.
    let mut tried = Impairment::LINE;
    words.iter().try_for_each(|word| profile::apply(&mut tried, word))?;
    if !pump::is_there(lab) {
        start_pump(lab, pump_command(lab)?)?;
    }
    let hosts = netns::kept_hosts(lab);
    let host = |end: &EndPlan| {
        let found = hosts.iter().find(|host| host.name() == end.node);
        found.with_context(|| format!("no host {} in {lab}", end.node))
    };
    let mut known = Vec::new();
    for end in &link.ends {
        known.push(hardware_address(host(end)?, &end.ifname)?);
    }
    // With one end goes the other.
    let [one, _] = &link.ends;
    host(one)?.ip_batch(&format!("link del {}\n", one.ifname))?;
    tell(lab, &format!("wire {}", link.name))?;
    for (end, address) in link.ends.iter().zip(&known) {
        // Neighbours behind a switch go on sending to the one that they know.
        host(end)?.ip_batch(&format!("link set {} address {address}\n", end.ifname))?;
        topology::dress(host(end)?, link, end)?;
    }
    for end in &link.ends {
        let host = host(end)?;
        host.wait_until_ready(&end.ifname)?;
        let node = plan.nodes.iter().find(|node| node.name == end.node);
        let routes = node.map(|node| node.routes.concat()).unwrap_or_default();
        host.ip_batch(&routes.replace("route add ", "route replace "))?;
    }
    Ok(())
}

fn hardware_address(host: &Host, ifname: &str) -> Result<String> {
    let told = netns::ip(&["-n", host.namespace(), "-o", "link", "show", "dev", ifname])?;
    let address = told.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(address.with_context(|| format!("{ifname} of {} has no address", host.name()))?.to_owned())
}

/// What the pump says of its wires; none where there is no pump and needs to be none.
fn wires(lab: &str, plan: &Plan) -> Result<Vec<WireStatus>> {
    if !pump::is_there(lab) && !plan.links.iter().any(LinkPlan::is_wire) {
        return Ok(Vec::new());
    }
    let answer = pump::ask(lab, "wires")?;
    serde_json::from_str(&answer).context("the wires' answer cannot be read")
}

/// Has the pump do something.
fn tell(lab: &str, request: &str) -> Result<()> {
    let answer = pump::ask(lab, request)?;
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
    let wires = wires(&lab, &plan)?;
    let host = |node: &topology::NodePlan| {
        let ends = plan.links.iter().flat_map(|link| &link.ends).filter(|e| e.node == node.name);
        let show = |e: &EndPlan| -> Vec<String> {
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
        shape: link.shape.clone(),
        wire: wires.iter().find(|wire| wire.link == link.name).cloned(),
    });
    let links = links.collect();
    Ok(Status { schema: 1, lab, hosts, links })
}

fn kind_word(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Switch => "switch",
    }
}
