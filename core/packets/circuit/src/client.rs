//! A client's part: a circuit that is built hop by hop, carries, and is found dead.

use std::net::Ipv4Addr;
use std::time::Duration;

use noise::{Instant, PrivateKey, PublicKey, Random};
use wire::frame::{Build, Cell};

use crate::body::{self, Numbers};
use crate::handshake::{Agreed, First, Offer, SAID_LEN, Second};
use crate::hop::header;
use crate::layer::{Kind, Layer, TAG_LEN};
use crate::neighbour::Side;
use crate::window::Window;
use crate::word::{LONG, Word};
use crate::{Drop, End};

/// An answer that does not come is asked for again after this.
pub const BUILD_AGAIN: Duration = Duration::from_millis(250);
/// A hop that has not answered by then is given up.
pub const BUILD_WITHIN: Duration = Duration::from_secs(5);
/// An open circuit is asked so often whether it carries.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// And so often while the last question has no answer.
const PING_AGAIN: Duration = Duration::from_millis(250);
/// A hop that was asked all that while and has not answered for so long is taken for silent.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Nothing came for so long, although it was asked for: the circuit is dead.
pub const DEAD_AFTER: Duration = Duration::from_millis(2500);

/// Where a circuit is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// So many hops have answered.
    Building(usize),
    /// It carries.
    Open,
    /// It does not, any more or at all.
    Closed(End),
}

/// What a client knows of its circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where it is in its life.
    pub state: State,
    /// Its hops' keys, the entry first.
    pub path: Vec<PublicKey>,
    /// The source address that this machine sends from to use it.
    pub local: Ipv4Addr,
    /// The address that each hop gave it, in order.
    pub addresses: Vec<Ipv4Addr>,
    /// The largest packet that it takes.
    pub mtu: usize,
    /// Whether packets of IPv6 leave at its end.
    pub leads_six: bool,
    /// The last measured round trip to its last hop.
    pub rtt: Option<Duration>,
    /// From the first message to being open.
    pub built_in: Option<Duration>,
    /// Questions asked and answered since it is open.
    pub pings: (u64, u64),
    /// Packets in cells, out and in.
    pub packets: (u64, u64),
    /// The first hop that did not answer, where the circuit ended for that: its place on the path.
    pub silent: Option<usize>,
    /// Since when it is in this state.
    pub since: Instant,
}

/// The layers that a hop and the client share.
struct Shared {
    forth: [Layer; 2],
    back: [Layer; 2],
    address: Ipv4Addr,
    /// When this very hop said something last.
    heard: Instant,
}

/// A handshake in flight.
struct Asked {
    offer: Offer,
    first: First,
    since: Instant,
    sent: Instant,
}

/// One circuit of ours.
pub(crate) struct Circuit {
    path: Vec<PublicKey>,
    local: Ipv4Addr,
    pub(crate) entry: Option<Side>,
    mask: [u8; 32],
    hops: Vec<Shared>,
    asked: Option<Asked>,
    /// The exit has IPv6.
    leads_six: bool,
    state: State,
    numbers: Numbers,
    seen: [Window; 2],
    began: Instant,
    since: Instant,
    built_in: Option<Duration>,
    heard: Instant,
    /// When a cell was sent last.
    sent: Instant,
    /// The last question: its token, when it was asked, and whether an answer came.
    ping: Option<(u64, Instant, bool)>,
    rtt: Option<Duration>,
    pings: (u64, u64),
    packets: (u64, u64),
    silent: Option<usize>,
}

/// What a client wants sent to its entry.
pub(crate) enum Wants {
    Build(Build),
    Frames(Vec<Vec<u8>>),
}

impl Circuit {
    pub(crate) fn new(
        path: Vec<PublicKey>,
        local: Ipv4Addr,
        entry: Side,
        mask: [u8; 32],
        now: Instant,
    ) -> Self {
        Self {
            path,
            local,
            entry: Some(entry),
            mask,
            hops: Vec::new(),
            asked: None,
            leads_six: false,
            state: State::Building(0),
            numbers: Numbers::begin(now),
            seen: [Window::new(), Window::new()],
            began: now,
            since: now,
            built_in: None,
            heard: now,
            sent: now,
            ping: None,
            rtt: None,
            pings: (0, 0),
            packets: (0, 0),
            silent: None,
        }
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) const fn local(&self) -> Ipv4Addr {
        self.local
    }

    /// The address that the exit knows it by.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        self.hops.last().map(|hop| hop.address)
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            state: self.state,
            path: self.path.clone(),
            local: self.local,
            addresses: self.hops.iter().map(|hop| hop.address).collect(),
            mtu: self.room(),
            leads_six: self.leads_six,
            rtt: self.rtt,
            built_in: self.built_in,
            pings: self.pings,
            packets: self.packets,
            silent: self.silent,
            since: self.since,
        }
    }

    /// The largest packet.
    pub(crate) fn room(&self) -> usize {
        body::room(self.path.len())
    }

    /// Whether its exit takes packets of IPv6.
    pub(crate) const fn leads_six(&self) -> bool {
        self.leads_six
    }

    /// It has ended: its keys are forgotten here and now.
    pub(crate) fn close(&mut self, end: End, now: Instant) {
        if !matches!(self.state, State::Closed(_)) {
            self.silent = self.silent_hop(end, now);
            self.state = State::Closed(end);
            self.since = now;
        }
        self.hops.clear();
        self.asked = None;
        self.ping = None;
        self.mask = [0; 32];
    }

    /// The first hop that does not answer, if the circuit ends for that.
    fn silent_hop(&self, end: End, now: Instant) -> Option<usize> {
        match (self.state, end) {
            (State::Building(_), End::Silent | End::Unreachable | End::NotTheHop) => {
                Some(self.hops.len())
            }
            (State::Open, End::Silent) => {
                self.hops.iter().position(|hop| hop.heard.is_older_than(SILENT_AFTER, now))
            }
            _ => None,
        }
    }

    /// Asks the next hop on the path, or the same one again.
    pub(crate) fn ask(&mut self, now: Instant, random: &mut dyn Random) -> Option<Wants> {
        let next = *self.path.get(self.hops.len())?;
        if self.asked.is_none() {
            let Some((offer, first)) = Offer::new(&next, PrivateKey::generate(random)) else {
                self.close(End::NotTheHop, now);
                return None;
            };
            self.asked = Some(Asked { offer, first, since: now, sent: now });
        }
        let asked = self.asked.as_mut()?;
        asked.sent = now;
        let message = asked.first;
        let entry = self.entry.as_ref()?;
        match self.hops.len().checked_sub(1) {
            None => {
                let index = entry.ours;
                let mask = self.mask;
                Some(Wants::Build(Build::Create { index, layered: false, mask, message }))
            }
            Some(last) => {
                let word = Word::Extend { next, message };
                self.write_word(last, &word, now).map(|frame| Wants::Frames(vec![frame]))
            }
        }
    }

    /// A hop answered. `None` if it is not the answer that was waited for.
    pub(crate) fn handle_answer(
        &mut self,
        second: &Second,
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<Option<Wants>, Drop> {
        let asked = self.asked.as_ref().ok_or(Drop::Unexpected)?;
        let Some((Agreed { forth, back }, said)) = asked.offer.finish(second) else {
            self.close(End::NotTheHop, now);
            return Err(Drop::Tampered);
        };
        self.asked = None;
        let Said { address, is_exit, leads_six } = Said::read(&said);
        let forth = Layer::pair(&forth);
        let back = Layer::pair(&back);
        self.hops.push(Shared { forth, back, address, heard: now });
        self.heard = now;
        if self.hops.len() < self.path.len() {
            self.state = State::Building(self.hops.len());
            return Ok(self.ask(now, random));
        }
        if !is_exit {
            self.close(End::NotAnExit, now);
            return Ok(None);
        }
        self.leads_six = leads_six;
        self.state = State::Open;
        self.since = now;
        self.built_in = Some(now.since(self.began));
        Ok(self.ping(now, random))
    }

    fn ping(&mut self, now: Instant, random: &mut dyn Random) -> Option<Wants> {
        let mut token = [0; 8];
        random.fill(&mut token);
        // The exit learns on the way how large a packet may be.
        let room = self.room() as u64;
        let token = u64::from_le_bytes(token) & !0xffff | room;
        let is_again = self.ping.is_some_and(|(_, _, answered)| !answered);
        self.ping = Some((token, now, false));
        self.pings.0 += 1;
        let last = self.hops.len().checked_sub(1)?;
        // Where the last one is silent each is asked, so that it is known who is.
        let asked = if is_again { 0..=last } else { last..=last };
        let frames = asked.filter_map(|to| self.write_word(to, &Word::Ping { token }, now));
        Some(Wants::Frames(frames.collect()))
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(
        &mut self,
        cover: Option<Duration>,
        now: Instant,
        random: &mut dyn Random,
    ) -> Option<Wants> {
        if self.poll_timeout(cover).is_none_or(|at| at > now) {
            return None;
        }
        match self.state {
            State::Closed(_) => None,
            State::Building(_) => {
                let since = self.asked.as_ref().map_or(self.began, |asked| asked.since);
                if since.is_older_than(BUILD_WITHIN, now) {
                    self.close(End::Silent, now);
                    return None;
                }
                self.ask(now, random)
            }
            State::Open if self.heard.is_older_than(DEAD_AFTER, now) => {
                self.close(End::Silent, now);
                None
            }
            State::Open if cover.is_some_and(|most| self.sent.is_older_than(most, now)) => {
                let last = self.hops.len().checked_sub(1)?;
                self.write_word(last, &Word::Cover, now).map(|frame| Wants::Frames(vec![frame]))
            }
            State::Open => self.ping(now, random),
        }
    }

    /// When that is, where nothing is sent for no longer than `cover`.
    pub(crate) fn poll_timeout(&self, cover: Option<Duration>) -> Option<Instant> {
        match self.state {
            State::Closed(_) => None,
            State::Building(_) => {
                Some(self.asked.as_ref().map_or(self.began, |asked| asked.sent.after(BUILD_AGAIN)))
            }
            State::Open => {
                let (_, at, answered) = self.ping.unwrap_or((0, self.since, true));
                let ping = at.after(if answered { PING_EVERY } else { PING_AGAIN });
                let cover = cover.map_or(Instant::MAX, |most| self.sent.after(most));
                Some(ping.min(cover).min(self.heard.after(DEAD_AFTER)).max(Instant(1)))
            }
        }
    }

    /// Bytes of the frame that a packet of `len` bytes travels in.
    pub(crate) fn frame_len(&self, len: usize) -> Result<usize, Drop> {
        if self.state != State::Open {
            return Err(Drop::NoCircuit);
        }
        let inner = body::inner_len(len, self.room()).ok_or(Drop::TooBig)?;
        let len = inner + (self.hops.len() - 1) * TAG_LEN;
        Ok(Cell { index: 0, number: [0; 5], len }.frame_len())
    }

    /// Writes a packet of `len` bytes, which `write` puts in its place, as a frame for the entry.
    pub(crate) fn write_packet(
        &mut self,
        len: usize,
        frame: &mut [u8],
        write: impl FnOnce(&mut [u8]),
        now: Instant,
    ) -> Result<(), Drop> {
        let mut at = body::inner_len(len, self.room()).ok_or(Drop::TooBig)?;
        let number = self.numbers.next(0, now)?;
        frame.fill(0);
        let place = &mut frame[Cell::HEADER_LEN..];
        write(&mut place[..len]);
        for hop in self.hops.iter_mut().skip(1).rev() {
            at += TAG_LEN;
            if !hop.forth[0].seal(Kind::Relay, number, &mut place[..at]) {
                return Err(Drop::Exhausted);
            }
        }
        let entry = self.entry.as_ref().ok_or(Drop::NoCircuit)?;
        let header = header(entry, number, &place[..at])?;
        frame[..Cell::HEADER_LEN].copy_from_slice(&header);
        self.sent = now;
        self.packets.0 += 1;
        Ok(())
    }

    /// A control message for the hop `to`, as a frame for the entry.
    fn write_word(&mut self, to: usize, word: &Word, now: Instant) -> Option<Vec<u8>> {
        self.sent = now;
        let number = self.numbers.next(1, now).ok()?;
        let mut at = word.len() + TAG_LEN;
        let len = at + to.saturating_sub(1) * TAG_LEN;
        let mut frame = vec![0; Cell { index: 0, number: [0; 5], len }.frame_len()];
        let place = &mut frame[Cell::HEADER_LEN..];
        word.write(&mut place[..word.len()]);
        self.hops[to].forth[1].seal(Kind::Own, number, &mut place[..at]);
        for hop in self.hops[..to].iter_mut().skip(1).rev() {
            at += TAG_LEN;
            hop.forth[1].seal(Kind::Relay, number, &mut place[..at]);
        }
        let header = header(self.entry.as_ref()?, number, &place[..at]).ok()?;
        frame[..Cell::HEADER_LEN].copy_from_slice(&header);
        Some(frame)
    }

    /// Takes a cell from the entry. Returns the packet's length, its bytes where the body begins;
    /// or what is to be sent because of a control message.
    pub(crate) fn handle_cell(
        &mut self,
        cell: Cell,
        plain: &mut [u8],
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<Result<usize, Option<Wants>>, Drop> {
        let entry = self.entry.as_ref().ok_or(Drop::UnknownIndex)?;
        let body = &mut plain[Cell::HEADER_LEN..][..cell.len];
        let number = entry.mask.read(cell.number, body).ok_or(Drop::Malformed)?;
        let lane = (number % 2) as usize;
        if !self.seen[lane].is_fresh(number) {
            return Err(Drop::Replayed);
        }
        if lane == 1 {
            let (from, word) = self.open_word(number, body)?;
            self.seen[1].accept(number);
            self.hops[from].heard = now;
            // That those before live does not tell whether it carries.
            if from + 1 == self.hops.len() {
                self.heard = now;
            }
            return self.handle_word(from, word, now, random).map(Err);
        }
        if self.state != State::Open {
            return Err(Drop::Unexpected);
        }
        let mut len = body.len();
        for hop in self.hops.iter_mut().skip(1) {
            if !hop.back[0].open(Kind::Relay, number, &mut body[..len]) {
                return Err(Drop::Tampered);
            }
            len = len.checked_sub(TAG_LEN).ok_or(Drop::Malformed)?;
        }
        self.seen[0].accept(number);
        self.heard = now;
        self.packets.1 += 1;
        Ok(Ok(len))
    }

    /// A control message, and the hop that it comes from: each is asked in turn.
    fn open_word(&mut self, number: u64, body: &mut [u8]) -> Result<(usize, Word), Drop> {
        let mut copy = [0; LONG + TAG_LEN];
        let mut len = body.len();
        for (at, hop) in self.hops.iter_mut().enumerate() {
            if let Some(copy) = copy.get_mut(..len) {
                copy.copy_from_slice(&body[..len]);
                if hop.back[1].open(Kind::Own, number, copy) {
                    let word = Word::read(&copy[..len - TAG_LEN]).ok_or(Drop::Malformed)?;
                    return Ok((at, word));
                }
            }
            if at > 0 {
                if !hop.back[1].open(Kind::Relay, number, &mut body[..len]) {
                    return Err(Drop::Tampered);
                }
                len = len.checked_sub(TAG_LEN).ok_or(Drop::Malformed)?;
            }
        }
        Err(Drop::Tampered)
    }

    fn handle_word(
        &mut self,
        from: usize,
        word: Word,
        now: Instant,
        random: &mut dyn Random,
    ) -> Result<Option<Wants>, Drop> {
        let is_last = from + 1 == self.hops.len();
        match word {
            Word::Extended { message } if is_last => self.handle_answer(&message, now, random),
            Word::Refused { reason } if is_last && self.asked.is_some() => {
                self.close(End::from_number(reason), now);
                Ok(None)
            }
            Word::Pong { token } if is_last => {
                if let Some((_, at, answered)) =
                    self.ping.as_mut().filter(|(of, _, answered)| *of == token && !answered)
                {
                    *answered = true;
                    self.rtt = Some(now.since(*at));
                    self.pings.1 += 1;
                }
                Ok(None)
            }
            Word::Pong { .. } | Word::Covered => Ok(None),
            _ => Err(Drop::Unexpected),
        }
    }
}

/// What a hop says in its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    /// The circuit's address there.
    pub(crate) address: Ipv4Addr,
    /// Packets may leave there.
    pub(crate) is_exit: bool,
    /// And those of IPv6.
    pub(crate) leads_six: bool,
}

impl Said {
    pub(crate) fn write(self) -> [u8; SAID_LEN] {
        let mut said = [0; SAID_LEN];
        said[..4].copy_from_slice(&self.address.octets());
        said[4] = u8::from(self.is_exit) | u8::from(self.leads_six) << 1;
        said
    }

    fn read(said: &[u8; SAID_LEN]) -> Self {
        let address = Ipv4Addr::new(said[0], said[1], said[2], said[3]);
        Self { address, is_exit: said[4] & 1 != 0, leads_six: said[4] & 2 != 0 }
    }
}
