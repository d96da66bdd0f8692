//! From HuJSON to a [`Policy`]: every key is known, tolerated with a warning, or an error.
//!
//! Keys are compared without regard to case and under their old names too (`ACLs`, `Users`,
//! `Ports`), because files in use have them. What would widen access if it were passed over, as a
//! posture does, never is: its rule is left out, with a warning.

use std::collections::{BTreeMap, BTreeSet};

use wire::ip::protocol;
use wire::prefix::Prefix;

use crate::document::{
    Grant, LIST_MAX, Policy, RULES_MAX, Section, TESTS_MAX, Target, Test, TestTarget,
};
use crate::hujson::{self, Field, Json, Value};
use crate::place::{Finding, Place, quoted};
use crate::rules::{Service, protocols};
use crate::selector::{
    NAME_MAX, PORTS_MAX, Refused, Selector, capability, has_host_bits, is_name, ports, prefix,
    services,
};

/// Both sides of a rule.
type SrcAndDst = (Vec<Selector>, Vec<Target>);

/// Mistakes and warnings that are told, at most.
const FINDINGS_MAX: usize = 20;

/// Keys of the file that mean something to others. What they ask for is not done here.
const TOLERATED: [&str; 12] = [
    "ssh",
    "sshtests",
    "nodeattrs",
    "attr",
    "attrconfig",
    "postures",
    "derpmap",
    "disableipv4",
    "onecgnatroute",
    "randomizeclientport",
    "extradnsrecords",
    "$schema",
];

/// Where a selector stands decides what it may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Source,
    Destination,
    Owner,
    Member,
}

impl Policy {
    /// Reads a policy file; the second value is what to warn of.
    ///
    /// # Errors
    /// Up to 20 mistakes in the order of the file, each with its place and how to mend it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<Finding>), Vec<Finding>> {
        policy(bytes)
    }
}

fn policy(bytes: &[u8]) -> Result<(Policy, Vec<Finding>), Vec<Finding>> {
    let start = Place { line: 1, column: 1 };
    let mut reader = Reader::default();
    let Some(json) = hujson::parse(bytes).map_err(|finding| vec![others::of_yaml(finding)])? else {
        reader.warn(start, "the file is empty, so everything is allowed", OPEN);
        return Ok((Policy::open(), reader.warnings));
    };
    let policy = reader.file(&json);
    reader.faults.sort_by_key(|finding| finding.place);
    reader.faults.truncate(FINDINGS_MAX);
    reader.warnings.sort_by_key(|finding| finding.place);
    if reader.faults.is_empty() { Ok((policy, reader.warnings)) } else { Err(reader.faults) }
}

/// Whether a destination has no ports behind it: `tag:web`, `printer`, `10.0.0.0/8`, `fd00::1`.
fn is_bare(text: &str) -> bool {
    let has_kind = ["tag:", "group:", "autogroup:", "user:"]
        .iter()
        .any(|kind| text.strip_prefix(kind).is_some_and(|name| !name.contains(':')));
    has_kind || !text.contains(':') || prefix(text).is_ok()
}

const OPEN: &str = "write \"acls\": [] to deny everything";

#[derive(Default)]
struct Reader {
    faults: Vec<Finding>,
    warnings: Vec<Finding>,
    policy: Policy,
    /// Users whose names stand in groups without an `@`, as Headscale had them once.
    old_users: BTreeSet<String>,
}

impl Reader {
    fn fault(&mut self, place: Place, what: impl Into<String>, mend: impl Into<String>) {
        // Hosts, groups and tags are read first: more than are told, so that the first ones of
        // the file are among them, but not without end.
        if self.faults.len() < 10 * FINDINGS_MAX {
            self.faults.push(Finding::new(place, what, mend));
        }
    }

    fn refuse(&mut self, place: Place, refused: Refused) {
        let (what, mend) = refused;
        self.fault(place, what, mend);
    }

    fn warn(&mut self, place: Place, what: impl Into<String>, mend: impl Into<String>) {
        if self.warnings.len() < FINDINGS_MAX {
            self.warnings.push(Finding::new(place, what, mend));
        }
    }

    fn wrong_kind(&mut self, json: &Json, wanted: &str) {
        let what = format!("{} stands where {wanted} belongs", json.value.kind());
        self.fault(json.place, what, format!("write {wanted}"));
    }

    fn object<'a>(&mut self, json: &'a Json, wanted: &str) -> &'a [Field] {
        match &json.value {
            Value::Object(fields) => fields,
            _ => {
                self.wrong_kind(json, wanted);
                &[]
            }
        }
    }

    fn list<'a>(&mut self, json: &'a Json, wanted: &str, max: usize) -> &'a [Json] {
        let Value::List(entries) = &json.value else {
            self.wrong_kind(json, wanted);
            return &[];
        };
        if entries.len() > max {
            let what = format!("a list of {}, at most {max} are taken", entries.len());
            self.fault(json.place, what, "use groups and prefixes");
            return &[];
        }
        entries
    }

    fn text<'a>(&mut self, json: &'a Json) -> Option<&'a str> {
        match &json.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_kind(json, "a text in double quotes");
                None
            }
        }
    }

    fn boolean(&mut self, json: &Json) -> bool {
        match json.value {
            Value::Bool(value) => value,
            _ => {
                self.wrong_kind(json, "true or false");
                false
            }
        }
    }

    /// Sorts the fields of an object by the names in `known`; what is not known is a mistake.
    fn sorted<'a, const N: usize>(
        &mut self,
        fields: &'a [Field],
        known: [&str; N],
        tolerate: &[&str],
    ) -> [Option<&'a Field>; N] {
        let mut found = [None; N];
        for field in fields {
            let key = match field.key.to_ascii_lowercase().as_str() {
                "users" if known.contains(&"src") => "src".to_owned(),
                "ports" if known.contains(&"dst") => "dst".to_owned(),
                key => key.to_owned(),
            };
            match known.iter().position(|name| name.eq_ignore_ascii_case(&key)) {
                Some(at) if found[at].is_some() => {
                    let what = format!("{} stands here twice", quoted(known[at]));
                    self.fault(field.place, what, "merge the two");
                }
                Some(at) => found[at] = Some(field),
                None if tolerate.contains(&key.as_str()) => {
                    let what = format!("{} is not enforced", quoted(&field.key));
                    self.warn(field.place, what, "nothing here depends on it");
                }
                None if key.starts_with('#') => {
                    // Editors of others keep their own notes there.
                    let what = format!("{} is passed over", quoted(&field.key));
                    self.warn(field.place, what, "a key that begins with # is a note");
                }
                None => {
                    let what = format!("the key {} is not known", quoted(&field.key));
                    self.fault(field.place, what, format!("known here are {}", known.join(", ")));
                }
            }
        }
        found
    }

    fn file(&mut self, json: &Json) -> Policy {
        let fields = self.object(json, "an object with the keys of a policy");
        const KNOWN: [&str; 12] = [
            "groups",
            "tagOwners",
            "hosts",
            "acls",
            "grants",
            "autoApprovers",
            "tests",
            "defaultSrcPosture",
            "circuits",
            "multicast",
            "ipsets",
            "linkReports",
        ];
        let sorted = self.sorted(fields, KNOWN, &TOLERATED);
        let [groups, tags, hosts, acls, grants, approvers, tests, posture, ..] = sorted;
        let [.., circuits, multicast, sets, reports] = sorted;
        self.posture(posture);
        self.hosts(hosts);
        self.sets(sets);
        self.names(groups, tags);
        self.groups(groups);
        self.tag_owners(tags);
        for (section, field) in [(Section::Acls, acls), (Section::Grants, grants)] {
            self.rules(section, field);
        }
        self.approvers(approvers);
        self.circuits(circuits);
        self.multicast(multicast);
        self.policy.hides_links = reports.is_some_and(|field| !self.boolean(&field.value));
        self.tests(tests);
        if acls.is_none() && grants.is_none() {
            self.warn(json.place, "neither acls nor grants: everything is allowed", OPEN);
            let open = Policy::open();
            (self.policy.is_open, self.policy.grants) = (true, open.grants);
        }
        std::mem::take(&mut self.policy)
    }

    fn posture(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        let entries = self.list(&field.value, "a list", LIST_MAX);
        if !entries.is_empty() {
            let what = "postures are not enforced, and every rule would be wider without them";
            self.fault(field.place, what, "remove defaultSrcPosture, knowing that");
        }
    }

    fn hosts(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        for host in self.object(&field.value, "an object of names and addresses") {
            if host.key.is_empty()
                || host.key.len() > NAME_MAX
                || host.key == "*"
                || host.key.contains(['@', ':', '/'])
                || host.key.contains(char::is_whitespace)
                || prefix(&host.key).is_ok()
            {
                let what = format!("{} cannot name a host", quoted(&host.key));
                self.fault(host.place, what, "no address, no @, :, / and space, up to 255 bytes");
                continue;
            }
            let Some(text) = self.text(&host.value) else { continue };
            if let Some(prefix) = self.prefix(host.value.place, text) {
                self.policy.hosts.insert(host.key.clone(), prefix);
            }
        }
    }

    fn prefix(&mut self, place: Place, text: &str) -> Option<Prefix> {
        match prefix(text) {
            Ok(prefix) => {
                if has_host_bits(text) {
                    let what = format!("{} means {prefix}", quoted(text));
                    self.warn(place, what, "write that");
                }
                Some(prefix)
            }
            Err(refused) => {
                self.refuse(place, refused);
                None
            }
        }
    }

    /// The names of groups and tags first, for they may be used before they are defined.
    fn names(&mut self, groups: Option<&Field>, tags: Option<&Field>) {
        for (field, kind) in [(groups, "group:"), (tags, "tag:")] {
            let Some(field) = field else { continue };
            let wanted = format!("an object of names that begin with {kind}");
            for entry in self.object(&field.value, &wanted) {
                let name = entry.key.strip_prefix(kind).filter(|name| is_name(name));
                if name.is_none() || entry.key.len() > NAME_MAX {
                    let what = format!("{} is no name of this kind", quoted(&entry.key));
                    let rule = "then letters, digits, - and _";
                    self.fault(entry.place, what, format!("begin with {kind}, {rule}"));
                } else if kind == "group:" {
                    self.policy.groups.insert(entry.key.clone(), Vec::new());
                } else {
                    self.policy.tag_owners.insert(entry.key.clone(), Vec::new());
                }
            }
        }
    }

    fn groups(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        if let Value::Object(groups) = &field.value.value {
            for group in groups {
                let members = self.selectors(&group.value, Role::Member);
                if let Some(known) = self.policy.groups.get_mut(&group.key) {
                    *known = members;
                }
            }
        }
    }

    fn tag_owners(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        if let Value::Object(tags) = &field.value.value {
            for tag in tags {
                let owners = self.selectors(&tag.value, Role::Owner);
                if let Some(known) = self.policy.tag_owners.get_mut(&tag.key) {
                    *known = owners;
                }
            }
        }
    }

    fn selectors(&mut self, json: &Json, role: Role) -> Vec<Selector> {
        let entries = self.list(json, "a list of names in double quotes", LIST_MAX);
        let read = |entry| {
            let text = self.text(entry)?;
            self.selector(entry.place, text, role)
        };
        entries.iter().filter_map(read).collect()
    }

    fn selector(&mut self, place: Place, text: &str, role: Role) -> Option<Selector> {
        if self.is_of_others(place, text, role) {
            return None;
        }
        let named = text.strip_prefix("ipset:").map(|_| self.set(text));
        let old = named.is_none().then(|| self.old_user(place, text, role)).flatten().map(Ok);
        let read = named.or(old).unwrap_or_else(|| Selector::parse(text, &self.policy.hosts));
        let selector = match read {
            Ok(selector) => selector,
            Err(refused) => {
                self.refuse(place, refused);
                return None;
            }
        };
        if let Selector::Group(name) = &selector {
            self.note_synced(place, name);
        }
        let undefined = match &selector {
            Selector::Group(name) => !self.policy.groups.contains_key(name),
            Selector::Tag(name) => !self.policy.tag_owners.contains_key(name),
            _ => false,
        };
        if undefined {
            let mend = match selector {
                Selector::Group(_) => "define it in groups; [] is enough for one of a provider",
                _ => "name its owners in tagOwners; [] is enough",
            };
            self.fault(place, format!("{} is not defined", quoted(text)), mend);
            return None;
        }
        let fits = match (&selector, role) {
            (Selector::User(_) | Selector::Nobody, _) => true,
            (_, Role::Member) => false,
            (Selector::Internet | Selector::OwnUser, role) => role == Role::Destination,
            (Selector::DangerAll, role) => role == Role::Source,
            (Selector::Any | Selector::Prefix(_) | Selector::Set(_) | Selector::Tagged, role) => {
                role != Role::Owner
            }
            _ => true,
        };
        if !fits {
            let mend = match role {
                Role::Source => "it may stand in dst only",
                Role::Destination => "it may stand in src only",
                Role::Owner => "name users, groups, tags, autogroup:member or a role",
                Role::Member => "groups have users only: alice@example.com or alice@",
            };
            self.fault(place, format!("{} cannot stand here", quoted(text)), mend);
            return None;
        }
        if selector == Selector::Nobody {
            self.warn(place, "autogroup:nonroot is a word of ssh", "here it means nobody");
        }
        if has_host_bits(text) {
            self.prefix(place, text);
        }
        Some(selector)
    }

    fn rules(&mut self, section: Section, field: Option<&Field>) {
        let Some(field) = field else { return };
        let room = RULES_MAX - self.policy.grants.len();
        for (index, entry) in self.list(&field.value, "a list of rules", room).iter().enumerate() {
            let fields = self.object(entry, "an object with src and dst");
            let (read, compress) = match section {
                Section::Acls => (self.acl(entry.place, fields), false),
                _ => self.grant(entry.place, fields),
            };
            if let Some((sources, targets)) = read {
                let place = entry.place;
                let grant = Grant { place, section, index, sources, targets, compress };
                self.policy.grants.push(grant);
            }
        }
    }

    /// What a rule must have; a rule that asks for what is not enforced is left out.
    fn src_and_dst<'a>(
        &mut self,
        place: Place,
        [src, dst]: [Option<&'a Field>; 2],
        narrowing: [Option<&'a Field>; 2],
    ) -> Option<(Vec<Selector>, &'a Json)> {
        for (field, name) in [(src, "src"), (dst, "dst")] {
            if field.is_none() {
                self.fault(place, format!("a rule without {name}"), format!("add \"{name}\": []"));
            }
        }
        let sources = self.selectors(&src?.value, Role::Source);
        let dst = &dst?.value;
        for field in narrowing.into_iter().flatten() {
            let what = format!("{} is not enforced, so this rule is left out", quoted(&field.key));
            self.warn(field.place, what, "remove the key to let the rule hold without it");
        }
        narrowing.iter().all(Option::is_none).then_some((sources, dst))
    }

    fn acl(&mut self, place: Place, fields: &[Field]) -> Option<SrcAndDst> {
        let [action, proto, src, dst, posture] =
            self.sorted(fields, ["action", "proto", "src", "dst", "srcPosture"], &[]);
        match action.map(|field| (field, &field.value.value)) {
            Some((_, Value::Text(word))) if word == "accept" => (),
            Some((field, _)) => {
                let what = "an action that is not accept";
                self.fault(field.value.place, what, "rules only allow; what none allows is denied");
            }
            None => self.fault(place, "a rule without action", "add \"action\": \"accept\""),
        }
        let numbers = proto.and_then(|field| self.protocol(&field.value));
        let (sources, dst) = self.src_and_dst(place, [src, dst], [posture, None])?;
        let mut by_services: BTreeMap<Vec<Service>, Vec<Selector>> = BTreeMap::new();
        for entry in self.list(dst, "a list of destinations with ports", LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            let Some((name, list)) = text.rsplit_once(':') else {
                let what = format!("{} has no ports", quoted(text));
                self.fault(entry.place, what, "write it with :443 or :* behind");
                continue;
            };
            let read = ports(list).and_then(|ports| services(numbers.as_deref(), &ports));
            match read {
                Ok(services) => {
                    let selector = self.selector(entry.place, name, Role::Destination);
                    by_services.entry(services).or_default().extend(selector);
                }
                Err((what, mend)) => {
                    self.fault(entry.place, format!("in {}: {what}", quoted(text)), mend);
                }
            }
        }
        let target = |(services, selectors)| Target { selectors, services };
        Some((sources, by_services.into_iter().map(target).collect()))
    }

    /// The numbers of `proto`; none where it is empty, as if it were not there.
    fn protocol(&mut self, json: &Json) -> Option<Vec<u8>> {
        // A number without quotes is as clear.
        let text = match &json.value {
            Value::Number(number) => number,
            _ => self.text(json).filter(|text| !text.is_empty())?,
        };
        match protocols(text) {
            Ok(numbers) => Some(numbers),
            Err(refused) => {
                self.refuse(json.place, refused);
                None
            }
        }
    }

    fn grant(&mut self, place: Place, fields: &[Field]) -> (Option<SrcAndDst>, bool) {
        const KNOWN: [&str; 7] = ["src", "dst", "ip", "srcPosture", "via", "app", "compress"];
        let [src, dst, ip, posture, via, app, compress] = self.sorted(fields, KNOWN, &[]);
        let compress = compress.is_some_and(|compress| self.boolean(&compress.value));
        (self.granted(place, [src, dst, ip, posture, via, app]), compress)
    }

    fn granted(
        &mut self,
        place: Place,
        [src, dst, ip, posture, via, app]: [Option<&Field>; 6],
    ) -> Option<SrcAndDst> {
        if let Some(app) = app {
            let what = "capabilities of applications are not handed on";
            self.warn(app.place, what, "only ip lets packets pass");
        } else if ip.is_none() {
            self.fault(place, "a grant without ip", "add \"ip\": [\"*\"] or \"ip\": [\"tcp:443\"]");
        }
        let (sources, dst) = self.src_and_dst(place, [src, dst], [posture, via])?;
        let selectors = self.selectors(dst, Role::Destination);
        let mut services = Vec::new();
        if let Some(ip) = ip {
            for entry in self.list(&ip.value, "a list of protocols and ports", PORTS_MAX) {
                let Some(text) = self.text(entry) else { continue };
                match capability(text) {
                    Ok(list) => services.extend(list),
                    Err(refused) => self.refuse(entry.place, refused),
                }
            }
        }
        services.sort_unstable();
        services.dedup();
        Some((sources, vec![Target { selectors, services }]))
    }

    fn tests(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        let entries = self.list(&field.value, "a list of tests", TESTS_MAX);
        for (index, entry) in entries.iter().enumerate() {
            let fields = self.object(entry, "an object with src, accept and deny");
            const KNOWN: [&str; 4] = ["src", "proto", "accept", "deny"];
            let [src, proto, accept, deny] = self.sorted(fields, KNOWN, &["srcpostureattrs"]);
            let Some(src) = src else {
                self.fault(entry.place, "a test without src", "add \"src\": \"alice@\"");
                continue;
            };
            let protocols = proto.and_then(|proto| self.protocol(&proto.value));
            let has_ports = protocols
                .as_deref()
                .is_none_or(|list| list.iter().all(|number| crate::rules::has_ports(*number)));
            // Without protocol and port all of them have to be allowed.
            let accept = self.targets(accept, has_ports && protocols.is_some());
            let deny = self.targets(deny, has_ports);
            let Some(text) = self.text(&src.value) else { continue };
            let selector = self.selector(src.value.place, text, Role::Source);
            let Some(selector) = selector else { continue };
            self.policy.tests.push(Test {
                place: entry.place,
                index,
                source: (selector, text.to_owned()),
                protocols: protocols.unwrap_or_else(|| vec![protocol::TCP, protocol::UDP]),
                accept,
                deny,
            });
        }
    }

    fn targets(&mut self, field: Option<&Field>, has_ports: bool) -> Vec<TestTarget> {
        let Some(field) = field else { return Vec::new() };
        let mut targets = Vec::new();
        for entry in self.list(&field.value, "a list of destinations with a port", LIST_MAX) {
            let Some(text) = self.text(entry) else { continue };
            let split = text.rsplit_once(':').and_then(|(name, port)| match ports(port) {
                Ok(list) if list.len() == 1 && list[0].0 == list[0].1 => Some((name, list[0].0)),
                Ok(_) if !has_ports && port == "*" => Some((name, 0)),
                _ => None,
            });
            let split = split.filter(|(name, _)| !name.ends_with(':')); // of an IPv6 address
            let split = split.or_else(|| (!has_ports && is_bare(text)).then_some((text, 0)));
            let Some((name, port)) = split else {
                let what = format!("{} has not one port", quoted(text));
                self.fault(entry.place, what, "write it with one port behind, as in tag:web:443");
                continue;
            };
            if let Some(selector) = self.selector(entry.place, name, Role::Destination) {
                let place = entry.place;
                targets.push(TestTarget { place, text: text.to_owned(), selector, port });
            }
        }
        targets
    }
}

mod approvers;
mod circuits;
mod multicast;
mod nodes;
mod others;
mod sets;
#[cfg(test)]
mod tests;
