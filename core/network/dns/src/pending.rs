//! Questions that were handed on: who asked, whom we asked, and how long we wait.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use noise::{Instant, Random};

use crate::query::{Query, Rcode, Transport};
use crate::reply::{failure, fit};

/// Open questions, at most.
pub const PENDING_MAX: usize = 256;
/// How long one resolver is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Resolvers that are tried for one question, at most.
const TRIES_MAX: usize = 3;

/// Questions that wait for a resolver's answer. `C` tells the shell where an answer goes.
#[derive(Debug)]
pub struct Pending<C> {
    open: BTreeMap<u64, Open<C>>,
    next: u64,
}

#[derive(Debug)]
struct Open<C> {
    client: SocketAddr,
    came: C,
    query: Query,
    /// As it is sent, under our number.
    bytes: Vec<u8>,
    to: Vec<IpAddr>,
    tried: usize,
    deadline: Instant,
}

/// What is to be sent: `bytes` to port 53 of `to`, from a socket that is used for nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The question's number here.
    pub number: u64,
    /// Whom to ask.
    pub to: IpAddr,
    /// The query.
    pub bytes: Vec<u8>,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<C> {
    /// Send this to the client; the question is closed.
    Reply {
        /// Who asked.
        client: SocketAddr,
        /// Where it came in.
        came: C,
        /// The answer.
        bytes: Vec<u8>,
    },
    /// Ask the next resolver, and listen no more to the last one.
    Ask(Ask),
    /// Go on waiting.
    Wait(Dropped),
}

/// Why what came is not taken for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Nobody waits for it any more.
    Late,
    /// It has another number or question, or is no answer.
    Foreign,
}

/// A question that gave way to a newer one: its number, and what its client is told.
pub type Evicted<C> = (u64, Outcome<C>);

impl<C> Default for Pending<C> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), next: 0 }
    }
}

impl<C: Clone> Pending<C> {
    /// Opens a question of `client`, which came in by `came` over UDP as `bytes`. When the table
    /// is full, the client with the most open questions loses its oldest.
    pub fn begin(
        &mut self,
        asker: (SocketAddr, C),
        asked: (Query, &[u8]),
        to: &[IpAddr],
        now: Instant,
        random: &mut dyn Random,
    ) -> (Outcome<C>, Option<Evicted<C>>) {
        let (client, came) = asker;
        let (query, bytes) = asked;
        let Some(first) = to.first().copied() else {
            let bytes = failure(&query, Rcode::Refused);
            return (Outcome::Reply { client, came, bytes }, None);
        };
        let evicted = (self.open.len() >= PENDING_MAX).then(|| self.evict()).flatten();
        let mut bytes = bytes.to_vec();
        let mut id = [0; 2];
        random.fill(&mut id);
        if let Some(place) = bytes.get_mut(..2) {
            place.copy_from_slice(&id);
        }
        let number = self.next;
        self.next += 1;
        let ask = Ask { number, to: first, bytes: bytes.clone() };
        let to = to.iter().take(TRIES_MAX).copied().collect();
        let deadline = now + TIMEOUT;
        self.open.insert(number, Open { client, came, query, bytes, to, tried: 1, deadline });
        (Outcome::Ask(ask), evicted)
    }

    /// Takes what came back on the socket of question `number`.
    pub fn handle_answer(
        &mut self,
        number: u64,
        answer: &[u8],
        now: Instant,
        random: &mut dyn Random,
    ) -> Outcome<C> {
        let Some(open) = self.open.get(&number) else {
            return Outcome::Wait(Dropped::Late);
        };
        if !is_answer(&open.query, &open.bytes, answer) {
            return Outcome::Wait(Dropped::Foreign);
        }
        let rcode = u16::from(answer[3] & 0xf);
        let unable = [Rcode::ServFail, Rcode::NotImp, Rcode::Refused];
        if unable.iter().any(|r| r.number() == rcode) && open.tried < open.to.len() {
            return self.turn(number, now, random);
        }
        self.close(number, |open| {
            let mut bytes = answer.to_vec();
            bytes[..2].copy_from_slice(&open.query.id.to_be_bytes());
            fit(&open.query, Transport::Udp, bytes)
        })
    }

    /// The socket of question `number` failed: its resolver cannot be reached.
    pub fn handle_failure(
        &mut self,
        number: u64,
        now: Instant,
        random: &mut dyn Random,
    ) -> Outcome<C> {
        self.turn(number, now, random)
    }

    /// One question whose time is up, and what to do; call until there is none.
    pub fn poll_late(
        &mut self,
        now: Instant,
        random: &mut dyn Random,
    ) -> Option<(u64, Outcome<C>)> {
        let late = self.open.iter().find(|(_, open)| open.deadline <= now)?;
        let number = *late.0;
        Some((number, self.turn(number, now, random)))
    }

    /// When the next question's time is up.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.open.values().map(|open| open.deadline).min()
    }

    /// Open questions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The next resolver, or the end.
    fn turn(&mut self, number: u64, now: Instant, random: &mut dyn Random) -> Outcome<C> {
        let Some(open) = self.open.get_mut(&number) else {
            return Outcome::Wait(Dropped::Late);
        };
        let Some(to) = open.to.get(open.tried).copied() else {
            return self.close(number, |open| failure(&open.query, Rcode::ServFail));
        };
        open.tried += 1;
        open.deadline = now + TIMEOUT;
        random.fill(&mut open.bytes[..2]);
        Outcome::Ask(Ask { number, to, bytes: open.bytes.clone() })
    }

    fn close(&mut self, number: u64, bytes: impl FnOnce(&Open<C>) -> Vec<u8>) -> Outcome<C> {
        let Some(open) = self.open.remove(&number) else {
            return Outcome::Wait(Dropped::Late);
        };
        Outcome::Reply { client: open.client, bytes: bytes(&open), came: open.came }
    }

    fn evict(&mut self) -> Option<Evicted<C>> {
        let mut counts: BTreeMap<SocketAddr, (usize, u64)> = BTreeMap::new();
        for (number, open) in &self.open {
            counts.entry(open.client).or_insert((0, *number)).0 += 1;
        }
        let oldest = counts.values().max_by_key(|(count, first)| (*count, u64::MAX - first))?.1;
        Some((oldest, self.close(oldest, |open| failure(&open.query, Rcode::ServFail))))
    }
}

/// Whether `answer` has the number of what was `sent` for `query`, and repeats its question
/// (threat DN-04).
#[must_use]
pub fn is_answer(query: &Query, sent: &[u8], answer: &[u8]) -> bool {
    let end = query.question_end;
    let (Some(head), Some(asked)) = (answer.get(..end), sent.get(..end)) else {
        return false;
    };
    head[..2] == asked[..2]
        && head[2] & 0x80 != 0
        && head[4..6] == [0, 1]
        && head[12..end - 4].eq_ignore_ascii_case(&asked[12..end - 4])
        && head[end - 4..] == asked[end - 4..]
}

#[cfg(test)]
mod tests;
