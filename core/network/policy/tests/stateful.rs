//! The filter against a naive one, over conversations of three machines.
//!
//! The model keeps a list of what began, when it was last heard and how far it has come, and knows
//! no bound. Packets, pauses of whole seconds and changes of rules come in any order; the two
//! must agree on every verdict.

use policy::{
    Direction, Filter, ICMP_MS, Peer, Ranges, Rule, Rules, Service, TCP_CLOSING_MS, TCP_OPEN_MS,
    TCP_OPENING_MS, UDP_MS, UDP_ONE_WAY_MS, Verdict,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use Direction::{In, Out};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const FLAGS: [u8; 8] = [SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST | ACK, RST, 0];
const PORTS: [u16; 3] = [80, 443, 5000];
const PAUSES_S: [u64; 9] = [0, 0, 0, 1, 29, 31, 61, 200, 7000];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Which way, with which of the two others, protocol, our port, theirs, flags or reply.
    Packet(Direction, u8, u8, u16, u16, u8),
    Pause(u64),
    /// Services inward and outward, one bit each.
    Rules(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Talk {
    other: u8,
    protocol: u8,
    ports: (u16, u16),
    began: Direction,
    heard_ms: u64,
    is_answered: bool,
    closed: [bool; 2],
    is_reset: bool,
}

const SERVICES: [(u8, u16); 6] = [(6, 80), (6, 443), (6, 5000), (17, 80), (17, 443), (1, 0)];

#[derive(Default)]
struct Model {
    inward: u8,
    outward: u8,
    talks: Vec<Talk>,
    now_ms: u64,
}

impl Model {
    fn may_begin(&self, direction: Direction, protocol: u8, (ours, theirs): (u16, u16)) -> bool {
        let (bits, port) =
            if direction == In { (self.inward, ours) } else { (self.outward, theirs) };
        let port = if protocol == 1 { 0 } else { port };
        let at = SERVICES.iter().position(|service| *service == (protocol, port));
        at.is_some_and(|at| bits >> at & 1 == 1)
    }

    fn lives(&self, talk: &Talk) -> bool {
        let timeout_ms = match talk.protocol {
            6 if talk.is_reset || talk.closed == [true; 2] => TCP_CLOSING_MS,
            6 if talk.is_answered || talk.closed != [false; 2] => TCP_OPEN_MS,
            6 => TCP_OPENING_MS,
            17 if talk.is_answered => UDP_MS,
            17 => UDP_ONE_WAY_MS,
            _ => ICMP_MS,
        };
        self.now_ms < talk.heard_ms + timeout_ms
    }

    fn judge(
        &mut self,
        direction: Direction,
        other: u8,
        protocol: u8,
        ports: (u16, u16),
        flags: u8,
    ) -> bool {
        let is_echo_reply = protocol == 1 && flags & ACK != 0;
        let asker = if is_echo_reply == (direction == In) { Out } else { In };
        let ports = if protocol == 1 { (ports.0, 0) } else { ports };
        let mut talks = std::mem::take(&mut self.talks);
        talks.retain(|talk| self.lives(talk));
        let found = talks.iter_mut().find(|talk| {
            (talk.other, talk.protocol, talk.ports) == (other, protocol, ports)
                && (protocol != 1 || talk.began == asker)
        });
        let opens = protocol == 6 && flags & (SYN | ACK) == SYN;
        let passes = match found {
            Some(talk) => {
                let is_reply = direction != talk.began;
                let passes = !(opens && is_reply) || self.may_begin(direction, protocol, ports);
                if passes {
                    talk.heard_ms = self.now_ms;
                    hear(talk, direction, flags, opens);
                }
                passes
            }
            None if is_echo_reply => false,
            None if self.may_begin(direction, protocol, ports) => {
                talks.push(Talk {
                    other,
                    protocol,
                    ports,
                    began: direction,
                    heard_ms: self.now_ms,
                    is_answered: protocol == 6 && flags & SYN == 0,
                    closed: [false; 2],
                    is_reset: protocol == 6 && flags & (RST | SYN) == RST,
                });
                true
            }
            None => {
                let back = if direction == In { Out } else { In };
                let is_within = protocol == 6 && flags & ACK != 0 && flags & (SYN | RST) == 0;
                is_within && self.may_begin(back, protocol, ports)
            }
        };
        self.talks = talks;
        passes
    }

    fn set_rules(&mut self, inward: u8, outward: u8) {
        (self.inward, self.outward) = (inward, outward);
        let talks = std::mem::take(&mut self.talks);
        let kept = talks.into_iter().filter(|t| self.may_begin(t.began, t.protocol, t.ports));
        self.talks = kept.collect();
    }
}

fn hear(talk: &mut Talk, direction: Direction, flags: u8, opens: bool) {
    if talk.protocol != 6 {
        talk.is_answered |= direction != talk.began;
        return;
    }
    let is_over = talk.is_reset || talk.closed == [true; 2];
    if flags & RST != 0 {
        talk.is_reset = true;
    } else if opens && direction == talk.began {
        if is_over {
            (talk.is_reset, talk.closed, talk.is_answered) = (false, [false; 2], false);
        }
    } else if !is_over {
        talk.is_answered |= direction != talk.began;
        if flags & FIN != 0 {
            talk.closed[usize::from(direction == Out)] = true;
        }
    }
}

fn rules(inward: u8, outward: u8) -> Rules {
    let set = |text: &str| Ranges::of_prefixes([text.parse().expect("a prefix")]);
    let (us, others) = (set("100.64.0.1"), set("100.64.0.2/31"));
    let services = |bits: u8| {
        let chosen = SERVICES.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
        let service = |(_, &(protocol, port)): (usize, &(u8, u16))| Service {
            protocol: Some(protocol),
            first: port,
            last: port,
        };
        chosen.map(service).collect::<Vec<_>>()
    };
    let rule = |sources: &Ranges, destinations: &Ranges, bits: u8| Rule {
        sources: sources.clone(),
        destinations: destinations.clone(),
        services: services(bits),
        line: 1,
        compress: false,
    };
    Rules::new(vec![rule(&others, &us, inward)], vec![rule(&us, &others, outward)])
}

fn packet(direction: Direction, other: u8, protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    let (us, them) = ([100, 64, 0, 1], [100, 64, 0, 2 + other]);
    let (from, to) = if direction == In { (them, us) } else { (us, them) };
    let (source, target) = if direction == In { (ports.1, ports.0) } else { ports };
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend(from.iter().chain(&to));
    bytes.extend([source.to_be_bytes(), target.to_be_bytes(), [0, 20], [0, 0]].concat());
    bytes.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    if protocol == 1 {
        let kind = if flags & ACK != 0 { 0 } else { 8 };
        bytes[20..24].copy_from_slice(&[kind, 0, 0, 0]);
        bytes[24..26].copy_from_slice(&ports.0.to_be_bytes());
    }
    bytes
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packet = (
        any::<bool>(),
        0u8..2,
        select(&[6u8, 6, 17, 1][..]),
        select(&PORTS[..]),
        select(&PORTS[..]),
        select(&FLAGS[..]),
    );
    let packet = packet.prop_map(|(is_in, other, protocol, ours, theirs, flags)| {
        Step::Packet(if is_in { In } else { Out }, other, protocol, ours, theirs, flags)
    });
    let pause = select(&PAUSES_S[..]).prop_map(Step::Pause);
    let rules = (0u8..64, 0u8..64).prop_map(|(inward, outward)| Step::Rules(inward, outward));
    vec(prop_oneof![12 => packet, 3 => pause, 1 => rules], 1..150)
}

proptest! {
    #[test]
    fn pf_11_the_filter_agrees_with_a_list_of_conversations(
        inward in 0u8..64,
        outward in 0u8..64,
        steps in steps(),
    ) {
        let mut filter = Filter::new([9, 9]);
        let mut model = Model::default();
        filter.set_rules(rules(inward, outward));
        model.set_rules(inward, outward);
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Packet(direction, other, protocol, ours, theirs, flags) => {
                    let bytes = packet(direction, other, protocol, (ours, theirs), flags);
                    let view = wire::packet::parse(&bytes).expect("it is whole");
                    let peer = Peer(u32::from(other));
                    let verdict = filter.judge(direction, peer, &view, model.now_ms);
                    let wanted = model.judge(direction, other, protocol, (ours, theirs), flags);
                    prop_assert_eq!(verdict == Verdict::Pass, wanted, "step {}: {:?}", at, step);
                }
                Step::Pause(seconds) => model.now_ms += seconds * 1000,
                Step::Rules(inward, outward) => {
                    filter.set_rules(rules(inward, outward));
                    model.set_rules(inward, outward);
                }
            }
        }
    }
}
