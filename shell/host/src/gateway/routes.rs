//! The way into our link: a table of our own, and rules that ask it.
//!
//! A rule of the first kind asks the machine's main table first, without its default route, so that
//! local networks win over subnets of the same numbers elsewhere; with an exit it does so for
//! private networks only, or not at all, since what a DHCP server says of routes must not lead
//! around the exit (threat GW-09); for networks of this machine's containers it always does. The
//! rule of the second kind asks our table for everything that
//! does not bear our mark, which is on the outer packets. Rules bear our number as their maker.

use node::Prefix;

use super::Setup;
use super::place::TABLE;
use super::script::{MARK, PRIVATE};
use crate::linux::netlink::{self, Family, Link, MAIN_TABLE, Netlink, Route, Rule};

/// The maker (RTPROT_*) of our rules.
const MADE_BY_GATEWAY: u8 = 121;
/// Where our rules stand: before the main table (32766), and before others' usual places.
const PRIORITY: u32 = 5110;

/// With an exit, a route is a local network's only if its prefix is at least this long.
const LOCAL_BITS_MIN: u32 = 8;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// What was set.
#[derive(Debug, Default)]
pub(super) struct Routes {
    routes: Vec<Route>,
    closed: Vec<Family>,
    /// Those of `closed` that this process has closed itself.
    known_closed: Vec<Family>,
    rules: Vec<Rule>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Something had been taken away.
    pub(super) missed: bool,
    /// What was refused, by family.
    pub(super) failed: Vec<(Family, netlink::Error)>,
}

/// What should be set; `inner` are the networks of containers.
fn wanted(setup: &Setup, inner: &[Prefix], link: &Link) -> Routes {
    let mut wanted = Routes::default();
    for family in FAMILIES {
        let is_family = |p: &&Prefix| Family::of(p.address()) == family && !p.is_default();
        let mut to: Vec<Prefix> = setup.uses.iter().filter(is_family).copied().collect();
        if setup.exit {
            wanted.closed.push(family);
            if setup.own.iter().any(|a| Family::of(*a) == family) {
                to.extend(everything(family));
            }
        }
        to.sort();
        to.dedup();
        if to.is_empty() && !setup.exit {
            continue;
        }
        wanted.routes.extend(to.into_iter().map(|destination| route(destination, link)));
        let spared = Rule {
            protocol: MADE_BY_GATEWAY,
            priority: Some(PRIORITY),
            ..Rule::but_default(family, MAIN_TABLE)
        };
        if !setup.exit {
            wanted.rules.push(spared);
        } else {
            let private = PRIVATE.iter().filter_map(|text| text.parse::<Prefix>().ok());
            let mut local: Vec<Prefix> = private.filter(|_| setup.exit_lan).collect();
            local.extend(inner.iter().filter(|p| !setup.uses.contains(p)));
            local.retain(|p| Family::of(p.address()) == family);
            let suppress_prefix_bits = Some(LOCAL_BITS_MIN - 1);
            let rule = |to| Rule { to: Some(to), suppress_prefix_bits, ..spared };
            wanted.rules.extend(local.into_iter().map(rule));
        }
        wanted.rules.push(Rule {
            protocol: MADE_BY_GATEWAY,
            priority: Some(PRIORITY + 1),
            ..Rule::unless_marked(family, MARK, TABLE)
        });
    }
    wanted
}

fn everything(family: Family) -> Option<Prefix> {
    match family {
        Family::V4 => "0.0.0.0/0",
        Family::V6 => "::/0",
    }
    .parse()
    .ok()
}

fn route(destination: Prefix, link: &Link) -> Route {
    let table = TABLE;
    Route { destination, link: link.index, gateway: None, table, metric: None, mtu: None }
}

impl Routes {
    /// Every rule of ours and every route in our table, whoever set them.
    pub(super) fn present(netlink: &mut Netlink) -> netlink::Result<Self> {
        let mut present = Self::default();
        for family in FAMILIES {
            // a kernel without IPv6 has no rules for it
            let rules = netlink.rules(family).unwrap_or_default();
            present.rules.extend(rules.into_iter().filter(|r| r.protocol == MADE_BY_GATEWAY));
            // not listed; removing one that is not there is no error
            present.closed.push(family);
        }
        present.routes = netlink.routes()?.into_iter().filter(|r| r.table == TABLE).collect();
        Ok(present)
    }

    /// Adds what is missing, then removes what is too much: on the way from one state to another
    /// nothing goes where it goes in neither. What somebody took away is added again; gives whether
    /// that was so. What the kernel refuses for one family does not stop the other.
    pub(super) fn set(
        &mut self,
        setup: &Setup,
        inner: &[Prefix],
        netlink: &mut Netlink,
        link: &Link,
    ) -> netlink::Result<Outcome> {
        let wanted = wanted(setup, inner, link);
        let present = netlink.routes()?;
        let is_ours = |r: &&Route| r.table == TABLE && r.link == link.index;
        let present: Vec<Prefix> = present.iter().filter(is_ours).map(|r| r.destination).collect();
        let mut outcome = Outcome::default();
        for family in FAMILIES {
            match self.add(family, &wanted, &present, netlink) {
                Ok(missed) => outcome.missed |= missed,
                Err(e) => outcome.failed.push((family, e)),
            }
        }
        self.keep(&wanted, netlink)?;
        Ok(outcome)
    }

    /// Adds what is missing of a family, and gives whether it had been there.
    fn add(
        &mut self,
        family: Family,
        wanted: &Self,
        present: &[Prefix],
        netlink: &mut Netlink,
    ) -> netlink::Result<bool> {
        let mut missed = false;
        if wanted.closed.contains(&family) {
            let added = absent(family, netlink.add_unreachable(family, TABLE));
            // Added again, though it had been there.
            missed |= added.is_ok() && self.known_closed.contains(&family);
            skip_if(added, &[libc::EEXIST])?;
            for list in [&mut self.closed, &mut self.known_closed] {
                if !list.contains(&family) {
                    list.push(family);
                }
            }
        }
        let of_family = |r: &&Route| Family::of(r.destination.address()) == family;
        for route in wanted.routes.iter().filter(of_family) {
            if !present.contains(&route.destination) {
                skip_if(netlink.add_route(route), &[libc::EEXIST])?;
                missed |= self.routes.contains(route);
            }
            if !self.routes.contains(route) {
                self.routes.push(*route);
            }
        }
        let wanted: Vec<&Rule> = wanted.rules.iter().filter(|r| r.family == family).collect();
        if wanted.is_empty() {
            return Ok(missed);
        }
        // a kernel without IPv6 has no rules for it
        let present = netlink.rules(family).unwrap_or_default();
        for rule in wanted {
            if !present.contains(rule) {
                let added = netlink.add_rule(rule);
                skip_if(absent(rule.family, added), &[libc::EEXIST])?;
                missed |= self.rules.contains(rule);
            }
            if !self.rules.contains(rule) {
                self.rules.push(*rule);
            }
        }
        Ok(missed)
    }

    /// Undoes all of it.
    pub(super) fn clear(&mut self, netlink: &mut Netlink) -> netlink::Result<()> {
        self.keep(&Self::default(), netlink)
    }

    /// Removes what `wanted` has not: rules first.
    fn keep(&mut self, wanted: &Self, netlink: &mut Netlink) -> netlink::Result<()> {
        const GONE: [i32; 3] = [libc::ESRCH, libc::ENOENT, libc::ENODEV];
        for rule in self.rules.clone() {
            if !wanted.rules.contains(&rule) {
                skip_if(absent(rule.family, netlink.remove_rule(&rule)), &GONE)?;
                self.rules.retain(|r| *r != rule);
            }
        }
        for route in self.routes.clone() {
            if !wanted.routes.contains(&route) {
                skip_if(netlink.remove_route(&route), &GONE)?;
                self.routes.retain(|r| *r != route);
            }
        }
        for family in self.closed.clone() {
            if !wanted.closed.contains(&family) {
                skip_if(absent(family, netlink.remove_unreachable(family, TABLE)), &GONE)?;
                self.closed.retain(|f| *f != family);
                self.known_closed.retain(|f| *f != family);
            }
        }
        Ok(())
    }
}

/// A refusal with one of these numbers is none.
fn skip_if(result: netlink::Result<()>, numbers: &[i32]) -> netlink::Result<()> {
    match result {
        Err(e) if e.errno().is_some_and(|errno| numbers.contains(&errno)) => Ok(()),
        other => other,
    }
}

/// A kernel without IPv6 needs nothing of it.
fn absent(family: Family, result: netlink::Result<()>) -> netlink::Result<()> {
    if family == Family::V4 {
        return result;
    }
    skip_if(result, &[libc::EAFNOSUPPORT, libc::EOPNOTSUPP])
}
