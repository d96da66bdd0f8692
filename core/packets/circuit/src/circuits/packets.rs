//! Packets of this machine on their way into cells: a client's own, and answers for the exit.

use std::net::IpAddr;

use noise::{Instant, PeerId};

use super::{Answer, CircuitId, Circuits, Claim, leave, of_local};
use crate::{Drop, EXIT_ADDRESS, rewrite};

impl Circuits {
    /// Whether a packet that the machine sends belongs here: it comes from a circuit's own address,
    /// or is an answer for the exit.
    #[inline]
    #[must_use]
    pub fn claims(&self, source: IpAddr, destination: IpAddr) -> Option<Claim> {
        if self.own.is_empty() && !self.is_exit && self.machine.is_none() {
            return None;
        }
        if self.is_exit && rewrite::four(destination) == Some(EXIT_ADDRESS) {
            return Some(Claim::Answer);
        }
        let machine = || self.machine.as_ref()?.claims(source, destination);
        of_local(source).or_else(machine).map(Claim::Own)
    }

    /// Takes a packet of this machine for one of its circuits: its length, and whether it is of
    /// IPv6. Returns to whom it goes, and how long its frame is: [`Circuits::write`] then fills
    /// that.
    ///
    /// # Errors
    /// The reason, which is counted.
    pub fn plan(
        &mut self,
        id: CircuitId,
        len: usize,
        is_six: bool,
    ) -> Result<(PeerId, usize), Drop> {
        let circuit = self.own.get(&id).ok_or(Drop::NoCircuit);
        let planned = circuit.and_then(|circuit| {
            let entry = circuit.entry.as_ref().ok_or(Drop::NoCircuit)?;
            let frame_len = circuit.frame_len(len)?;
            let has_way = !is_six || circuit.leads_six();
            has_way.then_some((entry.peer, frame_len)).ok_or(Drop::NoSix)
        });
        planned.inspect_err(|&reason| self.counters.drop(reason))
    }

    /// The largest packet that a circuit of ours takes.
    #[must_use]
    pub fn room(&self, id: CircuitId) -> Option<usize> {
        self.own.get(&id).map(|circuit| circuit.room())
    }

    /// Writes a packet of `len` bytes, which `write` puts in its place, as the frame planned.
    ///
    /// # Errors
    /// The reason, which is counted.
    pub fn write(
        &mut self,
        id: CircuitId,
        len: usize,
        frame: &mut [u8],
        write: impl FnOnce(&mut [u8]),
        now: Instant,
    ) -> Result<(), Drop> {
        let written = self.own.get_mut(&id).ok_or(Drop::NoCircuit).and_then(|circuit| {
            let address = circuit.address().ok_or(Drop::NoCircuit)?;
            let mut good = Ok(());
            circuit.write_packet(
                len,
                frame,
                |place| {
                    write(place);
                    good = leave(place, address);
                },
                now,
            )?;
            good
        });
        match written {
            Ok(()) => self.counters.packets_out += 1,
            Err(reason) => self.counters.drop(reason),
        }
        written
    }

    /// Takes an answer that came for the exit, and translates it in place. Returns where it
    /// goes.
    ///
    /// # Errors
    /// The reason, which is counted; with [`Drop::TooBig`] how large it may be.
    pub fn plan_answer(
        &mut self,
        packet: &mut [u8],
        now: Instant,
    ) -> Result<Answer, (Drop, Option<usize>)> {
        let hops = &self.hops;
        let planned = match self.exit.handle_in(packet, |id| Some(hops.get(&id)?.address), now) {
            Ok((id, len)) => match hops.get(&id) {
                Some(hop) => hop
                    .frame_len(len)
                    .map(|frame_len| Answer { circuit: id, to: hop.previous.peer, frame_len, len })
                    .map_err(|reason| (reason, Some(hop.room()))),
                None => Err((Drop::NoFlow, None)),
            },
            Err(reason) => Err((reason, None)),
        };
        planned.inspect_err(|&(reason, _)| self.counters.drop(reason))
    }

    /// Writes that answer as the frame planned.
    ///
    /// # Errors
    /// The reason, which is counted.
    pub fn write_answer(
        &mut self,
        circuit: u32,
        packet: &[u8],
        frame: &mut [u8],
        now: Instant,
    ) -> Result<(), Drop> {
        let hop = self.hops.get_mut(&circuit).ok_or(Drop::NoFlow);
        let written = hop.and_then(|hop| hop.write_packet(packet, frame, now));
        match written {
            Ok(()) => self.counters.packets_out += 1,
            Err(reason) => self.counters.drop(reason),
        }
        written
    }
}
