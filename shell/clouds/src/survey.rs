//! What is there now: every machine is asked, and the server; the answers in the plan's words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sites::{
    Backend, File, Found, Host, Id, Kind, Known, Numbering, Properties, Provider, Report, Taken,
    foreign_ends, node_name, yes_or_no,
};
use wire::prefix::Prefix;

use crate::machine::{self, Facts};
use crate::server::{self, KEY_S, Node, Server, texts};
use crate::{Clouds, Error, Ssh, foreign};

/// Machines that are asked at once.
pub(crate) const AT_ONCE: usize = 16;

/// What was found at one time.
pub struct Survey {
    machines: BTreeMap<String, Facts>,
    nodes: Vec<Node>,
    /// What is at clouds, and the way there.
    pub clouds: Clouds,
    /// Machines that did not answer, with their sites, and why.
    pub unreachable: Vec<(String, Error)>,
    /// Where gateways of other backends are found, by site.
    outside: BTreeMap<String, String>,
}

/// A gateway as it is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// Its site.
    pub site: String,
    /// Its name in the network.
    pub name: String,
    /// What its daemon says of itself, or its provider if nobody else can ask it.
    pub state: String,
    /// Whether the server sees it.
    pub online: bool,
    /// What its daemon says, all of it; null if it did not answer.
    pub status: Value,
}

/// Machines of `ssh` sites with their sites, each gateway's place among them, or none.
fn machines(file: &File) -> impl Iterator<Item = (usize, Option<usize>, &Host)> {
    let sites = file.sites.iter().enumerate();
    let meant = sites.filter(|(_, site)| site.provider == Provider::Ssh);
    meant.flat_map(|(index, site)| {
        let count = usize::from(site.gateways);
        let place = move |at: usize| (at < count).then_some(at);
        site.hosts.iter().enumerate().map(move |(at, host)| (index, place(at), host))
    })
}

impl Survey {
    /// Asks everybody. Who does not answer is in `unreachable`.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn take(file: &File, ssh: &Ssh, server: &mut dyn Server) -> Result<Self, Error> {
        let nodes = server::nodes(server)?;
        let script = machine::look(file) + &foreign::look(file);
        let all: Vec<(usize, &Host)> = machines(file).map(|(site, _, host)| (site, host)).collect();
        let mut answers = Vec::new();
        for group in all.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                let ask = |host| ssh.run(host, &script, b"");
                let asked =
                    group.iter().map(|(site, host)| (*site, *host, scope.spawn(move || ask(host))));
                let asked: Vec<_> = asked.collect();
                for (site, host, thread) in asked {
                    answers.extend(thread.join().ok().map(|answer| (site, host, answer)));
                }
            });
        }
        let clouds = Clouds::survey(file)?;
        let unreachable = clouds.silent.clone();
        let outside = outside(file, ssh)?;
        let machines = BTreeMap::new();
        let mut survey = Self { machines, nodes, clouds, unreachable, outside };
        for (site, host, answer) in answers {
            match answer {
                Ok(text) => drop(survey.machines.insert(host.to_string(), machine::read(&text))),
                Err(error) => survey.unreachable.push((file.sites[site].name.clone(), error)),
            }
        }
        Ok(survey)
    }

    /// Which numbers of the plan are in use.
    #[must_use]
    pub fn taken(&self, file: &File) -> Taken {
        let tags = self.machines.values().filter_map(|facts| facts.tag.as_ref());
        let ours = tags.filter(|tag| tag.network == file.network);
        let word = Provider::Ssh.word();
        let here = ours.filter_map(|tag| Some(((word, tag.site.clone()), tag.number?)));
        here.chain(self.clouds.taken()).collect()
    }

    /// What is known beside the file: the program's digest, the authority's mark, where gateways
    /// are, and who leads in each pair.
    #[must_use]
    pub fn known(
        &self,
        file: &File,
        numbering: &Numbering,
        digest: &str,
        authority: &str,
    ) -> Known {
        let mut active = BTreeMap::new();
        for (index, gateway, host) in machines(file) {
            let Some(facts) = self.machines.get(&host.to_string()).filter(|_| gateway.is_none())
            else {
                continue;
            };
            let ours = facts.routes.iter().filter(|(_, _, is_ours)| *is_ours);
            let vias: Vec<&String> = ours.map(|(_, via, _)| via).collect();
            let place = &numbering.places[index];
            let leads = place.gateways.iter().position(|at| vias.contains(&&at.to_string()));
            if let Some(leads) = leads {
                active.insert(file.sites[index].name.clone(), leads);
            }
        }
        for (index, site) in file.sites.iter().enumerate() {
            if let Some(leads) = self.clouds.active(file, numbering, index) {
                active.insert(site.name.clone(), leads);
            }
        }
        let mut outside = self.outside.clone();
        outside.extend(self.clouds.outside(file));
        Known { program: digest.to_owned(), active, outside, authority: authority.to_owned() }
    }

    /// Everything that is there, in the plan's words.
    ///
    /// # Errors
    /// Gateways that have no address in their site, all of them.
    pub fn report(&self, file: &File, numbering: &Numbering) -> Result<Report, Vec<Error>> {
        let mut found = Vec::new();
        let mut wrong = Vec::new();
        for (index, gateway, host) in machines(file) {
            let Some(facts) = self.machines.get(&host.to_string()) else { continue };
            match gateway {
                Some(gateway) => {
                    let at = (index, gateway, host);
                    found_gateway(file, numbering, at, facts, &mut found, &mut wrong);
                }
                None => found_routes(file, numbering, index, host, facts, &mut found),
            }
        }
        let is_member =
            |name: &str| self.nodes.iter().any(|node| node.is_ours && node.name == name);
        found.extend(self.clouds.found(&is_member, KEY_S));
        self.found_nodes(file, &mut found);
        // What a server knows of a machine that is gone is not the next one's.
        let machines: BTreeSet<Id> = found
            .iter()
            .filter(|one| one.id.kind == Kind::Machine)
            .map(|one| one.id.clone())
            .collect();
        let is_cloud = |id: &Id| file.site(&id.site).is_some_and(|s| s.provider != Provider::Ssh);
        found.retain(|one| {
            let machine = Id { kind: Kind::Machine, ..one.id.clone() };
            one.id.kind != Kind::Approval || !is_cloud(&one.id) || machines.contains(&machine)
        });
        if wrong.is_empty() { Ok(Report { found }) } else { Err(wrong) }
    }

    /// What the server knows of gateways: those of the file, and of sites that are in it no more.
    fn found_nodes(&self, file: &File, found: &mut Vec<Found>) {
        let prefix = format!("{}-", file.network);
        for node in &self.nodes {
            let named = node.name.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once("-gw"));
            let Some((site, _)) = named else { continue };
            let routes = sorted(&node.approved);
            if !routes.is_empty() || !node.is_ours {
                let place = &node.place;
                let properties = properties([
                    ("passes_on", yes_or_no(place.passes_on).to_owned()),
                    ("routes", routes),
                    ("through", place.through.join(",")),
                ]);
                let id = Id::new(Kind::Approval, site, node.name.clone());
                found.push(Found { id, properties, is_ours: node.is_ours });
            }
            if file.site(site).is_none() {
                let id = Id::new(Kind::Member, site, node.name.clone());
                found.push(Found { id, properties: Properties::new(), is_ours: node.is_ours });
            }
        }
    }

    /// Whether a gateway of a pair leads: by its own word, or at a cloud by that of the provider. A
    /// provider does not know it of a pair that shares an address; the server does.
    #[must_use]
    pub fn leads(&self, file: &File, numbering: &Numbering, gateway: &Gateway) -> Option<bool> {
        let own = gateway.status["shared"]["holds"].as_bool();
        let index = file.index(&gateway.site).filter(|index| file.sites[*index].gateways == 2);
        let others = index.and_then(|index| {
            let shared = numbering.places[index].shared;
            let told = || shared.and_then(|_| server::leading(self.pair(file, index)));
            let at = self.clouds.active(file, numbering, index).or_else(told)?;
            Some(node_name(file, index, at) == gateway.name)
        });
        own.or(others)
    }

    /// What the server knows of both gateways of a pair.
    fn pair(&self, file: &File, index: usize) -> [Option<&Node>; 2] {
        [0, 1].map(|at| {
            let name = node_name(file, index, at);
            self.nodes.iter().find(|node| node.name == name)
        })
    }

    /// Has the gateway that holds its site's shared address leave it to the other one.
    ///
    /// # Errors
    /// None holds it, or its machine does not answer. At a cloud always: what an operator does.
    pub fn give_way(&self, file: &File, ssh: &Ssh, site: &str) -> Result<(), Error> {
        let index = file.index(site).unwrap_or_default();
        if file.sites[index].provider != Provider::Ssh {
            let known = |name: &str| self.clouds.machine(site, name).map(|thing| thing.its.clone());
            return Err(Error::new(site, by_hand(self.pair(file, index), &known)));
        }
        let hosts = file.sites[index].hosts.iter().take(usize::from(file.sites[index].gateways));
        for host in hosts {
            let facts = self.machines.get(&host.to_string());
            let shared = facts.map(|facts| &facts.status["shared"]);
            let held = shared.filter(|shared| shared["holds"] == true);
            if let Some(address) = held.and_then(|shared| shared["address"].as_str()) {
                return ssh.run(host, &machine::give_way(file, address), b"").map(drop);
            }
        }
        Err(Error::new(site, "no gateway of it holds the shared address; `warren status` says why"))
    }

    /// The gateways of the file as they are.
    #[must_use]
    pub fn gateways(&self, file: &File) -> Vec<Gateway> {
        let mut gateways = Vec::new();
        for (index, site) in file.sites.iter().enumerate() {
            for gateway in 0..usize::from(site.gateways) {
                let name = node_name(file, index, gateway);
                let known = self.nodes.iter().find(|node| node.name == name);
                let host = site.hosts.get(gateway).map(ToString::to_string);
                let facts = host.and_then(|host| self.machines.get(&host));
                let mut status = facts.map(|facts| facts.status.clone()).unwrap_or_default();
                if site.backend != Backend::Warren {
                    status = match site.provider {
                        Provider::Ssh => facts.map(|facts| joined(file, index, facts)),
                        _ => Some(self.heard_of(file, index)),
                    }
                    .unwrap_or_default();
                }
                let state = match site.provider {
                    Provider::Ssh => status["state"].as_str().unwrap_or("no answer").to_owned(),
                    _ => self.clouds.state(&site.name, &name),
                };
                let online = match site.backend {
                    Backend::Warren => known.is_some_and(|node| node.online),
                    _ => status["state"] == "running",
                };
                let site = site.name.clone();
                gateways.push(Gateway { site, name, state, online, status });
            }
        }
        gateways
    }
}

impl Survey {
    /// What a gateway of another backend would say of itself that is at a cloud, where nobody asks
    /// it: who has a tunnel to it says so.
    fn heard_of(&self, file: &File, index: usize) -> Value {
        let name = node_name(file, index, 0);
        let word = file.sites[index].backend.word();
        let has_one = |host: &Host| {
            let facts = self.machines.get(&host.to_string());
            facts.is_some_and(|facts| facts.reaches.contains(&name))
        };
        let ends = foreign_ends(file, index).into_iter();
        let site = |end: &str| (0..file.sites.len()).find(|at| node_name(file, *at, 0) == *end);
        let host = |end: &str| file.sites[site(end)?].hosts.first();
        let peers: Vec<Value> = ends
            .filter(|end| host(end).is_some_and(has_one))
            .map(|end| json!({ "name": end, "path": { "kind": word } }))
            .collect();
        let state = if peers.is_empty() { "down" } else { "running" };
        json!({ "state": state, "peers": peers })
    }
}

/// How an operator has the other gateway of a pair lead, where nobody logs in at them: OpenStack,
/// alone of all clouds, has pairs that share an address. `known` is the number there of a gateway's
/// machine; names are not unique.
fn by_hand(pair: [Option<&Node>; 2], known: &dyn Fn(&str) -> Option<String>) -> String {
    let both = server::leading(pair).map(|at| [pair[at], pair[1 - at]]);
    let Some([Some(leads), other]) = both else {
        return "nobody logs in at its gateways, and the server does not say which one leads; it \
                may a minute later, and `warren sites status` shows it"
            .to_owned();
    };
    let name = &leads.name;
    if other.is_none_or(|other| !other.online) {
        return format!(
            "{name} leads, and the server does not see the other gateway, so nobody would take \
             over; `warren sites status` shows its state, and `warren sites apply` mends its \
             machine"
        );
    }
    let machine = known(name).unwrap_or_else(|| name.clone());
    format!(
        "{name} leads, and nobody logs in there. Restart its machine, and the other gateway takes \
         over: openstack server reboot {machine}"
    )
}

/// Where the gateways are that run other programs.
fn outside(file: &File, ssh: &Ssh) -> Result<BTreeMap<String, String>, Error> {
    let others = file.sites.iter().filter(|site| site.backend != Backend::Warren);
    let gateways = others.filter_map(|site| Some((site.name.clone(), site.hosts.first()?)));
    gateways.map(|(name, host)| Ok((name, ssh.address(host)?))).collect()
}

/// What a gateway of another backend would say of itself in Warren's words.
fn joined(file: &File, index: usize, facts: &Facts) -> Value {
    let word = file.sites[index].backend.word();
    let ends = foreign_ends(file, index).into_iter();
    let up = ends.filter(|name| facts.reaches.contains(name));
    let peers: Vec<Value> =
        up.map(|name| json!({ "name": name, "path": { "kind": word } })).collect();
    let state = if facts.runs { "running" } else { "down" };
    json!({ "state": state, "peers": peers })
}

fn properties<const N: usize>(list: [(&str, String); N]) -> Properties {
    list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Networks, or `OWN=ALIAS`, as the plan writes them: sorted by what others know, with commas.
fn sorted(routes: &[String]) -> String {
    let known = |route: &String| -> Option<Prefix> {
        route.rsplit('=').next().and_then(|prefix| prefix.parse().ok())
    };
    let mut read: Vec<(Prefix, &str)> =
        routes.iter().filter_map(|route| Some((known(route)?, route.as_str()))).collect();
    read.sort_unstable();
    let texts: Vec<&str> = read.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

fn found_gateway(
    file: &File,
    numbering: &Numbering,
    at: (usize, usize, &Host),
    facts: &Facts,
    found: &mut Vec<Found>,
    wrong: &mut Vec<Error>,
) {
    let (index, gateway, host) = at;
    let site = &file.sites[index].name;
    let name = node_name(file, index, gateway);
    let inside = numbering.places[index].gateways[gateway].to_string();
    let Some(interface) = facts.addresses.get(&inside) else {
        let known: Vec<&str> = facts.addresses.keys().map(String::as_str).collect();
        let what = format!(
            "it is to be the gateway of {site} and has no address {inside}, only {}; give it \
             that, or say which with inside = [\"…\"] in the site file",
            known.join(", ")
        );
        wrong.push(Error::new(host, what));
        return;
    };
    let is_ours = facts.tag.as_ref().is_some_and(|tag| tag.network == file.network);
    let is_installed = is_ours && facts.tag.as_ref().is_some_and(|tag| tag.installed);
    let mut add = |kind, properties, is_ours| {
        let id = Id::new(kind, site, name.clone());
        found.push(Found { id, properties, is_ours });
    };
    let host = host.to_string();
    if let Some(made) = facts.tag.as_ref().and_then(|tag| tag.foreign.as_ref()) {
        let list = [
            ("host", host.clone()),
            ("backend", made.backend.clone()),
            ("config", made.config.clone()),
            ("authority", made.authority.clone()),
            ("forwards", if is_on(facts, interface) { "on" } else { "off" }.to_owned()),
            ("state", if facts.runs { "running" } else { "down" }.to_owned()),
        ];
        return add(Kind::Foreign, properties(list), is_ours);
    }
    if !facts.digest.is_empty() {
        let digest = facts.digest.clone();
        let path = file.program.clone();
        let list = [("host", host.clone()), ("digest", digest), ("path", path)];
        // One that was there before stays there.
        add(Kind::Program, properties(list), is_installed);
    }
    let settings = &facts.status["settings"];
    let is_up = facts.status["state"] == "running"
        && settings["site_gateway"] == true
        && settings["accept_routes"] == true;
    if is_ours || facts.status["state"] == "running" {
        let state = if is_up { "running" } else { "down" }.to_owned();
        let list = [
            ("host", host.clone()),
            ("passes_on", yes_or_no(settings["site_hub"] == true).to_owned()),
            ("routes", sorted(&texts(&settings["advertise_routes"]))),
            ("shared", settings["shared_address"].as_str().unwrap_or_default().to_owned()),
            ("state", state),
            ("through", texts(&settings["routes_through"]).join(",")),
        ];
        add(Kind::Member, properties(list), is_ours);
    }
    if is_ours && forwards(facts, interface) {
        let list = [("host", host), ("ipv4", "on".to_owned())];
        add(Kind::Forwarding, properties(list), true);
    }
}

/// Whether packets pass from the site into the network and back.
pub(crate) fn forwards(facts: &Facts, interface: &str) -> bool {
    is_on(facts, interface) && is_on(facts, "warren0")
}

fn is_on(facts: &Facts, interface: &str) -> bool {
    facts.forwards.iter().any(|known| known == interface)
}

fn found_routes(
    file: &File,
    numbering: &Numbering,
    index: usize,
    host: &Host,
    facts: &Facts,
    found: &mut Vec<Found>,
) {
    let wanted: Vec<String> = numbering.routes_of(index).iter().map(ToString::to_string).collect();
    for (to, via, is_ours) in &facts.routes {
        if !is_ours && !wanted.contains(to) {
            continue;
        }
        let id = Id::new(Kind::Route, &file.sites[index].name, format!("{host} {to}"));
        let list = [("host", host.to_string()), ("to", to.clone()), ("via", via.clone())];
        found.push(Found { id, properties: properties(list), is_ours: *is_ours });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway that leads or stands by.
    fn gateway(name: &str, online: bool, leads: bool) -> Node {
        let approved = vec!["10.3.0.0/24".to_owned()];
        let down = Some(if leads { Vec::new() } else { approved.clone() });
        let name = name.to_owned();
        Node { id: 1, name, is_ours: true, online, approved, down, place: server::Place::default() }
    }

    #[test]
    fn where_nobody_logs_in_an_operator_is_told_whose_machine_to_restart() {
        let number = |name: &str| (name == "gw2").then(|| "0f6e".to_owned());
        let told = |first: &Node, second: &Node| by_hand([Some(first), Some(second)], &number);
        let first = gateway("gw1", true, false);
        let second = gateway("gw2", true, true);
        let why = told(&first, &second);
        assert!(why.starts_with("gw2 leads"), "{why}");
        assert!(why.ends_with("openstack server reboot 0f6e"), "{why}");
        let why = told(&gateway("gw1", true, true), &gateway("gw2", true, false));
        assert!(why.ends_with("openstack server reboot gw1"), "by its name, at worst: {why}");

        // Who is alone is not to be restarted.
        let why = told(&gateway("gw1", false, false), &second);
        assert!(why.starts_with("gw2 leads") && !why.contains("reboot"), "{why}");
        let why = by_hand([None, Some(&second)], &number);
        assert!(why.starts_with("gw2 leads") && !why.contains("reboot"), "{why}");

        let why = told(&first, &gateway("gw2", true, false));
        assert!(why.contains("does not say which one leads"), "{why}");
    }
}
