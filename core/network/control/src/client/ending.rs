//! How a client ends: by its owner's wish, for good or for now, or by the server's word.

use super::{Client, Event};
use crate::Refusal;

impl Client {
    /// Wants to leave the network.
    pub const fn handle_logout(&mut self) {
        self.is_logout_due = true;
    }

    /// Ends for now, which the server is told: a node that is ephemeral leaves by that.
    pub const fn handle_stop(&mut self) {
        self.is_stop_due = true;
    }

    /// Nothing is asked any more.
    pub(super) fn stopped(&mut self, has_left: bool) {
        if has_left {
            self.forget();
        }
        self.is_ended = true;
        self.push(Event::Stopped { has_left });
    }

    /// Drops what a node that is no member must not use.
    pub(super) fn forget(&mut self) {
        self.map = None;
        self.cached.clear();
    }

    pub(super) fn end(&mut self, refusal: Refusal) {
        self.is_ended = true;
        self.is_in_touch = false;
        self.push(Event::Ended(refusal));
    }
}
