//! Measurements of what a path has left: who begins one, and what comes of it.

use noise::PublicKey;
use serde_json::Value;

use super::{Daemon, Input};
use crate::bandwidth::{Found, measure};
use crate::protocol::{done, refused};

impl Daemon {
    /// Begins a measurement, on a thread of its own.
    pub(crate) fn measure(&mut self, peer: u64) -> Value {
        let planned = self.plan.peers.iter().find(|(_, planned)| planned.id.0 == peer);
        let Some(key) = planned.map(|(key, _)| *key) else {
            return refused("there is no such peer that this node may talk to");
        };
        if self.bandwidths.is_under_way() {
            return refused(
                "a measurement is under way, and two would measure each other; try again in a \
                 minute",
            );
        }
        let inputs = self.inputs.clone();
        let begun = self.remote.another().and_then(|remote| {
            let thread = std::thread::Builder::new().name("warren-bandwidth".to_owned());
            // A loop that has ended wants no answer.
            let work = move || drop(inputs.send(Input::Bandwidth(key, measure(&remote, key))));
            thread.spawn(work)
        });
        match begun {
            Err(error) => refused(format_args!("no thread can be started: {error}")),
            Ok(_) => {
                self.bandwidths.begin(key);
                done()
            }
        }
    }

    /// One has ended.
    pub(super) fn take_bandwidth(&mut self, key: PublicKey, found: Found) {
        self.bandwidths.take(key, found, |known| self.plan.peers.contains_key(known));
    }
}
