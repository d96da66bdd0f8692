//! The plan of a link: what is to be done, decided without doing any of it.

use std::fmt::{self, Write};
use std::net::IpAddr;

use node::{Carrier, Prefix};

use super::facts::{Facts, everything};
use super::leftovers::{MADE_BY_LINK, MADE_WITH_SOURCE_MARK};
use super::parse::{MTU_MIN, MTU_MIN_V6};
use super::{Settings, Table};
use crate::linux::netlink::{Family, MAIN_TABLE, Rule};

/// What a WireGuard packet adds at most: IPv6 40, UDP 8, header 16, tag 16.
const OVERHEAD_LEN: u32 = 80;
/// The MTU of a way that is not known.
const OUTER_MTU: u32 = 1500;
/// Where the search for a free table begins; it is the mark as well.
const FIRST_TABLE: u32 = 51820;

/// Everything to be done for a link to be up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The interface.
    pub name: String,
    /// The mark for what the node sends; 0 for none.
    pub fwmark: u32,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// What people should know.
    pub warnings: Vec<String>,
}

/// One thing to do on the interface; each can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give it an address in a network of that many bits.
    Address(IpAddr, u8),
    /// Set its MTU, in bytes.
    Mtu(u32),
    /// Set it up.
    Up,
    /// Tell `resolvconf` these lines.
    Resolvers(String),
    /// Route this through it, in this table.
    Route(Prefix, u32),
    /// Add a routing rule.
    Rule(Rule),
    /// Let reverse-path filters look at marks.
    SourceMark,
    /// Load this into `nft`; the table's name is given for its removal.
    Firewall {
        /// The name of the table, in the family `inet`.
        table: String,
        /// The whole script.
        script: String,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address, bits) => write!(f, "address {address}/{bits}"),
            Self::Mtu(mtu) => write!(f, "mtu {mtu}"),
            Self::Up => f.write_str("up"),
            Self::Resolvers(_) => f.write_str("resolvers through resolvconf"),
            Self::Route(prefix, MAIN_TABLE) => write!(f, "route {prefix}"),
            Self::Route(prefix, table) => write!(f, "route {prefix} in table {table}"),
            Self::Rule(rule) => match rule.unless_mark {
                Some(mark) => write!(
                    f,
                    "{} rule: what has no mark {mark} looks in table {}",
                    rule.family,
                    shown(rule.table)
                ),
                None => write!(
                    f,
                    "{} rule: table {}, but for its default route",
                    rule.family,
                    shown(rule.table)
                ),
            },
            Self::SourceMark => f.write_str("reverse-path filters look at marks"),
            Self::Firewall { table, .. } => write!(f, "nftables table inet {table}"),
        }
    }
}

/// A table as people call it.
fn shown(table: u32) -> String {
    if table == MAIN_TABLE { "main".to_owned() } else { table.to_string() }
}

/// Why there can be no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The MTU that the way leaves is too small for IPv4, or for IPv6.
    Mtu {
        /// What is left, in bytes.
        mtu: u32,
        /// What is needed, in bytes.
        min: u32,
    },
    /// The MTU is larger than `OuterMtu` has room for.
    Outer {
        /// What was asked for, in bytes.
        mtu: u32,
        /// `OuterMtu`, in bytes.
        outer: u32,
        /// What that has room for, in bytes.
        room: u32,
    },
    /// No table from 51820 on is free.
    Tables,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu { mtu, min: MTU_MIN_V6 } => write!(
                f,
                "the way to the peer leaves an MTU of {mtu}, and IPv6 needs at least \
                 {MTU_MIN_V6}; drop IPv6 from Address and AllowedIPs, or set MTU = {MTU_MIN_V6} \
                 to let outer packets be fragmented"
            ),
            Self::Mtu { mtu, min } => write!(
                f,
                "the way to the peer leaves an MTU of {mtu}, and the least is {min}; set MTU in \
                 [Interface]"
            ),
            Self::Outer { mtu, outer, room } => write!(
                f,
                "MTU = {mtu} needs more than OuterMtu = {outer}; set MTU to {room} or less, or \
                 leave it out"
            ),
            Self::Tables => write!(
                f,
                "no routing table from {FIRST_TABLE} on is free; set FwMark to a number whose \
                 table is empty, or Table = off"
            ),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// What to do for `settings` on the interface `name`, given these facts.
    ///
    /// # Errors
    /// [`PlanError`] if the MTU is too small, or no table is free.
    pub fn new(name: &str, settings: &Settings, facts: &Facts) -> Result<Self, PlanError> {
        let interface = &settings.interface;
        let mut plan = Self {
            name: name.to_owned(),
            fwmark: interface.fwmark.unwrap_or(0),
            steps: Vec::new(),
            warnings: Vec::new(),
        };
        let mut addresses = interface.addresses.clone();
        let mut seen = Vec::new();
        addresses.retain(|a| {
            !seen.contains(a) && {
                seen.push(*a);
                true
            }
        });
        plan.steps.extend(addresses.iter().map(|(a, bits)| Step::Address(*a, *bits)));
        plan.steps.push(Step::Mtu(mtu(settings, facts)?));
        plan.steps.push(Step::Up);
        plan.resolvers(settings, facts);
        plan.routes(settings, &addresses, facts)?;
        if interface.save_config {
            plan.warnings.push("SaveConfig has no effect here: the file stays as it is".to_owned());
        }
        Ok(plan)
    }

    fn resolvers(&mut self, settings: &Settings, facts: &Facts) {
        let interface = &settings.interface;
        if interface.dns.is_empty() {
            return;
        }
        if !facts.resolvconf {
            self.warnings.push(
                "DNS is not set: there is no resolvconf here; install openresolv, or set the \
                 resolver with a PostUp script and --allow-scripts"
                    .to_owned(),
            );
            return;
        }
        let mut lines: String = interface.dns.iter().map(|a| format!("nameserver {a}\n")).collect();
        if !interface.dns_search.is_empty() {
            lines += &format!("search {}\n", interface.dns_search.join(" "));
        }
        self.steps.push(Step::Resolvers(lines));
    }

    fn routes(
        &mut self,
        settings: &Settings,
        addresses: &[(IpAddr, u8)],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        let mut wanted: Vec<Prefix> =
            settings.peers.iter().flat_map(|p| p.allowed_ips.iter().copied()).collect();
        // the longest first, so that the default routes come last
        wanted.sort_by_key(|p| (std::cmp::Reverse(p.bits()), *p));
        wanted.dedup();
        match settings.interface.table {
            Table::Off => return Ok(()),
            Table::Number(table) => {
                self.steps.extend(wanted.iter().map(|p| Step::Route(*p, table)));
                return Ok(());
            }
            Table::Auto => {}
        }
        for prefix in wanted.iter().filter(|p| !p.is_default()) {
            if !addresses.iter().any(|(a, bits)| covers(*a, *bits, prefix)) {
                self.steps.push(Step::Route(*prefix, MAIN_TABLE));
            }
        }
        let is_wanted = |family| wanted.contains(&everything(family));
        let families: Vec<Family> =
            [Family::V4, Family::V6].into_iter().filter(|f| is_wanted(*f)).collect();
        if families.is_empty() { Ok(()) } else { self.defaults(&families, addresses, facts) }
    }

    /// Everything through the link, except what the link itself sends, and what has a better route
    /// than the machine's default one.
    fn defaults(
        &mut self,
        families: &[Family],
        addresses: &[(IpAddr, u8)],
        facts: &Facts,
    ) -> Result<(), PlanError> {
        if self.fwmark == 0 {
            let free = (FIRST_TABLE..FIRST_TABLE + 4096).find(|t| !facts.used_tables.contains(t));
            self.fwmark = free.ok_or(PlanError::Tables)?;
        }
        let table = self.fwmark;
        // undone last, when our rules no longer say that somebody needs it
        let source_mark = families.contains(&Family::V4) && !facts.src_valid_mark;
        self.steps.extend(source_mark.then_some(Step::SourceMark));
        for family in families {
            let first = facts.first_priority[usize::from(*family == Family::V6)];
            let before = |by| first.and_then(|p| p.checked_sub(by)).filter(|p| *p > 0);
            let marks = source_mark && *family == Family::V4;
            let protocol = if marks { MADE_WITH_SOURCE_MARK } else { MADE_BY_LINK };
            let spared = Rule::but_default(*family, MAIN_TABLE);
            let rest = Rule::unless_marked(*family, table, table);
            let rest = Rule { priority: before(1), protocol, ..rest };
            let spared = Rule { priority: before(2), protocol: MADE_BY_LINK, ..spared };
            self.steps.push(Step::Route(everything(*family), table));
            // without priorities the kernel puts the newest first, and the order is the reverse
            self.steps.extend(if spared.priority.is_some() {
                [Step::Rule(spared), Step::Rule(rest)]
            } else {
                [Step::Rule(Rule { priority: None, ..rest }), Step::Rule(spared)]
            });
        }
        if facts.nft {
            self.steps.push(self.firewall(families, addresses));
        } else if facts.strict_reverse_path {
            self.warnings.push(
                "the reverse-path filter is strict and there is no nft: answers from the peer may \
                 be dropped; install nftables, or set net.ipv4.conf.all.rp_filter to 2"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Inner addresses must not come in from outside, and the mark of what was sent comes back on
    /// what is received.
    fn firewall(&self, families: &[Family], addresses: &[(IpAddr, u8)]) -> Step {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let table = format!("warren_{}", self.name.chars().map(plain).collect::<String>());
        let name = &self.name;
        let mark = self.fwmark;
        let mut script = format!(
            "add table inet {table}\n\
             delete table inet {table}\n\
             add table inet {table}\n\
             add chain inet {table} raw {{ type filter hook prerouting priority -300; }}\n\
             add chain inet {table} in {{ type filter hook prerouting priority -150; }}\n\
             add chain inet {table} out {{ type filter hook postrouting priority -150; }}\n\
             add rule inet {table} out meta l4proto udp meta mark {mark} ct mark set meta mark\n\
             add rule inet {table} in meta l4proto udp meta mark set ct mark\n"
        );
        for (address, _) in addresses.iter().filter(|(a, _)| families.contains(&Family::of(*a))) {
            let ip = if address.is_ipv4() { "ip" } else { "ip6" };
            writeln!(
                script,
                "add rule inet {table} raw iifname != \"{name}\" {ip} daddr {address} \
                 fib saddr type != local drop"
            )
            .expect("writing to a string cannot fail");
        }
        Step::Firewall { table, script }
    }
}

/// What the outer headers take of a packet, at most.
fn overhead(settings: &Settings, facts: &Facts) -> u32 {
    let listens = settings.interface.listen_icmp.is_some_and(|at| at.is_ipv6());
    let asks = settings.peers.iter().any(|peer| peer.carrier == Some(Carrier::IcmpRequest));
    // Over IPv4 it fits into the difference of the headers.
    let is_more = listens || (asks && facts.is_endpoint_v6);
    OVERHEAD_LEN + if is_more { wire::ping::HEAD_LEN as u32 } else { 0 }
}

fn mtu(settings: &Settings, facts: &Facts) -> Result<u32, PlanError> {
    let interface = &settings.interface;
    let outer = interface.outer_mtu.or(facts.outer_mtu).unwrap_or(OUTER_MTU);
    let room = outer.saturating_sub(overhead(settings, facts)).min(65535);
    let mtu = interface.mtu.unwrap_or(room);
    if interface.outer_mtu.is_some() && mtu > room {
        return Err(PlanError::Outer { mtu, outer, room });
    }
    let v6 = interface.addresses.iter().any(|(a, _)| a.is_ipv6())
        || settings.peers.iter().flat_map(|p| &p.allowed_ips).any(|p| p.address().is_ipv6());
    let min = if v6 { MTU_MIN_V6 } else { MTU_MIN };
    if mtu < min { Err(PlanError::Mtu { mtu, min }) } else { Ok(mtu) }
}

/// Whether the kernel has a route to `prefix` through the link as soon as it has this address.
fn covers(address: IpAddr, bits: u8, prefix: &Prefix) -> bool {
    let network = Prefix::new(address, bits);
    let is_network = bits < Prefix::host(address).bits();
    is_network && bits <= prefix.bits() && network.is_some_and(|n| n.contains(prefix.address()))
}
