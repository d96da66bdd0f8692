//! Machines with a wire between them that can be looked at, changed, repeated and cut.

use std::collections::{BTreeSet, VecDeque};

use super::*;

/// A generator that is good enough for tests, and the same in every run.
pub(super) struct Seeded(pub(super) u64);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            *byte = (self.0 >> 33) as u8;
        }
    }
}

pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
pub(super) const MARKER: &[u8] = b"a marker of the client";

pub(super) struct Sent {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
}

/// Machine 0 is the client; all others are hops and exits.
pub(super) struct Net {
    pub(super) machines: Vec<Circuits>,
    pub(super) keys: Vec<PublicKey>,
    pub(super) queue: VecDeque<Sent>,
    pub(super) dead: BTreeSet<usize>,
    /// Everything that was on a wire, as the ends of the link see it.
    pub(super) seen: Vec<Sent>,
    /// What each machine was handed.
    pub(super) got: Vec<(usize, Vec<u8>)>,
    pub(super) now: Instant,
    pub(super) random: Seeded,
}

impl Net {
    pub(super) fn new(count: usize) -> Self {
        noise::forget_nonces();
        let mut random = Seeded(count as u64);
        let privates: Vec<_> = (0..count).map(|_| PrivateKey::generate(&mut random)).collect();
        let keys: Vec<_> = privates.iter().map(PrivateKey::public).collect();
        let mut machines = Vec::new();
        for (at, private) in privates.iter().enumerate() {
            let mut machine = Circuits::default();
            machine.set_key(Some(private.clone()));
            let rules = ExitRules { leads_six: true, ..ExitRules::default() };
            machine.set_roles(at > 0, (at > 0).then_some(rules));
            for peer in (0..count).filter(|peer| *peer != at) {
                let standing = Standing { uses: peer == 0, hop: peer > 0 };
                machine.set_standing(PeerId(peer as u32), standing, &mut random);
            }
            machines.push(machine);
        }
        let (queue, dead) = (VecDeque::new(), BTreeSet::new());
        let (seen, got, now) = (Vec::new(), Vec::new(), Instant(1_000_000_000));
        Self { machines, keys, queue, dead, seen, got, now, random }
    }

    pub(super) fn with<T>(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Circuits, &mut World<'_>) -> T,
    ) -> T {
        let keys = self.keys.clone();
        let find = move |key: &PublicKey| {
            keys.iter().position(|known| known == key).map(|at| PeerId(at as u32))
        };
        let mut world = World { now: self.now, random: &mut self.random, find: &find };
        let done = act(&mut self.machines[at], &mut world);
        while let Some((to, bytes)) = self.machines[at].poll_send() {
            self.queue.push_back(Sent { from: at, to: to.0 as usize, bytes });
        }
        while let Some(cell) = self.machines[at].poll_turn(self.now) {
            let to = cell.way.to.0 as usize;
            self.queue.push_back(Sent { from: at, to, bytes: cell.frame });
        }
        done
    }

    pub(super) fn open(&mut self, path: &[usize]) -> CircuitId {
        let path: Vec<_> = path.iter().map(|&at| self.keys[at]).collect();
        self.with(0, |client, world| client.open(&path, None, world)).expect("a good path")
    }

    pub(super) fn opened(&mut self, path: &[usize]) -> CircuitId {
        let id = self.open(path);
        self.run();
        assert_eq!(self.state(id), State::Open);
        id
    }

    pub(super) fn state(&self, id: CircuitId) -> State {
        self.machines[0].status(id).expect("known").state
    }

    /// Delivers one frame.
    pub(super) fn step(&mut self, frame: Sent) {
        let Sent { from, to, bytes } = frame;
        if self.dead.contains(&to) || self.dead.contains(&from) {
            return;
        }
        let mut plain = bytes.clone();
        self.seen.push(Sent { from, to, bytes });
        let from = PeerId(from as u32);
        let turn = self.with(to, |machine, world| machine.handle_frame(from, &mut plain, world));
        match turn {
            Turn::Done => {}
            Turn::Machine(range) => self.got.push((to, plain[range].to_vec())),
            Turn::Relay { way, header, body, .. } => {
                let len = crate::frame_len(body.len());
                let mut bytes = header.to_vec();
                bytes.extend(&plain[body]);
                bytes.resize(len, 0);
                self.queue.push_back(Sent { from: to, to: way.to.0 as usize, bytes });
            }
        }
    }

    pub(super) fn run(&mut self) {
        while let Some(frame) = self.queue.pop_front() {
            self.step(frame);
        }
    }

    /// Lets time pass, in steps of 50 ms.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(50)).min(end);
            for at in 0..self.machines.len() {
                self.with(at, |machine, world| machine.handle_timeout(world.now, world.random));
            }
            self.run();
        }
    }

    /// The client's program sends a datagram.
    pub(super) fn send(&mut self, id: CircuitId, packet: &[u8]) -> Result<(), Drop> {
        let (to, len) = self.machines[0].plan(id, packet.len(), packet[0] >> 4 == 6)?;
        let mut bytes = vec![0; len];
        let fill = |place: &mut [u8]| place.copy_from_slice(packet);
        self.machines[0].write(id, packet.len(), &mut bytes, fill, self.now)?;
        self.queue.push_back(Sent { from: 0, to: to.0 as usize, bytes });
        Ok(())
    }

    /// Somebody answers at an exit.
    pub(super) fn answer(&mut self, exit: usize, mut packet: Vec<u8>) -> Result<(), Drop> {
        let machine = &mut self.machines[exit];
        let planned = machine.plan_answer(&mut packet, self.now).map_err(|error| error.0);
        let answer = planned?;
        let mut bytes = vec![0; answer.frame_len];
        machine.write_answer(answer.circuit, &packet[..answer.len], &mut bytes, self.now)?;
        self.queue.push_back(Sent { from: exit, to: answer.to.0 as usize, bytes });
        Ok(())
    }

    pub(super) fn local(&self, id: CircuitId) -> Ipv4Addr {
        self.machines[0].status(id).expect("known").local
    }

    pub(super) fn dropped(&self, at: usize, reason: Drop) -> u64 {
        self.machines[at].counters().dropped(reason)
    }
}

pub(super) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let len = (28 + payload.len()) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 7, 7, 0, 0, 63, 17, 0, 0];
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    let sum = wire::checksum::Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend((len - 20).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    let pseudo = wire::checksum::pseudo_v4(from.0, to.0, 17, u32::from(len - 20));
    let sum = pseudo.plus(wire::checksum::Sum::of(&bytes[20..])).udp_checksum();
    bytes[26..28].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub(super) fn ends(packet: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let view = wire::packet::parse(packet).expect("a packet");
    assert!(view.checksums_hold());
    let seen = rewrite::look(packet).expect("what circuits carry");
    let (from, to) = (rewrite::source_port(&seen), rewrite::destination_port(&seen));
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (seen.source, seen.destination) else {
        panic!("{seen:?}");
    };
    ((source, from), (destination, to))
}

/// One datagram there and one back, with a payload of `len` bytes.
pub(super) fn carries(net: &mut Net, id: CircuitId, exit: usize, len: usize) {
    let local = (net.local(id), 4000);
    let payload = MARKER.repeat(len / MARKER.len() + 1)[..len].to_vec();
    net.got.clear();
    net.send(id, &udp(local, (SERVER, 443), &payload)).expect("open");
    net.run();
    let [(at, out)] = &net.got[..] else { panic!("{} packets arrived", net.got.len()) };
    assert_eq!((*at, &out[28..]), (exit, &payload[..]));
    let (from, to) = ends(out);
    assert_eq!((from.0, to), (EXIT_ADDRESS, (SERVER, 443)));
    net.got.clear();
    net.answer(exit, udp(to, from, &payload)).expect("a flow");
    net.run();
    let [(0, back)] = &net.got[..] else { panic!("{} packets came back", net.got.len()) };
    assert_eq!((ends(back), &back[28..]), (((SERVER, 443), local), &payload[..]));
}
