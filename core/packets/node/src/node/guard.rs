//! The access policy on a packet's way: what is handed in by the machine, and what was opened and
//! has its sender's source, is judged before it goes on.
//!
//! Both ends ask the same filter with the same rules (threat PF-09). A superpacket is judged once,
//! by its first headers, and so is a unit of frames: all its segments are of one flow. Without a
//! policy there is no filter, and the path is what it was but for one comparison.
//!
//! Whatever the rules say, a node that was told what it answers for takes nothing else from peers
//! and sends nothing else to them (threat PF-02): what would be forwarded by the kernel of a
//! machine that forwards for other reasons ends here.

use std::net::IpAddr;

use policy::{BadRules, Direction, Filter, Peer, Rules, Verdict};

use super::*;

/// The owner in tables that tell whether, not whose.
const MARKED: PeerId = PeerId(0);

/// The filter, if there is a policy.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) filter: Option<Box<Filter>>,
    /// Of a network without a policy: what no rule could allow does not come in all the same
    /// (threat PF-17).
    is_open: bool,
    /// What this machine answers for. Where nobody said, that is everything.
    served: Option<allowed::Table>,
    /// Addresses of plain peers whose packets this machine passes on to other peers, and theirs to
    /// them.
    carried: Option<allowed::Table>,
}

impl Guard {
    /// Whether a packet must not go on; the filter has counted why.
    #[inline]
    pub(super) fn refuses(
        &mut self,
        direction: Direction,
        id: PeerId,
        packet: &Packet<'_>,
        allowed: &allowed::Table,
        now: Instant,
    ) -> bool {
        let ends = (packet.source(), packet.destination());
        let (ours, theirs) = match direction {
            Direction::Out => ends,
            Direction::In => (ends.1, ends.0),
        };
        if !self.serves(ours) {
            return !self.passes_on(id, theirs, ours, allowed);
        }
        match &mut self.filter {
            None => false,
            Some(filter) => {
                filter.judge(direction, Peer(id.0), packet, now.0 / 1_000_000) != Verdict::Pass
            }
        }
    }

    /// Whether an address is one that this machine answers for.
    #[inline]
    pub(super) fn serves(&self, address: IpAddr) -> bool {
        self.served.as_ref().is_none_or(|served| served.lookup(address).is_some())
    }

    /// Whether a packet between the peer `id`, which has the address `theirs`, and another peer's
    /// address `other` passes here: one of both is carried. What a carried peer sends is judged
    /// where it goes out to the other one, as what is behind this machine is, and what is sent to
    /// it where it came in.
    #[cold]
    fn passes_on(
        &self,
        id: PeerId,
        theirs: IpAddr,
        other: IpAddr,
        allowed: &allowed::Table,
    ) -> bool {
        let Some(carried) = &self.carried else { return false };
        let is_other = allowed.lookup(other).is_some_and(|owner| owner != id);
        is_other && carried.lookup(theirs).is_some()
    }

    /// Whether the policy lets the packet be compressed that was judged last, and passed.
    #[inline]
    pub(super) fn lets_compress(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.lets_compress())
    }

    /// Whether what `id` sent must not go on: at least the headers of one packet.
    ///
    /// # Errors
    /// [`Reason::InnerMalformed`] and [`Reason::PolicyIn`].
    #[inline]
    pub(super) fn admit(
        &mut self,
        id: PeerId,
        inner: &[u8],
        allowed: &allowed::Table,
        now: Instant,
    ) -> Result<(), Reason> {
        if self.filter.is_none() {
            if !self.is_open && self.served.is_none() {
                return Ok(());
            }
            let to = packet::destination(inner).map_err(|_| Reason::InnerMalformed)?;
            let passes_on = || {
                let source = packet::source(inner);
                source.is_ok_and(|source| self.passes_on(id, source, to, allowed))
            };
            let is_good = !self.is_open || policy::is_unicast(to);
            let passes = is_good && (self.serves(to) || passes_on());
            return if passes { Ok(()) } else { Err(Reason::PolicyIn) };
        }
        let packet = packet::parse_quoted(inner).map_err(|_| Reason::InnerMalformed)?;
        if self.is_multicast(packet.destination()) {
            return self.admit_copy(id, &packet, inner.len(), now);
        }
        match self.refuses(Direction::In, id, &packet, allowed, now) {
            true => Err(Reason::PolicyIn),
            false => Ok(()),
        }
    }

    /// A peer is gone, and its number may be another's soon.
    pub(super) fn forget(&mut self, id: PeerId) {
        if let Some(filter) = &mut self.filter {
            filter.forget(Peer(id.0));
        }
    }
}

/// Asks of what came in a frame whether its source is its sender's (threat PF-01), and whether the
/// policy lets it pass.
pub(super) struct Owner<'a> {
    pub(super) allowed: &'a allowed::Table,
    pub(super) guard: &'a mut Guard,
    pub(super) tables: &'a mut Tables,
    pub(super) turn: &'a mut Turn,
    pub(super) id: PeerId,
    pub(super) now: Instant,
    pub(super) rules: u32,
}

impl Judge for Owner<'_> {
    fn admits(&mut self, packet: &[u8]) -> bool {
        packet::source(packet).is_ok_and(|source| {
            let source = self.tables.source_of(self.id, source);
            self.allowed.lookup(source) == Some(self.id)
        }) && self.guard.admit(self.id, packet, self.allowed, self.now).is_ok()
    }

    fn rewrites(&self) -> bool {
        self.tables.has(self.id)
    }

    fn rewrite(&mut self, packet: &mut [u8]) -> bool {
        self.tables.inward(self.id, packet)
    }

    fn rules(&self) -> u32 {
        self.rules
    }

    fn has_share(&mut self) -> bool {
        self.turn.take(self.now)
    }
}

impl Node {
    /// Sets what this machine answers for: its own addresses and the routes approved for it.
    /// From peers nothing comes in that is for anybody else, and nothing goes out that is from
    /// anybody else, whatever the rules say (threat PF-02). A node that was never told passes
    /// what a plain WireGuard passes.
    ///
    /// # Errors
    /// [`allowed::Full`]; nothing was changed then.
    pub fn set_served(&mut self, prefixes: &[Prefix]) -> Result<(), allowed::Full> {
        let mut served = allowed::Table::new();
        for prefix in prefixes {
            served.insert(*prefix, MARKED)?;
        }
        self.guard.served = Some(served);
        // What was judged before is judged again.
        self.rules = self.rules.wrapping_add(1);
        Ok(())
    }

    /// Sets the addresses of plain peers that this machine carries: what other peers send to them,
    /// and they to others, passes through it. They are to be served as well, and a peer each.
    ///
    /// # Errors
    /// [`allowed::Full`]; nothing was changed then.
    pub fn set_carried(&mut self, prefixes: &[Prefix]) -> Result<(), allowed::Full> {
        let mut carried = allowed::Table::new();
        for prefix in prefixes {
            carried.insert(*prefix, MARKED)?;
        }
        self.guard.carried = (!prefixes.is_empty()).then_some(carried);
        self.rules = self.rules.wrapping_add(1);
        Ok(())
    }

    /// Sets the rules that every inner packet is judged by, and cuts at once every flow that they
    /// would not let begin (threat PF-07); how many those are. `None` is no policy: whatever a
    /// peer may send by its allowed addresses passes. Rules without entries let nothing pass.
    pub fn set_policy(&mut self, rules: Option<Rules>, random: &mut dyn Random) -> usize {
        self.rules = self.rules.wrapping_add(1);
        let Some(rules) = rules else {
            self.guard.filter = None;
            self.guard.is_open = false;
            return 0;
        };
        let filter = self.guard.filter.get_or_insert_with(|| {
            let mut secret = [[0; 8]; 2];
            secret.iter_mut().for_each(|half| random.fill(half));
            Box::new(Filter::new(secret.map(u64::from_le_bytes)))
        });
        filter.set_rules(rules)
    }

    /// Sets what stands in a map, `control::Policy::rules`. How many flows were cut. Where a
    /// network has no policy, all passes that is for a unicast address.
    ///
    /// # Errors
    /// What cannot be read lets nothing pass until something else is set (threat PF-08).
    pub fn set_policy_text(
        &mut self,
        text: &str,
        random: &mut dyn Random,
    ) -> Result<usize, BadRules> {
        match Rules::read(text) {
            Ok(rules) => {
                let is_open = rules.is_none();
                let cut = self.set_policy(rules, random);
                self.guard.is_open = is_open;
                Ok(cut)
            }
            Err(bad) => {
                self.set_policy(Some(Rules::default()), random);
                Err(bad)
            }
        }
    }

    /// The filter, with its rules and what it counted by reason; `None` where there is no policy.
    #[must_use]
    pub fn policy(&self) -> Option<&Filter> {
        self.guard.filter.as_deref()
    }
}
