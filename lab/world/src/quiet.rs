//! Quiet: nothing changes any more, everything is mended, and after a while all who are in touch
//! are where the model says, and speak with whom it says.

use std::time::Duration;

use super::machine::{Machine, Way};
use super::member::Member;
use super::stage::Stage;
use super::words::{PORTS, Said};
use control::limits::ENDPOINTS_MAX;
use control::{Map, NodeId, Peer};

/// Until everybody knows everything: the longest wait of a poll that was lost, and of a pause
/// after failures, and the grace of who went away.
const SETTLED_WITHIN: Duration = Duration::from_secs(55 + 30 + 15 + 5);
/// Until everybody who may has spoken: a lost session is noticed after 15 s of silence, and
/// initiations are 5 s apart.
const SPOKEN_WITHIN: Duration = Duration::from_secs(30);
/// Answers are asked for so many times.
const REPLIES: usize = 3;

impl Stage {
    /// Mends everything, waits, and compares.
    pub(super) fn quiet(&mut self) {
        self.tell("quiet");
        if !self.office.is_up() {
            self.start_server();
        }
        (0..self.machines.len()).for_each(|number| self.heal(number));
        if !self.relays.contains(&true) {
            let relay = self.rng.below(2) as usize;
            self.set_relay(relay, true);
            self.tell(&format!("relay {relay} works: true"));
        }
        // Machines notice what was mended, before they are compared with each other.
        self.run(Duration::from_secs(1));
        self.settle();
        self.speak();
        self.settle();
        self.count("quiet");
    }

    fn settle(&mut self) {
        let end = self.world.now() + SETTLED_WITHIN;
        loop {
            let Some(what) = self.first_difference() else { return };
            if self.world.now() >= end {
                self.fail(&format!("{SETTLED_WITHIN:?} of quiet, and {what}"));
            }
            self.run(Duration::from_secs(1));
        }
    }

    fn first_difference(&self) -> Option<String> {
        let members = &self.model.books.members;
        for (at, one) in members.iter().enumerate() {
            for other in &members[..at] {
                let both = one.name == other.name || one.addresses == other.addresses;
                if both || one.key == other.key {
                    return Some(format!("{one:?} and {other:?} are alike"));
                }
            }
        }
        let machines = self.machines.iter().filter(|machine| machine.is_on);
        machines.filter_map(|machine| self.difference_at(machine)).next()
    }

    fn difference_at(&self, machine: &Machine) -> Option<String> {
        let number = machine.number;
        if machine.disk.token.is_some() {
            return Some(format!("m{number} still waits to join"));
        }
        if machine.leaving.is_some() {
            return Some(format!("m{number} still waits to leave"));
        }
        let peers = self.world.node(machine.host).peers(self.world.now(), Duration::ZERO);
        let member = self.model.books.of(number).filter(|member| !member.expired);
        let Some(member) = member else {
            let is_out = machine.map.is_none() && peers.is_empty();
            return (!is_out).then(|| format!("m{number} is no member, and knows {peers:?}"));
        };
        if let Some(refusal) = &machine.refusal {
            return Some(format!("m{number} was refused: {refusal:?}"));
        }
        let Some(map) = &machine.map else { return Some(format!("m{number} has no map")) };
        if machine.disk.next.is_some() {
            return Some(format!("m{number} still waits for another key"));
        }
        if !self.knows_rules(machine, member) {
            return Some(format!("m{number} knows other rules than those that hold"));
        }
        let expected: Vec<&Member> = self.model.books.peers_of(member);
        self.difference_of_map(map, member, &expected).or_else(|| {
            let of = |member: &&Member| member.key;
            let mut wanted: Vec<_> = expected.iter().map(of).collect();
            let mut known: Vec<_> = peers.iter().map(|peer| peer.key).collect();
            wanted.sort_unstable();
            known.sort_unstable();
            (wanted != known).then(|| format!("m{number}'s node has other peers than its map"))
        })
    }

    /// Whether what held when its map was made is what holds, as far as it is concerned.
    fn knows_rules(&self, machine: &Machine, me: &Member) -> bool {
        let Some(known) = machine.books() else { return false };
        let books = &self.model.books;
        let all = PORTS.iter().flat_map(|port| [false, true].map(|v6| Said { v6, port: *port }));
        let is_alike = |said: Said| {
            books.members.iter().filter(|other| other.id != me.id).all(|other| {
                let ends = (me.address(said.v6), other.address(said.v6));
                let back = (ends.1, ends.0);
                known.lets(ends, said) == books.lets(ends, said)
                    && known.lets(back, said) == books.lets(back, said)
            })
        };
        all.into_iter().all(is_alike)
    }

    fn difference_of_map(&self, map: &Map, me: &Member, expected: &[&Member]) -> Option<String> {
        let number = me.machine;
        let own = &map.me;
        let all = (me.id, &me.name, &me.addresses[..], &me.tags, me.approved);
        if (own.id.0, &own.name, &own.addresses[..], &own.tags, own.approved) != all {
            return Some(format!("m{number} takes itself for {own:?}"));
        }
        let seen: Vec<NodeId> = map.peers.iter().map(|peer| peer.id).collect();
        let wanted: Vec<NodeId> = expected.iter().map(|member| NodeId(member.id)).collect();
        if seen != wanted {
            return Some(format!("m{number} sees {seen:?} and should see {wanted:?}"));
        }
        let differs = |(peer, member): &(&Peer, &&Member)| {
            let machine = self.machines.get(member.machine);
            let machine = machine.filter(|machine| machine.is_on && machine.way == Way::Open);
            let is_there = machine.is_some();
            let known = (&peer.name, peer.key, &peer.addresses[..], &peer.tags, peer.online);
            known != (&member.name, member.key, &member.addresses[..], &member.tags, is_there)
                || peer.expires_unix_s.is_some()
                || machine.is_some_and(|machine| !self.is_place_of(peer, machine))
        };
        let found = map.peers.iter().zip(expected).find(differs);
        found.map(|(peer, member)| format!("m{number} takes {member:?} for {peer:?}"))
    }

    /// Whether a peer is told to be where that machine's node says that it is.
    fn is_place_of(&self, peer: &Peer, machine: &Machine) -> bool {
        let mut endpoints = self.world.node(machine.host).reach().endpoints;
        endpoints.truncate(ENDPOINTS_MAX);
        peer.endpoints == endpoints && peer.relay == machine.home.relay()
    }

    /// Everybody speaks to everybody: who may is heard, who may not is not.
    fn speak(&mut self) {
        let count = self.machines.len();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for (from, to) in pairs {
            let said = Said {
                v6: self.rng.chance(0.5),
                port: PORTS[self.rng.below(PORTS.len() as u64) as usize],
            };
            let is_on = self.machines[from].is_on && self.machines[to].is_on;
            let may = is_on && self.lets((from, to), said);
            if may {
                open.push((from, to, said));
            } else if self.machines[from].is_on {
                closed.extend(self.send(from, to, said));
            }
        }
        let asked = open.clone();
        let heard = self.wait_for(open);
        let heard = if asked.is_empty() { Vec::new() } else { heard };
        self.answer(heard);
        // What is forbidden would have come by now.
        self.run(Duration::from_secs(2));
        if let Some(marker) = closed.iter().find(|marker| self.is_delivered(**marker)) {
            self.fail(&format!("packet {marker} arrived, which no rule allows"));
        }
        *self.counts.entry("forbidden").or_default() += closed.len() as u64;
        *self.counts.entry("allowed").or_default() += asked.len() as u64;
    }

    fn lets(&self, ends: (usize, usize), said: Said) -> bool {
        let (from, to) = ends;
        let address = |number| self.model.books.of(number).map(|member| member.address(said.v6));
        let ends = address(from).zip(address(to));
        ends.is_some_and(|ends| self.model.books.lets(ends, said))
    }

    /// Each of these says something until it is heard: what was, and from which port.
    fn wait_for(&mut self, mut open: Vec<(usize, usize, Said)>) -> Vec<Heard> {
        let end = self.world.now() + SPOKEN_WITHIN;
        let mut heard = Vec::new();
        let mut under_way = Vec::new();
        while !open.is_empty() {
            if self.world.now() >= end {
                let (from, to, said) = open[0];
                let what = format!("m{from} says {said:?} to m{to} for {SPOKEN_WITHIN:?}");
                self.fail_unheard(&what, from, to);
            }
            for (from, to, said) in &open {
                let marker = self.send(*from, *to, *said);
                let port = self.last_port();
                under_way.extend(marker.map(|marker| Heard {
                    marker,
                    from: *from,
                    to: *to,
                    said: *said,
                    port,
                }));
            }
            self.run(Duration::from_secs(1));
            open.retain(|(from, to, _)| {
                let mut of = under_way.iter().filter(|h| (h.from, h.to) == (*from, *to));
                let arrived = of.find(|h| self.is_delivered(h.marker));
                heard.extend(arrived.copied());
                arrived.is_none()
            });
        }
        heard
    }

    fn fail_unheard(&self, what: &str, from: usize, to: usize) -> ! {
        let from = &self.machines[from];
        let to = &self.machines[to];
        let ways = (from.host, to.host);
        let out = self.world.route_name(ways.0, ways.1);
        let back = self.world.route_name(ways.1, ways.0);
        let drops = [from, to].map(|m| format!("{:?}", self.world.node(m.host).counters()));
        let story = self.world.story();
        self.fail(&format!(
            "{what} and is not heard; the way is {out}, back {back}\n{}\n{}\n{story}",
            drops[0], drops[1]
        ));
    }

    /// Some that were heard are answered, which needs no rule of its own.
    fn answer(&mut self, heard: Vec<Heard>) {
        if heard.is_empty() {
            return;
        }
        let mut replies = Vec::new();
        for _ in 0..REPLIES {
            let one = heard[self.rng.below(heard.len() as u64) as usize];
            let marker = self.reply((one.to, one.from), one.said, one.port);
            replies.extend(marker.map(|marker| (one, marker)));
        }
        self.run(Duration::from_secs(6));
        for (one, marker) in replies {
            if !self.is_delivered(marker) {
                let Heard { from, to, said, .. } = one;
                let what = format!("m{to} answers m{from}, {said:?}, packet {marker}");
                self.fail_unheard(&what, to, from);
            }
        }
    }
}

/// Something that was heard.
#[derive(Clone, Copy)]
struct Heard {
    marker: u64,
    from: usize,
    to: usize,
    said: Said,
    /// The port that it came from.
    port: u16,
}
