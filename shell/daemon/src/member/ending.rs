//! How the loop ends: because somebody stops the daemon, because the data loop is gone, or because
//! the node has left its network.
//!
//! A daemon that is stopped tells the server, and a node that is ephemeral leaves by that: the one
//! that follows it has its name.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::{Daemon, Fault, Input};

/// How long whoever stops the daemon waits for the server to know.
const STOP_WITHIN: Duration = Duration::from_secs(2);

impl Daemon {
    /// Runs until it is stopped or the data loop is gone.
    pub(crate) fn run(mut self, received: &Receiver<Input>) {
        let is_asked = self.serve(received).unwrap_or_else(|_| {
            tracing::debug!("the node's loop has ended");
            why(received)
        });
        self.save_map();
        if self.map.is_some() {
            self.seen.end(&self.state, self.now_unix_s());
        }
        if is_asked {
            self.say_goodbye();
        }
    }

    /// Tells the server, if it listens. Who has left by that keeps nothing of its membership.
    fn say_goodbye(&mut self) {
        let Some(membership) = self.membership.take().filter(|_| self.is_in_touch) else { return };
        if membership.stop(STOP_WITHIN) {
            tracing::info!("this node was ephemeral and has left the network");
            if let Err(error) = self.state.forget() {
                tracing::error!("{error}");
            }
            self.seen.forget();
        }
    }

    /// The membership is over, as its owner wanted.
    pub(super) fn left(&mut self, is_told: bool) -> Result<(), Fault> {
        self.stop()?;
        let forgotten = self.state.forget();
        self.seen.forget();
        self.unsaved = None;
        if let Some((_, answer)) = self.leaving.take() {
            let reply = match forgotten {
                Ok(()) if is_told => crate::protocol::done(),
                Ok(()) => crate::protocol::left_behind(),
                Err(error) => crate::protocol::refused(error),
            };
            let _ = answer.send(reply);
        }
        Ok(())
    }
}

/// Whether somebody asked for the end; the data loop's is noticed before that is told.
fn why(received: &Receiver<Input>) -> bool {
    let until = Instant::now() + STOP_WITHIN;
    while let Ok(input) = received.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if let Input::Stop { is_asked } = input {
            return is_asked;
        }
    }
    false
}
