//! The open channels, by their names. Those of machines that are not in the books have a small
//! place of their own, so that strangers cannot push members out (threat CO-11).

use std::collections::BTreeMap;
use std::sync::Arc;

use control::channel::{self, BadChannel, Channel};
use control::{Hello, VERSION, VerifyingKey};
use noise::{PrivateKey, PublicKey, Random};

use crate::app::Moment;
use crate::keys::SystemRandom;

/// Channels of machines that are in the books.
const MEMBERS_MAX: usize = 32_768;
/// Channels of machines that are not.
const STRANGERS_MAX: usize = 1024;
/// A channel that says nothing for so long is closed, in seconds; a poll waits 45.
const IDLE_S: u64 = 180;
/// How far a number may be behind the highest; the bits of a word.
const LATE_MAX: u64 = 63;

struct Open {
    channel: Arc<Channel>,
    machine: PublicKey,
    /// The highest number that was used.
    highest: u64,
    /// Which of the numbers from it downwards were used, its own in the lowest bit.
    seen: u64,
    used: u64,
    is_member: bool,
}

/// All open channels.
#[derive(Default)]
pub(crate) struct Channels {
    open: BTreeMap<[u8; 16], Open>,
    strangers: usize,
}

/// Why a message finds no channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoChannel {
    /// None has this name; the client opens another.
    Unknown,
    /// The number was used, or is too old to tell.
    Repeated,
}

impl Channels {
    /// Answers a handshake: the answer to send. `is_member` says whether a machine is known.
    pub(crate) fn accept(
        &mut self,
        key: &PrivateKey,
        verifying: VerifyingKey,
        message: &[u8],
        is_member: impl FnOnce(&PublicKey) -> bool,
        now: Moment,
    ) -> Result<Vec<u8>, BadChannel> {
        let mut name = [0; 16];
        SystemRandom.fill(&mut name);
        let hello = Hello { version: VERSION, channel: name, verifying, now_unix_s: now.unix_s };
        let hello = serde_json::to_vec(&hello).map_err(|_| BadChannel::Form)?;
        let (answer, channel, machine) = channel::accept(key, message, &hello, &mut SystemRandom)?;
        let is_member = is_member(&machine);
        self.make_room(is_member);
        self.strangers += usize::from(!is_member);
        let channel = Arc::new(channel);
        let open = Open { channel, machine, highest: 0, seen: 1, used: now.up_s, is_member };
        self.open.insert(name, open);
        Ok(answer)
    }

    /// The channel with this name, and whose it is.
    pub(crate) fn find(&self, name: &[u8; 16]) -> Result<(Arc<Channel>, PublicKey), NoChannel> {
        let open = self.open.get(name).ok_or(NoChannel::Unknown)?;
        Ok((Arc::clone(&open.channel), open.machine))
    }

    /// Uses up a number, after its message was opened. Each is used once; one that was overtaken
    /// by another connection may be late by [`LATE_MAX`].
    pub(crate) fn use_number(
        &mut self,
        name: &[u8; 16],
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
    pub(crate) fn promote(&mut self, name: &[u8; 16]) {
        if let Some(open) = self.open.get_mut(name)
            && !open.is_member
        {
            open.is_member = true;
            self.strangers -= 1;
        }
    }

    /// Closes what was idle for too long.
    pub(crate) fn sweep(&mut self, now: u64) {
        self.open.retain(|_, open| now < open.used.saturating_add(IDLE_S));
        self.strangers = self.open.values().filter(|open| !open.is_member).count();
    }

    /// The one that was idle longest goes, among its own kind.
    fn make_room(&mut self, is_member: bool) {
        let members = self.open.len() - self.strangers;
        let is_full =
            if is_member { members >= MEMBERS_MAX } else { self.strangers >= STRANGERS_MAX };
        if !is_full {
            return;
        }
        let kind = self.open.iter().filter(|(_, open)| open.is_member == is_member);
        if let Some(name) = kind.min_by_key(|(_, open)| open.used).map(|(name, _)| *name) {
            self.open.remove(&name);
            self.strangers -= usize::from(!is_member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(channels: &mut Channels, server: &PrivateKey, is_member: bool, now: u64) -> [u8; 16] {
        let machine = PrivateKey::generate(&mut SystemRandom);
        let (message, opening) =
            channel::open(&machine, &server.public(), &mut SystemRandom).unwrap();
        let verifying = VerifyingKey([0; 32]);
        let now = Moment { unix_s: 0, up_s: now };
        let answer = channels.accept(server, verifying, &message, |_| is_member, now).unwrap();
        let (_, hello) = opening.finish(&answer).unwrap();
        serde_json::from_slice::<Hello>(&hello).unwrap().channel
    }

    #[test]
    fn co_11_strangers_have_a_small_place_and_push_out_each_other_only() {
        let server = PrivateKey::generate(&mut SystemRandom);
        let mut channels = Channels::default();
        let member = open(&mut channels, &server, true, 0);
        let first = open(&mut channels, &server, false, 1);
        for _ in 0..STRANGERS_MAX {
            open(&mut channels, &server, false, 2);
        }
        assert_eq!((channels.strangers, channels.open.len()), (STRANGERS_MAX, STRANGERS_MAX + 1));
        assert!(channels.find(&member).is_ok());
        assert_eq!(channels.find(&first).err(), Some(NoChannel::Unknown));
        channels.sweep(IDLE_S + 1);
        assert_eq!((channels.strangers, channels.open.len()), (STRANGERS_MAX, STRANGERS_MAX));
        channels.sweep(IDLE_S + 2);
        assert!(channels.open.is_empty() && channels.strangers == 0);
    }

    #[test]
    fn a_number_is_used_once() {
        let server = PrivateKey::generate(&mut SystemRandom);
        let mut channels = Channels::default();
        let name = open(&mut channels, &server, false, 0);
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
        assert_eq!(channels.strangers, 0);
    }
}
