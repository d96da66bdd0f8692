//! `warren set --socks`: a door for programs that know SOCKS, with a circuit for each user name.
//!
//! A circuit takes new streams of its user for ten minutes; then the next stream has another one,
//! and those that there are go on until they are silent (CI-13). An unused one is closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use host::socks::{Circuit, Circuits, Counts, Door, Place};
use node::circuit::{CircuitId, NAME_ADDRESS, State};
use serde_json::{Value, json};

use crate::circuits::Wanted;
use crate::member::{Daemon, Fault, Input};

/// Circuits of all users together.
const CIRCUITS_MAX: usize = 64;
/// A circuit takes new streams for so long.
const FRESH_FOR: Duration = Duration::from_secs(600);
/// One through which nothing goes for so long is closed.
const IDLE: Duration = Duration::from_secs(600);
/// And where there is no room for another, one that was unused for so long.
const IDLE_MIN: Duration = Duration::from_secs(30);
/// How often it is looked which are unused, and a door that cannot be opened is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);
/// How long a client waits for this loop.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A client of the door wants the circuit of a user.
#[derive(Debug)]
pub(crate) struct DoorAsk {
    user: Vec<u8>,
    answer: SyncSender<Circuit>,
}

struct Asking(SyncSender<Input>);

impl Circuits for Asking {
    fn of(&self, user: &[u8]) -> Circuit {
        let none = || Circuit::None("the daemon does not answer".to_owned());
        let (answer, answered) = sync_channel(1);
        let ask = DoorAsk { user: user.to_vec(), answer };
        if self.0.send(Input::Door(ask)).is_err() {
            return none();
        }
        answered.recv_timeout(ANSWER_WITHIN).unwrap_or_else(|_| none())
    }
}

/// One circuit of a user.
#[derive(Debug)]
struct Used {
    user: Vec<u8>,
    id: u16,
    since: Instant,
    /// Packets when it was looked at last, and when that changed.
    packets: (u64, u64),
    moved: Instant,
}

/// The door, and the circuits behind it.
#[derive(Debug, Default)]
pub(super) struct Doors {
    door: Option<(SocketAddr, Door)>,
    used: Vec<Used>,
    looked: Option<Instant>,
    failed: Option<Instant>,
    said: Option<String>,
}

impl Doors {
    pub(super) fn has(&self, id: u16) -> bool {
        self.used.iter().any(|used| used.id == id)
    }

    /// The circuit that takes new streams of a user.
    fn fresh(&self, user: &[u8], now: Instant) -> Option<u16> {
        let is_fresh = |used: &&Used| {
            used.user == user && now.saturating_duration_since(used.since) < FRESH_FOR
        };
        self.used.iter().find(is_fresh).map(|used| used.id)
    }

    /// Those that are not used: for long, or the one that is so longest, where room is wanted.
    fn idle(&self, is_full: bool, now: Instant) -> Vec<u16> {
        let idle = |used: &&Used| now.saturating_duration_since(used.moved);
        if is_full {
            let longest = self.used.iter().filter(|used| idle(used) >= IDLE_MIN).max_by_key(idle);
            return longest.map(|used| used.id).into_iter().collect();
        }
        self.used.iter().filter(|used| idle(used) >= IDLE).map(|used| used.id).collect()
    }
}

impl Daemon {
    /// Opens the door where one is wanted, and closes circuits that nobody uses.
    pub(super) fn keep_doors(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        let wanted = self.state.kept.settings.socks;
        if self.circuits.doors.door.as_ref().map(|(at, _)| *at) != wanted {
            match wanted {
                Some(at) if self.map.as_deref().is_some_and(|map| map.me.approved) => {
                    self.open_door(at, now);
                }
                Some(_) => {}
                None => self.end_doors(),
            }
        }
        let is_due = |at: Instant| now.saturating_duration_since(at) >= LOOK_EVERY;
        if self.circuits.doors.used.is_empty() || !self.circuits.doors.looked.is_none_or(is_due) {
            return Ok(());
        }
        self.circuits.doors.looked = Some(now);
        let list = self.remote.call(|desk| desk.node().0.circuits().list().collect::<Vec<_>>())?;
        for used in &mut self.circuits.doors.used {
            let found = list.iter().find(|(id, _)| id.0 == used.id);
            let packets = found.map_or((0, 0), |(_, status)| status.packets);
            if packets != used.packets {
                used.packets = packets;
                used.moved = now;
            }
        }
        for id in self.circuits.doors.idle(false, now) {
            self.end_used(id)?;
        }
        Ok(())
    }

    fn open_door(&mut self, at: SocketAddr, now: Instant) {
        let doors = &mut self.circuits.doors;
        let is_early = |failed: Instant| now.saturating_duration_since(failed) < AGAIN;
        if doors.failed.is_some_and(is_early) {
            return;
        }
        doors.door = None;
        let link = self.interface.name().to_owned();
        let circuits = Arc::new(Asking(self.inputs.clone()));
        let place = Place { at, link: link.clone(), names: NAME_ADDRESS, circuits };
        let opened = host::linux::room::lead(&link)
            .and_then(|()| Door::open(place).map_err(|error| format!("{at}: {error}")));
        let doors = &mut self.circuits.doors;
        match opened {
            Ok(door) => {
                tracing::info!("a SOCKS door at {at}");
                doors.door = Some((at, door));
                doors.failed = None;
                doors.said = None;
            }
            Err(why) => {
                let why = format!("there is no SOCKS door: {why}");
                if doors.said.as_ref() != Some(&why) {
                    tracing::error!("{why}");
                }
                doors.failed = Some(now);
                doors.said = Some(why);
            }
        }
    }

    /// Closes the door and all that is behind it.
    pub(super) fn end_doors(&mut self) {
        if self.circuits.doors.door.take().is_some() {
            host::linux::room::unlead();
        }
        let ids: Vec<u16> = self.circuits.doors.used.iter().map(|used| used.id).collect();
        for id in ids {
            // Where the data loop is gone, so are the circuits.
            let _ = self.end_used(id);
        }
        self.circuits.doors = Doors::default();
    }

    fn end_used(&mut self, id: u16) -> Result<(), Fault> {
        self.circuits.doors.used.retain(|used| used.id != id);
        self.interface.leave_circuit(local(id));
        self.end_kept(id)
    }

    /// Answers a client of the door.
    pub(crate) fn answer_door(&mut self, ask: DoorAsk) -> Result<(), Fault> {
        let circuit = self.circuit_of(ask.user)?;
        // Who asked and went away does not mind.
        let _ = ask.answer.send(circuit);
        Ok(())
    }

    fn circuit_of(&mut self, user: Vec<u8>) -> Result<Circuit, Fault> {
        let now = Instant::now();
        if self.circuits.doors.door.is_none() {
            return Ok(Circuit::None("the door is closed".to_owned()));
        }
        let id = match self.circuits.doors.fresh(&user, now) {
            Some(id) => id,
            None => match self.open_used(user, now)? {
                Ok(id) => id,
                Err(why) => return Ok(Circuit::None(why)),
            },
        };
        let of = CircuitId(id);
        let status = self.remote.call(move |desk| desk.node().0.circuits().status(of))?;
        Ok(match status {
            Some(status) if status.state == State::Open => {
                Circuit::Open { address: status.local, leads_six: status.leads_six }
            }
            _ => Circuit::Building,
        })
    }

    fn open_used(&mut self, user: Vec<u8>, now: Instant) -> Result<Result<u16, String>, Fault> {
        if self.circuits.doors.used.len() >= CIRCUITS_MAX {
            for id in self.circuits.doors.idle(true, now) {
                self.end_used(id)?;
            }
            if self.circuits.doors.used.len() >= CIRCUITS_MAX {
                return Ok(Err(format!("{CIRCUITS_MAX} user names have circuits in use")));
            }
        }
        let wanted = Wanted { again: true, ..Wanted::default() };
        let id = match self.open_wanted(&wanted)? {
            Ok(id) => id.0,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(error) = self.interface.speak_as_circuit(local(id)) {
            self.end_kept(id)?;
            return Ok(Err(error.to_string()));
        }
        let used = Used { user, id, since: now, packets: (0, 0), moved: now };
        self.circuits.doors.used.push(used);
        Ok(Ok(id))
    }

    /// Why there is no door, if one is wanted.
    pub(super) fn door_trouble(&self) -> Option<&String> {
        self.circuits.doors.said.as_ref()
    }

    /// The door as it is shown.
    pub(super) fn shown_door(&self) -> Value {
        let doors = &self.circuits.doors;
        let counts = doors.door.as_ref().map(|(_, door)| door.counts()).unwrap_or_default();
        let Counts { clients, all, too_many, refused, without } = counts;
        json!({
            "at": doors.door.as_ref().map(|(at, _)| at.to_string()),
            "trouble": doors.said,
            "circuits": doors.used.len(),
            "clients": { "now": clients, "all": all, "too_many": too_many, "refused": refused,
                         "without_circuit": without },
        })
    }
}

/// The address that a circuit is used by.
fn local(id: u16) -> Ipv4Addr {
    node::circuit::local_address(CircuitId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(user: &[u8], id: u16, since: Instant, moved: Instant) -> Used {
        Used { user: user.to_vec(), id, since, packets: (0, 0), moved }
    }

    #[test]
    fn ci_13_a_user_has_a_circuit_of_its_own_and_another_after_ten_minutes() {
        let now = Instant::now();
        let mut doors = Doors::default();
        doors.used.push(used(b"a", 1, now, now));
        assert_eq!(doors.fresh(b"a", now), Some(1));
        assert_eq!(doors.fresh(b"b", now), None, "nobody else has it");
        assert_eq!(doors.fresh(b"a", now + FRESH_FOR), None, "it takes no more streams");
        doors.used.push(used(b"a", 2, now + FRESH_FOR, now + FRESH_FOR));
        assert_eq!(doors.fresh(b"a", now + FRESH_FOR), Some(2));
        assert_eq!(doors.idle(false, now + IDLE - Duration::from_secs(1)), [0; 0]);
        assert_eq!(doors.idle(false, now + IDLE), [1], "once nothing goes through it");
        assert_eq!(doors.idle(true, now + IDLE_MIN), [1]);
        assert_eq!(doors.idle(true, now), [0; 0], "one in use is not taken away");
    }
}
