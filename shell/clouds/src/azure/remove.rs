//! What is not wanted at Azure any more is removed, each after what hangs on it.

use serde_json::Value;
use sites::{Id, Kind};

use super::Subscription;
use super::read::{COMPUTE_API, NETWORK_API, RESOURCES_API, text};
use crate::retry::Failure;

impl Subscription {
    pub(super) fn remove_once(&mut self, id: &Id) -> Result<(), Failure> {
        let Some(thing) = self.things.get(id).cloned() else { return Ok(()) };
        let its = thing.its.as_str();
        match id.kind {
            Kind::Machine => self.call("DELETE", its, COMPUTE_API, &Value::Null).map(drop),
            Kind::ResourceGroup => self.remove_group(id, its),
            Kind::Address => {
                self.free(id, its)?;
                self.call("DELETE", its, NETWORK_API, &Value::Null).map(drop)
            }
            Kind::Table => {
                self.set_table(&id.site, None)?;
                self.call("DELETE", its, NETWORK_API, &Value::Null).map(drop)
            }
            _ => self.call("DELETE", its, NETWORK_API, &Value::Null).map(drop),
        }
    }

    /// Takes a public address from the interface that has it.
    fn free(&mut self, id: &Id, its: &str) -> Result<(), Failure> {
        let now = self.call("GET", its, NETWORK_API, &Value::Null)?;
        let at = self.interface_of(&now);
        let interface = self.things.get(&Id::new(Kind::Interface, &id.site, at.clone()));
        let address = interface.and_then(|thing| thing.properties.get("address").cloned());
        match address {
            Some(address) => self.put_interface(&id.site, &at, &address, None),
            None => Ok(()),
        }
    }

    /// A resource group takes with it whatever is in it, so it goes only when nothing is but our
    /// lock.
    fn remove_group(&mut self, id: &Id, its: &str) -> Result<(), Failure> {
        let locks = self.lock_id(&id.site)?;
        for one in self.list(&format!("{its}/resources"), RESOURCES_API)? {
            if !text(&one["id"]).eq_ignore_ascii_case(&locks) {
                let name = text(&one["id"]);
                let what = format!("InUse: {name} is in it, which Warren did not make");
                return Err(Failure::new("InUse", what));
            }
        }
        self.call("DELETE", its, RESOURCES_API, &Value::Null).map(drop)
    }
}
