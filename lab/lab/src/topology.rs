//! Whole networks from a file: read, planned, built.
//!
//! [`mod@file`] reads TOML and refuses what it does not know, with line and column. [`plan`]
//! decides everything before anything is made: interface names, subnets, addresses, routes.
//! `rules` writes the nftables rules of NAT and of blocked protocols. [`Lab`] builds a plan and
//! takes it down. The same file always gives the same plan.

use anyhow::{Context, Result};
use sim::impair::Impairment;

use crate::netns::{self, Host, Net};
use crate::wire::{Config, End, Wire};

pub mod file;
pub mod plan;
mod rules;

pub use file::{Mistake, Topology};
pub use plan::{EndPlan, LinkPlan, NodeKind, NodePlan, Plan};

/// A network that stands: hosts by name, wires by the names of their links.
#[derive(Debug)]
pub struct Lab {
    // Wires go first: a device's open descriptor would keep its namespace alive.
    wires: Vec<(String, Wire)>,
    net: Net,
    plan: Plan,
}

impl Lab {
    /// Builds `plan` under its name; the wires run in this process.
    ///
    /// # Errors
    /// Returns what could not be made; then all that was made is removed.
    pub fn up(plan: Plan) -> Result<Self> {
        let mut net = Net::new(&plan.name)?;
        net.give_own_run();
        lay_out(&plan, &mut net)?;
        let wires = start_wires(&plan)?;
        finish(&plan, &net)?;
        Ok(Self { wires, net, plan })
    }

    /// A host, router or switch by its name.
    ///
    /// # Errors
    /// Returns an error that lists the names there are.
    pub fn host(&self, name: &str) -> Result<&Host> {
        find_host(&self.net, name)
    }

    /// A wire by the name of its link.
    ///
    /// # Errors
    /// Returns an error that lists the wires there are.
    pub fn wire(&self, link: &str) -> Result<&Wire> {
        let found = self.wires.iter().find(|(name, _)| name == link);
        let known = || self.wires.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
        found
            .map(|(_, wire)| wire)
            .with_context(|| format!("no wire {link}: there are {}", known()))
    }

    /// Removes everything, as a drop does, and tells what resists.
    ///
    /// # Errors
    /// Returns what could not be removed; it stays recorded, for the next start to try again.
    pub fn down(self) -> Result<()> {
        drop(self.wires);
        self.net.remove()
    }

    /// Its hosts, for whoever joins them by more than the plan says.
    #[must_use]
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// What was built.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

pub(crate) fn find_host<'a>(net: &'a Net, name: &str) -> Result<&'a Host> {
    let known = || net.hosts().iter().map(Host::name).collect::<Vec<_>>().join(", ");
    let found = net.hosts().iter().find(|host| host.name() == name);
    found.with_context(|| format!("no host {name}: there are {}", known()))
}

/// Makes hosts, plain links and rules: all that a wire does not need to stand for.
pub(crate) fn lay_out(plan: &Plan, net: &mut Net) -> Result<()> {
    for node in &plan.nodes {
        crate::sys::check_interrupted()?;
        let host = net.host(&node.name)?;
        let script = match node.kind {
            NodeKind::Switch => "ip link add br0 type bridge && ip link set br0 up",
            NodeKind::Router => {
                "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
                 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0"
            }
            NodeKind::Host => {
                "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0"
            }
        };
        host.sh(script)?;
    }
    for link in plan.links.iter().filter(|link| !link.is_wire()) {
        crate::sys::check_interrupted()?;
        let [a, b] = &link.ends;
        let hosts = (find_host(net, &a.node)?, find_host(net, &b.node)?);
        net.veth((hosts.0, &a.ifname, &[]), (hosts.1, &b.ifname, &[]))?;
    }
    Ok(())
}

/// Starts the wires of a plan whose hosts stand.
///
/// # Errors
/// Returns an error naming the link whose wire could not be made.
pub fn start_wires(plan: &Plan) -> Result<Vec<(String, Wire)>> {
    let mut wires = Vec::new();
    for link in plan.links.iter() {
        let Some(impairments) = link.impairments else { continue };
        wires.push((link.name.clone(), start_wire(plan, link, impairments)?));
    }
    Ok(wires)
}

/// Starts one wire where `link` has no devices yet.
///
/// # Errors
/// Returns an error naming the link.
pub(crate) fn start_wire(
    plan: &Plan,
    link: &LinkPlan,
    impairments: [Impairment; 2],
) -> Result<Wire> {
    let end = |i: usize| End {
        netns: netns::namespace_path(&plan.name, &link.ends[i].node),
        ifname: link.ends[i].ifname.clone(),
        impairment: impairments[i],
    };
    let config =
        Config { ends: vec![end(0), end(1)], mtu: link.mtu, superpackets: false, seed: link.seed };
    Wire::start(config).with_context(|| format!("link {}", link.name))
}

/// Gives one end of a link that stands its size, its switch, its addresses and its shape.
pub(crate) fn dress(host: &Host, link: &LinkPlan, end: &EndPlan) -> Result<()> {
    let mut batch = format!("link set {} mtu {}\n", end.ifname, link.mtu);
    if end.is_port {
        batch += &format!("link set {} master br0\n", end.ifname);
    }
    host.ip_batch(&batch)?;
    let addresses: Vec<String> = end.addresses.iter().map(ToString::to_string).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    host.bring_up(&end.ifname, &addresses)?;
    if let Some(shape) = &link.shape {
        host.sh(&format!("tc qdisc add dev {} root tbf {shape}", end.ifname))
            .with_context(|| format!("cannot shape link {}", link.name))?;
    }
    Ok(())
}

/// Gives addresses, ports, shapes, routes and rules to what stands.
pub(crate) fn finish(plan: &Plan, net: &Net) -> Result<()> {
    for link in &plan.links {
        for end in &link.ends {
            crate::sys::check_interrupted()?;
            dress(find_host(net, &end.node)?, link, end)?;
        }
    }
    for end in plan.links.iter().flat_map(|link| &link.ends) {
        find_host(net, &end.node)?.wait_until_ready(&end.ifname)?;
    }
    for node in &plan.nodes {
        crate::sys::check_interrupted()?;
        let host = find_host(net, &node.name)?;
        host.ip_batch(&node.routes.concat())?;
        let rules = rules::of(&node.blocked, node.nat.as_ref());
        if !rules.is_empty() {
            let file = host.etc().join("warren-lab.nft");
            std::fs::write(&file, &rules)?;
            host.run(&["nft", "-f", "/etc/warren-lab.nft"])
                .with_context(|| format!("the rules of {} were refused:\n{rules}", node.name))?;
        }
        std::fs::write(host.etc().join("hosts"), plan.hosts_file(&node.name))?;
    }
    Ok(())
}
