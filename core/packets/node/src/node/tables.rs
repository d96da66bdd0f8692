//! How addresses are rewritten between peers and this machine: by one table for all peers, as a
//! gateway has it whose network is known by an alias, or by one of a peer's own. Where there is
//! none, that is one comparison for each packet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use translate::{Refusal, Table};
use wire::superpacket::Superpacket;

use super::*;

/// The tables, and why packets were not rewritten.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Whether there is any table.
    is_used: bool,
    all: Table,
    own: BTreeMap<PeerId, Table>,
    refused: [u64; Refusal::ALL.len()],
}

impl Tables {
    /// Whether packets of this peer are rewritten.
    #[inline]
    pub(super) fn has(&self, id: PeerId) -> bool {
        self.is_used && self.table(id).is_some()
    }

    /// The table of a peer.
    #[inline]
    pub(super) fn table(&self, id: PeerId) -> Option<&Table> {
        if !self.is_used {
            return None;
        }
        self.own.get(&id).or_else(|| Some(&self.all).filter(|all| !all.is_empty()))
    }

    /// Whose an inner source is to be, as this machine sees it.
    #[inline]
    pub(super) fn source_of(&self, id: PeerId, source: IpAddr) -> IpAddr {
        self.table(id).map_or(source, |table| table.source_of(source))
    }

    /// Rewrites what came from a peer; returns whether it goes on.
    pub(super) fn inward(&mut self, id: PeerId, packet: &mut [u8]) -> bool {
        let result = self.table(id).map_or(Ok(false), |table| table.inward(packet));
        self.note(result.err())
    }

    /// The same of what came as a packet of its own.
    ///
    /// # Errors
    /// [`Reason::NotTranslatedIn`].
    #[inline]
    pub(super) fn admit(&mut self, id: PeerId, packet: &mut [u8]) -> Result<(), Reason> {
        match self.has(id) && !self.inward(id, packet) {
            true => Err(Reason::NotTranslatedIn),
            false => Ok(()),
        }
    }

    /// Rewrites what goes to a peer, which was parsed before, and parses it again.
    ///
    /// # Errors
    /// [`Reason::NotTranslatedOut`].
    pub(super) fn outward<'p>(
        &mut self,
        id: PeerId,
        header: &mut virtio::Header,
        bytes: &'p mut [u8],
    ) -> Result<Superpacket<'p>, Reason> {
        if let Some(table) = self.table(id) {
            match table.outward_super(*header, bytes) {
                Ok(now) => *header = now,
                Err(refusal) => {
                    self.note(Some(refusal));
                    return Err(Reason::NotTranslatedOut);
                }
            }
        }
        superpacket::parse(*header, bytes).map_err(|_| Reason::PacketMalformed)
    }

    fn note(&mut self, refusal: Option<Refusal>) -> bool {
        if let Some(refusal) = refusal {
            self.refused[refusal.number()] += 1;
        }
        refusal.is_none()
    }

    /// Sets a peer's own table; an empty one takes it away.
    pub(super) fn set(&mut self, id: PeerId, table: &Table) {
        match table.is_empty() {
            true => self.own.remove(&id),
            false => self.own.insert(id, table.clone()),
        };
        self.is_used = !self.own.is_empty() || !self.all.is_empty();
    }

    /// A peer is gone, and its number may be another's soon.
    pub(super) fn forget(&mut self, id: PeerId) {
        self.set(id, &Table::default());
    }
}

impl Node {
    /// Sets how addresses are rewritten between this machine and all peers that have no table of
    /// their own ([`PeerChange::translate`]): from now on, also in connections of before.
    pub fn set_translation(&mut self, table: Table) {
        self.tables.all = table;
        self.tables.set(PeerId(u32::MAX), &Table::default());
        // Heads of units are tried again.
        self.rules = self.rules.wrapping_add(1);
    }

    /// How many packets were not rewritten, by why.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().map(|refusal| (refusal, self.tables.refused[refusal.number()]))
    }
}
