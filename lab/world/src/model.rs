//! The reference: who is in the books, as a list, and what every change makes of it. It knows
//! nothing of maps, sequences, sessions or paths.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use control::{SecretId, Token};
use noise::PublicKey;
use server::store::Node;

use super::member::Member;
use super::words::{self, Said, Text};

/// How long an address is nobody's after its node is gone, in seconds.
const QUARANTINE_S: u64 = 7 * 86_400;
/// Earlier states that are remembered; what is under way is never so old.
const HISTORY_MAX: usize = 4096;

/// The books at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    pub(super) members: Vec<Member>,
    pub(super) text: Text,
}

impl Books {
    pub(super) fn of(&self, machine: usize) -> Option<&Member> {
        self.members.iter().find(|member| member.machine == machine)
    }

    fn at(&self, address: IpAddr) -> Option<&Member> {
        let known = self.members.iter().find(|member| member.addresses.contains(&address));
        known.filter(|member| member.is_good())
    }

    /// Whether a first datagram from one address to another may pass.
    pub(super) fn lets(&self, ends: (IpAddr, IpAddr), said: Said) -> bool {
        let (from, to) = ends;
        let Some((from, to)) = self.at(from).zip(self.at(to)) else { return false };
        words::may_begin(&self.text, from, to, said)
    }

    /// Whom this one is told of.
    pub(super) fn peers_of(&self, one: &Member) -> Vec<&Member> {
        let meets = |other: &&Member| {
            other.id != one.id && other.is_good() && words::may_meet(&self.text, one, other)
        };
        self.members.iter().filter(meets).filter(|_| one.is_good()).collect()
    }
}

/// A join key as the one who made it knows it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) id: u64,
    pub(super) token: Token,
    pub(super) reusable: bool,
    pub(super) ephemeral: bool,
    pub(super) tags: Vec<String>,
    pub(super) user: Option<&'static str>,
    pub(super) until_s: Option<u64>,
    pub(super) is_used: bool,
    pub(super) is_revoked: bool,
}

impl Key {
    fn opens(&self, now_s: u64) -> bool {
        let is_over = self.until_s.is_some_and(|until| now_s >= until);
        !is_over && !self.is_revoked && (self.reusable || !self.is_used)
    }
}

/// The reference.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) books: Rc<Books>,
    /// The epoch, and the sequence from which on each state held.
    history: VecDeque<(u64, u64, Rc<Books>)>,
    pub(super) keys: Vec<Key>,
    /// Addresses and names that wait.
    released: Vec<Released>,
    numbers: BTreeMap<u64, u32>,
    pub(super) needs_approval: bool,
}

/// What a node had that is gone, and until when it waits.
#[derive(Debug)]
struct Released {
    number: u32,
    name: String,
    until_s: u64,
    machine_key: PublicKey,
    by: u64,
}

/// One that asks to join, as its own machine knows it.
pub(super) struct Asking<'a> {
    pub(super) machine: usize,
    pub(super) hostname: &'a str,
    pub(super) machine_key: PublicKey,
    pub(super) node_key: PublicKey,
    pub(super) token: Option<&'a Token>,
}

impl Model {
    pub(super) fn new(needs_approval: bool) -> Self {
        Self {
            books: Rc::default(),
            history: VecDeque::new(),
            keys: Vec::new(),
            released: Vec::new(),
            numbers: BTreeMap::new(),
            needs_approval,
        }
    }

    /// The books are other ones from this version of the server's on.
    pub(super) fn note(&mut self, version: (u64, u64)) {
        let (epoch, sequence) = version;
        self.history.push_back((epoch, sequence, Rc::clone(&self.books)));
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    /// What held at this version.
    pub(super) fn at(&self, epoch: u64, sequence: u64) -> Option<Rc<Books>> {
        let is_then = |known: &&(u64, u64, Rc<Books>)| known.0 == epoch && known.1 <= sequence;
        self.history.iter().rev().find(is_then).map(|(_, _, books)| Rc::clone(books))
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Books)) {
        change(Rc::make_mut(&mut self.books));
    }

    pub(super) fn alter(&mut self, machine: usize, alter: impl FnOnce(&mut Member)) {
        self.change(|books| {
            if let Some(member) = books.members.iter_mut().find(|m| m.machine == machine) {
                alter(member);
            }
        });
    }

    fn key_of(&mut self, id: SecretId) -> Option<&mut Key> {
        self.keys.iter_mut().find(|key| key.token.id == id)
    }

    /// Whether this machine would be let in now.
    pub(super) fn would_let_in(&self, asking: &Asking<'_>, now_s: u64) -> bool {
        let Some(token) = asking.token else { return false };
        let known = self.keys.iter().find(|key| key.token.id == token.id);
        known.is_some_and(|key| key.opens(now_s))
    }

    /// Uses the key up with which this machine comes.
    fn use_key(&mut self, asking: &Asking<'_>, now_s: u64) -> Result<Key, String> {
        if !self.would_let_in(asking, now_s) {
            return Err("it was let in without a good join key".to_owned());
        }
        let key = asking.token.and_then(|token| self.key_of(token.id));
        let key = key.ok_or("it was let in without a join key")?;
        key.is_used = true;
        Ok(key.clone())
    }

    /// The name that a machine gets: its own, or that with the first number that is free.
    fn name_for(&self, asking: &Asking<'_>, by: u64) -> String {
        let hostname = asking.hostname;
        let waits = |gone: &Released| gone.machine_key != asking.machine_key && gone.by != by;
        let is_taken = |name: &String| {
            self.books.members.iter().any(|m| m.name == *name)
                || self.released.iter().any(|gone| gone.name == *name && waits(gone))
        };
        let numbered = (1..).map(|number| format!("{hostname}-{number}"));
        let mut names = std::iter::once(hostname.to_owned()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// The server let a machine in: as who it should be.
    ///
    /// # Errors
    /// What it is that should not be.
    pub(super) fn joined(
        &mut self,
        asking: &Asking<'_>,
        node: &Node,
        addresses: [IpAddr; 2],
        now_s: u64,
    ) -> Result<(), String> {
        let key = self.use_key(asking, now_s)?;
        self.released.retain(|gone| now_s < gone.until_s);
        let is_others =
            |gone: &Released| gone.number == node.number && gone.machine_key != asking.machine_key;
        if self.released.iter().any(is_others) {
            return Err(format!("{} has an address that was another's", node.name));
        }
        let name = self.name_for(asking, key.id);
        self.released.retain(|gone| gone.number != node.number);
        let member = Member {
            id: node.id,
            machine: asking.machine,
            machine_key: asking.machine_key,
            by: key.id,
            name,
            addresses,
            key: asking.node_key,
            user: key.user,
            tags: key.tags,
            ephemeral: key.ephemeral,
            approved: !self.needs_approval,
            expired: false,
        };
        if node.machine_key != asking.machine_key {
            return Err("another machine joined than that which asked".to_owned());
        }
        if self.books.members.iter().any(|m| m.id == node.id || m.machine == asking.machine) {
            return Err(format!("{} joined twice", node.name));
        }
        if self.books.members.iter().any(|m| m.addresses.iter().any(|a| addresses.contains(a))) {
            return Err(format!("{} has another's address", node.name));
        }
        self.numbers.insert(node.id, node.number);
        self.change(|books| {
            books.members.push(member);
            books.members.sort_unstable_by_key(|member| member.id);
        });
        Ok(())
    }

    /// A node whose time was over is in again, as what the key that it used now makes it.
    ///
    /// # Errors
    /// It should not be.
    pub(super) fn rejoined(&mut self, asking: &Asking<'_>, now_s: u64) -> Result<(), String> {
        let by = self.use_key(asking, now_s)?;
        let key = asking.node_key;
        let approved = !self.needs_approval;
        self.alter(asking.machine, |member| {
            member.expired = false;
            member.key = key;
            member.user = by.user;
            member.tags = by.tags;
            member.ephemeral = by.ephemeral;
            member.approved = approved;
            member.by = by.id;
        });
        Ok(())
    }

    /// A machine has forgotten who it was: what the books have of it is nobody's. Its number
    /// there.
    pub(super) fn forgotten(&mut self, machine: usize) -> Option<u64> {
        let id = self.books.of(machine)?.id;
        self.alter(machine, |member| member.machine = usize::MAX - id as usize);
        Some(id)
    }

    /// A node is gone.
    pub(super) fn gone(&mut self, id: u64, now_s: u64) {
        let member = self.books.members.iter().find(|member| member.id == id);
        if let Some((number, member)) = self.numbers.remove(&id).zip(member) {
            let name = member.name.clone();
            let machine_key = member.machine_key;
            let by = member.by;
            let until_s = now_s + QUARANTINE_S;
            self.released.push(Released { number, name, until_s, machine_key, by });
        }
        self.change(|books| books.members.retain(|member| member.id != id));
    }
}

/// In what a node of the server's books is not the member that it should be.
pub(super) fn difference(member: &Member, node: &Node) -> Option<String> {
    let user = node.user.as_deref() == member.user;
    for (what, is_equal) in [
        ("name", node.name == member.name),
        ("key", node.node_key == member.key),
        ("user", user),
        ("tags", node.tags == member.tags),
        ("ephemeral", node.ephemeral == member.ephemeral),
        ("approved", node.approved == member.approved),
        ("expired", node.expires.is_some() == member.expired),
    ] {
        if !is_equal {
            return Some(format!("{what} of {node:?}, not of {member:?}"));
        }
    }
    None
}
