//! Neighbours: what each may do here, how much of it, and the indices that name its circuits.

use std::collections::BTreeMap;
use std::time::Duration;

use noise::{Instant, PeerId, Random};

use crate::layer::Mask;
use crate::{Drop, PER_CLIENT_MAX, PER_HOP_MAX};

/// What a neighbour may do here, by the network's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// It may build circuits.
    pub uses: bool,
    /// It is a hop: circuits may come from it, and go on to it.
    pub hop: bool,
}

/// Circuits that a client may begin at once, after silence; each costs two Diffie-Hellman.
const CLIENT_BURST: u32 = 64;
/// And then each second.
const CLIENT_RATE_PER_S: u32 = 16;
/// A hop asks for many clients.
const HOP_FACTOR: u32 = 16;

/// One end of a circuit's way over one link.
pub(crate) struct Side {
    pub(crate) peer: PeerId,
    /// Our index: what comes has it.
    pub(crate) ours: u32,
    /// The neighbour's: what goes has it.
    pub(crate) theirs: u32,
    pub(crate) mask: Mask,
}

/// Who a cell's index belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A hop's circuit, from the side of its client.
    Forth(u32),
    /// The same, from the other side.
    Back(u32),
    /// A circuit of our own.
    Own(u16),
}

struct Neighbour {
    standing: Standing,
    /// Indices are counted in odd steps from a number that nobody knows, so that none comes again
    /// within 2^32 and a neighbour learns nothing of others from its own.
    next: u32,
    step: u32,
    circuits: usize,
    tokens: Duration,
    refilled: Instant,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Neighbours {
    known: BTreeMap<PeerId, Neighbour>,
    owners: BTreeMap<(PeerId, u32), Owner>,
}

impl Neighbours {
    pub(crate) fn set(&mut self, peer: PeerId, standing: Standing, random: &mut dyn Random) {
        let mut seed = [0; 8];
        random.fill(&mut seed);
        let [a, b, c, d, e, f, g, h] = seed;
        let entry = self.known.entry(peer).or_insert_with(|| Neighbour {
            standing,
            next: u32::from_le_bytes([a, b, c, d]),
            step: u32::from_le_bytes([e, f, g, h]) | 1,
            circuits: 0,
            tokens: burst(standing),
            refilled: Instant::ZERO,
        });
        entry.standing = standing;
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.known.remove(&peer);
    }

    pub(crate) fn standing(&self, peer: PeerId) -> Standing {
        self.known.get(&peer).map_or_else(Standing::default, |neighbour| neighbour.standing)
    }

    pub(crate) fn owner(&self, peer: PeerId, index: u32) -> Option<Owner> {
        self.owners.get(&(peer, index)).copied()
    }

    /// Indices in use: for tests and for status.
    pub(crate) fn indices(&self) -> usize {
        self.owners.len()
    }

    /// An index of ours for what comes from `peer`.
    pub(crate) fn allocate(&mut self, peer: PeerId, owner: Owner) -> Option<u32> {
        let neighbour = self.known.get_mut(&peer)?;
        // One that is still in use after 2^32 others is passed over.
        for _ in 0..16 {
            let index = neighbour.next;
            neighbour.next = neighbour.next.wrapping_add(neighbour.step);
            if let std::collections::btree_map::Entry::Vacant(entry) =
                self.owners.entry((peer, index))
            {
                entry.insert(owner);
                return Some(index);
            }
        }
        None
    }

    pub(crate) fn free(&mut self, peer: PeerId, index: u32) {
        self.owners.remove(&(peer, index));
    }

    /// Whether `peer` may begin another circuit here now; it is counted if so.
    pub(crate) fn begin(&mut self, peer: PeerId, now: Instant) -> Result<(), Drop> {
        let neighbour = self.known.get_mut(&peer).ok_or(Drop::Forbidden)?;
        let standing = neighbour.standing;
        if !standing.uses && !standing.hop {
            return Err(Drop::Forbidden);
        }
        let most = if standing.hop { PER_HOP_MAX } else { PER_CLIENT_MAX };
        let passed = now.since(neighbour.refilled);
        neighbour.tokens = neighbour.tokens.saturating_add(passed).min(burst(standing));
        neighbour.refilled = now;
        let left = neighbour.tokens.checked_sub(cost(standing)).ok_or(Drop::Busy)?;
        if neighbour.circuits >= most {
            return Err(Drop::Busy);
        }
        neighbour.tokens = left;
        neighbour.circuits += 1;
        Ok(())
    }

    pub(crate) fn end(&mut self, peer: PeerId) {
        if let Some(neighbour) = self.known.get_mut(&peer) {
            neighbour.circuits = neighbour.circuits.saturating_sub(1);
        }
    }
}

fn cost(standing: Standing) -> Duration {
    let factor = if standing.hop { HOP_FACTOR } else { 1 };
    Duration::from_secs(1) / (CLIENT_RATE_PER_S * factor)
}

fn burst(standing: Standing) -> Duration {
    let factor = if standing.hop { HOP_FACTOR } else { 1 };
    cost(standing) * (CLIENT_BURST * factor)
}
