//! The access language, from the text that an administrator writes to the verdict on one packet.
//!
//! This crate reads no file, asks no clock and knows no peer by key. Text, a directory of users and
//! nodes, packets and milliseconds come in as arguments; a policy, rules, verdicts and reasons go
//! out. No input makes it panic, and whatever is not understood lets nothing pass.
//!
//! The life of one rule, `{"action": "accept", "src": ["group:dev"], "dst": ["tag:web:443"]}`:
//!
//! 1. [`Policy::parse`] reads the whole file: HuJSON, which is JSON with comments and trailing
//!    commas. Every value keeps its [`Place`]. What is wrong is told with line, column and remedy;
//!    what is right but not enforced here (`ssh`, `nodeAttrs`) is a warning.
//! 2. [`check`] compiles it against a [`Directory`]: `group:dev` becomes the addresses of its
//!    members' nodes, `tag:web` those of its bearers. The tests that the file carries are run; a
//!    policy that fails one of its own is refused, and the last good one stays.
//! 3. [`Compiled::rules_for`] cuts out what one node needs to enforce: who may send what to it and
//!    to the networks behind it, and what it and they may send to whom. [`Compiled::peers_of`] says
//!    which nodes it may know of at all.
//! 4. [`Rules::print`] makes them text, which travels in the node's map; [`Rules::read`] takes it
//!    as it was written or not at all. The node gives the [`Rules`] to its [`Filter`], which both
//!    ends of a link ask about every packet. The first packet of a flow walks the rules; all
//!    others find their flow in a table. Replies pass because of that flow, and for no other
//!    reason. New rules cut at once what they no longer allow.
//! 5. [`Compiled::explain`] tells which line lets a packet through, or why none does.
//!
//! What keeps it honest: [`Compiled`] and [`Filter`] are tested against a naive evaluation of the
//! parsed text over random policies, directories and packets. Before a node was given rules,
//! its filter denies everything.
//!
//! What keeps it bounded: text, depth and numbers of everything in a file have named maxima; so
//! has the table of flows, in which a peer that fills its share displaces its own flows only.
//! Where users of Tailscale and Headscale will notice a difference stands in docs/policy.md.

#![forbid(unsafe_code)]

mod address;
mod approve;
mod check;
mod compile;
mod directory;
mod document;
mod explain;
mod filter;
mod flows;
mod hash;
mod hujson;
mod judged;
mod multicast;
mod place;
mod ranges;
mod read;
mod remarks;
mod rules;
mod selector;
mod subject;
mod told;

pub use address::is_unicast;
pub use approve::{Approval, Refusal};
pub use check::check;
pub use compile::{Compiled, DirectoryFault, RefusedRoute};
pub use directory::{Directory, NODES_MAX, Node, NodeId, User};
pub use document::{
    Cast, Grant, LIST_MAX, Policy, RULES_MAX, Section, TESTS_MAX, Target, Test, TestTarget,
};
pub use explain::{Explanation, RuleName, Why, in_family, pair};
pub use filter::{Filter, Peer, Verdict};
pub use flows::{
    FLOWS_MAX, FLOWS_PER_PEER_MAX, FRAGMENT_MS, FRAGMENTS_MAX, ICMP_MS, OTHER_MS, PEERS_MAX,
    TCP_CLOSING_MS, TCP_OPEN_MS, TCP_OPENING_MS, UDP_MS, UDP_ONE_WAY_MS,
};
pub use hujson::{DEPTH_MAX, TEXT_MAX, VALUES_MAX};
pub use judged::{Direction, Reason};
pub use multicast::MULTICAST_MAX;
pub use place::{Finding, Place};
pub use ranges::{Range, Ranges};
pub use rules::{Multicast, Rule, Rules, Service};
pub use selector::{NAME_MAX, PORTS_MAX, Selector};
pub use told::{BadRules, OPEN, TOLD_BYTES_MAX, TOLD_RANGES_MAX, TOLD_RULES_MAX};
