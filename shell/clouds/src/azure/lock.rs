//! The lock of a site at Azure. There everything is written over whatever is there, but for one
//! thing: two rules of a security group cannot have one priority. So the lock is a group that is at
//! no interface, and who changes a site has a rule in it, called by its owner, of the one priority
//! that all take. Its description says whose it is and until when.
//!
//! Who makes the group may wipe a rule that was set at the same moment by somebody who made it too.
//! So who made it looks again after a while whether its own rule is still there.

use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use sites::Kind;

use super::Subscription;
use super::read::{NETWORK_API, RESOURCES_API, list, text};
use crate::lock::{Held, LOCK_S, TRIES, Who, refused};
use crate::retry::{Failure, now_s};

/// The group's name and role.
pub(super) const ROLE: &str = "warren-lock";
/// The priority that everybody takes.
const PRIORITY: u32 = 4000;
/// Letters of a description.
const DESCRIPTION_MAX: usize = 140;
/// After so long nobody makes the group who saw that there was none.
const SETTLE: Duration = Duration::from_secs(3);

impl Subscription {
    pub(super) fn lock_id(&mut self, site: &str) -> Result<String, Failure> {
        self.id_of(Kind::Group, site, ROLE)
    }

    /// Takes the lock of a site.
    ///
    /// # Errors
    /// Who has it, or what Azure said.
    pub(super) fn take_lock(&mut self, site: &str, who: &Who) -> Result<Held, Failure> {
        let group = self.lock_id(site)?;
        let was_made = self.make_lock(site, &group)?;
        let name = name_of(who);
        let path = format!("{group}/securityRules/{name}");
        for _ in 0..TRIES {
            let failure = match self.put_rule(&path, who) {
                Ok(()) if !was_made => return Ok(Held::new(&name, path)),
                Ok(()) => {
                    std::thread::sleep(SETTLE);
                    match self.call("GET", &path, NETWORK_API, &Value::Null) {
                        Ok(_) => return Ok(Held::new(&name, path)),
                        Err(failure) if failure.code == "404" => continue,
                        Err(failure) => return Err(failure),
                    }
                }
                Err(failure) => failure,
            };
            if !failure.what.contains("SecurityRuleConflict") {
                return Err(failure);
            }
            let known = self.call("GET", &group, NETWORK_API, &Value::Null)?;
            let Some(rule) = list(&known["properties"]["securityRules"]).next().cloned() else {
                continue;
            };
            let said = text(&rule["properties"]["description"]);
            let (until, by) = said.split_once(' ').unwrap_or_default();
            let left_s = until.parse().unwrap_or(0_u64).saturating_sub(now_s());
            if let Some(what) = refused(site, by, left_s, who) {
                return Err(Failure::new("Locked", what));
            }
            let path = format!("{group}/securityRules/{}", text(&rule["name"]));
            self.call("DELETE", &path, NETWORK_API, &Value::Null)?;
        }
        let what = format!("others take the lock of {site} all the time; try again");
        Err(Failure::new("Locked", what))
    }

    /// Makes the group of a lock where there is none, and what it is in.
    fn make_lock(&mut self, site: &str, group: &str) -> Result<bool, Failure> {
        match self.call("GET", group, NETWORK_API, &Value::Null) {
            Ok(_) => return Ok(false),
            Err(failure) if failure.code != "404" => return Err(failure),
            Err(_) => {}
        }
        let holder = self.holder(site)?;
        let mut body = json!({ "location": self.region, "tags": self.tags(site, "group") });
        if let Err(failure) = self.call("GET", &holder, RESOURCES_API, &Value::Null) {
            match failure.code.as_str() {
                "404" => drop(self.call("PUT", &holder, RESOURCES_API, &body)?),
                _ => return Err(failure),
            }
        }
        body["tags"] = self.tags(site, ROLE);
        self.call("PUT", group, NETWORK_API, &body)?;
        Ok(true)
    }

    fn put_rule(&mut self, path: &str, who: &Who) -> Result<(), Failure> {
        let until = now_s() + LOCK_S;
        let mut description = format!("{until} {who}");
        description.truncate(DESCRIPTION_MAX);
        let body = json!({ "properties": { "priority": PRIORITY, "direction": "Inbound",
            "access": "Deny", "protocol": "*", "sourceAddressPrefix": "*", "sourcePortRange": "*",
            "destinationAddressPrefix": "*", "destinationPortRange": "*",
            "description": description } });
        self.call("PUT", path, NETWORK_API, &body).map(drop)
    }

    /// A sign that its owner is alive, if it is time for one.
    pub(super) fn renew_lock(&mut self, held: &mut Held) -> Result<(), Failure> {
        if !held.is_due() {
            return Ok(());
        }
        self.put_rule(&held.its.clone(), &Who::this())
    }

    /// Gives the lock back; one that went with its resource group is given back.
    pub(super) fn give_lock(&mut self, held: &Held) -> Result<(), Failure> {
        match self.call("DELETE", &held.its, NETWORK_API, &Value::Null) {
            Err(failure) if failure.code != "404" => Err(failure),
            _ => Ok(()),
        }
    }
}

/// What an owner's rule is called.
fn name_of(who: &Who) -> String {
    let digest = digest(&SHA256, who.to_string().as_bytes());
    let letters = digest.as_ref().iter().take(10).map(|byte| format!("{byte:02x}"));
    format!("held-{}", letters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owners_rule_has_one_name_and_its_description_fits() {
        let who = Who::this();
        assert_eq!(name_of(&who), name_of(&who));
        assert!(name_of(&who).len() <= 80);
        // Whom a cut description names is still known by its machine and process.
        assert!(format!("{} {who}", u64::from(u32::MAX)).is_ascii());
    }
}
