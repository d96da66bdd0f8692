//! The lock of a site at an OpenStack cloud is a rule of the project's default group that lets out
//! what is let out anyway, toward one port of an address for documentation (RFC 5737): neutron
//! refuses the same rule twice. Its description says whose it is and until when.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{Project, Service};
use crate::lock::{Held, TRIES, Who, refused};
use crate::retry::{Failure, now_s};

/// It cannot be renewed, so it ends later than others.
const LOCK_S: u64 = 1800;

impl Project {
    pub(super) fn take_lock(&mut self, site: &str, who: &Who) -> Result<Held, Failure> {
        let groups = self.list("security-groups?name=default", "security_groups")?;
        let group = groups.first().and_then(|group| group["id"].as_str());
        let group = group.ok_or_else(|| Failure::new("Missing", "there is no default group"))?;
        let name = format!("warren-lock {} {site}", self.network);
        let (to, port) = place(&name);
        for _ in 0..TRIES {
            let until = now_s() + LOCK_S;
            let description = format!("{name} {until} {who}");
            let rule = json!({ "security_group_id": group, "direction": "egress",
                               "ethertype": "IPv4", "protocol": "udp", "port_range_min": port,
                               "port_range_max": port, "remote_ip_prefix": to,
                               "description": description });
            let body = json!({ "security_group_rule": rule });
            let failure = match self.call(Service::Network, "POST", "security-group-rules", &body) {
                Ok(reply) => {
                    let its = text(&reply.value["security_group_rule"]["id"]);
                    return Ok(Held::new(&name, its));
                }
                Err(failure) => failure,
            };
            if !failure.is_lost && failure.code != "409" {
                return Err(failure);
            }
            let rules = self.list("security-group-rules", "security_group_rules")?;
            let known = rules.iter().find(|rule| text(&rule["description"]).starts_with(&name));
            let Some(known) = known else { continue };
            let its = text(&known["id"]);
            let said = text(&known["description"]);
            let said = said.get(name.len()..).unwrap_or_default().trim_start();
            let (until, by) = said.split_once(' ').unwrap_or_default();
            if by == who.to_string() {
                return Ok(Held::new(&name, its));
            }
            let left_s = until.parse().unwrap_or(0_u64).saturating_sub(now_s());
            if let Some(what) = refused(site, by, left_s, who) {
                return Err(Failure::new("Locked", what));
            }
            self.delete("security-group-rules", &its)?;
        }
        let what = format!("others take the lock of {site} all the time; try again");
        Err(Failure::new("Locked", what))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Address and port of a lock, by its name.
fn place(name: &str) -> (String, u16) {
    let digest = digest(&SHA256, name.as_bytes());
    let [host, high, low] = [0, 1, 2].map(|at| digest.as_ref().get(at).copied().unwrap_or(1));
    (format!("192.0.2.{host}/32"), u16::from_be_bytes([high, low]).max(1))
}
