//! A node's key is given another in time, without anybody's help.
//!
//! It is due at half of its life, whose whole length the map tells: how often the map changes says
//! nothing about it. One that is over for no longer than the server bears, as after weeks in a
//! drawer, is renewed by the machine's own key.

use std::time::{Duration, Instant};

use control::{Code, Refusal};
use dial::SystemRandom;
use node::Change;
use noise::{PrivateKey, PublicKey};

use super::{Daemon, Fault};

/// After a renewal that got no answer, another try: an eighth of the life later, and so much at
/// most.
const AGAIN_MAX: Duration = Duration::from_secs(60);
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// What is known of the key's life, and what was tried.
#[derive(Default)]
pub(crate) struct Renewal {
    /// The end of the life that was met last, and how long it was then, for servers that do not
    /// tell its length.
    met: Option<(u64, u64)>,
    after: Option<Instant>,
    /// The key that was asked to be renewed after its end.
    over: Option<PublicKey>,
}

impl Renewal {
    /// Whether the key that ends at `expires` is to be renewed at `now`, both in Unix seconds, and
    /// how long its life is. `told` is its length by the server's word.
    fn is_due(&mut self, expires: u64, told: Option<u64>, now: u64) -> (bool, u64) {
        let left = expires.saturating_sub(now);
        let met = self.met.filter(|(end, _)| *end == expires).map_or(left, |(_, whole)| whole);
        self.met = Some((expires, met));
        let whole = told.unwrap_or(met);
        (left <= whole / 2, whole)
    }
}

impl Daemon {
    /// Asks for another key when half of this one's life is over. It need not be in touch: what is
    /// asked waits for the server.
    pub(crate) fn renew(&mut self) {
        let now = self.now_unix_s();
        let Some(me) = self.map.as_ref().map(|map| &map.me) else { return };
        let Some(expires) = me.expires_unix_s else { return };
        let (is_due, whole) = self.renewal.is_due(expires, me.life_s, now);
        if !is_due || self.renewal.after.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let again = Duration::from_secs(whole) / 8;
        self.renewal.after = Some(Instant::now() + again.clamp(AGAIN_MIN, AGAIN_MAX));
        self.ask_for_another();
    }

    /// The server says that the key is over. Whether this machine may renew it all the same is
    /// asked once for each key; `false` if it was.
    pub(crate) fn renew_what_is_over(&mut self, refusal: &Refusal) -> bool {
        let key = self.state.kept.node.public();
        let is_new = self.renewal.over != Some(key);
        if refusal.code != Code::Expired || !is_new || self.leaving.is_some() {
            return false;
        }
        self.renewal.over = Some(key);
        tracing::info!("the node's key is over; whether it may be renewed is asked");
        self.ask_for_another();
        true
    }

    fn ask_for_another(&mut self) {
        let next = self.state.kept.next.clone();
        let next = next.unwrap_or_else(|| PrivateKey::generate(&mut SystemRandom));
        self.state.kept.next = Some(next.clone());
        self.keep();
        if let Some(membership) = &self.membership {
            membership.rotate(next.public());
        }
    }

    pub(crate) fn take_rotation(&mut self, key: &PublicKey) -> Result<(), Fault> {
        let kept = &mut self.state.kept;
        let Some(next) = kept.next.take_if(|next| next.public() == *key) else { return Ok(()) };
        kept.node = next.clone();
        self.keep();
        tracing::info!("the node's key is another one now");
        self.remote.call(|desk| desk.configure(&[Change::PrivateKey(Some(next))]).err())?;
        if self.refusal.is_some() {
            // Asks that were under way with the old key were refused meanwhile: begin anew.
            return self.start();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use control::{Map, NodeId, SelfNode};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// When it is due with a change of the map each second.
    fn due_at(life_s: Option<u64>, lasts_s: u64) -> Option<u64> {
        let expires_unix_s = Some(NOW + lasts_s);
        let me = SelfNode { expires_unix_s, life_s, ..SelfNode::new(NodeId(1), "me") };
        let mut map = Map { made_unix_s: NOW, ..Map::new(PublicKey([9; 32]), 3, me) };
        let mut renewal = Renewal::default();
        (1..lasts_s).find(|second| {
            let delta = map.delta(map.sequence + 1, NOW + second);
            map.apply(delta).unwrap();
            let expires = map.me.expires_unix_s.unwrap();
            renewal.is_due(expires, map.me.life_s, map.made_unix_s).0
        })
    }

    #[test]
    fn a_key_is_due_at_half_of_its_life_however_often_the_map_changes() {
        assert_eq!(due_at(Some(60), 60), Some(30));
        assert_eq!(due_at(Some(60), 20), Some(1), "it began before this process");
        assert_eq!(due_at(None, 60), Some(31), "a server that does not tell its length");
        let mut renewal = Renewal::default();
        assert!(
            !renewal.is_due(NOW + 60, None, NOW).0 && renewal.is_due(NOW + 60, None, NOW + 30).0
        );
        assert!(!renewal.is_due(NOW + 90, None, NOW + 30).0, "a new life");
        assert!(renewal.is_due(NOW, Some(60), NOW + 9).0, "and one that is over");
    }
}
