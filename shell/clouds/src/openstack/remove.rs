//! What is not wanted at an OpenStack cloud any more is removed, each after what hangs on it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sites::{Id, Kind};

use super::{Project, Service, read};
use crate::retry::Failure;

const ASK_EVERY: Duration = Duration::from_secs(1);
/// A machine ends within so long.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

impl Project {
    pub(super) fn remove_once(&mut self, id: &Id) -> Result<(), Failure> {
        let Some(thing) = self.things.get(id).cloned() else { return Ok(()) };
        let its = thing.its.as_str();
        match id.kind {
            Kind::Route => self.change_routes(&id.site, &id.name, None),
            Kind::MachineRule => {
                // The project's sites share it: the last one takes it away.
                let is_other = |other: &Id| other.kind == Kind::Network && other.site != id.site;
                if self.things.keys().any(is_other) {
                    return Ok(());
                }
                let word = format!("warren {}", self.network);
                for rule in self.list("security-group-rules", "security_group_rules")? {
                    if rule["description"] == word {
                        let its = rule["id"].as_str().unwrap_or_default().to_owned();
                        self.delete("security-group-rules", &its)?;
                    }
                }
                Ok(())
            }
            Kind::Table => {
                let Some(subnet) = self.its(Kind::Subnet, &id.site, "outside") else {
                    return Ok(());
                };
                let path = format!("routers/{its}/remove_router_interface");
                self.put(&path, &json!({ "subnet_id": subnet }))
            }
            Kind::Machine => {
                let path = format!("servers/{its}");
                self.call(Service::Compute, "DELETE", &path, &Value::Null)?;
                self.wait_for_end(&path)
            }
            kind => match read::collection(kind) {
                Some(path) => self.delete(path, its),
                None => Ok(()),
            },
        }
    }

    fn wait_for_end(&mut self, path: &str) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            match self.call(Service::Compute, "GET", path, &Value::Null) {
                Err(failure) if failure.code == "404" => return Ok(()),
                Err(failure) => return Err(failure),
                Ok(_) if begin.elapsed() > ENDS_WITHIN => {
                    let what = format!("it does not end within {} s", ENDS_WITHIN.as_secs());
                    return Err(Failure::new("Waiting", what));
                }
                Ok(_) => std::thread::sleep(ASK_EVERY),
            }
        }
    }
}
