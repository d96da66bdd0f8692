//! The one place where the access policy is read, compiled and asked.
//!
//! A text is checked against the books before it is stored: what does not compile, or fails a
//! test of its own, never gets in, and the last good one holds. From then on it is compiled
//! again whenever users or nodes change, at the first question after that. A stored text that
//! this program cannot read, and books that contradict themselves, let nothing pass (PF-08).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::policy::{
    Approval, Compiled, Directory, Explanation, Finding, NodeId, OPEN, Policy, Rules, Selector,
};
use control::Prefix;
use control::limits::POLICY_BYTES_MAX;

use crate::store::PolicyText;

/// A policy that may be stored.
pub(crate) struct Checked {
    pub(crate) policy: Policy,
    pub(crate) warnings: Vec<Finding>,
    /// Rules, tests that passed, and nodes that it was checked against.
    pub(crate) counts: [usize; 3],
}

/// Names of users, by the name of a group that a provider says they are in.
pub(crate) type Groups = BTreeMap<String, BTreeSet<String>>;

/// A policy with the members that a provider names, of the groups that it has itself. A group that
/// the text does not name means nothing to it.
fn with<'a>(policy: &'a Policy, groups: &Groups) -> Cow<'a, Policy> {
    let is_meant = |name: &String| groups.contains_key(name);
    if !policy.groups.keys().any(is_meant) {
        return Cow::Borrowed(policy);
    }
    let mut whole = policy.clone();
    for (name, members) in &mut whole.groups {
        for user in groups.get(name).into_iter().flatten() {
            members.push(Selector::User(user.to_ascii_lowercase()));
        }
    }
    Cow::Owned(whole)
}

/// Reads a text, compiles it against the books and runs its tests.
///
/// # Errors
/// Every mistake with its place, for its author.
pub(crate) fn check(
    text: &str,
    directory: &Directory,
    groups: &Groups,
) -> Result<Checked, Vec<Finding>> {
    let (policy, mut warnings) = Policy::parse(text.as_bytes())?;
    let compiled = ::policy::check(with(&policy, groups).as_ref(), directory)?;
    warnings.extend(compiled.remarks());
    warnings.sort_by_key(|finding| finding.place);
    for refused in compiled.refused_routes() {
        let what = format!("node {} must not route {}", refused.node.0, refused.route);
        warnings.push(finding(what, "it is left out; approve other routes"));
    }
    let is_long = |node: &&::policy::Node| !policy.is_open && told(&compiled, node.id).is_none();
    if let Some(node) = directory.nodes.iter().find(is_long) {
        let what = format!("the rules for node {} are longer than a map may carry", node.id.0);
        return Err(vec![finding(what, "name fewer addresses one by one")]);
    }
    let counts = [policy.grants.len(), policy.tests.len(), directory.nodes.len()];
    Ok(Checked { policy, warnings, counts })
}

fn finding(what: String, mend: &str) -> Finding {
    Finding { place: ::policy::Place::default(), what, mend: mend.to_owned() }
}

fn told(compiled: &Compiled, id: NodeId) -> Option<String> {
    compiled.rules_for(id).print().filter(|text| text.len() <= POLICY_BYTES_MAX)
}

/// What holds: a policy, and what it means for the nodes as they are.
pub(crate) struct Rulebook {
    version: u64,
    /// Nothing if a text is stored that cannot be read.
    policy: Option<Policy>,
    /// Nothing if it is to be compiled, or cannot be.
    compiled: Option<Compiled>,
}

impl Rulebook {
    /// The text that holds, or that none was ever set. It was checked when it was set; what its
    /// tests say now is not asked.
    pub(crate) fn new(text: Option<&PolicyText>) -> Self {
        let Some(text) = text else {
            return Self { version: 0, policy: Some(Policy::open()), compiled: None };
        };
        let policy = match Policy::parse(text.text.as_bytes()) {
            Ok((policy, _)) => Some(policy),
            Err(findings) => {
                let why = findings.first().map(ToString::to_string).unwrap_or_default();
                tracing::error!(
                    version = text.version,
                    why,
                    "the stored policy cannot be read, so NOTHING may pass between any nodes; \
                     set one that can be: warren policy set FILE"
                );
                None
            }
        };
        Self { version: text.version, policy, compiled: None }
    }

    /// Takes a policy that was checked and stored.
    pub(crate) fn set(&mut self, version: u64, policy: Policy) {
        self.version = version;
        self.policy = Some(policy);
        self.compiled = None;
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Every member may meet every other, and nothing is enforced.
    pub(crate) fn is_open(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.is_open)
    }

    /// Whether nodes may report how their links are.
    pub(crate) fn takes_links(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| !policy.hides_links)
    }

    /// Whether a policy is in force; otherwise nothing may pass.
    pub(crate) const fn is_readable(&self) -> bool {
        self.policy.is_some()
    }

    /// Compiles against the books as they are.
    pub(crate) fn compile(&mut self, directory: &Directory, groups: &Groups) {
        self.compiled = None;
        let Some(policy) = &self.policy else { return };
        match Compiled::new(with(policy, groups).as_ref(), directory) {
            Ok(compiled) => self.compiled = Some(compiled),
            Err(fault) => tracing::error!(
                %fault,
                "users and nodes contradict each other, so NOTHING may pass between any nodes"
            ),
        }
    }

    /// What a node is told to enforce.
    pub(crate) fn rules(&self, id: u64) -> String {
        if self.is_open() {
            return OPEN.to_owned();
        }
        let text = self.compiled.as_ref().map(|compiled| told(compiled, NodeId(id)));
        if text == Some(None) {
            tracing::error!(node = id, "its rules are too long, so it is told to let nothing pass");
        }
        text.flatten().or_else(|| Rules::default().print()).unwrap_or_default()
    }

    /// The first address of what the policy calls so in `hosts`.
    pub(crate) fn host(&self, named: &str) -> Option<IpAddr> {
        self.policy.as_ref()?.hosts.get(named).map(|prefix| prefix.address())
    }

    /// What becomes of a first packet; nothing if the policy cannot be read or asked.
    pub(crate) fn explain(
        &self,
        ends: (IpAddr, IpAddr),
        service: (u8, u16),
    ) -> Option<Explanation> {
        let (source, destination) = ends;
        let (protocol, port) = service;
        let compiled = self.compiled.as_ref()?;
        Some(compiled.explain(source, destination, protocol, port))
    }

    /// Why nobody, or this user, gives these tags: `tagOwners` of the policy. Where the policy is
    /// open, or none can be read, it says nothing of tags. An administrator gives every tag that
    /// the policy knows; a user those whose owner the user is.
    pub(crate) fn refuses_tags(&self, user: Option<&str>, tags: &[String]) -> Option<String> {
        let policy = self.policy.as_ref().filter(|policy| !policy.is_open)?;
        let is_unknown = |tag: &&String| !policy.tag_owners.contains_key(*tag);
        if let Some(tag) = tags.iter().find(is_unknown) {
            return Some(format!("the policy does not know {tag}; name it in tagOwners first"));
        }
        let user = user?;
        let compiled = self.compiled.as_ref()?;
        let tag = tags.iter().find(|tag| !compiled.user_may_tag(user, tag))?;
        Some(format!("{user} may not give {tag}: tagOwners of the policy name others"))
    }

    /// Whom a node may know of, in ascending order. Not to be asked where it [`Self::is_open`].
    pub(crate) fn peers(&self, id: u64) -> Vec<u64> {
        let peers = self.compiled.iter().flat_map(|compiled| compiled.peers_of(NodeId(id)));
        peers.map(|id| id.0).collect()
    }

    /// Of these routes that a node offers, those that need no further word.
    pub(crate) fn automatic(&self, id: u64, routes: &[Prefix]) -> Vec<Prefix> {
        let Some(compiled) = &self.compiled else { return Vec::new() };
        let is_automatic = |route: &&Prefix| {
            compiled.approval(NodeId(id), (**route).into()) == Approval::Automatic
        };
        routes.iter().filter(is_automatic).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pf_08_a_stored_text_that_cannot_be_read_lets_nothing_pass() {
        for text in ["{", "{\"acls\": [{}]}", "{\"rules\": []}"] {
            let stored = PolicyText { version: 3, text: text.to_owned() };
            let mut book = Rulebook::new(Some(&stored));
            book.compile(&Directory::default(), &Groups::new());
            assert!(!book.is_open() && !book.is_readable(), "{text}");
            assert_eq!(Rules::read(&book.rules(1)), Ok(Some(Rules::default())));
            assert!(book.peers(1).is_empty());
        }
        let mut book = Rulebook::new(None);
        book.compile(&Directory::default(), &Groups::new());
        assert!(book.is_open());
        assert_eq!(Rules::read(&book.rules(1)), Ok(None));
    }

    #[test]
    fn pf_08_books_that_contradict_themselves_let_nothing_pass() {
        let text = "{\"acls\": [{\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]}]}";
        let stored = PolicyText { version: 1, text: text.to_owned() };
        let mut book = Rulebook::new(Some(&stored));
        let node = ::policy::Node {
            id: NodeId(1),
            name: "n1".to_owned(),
            addresses: vec!["100.64.0.1".parse().unwrap()],
            owner: None,
            tags: Vec::new(),
            routes: Vec::new(),
        };
        let mut directory = Directory { nodes: vec![node.clone()], ..Directory::default() };
        book.compile(&directory, &Groups::new());
        assert_ne!(Rules::read(&book.rules(1)), Ok(Some(Rules::default())));
        directory.nodes.push(::policy::Node { id: NodeId(2), ..node });
        book.compile(&directory, &Groups::new());
        assert_eq!(Rules::read(&book.rules(1)), Ok(Some(Rules::default())));
    }

    #[test]
    fn a_group_of_a_policy_has_the_members_that_a_provider_names() {
        let text = r#"{"groups": {"group:ops": ["ben@"], "group:other": []},
            "acls": [{"action": "accept", "src": ["group:ops"], "dst": ["*:22"]}]}"#;
        let node = |id: u64, owner: &str| ::policy::Node {
            id: NodeId(id),
            name: format!("n{id}"),
            addresses: vec![IpAddr::from([100, 64, 0, id as u8])],
            owner: Some(owner.to_owned()),
            tags: Vec::new(),
            routes: Vec::new(),
        };
        let user = |name: &str| ::policy::User { name: name.to_owned(), ..Default::default() };
        let directory = Directory {
            users: ["Anna", "ben", "eve"].map(user).to_vec(),
            nodes: vec![node(1, "Anna"), node(2, "ben"), node(3, "eve")],
            ..Directory::default()
        };
        let groups = |members: &[&str]| -> Groups {
            let members = members.iter().map(|name| (*name).to_owned()).collect();
            [("group:ops".to_owned(), members), ("group:unknown".to_owned(), BTreeSet::new())]
                .into()
        };
        let stored = PolicyText { version: 1, text: text.to_owned() };
        let mut book = Rulebook::new(Some(&stored));
        book.compile(&directory, &groups(&[]));
        assert_eq!((book.peers(2), book.peers(1)), (vec![1, 3], vec![2]));
        book.compile(&directory, &groups(&["Anna"]));
        assert_eq!((book.peers(1), book.peers(3)), (vec![2, 3], vec![1, 2]));
        book.compile(&directory, &groups(&[]));
        assert_eq!(book.peers(1), [2], "who is out of it is out at once");
        assert!(check(text, &directory, &groups(&["Anna"])).is_ok());
    }
}
