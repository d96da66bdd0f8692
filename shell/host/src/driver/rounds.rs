//! The checks of each second, beside the loop's work: whether the machine slept, whether a promise
//! of the stamps is due, whether senders must still be held back. It also logs the paths at debug.

use noise::Instant;

use super::Rest;
use crate::driver::engine::Engine;
use crate::linux::sys;

impl Rest {
    /// One look.
    pub(super) fn look_around(&mut self) {
        self.note_weather();
        self.wish();
        self.key_files.look();
        self.look_for_sleep();
        self.engine.look();
    }

    /// Tells who debugs what the paths are like.
    fn note_weather(&self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let node = &self.engine.node;
        for peer in node.peers(self.engine.clock.now, Engine::wall()) {
            if let Some(weather) = node.weather(&peer.key) {
                tracing::debug!(endpoint = ?peer.endpoint, ?weather, "weather");
            }
        }
    }

    /// Addresses or routes may be others, or something else of the network.
    pub(super) fn note_change(&mut self, is_of_routes: bool) {
        if is_of_routes {
            let now = self.engine.clock.now;
            self.engine.node.handle_network_change(now);
        }
        if let Some(on_change) = &mut self.hooks.on_change {
            on_change();
        }
    }

    /// A machine that slept wakes in another network, for all that it knows.
    fn look_for_sleep(&mut self) {
        let awake = Instant(sys::awake_ns());
        if let Some(slept) = self.slumber.handle_clocks(self.engine.clock.now, awake) {
            tracing::info!(slept_s = slept.as_secs(), "the machine slept; all paths are looked at");
            self.note_change(true);
        }
    }

    /// Asks for a promise of the stamps to be kept, if one is due.
    fn wish(&mut self) {
        let engine = &mut self.engine;
        let hooks = &mut self.hooks;
        let wish = engine.stamps.as_mut().and_then(|stamps| stamps.poll_wish(engine.clock.now));
        if let (Some(wish), Some(on_wish)) = (wish, &mut hooks.on_wish) {
            on_wish(wish);
        }
    }
}
