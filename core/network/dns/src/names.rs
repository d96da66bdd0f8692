//! Whose a name is, and what those of this network are answered.

use core::fmt;
use core::net::IpAddr;
use std::collections::BTreeMap;

use translate::Table;
use wire::prefix::Prefix;

use crate::alias;
use crate::name::{BadName, Name};
use crate::query::{Class, DropReason, Fault, Kind, Query, Rcode, Transport};
use crate::reply::{Reply, failure, headless};
use crate::reverse;

/// Labels that mean something to programs in any domain: a node that took one would be asked for
/// proxies or be taken for the machine itself (threat DN-03).
const RESERVED: [&str; 6] =
    ["localhost", "local", "wpad", "isatap", "broadcasthost", "autodiscover"];

/// What is known of names; becomes [`Names`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The domain below which nodes have their names; empty means none.
    pub domain: String,
    /// This node's own label.
    pub own: String,
    /// Labels and addresses of all nodes that may be known here, this one included.
    pub hosts: Vec<(String, Vec<IpAddr>)>,
    /// The network's ranges, whose reverse names are ours.
    pub ranges: Vec<Prefix>,
    /// Resolvers for names that are not ours.
    pub resolvers: Vec<IpAddr>,
    /// Domains with resolvers of their own.
    pub zones: Vec<(String, Vec<IpAddr>)>,
    /// Names below the domain that are no node's, in full, with their addresses. A node's own name
    /// comes first.
    pub records: Vec<(String, Vec<IpAddr>)>,
    /// How addresses behind gateways are known here: a table for each, whose destinations are
    /// aliases before and a site's own after.
    pub aliases: Vec<Table>,
    /// Grows with every change; goes into SOA records.
    pub serial: u32,
}

/// All names that this node answers for, and the resolvers for others.
#[derive(Clone, Debug)]
pub struct Names {
    domain: Option<Name>,
    server: Name,
    hosts: BTreeMap<Vec<u8>, Vec<IpAddr>>,
    owners: BTreeMap<IpAddr, Name>,
    ranges: Vec<Prefix>,
    resolvers: Vec<IpAddr>,
    zones: Vec<(Name, Vec<IpAddr>)>,
    records: Vec<(Name, Vec<IpAddr>)>,
    aliases: Vec<Table>,
    serial: u32,
}

/// What is to be done with a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'n> {
    /// Send this back.
    Reply(Vec<u8>),
    /// Ask somebody else.
    Forward(Forward<'n>),
    /// Say nothing.
    Drop(DropReason),
}

/// A query for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward<'n> {
    /// The query as it was read.
    pub query: Query,
    /// Whom to ask, in order; never empty.
    pub to: &'n [IpAddr],
}

/// Why settings cannot hold: the name that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadNames {
    what: String,
    why: BadName,
}

/// Whose a name is.
enum Owner<'n> {
    /// Ours; the top of its zone stands that many labels into it.
    Domain(usize),
    /// Ours, as a reverse name of this network.
    Reverse(Prefix, usize),
    Others(&'n [IpAddr]),
}

impl Names {
    /// Reads `settings`. Reserved labels are left out; resolvers at this node's own addresses are
    /// left out too, since asking them would go round in a circle.
    ///
    /// # Errors
    /// [`BadNames`] if the domain, a zone or a label is no name.
    pub fn new(settings: Settings) -> Result<Self, BadNames> {
        let bad = |what: &str| {
            let what = what.to_owned();
            move |why| BadNames { what, why }
        };
        let domain = if settings.domain.is_empty() {
            None
        } else {
            Some(Name::from_text(&settings.domain).map_err(bad(&settings.domain))?)
        };
        let own: Vec<IpAddr> = settings
            .hosts
            .iter()
            .filter(|h| h.0 == settings.own)
            .flat_map(|h| h.1.clone())
            .collect();
        let others = |list: Vec<IpAddr>| -> Vec<IpAddr> {
            list.into_iter().filter(|a| !own.contains(a)).collect()
        };
        let mut hosts = BTreeMap::new();
        let mut owners = BTreeMap::new();
        for (label, addresses) in settings.hosts {
            let label = label.to_ascii_lowercase();
            if RESERVED.contains(&label.as_str()) {
                continue;
            }
            if let Some(domain) = &domain {
                let name = domain.child(&label).map_err(bad(&label))?;
                owners.extend(addresses.iter().map(|a| (*a, name.clone())));
            }
            hosts.insert(label.into_bytes(), addresses);
        }
        let mut zones = Vec::new();
        for (zone, resolvers) in settings.zones {
            let name = Name::from_text(&zone).map_err(bad(&zone))?;
            zones.push((name, others(resolvers)));
        }
        zones.sort_by_key(|(zone, _)| core::cmp::Reverse(zone.labels().len()));
        let mut records = Vec::new();
        for (text, addresses) in settings.records {
            let name = Name::from_text(&text).map_err(bad(&text))?;
            let is_reserved = |label: &Vec<u8>| RESERVED.iter().any(|r| r.as_bytes() == label);
            let before = domain.as_ref().and_then(|domain| name.below(domain));
            if before.is_some_and(|before| before > 0) && !is_reserved(&name.labels()[0]) {
                records.push((name, addresses));
            }
        }
        let top = domain.clone().or_else(|| Name::from_text("invalid").ok());
        let top = top.ok_or_else(|| bad(&settings.domain)(BadName::Label))?;
        let server = top.child(&settings.own).unwrap_or(top);
        let resolvers = others(settings.resolvers);
        let ranges = settings.ranges;
        let serial = settings.serial;
        let aliases = settings.aliases;
        Ok(Self {
            domain,
            server,
            hosts,
            owners,
            ranges,
            resolvers,
            zones,
            records,
            aliases,
            serial,
        })
    }

    /// Puts aliases in the place of addresses in an answer of the resolver `from`, if that one is
    /// behind a gateway that has them.
    pub fn rename(&self, from: IpAddr, answer: &mut [u8]) {
        alias::rename(&self.aliases, from, answer);
    }

    /// What to do with the query in `bytes`, which came over `transport`.
    #[must_use]
    pub fn judge(&self, bytes: &[u8], transport: Transport) -> Verdict<'_> {
        let query = match Query::read(bytes) {
            Ok(query) => query,
            Err(Fault::Drop(reason)) => return Verdict::Drop(reason),
            Err(Fault::Reply(Rcode::BadVers)) => return Verdict::Reply(bad_version(bytes)),
            Err(Fault::Reply(rcode)) => return Verdict::Reply(headless(bytes, rcode)),
        };
        let refused = [Kind::ANY, Kind::AXFR, Kind::IXFR, Kind::OPT].contains(&query.kind);
        if query.class != Class::IN || refused {
            return Verdict::Reply(failure(&query, Rcode::Refused));
        }
        match self.owner(&query.name) {
            Owner::Domain(before) => Verdict::Reply(self.of_domain(&query, before, transport)),
            Owner::Reverse(network, before) => {
                Verdict::Reply(self.of_range(&query, network, before, transport))
            }
            Owner::Others([]) => Verdict::Reply(failure(&query, Rcode::Refused)),
            Owner::Others(to) => Verdict::Forward(Forward { query, to }),
        }
    }

    /// The longest suffix wins; of two that are equal, ours.
    fn owner(&self, name: &Name) -> Owner<'_> {
        if let Some(network) = reverse::network(name) {
            let within = |r: &&Prefix| r.bits() <= network.bits() && r.contains(network.address());
            if let Some(range) = self.ranges.iter().find(within) {
                let before = name.labels().len().saturating_sub(reverse::labels_of(range));
                return Owner::Reverse(network, before);
            }
        }
        let ours = self.domain.as_ref().and_then(|domain| name.below(domain));
        let zone = self.zones.iter().find_map(|(zone, to)| Some((name.below(zone)?, to)));
        match (ours, zone) {
            (Some(ours), zone) if zone.is_none_or(|(before, _)| ours <= before) => {
                Owner::Domain(ours)
            }
            (_, Some((_, to))) => Owner::Others(to),
            (_, None) => Owner::Others(&self.resolvers),
        }
    }

    fn of_domain(&self, query: &Query, before: usize, transport: Transport) -> Vec<u8> {
        if before == 0 {
            return self.top(query, transport);
        }
        let label = query.name.labels()[0].to_ascii_lowercase();
        let host = self.hosts.get(&label).filter(|_| before == 1);
        let mut records = self.records.iter();
        let record = || records.find(|(name, _)| name.same(&query.name)).map(|(_, list)| list);
        let Some(addresses) = host.or_else(record) else {
            // A name above another one is there, and has nothing of its own.
            let is_above = self.records.iter().any(|(name, _)| name.below(&query.name).is_some());
            let rcode = if is_above { Rcode::NoError } else { Rcode::NxDomain };
            return self.nothing(query, rcode, before, transport);
        };
        let mut reply = Reply::new(query, Rcode::NoError, true);
        let mut found = false;
        for address in addresses {
            match (query.kind, address) {
                (Kind::A, IpAddr::V4(a)) => reply.answer(Kind::A, &a.octets()),
                (Kind::AAAA, IpAddr::V6(a)) => reply.answer(Kind::AAAA, &a.octets()),
                _ => continue,
            }
            found = true;
        }
        if !found {
            return self.nothing(query, Rcode::NoError, before, transport);
        }
        reply.finish(transport)
    }

    fn of_range(
        &self,
        query: &Query,
        network: Prefix,
        before: usize,
        transport: Transport,
    ) -> Vec<u8> {
        if before == 0 && [Kind::SOA, Kind::NS].contains(&query.kind) {
            return self.top(query, transport);
        }
        let address = network.address();
        let first = self.owners.range(address..).next().filter(|(a, _)| network.contains(**a));
        let is_host = network == Prefix::host(address);
        match first {
            Some((_, name)) if is_host && query.kind == Kind::PTR => {
                let mut data = Vec::new();
                name.write(&mut data);
                let mut reply = Reply::new(query, Rcode::NoError, true);
                reply.answer(Kind::PTR, &data);
                reply.finish(transport)
            }
            // the name exists, or something below it does
            Some(_) => self.nothing(query, Rcode::NoError, before, transport),
            None if before == 0 && !is_host => {
                self.nothing(query, Rcode::NoError, before, transport)
            }
            None => self.nothing(query, Rcode::NxDomain, before, transport),
        }
    }

    /// The top of a zone of ours.
    fn top(&self, query: &Query, transport: Transport) -> Vec<u8> {
        let mut reply = Reply::new(query, Rcode::NoError, true);
        match query.kind {
            Kind::SOA => reply.soa(true, 0, &self.server, self.serial),
            Kind::NS => {
                let mut data = Vec::new();
                self.server.write(&mut data);
                reply.answer(Kind::NS, &data);
            }
            _ => return self.nothing(query, Rcode::NoError, 0, transport),
        }
        reply.finish(transport)
    }

    fn nothing(&self, query: &Query, rcode: Rcode, before: usize, transport: Transport) -> Vec<u8> {
        let mut reply = Reply::new(query, rcode, true);
        reply.soa(false, before, &self.server, self.serial);
        reply.finish(transport)
    }
}

/// RFC 6891, section 6.1.3: a version that we do not know is told in an OPT record of ours.
fn bad_version(bytes: &[u8]) -> Vec<u8> {
    let mut out = headless(bytes, Rcode::NoError);
    out[11] = 1;
    let len = u16::try_from(crate::query::REPLY_LEN_MAX).unwrap_or(u16::MAX).to_be_bytes();
    out.extend([0, 0, 41, len[0], len[1], 1, 0, 0, 0, 0, 0]);
    out
}

impl fmt::Display for BadNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.what.chars().filter(|c| !c.is_control()).take(80).collect();
        write!(
            f,
            "{shown:?} is no domain name: {}; correct it in the network's DNS settings",
            self.why
        )
    }
}

impl core::error::Error for BadNames {}

#[cfg(test)]
mod tests;
