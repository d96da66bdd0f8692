//! Streams to the relays of the map: connected by [`dial::Relays`], driven by the data loop; and
//! what relays say of a second machine with this node's key (threat RL-07).

use std::io;
use std::time::Duration;

use dial::relay::{Admitted, Answered, Connected};
use dial::relays::{Hand, OnEnd};
use host::driver::mail::Remote;
use host::sockets::relay::{Carrier, NewStream, StreamEnd};

use super::Daemon;

/// How long it is told that another machine was seen to use this node's key.
const TWIN_FOR: Duration = Duration::from_secs(300);

impl Daemon {
    /// What is to be said of another machine that uses this node's key, if one was seen.
    pub(crate) fn twin(&self) -> Option<String> {
        let states = self.relays.as_ref()?.states();
        let seen = states.values().filter_map(|state| state.twin).max()?;
        (seen.elapsed() < TWIN_FOR).then(|| {
            format!(
                "another machine uses this node's key and takes its place by turns: it has a copy \
                 of {}; on one of the two, stop the daemon, move that directory away, and join \
                 again with a token",
                self.state.directory().display()
            )
        })
    }

    /// What to change where a proxy in front of a relay passes no stream.
    pub(crate) fn proxies_to_mend(&self) -> Vec<String> {
        let states = self.relays.as_ref().map(|relays| relays.states()).unwrap_or_default();
        states.into_values().filter_map(|state| state.mend).collect()
    }

    /// Logs it once.
    pub(crate) fn look_for_twin(&mut self) {
        let twin = self.twin();
        if let (Some(why), false) = (&twin, self.has_twin) {
            tracing::error!("{why}");
        }
        self.has_twin = twin.is_some();
    }
}

/// Gives streams to a data loop.
pub struct Loop(pub Remote);

impl Hand for Loop {
    fn set_relay(&self, relay: u32, admitted: Admitted, on_end: OnEnd) -> io::Result<()> {
        let (carrier, decoder) = match admitted {
            Admitted::Https(connected) => {
                let Connected { socket, tls, decoder, websocket } = *connected;
                (Carrier::Https(socket, Box::new(tls), websocket), decoder)
            }
            Admitted::Quic(answered) | Admitted::Icmp(answered) => {
                let Answered { line, decoder } = *answered;
                (Carrier::Quic(Box::new(line)), decoder)
            }
        };
        let on_end = Box::new(move |end: StreamEnd| on_end(end.notice()));
        let stream = NewStream { relay, carrier, decoder, on_end };
        self.0.call(move |desk| desk.set_relay(stream)).map_err(io::Error::other)?
    }

    fn check_relay(&self, relay: u32) {
        let _ = self.0.post(move |desk| desk.check_relay(relay));
    }

    fn remove_relay(&self, relay: u32) {
        // A loop that is gone has no streams.
        let _ = self.0.post(move |desk| desk.remove_relay(relay));
    }
}
