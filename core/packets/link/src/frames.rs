//! Frames with one peer: who said Hello on which session, and the two halves that then work.
//!
//! Outwards `sender` asks `treatment` how a packet travels, in which `manner`; small ones `gather`;
//! `pacing` and `load` say how fast and how much. Inwards `receiver` has `piece`s, in a `pool` of
//! memory, and `orphans` whose head is yet to come; `codel` tells flows of a queue. What both ends
//! say of the path is read in `overrun`, `strays` and `elsewhere`, and shown in `weather`.

use noise::{Index, Instant, Peer};
use repair::budget::Budget;
use wire::frame::{Elsewhere, Features, Frame, Hello, Report};

use crate::frames::elsewhere::Untold;
use crate::frames::piece::Judge;
use crate::frames::receiver::Receiver;
use crate::frames::sender::Sender;
use crate::outbox::{Destination, Outbox};
use crate::outcome::Outcome;
use crate::tuning::Tuning;
use crate::way::Way;

pub(crate) mod codel;
mod elsewhere;
pub(crate) mod gather;
mod load;
mod manner;
mod orphans;
pub(crate) mod overrun;
mod pacing;
pub(crate) mod piece;
mod pool;
pub(crate) mod receiver;
mod sender;
mod strays;
mod treatment;
pub(crate) mod weather;

/// What is not answered is said again after twice so long, and then after twice as long each time.
const AGAIN_NS: u64 = 250_000_000;
/// So often it is said at most on one session.
const GREETINGS_MAX: u32 = 6;

/// What a link that speaks frames remembers.
#[derive(Debug)]
pub(crate) struct Frames {
    tuning: &'static Tuning,
    /// What we say of ourselves; none once we speak no frames on new sessions.
    own: Option<Hello>,
    peer: u32,
    salt: u32,
    /// How often we said Hello on a session, and when it was last.
    greeted: PerSession<(u32, Instant)>,
    /// What the peer said on a session.
    heard: PerSession<Hello>,
    /// For what waits, of all links.
    budget: Budget,
    /// For how long a flow waits for its order at most, microseconds.
    order_us: u64,
    /// Repair for each byte, at most.
    repair_max: f64,
    /// What the peer is to be told of, where it reads that.
    untold: Untold,
    /// Made when the peer was heard first.
    halves: Option<Box<Halves>>,
    /// The highest number that came before, on the session that data came on last.
    unobserved: Option<(Index, u64)>,
}

/// Something of the two sessions that it was noted of last, the newest first. Two, for where both
/// ends initiated at once each may send on its own session.
#[derive(Debug)]
struct PerSession<T>([Option<(Index, T)>; 2]);

impl<T: Copy> PerSession<T> {
    const EMPTY: Self = Self([None; 2]);

    fn get(&self, index: Index) -> Option<T> {
        self.0.iter().flatten().find(|(of, _)| *of == index).map(|&(_, value)| value)
    }

    /// What was noted last, of whichever session.
    fn latest(&self) -> Option<T> {
        self.0[0].map(|(_, value)| value)
    }

    fn set(&mut self, index: Index, value: T) {
        let before = self.0.iter().flatten().find(|(of, _)| *of != index).copied();
        self.0 = [Some((index, value)), before];
    }
}

/// The two directions.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

impl Frames {
    /// Nothing said yet. `salt` is any number that is another one in each life of the program.
    pub(crate) fn new(
        peer: u32,
        salt: u32,
        own: Hello,
        budget: Budget,
        (order_us, repair_max): (u64, f64),
        tuning: &'static Tuning,
    ) -> Self {
        let greeted = PerSession::EMPTY;
        let heard = PerSession::EMPTY;
        let own = Some(own);
        let halves = None;
        let unobserved = None;
        let untold = Untold::default();
        Self {
            tuning,
            own,
            peer,
            salt,
            greeted,
            heard,
            budget,
            order_us,
            repair_max,
            untold,
            halves,
            unobserved,
        }
    }

    /// Forgets the peer: every session has ended.
    pub(crate) fn clear(&mut self) {
        self.greeted = PerSession::EMPTY;
        self.heard = PerSession::EMPTY;
        self.halves = None;
        self.unobserved = None;
        self.untold = Untold::default();
        // Whoever hears another number than before knows that all is forgotten here.
        self.salt = self.salt.wrapping_mul(0x9e37_79b1).wrapping_add(1);
    }

    /// What we say of ourselves from now on; with nothing, frames end with the sessions on which
    /// they are spoken.
    pub(crate) fn set_own(&mut self, own: Option<Hello>) {
        self.own = own;
    }

    /// For how long a flow waits for its order at most, microseconds.
    pub(crate) fn set_order_us(&mut self, most_us: u64) {
        self.order_us = most_us;
        if let Some(halves) = self.halves_mut() {
            halves.receiver.set_order_us(most_us);
        }
    }

    /// Repair for each byte that goes to the peer, at most.
    pub(crate) fn set_repair_max(&mut self, share: f64) {
        self.repair_max = share;
        if let Some(halves) = self.halves_mut() {
            halves.sender.set_repair_max(share);
        }
    }

    /// Whether we say anything of ourselves.
    pub(crate) fn greets(&self) -> bool {
        self.own.is_some()
    }

    /// What the peer said on the session `current`.
    pub(crate) fn hello(&self, current: Index) -> Option<Hello> {
        self.heard.get(current)
    }

    pub(crate) fn halves(&self) -> Option<&Halves> {
        self.halves.as_deref()
    }

    pub(crate) fn halves_mut(&mut self) -> Option<&mut Halves> {
        self.halves.as_deref_mut()
    }

    /// The sending half, if the peer takes frames on the session `current`.
    pub(crate) fn sender(&mut self, current: Index) -> Option<&mut Sender> {
        let features = self.hello(current)?.features;
        let takes = features.has(Features::REPAIR);
        let halves = self.halves.as_deref_mut().filter(|_| takes)?;
        halves.sender.begin(current);
        let squeezed = features.has(Features::SQUEEZED);
        halves.sender.set_reads(features.has(Features::BUNDLES), squeezed);
        Some(&mut halves.sender)
    }

    /// Takes a Hello that came on the session `index`; says whether it wants an answer.
    pub(crate) fn handle_hello(&mut self, index: Index, hello: Hello) -> bool {
        self.heard.set(index, hello);
        if hello.features.has(Features::REPAIR) {
            let salt = self.salt;
            let halves = self.make_halves();
            let first = hello.first_number;
            if first != 0 && halves.receiver.set_first(first, index) {
                halves.sender.renumber(salt);
            }
        }
        !hello.heard
    }

    fn make_halves(&mut self) -> &mut Halves {
        self.halves.get_or_insert_with(|| {
            let mut sender = Sender::new(self.salt, self.tuning);
            sender.set_repair_max(self.repair_max);
            let mut receiver = Receiver::new(self.peer, &self.budget, self.tuning);
            receiver.set_order_us(self.order_us);
            // In jitter younger ones than the first that is observed may have come: not lost.
            if let Some((index, counter)) = self.unobserved.take() {
                receiver.begin_after(index, counter);
            }
            Box::new(Halves { sender, receiver })
        })
    }

    /// Whether Hello was said on `current`, had no answer, and is due again.
    fn is_unanswered(&self, current: Index, now: Instant) -> bool {
        let unheard = self.greets() && self.hello(current).is_none();
        self.greeted.get(current).is_some_and(|(times, at)| {
            let due = at.0.saturating_add(AGAIN_NS << times.min(GREETINGS_MAX));
            unheard && times < GREETINGS_MAX && now.0 >= due
        })
    }

    /// Says who we are on the session `index`, which is that of `way`, unless that is known.
    pub(crate) fn greet<O: Outbox>(&mut self, index: Index, now: Instant, way: &mut Way<'_, O>) {
        let times = self.greeted.get(index).map_or(0, |(times, _)| times);
        if times >= GREETINGS_MAX {
            return;
        }
        let Some(own) = self.own else { return };
        let heard = self.hello(index).is_some();
        let second_index = way.session.second_index();
        let first_number = self.salt;
        let hello = Hello { heard, second_index, first_number, ..own };
        if way.seal(Hello::LEN, |plain| plain.copy_from_slice(&hello.build())).is_ok() {
            self.greeted.set(index, (times + 1, now));
        }
    }

    /// Takes any other frame that came on the session `index`; its plaintext lies at `start` of
    /// the lent memory.
    pub(crate) fn handle_frame(
        &mut self,
        received: (Index, u64),
        frame: &Frame<'_>,
        start: usize,
        judge: &mut impl Judge,
        now: Instant,
    ) -> Result<(), noise::Drop> {
        // A frame says as much as the Hello that was lost before it.
        let halves = self.make_halves();
        let (index, counter) = received;
        let now_us = now.0 / 1_000;
        match frame {
            Frame::Report(report) => {
                halves.receiver.handle_number(index, counter, false, now_us);
                halves.sender.handle_report(report, now);
            }
            _ if !carries_data(frame) => {
                halves.receiver.handle_number(index, counter, false, now_us);
                return Err(noise::Drop::Malformed);
            }
            _ => halves.receiver.handle_frame(received, frame, start, judge, now_us),
        }
        Ok(())
    }

    /// Notes a datagram that was no frame; `is_data` unless it was a keepalive.
    #[inline]
    pub(crate) fn note_bare(&mut self, index: Index, counter: u64, is_data: bool, now: Instant) {
        match &mut self.halves {
            Some(halves) => {
                halves.receiver.handle_number(index, counter, is_data, now.0 / 1_000);
            }
            None => self.note_unobserved(index, counter, is_data),
        }
    }

    /// What came before the other end was heard is not lost, on the session that data came on.
    fn note_unobserved(&mut self, index: Index, counter: u64, is_data: bool) {
        match &mut self.unobserved {
            Some((on, highest)) if *on == index => *highest = counter.max(*highest),
            _ if is_data => self.unobserved = Some((index, counter)),
            _ => {}
        }
    }

    /// A frame came that may have come another way than packets do.
    pub(crate) fn note_stray_in(&mut self, index: Index, counter: u64) {
        if let Some(halves) = &mut self.halves {
            halves.receiver.handle_stray(index, counter);
        }
    }

    /// Whether the peer reads of what went elsewhere, on a session whose Hello is yet to come as on
    /// the one before: there is no time to wait for it.
    fn reads_elsewhere(&self, index: Index) -> bool {
        let hello = self.hello(index).or_else(|| self.heard.latest());
        hello.is_some_and(|hello| hello.features.has(Features::ELSEWHERE))
    }

    /// A datagram of the session `index` went another way than packets do.
    /// On the way that packets take, the peer that is not told counts it as before.
    pub(crate) fn note_stray_out(
        &mut self,
        (index, number): (Index, Option<u64>),
        is_other: bool,
        now: Instant,
    ) {
        let Some(number) = number else { return };
        if self.reads_elsewhere(index) {
            return self.untold.note(index, number);
        }
        if let (true, Some(halves)) = (is_other, &mut self.halves) {
            halves.sender.note_stray(now);
        }
    }

    /// A datagram that went another way than packets do has come.
    pub(crate) fn note_stray_answered(&mut self) {
        if let Some(halves) = &mut self.halves {
            halves.sender.note_stray_answered();
        }
    }

    /// Packets go out on another path, from this number of this session on: what was believed of
    /// the one before is void.
    pub(crate) fn handle_moved(&mut self, next: Option<(Index, u64)>, now: Instant) {
        if let Some((index, number)) = next {
            self.untold.note_left(index, number);
        }
        if let Some(halves) = &mut self.halves {
            halves.sender.handle_moved(now);
        }
    }

    /// Packets come in on another path, from the one with this number on.
    pub(crate) fn handle_source_moved(&mut self, index: Index, counter: u64) {
        if let Some(halves) = &mut self.halves {
            halves.receiver.handle_way(index, counter);
        }
    }

    /// These numbers of the session `index` went another way.
    pub(crate) fn handle_elsewhere(&mut self, index: Index, elsewhere: &Elsewhere<'_>) {
        if let Some(halves) = &mut self.halves {
            return halves.receiver.handle_elsewhere(index, elsewhere);
        }
        for run in elsewhere.runs() {
            let last = run.first.saturating_add(u64::from(run.count)).saturating_sub(1);
            self.note_unobserved(index, last, false);
        }
    }

    /// Whether packets go out by a stream.
    pub(crate) fn set_by_stream(&mut self, by_stream: bool) {
        if let Some(halves) = &mut self.halves {
            halves.sender.set_by_stream(by_stream);
        }
    }

    /// Whether small packets wait that are to be sent by now.
    pub(crate) fn has_gathered(&self, now: Instant) -> bool {
        let until = self.halves.as_ref().and_then(|halves| halves.sender.gathered_until());
        until.is_some_and(|until| until <= now)
    }

    /// How many small packets wait.
    pub(crate) fn gathered(&self) -> u64 {
        self.halves.as_ref().map_or(0, |halves| halves.sender.gathered())
    }

    /// Sends them as a plain WireGuard peer would.
    pub(crate) fn close_gathered_bare<O: Outbox>(
        &mut self,
        way: &mut Way<'_, O>,
        outcome: &mut Outcome,
    ) {
        if let Some(halves) = &mut self.halves {
            halves.sender.close_bare(way, outcome);
        }
    }

    /// Gives them up: how many these are.
    pub(crate) fn drop_gathered(&mut self) -> u64 {
        self.halves.as_mut().map_or(0, |halves| halves.sender.drop_gathered())
    }

    /// Lets go on what has waited long enough.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some(halves) = &mut self.halves {
            halves.receiver.handle_timeout(now.0 / 1_000);
            halves.sender.trim();
        }
    }

    /// Sends what is due of itself: Hello again, repair chunks, a report. What cannot be sent now,
    /// since nobody knows where to, or the peer has not said Hello on this session, is dropped.
    /// Returns the bytes of the datagrams.
    pub(crate) fn handle_due<O: Outbox>(
        &mut self,
        peer: &mut Peer,
        (to, by_stream): (Option<Destination>, bool),
        now: Instant,
        out: &mut O,
    ) -> u64 {
        let now_us = now.0 / 1_000;
        let current = peer.current().map(|(current, _)| current);
        let untold = to.is_some()
            && current
                .is_some_and(|index| self.untold.is_due(index) && self.reads_elsewhere(index));
        let again = current.is_some_and(|current| self.is_unanswered(current, now));
        let takes = current.is_some_and(|current| self.hello(current).is_some());
        let (report, due) = match self.halves.as_deref_mut() {
            Some(Halves { sender, receiver }) => {
                if let Some(current) = current {
                    sender.begin(current);
                }
                let due = sender.poll_timeout().is_some_and(|at| at <= now);
                (receiver.poll_report(now_us), due)
            }
            None => (None, false),
        };
        let is_wanted = again || untold || (takes && (due || report.is_some()));
        let session = if is_wanted { peer.sealer(now) } else { None };
        let (Some(session), Some(to), Some(current)) = (session, to, current) else {
            if let (true, Some(halves)) = (due, &mut self.halves) {
                halves.sender.discard(now_us);
            }
            return 0;
        };
        let gap_ns = self.halves.as_ref().map_or(0, |halves| halves.sender.gap_ns());
        let mut way = Way::new(session, to, out).paced(gap_ns);
        if again {
            self.greet(current, now, &mut way);
        }
        if untold {
            let (runs, count) = self.untold.take();
            let len = Elsewhere::len_of(count);
            let _ = way.seal(len, |plain| Elsewhere::write(&runs[..count], plain));
        }
        if let (true, Some(report)) = (takes, report) {
            let order_ms = u8::try_from(self.order_us.div_ceil(1_000)).unwrap_or(u8::MAX);
            let bytes = Report { by_stream, order_ms: Some(order_ms), ..report }.build();
            let _ = way.seal(bytes.len(), |plain| plain.copy_from_slice(&bytes));
        }
        if let (true, Some(halves)) = (due, &mut self.halves) {
            // What is refused here is refused to data, too, and counted there.
            if !takes || halves.sender.flush(now_us, &mut way).is_err() {
                halves.sender.discard(now_us);
            }
        }
        let datagrams = way.datagrams;
        let bytes = way.bytes;
        peer.data_sent(now, datagrams, 0);
        bytes
    }

    /// When [`Frames::handle_timeout`] or [`Frames::handle_due`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let halves = self.halves.as_deref()?;
        [halves.receiver.poll_timeout(), halves.sender.poll_timeout()].into_iter().flatten().min()
    }
}

/// Whether a frame carries packets, for the timers of the session: the others need no answer.
pub(crate) fn carries_data(frame: &Frame<'_>) -> bool {
    !matches!(
        frame,
        Frame::Hello(_)
            | Frame::Report(_)
            | Frame::Probe(_)
            | Frame::ProbeAnswer(_)
            | Frame::Candidates(_)
            | Frame::Elsewhere(_)
            | Frame::Cell(_)
            | Frame::Build(_)
            | Frame::Sounding(_)
            | Frame::Unknown(_)
    )
}

/// What we can do, for [`Hello`].
#[must_use]
pub fn features() -> Features {
    Features::REPAIR
        .with(Features::PATHS)
        .with(Features::BUNDLES)
        .with(Features::SQUEEZED)
        .with(Features::ELSEWHERE)
        .with(Features::SOUNDINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> Frames {
        Frames::new(1, 2, Hello::default(), Budget::new(0), (0, 0.5), &Tuning::DEFAULT)
    }

    /// The Hello of a peer whose datagrams overtake each other may come behind its data.
    #[test]
    fn what_came_before_the_hello_is_not_taken_for_lost() {
        let mut frames = silent();
        let bare = |frames: &mut Frames, counters: &[u64], ms: u64| {
            for &counter in counters {
                frames.note_bare(Index(5), counter, true, Instant(ms * 1_000_000));
            }
        };
        bare(&mut frames, &[3, 9, 4, 7, 12, 8], 1);
        frames.handle_hello(Index(5), Hello { features: features(), ..Hello::default() });
        bare(&mut frames, &[5, 6, 10, 11, 13, 14, 16], 2);
        let receiver = &mut frames.halves_mut().expect("heard").receiver;
        let report = receiver.poll_report(900_000).expect("data came");
        assert_eq!((report.clear.judged, report.clear.lost), (4, 1), "number 15");
    }

    #[test]
    fn a_peer_that_does_not_read_bundles_gets_none() {
        let mut frames = silent();
        for (features, expected) in
            [(Features::REPAIR, Some(false)), (features(), Some(true)), (Features::BUNDLES, None)]
        {
            frames.handle_hello(Index(5), Hello { features, ..Hello::default() });
            assert_eq!(frames.sender(Index(5)).map(|sender| sender.sends_bundles()), expected);
        }
    }
}
