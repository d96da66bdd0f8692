//! What is missing at an OpenStack cloud is made, what is different is changed, and read back.

use core::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sites::{Id, Kind, Step};
use wire::prefix::Prefix;

use super::read::{self, Mark};
use super::{Project, Service};
use crate::make::{Maker, Meaning};
use crate::place::Boot;
use crate::retry::Failure;

/// Times that a rule is asked for whose answers are lost.
const TRIES: usize = 4;
/// Memory of a gateway's machine, in MiB, where the file names no kind of machine.
const MEMORY_MIB: u64 = 512;
/// The options of DHCP for routes: that of RFC 3442, and the older one of the same form.
pub(crate) const ROUTE_OPTIONS: [&str; 2] = ["classless-static-route", "249"];

impl Maker for Project {
    /// At its kind alone: all that a step needs beside it was there before it.
    fn look_again(&mut self, id: &Id) -> Result<(), Failure> {
        self.look_at(id.kind)
    }

    fn is_part(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Route | Kind::MachineRule | Kind::Table)
    }

    fn set(&mut self, step: &Step) -> Result<(), Failure> {
        match step.id.kind {
            Kind::Route => self.set_routes(step),
            Kind::MachineRule => self.set_machine_rules(step),
            _ => self.join_router(step),
        }
    }

    fn create(
        &mut self,
        step: &Step,
        number: Option<u32>,
        boot: Option<&Boot>,
    ) -> Result<String, Failure> {
        let Id { kind, site, name } = &step.id;
        let number = number.filter(|_| *kind == Kind::Network && name == "inside");
        let mark = Mark { site: site.clone(), role: name.clone(), number };
        let description = mark.write(&self.network);
        if *kind == Kind::Machine {
            return self.create_machine(step, &description, boot);
        }
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let mut body = match kind {
            Kind::Network => json!({}),
            Kind::InternetGateway => {
                json!({ "external_gateway_info": { "network_id": self.external()? } })
            }
            Kind::Subnet => self.subnet(site, name, &get("cidr"))?,
            Kind::Group => json!({}),
            Kind::Interface => {
                let group = self.need(Kind::Group, site, "gateway")?;
                let is_outer = !step.properties.contains_key("address");
                let side = if is_outer { "outside" } else { "inside" };
                let network = self.need(Kind::Network, site, side)?;
                let subnet = self.need(Kind::Subnet, site, side)?;
                let mut fixed = json!({ "subnet_id": subnet });
                if !is_outer {
                    fixed["ip_address"] = json!(get("address"));
                }
                let options = self.dhcp_opts(site, is_outer)?;
                json!({ "network_id": network, "fixed_ips": [fixed], "security_groups": [group],
                        "extra_dhcp_opts": options })
            }
            Kind::Address => json!({ "floating_network_id": self.external()? }),
            other => return Err(missing(*other, name)),
        };
        if *kind != Kind::Address {
            body["name"] = json!(format!("{} {site} {name}", self.network));
        }
        body["description"] = json!(description);
        let Some(path) = read::collection(*kind) else { return Err(missing(*kind, name)) };
        let key = read::key(path);
        let one = key.trim_end_matches('s');
        let body = json!({ one: body });
        let reply = self.call(Service::Network, "POST", path, &body)?;
        let its = reply.value[one]["id"].as_str().unwrap_or_default().to_owned();
        self.names.insert(its.clone(), step.id.clone());
        Ok(its)
    }

    fn ensure(&mut self, step: &Step, its: &str) -> Result<(), Failure> {
        let Id { kind, site, .. } = &step.id;
        let is = |project: &Self, key: &str| {
            let thing = project.things.get(&step.id);
            thing.and_then(|thing| thing.properties.get(key).cloned()).unwrap_or_default()
        };
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        match kind {
            Kind::InternetGateway if is(self, "external") == "no" => {
                let gateway = json!({ "network_id": self.external()? });
                let body = json!({ "router": { "external_gateway_info": gateway } });
                self.put(&format!("routers/{its}"), &body)
            }
            Kind::Group => self.set_rules(its, &get("ingress")),
            Kind::Interface => {
                let group = self.need(Kind::Group, site, "gateway")?;
                let is_outer = !step.properties.contains_key("address");
                // Neutron takes neither groups nor pairs for a port whose check is off.
                let mut port = json!({ "security_groups": [group],
                                       "port_security_enabled": true,
                                       "extra_dhcp_opts": self.dhcp_opts(site, is_outer)? });
                let passes = get("passes");
                if !passes.is_empty() && is(self, "passes") != passes {
                    let pairs: Vec<Value> =
                        passes.split(',').map(|to| json!({ "ip_address": to })).collect();
                    port["allowed_address_pairs"] = json!(pairs);
                }
                self.put(&format!("ports/{its}"), &json!({ "port": port }))
            }
            Kind::Address if is(self, "at") != get("at") => {
                let port = self.need(Kind::Interface, site, &get("at"))?;
                let body = json!({ "floatingip": { "port_id": port } });
                self.put(&format!("floatingips/{its}"), &body)
            }
            Kind::Machine => self.ensure_machine(step, its),
            _ => Ok(()),
        }
    }

    fn try_remove(&mut self, id: &Id) -> Result<(), Failure> {
        self.remove_once(id)
    }

    fn forget(&mut self, id: &Id) {
        self.things.remove(id);
    }

    fn meaning(&self, failure: &Failure) -> Meaning {
        match failure.code.as_str() {
            "404" => Meaning::Absent,
            "409" => Meaning::InUse,
            _ => Meaning::Other,
        }
    }
}

impl Project {
    fn need(&self, kind: Kind, site: &str, name: &str) -> Result<String, Failure> {
        self.its(kind, site, name).ok_or_else(|| missing(kind, name))
    }

    /// The site's subnet has no router, and keeps its gateways' addresses from others.
    fn subnet(&self, site: &str, name: &str, cidr: &str) -> Result<Value, Failure> {
        let network = self.need(Kind::Network, site, name)?;
        let mut body = json!({ "network_id": network, "ip_version": 4, "cidr": cidr });
        if name == "inside" {
            body["gateway_ip"] = Value::Null;
            if let Some((first, last)) = pool(cidr) {
                body["allocation_pools"] = json!([{ "start": first, "end": last }]);
            }
        }
        Ok(body)
    }

    /// What a gateway's interface hears by DHCP beside the subnet's own options. To the inner one
    /// the machines' routes are of harm: they lead to the gateway itself, which would then send
    /// there what is for other sites. It hears of its own network instead. Silence would not do:
    /// who hears nothing by one option of routes takes the other.
    fn dhcp_opts(&self, site: &str, is_outer: bool) -> Result<Value, Failure> {
        if is_outer {
            return Ok(json!([]));
        }
        let subnet = self.things.get(&Id::new(Kind::Subnet, site, "inside"));
        let cidr = subnet.and_then(|subnet| subnet.properties.get("cidr"));
        cidr.map(String::as_str).map(own_routes).ok_or_else(|| missing(Kind::Subnet, "inside"))
    }

    /// The network that leads out, if there is one and no other.
    fn external(&mut self) -> Result<String, Failure> {
        let all = self.list("networks?router:external=true", "networks")?;
        let ids: Vec<&str> = all.iter().filter_map(|one| one["id"].as_str()).collect();
        match ids[..] {
            [id] => Ok(id.to_owned()),
            [] => Err(Failure::new("Missing", "the cloud has no external network")),
            _ => Err(Failure::new(
                "Missing",
                "the cloud has several external networks; ask it \
                                              to show your project one",
            )),
        }
    }

    fn create_machine(
        &mut self,
        step: &Step,
        description: &str,
        boot: Option<&Boot>,
    ) -> Result<String, Failure> {
        let Id { site, name, .. } = &step.id;
        let Some(boot) = boot else { return Err(missing(Kind::Machine, name)) };
        let inner = self.need(Kind::Interface, site, name)?;
        let outer = self.need(Kind::Interface, site, &format!("{name}-outside"))?;
        let wanted = |key: &str| step.properties.get(key).cloned();
        let image = self.image(wanted("image").as_deref())?;
        let flavor = self.flavor(wanted("machine").as_deref())?;
        let mut metadata = json!({ "warren": description });
        for key in read::ASKED {
            if let Some(word) = wanted(key) {
                metadata[format!("warren-{key}")] = json!(word);
            }
        }
        let body = json!({ "server": {
            "name": name, "imageRef": image, "flavorRef": flavor, "metadata": metadata,
            "networks": [{ "port": outer }, { "port": inner }], "config_drive": true,
            "user_data": STANDARD.encode(&boot.user_data) } });
        let reply = self.call(Service::Compute, "POST", "servers", &body)?;
        Ok(reply.value["server"]["id"].as_str().unwrap_or_default().to_owned())
    }

    /// A machine that was there gets interfaces that were made since, and is started. One that was
    /// just made has them, and starts by itself.
    fn ensure_machine(&mut self, step: &Step, its: &str) -> Result<(), Failure> {
        let Some(thing) = self.things.get(&step.id) else { return Ok(()) };
        let is = |key: &str| thing.properties.get(key).cloned().unwrap_or_default();
        let is_stopped = is("state") == "stopped";
        if !is_stopped && is("state") != "running" {
            return Ok(());
        }
        let interfaces = is("interfaces");
        let wanted = step.properties.get("interfaces").map_or("", String::as_str);
        let has = |name: &str| interfaces.split(',').any(|known| known == name);
        for name in wanted.split(',').filter(|name| !name.is_empty() && !has(name)) {
            let port = self.need(Kind::Interface, &step.id.site, name)?;
            self.attach(its, &port)?;
        }
        if is_stopped {
            let path = format!("servers/{its}/action");
            self.call(Service::Compute, "POST", &path, &json!({ "os-start": null }))?;
        }
        Ok(())
    }

    /// Gives a machine a port. What became of one whose answer is lost is read back.
    fn attach(&mut self, its: &str, port: &str) -> Result<(), Failure> {
        let path = format!("servers/{its}/os-interface");
        let body = json!({ "interfaceAttachment": { "port_id": port } });
        match self.call(Service::Compute, "POST", &path, &body) {
            Err(failure) if !failure.is_lost => Err(failure),
            _ => Ok(()),
        }
    }

    /// An image by name or number; the newest of Debian 12 if none is said.
    fn image(&mut self, word: Option<&str>) -> Result<String, Failure> {
        let path = "images?sort=created_at:desc&limit=1000";
        let reply = self.call(Service::Image, "GET", path, &Value::Null)?;
        let mut all = reply.value["images"].as_array().into_iter().flatten();
        let is_meant = |image: &&Value| match word {
            Some(word) => image["id"] == word || image["name"] == word,
            None => image["name"].as_str().is_some_and(|name| {
                let name = name.to_lowercase();
                name.contains("debian") && name.contains("12")
            }),
        };
        let found = all.find(is_meant).and_then(|image| image["id"].as_str());
        found.map(str::to_owned).ok_or_else(|| {
            let word = word.unwrap_or("Debian 12");
            Failure::new("Missing", format!("the cloud has no image {word}; write image = \"…\""))
        })
    }

    /// A kind of machine by name or number; the smallest that is large enough if none is said.
    fn flavor(&mut self, word: Option<&str>) -> Result<String, Failure> {
        let reply = self.call(Service::Compute, "GET", "flavors/detail", &Value::Null)?;
        let all = reply.value["flavors"].as_array().into_iter().flatten();
        let is_meant = |one: &&Value| match word {
            Some(word) => one["id"] == word || one["name"] == word,
            None => one["ram"].as_u64() >= Some(MEMORY_MIB) && one["disk"].as_u64() >= Some(1),
        };
        let size = |one: &&Value| (one["ram"].as_u64(), one["disk"].as_u64());
        let found = all.filter(is_meant).min_by_key(size).and_then(|one| one["id"].as_str());
        found.map(str::to_owned).ok_or_else(|| {
            let word = word.unwrap_or("large enough");
            let what = format!("the cloud has no flavor {word}; write machine = \"…\"");
            Failure::new("Missing", what)
        })
    }

    pub(super) fn put(&mut self, path: &str, body: &Value) -> Result<(), Failure> {
        self.call(Service::Network, "PUT", path, body).map(drop)
    }

    /// Adds and removes rules of a group of ours until it lets in what is wanted.
    fn set_rules(&mut self, group: &str, wanted: &str) -> Result<(), Failure> {
        let path = format!("security-group-rules?security_group_id={group}&direction=ingress");
        let rules = self.list(&path, "security_group_rules")?;
        let wanted: Vec<&str> = wanted.split(',').collect();
        for rule in &rules {
            let its = rule["id"].as_str().unwrap_or_default();
            if !wanted.contains(&read::rule(rule).as_str()) {
                self.delete("security-group-rules", its)?;
            }
        }
        let known: Vec<String> = rules.iter().map(read::rule).collect();
        for rule in wanted.iter().filter(|rule| !known.iter().any(|one| one == *rule)) {
            self.add_rule(group, rule, "")?;
        }
        Ok(())
    }

    /// Adds a rule as the plan writes it; one that is there is no error.
    fn add_rule(&mut self, group: &str, rule: &str, word: &str) -> Result<(), Failure> {
        let words: Vec<&str> = rule.split(' ').collect();
        let from = words.last().copied().unwrap_or_default();
        let mut body = json!({ "security_group_id": group, "direction": "ingress",
                               "ethertype": "IPv4", "remote_ip_prefix": from,
                               "description": word });
        if let [protocol, ports, _] = words[..] {
            let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
            body["protocol"] = json!(protocol);
            body["port_range_min"] = json!(low.parse::<u32>().unwrap_or_default());
            body["port_range_max"] = json!(high.parse::<u32>().unwrap_or_default());
        }
        let body = json!({ "security_group_rule": body });
        for tries in 0.. {
            match self.call(Service::Network, "POST", "security-group-rules", &body) {
                // The same rule is refused a second time, so it may be asked for again.
                Err(failure) if failure.is_lost && tries < TRIES => {}
                Err(failure) if failure.code != "409" => return Err(failure),
                _ => break,
            }
        }
        Ok(())
    }

    /// What lets other sites into the project's default group.
    fn set_machine_rules(&mut self, step: &Step) -> Result<(), Failure> {
        let groups = self.list("security-groups?name=default", "security_groups")?;
        let group = groups.first().and_then(|group| group["id"].as_str()).map(str::to_owned);
        let group = group.ok_or_else(|| missing(Kind::MachineRule, "default"))?;
        let word = format!("warren {}", self.network);
        let from = step.properties.get("from").cloned().unwrap_or_default();
        let wanted: Vec<&str> = from.split(',').collect();
        for rule in self.list("security-group-rules", "security_group_rules")? {
            let prefix = rule["remote_ip_prefix"].as_str().unwrap_or_default();
            if rule["description"] == word && !wanted.contains(&prefix) {
                let its = rule["id"].as_str().unwrap_or_default().to_owned();
                self.delete("security-group-rules", &its)?;
            }
        }
        for from in wanted {
            self.add_rule(&group, &format!("all {from}"), &word)?;
        }
        Ok(())
    }

    fn join_router(&mut self, step: &Step) -> Result<(), Failure> {
        let site = &step.id.site;
        let router = self.need(Kind::InternetGateway, site, "router")?;
        let subnet = self.need(Kind::Subnet, site, "outside")?;
        let body = json!({ "subnet_id": subnet });
        match self.put(&format!("routers/{router}/add_router_interface"), &body) {
            // It is there already.
            Err(failure) if failure.code != "400" && failure.code != "409" => Err(failure),
            _ => Ok(()),
        }
    }

    /// Sets one route of the site's subnet, and leaves the others.
    fn set_routes(&mut self, step: &Step) -> Result<(), Failure> {
        let site = &step.id.site;
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let via = get("via");
        let thing = self.things.get(&Id::new(Kind::Interface, site, &via));
        let hop = thing.and_then(|thing| thing.properties.get("address").cloned());
        // What a pair shares is on no interface.
        let shared = via.parse::<Ipv4Addr>().ok().map(|address| address.to_string());
        let hop = hop.or(shared).ok_or_else(|| missing(Kind::Interface, &via))?;
        self.change_routes(site, &get("to"), Some(&hop))
    }

    pub(super) fn change_routes(
        &mut self,
        site: &str,
        to: &str,
        hop: Option<&str>,
    ) -> Result<(), Failure> {
        let subnet = self.need(Kind::Subnet, site, "inside")?;
        let path = format!("subnets/{subnet}");
        let reply = self.call(Service::Network, "GET", &path, &Value::Null)?;
        let routes = reply.value["subnet"]["host_routes"].as_array().cloned();
        let mut routes = routes.unwrap_or_default();
        routes.retain(|route| route["destination"] != to);
        if let Some(hop) = hop {
            routes.push(json!({ "destination": to, "nexthop": hop }));
        }
        self.put(&path, &json!({ "subnet": { "host_routes": routes } }))
    }
}

/// A network that is reached without a hop, as options of routes say it.
pub(crate) fn own_route(cidr: &str) -> String {
    format!("{cidr},0.0.0.0")
}

/// What a gateway's inner interface hears by DHCP in place of its machines' routes.
fn own_routes(cidr: &str) -> Value {
    let option = |name| json!({ "opt_name": name, "opt_value": own_route(cidr) });
    Value::Array(ROUTE_OPTIONS.map(option).into())
}

fn missing(kind: Kind, name: &str) -> Failure {
    Failure::new("Missing", format!("{} {name} is not there; apply again", kind.word()))
}

/// The addresses that a subnet gives to machines: all but the first, the gateways' two and the one
/// that these share, and what is behind those.
pub(crate) fn pool(cidr: &str) -> Option<(String, String)> {
    let network: Prefix = cidr.parse().ok()?;
    let IpAddr::V4(address) = network.address() else { return None };
    let len = 1_u32.checked_shl(32 - u32::from(network.bits()))?;
    let last = 254.min(len.checked_sub(2)?).checked_sub(3)?;
    let at = |offset: u32| Ipv4Addr::from_bits(address.to_bits() + offset).to_string();
    Some((at(1), at(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_hears_of_its_own_network_by_both_options_of_routes() {
        let told = own_routes("10.3.0.0/24");
        let all: Vec<&Value> = told.as_array().unwrap().iter().collect();
        let names: Vec<&str> = all.iter().filter_map(|one| one["opt_name"].as_str()).collect();
        assert_eq!(names, ROUTE_OPTIONS);
        assert!(all.iter().all(|one| one["opt_value"] == "10.3.0.0/24,0.0.0.0"), "{told}");
    }

    #[test]
    fn machines_never_get_the_gateways_addresses() {
        let text = |cidr| pool(cidr).map(|(first, last)| format!("{first} {last}"));
        assert_eq!(text("10.3.0.0/24").unwrap(), "10.3.0.1 10.3.0.251");
        assert_eq!(text("10.3.0.0/28").unwrap(), "10.3.0.1 10.3.0.11");
        assert_eq!(text("10.3.16.0/20").unwrap(), "10.3.16.1 10.3.16.251");
        assert_eq!(text("x"), None);
    }
}
