//! Rules on their way to a node: text that the server writes into a map and the node reads.
//!
//! One line that says what it is, then sets of addresses, each once, then rules that name them:
//!
//! ```text
//! warren-rules 1
//! = 100.64.0.2,100.64.0.7-100.64.0.9
//! = 100.64.0.1
//! in 4 6:80-81,17:* 0 1
//! out 9 * 1 0 compress
//! cast out 12 17:7400-7410 2 1 0 125000
//! ```
//!
//! A rule is its direction, the line of the policy file, its services (protocol and ports, `*` for
//! all), the number of its set of sources and that of its destinations, and `compress` where what
//! it allows may be compressed. A `cast` is a rule of multicast: its direction, the line, its
//! ports, the sets of its groups, sources and receivers, and bytes a second.
//!
//! Where no policy was ever set the text is [`OPEN`]. A reader takes what this writer writes and
//! nothing else: not a set that is unsorted or unused, not a number with a zero in front. Whatever
//! is refused is to be enforced as rules that let nothing pass (PF-08).

use core::fmt::{self, Write as _};
use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::judged::Direction;
use crate::multicast::MULTICAST_MAX;
use crate::ranges::{Range, Ranges, number};
use crate::rules::{Multicast, Rule, Rules, Service};

/// What a node is told where no policy was ever set: everything passes.
pub const OPEN: &str = "warren-rules 1 open\n";
/// Bytes of the text, at most.
pub const TOLD_BYTES_MAX: usize = 1 << 20;
/// Rules of one node, at most, in both directions together.
pub const TOLD_RULES_MAX: usize = 1 << 15;
/// Ranges in all sets of all rules, at most, each counted as often as a rule uses it.
pub const TOLD_RANGES_MAX: usize = 1 << 18;

const HEAD: &str = "warren-rules 1";

/// Why a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRules {
    /// It does not begin as rules of this version do.
    Head,
    /// It is beyond a bound; which one.
    Bound(&'static str),
    /// A line, counted from 1, is none that a writer writes.
    Line(usize),
}

impl fmt::Display for BadRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("these are no rules of a version that is known"),
            Self::Bound(what) => write!(f, "the rules have more than allowed of: {what}"),
            Self::Line(line) => write!(f, "line {line} of the rules cannot be understood"),
        }
    }
}

impl core::error::Error for BadRules {}

impl Rules {
    /// The text for the node that is to enforce them; `None` if they are more than a node takes.
    #[must_use]
    pub fn print(&self) -> Option<String> {
        let mut known = Sets::default();
        let mut rules = String::new();
        let mut count = 0;
        let inward = self.inward.iter().map(|rule| ("in", rule));
        for (word, rule) in inward.chain(self.outward.iter().map(|rule| ("out", rule))) {
            let mut place = |set| known.place(set);
            let places = [place(&rule.sources), place(&rule.destinations)];
            let _ = write!(rules, "{word} {} ", rule.line);
            print_services(&mut rules, &rule.services);
            let compress = if rule.compress { " compress" } else { "" };
            let _ = writeln!(rules, " {} {}{compress}", places[0], places[1]);
            count += 1;
            if known.text.len() + rules.len() > TOLD_BYTES_MAX {
                return None;
            }
        }
        for cast in &self.multicast {
            print_cast(&mut rules, cast, &mut known);
        }
        let ranges = known.ranges;
        let text = format!("{HEAD}\n{}{rules}", known.text);
        let fits = text.len() <= TOLD_BYTES_MAX;
        let casts = self.multicast.len();
        let is_bounded = count <= TOLD_RULES_MAX && casts <= 2 * MULTICAST_MAX;
        (fits && is_bounded && ranges <= TOLD_RANGES_MAX).then_some(text)
    }

    /// Reads what [`Rules::print`] wrote; `None` is [`OPEN`]: there is nothing to enforce.
    ///
    /// # Errors
    /// [`BadRules`]; then nothing may pass.
    pub fn read(text: &str) -> Result<Option<Self>, BadRules> {
        if text == OPEN {
            return Ok(None);
        }
        if text.len() > TOLD_BYTES_MAX {
            return Err(BadRules::Bound("bytes"));
        }
        let mut lines = text.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(BadRules::Head);
        }
        let mut sets = Vec::new();
        let mut rules = Self::default();
        let mut ranges = 0;
        let mut count = 0;
        for (at, line) in (2..).zip(lines) {
            if line.is_empty() {
                continue;
            }
            let wrong = BadRules::Line(at);
            if let Some(set) = line.strip_prefix("= ") {
                sets.push(read_set(set).ok_or(wrong)?);
                continue;
            }
            if let Some(cast) = line.strip_prefix("cast ") {
                rules.multicast.push(read_cast(cast, &sets).ok_or(wrong)?);
                continue;
            }
            let (is_in, rule) = read_rule(line, &sets).ok_or(wrong)?;
            ranges += rule.sources.as_slice().len() + rule.destinations.as_slice().len();
            count += 1;
            if count > TOLD_RULES_MAX {
                return Err(BadRules::Bound("rules"));
            }
            if ranges > TOLD_RANGES_MAX {
                return Err(BadRules::Bound("ranges"));
            }
            if is_in { rules.inward.push(rule) } else { rules.outward.push(rule) }
        }
        // Whatever else might be wrong is not what a writer writes.
        let printed = rules.print().ok_or(BadRules::Bound("bytes"))?;
        if printed == text {
            return Ok(Some(rules));
        }
        let same = printed.split('\n').zip(text.split('\n')).take_while(|(a, b)| a == b);
        Err(BadRules::Line(same.count() + 1))
    }
}

/// The sets of addresses, each written once, and how many ranges all uses of them have together.
#[derive(Default)]
struct Sets<'a> {
    places: BTreeMap<&'a [Range], usize>,
    text: String,
    ranges: usize,
}

impl<'a> Sets<'a> {
    fn place(&mut self, set: &'a Ranges) -> usize {
        self.ranges += set.as_slice().len();
        let next = self.places.len();
        *self.places.entry(set.as_slice()).or_insert_with(|| {
            print_set(&mut self.text, set);
            next
        })
    }
}

fn print_cast<'a>(text: &mut String, cast: &'a Multicast, sets: &mut Sets<'a>) {
    let word = if cast.direction == Direction::In { "in" } else { "out" };
    let _ = write!(text, "cast {word} {} ", cast.line);
    print_services(text, &cast.services);
    for set in [&cast.groups, &cast.sources, &cast.receivers] {
        let _ = write!(text, " {}", sets.place(set));
    }
    let _ = writeln!(text, " {}", cast.rate_bytes_s);
}

fn read_cast(line: &str, sets: &[Ranges]) -> Option<Multicast> {
    let mut words = line.split(' ');
    let direction = match words.next()? {
        "in" => Direction::In,
        "out" => Direction::Out,
        _ => return None,
    };
    let line = words.next()?.parse().ok()?;
    let services = words.next()?.split(',').map(read_service).collect::<Option<Vec<_>>>()?;
    let mut set = || sets.get(words.next()?.parse::<usize>().ok()?).cloned();
    let groups = set()?;
    let sources = set()?;
    let receivers = set()?;
    let rate_bytes_s = words.next()?.parse().ok()?;
    let cast = Multicast { direction, line, groups, services, sources, receivers, rate_bytes_s };
    words.next().is_none().then_some(cast)
}

fn print_set(text: &mut String, set: &Ranges) {
    text.push_str("= ");
    for (at, range) in set.as_slice().iter().enumerate() {
        let _ = write!(text, "{}{range}", if at == 0 { "" } else { "," });
    }
    text.push('\n');
}

fn print_services(text: &mut String, services: &[Service]) {
    for (at, service) in services.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        let _ = match (service.protocol, service.first, service.last) {
            (None, ..) => write!(text, "*"),
            (Some(number), 0, u16::MAX) => write!(text, "{number}:*"),
            (Some(number), first, last) => write!(text, "{number}:{first}-{last}"),
        };
    }
}

fn read_set(text: &str) -> Option<Ranges> {
    let mut ranges: Vec<Range> = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let at = |text: &str| text.parse::<IpAddr>().ok().map(number);
        let range = Range { first: at(first)?, last: at(last)? };
        let follows = ranges.last().is_none_or(|before| {
            before.last.checked_add(1).is_some_and(|after| after < range.first)
        });
        if !follows || range.first > range.last {
            return None;
        }
        ranges.push(range);
    }
    Some(Ranges::new(ranges))
}

fn read_rule(line: &str, sets: &[Ranges]) -> Option<(bool, Rule)> {
    let mut words = line.split(' ');
    let is_in = match words.next()? {
        "in" => true,
        "out" => false,
        _ => return None,
    };
    let line = words.next()?.parse().ok()?;
    let services = words.next()?.split(',').map(read_service).collect::<Option<Vec<_>>>()?;
    let mut set = || sets.get(words.next()?.parse::<usize>().ok()?).cloned();
    let sources = set()?;
    let destinations = set()?;
    let compress = match words.next() {
        None => false,
        Some("compress") => true,
        Some(_) => return None,
    };
    let rule = Rule { sources, destinations, services, line, compress };
    words.next().is_none().then_some((is_in, rule))
}

fn read_service(text: &str) -> Option<Service> {
    if text == "*" {
        return Some(Service::ANY);
    }
    let (protocol, ports) = text.split_once(':')?;
    let protocol = Some(protocol.parse().ok()?);
    if ports == "*" {
        return Some(Service { protocol, first: 0, last: u16::MAX });
    }
    let (first, last) = ports.split_once('-')?;
    let service = Service { protocol, first: first.parse().ok()?, last: last.parse().ok()? };
    (service.first <= service.last).then_some(service)
}

#[cfg(test)]
mod tests;
