//! Both ends initiate at once: every order of the messages, with one lost and one repeated
//! (threat DP-09). With the oracle on, also that no nonce is ever used twice.

use crate::tests::testing::{End, Link, at, ends, linked};
use crate::{Drop, Instant};

/// What may happen to the messages of one run, beside arriving in any order.
#[derive(Clone, Copy)]
struct Faults {
    losses: usize,
    repeats: usize,
    /// Messages of one direction stay in order.
    in_order: bool,
}

/// Enumerates all runs: each choice is a digit, and the last one that can still grow is increased.
#[derive(Default)]
struct Choices {
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn pick(&mut self, options: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push((0, options));
        }
        let (digit, of) = self.digits[self.at];
        assert_eq!(of, options, "a run must be repeatable");
        self.at += 1;
        digit
    }

    /// Prepares the next run; `false` if there is none.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((digit, options)) = self.digits.pop() {
            if digit + 1 < options {
                self.digits.push((digit + 1, options));
                return true;
            }
        }
        false
    }
}

enum Fate {
    Arrive,
    Repeat,
    Lose,
}

struct Message {
    to: usize,
    bytes: Vec<u8>,
    repeated: bool,
}

struct Run {
    ends: [End; 2],
    now: Instant,
    flight: Vec<Message>,
    lost: usize,
}

impl Run {
    /// Both ends initiate.
    fn start(mut ends: [End; 2], now: Instant) -> Self {
        let mut flight = Vec::new();
        for (from, end) in ends.iter_mut().enumerate() {
            let bytes = end.initiate(now).expect("not too early").to_vec();
            flight.push(Message { to: 1 - from, bytes, repeated: false });
        }
        Self { ends, now, flight, lost: 0 }
    }

    /// Delivers everything as `choices` says.
    fn play(&mut self, choices: &mut Choices, mut faults: Faults) {
        while !self.flight.is_empty() {
            let mut options = Vec::new();
            for (place, message) in self.flight.iter().enumerate() {
                if faults.in_order && self.flight[..place].iter().any(|m| m.to == message.to) {
                    continue;
                }
                options.push((place, Fate::Arrive));
                let handshake = message.bytes[0] != 4;
                if faults.repeats > 0 && handshake && !message.repeated {
                    options.push((place, Fate::Repeat));
                }
                if faults.losses > 0 && handshake && !message.repeated {
                    options.push((place, Fate::Lose));
                }
            }
            let (place, fate) = options.swap_remove(choices.pick(options.len()));
            match fate {
                Fate::Arrive => {
                    let message = self.flight.remove(place);
                    self.arrive(&message);
                }
                Fate::Repeat => {
                    faults.repeats -= 1;
                    let mut message = self.flight.remove(place);
                    self.arrive(&message);
                    message.repeated = true;
                    self.flight.push(message);
                }
                Fate::Lose => {
                    faults.losses -= 1;
                    self.lost += 1;
                    self.flight.remove(place);
                }
            }
        }
    }

    fn arrive(&mut self, message: &Message) {
        let end = &mut self.ends[message.to];
        let answer = end.handle(&message.bytes, self.now);
        if message.repeated {
            let known = [Drop::OldTimestamp, Drop::UnexpectedResponse, Drop::InitiationFlood];
            assert!(answer.as_ref().is_err_and(|reason| known.contains(reason)), "{answer:?}");
        }
        let sent = answer.ok().flatten().into_iter().chain(end.act(self.now));
        let to = 1 - message.to;
        self.flight.extend(sent.map(|bytes| Message { to, bytes, repeated: false }));
    }

    /// Both ends send on the same keys: one's sealing is the other's current opening.
    fn converged(&self) -> bool {
        let [a, b] = &self.ends;
        let born_ours = |end: &End| end.peer.current.as_ref().map(|session| session.is_ours());
        born_ours(a).zip(born_ours(b)).is_some_and(|(a, b)| a != b)
    }

    /// Sends both ways, `rounds` times; every packet must open.
    fn exchange(&mut self, rounds: u8) {
        for round in 0..rounds {
            for from in [0, 1] {
                let sealed = self.ends[from].seal(&[round; 9], self.now);
                let opened = self.ends[1 - from].open(&sealed.expect("a session"), self.now);
                assert_eq!(opened.as_deref(), Ok(&[round; 9][..]));
                for end in &mut self.ends {
                    assert_eq!(end.act(self.now), [] as [Vec<u8>; 0]);
                }
            }
        }
    }
}

/// Plays all runs; returns how many there were and how many ended on different sessions.
fn enumerate(faults: Faults, fresh: impl Fn() -> ([End; 2], Instant)) -> (usize, usize) {
    let mut choices = Choices::default();
    let (mut runs, mut apart) = (0, 0);
    loop {
        let (ends, now) = fresh();
        let mut run = Run::start(ends, now);
        run.play(&mut choices, faults);
        for end in &run.ends {
            assert!(end.indices.len() <= 4, "at most three sessions and an initiation");
        }
        if run.lost == 0 {
            run.exchange(2);
            apart += usize::from(!run.converged());
        } else {
            settle(run);
        }
        runs += 1;
        if !choices.advance() {
            return (runs, apart);
        }
    }
}

/// After a loss the timers must bring a session within one retransmission.
fn settle(run: Run) {
    let start = run.now;
    let mut link = Link::new(run.ends);
    link.now = start;
    for round in 0..2 {
        link.send(0, &[round]);
        link.send(1, &[round]);
    }
    link.run(start + core::time::Duration::from_secs(12));
    for end in &link.ends {
        assert!(!end.received.is_empty() && end.staged.is_empty());
    }
    link.send(0, b"last");
    link.send(1, b"last");
    link.run(start + core::time::Duration::from_secs(13));
    for end in &link.ends {
        assert_eq!(end.received.last().map(Vec::as_slice), Some(&b"last"[..]));
    }
}

fn strangers() -> ([End; 2], Instant) {
    (ends(1), at(1.0))
}

/// Linked by `[0]` at 1 s, and now due to renew.
fn acquaintances() -> ([End; 2], Instant) {
    (linked(2, at(1.0)), at(122.0))
}

#[test]
fn in_order_both_ends_settle_on_one_session() {
    let faults = Faults { losses: 0, repeats: 0, in_order: true };
    for fresh in [strangers, acquaintances] {
        let (runs, apart) = enumerate(faults, fresh);
        assert!(runs >= 8, "{runs}");
        assert_eq!(apart, 0, "of {runs}");
    }
}

#[test]
fn in_any_order_both_directions_work_at_once() {
    let faults = Faults { losses: 0, repeats: 0, in_order: false };
    for fresh in [strangers, acquaintances] {
        let (runs, apart) = enumerate(faults, fresh);
        assert!(runs >= 20, "{runs}");
        // A response that overtakes a first packet which overtakes nothing can leave each end on
        // the session the other initiated. Both are live at both ends, so nothing is lost.
        assert!(apart <= 2, "{apart} of {runs}");
    }
}

#[test]
fn with_one_repeated_nothing_changes() {
    let faults = Faults { losses: 0, repeats: 1, in_order: false };
    let (runs, _) = enumerate(faults, strangers);
    assert!(runs >= 100, "{runs}");
}

#[test]
fn with_one_lost_the_timers_repair_it() {
    let faults = Faults { losses: 1, repeats: 0, in_order: false };
    for fresh in [strangers, acquaintances] {
        let (runs, _) = enumerate(faults, fresh);
        assert!(runs >= 48, "{runs}");
    }
}

#[test]
fn with_one_lost_and_one_repeated_too() {
    let faults = Faults { losses: 1, repeats: 1, in_order: false };
    let (runs, _) = enumerate(faults, strangers);
    assert!(runs >= 600, "{runs}");
}
