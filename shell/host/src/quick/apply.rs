//! Doing a plan, and undoing it.

use std::net::IpAddr;
use std::process::Command;

use node::Prefix;

use super::error::ApplyError;
use super::leftovers::{set_source_mark, source_mark_is_ours};
use super::{Plan, Step};
use crate::linux::netlink::{self, Link, MAIN_TABLE, Netlink, Route, Rule};
use crate::linux::program::feed;

/// A plan in force. Dropping it undoes every step, the last one first; what is gone already, as
/// when the interface went away, is no matter.
#[derive(Debug)]
pub struct Applied {
    name: String,
    /// What to undo; the last was done last.
    done: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    Address(Link, IpAddr, u8),
    Mtu(Link, u32),
    Down(Link),
    Resolvers,
    Route(Route),
    Rule(Rule),
    SourceMark,
    Firewall(String),
}

/// Carries out `plan` on its interface, which must exist, in the network namespace of the calling
/// thread.
///
/// # Errors
/// [`ApplyError`] at the first step that fails; the steps before it are undone.
pub fn apply(plan: &Plan) -> Result<Applied, ApplyError> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link(&plan.name)?.ok_or_else(|| ApplyError::NoLink(plan.name.clone()))?;
    let mut applied = Applied { name: plan.name.clone(), done: Vec::new() };
    for step in &plan.steps {
        tracing::info!("{}: {step}", plan.name);
        // on an error `applied` is dropped, and so undone
        applied.step(&mut netlink, &link, step)?;
    }
    Ok(applied)
}

impl Applied {
    fn step(&mut self, netlink: &mut Netlink, link: &Link, step: &Step) -> Result<(), ApplyError> {
        let undo = match step {
            Step::Address(address, bits) => {
                netlink.add_address(link, *address, *bits)?;
                Undo::Address(link.clone(), *address, *bits)
            }
            Step::Mtu(mtu) => {
                netlink.set_mtu(link, *mtu)?;
                Undo::Mtu(link.clone(), link.mtu)
            }
            Step::Up if link.up => return Ok(()),
            Step::Up => {
                netlink.set_up(link, true)?;
                Undo::Down(link.clone())
            }
            Step::Resolvers(lines) => {
                feed("resolvconf", &["-a", &self.name, "-m", "0", "-x"], lines)
                    .map_err(ApplyError::Other)?;
                Undo::Resolvers
            }
            Step::Route(destination, table) => {
                let route = Route {
                    destination: *destination,
                    link: link.index,
                    gateway: None,
                    table: *table,
                    metric: None,
                    mtu: None,
                };
                match netlink.add_route(&route) {
                    // the kernel made the same one for an address in the meantime
                    Err(e) if e.errno() == Some(libc::EEXIST) && *table == MAIN_TABLE => {
                        let listed = netlink.routes()?;
                        let same = |r: &Route| Route { metric: None, ..*r } == route;
                        return if listed.iter().any(same) { Ok(()) } else { Err(e.into()) };
                    }
                    other => other?,
                }
                Undo::Route(route)
            }
            Step::Rule(rule) => {
                netlink.add_rule(rule)?;
                Undo::Rule(*rule)
            }
            Step::SourceMark => {
                set_source_mark(true)?;
                Undo::SourceMark
            }
            Step::Firewall { table, script } => match feed("nft", &["-f", "-"], script) {
                Ok(_) => Undo::Firewall(table.clone()),
                Err(why) => {
                    tracing::warn!("the link works without its nftables table, but {why}");
                    return Ok(());
                }
            },
        };
        self.done.push(undo);
        Ok(())
    }

    /// Makes the routes of the plan in force those of `after`, for peers that are new or have other
    /// addresses. What else differs stays as it is. What the kernel refuses is logged.
    pub fn reroute(&mut self, after: &Plan) {
        let routes = after.steps.iter().filter_map(|step| match step {
            Step::Route(destination, table) => Some((*destination, *table)),
            _ => None,
        });
        // A default route has rules beside it.
        let movable = |(destination, table): &(Prefix, u32)| {
            !destination.is_default() || *table == MAIN_TABLE
        };
        let wanted: Vec<(Prefix, u32)> = routes.filter(movable).collect();
        let mut old = Vec::new();
        let mut kept = Vec::new();
        for undo in self.done.drain(..) {
            match &undo {
                Undo::Route(route) if movable(&(route.destination, route.table)) => {
                    let is_wanted = wanted.contains(&(route.destination, route.table));
                    if is_wanted { kept.push(undo) } else { old.push(undo) }
                }
                _ => kept.push(undo),
            }
        }
        self.done = kept;
        if let Err(error) = self.change_routes(&wanted, &old) {
            tracing::warn!("{}: {error}", self.name);
        }
    }

    fn change_routes(&mut self, wanted: &[(Prefix, u32)], old: &[Undo]) -> Result<(), ApplyError> {
        let mut netlink = Netlink::open()?;
        for undo in old {
            match Self::undo(&mut netlink, &self.name, undo) {
                Err(ApplyError::Netlink(error)) if is_gone(&error) => {}
                other => other?,
            }
        }
        let name = self.name.clone();
        let link = netlink.link(&name)?.ok_or(ApplyError::NoLink(name))?;
        for &(destination, table) in wanted {
            let is_there = self.done.iter().any(|undo| match undo {
                Undo::Route(route) => (route.destination, route.table) == (destination, table),
                _ => false,
            });
            if !is_there {
                let step = Step::Route(destination, table);
                tracing::info!("{}: {step}", self.name);
                self.step(&mut netlink, &link, &step)?;
            }
        }
        Ok(())
    }

    fn undo(netlink: &mut Netlink, name: &str, undo: &Undo) -> Result<(), ApplyError> {
        match undo {
            Undo::Address(link, address, bits) => netlink.remove_address(link, *address, *bits)?,
            Undo::Mtu(link, mtu) => netlink.set_mtu(link, *mtu)?,
            Undo::Down(link) => netlink.set_up(link, false)?,
            Undo::Resolvers => {
                feed("resolvconf", &["-d", name, "-f"], "").map_err(ApplyError::Other)?;
            }
            Undo::Route(route) => netlink.remove_route(route)?,
            Undo::Rule(rule) => netlink.remove_rule(rule)?,
            Undo::SourceMark if source_mark_is_ours(netlink)? => {} // another link needs it
            Undo::SourceMark => set_source_mark(false)?,
            Undo::Firewall(table) => {
                let script = format!("delete table inet {table}\n");
                feed("nft", &["-f", "-"], &script).map_err(ApplyError::Other)?;
            }
        }
        Ok(())
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        let mut netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            Err(e) => {
                tracing::error!("{}: cannot undo the configuration: {e}", self.name);
                return;
            }
        };
        while let Some(undo) = self.done.pop() {
            match Self::undo(&mut netlink, &self.name, &undo) {
                Ok(()) => {}
                Err(ApplyError::Netlink(e)) if is_gone(&e) => {}
                Err(e) => tracing::warn!("{}: {e}", self.name),
            }
        }
    }
}

/// Whether what was to be removed is not there any more.
fn is_gone(e: &netlink::Error) -> bool {
    let gone = [libc::ENODEV, libc::ESRCH, libc::ENOENT, libc::EADDRNOTAVAIL];
    e.errno().is_some_and(|errno| gone.contains(&errno))
}

/// The scripts of a file, with the right to run them or without it.
#[derive(Clone, Copy, Debug)]
pub struct Scripts<'a> {
    /// The interface, for which `%i` stands.
    pub name: &'a str,
    /// Whether the user said so.
    pub allowed: bool,
}

impl Scripts<'_> {
    /// Runs `scripts` one after another, each in a shell; does nothing without the right to.
    ///
    /// # Errors
    /// The first script that fails, with its exit code.
    pub fn run(&self, occasion: &str, scripts: &[String]) -> Result<(), ApplyError> {
        for script in scripts.iter().filter(|_| self.allowed) {
            let script = script.replace("%i", self.name);
            tracing::info!("{occasion}: {script}");
            // wg-quick files are written for bash
            let shell =
                if std::path::Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
            let mut command = Command::new(shell);
            command.arg("-c").arg(&script);
            crate::linux::background::with_default_signals(&mut command);
            let status = command.status();
            match status {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    let what = format!("{occasion} `{script}` failed: {status}");
                    return Err(ApplyError::Other(what));
                }
                Err(e) => {
                    return Err(ApplyError::Other(format!("{occasion}: cannot run {shell}: {e}")));
                }
            }
        }
        Ok(())
    }
}
