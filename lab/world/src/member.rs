//! A node in the books, as the model has it.

use std::net::IpAddr;

use noise::PublicKey;

/// A node in the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its number in the books.
    pub(super) id: u64,
    /// Whose machine it is: the machine's place in the world, or behind all of them if nobody
    /// has its keys any more.
    pub(super) machine: usize,
    pub(super) machine_key: PublicKey,
    /// The join key by which it came last.
    pub(super) by: u64,
    pub(super) name: String,
    pub(super) addresses: [IpAddr; 2],
    pub(super) key: PublicKey,
    pub(super) user: Option<&'static str>,
    pub(super) tags: Vec<String>,
    pub(super) ephemeral: bool,
    pub(super) approved: bool,
    pub(super) expired: bool,
}

impl Member {
    pub(super) const fn address(&self, v6: bool) -> IpAddr {
        self.addresses[v6 as usize]
    }

    pub(super) const fn is_good(&self) -> bool {
        self.approved && !self.expired
    }
}
