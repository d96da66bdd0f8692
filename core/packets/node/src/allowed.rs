//! Which peer an inner address belongs to: longest-prefix match, both ways.
//!
//! On the way out the destination's owner is whom a packet is sealed for; on the way in the
//! source's owner must be the peer that sealed it (WireGuard paper, section 2, "cryptokey
//! routing"; threat PF-01). One path-compressed binary trie a family, nodes in one vector.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use noise::PeerId;

use crate::config::Prefix;

/// Prefixes that the table holds, at most: 2^20, 48 bytes each, two nodes a prefix.
pub const PREFIXES_MAX: usize = 1 << 20;

const NONE: u32 = u32::MAX;

/// A branch or a prefix of the trie. Keys are left-aligned in 128 bits, so that both families
/// share the code.
#[derive(Clone, Copy, Debug)]
struct Branch {
    key: u128,
    bits: u8,
    owner: Option<PeerId>,
    child: [u32; 2],
}

/// The table. A prefix has one owner; a later insertion of the same prefix takes it over.
#[derive(Clone, Debug)]
pub struct Table {
    branches: Vec<Branch>,
    free: Vec<u32>,
    roots: [u32; 2],
    len: usize,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { branches: Vec::new(), free: Vec::new(), roots: [NONE; 2], len: 0 }
    }

    /// How many prefixes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The owner of the longest prefix that contains `address`. An IPv4-mapped IPv6 address is
    /// an IPv6 address here, as everywhere in WireGuard.
    #[inline]
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Option<PeerId> {
        let (family, key) = key_of(address);
        let mut at = self.roots[family];
        let mut best = None;
        while let Some(branch) = self.branches.get(at as usize) {
            if !covers(branch.key, branch.bits, key) {
                break;
            }
            if branch.owner.is_some() {
                best = branch.owner;
            }
            if branch.bits == 128 {
                break;
            }
            at = branch.child[side(key, branch.bits)];
        }
        best
    }

    /// Gives `prefix` to `owner`, taking it from whoever had it.
    ///
    /// # Errors
    /// [`Full`] where [`PREFIXES_MAX`] other prefixes are held; nothing was changed then.
    pub fn insert(&mut self, prefix: Prefix, owner: PeerId) -> Result<(), Full> {
        if self.len >= PREFIXES_MAX && self.owner_of(prefix).is_none() {
            return Err(Full);
        }
        let (family, key) = key_of(prefix.address());
        let bits = prefix.bits();
        let mut place = Place::Root(family);
        loop {
            let at = self.at(place);
            let Some(branch) = self.branches.get(at as usize).copied() else {
                let new = self.add(Branch { key, bits, owner: Some(owner), child: [NONE; 2] });
                self.set(place, new);
                self.len += 1;
                return Ok(());
            };
            let shared = shared_bits(branch.key, key).min(bits).min(branch.bits);
            if shared == branch.bits && bits == branch.bits {
                self.len += usize::from(branch.owner.is_none());
                self.branches[at as usize].owner = Some(owner);
                return Ok(());
            }
            if shared == branch.bits {
                place = Place::Child(at, side(key, branch.bits));
                continue;
            }
            self.split(
                place,
                at,
                shared,
                Branch { key, bits, owner: Some(owner), child: [NONE; 2] },
            );
            self.len += 1;
            return Ok(());
        }
    }

    /// Takes `prefix` from `owner`; `false` where it was not theirs.
    pub fn remove(&mut self, prefix: Prefix, owner: PeerId) -> bool {
        let (family, key) = key_of(prefix.address());
        let mut path = Vec::new();
        let mut place = Place::Root(family);
        loop {
            let at = self.at(place);
            let Some(branch) = self.branches.get(at as usize).copied() else { return false };
            if !covers(branch.key, branch.bits, key) || branch.bits > prefix.bits() {
                return false;
            }
            path.push(place);
            if branch.bits == prefix.bits() {
                if branch.owner != Some(owner) {
                    return false;
                }
                self.branches[at as usize].owner = None;
                self.len -= 1;
                self.prune(&path);
                return true;
            }
            place = Place::Child(at, side(key, branch.bits));
        }
    }

    /// Takes every prefix from `owner`.
    pub fn remove_owner(&mut self, owner: PeerId) {
        let mut owned = Vec::new();
        self.for_each(|prefix, peer| {
            if peer == owner {
                owned.push(prefix);
            }
        });
        for prefix in owned {
            self.remove(prefix, owner);
        }
    }

    /// Tells every prefix and its owner, IPv4 first, in the order of the addresses, a shorter
    /// prefix before those inside it.
    pub fn for_each(&self, mut tell: impl FnMut(Prefix, PeerId)) {
        for (family, &root) in self.roots.iter().enumerate() {
            let mut stack = vec![root];
            while let Some(at) = stack.pop() {
                let Some(branch) = self.branches.get(at as usize) else { continue };
                let prefix = Prefix::new(address_of(family, branch.key), branch.bits);
                if let (Some(owner), Some(prefix)) = (branch.owner, prefix) {
                    tell(prefix, owner);
                }
                stack.push(branch.child[1]);
                stack.push(branch.child[0]);
            }
        }
    }

    fn owner_of(&self, prefix: Prefix) -> Option<PeerId> {
        let (family, key) = key_of(prefix.address());
        let mut at = self.roots[family];
        while let Some(branch) = self.branches.get(at as usize) {
            if !covers(branch.key, branch.bits, key) || branch.bits > prefix.bits() {
                return None;
            }
            if branch.bits == prefix.bits() {
                return branch.owner;
            }
            at = branch.child[side(key, branch.bits)];
        }
        None
    }

    /// Puts a branching point of `shared` bits at `place`, above `old`, and `new` beside or
    /// upon it.
    fn split(&mut self, place: Place, old: u32, shared: u8, new: Branch) {
        let old_key = self.branches[old as usize].key;
        let at = if shared == new.bits {
            let mut above = new;
            above.child[side(old_key, shared)] = old;
            self.add(above)
        } else {
            let key = new.key & mask(shared);
            let mut fork = Branch { key, bits: shared, owner: None, child: [NONE; 2] };
            fork.child[side(old_key, shared)] = old;
            fork.child[side(new.key, shared)] = self.add(new);
            self.add(fork)
        };
        self.set(place, at);
    }

    /// Removes what no longer holds or divides anything, from the end of `path` upwards.
    fn prune(&mut self, path: &[Place]) {
        for &place in path.iter().rev() {
            let at = self.at(place);
            let branch = self.branches[at as usize];
            let (None, [NONE, heir] | [heir, NONE]) = (branch.owner, branch.child) else {
                return;
            };
            self.set(place, heir);
            self.free.push(at);
        }
    }

    fn at(&self, place: Place) -> u32 {
        match place {
            Place::Root(family) => self.roots[family],
            Place::Child(at, side) => self.branches[at as usize].child[side],
        }
    }

    fn set(&mut self, place: Place, to: u32) {
        match place {
            Place::Root(family) => self.roots[family] = to,
            Place::Child(at, side) => self.branches[at as usize].child[side] = to,
        }
    }

    fn add(&mut self, branch: Branch) -> u32 {
        if let Some(at) = self.free.pop() {
            self.branches[at as usize] = branch;
            return at;
        }
        self.branches.push(branch);
        u32::try_from(self.branches.len() - 1).expect("bounded by PREFIXES_MAX")
    }
}

/// Where a link of the trie stands.
#[derive(Clone, Copy)]
enum Place {
    Root(usize),
    Child(u32, usize),
}

fn key_of(address: IpAddr) -> (usize, u128) {
    match address {
        IpAddr::V4(v4) => (0, u128::from(u32::from(v4)) << 96),
        IpAddr::V6(v6) => (1, u128::from(v6)),
    }
}

fn address_of(family: usize, key: u128) -> IpAddr {
    if family == 0 {
        let bits = u32::try_from(key >> 96).unwrap_or(0);
        IpAddr::V4(Ipv4Addr::from(bits))
    } else {
        IpAddr::V6(Ipv6Addr::from(key))
    }
}

fn mask(bits: u8) -> u128 {
    if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) }
}

fn covers(key: u128, bits: u8, address: u128) -> bool {
    (key ^ address) & mask(bits) == 0
}

fn shared_bits(a: u128, b: u128) -> u8 {
    u8::try_from((a ^ b).leading_zeros()).unwrap_or(128)
}

/// The bit of `key` after the first `bits`; a key of full length has none.
fn side(key: u128, bits: u8) -> usize {
    if bits >= 128 { 0 } else { usize::from((key >> (127 - u32::from(bits))) & 1 == 1) }
}

#[cfg(test)]
mod tests;
