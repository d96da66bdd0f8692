//! What is missing at Azure is made, and what is different is changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use sites::{Id, Kind, Step};

use super::Subscription;
use super::read::{
    self, COMPUTE_API, NETWORK_API, RESOURCES_API, TAG_BEGUN, TAG_IDENTITY, TAG_IMAGE, TAG_MADE,
    TAG_NETWORK, TAG_NUMBER, TAG_ROLE, TAG_SITE,
};
use crate::make::{Maker, Meaning};
use crate::place::Boot;
use crate::retry::{Failure, now_s};

/// Debian's own image where the file names none.
const IMAGE: &str = "Debian:debian-12:12:latest";
/// Whom Azure wants to be on every machine. Nobody logs in as it: its key is thrown away.
const USER: &str = "warren";

impl Maker for Subscription {
    fn look_again(&mut self, id: &Id) -> Result<(), Failure> {
        match id.kind {
            Kind::ResourceGroup => self.look_at_group(&id.site),
            Kind::Subnet => self.look(Kind::Network, &id.site),
            Kind::Route => self.look(Kind::Table, &id.site),
            kind => self.look(kind, &id.site),
        }
    }

    fn is_part(&self, kind: Kind) -> bool {
        kind == Kind::Route
    }

    fn set(&mut self, step: &Step) -> Result<(), Failure> {
        let Id { site, name, .. } = &step.id;
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let via = self.things.get(&Id::new(Kind::Interface, site, get("via")));
        let hop = via.and_then(|thing| thing.properties.get("address").cloned());
        let hop = hop.ok_or_else(|| missing(Kind::Interface, &get("via")))?;
        let path = self.id_of(Kind::Route, site, name)?;
        let body = json!({ "properties": { "addressPrefix": get("to"),
                           "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop } });
        self.call("PUT", &path, NETWORK_API, &body).map(drop)
    }

    fn create(
        &mut self,
        step: &Step,
        number: Option<u32>,
        boot: Option<&Boot>,
    ) -> Result<String, Failure> {
        let Id { kind, site, name } = &step.id;
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let path = self.id_of(*kind, site, name)?;
        let mut tags = self.tags(site, name);
        if let Some(number) = number.filter(|_| *kind == Kind::Network) {
            tags[TAG_NUMBER] = json!(number.to_string());
        }
        let mut body = match kind {
            Kind::ResourceGroup => json!({}),
            Kind::Network => {
                json!({ "properties": { "addressSpace": { "addressPrefixes": [get("cidr")] } } })
            }
            Kind::Subnet => {
                let body = json!({ "properties": { "addressPrefix": get("cidr") } });
                self.call("PUT", &path, NETWORK_API, &body)?;
                return Ok(path);
            }
            Kind::Group => {
                json!({ "properties": { "securityRules": read::rules(&get("ingress")) } })
            }
            Kind::Table => json!({ "properties": { "disableBgpRoutePropagation": false } }),
            Kind::Interface => self.interface(site, &get("address"), None)?,
            Kind::Address => json!({ "sku": { "name": "Standard" }, "properties": {
                "publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4" } }),
            Kind::Machine => self.machine(step, boot, &mut tags)?,
            other => return Err(missing(*other, name)),
        };
        body["location"] = json!(self.region);
        body["tags"] = tags;
        let api = match kind {
            Kind::ResourceGroup => RESOURCES_API,
            Kind::Machine => COMPUTE_API,
            _ => NETWORK_API,
        };
        self.call("PUT", &path, api, &body)?;
        Ok(path)
    }

    fn ensure(&mut self, step: &Step, its: &str) -> Result<(), Failure> {
        let Id { kind, site, name } = &step.id;
        let known = self.things.get(&step.id).map(|thing| thing.properties.clone());
        let is = |key: &str| known.as_ref().and_then(|all| all.get(key).cloned());
        let get = |key: &str| step.properties.get(key).cloned().unwrap_or_default();
        let differs = |key: &str| is(key).is_some_and(|value| value != get(key));
        match kind {
            Kind::Group if ["ingress", "egress", "rest"].into_iter().any(differs) => {
                let body = json!({ "location": self.region, "tags": self.tags(site, name),
                    "properties": { "securityRules": read::rules(&get("ingress")) } });
                self.call("PUT", its, NETWORK_API, &body).map(drop)
            }
            Kind::Interface if ["forwarding", "group"].into_iter().any(differs) => {
                let now = self.call("GET", its, NETWORK_API, &Value::Null)?;
                let first = &now["properties"]["ipConfigurations"][0]["properties"];
                let public = first["publicIPAddress"]["id"].as_str().map(str::to_owned);
                self.put_interface(site, name, &get("address"), public.as_deref())
            }
            Kind::Address if is("at").as_deref() != Some(name) => {
                let interface = self.things.get(&Id::new(Kind::Interface, site, name.clone()));
                let address = interface.and_then(|thing| thing.properties.get("address").cloned());
                let address = address.ok_or_else(|| missing(Kind::Interface, name))?;
                let public = self.id_of(Kind::Address, site, name)?;
                self.put_interface(site, name, &address, Some(&public))
            }
            Kind::Table if is("subnet").as_deref() != Some("subnet") => {
                self.set_table(site, Some(its))
            }
            Kind::Machine if is("state").as_deref() == Some("stopped") => {
                let path = format!("{its}/start");
                self.call("POST", &path, COMPUTE_API, &Value::Null).map(drop)
            }
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
        let says = |word: &str| failure.what.contains(word);
        match failure.code.as_str() {
            "404" => Meaning::Absent,
            _ if says("InUse") || says("NicReserved") || says("CannotBeDeleted") => Meaning::InUse,
            _ => Meaning::Other,
        }
    }
}

impl Subscription {
    pub(super) fn tags(&self, site: &str, role: &str) -> Value {
        json!({ TAG_NETWORK: self.network, TAG_SITE: site, TAG_ROLE: role })
    }

    /// The body of a gateway's interface: forwarding on, the gateway's group, a fixed address.
    fn interface(
        &mut self,
        site: &str,
        address: &str,
        public: Option<&str>,
    ) -> Result<Value, Failure> {
        let subnet = self.id_of(Kind::Subnet, site, "subnet")?;
        let group = self.id_of(Kind::Group, site, "gateway")?;
        let mut inner = json!({ "privateIPAllocationMethod": "Static", "privateIPAddress": address,
                                "subnet": { "id": subnet }, "primary": true });
        if let Some(public) = public {
            inner["publicIPAddress"] = json!({ "id": public });
        }
        Ok(json!({ "properties": { "enableIPForwarding": true,
            "networkSecurityGroup": { "id": group },
            "ipConfigurations": [{ "name": "inside", "properties": inner }] } }))
    }

    pub(super) fn put_interface(
        &mut self,
        site: &str,
        name: &str,
        address: &str,
        public: Option<&str>,
    ) -> Result<(), Failure> {
        let mut body = self.interface(site, address, public)?;
        body["location"] = json!(self.region);
        body["tags"] = self.tags(site, name);
        let path = self.id_of(Kind::Interface, site, name)?;
        self.call("PUT", &path, NETWORK_API, &body).map(drop)
    }

    /// Gives the site's subnet a table of routes, or none. All else of it stays.
    pub(super) fn set_table(&mut self, site: &str, table: Option<&str>) -> Result<(), Failure> {
        let path = self.id_of(Kind::Subnet, site, "subnet")?;
        let subnet = self.call("GET", &path, NETWORK_API, &Value::Null)?;
        let mut body = read::writable(&subnet);
        match (table, body["properties"].as_object_mut()) {
            (Some(table), _) => body["properties"]["routeTable"] = json!({ "id": table }),
            (None, Some(all)) => drop(all.remove("routeTable")),
            (None, None) => {}
        }
        self.call("PUT", &path, NETWORK_API, &body).map(drop)
    }

    fn machine(
        &mut self,
        step: &Step,
        boot: Option<&Boot>,
        tags: &mut Value,
    ) -> Result<Value, Failure> {
        let Id { site, name, .. } = &step.id;
        let Some(boot) = boot else { return Err(missing(Kind::Machine, name)) };
        let interface = self.id_of(Kind::Interface, site, name)?;
        if let Some(image) = step.properties.get("image") {
            tags[TAG_IMAGE] = json!(image);
        }
        if let Some(word) = step.properties.get("made") {
            tags[TAG_MADE] = json!(word);
        }
        tags[TAG_BEGUN] = json!(now_s().to_string());
        let image = step.properties.get("image").map_or(IMAGE, String::as_str);
        let size = step.properties.get("machine").cloned().unwrap_or_default();
        let keys = ["", "home", USER, ".ssh", "authorized_keys"].join("/");
        let mut body = json!({ "properties": {
            "hardwareProfile": { "vmSize": size },
            "storageProfile": { "imageReference": reference(image)?,
                "osDisk": { "createOption": "FromImage", "deleteOption": "Delete",
                            "managedDisk": { "storageAccountType": "Standard_LRS" } } },
            "osProfile": { "computerName": name, "adminUsername": USER,
                "customData": STANDARD.encode(&boot.user_data),
                "linuxConfiguration": { "disablePasswordAuthentication": true,
                    "ssh": { "publicKeys": [{ "path": keys, "keyData": nobodys_key()? }] } } },
            "networkProfile": { "networkInterfaces": [{ "id": interface,
                "properties": { "primary": true, "deleteOption": "Detach" } }] } } });
        if let Some(role) = step.properties.get("role") {
            tags[TAG_IDENTITY] = json!(role);
            body["identity"] = json!({ "type": "UserAssigned", "userAssignedIdentities": {} });
            body["identity"]["userAssignedIdentities"][role] = json!({});
        }
        Ok(body)
    }
}

/// An image by its four names with colons between, or by its identifier.
fn reference(image: &str) -> Result<Value, Failure> {
    if image.starts_with('/') {
        return Ok(json!({ "id": image }));
    }
    match image.split(':').collect::<Vec<&str>>()[..] {
        [publisher, offer, sku, version] => Ok(json!({ "publisher": publisher, "offer": offer,
                                                       "sku": sku, "version": version })),
        _ => {
            let what =
                format!("image {image:?} is no PUBLISHER:OFFER:SKU:VERSION and no identifier");
            Err(Failure::new("Image", what))
        }
    }
}

/// A key of SSH whose private half is thrown away.
fn nobodys_key() -> Result<String, Failure> {
    let failed = || Failure::new("Random", "this machine has no randomness");
    let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| failed())?;
    let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).map_err(|_| failed())?;
    let mut bytes = Vec::new();
    for part in [b"ssh-ed25519".as_slice(), pair.public_key().as_ref()] {
        bytes.extend((part.len() as u32).to_be_bytes());
        bytes.extend(part);
    }
    Ok(format!("ssh-ed25519 {} nobody", STANDARD.encode(bytes)))
}

fn missing(kind: Kind, name: &str) -> Failure {
    Failure::new("Missing", format!("{} {name} is not there; apply again", kind.word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_four_names_or_an_identifier() {
        assert_eq!(reference(IMAGE).unwrap()["offer"], "debian-12");
        assert_eq!(reference("/subscriptions/s/x").unwrap()["id"], "/subscriptions/s/x");
        assert!(reference("debian").unwrap_err().what.contains("PUBLISHER:OFFER:SKU:VERSION"));
    }

    #[test]
    fn a_key_of_nobody_is_one_that_ssh_reads_and_another_each_time() {
        let key = nobodys_key().unwrap();
        let bytes = STANDARD.decode(key.split(' ').nth(1).unwrap()).unwrap();
        assert_eq!(bytes.len(), 4 + 11 + 4 + 32);
        assert_ne!(key, nobodys_key().unwrap());
    }
}
