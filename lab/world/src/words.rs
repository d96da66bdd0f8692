//! Policies as words, and what they mean: one rule and one word at a time.

use std::net::IpAddr;

use sim::rng::Rng;

use super::member::Member;

/// All users of a world.
pub(super) const USERS: [&str; 3] = ["ann", "ben", "eva"];
/// All tags.
pub(super) const TAGS: [&str; 2] = ["tag:x", "tag:y"];
/// Ports on which somebody may be spoken to.
pub(super) const PORTS: [u16; 3] = [7, 53, 80];
/// Users of the one group.
const GROUP: [&str; 2] = ["ann", "eva"];

/// One rule: words for sources and destinations, and the port, if not all.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    from: Vec<String>,
    to: Vec<String>,
    port: Option<u16>,
}

/// A policy as words; nothing is no policy, under which everything passes.
pub(super) type Text = Option<Vec<Rule>>;

/// A first datagram: its family and the port it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) v6: bool,
    pub(super) port: u16,
}

/// Makes a policy up. `addresses` are those that it may name.
pub(super) fn invent(rng: &mut Rng, addresses: &[IpAddr]) -> Text {
    let rules = match rng.below(8) {
        0 => return None,
        // Nothing passes.
        1 if rng.chance(0.3) => 0,
        _ => 1 + rng.below(6),
    };
    let rule = |_| {
        let from = 1 + rng.below(2);
        let to = 1 + rng.below(2);
        let from = (0..from).map(|_| word(rng, addresses)).collect();
        let to = (0..to).map(|_| word(rng, addresses)).collect();
        let port = rng.chance(0.5).then(|| PORTS[rng.below(3) as usize]);
        Rule { from, to, port }
    };
    Some((0..rules).map(rule).collect())
}

fn word(rng: &mut Rng, addresses: &[IpAddr]) -> String {
    let address = rng.below(addresses.len() as u64) as usize;
    match rng.below(10) {
        0 | 9 => "*".to_owned(),
        1 => "group:g".to_owned(),
        2 => "autogroup:member".to_owned(),
        3 => "autogroup:tagged".to_owned(),
        4 | 5 => TAGS[rng.below(2) as usize].to_owned(),
        6 if !addresses.is_empty() => addresses[address].to_string(),
        _ => format!("{}@", USERS[rng.below(3) as usize]),
    }
}

/// As an administrator would write it.
pub(super) fn print(text: &Text) -> String {
    let Some(rules) = text else { return "{}".to_owned() };
    let list = |words: &[String]| {
        words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
    };
    let grant = |rule: &Rule| {
        let service = rule.port.map_or_else(|| "*".to_owned(), |port| format!("udp:{port}"));
        let from = list(&rule.from);
        let to = list(&rule.to);
        format!("{{\"src\": [{from}], \"dst\": [{to}], \"ip\": [\"{service}\"]}},\n")
    };
    let group = list(&GROUP.map(|user| format!("{user}@")));
    format!(
        "{{\"groups\": {{\"group:g\": [{group}]}}, // one\n\"tagOwners\": {{\"tag:x\": [], \
         \"tag:y\": []}},\n\"grants\": [{}]}}",
        rules.iter().map(grant).collect::<String>()
    )
}

/// Whether a word means this node, over this family.
fn means(word: &str, node: &Member, v6: bool) -> bool {
    // Who has tags acts for nobody.
    let user = node.user.filter(|_| node.tags.is_empty());
    match word {
        "*" => true,
        "group:g" => user.is_some_and(|user| GROUP.contains(&user)),
        "autogroup:member" => user.is_some(),
        "autogroup:tagged" => !node.tags.is_empty(),
        _ if word.starts_with("tag:") => node.tags.iter().any(|tag| tag == word),
        _ if word.ends_with('@') => user.is_some_and(|user| word == format!("{user}@")),
        _ => word == node.address(v6).to_string(),
    }
}

fn speaks(rule: &Rule, from: &Member, to: &Member, v6: bool) -> bool {
    let meant = |words: &[String], node| words.iter().any(|word| means(word, node, v6));
    meant(&rule.from, from) && meant(&rule.to, to)
}

/// Whether one may begin to speak to the other.
pub(super) fn may_begin(text: &Text, from: &Member, to: &Member, said: Said) -> bool {
    let Some(rules) = text else { return true };
    let fits = |rule: &&Rule| rule.port.is_none_or(|port| port == said.port);
    rules.iter().filter(fits).any(|rule| speaks(rule, from, to, said.v6))
}

/// Whether a rule lets one begin to speak to the other, over some family, so that both are told of
/// each other.
pub(super) fn may_meet(text: &Text, one: &Member, other: &Member) -> bool {
    let Some(rules) = text else { return true };
    let meet = |rule: &Rule, v6| speaks(rule, one, other, v6) || speaks(rule, other, one, v6);
    rules.iter().any(|rule| meet(rule, false) || meet(rule, true))
}
