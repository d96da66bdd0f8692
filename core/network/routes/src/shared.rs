//! An address that the two gateways of a pair share on their LAN: the machines' route leads to it,
//! one of the two answers for it, and when that one falls silent the other does.
//!
//! The address is on no interface. Whoever holds it answers who asks for it by ARP, so it ends with
//! the program that holds it: what is killed or frozen answers nobody. The life of one failover:
//!
//! 1. The holder announces every [`ANNOUNCE_EVERY`] that the address is its own. So machines and
//!    switches know where it is, and the other gateway knows that the holder lives.
//! 2. Nothing was heard for [`SILENCE`]. The other one asks who has the address, as RFC 5227 wants,
//!    so that it takes none that a machine has.
//! 3. Nobody answers within [`ANSWER_WITHIN`]: it holds the address and announces it. Machines
//!    that knew the old place know the new one by that.
//! 4. The first one comes back, hears that the address is held, and stands by. Nobody goes back.
//!
//! A holder that is of no use to others says that it leaves the address, and the other one asks for
//! it at once.
//!
//! Two that hold it at once hear of each other; the higher of both addresses of Ethernet yields.
//!
//! At AWS and Azure no gateway answers for an address of others. There the same messages go from
//! one gateway to the other alone, and who holds the address sets the provider's routes
//! ([`crate::led`]). OpenStack is as a LAN, but for what has no sender: its ports drop that, so a
//! holder that leaves is heard by its silence.

use core::net::Ipv4Addr;
use core::time::Duration;

use noise::Instant;
use wire::arp::{Arp, EVERYBODY};

pub use wire::arp::{LEN, Mac};

/// How often the holder announces the address.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(500);
/// After so long without an announcement the holder is taken for dead.
pub const SILENCE: Duration = Duration::from_millis(1500);
/// So long whoever has the address may take to answer.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// The message.
    pub message: [u8; LEN],
    /// To whom.
    pub to: Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Another one holds the address, or nobody yet; it was heard of then.
    Standby { heard: Instant },
    /// Who has the address was asked then.
    Asking { since: Instant },
    /// This one holds it, and has announced it then.
    Holder { announced: Option<Instant> },
}

/// One gateway's part in it.
#[derive(Clone, Debug)]
pub struct Shared {
    address: Ipv4Addr,
    own: Mac,
    is_fit: bool,
    state: State,
    stranger: Option<Mac>,
    /// Whether it is yet to be said that the address is left.
    leaves: bool,
}

impl Shared {
    /// Stands by for `address`, as the one with the address `own` of Ethernet.
    #[must_use]
    pub const fn new(address: Ipv4Addr, own: Mac, now: Instant) -> Self {
        let state = State::Standby { heard: now };
        Self { address, own, is_fit: false, state, stranger: None, leaves: false }
    }

    /// Whether this gateway could pass packets on; one that could not holds nothing.
    pub fn set_fit(&mut self, is_fit: bool, now: Instant) {
        if !is_fit && !matches!(self.state, State::Standby { .. }) {
            self.state = State::Standby { heard: now };
        }
        self.is_fit = is_fit;
    }

    /// Whether it holds the address.
    #[must_use]
    pub const fn holds(&self) -> bool {
        matches!(self.state, State::Holder { .. })
    }

    /// Leaves the address to the other gateway: until that one is heard, and for `wait` if it is
    /// not, this one does not want it.
    pub fn give_way(&mut self, wait: Duration, now: Instant) {
        self.leaves = self.holds();
        self.state = State::Standby { heard: now + wait };
    }

    /// Who has the address and is no gateway of this pair: nobody takes it from a machine.
    #[must_use]
    pub const fn stranger(&self) -> Option<Mac> {
        self.stranger
    }

    /// Takes what was heard on the LAN; gives what is to be answered.
    pub fn handle(&mut self, message: &[u8], now: Instant) -> Option<Out> {
        let arp = Arp::parse(message)?;
        if arp.sender_mac == self.own {
            return None;
        }
        if arp.is_reply && arp.sender.is_unspecified() && arp.target == self.address {
            if let State::Standby { .. } = self.state {
                self.state = State::Standby { heard: now - SILENCE };
            }
            return None;
        }
        let asks_for_it = !arp.is_reply && arp.target == self.address;
        match (asks_for_it, arp.sender == self.address) {
            (true, true) => self.hear(arp.sender_mac, now),
            (true, false) if self.holds() => return Some(self.answer(&arp)),
            (true, false) | (false, false) => {}
            (false, true) => self.meet(arp.sender_mac, now),
        }
        None
    }

    /// The next message to be sent; call until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Out> {
        if core::mem::take(&mut self.leaves) {
            return Some(self.leave());
        }
        match self.state {
            State::Standby { heard } if self.is_fit && heard.is_older_than(SILENCE, now) => {
                self.state = State::Asking { since: now };
                Some(self.ask(Ipv4Addr::UNSPECIFIED))
            }
            State::Asking { since } if since.is_older_than(ANSWER_WITHIN, now) => {
                self.stranger = None;
                self.state = State::Holder { announced: Some(now) };
                Some(self.ask(self.address))
            }
            State::Holder { announced }
                if announced.is_none_or(|at| at.is_older_than(ANNOUNCE_EVERY, now)) =>
            {
                self.state = State::Holder { announced: Some(now) };
                Some(self.ask(self.address))
            }
            _ => None,
        }
    }

    /// Another gateway announces the address.
    fn hear(&mut self, from: Mac, now: Instant) {
        if self.stranger == Some(from) {
            self.stranger = None;
        }
        self.state = match self.state {
            State::Holder { .. } if self.own < from => State::Holder { announced: None },
            _ => State::Standby { heard: now },
        };
    }

    /// Somebody has the address without announcing it.
    fn meet(&mut self, from: Mac, now: Instant) {
        if let State::Asking { .. } = self.state {
            self.state = State::Standby { heard: now };
            self.stranger = Some(from);
        }
    }

    /// A question for the address, which is an announcement if the address itself asks.
    fn ask(&self, sender: Ipv4Addr) -> Out {
        let arp = Arp {
            is_reply: false,
            sender_mac: self.own,
            sender,
            target_mac: Mac::default(),
            target: self.address,
        };
        Out { message: arp.write(), to: EVERYBODY }
    }

    /// That the address is left: an answer by which nobody has it, of which machines take no note.
    fn leave(&self) -> Out {
        let arp = Arp {
            is_reply: true,
            sender_mac: self.own,
            sender: Ipv4Addr::UNSPECIFIED,
            target_mac: EVERYBODY,
            target: self.address,
        };
        Out { message: arp.write(), to: EVERYBODY }
    }

    fn answer(&self, asked: &Arp) -> Out {
        let arp = Arp {
            is_reply: true,
            sender_mac: self.own,
            sender: self.address,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        Out { message: arp.write(), to: asked.sender_mac }
    }
}

#[cfg(test)]
mod tests;
