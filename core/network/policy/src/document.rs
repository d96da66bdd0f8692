//! A policy as it was written: names are checked against the file itself, not yet against nodes.

use std::collections::BTreeMap;

use wire::prefix::Prefix;

use crate::place::Place;
use crate::ranges::Ranges;
use crate::rules::Service;
use crate::selector::Selector;

/// Entries of `acls` and `grants` together, at most.
pub const RULES_MAX: usize = 4096;
/// Entries of one list of selectors, at most.
pub const LIST_MAX: usize = 4096;
/// Entries of `tests`, at most.
pub const TESTS_MAX: usize = 1024;

/// A policy file, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// There is no policy: every node may reach every node, what is behind it, and the Internet.
    pub is_open: bool,
    /// `hosts`: what the file calls addresses.
    pub hosts: BTreeMap<String, Prefix>,
    /// `ipsets`: what the file calls sets of addresses, by its name with `ipset:`.
    pub sets: BTreeMap<String, Ranges>,
    /// `groups`: the users of each, by its name with `group:`.
    pub groups: BTreeMap<String, Vec<Selector>>,
    /// `tagOwners`: who may give each tag, by its name with `tag:`.
    pub tag_owners: BTreeMap<String, Vec<Selector>>,
    /// `acls`, then `grants`, in the order of the file.
    pub grants: Vec<Grant>,
    /// `autoApprovers`, `routes`: whose announcements of parts of a prefix need no further word.
    pub routes: Vec<(Prefix, Vec<Selector>)>,
    /// `autoApprovers`, `exitNode`.
    pub exits: Vec<Selector>,
    /// `multicast`.
    pub casts: Vec<Cast>,
    /// `linkReports` is false: nodes are not to report how their links are.
    pub hides_links: bool,
    /// `tests`.
    pub tests: Vec<Test>,
}

/// In which list of the file a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// `acls`.
    Acls,
    /// `grants`.
    Grants,
    /// `circuits`.
    Circuits,
    /// In no file: everything is allowed, since there is no policy.
    Open,
}

impl Section {
    /// Its key in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acls => "acls",
            Self::Grants => "grants",
            Self::Circuits => "circuits",
            Self::Open => "no policy",
        }
    }
}

/// One rule: any of the sources may use any target's services at any target's destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where it begins.
    pub place: Place,
    /// Its list.
    pub section: Section,
    /// Its number in that list, from 0.
    pub index: usize,
    /// `src`.
    pub sources: Vec<Selector>,
    /// `dst`, those with equal services together.
    pub targets: Vec<Target>,
    /// `compress`: what it lets pass may be compressed on the way.
    pub compress: bool,
}

/// Destinations, and what may be used there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The destinations.
    pub selectors: Vec<Selector>,
    /// The services.
    pub services: Vec<Service>,
}

/// One rule of `multicast`: what any source sends to a group is copied to every receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Where it begins.
    pub place: Place,
    /// `groups`, those with equal ports together.
    pub targets: Vec<(Vec<Service>, Vec<Prefix>)>,
    /// `src`.
    pub sources: Vec<Selector>,
    /// `dst`.
    pub receivers: Vec<Selector>,
    /// `rate`: what each source may send, in bytes a second.
    pub rate_bytes_s: u64,
}

/// One entry of `tests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Where it begins.
    pub place: Place,
    /// Its number, from 0.
    pub index: usize,
    /// `src`, and as it was written.
    pub source: (Selector, String),
    /// Protocols of which one has to be allowed by `accept`, and none by `deny`.
    pub protocols: Vec<u8>,
    /// What has to be reached.
    pub accept: Vec<TestTarget>,
    /// What must not be reached.
    pub deny: Vec<TestTarget>,
}

/// One destination of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestTarget {
    /// Where it stands.
    pub place: Place,
    /// As it was written.
    pub text: String,
    /// The destination.
    pub selector: Selector,
    /// The port; 0 where the protocol has none.
    pub port: u16,
}

impl Policy {
    /// What holds where no policy was ever set: everything is allowed, as users of Tailscale and
    /// Headscale expect. Never what a file that could not be read becomes (PF-08).
    #[must_use]
    pub fn open() -> Self {
        let grant = Grant {
            place: Place::default(),
            section: Section::Open,
            index: 0,
            sources: vec![Selector::Any],
            targets: vec![Target {
                selectors: vec![Selector::Any, Selector::Internet],
                services: vec![Service::ANY],
            }],
            compress: false,
        };
        Self { is_open: true, grants: vec![grant], ..Self::default() }
    }
}
