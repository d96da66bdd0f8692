//! The tests that a policy file carries, run before it is believed.
//!
//! A test may name who has no node yet, and a file may be checked where no directory is at hand.
//! So the directory is extended for the tests: a node for every user and tag that has none, and a
//! route to every private address that a test names. A policy is compiled against both; only
//! what was compiled against the real directory is ever handed out.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeSet;

use wire::prefix::Prefix;

use crate::compile::{Compiled, Member, is_user};
use crate::directory::{Directory, Node, NodeId, User};
use crate::document::{Policy, Test, TestTarget};
use crate::explain::RuleName;
use crate::place::{Finding, Place, quoted};
use crate::ranges::{Ranges, number};
use crate::selector::Selector;

/// Failures that are told, at most.
const FAILURES_MAX: usize = 20;
/// Pairs of addresses that one test may ask about, at most.
const PAIRS_MAX: usize = 1 << 20;
/// Where the addresses of invented nodes begin: a documentation prefix (RFC 9637).
const INVENTED: u128 = 0x3fff << 112;

/// Compiles `policy` against `directory` and runs the tests of the file.
///
/// # Errors
/// What is wrong with the directory, or up to 20 tests that fail, each with the rule to blame.
pub fn check(policy: &Policy, directory: &Directory) -> Result<Compiled, Vec<Finding>> {
    let wrong = |fault: crate::DirectoryFault| {
        let mend = "mend the directory of users and nodes";
        vec![Finding::new(Place::default(), fault.to_string(), mend)]
    };
    let compiled = Compiled::new(policy, directory).map_err(wrong)?;
    if policy.tests.is_empty() {
        return Ok(compiled);
    }
    let extended = extend(policy, directory);
    let real = directory.nodes.len();
    let trial = Trial { compiled: Compiled::new(policy, &extended).map_err(wrong)?, real };
    let failures: Vec<Finding> =
        policy.tests.iter().flat_map(|test| trial.run(test)).take(FAILURES_MAX).collect();
    if failures.is_empty() { Ok(compiled) } else { Err(failures) }
}

fn extend(policy: &Policy, directory: &Directory) -> Directory {
    let mut extended = directory.clone();
    let targets = |test: &'_ Test| -> Vec<Selector> {
        test.accept.iter().chain(&test.deny).map(|target| target.selector.clone()).collect()
    };
    let mut named: BTreeSet<Selector> = BTreeSet::new();
    for test in &policy.tests {
        named.insert(test.source.0.clone());
        named.extend(targets(test));
    }
    let mut users: BTreeSet<&str> = BTreeSet::new();
    let mut tags: BTreeSet<&str> = BTreeSet::new();
    let mut routes = Vec::new();
    for selector in &named {
        match selector {
            Selector::User(name) => drop(users.insert(name)),
            Selector::Tag(tag) => drop(tags.insert(tag)),
            Selector::Group(group) => {
                users.extend(policy.groups[group].iter().filter_map(|member| match member {
                    Selector::User(name) => Some(name.as_str()),
                    _ => None,
                }));
            }
            Selector::Prefix(prefix) => routes.push(*prefix),
            Selector::Set(ranges) => routes.extend(ranges.prefixes()),
            _ => (),
        }
    }
    for name in users {
        add_user(policy, &mut extended, name);
    }
    for tag in tags {
        if !extended.nodes.iter().any(|node| node.tags.iter().any(|other| other == tag)) {
            let node = invented(&extended, None, vec![tag.to_owned()], Vec::new());
            extended.nodes.push(node);
        }
    }
    let public = Ranges::internet();
    routes.retain(|route| !public.intersects(&Ranges::of_prefixes([*route])));
    let mut router = invented(&extended, None, Vec::new(), routes);
    router.addresses.clear();
    extended.nodes.push(router);
    extended
}

fn add_user(policy: &Policy, extended: &mut Directory, name: &str) {
    let selector = Selector::User(name.to_owned());
    let known = extended.users.iter().find(|user| is_user(policy, &selector, user));
    let owner = match known {
        Some(user) => user.name.clone(),
        None => {
            let owner = name.strip_suffix('@').unwrap_or(name).to_owned();
            extended.users.push(User { name: owner.clone(), ..User::default() });
            owner
        }
    };
    if !extended.nodes.iter().any(|node| node.user() == Some(&owner)) {
        let node = invented(extended, Some(owner), Vec::new(), Vec::new());
        extended.nodes.push(node);
    }
}

fn invented(
    directory: &Directory,
    owner: Option<String>,
    tags: Vec<String>,
    routes: Vec<Prefix>,
) -> Node {
    let highest = directory.nodes.iter().map(|node| node.id.0).max();
    let mut id = highest.map_or(1, |id| id.wrapping_add(1));
    while directory.nodes.iter().any(|node| node.id.0 == id) {
        id = id.wrapping_add(1);
    }
    let place = INVENTED | directory.nodes.len() as u128 | 1 << 64;
    let addresses = vec![IpAddr::V6(Ipv6Addr::from_bits(place))];
    Node { id: NodeId(id), name: "invented for a test".into(), addresses, owner, tags, routes }
}

/// A policy against a directory that was extended; the first `real` nodes are not invented.
struct Trial {
    compiled: Compiled,
    real: usize,
}

enum Outcome {
    AsWanted,
    Nothing,
    TooMany,
    Denied,
    Allowed(RuleName),
}

impl Trial {
    fn run(&self, test: &Test) -> Vec<Finding> {
        let (selector, text) = &test.source;
        let sources = self.addresses(selector);
        let name = format!("tests[{}]", test.index);
        if sources.is_empty() {
            let what = format!("{name}: {} is nobody", quoted(text));
            return vec![Finding::new(
                test.place,
                what,
                "name a user, group, tag or address that is",
            )];
        }
        let mut failures = Vec::new();
        for (targets, must_pass) in [(&test.accept, true), (&test.deny, false)] {
            for target in targets {
                let destinations = self.destinations(&target.selector);
                let found = self.pair(test, target, must_pass, &sources, &destinations);
                let (what, mend) = match found {
                    Outcome::AsWanted => continue,
                    Outcome::Nothing => ("is nobody".to_owned(), "name somebody".to_owned()),
                    Outcome::TooMany => {
                        (format!("asks about more than {PAIRS_MAX} pairs"), "name fewer".to_owned())
                    }
                    Outcome::Denied => (
                        format!("must be reached by {}, and no rule allows it", quoted(text)),
                        "add a rule, or mend the test".to_owned(),
                    ),
                    Outcome::Allowed(rule) => (
                        format!("must not be reached by {}, and {rule} allows it", quoted(text)),
                        format!("narrow the rule at {}, or mend the test", rule.place),
                    ),
                };
                let what = format!("{name}: {} {what}", quoted(&target.text));
                failures.push(Finding::new(target.place, what, mend));
            }
        }
        failures
    }

    /// Asks about every source with every destination: all must pass, or none may.
    fn pair(
        &self,
        test: &Test,
        target: &TestTarget,
        must_pass: bool,
        sources: &[(u128, Option<String>)],
        destinations: &[(u128, Option<String>)],
    ) -> Outcome {
        if destinations.is_empty() && target.selector != Selector::OwnUser {
            return Outcome::Nothing;
        }
        if sources.len().saturating_mul(destinations.len()) > PAIRS_MAX {
            return Outcome::TooMany;
        }
        for (source, user) in sources {
            for (destination, other) in destinations {
                if target.selector == Selector::OwnUser && (user.is_none() || user != other) {
                    continue;
                }
                let allowed = test.protocols.iter().find_map(|protocol| {
                    self.compiled.allowing(*source, *destination, *protocol, target.port)
                });
                match allowed {
                    None if must_pass => return Outcome::Denied,
                    Some(rule) if !must_pass => return Outcome::Allowed(rule),
                    _ => (),
                }
            }
        }
        Outcome::AsWanted
    }

    /// What a destination stands for: every node's first address, or the ends of a prefix.
    fn destinations(&self, selector: &Selector) -> Vec<(u128, Option<String>)> {
        match selector {
            Selector::OwnUser => self.addresses(&Selector::Member),
            Selector::Internet => {
                let public = Ranges::internet();
                public.as_slice().iter().map(|range| (range.first, None)).collect()
            }
            other => self.addresses(other),
        }
    }

    fn addresses(&self, selector: &Selector) -> Vec<(u128, Option<String>)> {
        let named = match selector {
            Selector::Prefix(prefix) => Some(Ranges::of_prefixes([*prefix])),
            Selector::Set(ranges) => Some(ranges.clone()),
            _ => None,
        };
        if let Some(ranges) = named {
            let ends = ranges.as_slice().iter().flat_map(|range| [range.first, range.last]);
            let user = |address| {
                let at = self.compiled.by_address.get(&address)?;
                self.compiled.members[*at].node.user().map(str::to_owned)
            };
            let ends: BTreeSet<u128> = ends.collect();
            return ends.into_iter().map(|address| (address, user(address))).collect();
        }
        // What was invented is meant by the name that it was invented for, and by wider ones only
        // where there is nobody else.
        let real = &self.compiled.members[..self.real];
        let all = &self.compiled.members[..];
        let is_meant = |member: &&Member| self.compiled.is_meant(member, selector);
        let is_wide = matches!(selector, Selector::Any | Selector::Member | Selector::Tagged);
        let among = if is_wide && real.iter().any(|member| is_meant(&member)) { real } else { all };
        let all = among.iter().filter(is_meant).flat_map(|member| {
            let user = member.node.user().map(str::to_owned);
            member.node.addresses.iter().map(move |address| (number(*address), user.clone()))
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::tests::{directory, policy};

    fn failures(text: &str, directory: &Directory) -> Vec<String> {
        let outcome = check(&policy(text), directory);
        outcome.err().unwrap_or_default().iter().map(Finding::to_string).collect()
    }

    const RULES: &str = "{\"groups\": {\"group:dev\": [\"ann@\", \"new@example.com\"]},\n\
        \"tagOwners\": {\"tag:web\": [], \"tag:none\": []},\n\
        \"acls\": [{\"action\": \"accept\", \"src\": [\"group:dev\"], \
        \"dst\": [\"tag:web:443\"]},\n\
        {\"action\": \"accept\", \"src\": [\"ann@\"], \"dst\": [\"10.1.0.0/16:22\"]},\n\
        {\"action\": \"accept\", \"src\": [\"autogroup:member\"],\n\
        \"dst\": [\"autogroup:self:*\", \"autogroup:internet:443\"]}],\n\"tests\": [\n";

    #[test]
    fn pf_14_a_policy_that_fails_a_test_of_its_own_is_refused_with_the_rule() {
        let wrong = format!(
            "{RULES}{{\"src\": \"group:dev\", \"accept\": [\"tag:web:443\"],\n\
             \"deny\": [\"tag:web:443\"]}},\n\
             {{\"src\": \"ben@\", \"accept\": [\"tag:web:443\"]}}]}}"
        );
        for directory in [directory(), Directory::default()] {
            assert_eq!(
                failures(&wrong, &directory),
                [
                    "9:10: tests[0]: \"tag:web:443\" must not be reached by \"group:dev\", and \
                     acls[0] (line 3) allows it: narrow the rule at 3:10, or mend the test",
                    "10:28: tests[1]: \"tag:web:443\" must be reached by \"ben@\", and no rule \
                     allows it: add a rule, or mend the test"
                ]
            );
        }
    }

    #[test]
    fn tests_hold_with_and_without_a_directory() {
        let right = format!(
            "{RULES}{{\"src\": \"group:dev\", \"accept\": [\"tag:web:443\"], \
             \"deny\": [\"tag:web:80\", \"tag:none:443\"]}},\n\
             {{\"src\": \"ann@\", \"accept\": [\"10.1.2.3:22\", \"10.1.0.0/16:22\"], \
             \"deny\": [\"10.2.0.1:22\", \"10.0.0.0/8:22\"]}},\n\
             {{\"src\": \"ann@\", \"proto\": \"udp\", \"accept\": [\"tag:web:443\"]}},\n\
             {{\"src\": \"ann@\", \"proto\": \"icmp\", \"accept\": [\"tag:web:*\"]}},\n\
             {{\"src\": \"ann@\", \"proto\": \"sctp\", \"deny\": [\"tag:web:443\"]}},\n\
             {{\"src\": \"ben@\", \"accept\": [\"autogroup:self:22\", \"8.8.8.8:443\", \
             \"autogroup:internet:443\"], \"deny\": [\"tag:web:443\", \"10.1.2.3:22\"]}},\n\
             {{\"src\": \"tag:web\", \"deny\": [\"group:dev:443\", \"autogroup:member:22\"]}}]}}"
        );
        for directory in [directory(), Directory::default()] {
            assert_eq!(failures(&right, &directory), [""; 0]);
        }
    }

    #[test]
    fn what_is_invented_for_tests_is_not_handed_out() {
        let text = format!("{RULES}{{\"src\": \"new@example.com\", \"accept\": []}}]}}");
        let compiled = check(&policy(&text), &directory()).unwrap();
        assert_eq!(compiled.members.len(), directory().nodes.len());
        let rules = compiled.rules_for(NodeId(4));
        assert!(!rules.inward.is_empty());
        let invented = Ranges::of_prefixes(["3fff::/20".parse().unwrap()]);
        assert!(rules.inward.iter().all(|rule| !rule.sources.intersects(&invented)));
    }

    #[test]
    fn a_star_means_those_who_are_there() {
        let text = "{\"grants\": [{\"src\": [\"ann@\"], \"dst\": [\"ann@\", \"ben@\", \
            \"100.64.0.4/30\", \"fd7a::4/126\"], \"ip\": [\"*\"]}],\n\
            \"tests\": [{\"src\": \"ann@\", \"accept\": [\"*:22\"]},\n\
            {\"src\": \"new@\", \"deny\": [\"*:22\", \"10.7.0.1:22\"]}]}";
        assert_eq!(failures(text, &directory()), [""; 0]);
    }

    #[test]
    fn a_test_of_nobody_fails() {
        let text = "{\"acls\": [], \"tests\": [{\"src\": \"autogroup:admin\", \"deny\": []}]}";
        let failed = failures(text, &Directory::default());
        assert!(failed[0].contains("tests[0]: \"autogroup:admin\" is nobody"), "{failed:?}");
        let mut twice = directory();
        twice.nodes.push(twice.nodes[0].clone());
        assert!(failures("{\"acls\": []}", &twice)[0].contains("two nodes have the number 1"));
    }
}
