//! `multicast`: groups, who sends to them, who gets copies, and how much.

use std::net::IpAddr;

use wire::ip::protocol;

use super::*;
use crate::document::Cast;
use crate::multicast::{MULTICAST_MAX, RATE_BYTES_S, rate};

/// Ports of groups, and the groups that have them.
type Groups = BTreeMap<Vec<Service>, Vec<Prefix>>;

impl Reader {
    pub(super) fn multicast(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        for entry in self.list(&field.value, "a list of rules", MULTICAST_MAX) {
            let fields = self.object(entry, "an object with src, dst and groups");
            let [src, dst, groups, rate] =
                self.sorted(fields, ["src", "dst", "groups", "rate"], &[]);
            let rate_bytes_s = rate.and_then(|field| self.rate(&field.value));
            let Some(groups) = groups else {
                let mend = "add \"groups\": [\"239.255.0.1:7400\"]";
                self.fault(entry.place, "a rule of multicast without groups", mend);
                continue;
            };
            let targets = self.groups_and_ports(&groups.value);
            let ends = self.src_and_dst(entry.place, [src, dst], [None, None]);
            let Some((sources, dst)) = ends else { continue };
            let receivers = self.selectors(dst, Role::Source);
            self.policy.casts.push(Cast {
                place: entry.place,
                targets: targets.into_iter().collect(),
                sources,
                receivers,
                rate_bytes_s: rate_bytes_s.unwrap_or(RATE_BYTES_S),
            });
        }
        let all = self.policy.casts.iter().map(|cast| cast.targets.len()).sum::<usize>();
        if all > MULTICAST_MAX {
            let what = format!("{all} kinds of ports in multicast, at most {MULTICAST_MAX}");
            self.fault(field.place, what, "put groups with the same ports together");
        }
    }

    fn rate(&mut self, json: &Json) -> Option<u64> {
        let text = self.text(json)?;
        let read = rate(text);
        if read.is_none() {
            let what = format!("{} is no rate", quoted(text));
            self.fault(json.place, what, "write 500kbit or 2mbit, from 1kbit to 10000mbit");
        }
        read
    }

    fn groups_and_ports(&mut self, json: &Json) -> Groups {
        let mut groups = Groups::new();
        for entry in self.list(json, "a list of groups with ports", LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            let Some((name, list)) = text.rsplit_once(':') else {
                let what = format!("{} has no ports", quoted(text));
                self.fault(entry.place, what, "write it with :5353 or :* behind");
                continue;
            };
            let services = match ports(list) {
                Ok(ports) => services(Some(&[protocol::UDP]), &ports),
                Err(refused) => Err(refused),
            };
            match (services, self.prefix(entry.place, name)) {
                (Ok(_), Some(prefix)) if !is_multicast(prefix) => {
                    let what = format!("{prefix} is no group of hosts");
                    let mend = "groups lie in 224.0.0.0/4 and in ff00::/8";
                    self.fault(entry.place, what, mend);
                }
                (Ok(services), Some(prefix)) => groups.entry(services).or_default().push(prefix),
                (Err((what, mend)), _) => {
                    self.fault(entry.place, format!("in {}: {what}", quoted(text)), mend);
                }
                (Ok(_), None) => {}
            }
        }
        groups
    }
}

/// Whether all of a prefix is multicast.
fn is_multicast(prefix: Prefix) -> bool {
    match prefix.address() {
        IpAddr::V4(v4) => v4.is_multicast() && prefix.bits() >= 4,
        IpAddr::V6(v6) => v6.is_multicast() && prefix.bits() >= 8,
    }
}
