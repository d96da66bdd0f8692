//! Sites at an OpenStack cloud: neutron for networks, nova for machines.
//!
//! Tags there are given after something was made, so what is ours says so in its description, which
//! is given in the same call: `warren NETWORK SITE ROLE`, and the site's number behind a network. A
//! machine says it in its metadata. What says nothing of the kind is never changed; in the
//! project's default group only rules with our word are.

mod access;
mod lock;
mod made;
mod read;
mod remove;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;
use sites::{Id, Kind, Step};

use access::Access;
pub(crate) use made::{ROUTE_OPTIONS, own_route, pool};
use read::Mark;

use crate::lock::{Held, Who};
use crate::place::{Booting, Place, Thing, Things, sorted};
use crate::rest::{Body, Call, Reply, Rest};
use crate::retry::{Failure, now_s};
use crate::time::read_answer;
use crate::{Error, make};

/// Pages of a list.
const PAGES_MAX: usize = 1000;

/// Lists that were answered, by their paths.
type Lists = BTreeMap<&'static str, Vec<Value>>;

/// One project of a cloud.
pub(crate) struct Project {
    network: String,
    region: Option<String>,
    endpoint: Option<String>,
    rest: Rest,
    access: Option<Access>,
    things: Things,
    /// What the plan calls a resource, by the cloud's word.
    names: BTreeMap<String, Id>,
}

/// Which service is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Service {
    Network,
    Compute,
    Image,
}

impl Place for Project {
    fn name(&self) -> String {
        let place = self.region.as_deref().or(self.endpoint.as_deref()).unwrap_or("OS_AUTH_URL");
        format!("openstack {place}")
    }

    fn survey(&mut self) -> Result<(), Error> {
        let name = self.name();
        self.look().map_err(|failure| Error::new(name, failure.what))
    }

    fn things(&self) -> &Things {
        &self.things
    }

    fn now_s(&self) -> u64 {
        now_s()
    }

    fn make(&mut self, step: &Step, number: Option<u32>, boot: Booting<'_>) -> Result<(), Error> {
        make::make(self, step, number, boot)
    }

    fn remove(&mut self, id: &Id) -> Result<(), Error> {
        make::remove(self, id)
    }

    fn lock(&mut self, site: &str, who: &Who) -> Result<Held, Error> {
        self.take_lock(site, who).map_err(|failure| Error::new(site, failure.what))
    }

    /// Its lock has one end that is far enough away.
    fn renew(&mut self, _: &mut Held) -> Result<(), Error> {
        Ok(())
    }

    fn unlock(&mut self, held: &Held) -> Result<(), Error> {
        let name = self.name();
        self.delete("security-group-rules", &held.its)
            .map_err(|failure| Error::new(name, failure.what))
    }
}

impl Project {
    /// For a region of the cloud at `endpoint`, or where the environment says.
    ///
    /// # Errors
    /// If the environment's proxies are none.
    pub(crate) fn new(
        region: Option<&str>,
        endpoint: Option<&str>,
        network: &str,
    ) -> Result<Self, Error> {
        let ca_file = std::env::var_os("OS_CACERT").filter(|text| !text.is_empty());
        let rest = Rest::new(ca_file.map(Into::into));
        let rest = rest.map_err(|why| Error::new("openstack", why))?;
        Ok(Self {
            network: network.to_owned(),
            region: region.map(str::to_owned),
            endpoint: endpoint.map(str::to_owned),
            rest,
            access: None,
            things: Things::new(),
            names: BTreeMap::new(),
        })
    }

    /// One call; a token that ended is asked for anew, once.
    fn call(
        &mut self,
        service: Service,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Reply, Failure> {
        let mut is_new = false;
        loop {
            if self.access.is_none() {
                let environment = |name: &str| std::env::var(name).ok();
                let region = self.region.as_deref();
                let endpoint = self.endpoint.as_deref();
                let access = Access::open(&mut self.rest, &environment, endpoint, region)?;
                self.access = Some(access);
                is_new = true;
            }
            let Some(access) = &self.access else { return Err(Failure::new("401", "no token")) };
            let url = match service {
                Service::Network => format!("{}/v2.0/{path}", access.network),
                Service::Compute => format!("{}/{path}", access.compute),
                Service::Image => {
                    let missing = || Failure::new("Catalog", "the cloud has no image service");
                    format!("{}/v2/{path}", access.image.as_ref().ok_or_else(missing)?)
                }
            };
            let fields = [("X-Auth-Token", access.token.as_str())];
            let body = Body::Json(body);
            let call = Call { method, url: &url, fields: &fields, body };
            match self.rest.call(&call) {
                Err(failure) if failure.code == "401" && !is_new => self.access = None,
                Err(failure) if failure.code == "403" => {
                    let what = format!(
                        "{}; the right to {method} {path} is missing, which the role member has",
                        failure.what
                    );
                    return Err(Failure { what, ..failure });
                }
                other => return other,
            }
        }
    }

    /// A list of neutron's, all pages: a provider may bound how many it answers at once.
    fn list(&mut self, path: &str, key: &str) -> Result<Vec<Value>, Failure> {
        let mut all: Vec<Value> = Vec::new();
        let mut page = path.to_owned();
        for _ in 0..PAGES_MAX {
            let reply = self.call(Service::Network, "GET", &page, &Value::Null)?;
            all.extend(reply.value[key].as_array().cloned().unwrap_or_default());
            let Some(marker) = read::next(&reply.value, key) else { return Ok(all) };
            let sign = if path.contains('?') { '&' } else { '?' };
            page = format!("{path}{sign}marker={marker}");
        }
        Err(Failure::new("Pages", format!("its list of {key} has more than {PAGES_MAX} pages")))
    }

    fn delete(&mut self, path: &str, its: &str) -> Result<(), Failure> {
        match self.call(Service::Network, "DELETE", &format!("{path}/{its}"), &Value::Null) {
            Err(failure) if failure.code != "404" => Err(failure),
            _ => Ok(()),
        }
    }

    fn name_of(&self, its: &str) -> String {
        self.names.get(its).map(|id| id.name.clone()).unwrap_or_default()
    }

    fn its(&self, kind: Kind, site: &str, name: &str) -> Option<String> {
        self.things.get(&Id::new(kind, site, name)).map(|thing| thing.its.clone())
    }

    /// Looks at everything of ours, and forgets what was known.
    fn look(&mut self) -> Result<(), Failure> {
        self.things.clear();
        let mut lists = Lists::new();
        read::LOOKED.into_iter().try_for_each(|kind| self.look_in(kind, &mut lists))
    }

    /// Looks again at all that is of one kind. Of other kinds that is known which was seen last.
    fn look_at(&mut self, kind: Kind) -> Result<(), Failure> {
        self.look_in(kind, &mut Lists::new())
    }

    /// The same, with lists that were asked for already; those that were not are added.
    fn look_in(&mut self, kind: Kind, lists: &mut Lists) -> Result<(), Failure> {
        let paths = read::lists(kind);
        for &path in paths {
            if let Entry::Vacant(place) = lists.entry(path) {
                place.insert(match path {
                    read::SERVERS => self.servers()?,
                    path => self.list(path, &read::key(path))?,
                });
            }
        }
        let of = |path: &str| lists.get(path).map(Vec::as_slice).unwrap_or_default();
        self.things.retain(|id, _| id.kind != kind);
        match kind {
            Kind::Route => self.note_routes(of(read::SUBNETS)),
            Kind::Table => self.note_router_ports(of(read::PORTS)),
            Kind::MachineRule => self.note_rules(of(read::RULES)),
            Kind::Machine => {
                for server in of(read::SERVERS) {
                    self.note_machine(server, of(read::PORTS));
                }
            }
            kind => {
                for value in paths.iter().flat_map(|path| of(path)) {
                    self.note(kind, value);
                }
            }
        }
        Ok(())
    }

    fn servers(&mut self) -> Result<Vec<Value>, Failure> {
        let reply = self.call(Service::Compute, "GET", read::SERVERS, &Value::Null)?;
        Ok(reply.value["servers"].as_array().cloned().unwrap_or_default())
    }

    fn keep(&mut self, mark: Mark, kind: Kind, its: &str, thing: Thing) {
        let mut id = Id::new(kind, &mark.site, mark.role);
        // What exists twice by accident is ours as well, and nobody wants it.
        if self.things.contains_key(&id) {
            id.name = format!("{} {its}", id.name);
        }
        self.names.insert(its.to_owned(), id.clone());
        self.things.insert(id, thing);
    }

    fn note(&mut self, kind: Kind, value: &Value) {
        let text = value["description"].as_str().unwrap_or_default();
        let Some(mark) = Mark::read(text, &self.network) else { return };
        let its = value["id"].as_str().unwrap_or_default().to_owned();
        let properties = read::properties(kind, value, &|its| self.name_of(its));
        let number = mark.number;
        let thing = Thing { its: its.clone(), properties, is_ours: true, number, begun_s: None };
        self.keep(mark, kind, &its, thing);
    }

    fn note_machine(&mut self, server: &Value, ports: &[Value]) {
        let text = server["metadata"]["warren"].as_str().unwrap_or_default();
        let Some(mark) = Mark::read(text, &self.network) else { return };
        let its = server["id"].as_str().unwrap_or_default().to_owned();
        let its_ports = ports.iter().filter(|port| port["device_id"] == its.as_str());
        let known = its_ports.filter_map(|port| self.names.get(port["id"].as_str()?));
        let known: Vec<&Id> = known.filter(|id| id.site == mark.site).collect();
        let mut interfaces = vec![mark.role.clone(), format!("{}-outside", mark.role)];
        interfaces.retain(|name| known.iter().any(|id| id.name == *name));
        let properties = read::machine(server, &interfaces);
        let begun_s = server["created"].as_str().and_then(read_answer);
        let thing = Thing { its: its.clone(), properties, is_ours: true, number: None, begun_s };
        self.keep(mark, Kind::Machine, &its, thing);
    }

    /// Routes that a subnet gives its machines. What leads to others' addresses others made.
    fn note_routes(&mut self, subnets: &[Value]) {
        let by_address: BTreeMap<(String, String), String> = self
            .things
            .iter()
            .filter(|(id, _)| id.kind == Kind::Interface)
            .filter_map(|(id, thing)| {
                let address = thing.properties.get("address")?.clone();
                Some(((id.site.clone(), address), id.name.clone()))
            })
            .collect();
        for subnet in subnets {
            let its = subnet["id"].as_str().unwrap_or_default();
            let Some(known) = self.names.get(its).cloned() else { continue };
            for route in subnet["host_routes"].as_array().into_iter().flatten() {
                let to = route["destination"].as_str().unwrap_or_default();
                let hop = route["nexthop"].as_str().unwrap_or_default();
                let via = by_address.get(&(known.site.clone(), hop.to_owned()));
                // A hop that has no port is what a pair shares, or was a gateway of ours.
                let name = via.cloned().unwrap_or_else(|| hop.to_owned());
                let properties =
                    [("to".to_owned(), to.to_owned()), ("via".to_owned(), name)].into();
                let thing = Thing {
                    its: its.to_owned(),
                    properties,
                    is_ours: true,
                    number: None,
                    begun_s: None,
                };
                self.things.insert(Id::new(Kind::Route, &known.site, to), thing);
            }
        }
    }

    /// In which subnets our routers have a port.
    fn note_router_ports(&mut self, ports: &[Value]) {
        for port in ports {
            let device = port["device_id"].as_str().unwrap_or_default();
            let Some(router) = self.names.get(device).cloned() else { continue };
            let owner = port["device_owner"].as_str().unwrap_or_default();
            if router.kind != Kind::InternetGateway || !owner.contains("router_interface") {
                continue;
            }
            let subnet = port["fixed_ips"][0]["subnet_id"].as_str().unwrap_or_default();
            let name = self.name_of(subnet);
            let properties = [("subnet".to_owned(), name)].into();
            let its = device.to_owned();
            let thing = Thing { its, properties, is_ours: true, number: None, begun_s: None };
            self.things.insert(Id::new(Kind::Table, &router.site, "router"), thing);
        }
    }

    /// Rules of ours in the project's default group, which all its sites share.
    fn note_rules(&mut self, rules: &[Value]) {
        let word = format!("warren {}", self.network);
        let ours = rules.iter().filter(|rule| rule["description"] == word);
        let from: Vec<String> =
            ours.filter_map(|rule| rule["remote_ip_prefix"].as_str().map(str::to_owned)).collect();
        if from.is_empty() {
            return;
        }
        let from = sorted(from);
        let networks = self.things.keys().filter(|id| id.kind == Kind::Network);
        let sites: std::collections::BTreeSet<String> =
            networks.map(|id| id.site.clone()).collect();
        for site in sites {
            let properties = [("from".to_owned(), from.clone())].into();
            let its = String::new();
            let thing = Thing { its, properties, is_ours: true, number: None, begun_s: None };
            self.things.insert(Id::new(Kind::MachineRule, &site, "default"), thing);
        }
    }
}
