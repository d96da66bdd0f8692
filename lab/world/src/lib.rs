//! A world with everything in it, from a seed: the server with its books, relays, translators,
//! STUN servers, and machines that join, leave, roam, are cut off, restart, are renamed, tagged,
//! expired and removed, while the policy changes and packets go between them.
//!
//! What runs is what runs elsewhere: the service, from its sealed requests to the store in a file
//! ([`server::service`]); `control`'s client and channel; the daemon's plan of a map; nodes with
//! their sessions, paths and filters in a `sim` world. Left out are HTTP, TLS and the kernel. All
//! of it has one virtual time.
//!
//! What is true is said by `model`: a list of members, words of a policy, a list of join keys. It
//! remembers how the books were at each version, so it knows what a machine with an old map may
//! do. Held against it are
//!
//! - at all times: every packet that arrives was let go by what its sender knew, and let in by
//!   what its receiver knows; names, addresses and keys are each one's own; joins, departures and
//!   new keys are in the books as the model expects; a second after a removal nobody who is in
//!   touch has the node as its peer; no ERROR is logged;
//! - in quiet, which comes after every few dozen steps: each machine's map is that of the model
//!   in everything, its node has these peers, who may speak is heard within half a minute, who may
//!   not is not, and answers come back.
//!
//! A world that differs panics with its seed and the last of its story. `WARREN_SEED=n` runs one
//! world, `WARREN_SEEDS=first..last` or `WARREN_SEEDS=n` several.

#![expect(clippy::unwrap_used, reason = "all of it is for tests: what fails ends its world")]

mod errors;
mod machine;
mod member;
mod model;
mod office;
mod quiet;
mod stage;
mod steps;
mod words;

use std::collections::BTreeMap;

use stage::Stage;

/// Quiet comes after so many steps.
const QUIET_EVERY: u64 = 50;

/// How often each thing happened in a world.
pub type Counts = BTreeMap<&'static str, u64>;

/// Runs one world of so many steps.
///
/// # Panics
/// If it differs from its model, with its seed and the last of its story.
#[must_use]
pub fn play(seed: u64, steps: u64) -> Counts {
    let mut stage = Stage::new(seed);
    for step in 1..=steps {
        stage.step();
        if step % QUIET_EVERY == 0 {
            stage.quiet();
        }
    }
    stage.counts
}

/// Runs one world of so many steps: what its data plane did, as a digest after each.
///
/// # Panics
/// If it differs from its model, with its seed and the last of its story.
#[must_use]
pub fn digests(seed: u64, steps: u64) -> Vec<u64> {
    let mut stage = Stage::new(seed);
    let mut digests = Vec::new();
    for step in 1..=steps {
        stage.step();
        if step % QUIET_EVERY == 0 {
            stage.quiet();
        }
        digests.push(stage.world.story().digest());
    }
    digests
}
