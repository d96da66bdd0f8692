//! `ipsets`: sets of addresses by name, each a list of what is added and removed in turn. A mistake
//! in one is an error where a rule names it, and a warning otherwise.

use core::net::IpAddr;

use super::*;
use crate::ranges::Ranges;

/// Sets of a file, at most.
const SETS_MAX: usize = 1024;
/// Ranges of one set, at most.
const SET_RANGES_MAX: usize = 4096;
/// Sets that are named in each other, at most.
const DEPTH_MAX: usize = 16;

impl Reader {
    pub(super) fn sets(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        let sets = self.object(&field.value, "an object of names that begin with ipset:");
        if sets.len() > SETS_MAX {
            let what = format!("{} sets, at most {SETS_MAX} are taken", sets.len());
            return self.fault(field.place, what, "use prefixes, or put sets together");
        }
        for set in sets {
            let name = set.key.strip_prefix("ipset:").filter(|name| is_name(name));
            if name.is_none() || set.key.len() > NAME_MAX {
                let what = format!("{} is no name of a set", quoted(&set.key));
                self.fault(set.place, what, "begin with ipset:, then letters, digits, - and _");
                continue;
            }
            let faults = self.faults.len();
            self.read_set(sets, set, 0);
            // A mistake in a set that no rule names refuses no file.
            let faults: Vec<Finding> = self.faults.drain(faults..).collect();
            for fault in faults {
                let what = format!("{}, so {} is passed over", fault.what, quoted(&set.key));
                self.warn(fault.place, what, fault.mend);
            }
        }
    }

    /// A set that was defined, as a selector.
    pub(super) fn set(&self, text: &str) -> Result<Selector, Refused> {
        let found = self.policy.sets.get(text).cloned();
        let undefined = || {
            let what = format!("{} is not defined, or has a mistake", quoted(text));
            (what, "define it in ipsets".to_owned())
        };
        found.map(Selector::Set).ok_or_else(undefined)
    }

    /// What a set holds, in the order of its entries: the last word on an address counts. Each is
    /// worked out once. Nothing where it has a mistake.
    fn read_set(&mut self, sets: &[Field], set: &Field, depth: usize) -> Option<Ranges> {
        if let Some(known) = self.policy.sets.get(&set.key) {
            return Some(known.clone());
        }
        if depth > DEPTH_MAX {
            let what = format!("{} names itself, or sets name each other", quoted(&set.key));
            self.fault(set.place, what, format!("at most {DEPTH_MAX} sets stand in each other"));
            return None;
        }
        let mut held = Ranges::default();
        for entry in self.list(&set.value, "a list of addresses in double quotes", LIST_MAX) {
            let text = self.text(entry)?;
            let (word, name) = text.trim().split_once(' ').unwrap_or_else(|| ("add", text.trim()));
            let ranges = self.set_entry(sets, entry.place, name.trim(), depth)?;
            held = match word {
                "add" => Ranges::union([&held, &ranges]),
                "remove" => held.difference(&ranges),
                _ => {
                    let what = format!("{} begins with no word that is known", quoted(text));
                    self.fault(entry.place, what, "begin with add or remove, or with an address");
                    return None;
                }
            };
            if held.as_slice().len() > SET_RANGES_MAX {
                let what = format!("a set of more than {SET_RANGES_MAX} ranges");
                self.fault(entry.place, what, "use wider prefixes");
                return None;
            }
        }
        self.policy.sets.insert(set.key.clone(), held.clone());
        Some(held)
    }

    fn set_entry(
        &mut self,
        sets: &[Field],
        place: Place,
        name: &str,
        depth: usize,
    ) -> Option<Ranges> {
        if name.starts_with("ipset:") {
            let Some(other) = sets.iter().find(|set| set.key == name) else {
                self.fault(
                    place,
                    format!("{} is not defined", quoted(name)),
                    "define it in ipsets",
                );
                return None;
            };
            return self.read_set(sets, other, depth + 1);
        }
        if name == "autogroup:internet" {
            return Some(Ranges::internet());
        }
        if let Some((first, last)) = name.split_once('-')
            && let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<IpAddr>())
        {
            return Some(Ranges::between(first, last));
        }
        let host = name.strip_prefix("host:").unwrap_or(name);
        let named = self.policy.hosts.get(host).copied();
        let prefix = named.or_else(|| self.prefix(place, name))?;
        Some(Ranges::of_prefixes([prefix]))
    }
}
