//! The desk: what an order of another thread gets to work with, and all that can be done there.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use node::{Change, Clock, Node, Status, Unsounded};
use noise::{PublicKey, Random};

use super::{Error, Rest};
use crate::driver::engine::Engine;
use crate::driver::link_status;
use crate::sockets::relay::{NewStream, StreamStatus};
use crate::sockets::soundings::Sealed;

/// What an order of another thread gets to work with; see [`super::mail`].
#[derive(Debug)]
pub struct Desk<'a> {
    rest: &'a mut Rest,
}

impl<'a> Desk<'a> {
    pub(super) const fn of(rest: &'a mut Rest) -> Self {
        Self { rest }
    }
}

impl Desk<'_> {
    /// The node, the time, and randomness. What peers want done afterwards is done.
    pub fn node(&mut self) -> (&mut Node, Clock, &mut dyn Random) {
        let engine = &mut self.rest.engine;
        (&mut engine.node, engine.clock, &mut self.rest.random)
    }

    /// Applies configuration steps in order.
    ///
    /// # Errors
    /// The first step that failed; those before it stay done.
    pub fn configure(&mut self, changes: &[Change]) -> Result<(), Error> {
        self.rest.configure(changes).map_err(|(text, _)| Error::Config(text))
    }

    /// Brings sockets and sessions in line with the interface, which the caller has just brought
    /// up or down.
    ///
    /// # Errors
    /// The port is taken.
    pub fn look(&mut self) -> Result<(), Error> {
        self.rest.look().map(drop).map_err(|(text, _)| Error::Config(text))
    }

    /// What the node says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.rest.status()
    }

    const fn engine(&mut self) -> &mut Engine {
        &mut self.rest.engine
    }

    /// A promise of the stamps is kept: [`super::Driver::keep_stamps`].
    pub fn promise(&mut self, promised_unix_s: u64) {
        if let Some(stamps) = &mut self.rest.engine.stamps {
            stamps.handle_promise(promised_unix_s);
        }
    }

    /// This turn's time since 1970, as [`Status`] counts it.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Engine::wall()
    }

    /// Ends the loop after this order.
    pub fn end(&mut self) {
        self.rest.is_over = true;
    }

    /// Hands over a stream to a relay, in place of one to the same relay.
    ///
    /// # Errors
    /// There are too many, or the socket is of no use.
    pub fn set_relay(&mut self, stream: NewStream) -> io::Result<()> {
        let relay = stream.relay;
        self.engine().streams.set(stream)?;
        self.node().0.handle_relay_up(relay);
        Ok(())
    }

    /// Ends the stream to a relay, if there is one.
    pub fn remove_relay(&mut self, relay: u32) {
        self.engine().streams.remove(relay);
    }

    /// See [`crate::sockets::relay::Streams::check`].
    pub fn check_relay(&mut self, relay: u32) {
        self.engine().streams.check(relay);
    }

    /// What is told of the streams to relays.
    #[must_use]
    pub fn relays(&mut self) -> Vec<StreamStatus> {
        self.engine().streams.status().collect()
    }

    /// See [`Engine::seal_stream`].
    ///
    /// # Errors
    /// Why there is none.
    pub fn seal_stream(
        &mut self,
        key: &PublicKey,
        packets: u16,
        len: usize,
    ) -> Result<Sealed, Unsounded> {
        self.engine().seal_stream(key, packets, len)
    }

    /// See [`Engine::ask_arrivals`].
    ///
    /// # Errors
    /// Why the peer cannot be asked.
    pub fn ask_arrivals(&mut self) -> Result<(), Unsounded> {
        self.engine().ask_arrivals()
    }

    /// What did not go on, by reason: of the node, of what came in frames, and what the kernel did
    /// not take.
    pub fn drops(&mut self) -> BTreeMap<&'static str, u64> {
        link_status::drops(self.engine())
    }
}
