//! The same sites for who has Terraform or OpenTofu make things: a file in their JSON syntax out of
//! the resources that [`sites::desired`] wants, with the user data of each gateway in it.
//!
//! Join keys are in no file: each gateway's is a variable, made by `warren key create`. What only
//! Warren can say is not in it: that the server approves a gateway's networks.

mod aws;
mod azure;
mod openstack;

use control::name::SITES_TAG;
use serde_json::{Map, Value, json};
use sites::{File, Id, Kind, Known, Numbering, Provider, Resource, Site};

use crate::Lead;
use crate::server::KEY_S;
use crate::user_data::{Start, user_data};

/// What stands in user data until Terraform knows the key.
const KEY: &str = "@JOIN-KEY@";

/// A file of Terraform that grows.
#[derive(Default)]
struct Sheet {
    resources: Map<String, Value>,
    data: Map<String, Value>,
    variables: Map<String, Value>,
    locals: Map<String, Value>,
    providers: Map<String, Value>,
    required: Map<String, Value>,
}

impl Sheet {
    fn add(&mut self, kind: &str, name: &str, body: Value) {
        let of_kind = self.resources.entry(kind).or_insert_with(|| json!({}));
        of_kind[name] = body;
    }

    fn look_up(&mut self, kind: &str, name: &str, body: Value) {
        let of_kind = self.data.entry(kind).or_insert_with(|| json!({}));
        of_kind[name] = body;
    }

    fn variable(&mut self, name: &str, told: &str, is_secret: bool) -> String {
        let body = json!({ "type": "string", "description": told, "sensitive": is_secret });
        self.variables.insert(name.to_owned(), body);
        format!("${{var.{name}}}")
    }
}

/// One site of the file, and what is known of it.
struct Scene<'s> {
    file: &'s File,
    site: &'s Site,
    /// Its provider as Terraform calls it, with the region.
    alias: String,
}

impl Scene<'_> {
    /// What Terraform calls a resource.
    fn name(&self, name: &str) -> String {
        plain(&format!("{}_{name}", self.site.name))
    }

    /// A reference to a property of another resource.
    fn at(&self, kind: &str, name: &str, property: &str) -> String {
        format!("${{{kind}.{}.{property}}}", self.name(name))
    }

    /// The marks by which `warren sites` knows it as its own.
    fn tags(&self, id: &Id, number: Option<u32>) -> Value {
        let mut tags = json!({ "warren:net": self.file.network, "warren:site": id.site,
                               "warren:role": id.name });
        if let Some(number) = number.filter(|_| id.kind == Kind::Network) {
            tags["warren:number"] = json!(number.to_string());
        }
        tags
    }
}

/// A name of letters, digits and `_`.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// Text that Terraform takes as it stands.
fn literal(text: &str) -> String {
    text.replace("${", "$${").replace("%{", "%%{")
}

fn get(resource: &Resource, key: &str) -> String {
    resource.properties.get(key).cloned().unwrap_or_default()
}

/// The rules of a group: protocol (nothing for all), first and last port, from where.
fn rules(ingress: &str) -> Vec<(Option<String>, u16, u16, String)> {
    let read = |rule: &str| {
        let words: Vec<&str> = rule.split(' ').collect();
        match words[..] {
            [protocol, ports, from] => {
                let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
                let number = |text: &str| text.parse().unwrap_or_default();
                (Some(protocol.to_owned()), number(low), number(high), from.to_owned())
            }
            [_, from] => (None, 0, 0, from.to_owned()),
            _ => (None, 0, 0, String::new()),
        }
    };
    ingress.split(',').map(read).collect()
}

/// The whole file. `digest` is that of the program that gateways get.
#[must_use]
pub fn terraform(file: &File, numbering: &Numbering, digest: &str) -> Value {
    let known = Known { program: digest.to_owned(), ..Known::default() };
    let wanted = sites::desired(file, numbering, &known);
    let mut sheet = Sheet::default();
    let mut notes = vec![
        "Made by `warren sites export --terraform`. `warren sites apply` makes the same by itself."
            .to_owned(),
    ];
    for (index, site) in file.sites.iter().enumerate() {
        let region = site.region.as_deref().unwrap_or("default");
        let (word, source) = match site.provider {
            Provider::Aws => ("aws", "hashicorp/aws"),
            Provider::Azure => ("azurerm", "hashicorp/azurerm"),
            Provider::OpenStack => ("openstack", "terraform-provider-openstack/openstack"),
            Provider::Ssh => {
                notes.push(format!("{}: its machines are there; apply joins them", site.name));
                continue;
            }
        };
        let alias = plain(&format!("r_{region}"));
        sheet.required.insert(word.to_owned(), json!({ "source": source }));
        let scene = Scene { file, site, alias: format!("{word}.{alias}") };
        provider(&mut sheet, site, word, &alias);
        let place = &numbering.places[index];
        let meant = wanted.iter().filter(|one| one.id.site == site.name);
        for one in meant {
            if one.id.kind == Kind::Machine {
                let lead = Lead::of(file, numbering, index, &one.id.name);
                let routes = place.offers();
                keyed(&mut sheet, &scene, one, &routes, digest, place.number, lead.as_ref());
            }
            if one.id.kind == Kind::Approval {
                let name = &one.id.name;
                let routes = get(one, "routes");
                notes.push(format!("When {name} has joined: warren route approve {name} {routes}"));
            }
            match site.provider {
                Provider::Aws => aws::add(&mut sheet, &scene, one, place.number),
                Provider::Azure => azure::add(&mut sheet, &scene, one, place.number),
                Provider::OpenStack => openstack::add(&mut sheet, &scene, one, place.number),
                Provider::Ssh => {}
            }
        }
    }
    let mut whole = json!({ "//": notes });
    for (key, part) in [
        ("variable", sheet.variables),
        ("locals", sheet.locals),
        ("provider", sheet.providers),
        ("data", sheet.data),
        ("resource", sheet.resources),
    ] {
        if !part.is_empty() {
            whole[key] = Value::Object(part);
        }
    }
    if !sheet.required.is_empty() {
        whole["terraform"] = json!({ "required_providers": sheet.required });
    }
    whole
}

fn provider(sheet: &mut Sheet, site: &Site, word: &str, alias: &str) {
    let mut body = json!({ "alias": alias });
    if let Some(region) = site.region.as_ref().filter(|_| word != "azurerm") {
        body["region"] = json!(region);
    }
    if word == "azurerm" {
        body["features"] = json!({});
    }
    let all = sheet.providers.entry(word).or_insert_with(|| json!([]));
    if let Some(list) = all.as_array_mut()
        && !list.iter().any(|known| known["alias"] == alias)
    {
        list.push(body);
    }
}

/// The user data of a gateway, and the variable that has its join key.
fn keyed(
    sheet: &mut Sheet,
    scene: &Scene<'_>,
    machine: &Resource,
    routes: &str,
    digest: &str,
    number: Option<u32>,
    lead: Option<&Lead>,
) {
    let Id { site, name, .. } = &machine.id;
    let tag = json!({ "network": scene.file.network, "site": site, "number": number,
                      "provider": scene.site.provider.word(), "installed": true })
    .to_string();
    let shared = machine.properties.get("shared").and_then(|address| address.parse().ok());
    let start = Start { name, routes, tag: &tag, token: KEY, digest, lead, shared };
    let told = format!(
        "a join key that works once, for {name}: warren key create --tag {SITES_TAG} \
         --tag tag:site-{site} --expires {KEY_S}s"
    );
    let variable = format!("join_key_{}", plain(name));
    sheet.variable(&variable, &told, true);
    let text = literal(&user_data(scene.file, &start));
    sheet.locals.insert(format!("user_data_{}", plain(name)), json!(text));
}

/// What a gateway's machine begins with, as an expression.
fn begins_with(machine: &Resource) -> String {
    let name = plain(&machine.id.name);
    format!("replace(local.user_data_{name}, \"{KEY}\", var.join_key_{name})")
}

#[cfg(test)]
mod tests;
