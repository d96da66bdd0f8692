//! Figures that a link shows of itself.

use wire::frame::Hello;

use super::Link;
use crate::frames::piece::Counters;
use crate::frames::weather::Weather;
use crate::outbox::Destination;

impl Link {
    /// What the peer can do on the session that is sent on; none if it is a plain peer.
    #[must_use]
    pub fn hello(&self) -> Option<Hello> {
        let (current, _) = self.peer.current()?;
        self.frames.as_ref()?.hello(current)
    }

    /// What is known of the path's weather, and done about it; none toward a peer that speaks no
    /// frames on the session that is sent on. Between two sessions it is what was known.
    #[must_use]
    pub fn weather(&self) -> Option<Weather> {
        let is_idle = self.peer.current().is_none();
        if !is_idle {
            self.hello()?;
        }
        let halves = self.frames.as_ref()?.halves()?;
        let sender = &halves.sender;
        let receiver = &halves.receiver;
        let mut weather = Weather::of(self.peer.cipher(), sender, receiver, self.order_us);
        if !matches!(self.endpoint, Some(Destination::Udp(_)) | None) {
            // What is no UDP has a queue of its own.
            weather.gap_ns = 0;
        }
        weather.is_idle = is_idle;
        Some(weather)
    }

    /// Pieces that came in frames, by what became of them, whatever was said on which session.
    #[must_use]
    pub fn pieces(&self) -> Counters {
        let halves = self.frames.as_ref().and_then(|frames| frames.halves());
        halves.map_or_else(Counters::default, |halves| halves.receiver.counters().0)
    }

    /// Steps so far that what came in frames took, from entry to entry of the link's tables.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let halves = self.frames.as_ref().and_then(|frames| frames.halves());
        halves.map_or(0, |halves| halves.receiver.steps())
    }
}
