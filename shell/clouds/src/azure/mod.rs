//! Sites at Azure: the Resource Manager's API, with operations that go on after their answer.
//!
//! A site has a resource group of its own, `warren-NETWORK-SITE`. What is ours bears the tags
//! `warren:net`, `warren:site` and `warren:role`, given in the call that makes it. What has no tags
//! of its own belongs to something that has: subnets, rules, and routes that begin with `warren-`.
//!
//! Whatever makes or removes something answers at once and goes on. [`Subscription::call`] follows
//! such an operation to its end, as its answer says where, and only at the place that was asked: no
//! answer leads our token to somebody else (threat SI-09).

mod access;
mod lead;
mod lock;
mod made;
mod read;
mod remove;
mod rights;

use std::time::{Duration, Instant};

use serde_json::Value;
use sites::{Id, Kind, Step, yes_or_no};

use access::Access;
pub(crate) use lead::routes;
use read::{TAG_BEGUN, TAG_NETWORK, TAG_NUMBER, TAG_ROLE, TAG_SITE, list, part, text};
pub(crate) use rights::rights;

use crate::lock::{Held, Who};
use crate::place::{Booting, Place, Thing, Things};
use crate::rest::{Body, Call, Reply, Rest};
use crate::retry::{Failure, now_s};
use crate::{Error, make};

/// The API of the public cloud.
const API: &str = "https://management.azure.com";
/// An operation that goes on ends within so long.
const OPERATION_WITHIN: Duration = Duration::from_secs(900);
/// How often it is asked, where Azure does not say.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// And at most.
const ASK_EVERY_MIN: Duration = Duration::from_millis(100);
/// Another operation is under way at the same thing for so long.
const BUSY_WITHIN: Duration = Duration::from_secs(120);
/// Pages of one answer.
const PAGES_MAX: usize = 100;

/// The resource groups of one subscription in one region.
pub(crate) struct Subscription {
    network: String,
    region: String,
    endpoint: String,
    rest: Rest,
    access: Option<Access>,
    /// Whether it is the machine's own identity that asks, and no other.
    is_machine: bool,
    things: Things,
}

impl Place for Subscription {
    fn name(&self) -> String {
        format!("azure {}", self.region)
    }

    fn survey(&mut self) -> Result<(), Error> {
        let name = self.name();
        self.look_at_all().map_err(|failure| Error::new(name, failure.what))
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

    fn renew(&mut self, held: &mut Held) -> Result<(), Error> {
        let name = self.name();
        self.renew_lock(held).map_err(|failure| Error::new(name, failure.what))
    }

    fn unlock(&mut self, held: &Held) -> Result<(), Error> {
        let name = self.name();
        self.give_lock(held).map_err(|failure| Error::new(name, failure.what))
    }
}

impl Subscription {
    /// For a region, at its usual place or at `endpoint`.
    ///
    /// # Errors
    /// If the environment's proxies are none.
    pub(crate) fn new(
        region: Option<&str>,
        endpoint: Option<&str>,
        network: &str,
    ) -> Result<Self, Error> {
        let ca_file = std::env::var_os("REQUESTS_CA_BUNDLE").filter(|text| !text.is_empty());
        let rest = Rest::new(ca_file.map(Into::into));
        let rest = rest.map_err(|why| Error::new("azure", why))?;
        Ok(Self {
            network: network.to_owned(),
            region: region.unwrap_or_default().to_owned(),
            endpoint: endpoint.unwrap_or(API).trim_end_matches('/').to_owned(),
            rest,
            access: None,
            is_machine: false,
            things: Things::new(),
        })
    }

    /// The same for a machine's own program, with its identity and no other.
    fn of_machine(self, mark: u32) -> Self {
        Self { is_machine: true, rest: self.rest.of_machine(mark), ..self }
    }

    /// Our word with Azure, good for a call.
    fn access(&mut self) -> Result<&Access, Failure> {
        if self.access.as_ref().is_none_or(|access| !access.is_good()) {
            let environment = |name: &str| std::env::var(name).ok();
            self.access = Some(match self.is_machine {
                true => Access::of_machine(&self.endpoint)?,
                false => Access::open(&mut self.rest, &environment, &self.endpoint)?,
            });
        }
        self.access.as_ref().ok_or_else(|| Failure::new("401", "no token"))
    }

    /// The identifier of a site's resource group.
    fn holder(&mut self, site: &str) -> Result<String, Failure> {
        let network = self.network.clone();
        let subscription = &self.access()?.subscription;
        Ok(format!("/subscriptions/{subscription}/resourceGroups/warren-{network}-{site}"))
    }

    /// The identifier of something in a site's resource group.
    fn id_of(&mut self, kind: Kind, site: &str, name: &str) -> Result<String, Failure> {
        let holder = self.holder(site)?;
        let within = |kind| match read::collection(kind) {
            Some((path, _)) => format!("{holder}/providers/{path}"),
            None => holder.clone(),
        };
        Ok(match kind {
            Kind::Subnet => format!("{}/network/subnets/{name}", within(Kind::Network)),
            Kind::Route => {
                let name = name.replace('/', "-");
                format!("{}/routes/routes/{}{name}", within(Kind::Table), read::ROUTE_PREFIX)
            }
            Kind::ResourceGroup => holder,
            kind => format!("{}/{name}", within(kind)),
        })
    }

    /// A call at a place that an answer named, or at one of the API's own.
    fn once(&mut self, method: &str, url: &str, body: &Value) -> Result<Reply, Failure> {
        if !is_own(&self.endpoint, url) {
            let what = format!("azure answers with an address of somebody else: {url:?}");
            return Err(Failure::new("Address", what));
        }
        let mut is_new = false;
        let begin = Instant::now();
        loop {
            let token = format!("Bearer {}", self.access()?.token);
            let fields = [("Authorization", token.as_str())];
            let call = Call { method, url, fields: &fields, body: Body::Json(body) };
            match self.rest.call(&call) {
                Err(failure) if failure.code == "401" && !is_new => {
                    self.access = None;
                    is_new = true;
                }
                Err(failure) if is_busy(&failure) && begin.elapsed() < BUSY_WITHIN => {
                    std::thread::sleep(ASK_EVERY);
                }
                other => return other,
            }
        }
    }

    /// A call, and what goes on after its answer, to the end.
    fn call(
        &mut self,
        method: &str,
        path: &str,
        api: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let url = format!("{}{path}{mark}api-version={api}", self.endpoint);
        let reply = self.once(method, &url, body)?;
        let by_state = reply.field("azure-asyncoperation").map(str::to_owned);
        let by_status = reply.field("location").filter(|_| reply.status() == 202);
        match (by_state, by_status.map(str::to_owned)) {
            (Some(at), _) => self.follow(&at, &reply, true)?,
            (None, Some(at)) => self.follow(&at, &reply, false)?,
            (None, None) => {}
        }
        Ok(reply.value)
    }

    /// Asks after an operation until it has ended.
    fn follow(&mut self, at: &str, first: &Reply, by_state: bool) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut pause = first.retry_after().unwrap_or(ASK_EVERY);
        loop {
            std::thread::sleep(pause.max(ASK_EVERY_MIN));
            let reply = self.once("GET", at, &Value::Null)?;
            let state = reply.value["status"].as_str().unwrap_or_default();
            match (by_state, state) {
                (true, "Succeeded") => return Ok(()),
                (true, "Failed" | "Canceled") => {
                    let error = &reply.value["error"];
                    let code = text(&error["code"]);
                    let what = format!("{code}: {}", text(&error["message"]));
                    return Err(Failure::new(&code, what));
                }
                (false, _) if reply.status() != 202 => return Ok(()),
                _ if begin.elapsed() > OPERATION_WITHIN => {
                    let what = format!("it goes on for {} s", OPERATION_WITHIN.as_secs());
                    return Err(Failure::new("Waiting", what));
                }
                _ => pause = reply.retry_after().unwrap_or(ASK_EVERY),
            }
        }
    }

    /// All pages of a list; nothing where its resource group is not there.
    fn list(&mut self, path: &str, api: &str) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut next = Some(format!("{}{path}{mark}api-version={api}", self.endpoint));
        for _ in 0..PAGES_MAX {
            let Some(url) = next.take() else { break };
            match self.once("GET", &url, &Value::Null) {
                Err(failure) if failure.code == "404" => break,
                Err(failure) => return Err(failure),
                Ok(reply) => {
                    all.extend(list(&reply.value["value"]).cloned());
                    next = reply.value["nextLink"].as_str().map(str::to_owned);
                }
            }
        }
        Ok(all)
    }

    /// Looks at everything of ours in the region, and forgets what was known.
    fn look_at_all(&mut self) -> Result<(), Failure> {
        self.things.clear();
        let subscription = self.access()?.subscription.clone();
        let filter = format!(
            "%24filter=tagName%20eq%20%27warren%3Anet%27%20and%20tagValue%20eq%20%27{}%27",
            self.network
        );
        let path = format!("/subscriptions/{subscription}/resourcegroups?{filter}");
        for group in self.list(&path, read::RESOURCES_API)? {
            let is_here = text(&group["location"]).eq_ignore_ascii_case(&self.region);
            let site = text(&group["tags"][TAG_SITE]);
            if is_here && !site.is_empty() {
                self.note_group(&site, &group);
                for kind in read::TAGGED {
                    self.look(kind, &site)?;
                }
            }
        }
        Ok(())
    }

    fn note_group(&mut self, site: &str, group: &Value) {
        let is_ours = group["tags"][TAG_NETWORK] == self.network && group["tags"][TAG_SITE] == site;
        let word = yes_or_no(is_ours);
        let properties = [("marked".to_owned(), word.to_owned())].into();
        let its = text(&group["id"]);
        let thing = Thing { its, properties, is_ours, number: None, begun_s: None };
        self.things.insert(Id::new(Kind::ResourceGroup, site, "group"), thing);
    }

    /// Looks whether a site's resource group is there.
    fn look_at_group(&mut self, site: &str) -> Result<(), Failure> {
        self.things.remove(&Id::new(Kind::ResourceGroup, site, "group"));
        let path = self.holder(site)?;
        match self.call("GET", &path, read::RESOURCES_API, &Value::Null) {
            Ok(group) => self.note_group(site, &group),
            Err(failure) if failure.code == "404" => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Looks at all of a kind in a site's resource group, and forgets what was known of them.
    fn look(&mut self, kind: Kind, site: &str) -> Result<(), Failure> {
        let Some((path, api)) = read::collection(kind) else { return Ok(()) };
        let part_of = match kind {
            Kind::Network => Kind::Subnet,
            Kind::Table => Kind::Route,
            kind => kind,
        };
        let holder = self.holder(site)?;
        let found = self.list(&format!("{holder}/providers/{path}"), api)?;
        let is_meant = |id: &Id| id.site == site && (id.kind == kind || id.kind == part_of);
        self.things.retain(|id, _| !is_meant(id));
        for mut value in found {
            if kind == Kind::Machine {
                let path = text(&value["id"]) + "?%24expand=instanceView";
                value = self.call("GET", &path, api, &Value::Null)?;
            }
            self.note(kind, site, &value);
        }
        Ok(())
    }

    /// Keeps what an answer says of one resource.
    fn note(&mut self, kind: Kind, site: &str, value: &Value) {
        let tags = &value["tags"];
        let is_ours = tags[TAG_NETWORK] == self.network && tags[TAG_SITE] == site;
        let name = if is_ours { text(&tags[TAG_ROLE]) } else { text(&value["name"]) };
        // The lock is no part of any plan.
        if name == lock::ROLE {
            return;
        }
        let number = |key: &str| tags[key].as_str().and_then(|text| text.parse().ok());
        let thing = Thing {
            its: text(&value["id"]),
            properties: read::properties(kind, value),
            is_ours,
            number: number(TAG_NUMBER).and_then(|number: u64| number.try_into().ok()),
            begun_s: number(TAG_BEGUN),
        };
        self.things.insert(Id::new(kind, site, name), thing);
        if is_ours && kind == Kind::Network {
            self.note_subnets(site, value);
        }
        if is_ours && kind == Kind::Table {
            self.note_routes(site, value);
        }
    }

    /// The subnet of ours in a network of ours; others there are the users' own.
    fn note_subnets(&mut self, site: &str, network: &Value) {
        for subnet in list(&network["properties"]["subnets"]) {
            if subnet["name"] != "subnet" {
                continue;
            }
            let cidr = text(&subnet["properties"]["addressPrefix"]);
            let properties = [("cidr".to_owned(), cidr)].into();
            let its = text(&subnet["id"]);
            let thing = Thing { its, properties, is_ours: true, number: None, begun_s: None };
            self.things.insert(Id::new(Kind::Subnet, site, "subnet"), thing);
        }
    }

    /// Routes of a table of ours. Ours are known by their names.
    fn note_routes(&mut self, site: &str, table: &Value) {
        for route in list(&table["properties"]["routes"]) {
            let to = text(&route["properties"]["addressPrefix"]);
            let hop = text(&route["properties"]["nextHopIpAddress"]);
            let is_ours = text(&route["name"]).starts_with(read::ROUTE_PREFIX);
            let of_site =
                self.things.iter().filter(|(id, _)| id.kind == Kind::Interface && id.site == site);
            let mut at = of_site.filter(|(_, thing)| thing.properties.get("address") == Some(&hop));
            let known = at.next().map(|(id, _)| id.name.clone());
            let via = match (known, is_ours) {
                (Some(name), _) => name,
                (None, true) => format!("{hop} (gone)"),
                (None, false) => "something that Warren did not make".to_owned(),
            };
            let properties = [("to".to_owned(), to.clone()), ("via".to_owned(), via)].into();
            let its = text(&route["id"]);
            let thing = Thing { its, properties, is_ours, number: None, begun_s: None };
            self.things.insert(Id::new(Kind::Route, site, to), thing);
        }
    }

    /// The interface that a public address is at, by Azure's word for it.
    fn interface_of(&self, address: &Value) -> String {
        part(&address["properties"]["ipConfiguration"]["id"], "networkInterfaces")
    }
}

/// Whether an address is one of the API's own: our token goes nowhere else.
fn is_own(endpoint: &str, url: &str) -> bool {
    url.strip_prefix(endpoint).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether something else is being done with the same thing just now.
fn is_busy(failure: &Failure) -> bool {
    ["AnotherOperationInProgress", "RetryableError", "ReferencedResourceNotProvisioned"]
        .iter()
        .any(|word| failure.what.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn si_09_no_answer_leads_our_token_to_somebody_else() {
        let api = "https://management.azure.com";
        assert!(is_own(api, "https://management.azure.com/subscriptions/s/operations/1?x=y"));
        for other in [
            "https://management.azure.com.evil.example/x",
            "https://management.azure.com@evil.example/x",
            "https://management.azure.com:8443/x",
            "http://management.azure.com/x",
            "https://evil.example/https://management.azure.com/",
            "",
        ] {
            assert!(!is_own(api, other), "{other}");
        }
        // Such an answer ends the operation before anybody is asked.
        let mut subscription = Subscription::new(Some("r"), Some(api), "n").unwrap();
        let failure = subscription.once("GET", "https://evil.example/x", &Value::Null).err();
        assert_eq!(failure.map(|failure| failure.code).as_deref(), Some("Address"));
    }
}
