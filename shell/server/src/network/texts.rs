//! What others are told of a node, as text: a thousand nodes that learn of each other are told of
//! it a thousand times (threat CO-10), and it is the same text each time.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::Peer;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A peer as it stands in maps and deltas.
#[derive(Clone, Debug)]
pub(super) struct PeerText(Arc<RawValue>);

impl Serialize for PeerText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

/// The texts that were asked for since their nodes changed last; one for each node at most.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<u64, PeerText>);

impl Texts {
    /// The text of the node with this number, which `make` describes if there is none yet.
    pub(super) fn of(&mut self, id: u64, make: impl FnOnce() -> Peer) -> PeerText {
        let text = || PeerText(to_raw_value(&make()).expect("a peer has text as keys").into());
        self.0.entry(id).or_insert_with(text).clone()
    }

    /// The node changed, came, went or is gone.
    pub(super) fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }
}
