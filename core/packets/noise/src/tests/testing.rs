//! Shared by tests: seeded randomness, and two peers with a network between them.

use core::time::Duration;

use crate::{
    Action, Context, Drop, Identity, Index, Indices, Instant, OpenedInitiation, Peer, PeerId,
    PrivateKey, Random, Session, Tai64n, read_initiation,
};

/// SplitMix64: good enough to be different everywhere, and the same every time.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// One end of a link: what a node would own for a single peer.
pub(crate) struct End {
    pub(crate) identity: Identity,
    pub(crate) indices: Indices,
    pub(crate) peer: Peer,
    pub(crate) random: Seeded,
    /// What this end's wall clock is ahead of the monotonic one, in seconds.
    pub(crate) wall_s: u64,
    pub(crate) staged: Vec<Vec<u8>>,
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) initiations: usize,
    pub(crate) keepalives: usize,
    pub(crate) drops: Vec<Drop>,
}

impl End {
    pub(crate) fn context(&mut self, now: Instant) -> (&mut Peer, Context<'_>) {
        let seconds = self.wall_s + now.0 / 1_000_000_000;
        let wall = Tai64n::from_unix(seconds, (now.0 % 1_000_000_000) as u32);
        let (identity, indices) = (&self.identity, &mut self.indices);
        (&mut self.peer, Context { identity, indices, random: &mut self.random, now, wall })
    }

    pub(crate) fn initiate(&mut self, now: Instant) -> Option<[u8; 148]> {
        let (peer, mut context) = self.context(now);
        peer.initiate(&mut context)
    }

    pub(crate) fn accept(&mut self, message: &[u8; 148], now: Instant) -> Result<[u8; 92], Drop> {
        let opened: OpenedInitiation = read_initiation(&self.identity, message)?;
        let (peer, mut context) = self.context(now);
        peer.accept_initiation(&mut context, opened)
    }

    pub(crate) fn complete(&mut self, message: &[u8; 92], now: Instant) -> Result<(), Drop> {
        let (peer, mut context) = self.context(now);
        peer.accept_response(&mut context, message)
    }

    /// A sealed packet with this plaintext, if there is a session to send it on.
    pub(crate) fn seal(&mut self, plain: &[u8], now: Instant) -> Option<Vec<u8>> {
        let datagram = seal_with(self.peer.sealer(now)?, plain);
        self.peer.data_sent(now, 1, plain.len() as u64);
        Some(datagram)
    }

    /// The plaintext of a transport packet.
    pub(crate) fn open(&mut self, datagram: &[u8], now: Instant) -> Result<Vec<u8>, Drop> {
        let mut bytes = datagram.to_vec();
        let receiver = u32::from_le_bytes(*bytes[4..].first_chunk().expect("long enough"));
        let index = Index(receiver);
        if self.indices.owner(index) != Some(self.peer.id()) {
            return Err(Drop::UnknownIndex);
        }
        let (_, range) = self.peer.open(&mut self.indices, index, &mut bytes, now)?;
        self.peer.data_received(now, 1, range.len() as u64);
        Ok(bytes[range].to_vec())
    }

    /// Takes any datagram; returns the answer, if the protocol has one.
    pub(crate) fn handle(
        &mut self,
        datagram: &[u8],
        now: Instant,
    ) -> Result<Option<Vec<u8>>, Drop> {
        match datagram.len() {
            148 if datagram[0] == 1 => {
                let message = datagram.try_into().expect("length matched");
                self.accept(message, now).map(|response| Some(response.to_vec()))
            }
            92 if datagram[0] == 2 => {
                self.complete(datagram.try_into().expect("length matched"), now).map(|()| None)
            }
            _ => {
                let plain = self.open(datagram, now)?;
                if plain.is_empty() {
                    self.keepalives += 1;
                } else {
                    self.received.push(plain);
                }
                Ok(None)
            }
        }
    }

    /// Does all the peer wants; returns the datagrams to send.
    pub(crate) fn act(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(action) = self.peer.poll_action() {
            match action {
                Action::Initiate => {
                    if let Some(message) = self.initiate(now) {
                        self.initiations += 1;
                        out.push(message.to_vec());
                    }
                }
                Action::SendStaged | Action::Keepalive => {
                    let keepalive = action == Action::Keepalive && self.staged.is_empty();
                    let mut plains = core::mem::take(&mut self.staged);
                    plains.extend(keepalive.then(Vec::new));
                    for plain in plains {
                        match self.seal(&plain, now) {
                            Some(datagram) => out.push(datagram),
                            None if plain.is_empty() => {}
                            None => self.staged.push(plain),
                        }
                    }
                }
                Action::DropStaged => self.staged.clear(),
                Action::ForgetSource | Action::Greet => {}
            }
        }
        out
    }
}

/// Seals a packet on a session.
pub(crate) fn seal_with(session: &mut Session, plain: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xee; plain.len() + Session::OVERHEAD];
    datagram[16..16 + plain.len()].copy_from_slice(plain);
    session.seal(&mut datagram).expect("tests stay below the limit");
    datagram
}

/// Two ends that know each other's keys. `[0]` has the smaller public key.
pub(crate) fn ends(seed: u64) -> [End; 2] {
    #[cfg(feature = "oracle")]
    crate::forget_nonces();
    let mut random = Seeded(seed);
    let mut identities = [0, 1].map(|_| Identity::new(PrivateKey::generate(&mut random)));
    identities.sort_by_key(|identity| *identity.public());
    let keys = [*identities[1].public(), *identities[0].public()];
    let mut number = 0;
    identities.map(|identity| {
        let mut random = Seeded(random.next());
        let peer = Peer::new(PeerId(7), keys[number], &mut random);
        number += 1;
        End {
            identity,
            indices: Indices::new(),
            peer,
            random,
            wall_s: 1_700_000_000,
            staged: Vec::new(),
            received: Vec::new(),
            initiations: 0,
            keepalives: 0,
            drops: Vec::new(),
        }
    })
}

/// Seconds of virtual time.
pub(crate) fn at(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

/// Two ends with a session, made by `[0]` and confirmed at `now`.
pub(crate) fn linked(seed: u64, now: Instant) -> [End; 2] {
    let [mut a, mut b] = ends(seed);
    let initiation = a.initiate(now).expect("first");
    let response = b.accept(&initiation, now).expect("genuine");
    a.complete(&response, now).expect("genuine");
    for datagram in a.act(now) {
        b.handle(&datagram, now).expect("genuine");
    }
    assert_eq!(b.act(now).len(), 0);
    [a, b]
}

/// Two ends and the datagrams under way between them.
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    pub(crate) now: Instant,
    pub(crate) delay: Duration,
    /// Arrival, receiver, bytes.
    pub(crate) wire: Vec<(Instant, usize, Vec<u8>)>,
    /// Drops everything sent to that end.
    pub(crate) cut: [bool; 2],
}

impl Link {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        let delay = Duration::from_millis(20);
        Self { ends, now: at(1.0), delay, wire: Vec::new(), cut: [false; 2] }
    }

    /// Sends data from one end, staging it if there is no session.
    pub(crate) fn send(&mut self, from: usize, plain: &[u8]) {
        match self.ends[from].seal(plain, self.now) {
            Some(datagram) => self.put(from, datagram),
            None => self.ends[from].staged.push(plain.to_vec()),
        }
        self.act();
    }

    /// Lets the virtual clock run until `until`, one event at a time.
    pub(crate) fn run(&mut self, until: Instant) {
        loop {
            self.act();
            let arrival = self.wire.iter().map(|(when, ..)| *when).min();
            let timers = self.ends.iter().filter_map(|e| e.peer.poll_timeout());
            let wake = timers.map(|(when, _)| when).chain(arrival).min();
            let Some(wake) = wake.filter(|wake| *wake <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(wake);
            let (due, later) = core::mem::take(&mut self.wire)
                .into_iter()
                .partition(|(when, ..)| *when <= self.now);
            self.wire = later;
            let due: Vec<(Instant, usize, Vec<u8>)> = due;
            for (_, to, datagram) in due {
                match self.ends[to].handle(&datagram, self.now) {
                    Ok(Some(answer)) => self.put(to, answer),
                    Ok(None) => {}
                    Err(reason) => self.ends[to].drops.push(reason),
                }
            }
            for end in &mut self.ends {
                end.peer.handle_timeout(&mut end.indices, self.now);
            }
        }
    }

    pub(crate) fn handshakes(&self) -> usize {
        self.ends.iter().map(|end| end.initiations).sum()
    }

    fn act(&mut self) {
        for from in [0, 1] {
            for datagram in self.ends[from].act(self.now) {
                self.put(from, datagram);
            }
        }
    }

    fn put(&mut self, from: usize, datagram: Vec<u8>) {
        let to = 1 - from;
        if !self.cut[to] {
            self.wire.push((self.now + self.delay, to, datagram));
        }
    }
}
