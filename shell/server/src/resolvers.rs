//! Which resolvers nodes ask for names that are not the network's: for some zones their own, for
//! all others those that are general; and names of the network's own that are no node's. What an
//! administrator wrote is judged here, in one place.

use std::net::IpAddr;

use control::limits::{RECORD_ADDRESSES_MAX, RECORDS_MAX, RESOLVERS_MAX};
use control::name::{is_domain, is_reserved};
use serde::{Deserialize, Serialize};

/// Of one zone so many are asked, in their order; a node asks no more.
const ASKED_MAX: usize = 3;

/// What nodes are told.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resolvers {
    /// For names in no zone below; none leaves them to those that each machine had before.
    pub upstreams: Vec<IpAddr>,
    /// For names in these, the longest that fits.
    pub zones: Vec<Zone>,
    /// Names below the network's domain that are no node's.
    pub records: Vec<Record>,
}

/// A name that is no node's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// In full, once it is kept.
    pub name: String,
    /// At least one.
    pub addresses: Vec<IpAddr>,
}

/// A domain with resolvers of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Its name.
    pub zone: String,
    /// At least one.
    pub resolvers: Vec<IpAddr>,
}

impl Resolvers {
    /// The same in the form in which it is kept: names in lower case, zones in their order.
    /// `domain` is the network's own.
    ///
    /// # Errors
    /// For people: what is wrong, and how to mend it.
    pub(crate) fn checked(mut self, domain: &str) -> Result<Self, String> {
        if self.zones.len() > RESOLVERS_MAX {
            return Err(format!("a network has at most {RESOLVERS_MAX} split zones"));
        }
        check(&self.upstreams, "the upstreams")?;
        for Zone { zone, resolvers } in &mut self.zones {
            *zone = zone.strip_suffix('.').unwrap_or(zone).to_ascii_lowercase();
            if !is_domain(zone) {
                return Err(format!(
                    "the zone {zone:?} is no domain; give labels with dots, as in corp.example"
                ));
            }
            let is_ours = |zone: &str| zone == domain || zone.ends_with(&format!(".{domain}"));
            if !domain.is_empty() && is_ours(zone) {
                return Err(format!(
                    "{zone} is below {domain}, whose names every node answers itself; give \
                     another zone"
                ));
            }
            if resolvers.is_empty() {
                return Err(format!("{zone} has no resolvers; name one, or leave the zone out"));
            }
            check(resolvers, zone)?;
        }
        self.records = records(self.records, domain)?;
        self.zones.sort_by(|a, b| a.zone.cmp(&b.zone));
        match self.zones.windows(2).find(|two| two[0].zone == two[1].zone) {
            Some(two) => {
                Err(format!("{} is there twice; name all its resolvers once", two[0].zone))
            }
            None => Ok(self),
        }
    }
}

/// Names in full, in lower case and in order, each once and below the network's own domain.
fn records(records: Vec<Record>, domain: &str) -> Result<Vec<Record>, String> {
    if records.len() > RECORDS_MAX {
        return Err(format!("a network has at most {RECORDS_MAX} names beside those of nodes"));
    }
    let mut kept = Vec::new();
    for Record { name, addresses } in records {
        let bare = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
        let is_full = bare.ends_with(&format!(".{domain}"));
        let full = if is_full { bare } else { format!("{bare}.{domain}") };
        if domain.is_empty() || !is_domain(&full) {
            return Err(format!(
                "{name:?} is no name below {domain:?}; give labels of letters, digits and hyphens, \
                 as in nas or grafana.lab"
            ));
        }
        let first = full.split('.').next().unwrap_or_default();
        if is_reserved(first) {
            return Err(format!(
                "{full}: programs look for {first} in every domain to learn of proxies or of \
                 themselves, so no node answers it; give another name, or `warren dns remove \
                 {first}`"
            ));
        }
        if !(1..=RECORD_ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(format!("{full}: give one to {RECORD_ADDRESSES_MAX} addresses"));
        }
        let is_nowhere = |at: &IpAddr| at.is_unspecified() || at.is_multicast() || at.is_loopback();
        if let Some(at) = addresses.iter().find(|at| is_nowhere(at)) {
            return Err(format!("{full}: {at} is another machine to everybody; give its own"));
        }
        kept.push(Record { name: full, addresses });
    }
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    match kept.windows(2).find(|two| two[0].name == two[1].name) {
        Some(two) => Err(format!("{} is there twice; name all its addresses once", two[0].name)),
        None => Ok(kept),
    }
}

fn check(resolvers: &[IpAddr], of: &str) -> Result<(), String> {
    if resolvers.len() > ASKED_MAX {
        return Err(format!("{of}: at most {ASKED_MAX} resolvers are ever asked"));
    }
    let is_nowhere = |at: &IpAddr| at.is_unspecified() || at.is_multicast() || at.is_loopback();
    match resolvers.iter().find(|at| is_nowhere(at)) {
        Some(at) => Err(format!(
            "{of}: {at} is no resolver that every node can ask; give an address that they reach"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(zone: &str, resolvers: &[&str]) -> Zone {
        let resolvers = resolvers.iter().map(|text| text.parse().unwrap()).collect();
        Zone { zone: zone.to_owned(), resolvers }
    }

    fn told(zones: Vec<Zone>) -> Result<Resolvers, String> {
        Resolvers { zones, ..Resolvers::default() }.checked("warren.internal")
    }

    #[test]
    fn what_is_kept_has_one_form() {
        let kept = told(vec![zone("Z.example.", &["10.0.0.2"]), zone("a.example", &["fd00::1"])]);
        let zones = vec![zone("a.example", &["fd00::1"]), zone("z.example", &["10.0.0.2"])];
        assert_eq!(kept, Ok(Resolvers { zones, ..Resolvers::default() }));
        assert_eq!(Resolvers::default().checked(""), Ok(Resolvers::default()));
    }

    #[test]
    fn names_that_are_no_nodes_are_kept_in_full_and_below_our_domain() {
        let record = |name: &str, addresses: &[&str]| Record {
            name: name.to_owned(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let kept = |list: Vec<Record>| {
            let all = Resolvers { records: list, ..Resolvers::default() };
            all.checked("warren.internal").map(|kept| kept.records)
        };
        let told = kept(vec![record("NAS.", &["10.7.0.10"]), record("a.lab", &["fd00::1"])]);
        let due = [
            record("a.lab.warren.internal", &["fd00::1"]),
            record("nas.warren.internal", &["10.7.0.10"]),
        ];
        assert_eq!(told, Ok(due.to_vec()));
        assert_eq!(kept(due.to_vec()), Ok(due.to_vec()), "in full as well");
        for (list, why) in [
            (vec![record("<b>", &["10.0.0.1"])], "is no name below"),
            (vec![record("", &["10.0.0.1"])], "is no name below"),
            (vec![record("WPAD", &["10.0.0.1"])], "so no node answers it; give another name"),
            (vec![record("isatap.lab", &["10.0.0.1"])], "no node answers it"),
            (vec![record("nas", &[])], "one to 8 addresses"),
            (vec![record("nas", &["127.0.0.1"])], "another machine to everybody"),
            (vec![due[1].clone(), record("nas", &["10.0.0.1"])], "is there twice"),
            (vec![due[1].clone(); RECORDS_MAX + 1], "at most 256"),
        ] {
            let said = kept(list).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let nowhere = Resolvers { records: due.to_vec(), ..Resolvers::default() };
        assert!(nowhere.checked("").is_err(), "without a domain there are no names");
    }

    #[test]
    fn bad_words_are_told_with_what_and_how() {
        let four = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        for (zones, why) in [
            (vec![zone("<b>", &["10.0.0.1"])], "is no domain"),
            (vec![zone("", &["10.0.0.1"])], "is no domain"),
            (vec![zone("corp.example", &[])], "has no resolvers"),
            (vec![zone("warren.internal", &["10.0.0.1"])], "answers itself"),
            (vec![zone("x.WARREN.internal", &["10.0.0.1"])], "answers itself"),
            (vec![zone("corp.example", &["127.0.0.1"])], "every node can ask"),
            (vec![zone("corp.example", &["0.0.0.0"])], "every node can ask"),
            (vec![zone("corp.example", &["ff02::fb"])], "every node can ask"),
            (vec![zone("corp.example", &four)], "at most 3"),
            (vec![zone("a", &["10.0.0.1"]), zone("A.", &["10.0.0.2"])], "is there twice"),
            (vec![zone("a", &["10.0.0.1"]); RESOLVERS_MAX + 1], "at most 64"),
        ] {
            let said = told(zones).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
