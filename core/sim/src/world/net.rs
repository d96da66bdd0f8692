//! How a datagram finds its way: out through translators, along a line, in through others.

use super::*;

impl World {
    /// Who has the address by now.
    pub(super) fn receiver(
        &mut self,
        sender: Option<HostId>,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<HostId, Fate> {
        let mut to = to;
        let host = loop {
            match self.place(to) {
                Some(Place::Host(host)) => break host,
                Some(Place::Nat(nat)) => {
                    let (SocketAddr::V4(from), SocketAddr::V4(outside)) = (from, to) else {
                        return Err(Fate::Translator);
                    };
                    let now = self.now().0;
                    let inside = self.nats[nat.0]
                        .handle_inbound(now, Protocol::Udp, from, outside)
                        .map_err(|_| Fate::Translator)?;
                    to = inside.into();
                }
                Some(Place::Stun(_)) | None => return Err(Fate::Nobody),
            }
        };
        if sender.is_some_and(|sender| self.is_cut(sender, host)) {
            return Err(Fate::Cut);
        }
        Ok(host)
    }

    fn place(&self, to: SocketAddr) -> Option<Place> {
        let nat = |nat: &Nat| IpAddr::from(nat.address()) == to.ip();
        if let Some(number) = self.nats.iter().position(nat) {
            return Some(Place::Nat(NatId(number)));
        }
        if let Some(number) = self.stun.iter().position(|server| *server == to) {
            return Some(Place::Stun(number));
        }
        let number = self.hosts.iter().position(|host| host.address == to)?;
        Some(Place::Host(HostId(number)))
    }

    pub(super) fn is_cut(&self, a: HostId, b: HostId) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    pub(super) fn pipe(&mut self, from: HostId, to: Place) -> &mut Pipe {
        let weather = self.weather;
        let rng = &mut self.rng;
        self.pipes.entry((from, to)).or_insert_with(|| {
            Pipe::new(weather, rng.next_u64()).expect("weather is within its bounds")
        })
    }

    /// A datagram leaves a host.
    pub(super) fn emit(&mut self, from: HostId, to: SocketAddr, bytes: Vec<u8>) {
        let kind = Kind::of(&bytes);
        self.watch.sent(from, kind, &bytes);
        let fate = self.travel(from, to, bytes);
        let (fate, len) = match fate {
            Ok((fate, len)) => (fate, len),
            Err((fate, bytes)) => {
                let len = bytes.len();
                self.tray.give_back(bytes);
                (fate, len)
            }
        };
        self.note(Note::Sent(from, to, kind, len, fate));
    }

    /// Through the translator and into the pipe; what does not travel comes back.
    fn travel(
        &mut self,
        from: HostId,
        to: SocketAddr,
        bytes: Vec<u8>,
    ) -> Result<(Fate, usize), (Fate, Vec<u8>)> {
        let (source, to) = match self.translate(from, to) {
            Ok(translated) => translated,
            Err(fate) => return Err((fate, bytes)),
        };
        let Some(place) = self.place(to) else { return Err((Fate::Nobody, bytes)) };
        let now = self.now().0;
        let len = bytes.len();
        if self.line_mtu.is_some_and(|mtu| len + OUTER_LEN > mtu) {
            return Err((Fate::Lost, bytes));
        }
        let (at_ns, again_at_ns) = match self.pipe(from, place).offer(now, len + OUTER_LEN) {
            Verdict::Deliver { at_ns, again_at_ns } => (at_ns, again_at_ns),
            Verdict::Lost => return Err((Fate::Lost, bytes)),
            Verdict::QueueDropped => return Err((Fate::QueueDropped, bytes)),
        };
        let sender = Some(from);
        if let Some(again_ns) = again_at_ns {
            let mut copy = self.tray.buffer(len);
            copy.copy_from_slice(&bytes);
            let copy = Event::Arrival { sender, from: source, to, bytes: copy };
            self.schedule(Instant(again_ns), copy);
        }
        self.schedule(Instant(at_ns), Event::Arrival { sender, from: source, to, bytes });
        let fate = if again_at_ns.is_some() { Fate::Doubled } else { Fate::Travels };
        Ok((fate, len))
    }

    /// What source and destination are behind the sender's translator.
    fn translate(
        &mut self,
        from: HostId,
        to: SocketAddr,
    ) -> Result<(SocketAddr, SocketAddr), Fate> {
        let host = &self.hosts[from.0];
        if host.udp_blocked {
            return Err(Fate::Translator);
        }
        let net = self.net_of(to);
        if !self.stun.is_empty() && host.address.is_ipv4() != to.is_ipv4() {
            return Err(Fate::Nobody);
        }
        if net.is_some_and(|net| !self.is_inside(host.nat, net)) {
            return Err(Fate::Nobody);
        }
        let mut source = host.address;
        let mut to = to;
        let mut nat = host.nat;
        // Through one translator after the other, until the receiver's net is reached.
        while let Some(id) = nat.filter(|id| net != Some(*id)) {
            let (SocketAddr::V4(near), SocketAddr::V4(far)) = (source, to) else {
                return Err(Fate::Translator);
            };
            let now = self.now().0;
            match self.nats[id.0].handle_outbound(now, Protocol::Udp, near, far) {
                Ok(Outbound::Send { source: outside }) => source = outside.into(),
                Ok(Outbound::Hairpin { source: outside, destination }) => {
                    source = outside.into();
                    to = destination.into();
                    break;
                }
                Err(_) => return Err(Fate::Translator),
            }
            nat = self.outer[id.0];
        }
        Ok((source, to))
    }

    /// The translator whose inside `to` is in, where worlds know private addresses.
    fn net_of(&self, to: SocketAddr) -> Option<NatId> {
        if self.stun.is_empty() {
            return None;
        }
        match self.place(to)? {
            Place::Host(host) => self.hosts[host.0].nat,
            Place::Nat(nat) => self.outer[nat.0],
            Place::Stun(_) => None,
        }
    }

    /// Whether somebody behind `nat` is, at any depth, behind `net`.
    fn is_inside(&self, nat: Option<NatId>, net: NatId) -> bool {
        let mut nat = nat;
        while let Some(id) = nat {
            if id == net {
                return true;
            }
            nat = self.outer[id.0];
        }
        false
    }
}
