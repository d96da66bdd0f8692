//! Three machines of a circuit, and a neighbour that sends them anything at all.

use circuit::{Circuits, ExitRules, Standing, State, Turn, World};
use noise::{Instant, PeerId, PrivateKey, PublicKey};

use crate::Seeded;

/// A client, an entry and an exit, with what is on the way between them.
struct Chain {
    machines: Vec<Circuits>,
    keys: Vec<PublicKey>,
    queue: Vec<(usize, usize, Vec<u8>)>,
    delivered: usize,
    random: Seeded,
}

/// Who may build circuits and is no part of the chain.
const STRANGER: usize = 3;

impl Chain {
    fn new() -> Self {
        noise::forget_nonces();
        let mut random = Seeded(5);
        let private: Vec<_> = (0..3).map(|_| PrivateKey::generate(&mut random)).collect();
        let keys = private.iter().map(PrivateKey::public).collect();
        let mut machines = Vec::new();
        for (at, key) in private.into_iter().enumerate() {
            let mut machine = Circuits::default();
            machine.set_key(Some(key));
            machine.set_roles(at > 0, (at > 0).then(ExitRules::default));
            for peer in 0..=STRANGER {
                let hop = (1..STRANGER).contains(&peer);
                let standing = Standing { uses: true, hop };
                machine.set_standing(PeerId(peer as u32), standing, &mut random);
            }
            machines.push(machine);
        }
        Self { machines, keys, queue: Vec::new(), delivered: 0, random }
    }

    fn with<T>(&mut self, at: usize, act: impl FnOnce(&mut Circuits, &mut World<'_>) -> T) -> T {
        let keys = &self.keys;
        let find = |key: &PublicKey| {
            let at = keys.iter().position(|known| known == key)?;
            Some(PeerId(at as u32))
        };
        let mut world = World { now: Instant(1), random: &mut self.random, find: &find };
        let done = act(&mut self.machines[at], &mut world);
        while let Some((to, frame)) = self.machines[at].poll_send() {
            self.queue.push((at, to.0 as usize, frame));
        }
        done
    }

    fn receive(&mut self, from: usize, to: usize, mut frame: Vec<u8>) {
        let peer = PeerId(from as u32);
        match self.with(to, |machine, world| machine.handle_frame(peer, &mut frame, world)) {
            Turn::Done => {}
            Turn::Machine(range) => {
                assert!(frame.get(range).is_some_and(|packet| packet[0] >> 4 == 4));
                self.delivered += 1;
            }
            Turn::Relay { way, header, body, .. } => {
                let body = frame.get(body).expect("a part of what came");
                let mut bytes = [&header[..], body].concat();
                bytes.resize(circuit::frame_len(body.len()), 0);
                self.queue.push((to, way.to.0 as usize, bytes));
            }
        }
    }

    /// Lets everything arrive, bounded: no input makes frames without end.
    fn run(&mut self) {
        for _ in 0..1000 {
            let Some((from, to, frame)) = self.queue.pop() else { return };
            if to < STRANGER {
                self.receive(from, to, frame);
            }
        }
        panic!("frames that never end");
    }

    /// A circuit that is built and carries a datagram.
    fn carries(&mut self) -> bool {
        let path = [self.keys[1], self.keys[2]];
        let id = self.with(0, |client, world| client.open(&path, None, world)).expect("a path");
        self.run();
        let status = self.machines[0].status(id).expect("known");
        if status.state != State::Open {
            return false;
        }
        let mut packet = crate::machine::inner(1, 2, 40);
        packet[12..16].copy_from_slice(&status.local.octets());
        packet[16..20].copy_from_slice(&[203, 0, 113, 9]);
        let before = self.delivered;
        let (to, len) = self.machines[0].plan(id, packet.len(), false).expect("open");
        let mut frame = vec![0; len];
        let fill = |place: &mut [u8]| place.copy_from_slice(&packet);
        if self.machines[0].write(id, packet.len(), &mut frame, fill, Instant(1)).is_ok() {
            self.queue.push((0, to.0 as usize, frame));
            self.run();
            assert_eq!(self.delivered, before + 1);
        }
        self.with(0, |client, world| client.close(id, true, world.now));
        self.run();
        true
    }
}

/// A program of steps: a byte that says who gets a frame and from whom, one for its length in units
/// of eight bytes, and its bytes; or, with the highest bit of the first, which byte of a genuine
/// frame is changed on its way, and how.
///
/// Nothing panics, nothing goes round without end, and afterwards a circuit is built and carries.
pub fn cells(data: &[u8]) {
    let mut chain = Chain::new();
    let path = [chain.keys[1], chain.keys[2]];
    let _ = chain.with(0, |client, world| client.open(&path, None, world));
    let mut rest = data;
    while let [first, second, more @ ..] = rest {
        let to = usize::from(first & 3) % 3;
        if first & 0x80 != 0 {
            let [at, more @ ..] = more else { break };
            if let Some((_, _, frame)) = chain.queue.last_mut() {
                let len = frame.len();
                frame[usize::from(*at) % len] ^= second;
            }
            if let Some((from, to, frame)) = chain.queue.pop()
                && to < STRANGER
            {
                chain.receive(from, to, frame);
            }
            rest = more;
            continue;
        }
        let (bytes, more) = more.split_at((usize::from(*second) * 8).min(more.len()));
        let mut frame = bytes.to_vec();
        // Most frames have the length that their kind wants.
        if let Some(kind @ (0x8e | 0x8f)) = frame.first().copied() {
            frame.resize(if kind == 0x8f { 587 } else { 1419 }, 0);
        }
        let from = usize::from(first >> 2 & 3);
        chain.receive(from, to, frame);
        rest = more;
    }
    chain.run();
    assert!(chain.carries(), "no circuit after this");
}

/// Genuine frames changed here and there, and frames of every kind from a stranger.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let step = |to: u8, from: u8, frame: &[u8]| {
        [&[from << 2 | to, frame.len().div_ceil(8) as u8][..], frame].concat()
    };
    let build = |kind: u8| [&[0x8f, kind, 1, 0, 0, 0, 1][..], &[7; 121]].concat();
    let cell = [&[0x8e, 12, 1, 0, 0, 0, 1, 2, 3, 4, 5][..], &[9; 117]].concat();
    vec![
        [0x80, 0, 0].repeat(30),
        [0x80, 1, 40].repeat(30),
        [step(1, 3, &build(1)), step(1, 3, &build(4)), step(2, 3, &build(1))].concat(),
        [step(0, 1, &build(2)), step(0, 1, &build(3)), step(1, 2, &build(2))].concat(),
        [step(1, 3, &cell), step(0, 1, &cell), [0x80, 64, 6].repeat(6)].concat(),
    ]
}
