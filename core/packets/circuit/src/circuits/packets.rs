//! Packets of this machine on their way into cells: a client's own, and answers for the exit.

use std::net::IpAddr;

use noise::{Instant, PeerId};

use super::{Answer, CircuitId, Circuits, Claim, leave, of_local};
use crate::{Drop, EXIT_ADDRESS};

impl Circuits {
    /// Whether a packet that the machine sends belongs here: it comes from a circuit's own address,
    /// or is an answer for the exit.
    #[inline]
    #[must_use]
    pub fn claims(&self, source: IpAddr, destination: IpAddr) -> Option<Claim> {
        if self.own.is_empty() && !self.is_exit {
            return None;
        }
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
            return None;
        };
        if destination == EXIT_ADDRESS && self.is_exit {
            return Some(Claim::Answer);
        }
        of_local(source).map(Claim::Own)
    }

    /// Takes a packet of this machine for one of its circuits. Returns to whom it goes, and how
    /// long its frame is: [`Circuits::write`] then fills that.
    ///
    /// # Errors
    /// The reason, which is counted.
    pub fn plan(&mut self, id: CircuitId, len: usize) -> Result<(PeerId, usize), Drop> {
        let circuit = self.own.get(&id).ok_or(Drop::NoCircuit);
        let planned = circuit.and_then(|circuit| {
            let entry = circuit.entry.as_ref().ok_or(Drop::NoCircuit)?;
            Ok((entry.peer, circuit.frame_len(len)?))
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
