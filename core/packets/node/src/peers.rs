//! The table of links, by number and by key.

use std::collections::BTreeMap;

use link::Link;
use noise::{PeerId, PublicKey};

/// Links in slots; a slot is used again after its peer was removed.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Option<Box<Link>>>,
    free: Vec<PeerId>,
    by_key: BTreeMap<PublicKey, PeerId>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn id(&self, key: &PublicKey) -> Option<PeerId> {
        self.by_key.get(key).copied()
    }

    #[inline]
    pub(crate) fn link(&mut self, id: PeerId) -> Option<&mut Link> {
        self.slots.get_mut(id.0 as usize)?.as_deref_mut()
    }

    pub(crate) fn link_ref(&self, id: PeerId) -> Option<&Link> {
        self.slots.get(id.0 as usize)?.as_deref()
    }

    /// Every number in use, in the order of the keys.
    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.by_key.values().copied().collect()
    }

    /// Every link, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerId, &Link)> {
        self.by_key.values().filter_map(|&id| {
            let link = self.link_ref(id)?;
            Some((id, link))
        })
    }

    /// A number for a new peer; `make` builds its link. The key must be unknown.
    pub(crate) fn add(&mut self, key: PublicKey, make: impl FnOnce(PeerId) -> Link) -> PeerId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            PeerId(u32::try_from(self.slots.len() - 1).expect("bounded by PEERS_MAX"))
        });
        self.slots[id.0 as usize] = Some(Box::new(make(id)));
        self.by_key.insert(key, id);
        id
    }

    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Box<Link>> {
        let link = self.slots.get_mut(id.0 as usize)?.take()?;
        self.by_key.remove(link.peer().key());
        self.free.push(id);
        Some(link)
    }
}
