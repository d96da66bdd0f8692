//! The relay's switch: who is here, and what waits for whom.
//!
//! Stages, in the order in which they appear below: `admit` and `remove`, `handle_frame`,
//! `handle_absent`, `poll_frames`, `handle_timeout`.

use std::collections::BTreeMap;
use std::time::Duration;

use noise::{Instant, PublicKey};
use wire::relay::{DATAGRAM_HEADER_LEN, Frame, PING_LEN};

use self::member::Member;

mod member;

/// Connections at a time.
pub const MEMBERS_MAX: usize = 16_384;
/// Bytes that wait for one connection, at most: 4 ms at 1 Gbit/s.
pub const QUEUE_LEN_MAX: usize = 512 * 1024;
/// How long a datagram waits at most.
pub const QUEUE_AGE_MAX: Duration = Duration::from_millis(50);
/// Bytes that wait for all connections together, at most.
pub const ALL_LEN_MAX: usize = 64 * 1024 * 1024;
/// A connection from which nothing came for so long is cut; nodes ping three times as often.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// "Gone" frames to one connection: so many in each second.
pub const GONE_A_SECOND: u32 = 3;
/// A key whose live connection is replaced so often in [`FLAP_TIME`] is used by two machines.
pub const FLAPS_MAX: u32 = 4;
/// See [`FLAPS_MAX`].
pub const FLAP_TIME: Duration = Duration::from_secs(30);
/// How long such a key is refused.
pub const QUARANTINE: Duration = Duration::from_secs(60);
/// A connection that was heard so recently is live.
const LIVE: Duration = Duration::from_secs(2);

/// A connection: a place, and how often the place was taken before, so that an old name never
/// means a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

impl ConnectionId {
    /// The number of its place, below [`MEMBERS_MAX`]: places are given again, lowest first.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Why a key is not admitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// [`MEMBERS_MAX`] connections are there.
    Full,
    /// Two machines use this key in turns (threat RL-07). The connection that is there is to be
    /// cut, too.
    Quarantined(Option<ConnectionId>),
}

/// A connection that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its name.
    pub id: ConnectionId,
    /// The older connection of the same key, which is to be cut: it is forgotten already.
    pub replaced: Option<ConnectionId>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Something waits now for this connection, for which nothing waited.
    Wake(ConnectionId),
    /// Nothing needs to be done.
    Done,
    /// The addressee is not here. If the sender may know, tell it with [`Switch::handle_absent`].
    Absent(PublicKey),
    /// A node has no reason to send such a frame: the connection is to be cut.
    Misplaced,
}

/// Why a datagram was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody here has the key.
    Absent,
    /// It was older than [`QUEUE_AGE_MAX`].
    Stale,
    /// The receiver's queue was full, and it was the oldest of the largest sender.
    Overflow,
    /// All queues together were full.
    Memory,
    /// The receiver's connection ended.
    Cut,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Absent, Self::Stale, Self::Overflow, Self::Memory, Self::Cut];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Stale => "stale",
            Self::Overflow => "overflow",
            Self::Memory => "memory",
            Self::Cut => "cut",
        }
    }
}

/// Datagrams: `received` = `sent` + what waits + all drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams that were passed on.
    pub sent: u64,
    /// Bytes of frames that were passed on.
    pub sent_bytes: u64,
    /// Times that a sender was told that somebody is not here.
    pub gone: u64,
    drops: [u64; 5],
}

impl Counters {
    /// Datagrams that were dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: Reason) -> u64 {
        self.drops[reason as usize]
    }

    /// Datagrams that were dropped, for all reasons: what tests and fuzzing hold the balance by.
    #[must_use]
    pub fn dropped_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    fn drop(&mut self, reason: Reason, count: u64) {
        self.drops[reason as usize] += count;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flap {
    count: u32,
    since: Instant,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    member: Option<Member>,
}

/// The switch. Its owner serves the connections; nothing here blocks.
#[derive(Debug, Default)]
pub struct Switch {
    slots: Vec<Slot>,
    /// Free places.
    free: std::collections::BTreeSet<u32>,
    keys: BTreeMap<PublicKey, ConnectionId>,
    flaps: BTreeMap<PublicKey, Flap>,
    queued_bytes: usize,
    counters: Counters,
}

impl Switch {
    /// An empty switch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections that are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nobody is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Datagrams that wait.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.members().map(|(_, member)| member.queued()).sum()
    }

    /// Bytes of the frames that wait.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The keys that are here, with their connections.
    pub fn keys(&self) -> impl Iterator<Item = (&PublicKey, ConnectionId)> {
        self.keys.iter().map(|(key, id)| (key, *id))
    }

    /// Whose connection this is, as long as it is here.
    #[must_use]
    pub fn key(&self, id: ConnectionId) -> Option<PublicKey> {
        Some(self.member(id)?.key)
    }

    /// Takes a connection whose key was proven and belongs to a member of the network. The newest
    /// one of a key wins (threat RL-07).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn admit(&mut self, key: PublicKey, now: Instant) -> Result<Admitted, Refusal> {
        let old = self.keys.get(&key).copied();
        if self.is_flapping(key, old, now) {
            if let Some(old) = old {
                self.remove(old);
            }
            return Err(Refusal::Quarantined(old));
        }
        if let Some(old) = old {
            self.remove(old);
        }
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None if self.slots.len() < MEMBERS_MAX => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return Err(Refusal::Full),
        };
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        place.member = Some(Member::new(key, now));
        let id = ConnectionId { slot, generation: place.generation };
        self.keys.insert(key, id);
        Ok(Admitted { id, replaced: old })
    }

    /// Forgets a connection, and what waits for it.
    pub fn remove(&mut self, id: ConnectionId) {
        if self.member(id).is_none() {
            return;
        }
        let Some(member) = self.slots[id.slot()].member.take() else { return };
        self.counters.drop(Reason::Cut, member.queued());
        self.queued_bytes -= member.bytes();
        self.free.insert(id.slot);
        self.keys.remove(&member.key);
    }

    /// Takes a frame that came by the connection `from`. On the path of every datagram.
    #[inline]
    pub fn handle_frame(&mut self, from: ConnectionId, frame: &Frame<'_>, now: Instant) -> Handled {
        let Some(sender) = self.member_mut(from) else { return Handled::Done };
        sender.heard = now;
        match frame {
            Frame::Send { to, datagram } => self.pass(from, to, datagram, now),
            Frame::Ping(bytes) => {
                sender.answer(bytes).map_or(Handled::Done, |()| Handled::Wake(from))
            }
            Frame::Pong(_) | Frame::KeepAlive | Frame::Unknown(_) => Handled::Done,
            Frame::Received { .. }
            | Frame::Gone(_)
            | Frame::Notice(_)
            | Frame::Open(_)
            | Frame::Answer(_)
            | Frame::Confirm(_) => Handled::Misplaced,
        }
    }

    fn pass(
        &mut self,
        from: ConnectionId,
        to: &[u8; 32],
        datagram: &[u8],
        now: Instant,
    ) -> Handled {
        self.counters.received += 1;
        let to_key = PublicKey(*to);
        let Some(sender) = self.member(from) else { return Handled::Done };
        let from_key = sender.key;
        // Datagrams come in runs to one addressee.
        let known = sender.last_to.filter(|(key, _)| *key == to_key).map(|(_, id)| id);
        let known = known.filter(|id| self.member(*id).is_some());
        let Some(to) = known.or_else(|| self.keys.get(&to_key).copied()) else {
            self.counters.drop(Reason::Absent, 1);
            return Handled::Absent(to_key);
        };
        if let Some(sender) = self.member_mut(from) {
            sender.last_to = Some((to_key, to));
        }
        let len = DATAGRAM_HEADER_LEN + datagram.len();
        if self.queued_bytes + len > ALL_LEN_MAX {
            self.counters.drop(Reason::Memory, 1);
            return Handled::Done;
        }
        let Some(header) = wire::relay::datagram_header(false, &from_key.0, datagram.len()) else {
            return Handled::Misplaced;
        };
        let Some(member) = self.slots[to.slot()].member.as_mut() else { return Handled::Done };
        let was_idle = member.is_idle();
        let before = member.bytes();
        let overflowed = member.push(from.slot(), &header, datagram, now);
        self.queued_bytes = self.queued_bytes + member.bytes() - before;
        self.counters.drop(Reason::Overflow, overflowed);
        if was_idle { Handled::Wake(to) } else { Handled::Done }
    }

    /// Tells a connection that the one with this key is not here, unless it was told enough in
    /// this second (threat RL-03). Returns whether it is to be woken.
    pub fn handle_absent(&mut self, from: ConnectionId, key: &PublicKey, now: Instant) -> bool {
        let Some(sender) = self.member_mut(from) else { return false };
        let was_idle = sender.is_idle();
        if !sender.say_gone(key, now) {
            return false;
        }
        self.counters.gone += 1;
        was_idle
    }

    /// Moves frames for a connection to the end of `out`, until there are `len` bytes or more.
    /// Returns whether more wait. On the path of every datagram.
    pub fn poll_frames(
        &mut self,
        id: ConnectionId,
        out: &mut Vec<u8>,
        len: usize,
        now: Instant,
    ) -> bool {
        if self.member(id).is_none() {
            return false;
        }
        let Some(member) = self.slots[id.slot()].member.as_mut() else { return false };
        let before = member.bytes();
        let polled = member.poll_frames(out, len, now);
        self.queued_bytes -= before - member.bytes();
        self.counters.sent += polled.sent;
        self.counters.sent_bytes += polled.bytes;
        self.counters.drop(Reason::Stale, polled.stale);
        !member.is_idle()
    }

    /// The connections that were silent for too long. They are forgotten, and are to be cut.
    /// Call this every few seconds: it looks at every connection.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<ConnectionId> {
        let is_over = |member: &Member| member.heard.is_older_than(SILENCE_MAX, now);
        let silent = self.members().filter(|(_, member)| is_over(member));
        let silent: Vec<ConnectionId> = silent.map(|(id, _)| id).collect();
        for id in &silent {
            self.remove(*id);
        }
        self.flaps.retain(|_, flap| {
            let is_over = flap.since.is_older_than(FLAP_TIME, now);
            flap.until.map_or(!is_over, |until| now < until)
        });
        for slot in &mut self.slots {
            if let Some(member) = &mut slot.member {
                member.release();
            }
        }
        silent
    }

    /// Counts that a live connection is about to be replaced; whether that happens too often.
    fn is_flapping(&mut self, key: PublicKey, old: Option<ConnectionId>, now: Instant) -> bool {
        let known = self.flaps.get(&key).copied();
        if known.and_then(|flap| flap.until).is_some_and(|until| now < until) {
            return true;
        }
        let is_live = old
            .and_then(|old| self.member(old))
            .is_some_and(|member| !member.heard.is_older_than(LIVE, now));
        if !is_live {
            return false;
        }
        let fresh = Flap { count: 0, since: now, until: None };
        let mut flap = known
            .filter(|flap| flap.until.is_none() && !flap.since.is_older_than(FLAP_TIME, now))
            .unwrap_or(fresh);
        flap.count += 1;
        if flap.count > FLAPS_MAX {
            flap.until = Some(now.after(QUARANTINE));
        }
        self.flaps.insert(key, flap);
        flap.until.is_some()
    }

    fn members(&self) -> impl Iterator<Item = (ConnectionId, &Member)> {
        self.slots.iter().zip(0..).filter_map(|(place, slot)| {
            let id = ConnectionId { slot, generation: place.generation };
            Some((id, place.member.as_ref()?))
        })
    }

    #[inline]
    fn member(&self, id: ConnectionId) -> Option<&Member> {
        let slot = self.slots.get(id.slot())?;
        slot.member.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    fn member_mut(&mut self, id: ConnectionId) -> Option<&mut Member> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.member.as_mut().filter(|_| slot.generation == id.generation)
    }
}

/// What a ping carries.
type PingBytes = [u8; PING_LEN];

#[cfg(test)]
mod tests;
