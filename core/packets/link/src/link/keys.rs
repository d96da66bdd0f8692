//! The preshared keys of a link that may have several.

use super::*;

impl Link {
    /// Says which preshared key is to be used. Of a peer that `is_new` the one before does not
    /// count: it had none.
    pub fn set_preshared(&mut self, told: Preshared, is_new: bool) {
        match (&self.keys, &told) {
            (Some(keys), _) if *keys.told() == told => return,
            (None, Preshared::Key(key, _)) if key == self.peer.preshared_key() => return,
            _ => {}
        }
        let before = (!is_new).then(|| self.peer.preshared_key().clone());
        match told {
            Preshared::Key(key, overlap) if is_new || overlap.is_zero() => {
                self.peer.set_preshared_key(key);
                self.keys = None;
            }
            told => self.keys = Some(Box::new(Keys::new(told, before))),
        }
    }

    /// Has the peer use the key of this time.
    pub(super) fn refresh_keys(&mut self, world: &World<'_>) {
        let Some(keys) = &mut self.keys else { return };
        keys.refresh(&mut self.peer, world.now, world.wall);
        if keys.is_settled() {
            self.keys = None;
        }
    }

    /// What there is to tell of a schedule of keys at `wall`, since 1970, if there is one.
    #[must_use]
    pub fn key_status(&self, wall: Duration) -> Option<KeyStatus> {
        self.keys.as_ref()?.status(wall)
    }
}
