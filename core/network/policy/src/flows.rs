//! The table of flows: what may be answered, how long, and who gives way when there is no room.
//!
//! A chained hash table over one slab of entries. Every entry is charged to an account: one peer's
//! flows in one direction. Within an account the entry that was used longest ago gives way; where
//! the whole table is full, so does one of the accounts that hold most. So nobody can displace the
//! flows of others by opening many (PF-10). Accounts are kept in classes by the logarithm of
//! their size, which finds one of the largest without a search.

use crate::hash;
use crate::judged::Direction;

/// Entries of a table, at most: 72 bytes each.
pub const FLOWS_MAX: usize = 1 << 16;
/// Entries of one peer and direction, at most.
pub const FLOWS_PER_PEER_MAX: usize = 1 << 14;
/// Peers, at most, as a node has them.
pub const PEERS_MAX: u32 = 1 << 20;
/// A TCP flow of which only the opening was seen (RFC 5382 asks for no more), milliseconds.
pub const TCP_OPENING_MS: u64 = 30_000;
/// A TCP flow that is open: 2 hours and 4 minutes (RFC 5382 REQ-5).
pub const TCP_OPEN_MS: u64 = 7_440_000;
/// A TCP flow that both ends closed, or one reset.
pub const TCP_CLOSING_MS: u64 = 60_000;
/// UDP that was not answered (RFC 4787 REQ-5 asks for two minutes).
pub const UDP_ONE_WAY_MS: u64 = 120_000;
/// UDP that was answered (the same recommends five minutes).
pub const UDP_MS: u64 = 300_000;
/// An ICMP echo (RFC 5508 REQ-2).
pub const ICMP_MS: u64 = 60_000;
/// Any other protocol.
pub const OTHER_MS: u64 = 600_000;
/// The fragments of one datagram, from the first (RFC 791 gives reassembly 15 s).
pub const FRAGMENT_MS: u64 = 15_000;
/// Later fragments of one datagram, at most.
pub const FRAGMENTS_MAX: u16 = 128;

/// Use is noted to this precision, so that most packets of a flow change nothing in the table.
const USE_MS: u64 = 1_000;
const NONE: u32 = u32::MAX;
/// Classes of accounts by size: 0 holds those of one entry, 14 those of 16,384.
const CLASSES: usize = FLOWS_PER_PEER_MAX.ilog2() as usize + 1;

/// What tells flows apart, seen from this node: `local` is its side, whoever began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) local: [u64; 2],
    pub(crate) remote: [u64; 2],
    /// Local port above remote port; an echo's identifier; a datagram's identification.
    pub(crate) ports: u32,
    pub(crate) protocol: u8,
    /// Family and kind, see [`Kind`].
    pub(crate) kind: u8,
}

/// What an entry stands for, besides the family in bit 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Flow = 0,
    EchoFromRemote = 1,
    EchoFromLocal = 2,
    FragmentsIn = 3,
    FragmentsOut = 4,
}

impl Key {
    #[inline]
    fn hash(&self, secret: [u64; 2]) -> u64 {
        let rest = u64::from(self.ports) << 16 | u64::from(self.protocol) << 8;
        let words = [self.local[0], self.local[1], self.remote[0], self.remote[1]];
        let [a, b, c, d] = words;
        hash::hash(secret, &[a, b, c, d, rest | u64::from(self.kind)])
    }

    pub(crate) fn is_fragments(&self) -> bool {
        self.kind & 7 >= Kind::FragmentsIn as u8
    }
}

/// How far a flow has come, which decides how long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    TcpOpening,
    TcpOpen,
    /// One end has closed: the local one, or the remote one.
    TcpHalfLocal,
    TcpHalfRemote,
    TcpClosing,
    UdpOneWay,
    Udp,
    Icmp,
    Other,
    Fragments,
}

impl Phase {
    const fn timeout_ms(self) -> u64 {
        match self {
            Self::TcpOpening => TCP_OPENING_MS,
            Self::TcpOpen | Self::TcpHalfLocal | Self::TcpHalfRemote => TCP_OPEN_MS,
            Self::TcpClosing => TCP_CLOSING_MS,
            Self::UdpOneWay => UDP_ONE_WAY_MS,
            Self::Udp => UDP_MS,
            Self::Icmp => ICMP_MS,
            Self::Other => OTHER_MS,
            Self::Fragments => FRAGMENT_MS,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) key: Key,
    used_ms: u64,
    pub(crate) peer: u32,
    /// The next entry with the same hash, or the next free one.
    next: u32,
    newer: u32,
    older: u32,
    /// Later fragments that passed.
    pub(crate) pieces: u16,
    pub(crate) phase: Phase,
    pub(crate) began: Direction,
    /// A rule lets it be compressed.
    pub(crate) compress: bool,
}

/// One peer's entries of one direction, from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
struct Account {
    newest: u32,
    oldest: u32,
    count: u32,
    /// Neighbours in the list of its class.
    before: u32,
    after: u32,
}

const EMPTY: Account = Account { newest: NONE, oldest: NONE, count: 0, before: NONE, after: NONE };

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    secret: [u64; 2],
    flows: Vec<Flow>,
    free: u32,
    len: usize,
    max: usize,
    heads: Vec<u32>,
    accounts: Vec<Account>,
    classes: [u32; CLASSES],
    evicted: u64,
}

fn account_of(peer: u32, began: Direction) -> u32 {
    peer * 2 + u32::from(began == Direction::Out)
}

fn class_of(count: u32) -> usize {
    (count.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Flows {
    /// A table for at most `max` entries, hashed under `secret`.
    pub(crate) fn new(secret: [u64; 2], max: usize) -> Self {
        Self {
            secret,
            flows: Vec::new(),
            free: NONE,
            len: 0,
            max,
            heads: vec![NONE; 64],
            accounts: Vec::new(),
            classes: [NONE; CLASSES],
            evicted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Entries that gave way to others while they were alive.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The living entry of a key. One that timed out is removed.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key, now_ms: u64) -> Option<u32> {
        let mut at = self.heads[self.bucket(key)];
        while let Some(flow) = self.flows.get(at as usize) {
            if flow.key == *key {
                if now_ms.saturating_sub(flow.used_ms) < flow.phase.timeout_ms() {
                    return Some(at);
                }
                self.remove(at);
                return None;
            }
            at = flow.next;
        }
        None
    }

    #[inline]
    pub(crate) fn flow(&mut self, at: u32) -> &mut Flow {
        &mut self.flows[at as usize]
    }

    /// Notes that an entry was used and how far its flow has come.
    #[inline]
    pub(crate) fn note(&mut self, at: u32, phase: Phase, now_ms: u64) {
        let flow = &mut self.flows[at as usize];
        let is_new = flow.phase != phase;
        flow.phase = phase;
        if !is_new && now_ms.saturating_sub(flow.used_ms) < USE_MS {
            return;
        }
        flow.used_ms = now_ms;
        let account = account_of(flow.peer, flow.began);
        if phase == Phase::TcpClosing {
            // What is over gives way first.
            self.unlink(at, account);
            self.link_oldest(at, account);
        } else if self.accounts[account as usize].newest != at {
            self.unlink(at, account);
            self.link_newest(at, account);
        }
    }

    /// Adds an entry whose key is not there. Where its account is full, the one of the account
    /// that was used longest ago gives way; where the table is, one of the largest accounts does.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        peer: u32,
        began: Direction,
        phase: Phase,
        compress: bool,
        now_ms: u64,
    ) {
        let account = account_of(peer, began);
        if self.accounts.len() <= account as usize {
            self.accounts.resize(account as usize + 1, EMPTY);
        }
        let own = self.accounts[account as usize];
        if own.count as usize >= FLOWS_PER_PEER_MAX.min(self.max) {
            self.evict(own.oldest);
        } else if self.len >= self.max {
            let largest = self.largest();
            let is_larger = class_of(self.accounts[largest as usize].count) > class_of(own.count);
            let from = if own.count > 0 && !is_larger { account } else { largest };
            self.evict(self.accounts[from as usize].oldest);
        }
        if self.len >= self.heads.len() {
            self.grow();
        }
        let bucket = self.bucket(&key);
        let next = self.heads[bucket];
        let newer = NONE;
        let older = NONE;
        let used_ms = now_ms;
        let pieces = 0;
        let flow = Flow { key, used_ms, peer, next, newer, older, pieces, phase, began, compress };
        let at = self.place(flow);
        self.heads[bucket] = at;
        self.len += 1;
        self.resize_account(account, 1);
        self.link_newest(at, account);
    }

    pub(crate) fn remove(&mut self, at: u32) {
        let flow = self.flows[at as usize];
        let bucket = self.bucket(&flow.key);
        if self.heads[bucket] == at {
            self.heads[bucket] = flow.next;
        } else {
            let mut before = self.heads[bucket];
            while self.flows[before as usize].next != at {
                before = self.flows[before as usize].next;
            }
            self.flows[before as usize].next = flow.next;
        }
        let account = account_of(flow.peer, flow.began);
        self.unlink(at, account);
        self.resize_account(account, -1);
        self.flows[at as usize].next = self.free;
        self.free = at;
        self.len -= 1;
    }

    /// Removes every entry that `keeps` does not want; how many went.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&mut Flow) -> bool) -> usize {
        let before = self.len;
        for bucket in 0..self.heads.len() {
            let mut at = self.heads[bucket];
            while let Some(flow) = self.flows.get_mut(at as usize) {
                let next = flow.next;
                if !keeps(flow) {
                    self.remove(at);
                }
                at = next;
            }
        }
        before - self.len
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        // The table's length is a power of two.
        key.hash(self.secret) as usize & (self.heads.len() - 1)
    }

    fn evict(&mut self, at: u32) {
        self.remove(at);
        self.evicted += 1;
    }

    fn largest(&self) -> u32 {
        let mut classes = self.classes.iter().rev();
        *classes.find(|first| **first != NONE).expect("a full table has an account")
    }

    fn place(&mut self, flow: Flow) -> u32 {
        let at = self.free;
        if at == NONE {
            self.flows.push(flow);
            return (self.flows.len() - 1) as u32;
        }
        self.free = self.flows[at as usize].next;
        self.flows[at as usize] = flow;
        at
    }

    /// Twice as many chains. Happens a dozen times in the life of a table.
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.heads);
        self.heads = vec![NONE; old.len() * 2];
        for mut at in old {
            while at != NONE {
                let Flow { key, next, .. } = self.flows[at as usize];
                let bucket = self.bucket(&key);
                self.flows[at as usize].next = self.heads[bucket];
                self.heads[bucket] = at;
                at = next;
            }
        }
    }

    fn link_newest(&mut self, at: u32, account: u32) {
        let account = &mut self.accounts[account as usize];
        let older = account.newest;
        account.newest = at;
        if older == NONE {
            account.oldest = at;
        } else {
            self.flows[older as usize].newer = at;
        }
        let flow = &mut self.flows[at as usize];
        flow.newer = NONE;
        flow.older = older;
    }

    fn link_oldest(&mut self, at: u32, account: u32) {
        let account = &mut self.accounts[account as usize];
        let newer = account.oldest;
        account.oldest = at;
        if newer == NONE {
            account.newest = at;
        } else {
            self.flows[newer as usize].older = at;
        }
        let flow = &mut self.flows[at as usize];
        flow.newer = newer;
        flow.older = NONE;
    }

    fn unlink(&mut self, at: u32, account: u32) {
        let Flow { newer, older, .. } = self.flows[at as usize];
        let account = &mut self.accounts[account as usize];
        match newer {
            NONE => account.newest = older,
            newer => self.flows[newer as usize].older = older,
        }
        match older {
            NONE => account.oldest = newer,
            older => self.flows[older as usize].newer = newer,
        }
    }

    /// Adds one to an account's size or takes one away, and keeps it in the class of its size.
    fn resize_account(&mut self, at: u32, by: i32) {
        let Account { count, before, after, .. } = self.accounts[at as usize];
        let new = count.saturating_add_signed(by);
        self.accounts[at as usize].count = new;
        if count > 0 && new > 0 && class_of(count) == class_of(new) {
            return;
        }
        if count > 0 {
            match before {
                NONE => self.classes[class_of(count)] = after,
                before => self.accounts[before as usize].after = after,
            }
            if after != NONE {
                self.accounts[after as usize].before = before;
            }
        }
        if new > 0 {
            let first = std::mem::replace(&mut self.classes[class_of(new)], at);
            if first != NONE {
                self.accounts[first as usize].before = at;
            }
            let account = &mut self.accounts[at as usize];
            account.before = NONE;
            account.after = first;
        }
    }
}

#[cfg(test)]
mod tests;
