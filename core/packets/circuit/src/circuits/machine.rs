//! What this machine itself sends through a circuit: destinations that lead into one, whoever asks.

use std::net::IpAddr;

use wire::prefix::Prefix;

use super::{CircuitId, Circuits};

/// No circuit has this number: what is claimed for it is dropped, and counted.
const NONE: CircuitId = CircuitId(0);

/// Which packets of the machine go through a circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The machine's own addresses, one of which these packets have as their source and answers are
    /// for.
    addresses: Vec<IpAddr>,
    /// The circuit; while there is none, what would go through it goes nowhere.
    pub(crate) circuit: Option<CircuitId>,
    /// The longest first, each with whether it leads into the circuit.
    routes: Vec<(Prefix, bool)>,
}

impl Machine {
    /// `into` leads into the circuit, `beside` does not; the longer prefix counts, and of two
    /// equal ones that of `into`.
    #[must_use]
    pub fn new(
        addresses: Vec<IpAddr>,
        circuit: Option<CircuitId>,
        into: &[Prefix],
        beside: &[Prefix],
    ) -> Self {
        let of = |list: &[Prefix], leads| list.iter().map(move |p| (*p, leads)).collect::<Vec<_>>();
        let mut routes = of(into, true);
        routes.extend(of(beside, false));
        routes.sort_by_key(|(prefix, leads)| (u8::MAX - prefix.bits(), !leads));
        Self { addresses, circuit, routes }
    }

    /// Whom an answer is for, of this version; none if the machine has no such address.
    pub(super) fn address(&self, is_six: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == is_six)
    }

    fn leads(&self, to: IpAddr) -> Option<bool> {
        let found = self.routes.iter().find(|(prefix, _)| prefix.contains(to));
        found.map(|(_, leads)| *leads)
    }

    /// The circuit that a packet belongs to, if it leads into one.
    pub(super) fn claims(&self, source: IpAddr, to: IpAddr) -> Option<CircuitId> {
        let is_ours = self.address(source.is_ipv6()) == Some(source);
        let is_ours = is_ours && self.leads(to) == Some(true);
        is_ours.then(|| self.circuit.unwrap_or(NONE))
    }

    /// Whether something may come from there through the circuit: an exit is nobody of the
    /// network, and pretends to be none. Errors come from routers anywhere else.
    pub(super) fn hears(&self, from: IpAddr, is_error: bool) -> bool {
        self.leads(from).unwrap_or(is_error)
    }
}

impl Circuits {
    /// What the machine itself sends through a circuit from now on.
    pub fn set_machine(&mut self, machine: Option<Machine>) {
        self.machine = machine;
    }
}
