//! `warren set --circuit-for`: what this machine itself sends to some networks, or to all, goes
//! through a circuit of its own, or nowhere.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use control::{Map, Prefix};
use node::circuit::{CircuitId, Machine};

use crate::Settings;
use crate::circuits::Wanted;
use crate::member::{Daemon, Fault};
use crate::plan::wire_prefix;

/// A circuit that cannot be begun is tried again so often.
const AGAIN: Duration = Duration::from_millis(500);

/// The machine's own circuit, and what the data loop was told of it.
#[derive(Debug, Default)]
pub(super) struct MachineCircuit {
    pub(super) id: Option<u16>,
    told: Option<Machine>,
    tried: Option<Instant>,
    said: Option<String>,
}

impl Daemon {
    /// Has a circuit where one is wanted, and none where none is.
    pub(super) fn keep_machine(&mut self) -> Result<(), Fault> {
        let settings = &self.state.kept.settings;
        let map = self.map.as_deref().filter(|map| map.me.approved);
        let map = map.filter(|_| !settings.circuit_for.is_empty());
        let Some((map, addresses)) = map.and_then(|map| Some((map, own_addresses(map)?))) else {
            let id = self.circuits.machine.id.take();
            self.tell_machine(None)?;
            return id.map_or(Ok(()), |id| self.end_kept(id));
        };
        let into: Vec<node::Prefix> = settings.circuit_for.iter().map(wire_prefix).collect();
        let beside = map.ranges.iter().chain(&self.plan.routes).map(wire_prefix);
        let beside: Vec<node::Prefix> = beside.collect();
        let is_due = self.circuits.machine.tried.is_none_or(|at| at.elapsed() >= AGAIN);
        if self.circuits.machine.id.is_none() && is_due {
            self.circuits.machine.tried = Some(Instant::now());
            let opened = self.open_wanted(&Wanted { again: true, ..Wanted::default() })?;
            let said = opened
                .as_ref()
                .err()
                .map(|why| format!("nothing leaves that is led by circuit (--circuit-for): {why}"));
            if let Some(why) = said.as_ref().filter(|_| self.circuits.machine.said != said) {
                tracing::warn!("{why}");
            }
            self.circuits.machine.said = said;
            self.circuits.machine.id = opened.ok().map(|id| id.0);
        }
        let circuit = self.circuits.machine.id.map(CircuitId);
        self.tell_machine(Some(Machine::new(addresses, circuit, &into, &beside)))
    }

    fn tell_machine(&mut self, machine: Option<Machine>) -> Result<(), Fault> {
        if self.circuits.machine.told == machine {
            return Ok(());
        }
        let told = machine.clone();
        self.remote.call(move |desk| desk.node().0.set_circuit_machine(machine))?;
        self.circuits.machine.told = told;
        Ok(())
    }

    /// Ends a circuit that was kept up.
    pub(super) fn end_kept(&mut self, id: u16) -> Result<(), Fault> {
        self.circuits.wanted.remove(&id);
        Ok(self.remote.call(move |desk| {
            let (node, clock, _) = desk.node();
            node.close_circuit(CircuitId(id), true, clock.now);
        })?)
    }

    /// What a user should know of what the machine itself sends through circuits.
    pub(crate) fn circuit_trouble(&self) -> impl Iterator<Item = &String> {
        let book = &self.circuits.book.said;
        self.circuits.machine.said.iter().chain(self.door_trouble()).chain(book)
    }
}

/// What this machine sends by: the first address of each version.
fn own_addresses(map: &Map) -> Option<Vec<IpAddr>> {
    let first = |is_six| map.me.addresses.iter().copied().find(|a| a.is_ipv6() == is_six);
    let own: Vec<IpAddr> = [first(false), first(true)].into_iter().flatten().collect();
    (!own.is_empty()).then_some(own)
}

impl Settings {
    /// Whether all that this machine sends goes by circuit.
    pub(crate) fn sends_all_by_circuit(&self) -> bool {
        self.circuit_for.iter().any(Prefix::is_default)
    }
}
