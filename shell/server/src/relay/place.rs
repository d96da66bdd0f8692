//! The place in the switch of a connection whose key was proven, by whatever it came.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use carrier::ConnectionId;
use carrier::switch::{GONE_A_SECOND, Handled};
use noise::{Instant, PublicKey};
use wire::relay::{Decoder, Frame};

use super::{Floor, Relay};
use crate::held::held;

/// Of those who are not here, so many are told of after a read: no more would be in a second.
const ABSENT_MAX: usize = GONE_A_SECOND as usize;
const SECOND: Duration = Duration::from_secs(1);

/// A place, and who is to be woken once the lock is free. It is left when this is dropped.
pub(super) struct Place {
    pub(super) relay: Arc<Relay>,
    pub(super) id: ConnectionId,
    key: PublicKey,
    wakers: Vec<Waker>,
    /// Since when questions about who is not here are counted, and how many there were.
    asking_since: Instant,
    asked: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.relay.leave(self.id);
    }
}

impl Place {
    pub(super) const fn new(relay: Arc<Relay>, id: ConnectionId, key: PublicKey) -> Self {
        let wakers = Vec::new();
        Self { relay, id, key, wakers, asking_since: Instant::ZERO, asked: 0 }
    }

    /// Gives the switch all whole frames of `decoder`, under one lock. Returns whether a ping was
    /// among them.
    pub(super) fn pass(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        let now = self.relay.now();
        let mut absent = [None; ABSENT_MAX];
        let mut was_ping = false;
        let mut floor = held(&self.relay.floor);
        let Floor { switch, ports } = &mut *floor;
        let mut end = Ok(());
        loop {
            let place = match decoder.poll_frame() {
                Ok(Some(place)) => place,
                Ok(None) => break,
                Err(why) => {
                    end = Err(io::Error::other(why));
                    break;
                }
            };
            let frame = decoder.frame(&place);
            was_ping |= matches!(frame, Frame::Ping(_));
            match switch.handle_frame(self.id, &frame, now) {
                Handled::Wake(id) => {
                    let waker = ports.get_mut(&id).and_then(|port| port.waker.take());
                    self.wakers.extend(waker);
                }
                Handled::Done => {}
                Handled::Absent(key) => note(&mut absent, key),
                Handled::Misplaced => {
                    end = Err(io::Error::other("a frame that no node sends"));
                    break;
                }
            }
        }
        drop(floor);
        self.wakers.drain(..).for_each(Waker::wake);
        for key in absent.into_iter().flatten() {
            // The cheap question comes first, and who may not see them is told nothing.
            if !self.may_ask(now) || !self.relay.members.may_know(&self.key, &key) {
                continue;
            }
            let mut floor = held(&self.relay.floor);
            let is_to_wake = floor.switch.handle_absent(self.id, &key, now);
            let port = floor.ports.get_mut(&self.id).filter(|_| is_to_wake);
            if let Some(waker) = port.and_then(|port| port.waker.take()) {
                waker.wake();
            }
        }
        end.map(|()| was_ping)
    }
}

impl Place {
    /// Whether it is asked once more in this second who may know of whom: as often as could be
    /// told (threat RL-03).
    fn may_ask(&mut self, now: Instant) -> bool {
        if self.asked == 0 || self.asking_since.is_older_than(SECOND, now) {
            self.asking_since = now;
            self.asked = 0;
        }
        self.asked = self.asked.saturating_add(1);
        self.asked <= GONE_A_SECOND
    }
}

/// Adds a key once, if there is room.
fn note(absent: &mut [Option<PublicKey>; ABSENT_MAX], key: PublicKey) {
    if let Some(slot) = absent.iter_mut().find(|slot| slot.is_none_or(|known| known == key)) {
        *slot = Some(key);
    }
}
