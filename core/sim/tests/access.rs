//! Worlds with an access policy, against a model that knows words only.
//!
//! Policies are made up as words, written as HuJSON, compiled, printed and told to nodes, each at a
//! time of its own, so that neighbours often enforce different ones. What arrives must be what the
//! model lets through: it looks at one rule and one word at a time, and remembers conversations in
//! a list. Ten thousand steps a world, which is less than any conversation is remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::{Compiled, Directory, Node, NodeId, Policy, User};
use sim::impair::Impairment;
use sim::rng::Rng;
use sim::world::{Fault, HostId, World, inner};

const HOSTS: usize = 5;
const STEPS: usize = 10_000;
const STEP: Duration = Duration::from_millis(10);
const TAGS: [&str; 2] = ["tag:x", "tag:y"];
const PORTS: [u16; 4] = [7, 9, 53, 80];

/// One rule: words for sources and destinations, and the protocol and port, if not all.
#[derive(Clone, Debug)]
struct Words {
    from: Vec<String>,
    to: Vec<String>,
    service: Option<(&'static str, u16)>,
}

/// A policy as words; nothing is no policy.
type Text = Option<Vec<Words>>;

/// What a word knows of a host: its user, and its tags.
type Places = [Vec<&'static str>; HOSTS];

fn word(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "*".to_owned(),
        1 => "group:even".to_owned(),
        2 => "autogroup:member".to_owned(),
        3 => TAGS[rng.below(2) as usize].to_owned(),
        4 => inner(HostId(rng.below(HOSTS as u64) as usize)).0.to_string(),
        5 => inner(HostId(rng.below(HOSTS as u64) as usize)).1.to_string(),
        _ => format!("u{}@", rng.below(HOSTS as u64)),
    }
}

/// Whether a word means this host, over this family.
fn means(word: &str, host: usize, v6: bool, places: &Places) -> bool {
    let is_member = places[host].is_empty();
    let own = if v6 { inner(HostId(host)).1 } else { inner(HostId(host)).0 };
    match word {
        "*" => true,
        "autogroup:member" => is_member,
        "group:even" => is_member && host.is_multiple_of(2),
        _ if word.starts_with("tag:") => places[host].contains(&word),
        _ if word.ends_with('@') => is_member && word == format!("u{host}@"),
        _ => word == own.to_string(),
    }
}

fn print(text: &Text) -> String {
    let Some(rules) = text else { return "{}".to_owned() };
    let list = |words: &[String]| {
        words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
    };
    let grant = |rule: &Words| {
        let service =
            rule.service.map_or_else(|| "*".to_owned(), |(name, port)| format!("{name}:{port}"));
        let (from, to) = (list(&rule.from), list(&rule.to));
        format!("{{\"src\": [{from}], \"dst\": [{to}], \"ip\": [\"{service}\"]}},\n")
    };
    let evens = list(&(0..HOSTS).step_by(2).map(|host| format!("u{host}@")).collect::<Vec<_>>());
    format!(
        "{{\"groups\": {{\"group:even\": [{evens}]}}, // one\n\"tagOwners\": {{\"tag:x\": [], \
         \"tag:y\": []}},\n\"grants\": [{}]}}",
        rules.iter().map(grant).collect::<String>()
    )
}

fn directory(places: &Places) -> Directory {
    let user = |host| User { name: format!("u{host}"), ..User::default() };
    let node = |host: usize| Node {
        id: NodeId(host as u64),
        name: format!("n{host}"),
        addresses: vec![inner(HostId(host)).0, inner(HostId(host)).1],
        owner: Some(format!("u{host}")),
        tags: places[host].iter().map(|tag| (*tag).to_owned()).collect(),
        routes: Vec::new(),
    };
    let (users, nodes) = ((0..HOSTS).map(user).collect(), (0..HOSTS).map(node).collect());
    Directory { users, nodes, ..Directory::default() }
}

/// What is said: protocol, and ports from the sender's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    protocol: &'static str,
    ports: (u16, u16),
    v6: bool,
}

/// What a host says that was started anew.
const GREETING: Said = Said { protocol: "253", ports: (0, 0), v6: false };

/// A conversation from one host's side: with whom, on which of its own and of their ports.
type Talk = (usize, Said);

/// One host as the model has it.
#[derive(Clone, Default)]
struct Model {
    text: Text,
    places: Places,
    /// Conversations, and whether the host itself began each.
    talks: BTreeMap<Talk, bool>,
}

impl Model {
    fn may_begin(&self, from: usize, to: usize, said: Said) -> bool {
        let Some(rules) = &self.text else { return true };
        let meant = |words: &[String], host| {
            words.iter().any(|word| means(word, host, said.v6, &self.places))
        };
        rules.iter().any(|rule| {
            let fits = rule.service.is_none_or(|is| is == (said.protocol, said.ports.1));
            fits && meant(&rule.from, from) && meant(&rule.to, to)
        })
    }

    /// Whether a packet passes at `own`, which sends it or gets it.
    fn passes(&mut self, own: usize, other: usize, said: Said, sends: bool) -> bool {
        if self.text.is_none() {
            return true;
        }
        let turned = Said { ports: (said.ports.1, said.ports.0), ..said };
        let talk = (other, if sends { said } else { turned });
        if self.talks.contains_key(&talk) {
            return true;
        }
        let (from, to) = if sends { (own, other) } else { (other, own) };
        if self.may_begin(from, to, said) {
            self.talks.insert(talk, sends);
            return true;
        }
        // TCP in mid-connection, where a rule would have let it begin from the other end.
        said.protocol == "tcp" && self.may_begin(to, from, turned)
    }

    fn set(&mut self, own: usize, text: Text, places: Places) {
        (self.text, self.places) = (text, places);
        if self.text.is_none() {
            self.talks.clear();
        }
        let model = self.clone();
        self.talks.retain(|&(other, said), &mut began| {
            let turned = Said { ports: (said.ports.1, said.ports.0), ..said };
            match began {
                true => model.may_begin(own, other, said),
                false => model.may_begin(other, own, turned),
            }
        });
    }
}

struct Stage {
    seed: u64,
    rng: Rng,
    world: World,
    models: Vec<Model>,
    text: Text,
    places: Places,
    counts: [u64; 3],
}

impl Stage {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let hosts: Vec<HostId> = (0..HOSTS).map(|host| world.host(host % 2 == 1)).collect();
        world.set_weather(Impairment { delay_us: 500, ..Impairment::NONE });
        for (at, a) in hosts.iter().enumerate() {
            world.set_frames(*a, at != 1);
            hosts[..at].iter().for_each(|b| world.join(*a, *b));
        }
        let mut rng = Rng::new(seed ^ 0xacce55);
        for (at, a) in hosts.iter().enumerate() {
            for b in &hosts[..at] {
                world.send(*a, *b, 64);
            }
        }
        world.run(Duration::from_secs(1));
        let _ = rng.next_u64();
        let models = vec![Model::default(); HOSTS];
        Self { seed, rng, world, models, text: None, places: Places::default(), counts: [0; 3] }
    }

    fn pick(&mut self, below: usize) -> usize {
        self.rng.below(below as u64) as usize
    }

    /// Another policy or another set of tags; nobody is told yet.
    fn change(&mut self) {
        if self.pick(3) == 0 {
            let host = self.pick(HOSTS);
            let tags = self.pick(3);
            self.places[host] = TAGS[..tags].to_vec();
            return;
        }
        if self.pick(20) == 0 {
            self.text = None;
            return;
        }
        let count = self.pick(9);
        let mut rules = Vec::new();
        for _ in 0..count {
            let (from, to) = (1 + self.pick(3), 1 + self.pick(3));
            let service = match self.pick(4) {
                0 => None,
                1 => Some(("tcp", [7, 9][self.pick(2)])),
                _ => Some(("udp", PORTS[self.pick(4)])),
            };
            let mut words = |count| (0..count).map(|_| word(&mut self.rng)).collect();
            rules.push(Words { from: words(from), to: words(to), service });
        }
        self.text = Some(rules);
    }

    /// A host hears of the policy as it is by now.
    fn tell(&mut self) {
        let host = self.pick(HOSTS);
        let text = print(&self.text);
        let (policy, _) = Policy::parse(text.as_bytes()).expect("it is written as it should be");
        let rules = match policy.is_open {
            true => policy::OPEN.to_owned(),
            false => {
                let compiled = Compiled::new(&policy, &directory(&self.places)).expect("it fits");
                compiled.rules_for(NodeId(host as u64)).print().expect("it is short")
            }
        };
        let flows = self.world.node(HostId(host)).policy().map_or(0, policy::Filter::flows);
        let cut = self.world.tell_rules(HostId(host), &rules).expect("it can be read");
        self.models[host].set(host, self.text.clone(), self.places.clone());
        let left = self.models[host].talks.len();
        assert!(
            self.text.is_none() || flows - cut == left,
            "{flows} flows, {cut} cut, {left} left"
        );
        self.counts[2] += cut as u64;
    }

    /// A packet or a superpacket from one host to another: it arrives, or it does not.
    fn send(&mut self) {
        let (from, to) = (self.pick(HOSTS), self.pick(HOSTS));
        if from == to {
            return;
        }
        let v6 = self.pick(2) == 1;
        // Over IPv6 for an odd length; some are near the MTU, so that they are cut.
        let len = [64, 700, 1352][self.pick(3)] + usize::from(v6);
        let before = self.world.ledger().passed(HostId(from), HostId(to));
        let said = match self.pick(4) {
            0 => {
                let segments = [3, 4][self.pick(2)];
                let protocol = if segments == 4 { "tcp" } else { "udp" };
                self.world.send_superpacket(HostId(from), HostId(to), segments, len.min(1_200));
                Said { protocol, ports: (7, 9), v6: len.min(1_200) % 2 == 1 }
            }
            _ => {
                let ports = (PORTS[self.pick(4)], PORTS[self.pick(4)]);
                self.world.send_udp(HostId(from), HostId(to), v6, ports, len);
                Said { protocol: "udp", ports, v6 }
            }
        };
        let mut passes = self.models[from].passes(from, to, said, true);
        passes = passes && self.models[to].passes(to, from, said, false);
        self.world.run(STEP);
        let after = self.world.ledger().passed(HostId(from), HostId(to));
        let (sent, arrived) = (after.sent - before.sent, after.delivered - before.delivered);
        let expected = if passes { sent } else { 0 };
        assert_eq!(
            arrived,
            expected,
            "seed {}: {from} to {to}, {said:?} under {} at the sender and {} at the receiver\n{}",
            self.seed,
            print(&self.models[from].text),
            print(&self.models[to].text),
            self.world.story()
        );
        self.counts[usize::from(!passes)] += 1;
    }

    /// A restart forgets sessions and conversations, and keeps what it was told.
    fn restart(&mut self) {
        let host = self.pick(HOSTS);
        self.world.fault(&Fault::Restart(HostId(host)));
        let rules = self.world.node(HostId(host)).policy().map(|filter| filter.rules().print());
        assert_eq!(rules.is_some(), self.models[host].text.is_some(), "it is in force at once");
        self.world.tell_rules(HostId(host), policy::OPEN).expect("it can be read");
        (0..HOSTS).filter(|other| *other != host).for_each(|other| {
            self.world.send(HostId(host), HostId(other), 64);
        });
        self.world.run(STEP);
        let text = rules.flatten().unwrap_or_else(|| policy::OPEN.to_owned());
        self.world.tell_rules(HostId(host), &text).expect("it can be read");
        self.models[host].talks.clear();
        // What it said is a conversation too, where it passed.
        (0..HOSTS).filter(|other| *other != host).for_each(|other| {
            self.models[other].passes(other, host, GREETING, false);
        });
    }

    fn run(mut self) -> [u64; 3] {
        for _ in 0..STEPS {
            match self.pick(100) {
                0 | 1 => self.change(),
                2..=9 => self.tell(),
                10 if self.pick(20) == 0 => self.restart(),
                _ => self.send(),
            }
        }
        self.counts
    }
}

#[allow(clippy::disallowed_macros, clippy::print_stdout, reason = "a test tells its figures")]
fn run(seeds: std::ops::Range<u64>) {
    let mut sum = [0; 3];
    for seed in seeds.clone() {
        let counts = Stage::new(seed).run();
        let shows = counts.iter().zip([500, 500, 100]).all(|(is, least)| *is > least);
        assert!(shows, "seed {seed} shows too little: {counts:?}");
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [passed, denied, cut] = sum;
    println!("{seeds:?}: {passed} passed, {denied} were denied, {cut} flows were cut");
}

#[test]
fn pf_14_pf_07_what_arrives_is_what_the_model_lets_through() {
    run(0..6);
}

#[test]
#[ignore = "soak"]
fn pf_14_pf_07_in_many_worlds() {
    run(0..300);
}
