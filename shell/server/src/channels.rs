//! The open channels, by their names. Those of machines that are not in the books have a small
//! place of their own, so that strangers cannot push members out (threat CO-11). In both places the
//! crate `admit` says who gives way: of strangers the source that has most, of members the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use admit::{Crowd, Number, Source};
use control::channel::{self, BadChannel, Channel};
use control::{Hello, VERSION, VerifyingKey};
use noise::{PrivateKey, PublicKey, Random};

use crate::clock::Moment;
use crate::keys::SystemRandom;

/// Channels of machines that are in the books.
const MEMBERS_MAX: usize = 32_768;
/// Channels of machines that are not.
const STRANGERS_MAX: usize = 1024;
/// A channel that says nothing for so long is closed, in seconds; a poll waits 45.
const IDLE_S: u64 = 180;
/// How far a number may be behind the highest; the bits of a word.
const LATE_MAX: u64 = 63;

/// The name of a channel.
type Name = [u8; 16];

/// A channel whose first message was answered, on its way to its place.
pub(crate) struct Opened {
    pub(crate) machine: PublicKey,
    channel: Channel,
    name: Name,
    answer: Vec<u8>,
    now_up_s: u64,
}

/// A channel that is there.
pub(crate) struct Found {
    pub(crate) channel: Arc<Channel>,
    pub(crate) machine: PublicKey,
    pub(crate) is_member: bool,
}

struct Open {
    channel: Arc<Channel>,
    machine: PublicKey,
    /// The highest number that was used.
    highest: u64,
    /// Which of the numbers from it downwards were used, its own in the lowest bit.
    seen: u64,
    used: u64,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Strangers(Number),
    Members(Number),
}

/// All open channels.
pub(crate) struct Channels {
    open: BTreeMap<Name, Open>,
    strangers: Crowd<u64, Source, Name>,
    members: Crowd<PublicKey, (), Name>,
}

/// Why a message finds no channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoChannel {
    /// None has this name; the client opens another.
    Unknown,
    /// The number was used, or is too old to tell.
    Repeated,
}

impl Default for Channels {
    fn default() -> Self {
        let strangers = Crowd::new(STRANGERS_MAX);
        let members = Crowd::new(MEMBERS_MAX);
        Self { open: BTreeMap::new(), strangers, members }
    }
}

impl Opened {
    /// Answers a handshake.
    pub(crate) fn new(
        key: &PrivateKey,
        verifying: VerifyingKey,
        message: &[u8],
        now: Moment,
    ) -> Result<Self, BadChannel> {
        let mut name = [0; 16];
        SystemRandom.fill(&mut name);
        let hello = Hello { version: VERSION, channel: name, verifying, now_unix_s: now.unix_s };
        let hello = serde_json::to_vec(&hello).map_err(|_| BadChannel::Form)?;
        let (answer, channel, machine) = channel::accept(key, message, &hello, &mut SystemRandom)?;
        Ok(Self { machine, channel, name, answer, now_up_s: now.up_s })
    }
}

impl Channels {
    /// Takes a channel: the answer to send. `source` is from where its first message came.
    pub(crate) fn take(&mut self, opened: Opened, is_member: bool, source: Source) -> Vec<u8> {
        let Opened { machine, channel, name, answer, now_up_s } = opened;
        let (place, lost) = if is_member {
            let (number, lost) = self.members.enter(machine, (), name);
            (Place::Members(number), lost)
        } else {
            let (number, lost) = self.strangers.enter(source.wide(), source, name);
            (Place::Strangers(number), lost)
        };
        if let Some(lost) = lost {
            self.open.remove(&lost);
        }
        let channel = Arc::new(channel);
        let open = Open { channel, machine, highest: 0, seen: 1, used: now_up_s, place };
        self.open.insert(name, open);
        answer
    }

    /// The channel with this name, and whose it is.
    pub(crate) fn find(&self, name: &Name) -> Result<Found, NoChannel> {
        let open = self.open.get(name).ok_or(NoChannel::Unknown)?;
        let is_member = matches!(open.place, Place::Members(_));
        Ok(Found { channel: Arc::clone(&open.channel), machine: open.machine, is_member })
    }

    /// Uses up a number, after its message was opened. Each is used once; one that was overtaken
    /// by another connection may be late by [`LATE_MAX`].
    pub(crate) fn use_number(
        &mut self,
        name: &Name,
        number: u64,
        now: u64,
    ) -> Result<(), NoChannel> {
        let open = self.open.get_mut(name).ok_or(NoChannel::Unknown)?;
        if let Some(ahead) = number.checked_sub(open.highest).filter(|ahead| *ahead > 0) {
            open.seen = if ahead > LATE_MAX { 0 } else { open.seen << ahead };
            open.highest = number;
        }
        let late = open.highest - number;
        if late > LATE_MAX || open.seen >> late & 1 == 1 {
            return Err(NoChannel::Repeated);
        }
        open.seen |= 1 << late;
        open.used = now;
        Ok(())
    }

    /// Its machine has joined.
    pub(crate) fn promote(&mut self, name: &Name) {
        let Some(open) = self.open.get_mut(name) else { return };
        let Place::Strangers(number) = open.place else { return };
        self.strangers.leave(number);
        let (number, lost) = self.members.enter(open.machine, (), *name);
        open.place = Place::Members(number);
        if let Some(lost) = lost {
            self.open.remove(&lost);
        }
    }

    /// Closes what was idle for too long.
    pub(crate) fn sweep(&mut self, now: u64) {
        let Self { open, strangers, members } = self;
        open.retain(|_, open| {
            let is_used = now < open.used.saturating_add(IDLE_S);
            if !is_used {
                match open.place {
                    Place::Strangers(number) => drop(strangers.leave(number)),
                    Place::Members(number) => drop(members.leave(number)),
                }
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn source(number: u32) -> Source {
        Source::from(IpAddr::from(Ipv4Addr::from(number)))
    }

    fn open(
        channels: &mut Channels,
        server: &PrivateKey,
        machine: &PrivateKey,
        from: Option<Source>,
        now: u64,
    ) -> Name {
        let (message, opening) =
            channel::open(machine, &server.public(), &mut SystemRandom).unwrap();
        let now = Moment { unix_s: 0, up_s: now };
        let opened = Opened::new(server, VerifyingKey([0; 32]), &message, now).unwrap();
        let answer = channels.take(opened, from.is_none(), from.unwrap_or(Source::OWN));
        let (_, hello) = opening.finish(&answer).unwrap();
        serde_json::from_slice::<Hello>(&hello).unwrap().channel
    }

    #[test]
    fn co_11_strangers_have_a_small_place_and_who_has_most_of_it_gives_way() {
        let [server, machine] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
        let mut channels = Channels::default();
        let member = open(&mut channels, &server, &machine, None, 0);
        let quiet = open(&mut channels, &server, &machine, Some(source(1)), 1);
        let first = open(&mut channels, &server, &machine, Some(source(2)), 1);
        for _ in 0..STRANGERS_MAX {
            open(&mut channels, &server, &machine, Some(source(2)), 2);
        }
        assert_eq!(channels.open.len(), STRANGERS_MAX + 1);
        assert!(channels.find(&member).is_ok_and(|found| found.is_member));
        assert!(channels.find(&quiet).is_ok_and(|found| !found.is_member), "it has one");
        assert_eq!(channels.find(&first).err(), Some(NoChannel::Unknown));
        channels.sweep(IDLE_S + 1);
        assert_eq!(channels.open.len(), STRANGERS_MAX - 1, "what was opened later");
        channels.sweep(IDLE_S + 2);
        assert!(channels.open.is_empty());
        assert!(channels.strangers.is_empty() && channels.members.is_empty());
    }

    #[test]
    fn a_number_is_used_once() {
        let [server, machine] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
        let mut channels = Channels::default();
        let name = open(&mut channels, &server, &machine, Some(source(1)), 0);
        let mut used = std::collections::BTreeSet::from([0]);
        for number in [0, 1, 1, 9, 5, 5, 9, 2, 72, 9, 8, 10, 200, 137, 136, 137, 1 << 40, 200] {
            let highest = used.last().copied().unwrap_or(0);
            let fits = number + LATE_MAX >= highest && !used.contains(&number);
            let taken = channels.use_number(&name, number, 1);
            assert_eq!(taken.is_ok(), fits, "{number} after {used:?}");
            used.extend(taken.is_ok().then_some(number));
        }
        channels.promote(&name);
        channels.promote(&name);
        assert!(channels.strangers.is_empty() && channels.members.len() == 1);
    }
}
