//! Frames of circuits: the link carries them, and does not look into them.

use super::*;

impl Link {
    /// Sends a frame of circuits of `len` bytes, which `write` fills; if it says no, nothing is
    /// sent. Nothing waits here: what has no session is dropped, and asked for again by its owner.
    /// On the path of every cell.
    ///
    /// # Errors
    /// Why it was not sent.
    #[inline]
    pub fn send_cell<O: Outbox>(
        &mut self,
        len: usize,
        now: Instant,
        out: &mut O,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), Refusal> {
        if let Some(paths) = &mut self.paths {
            paths.note_data(now);
        }
        if len > self.room {
            return Err(Refusal::TooBig);
        }
        let (Some(session), Some(to)) = (self.peer.sealer(now), self.endpoint) else {
            self.want_path();
            return Err(Refusal::NoEndpoint);
        };
        let index = session.index();
        // The peer's Hello is not waited for, since it may be lost, and nothing but what goes here
        // would make it say it again. Whoever is a neighbour of circuits reads frames.
        let frames = self.frames.as_mut().ok_or(Refusal::NoEndpoint)?;
        let gap_ns = frames.sender(index).map_or(0, |sender| sender.gap_ns());
        let total = len + wireguard::OVERHEAD_LEN;
        let slot = out.reserve(&to, total).ok_or(Refusal::NoRoom)?;
        if !write(&mut slot[wireguard::TRANSPORT_HEADER_LEN..][..len]) {
            return Err(Refusal::NoRoom);
        }
        session.seal(slot).map_err(|_| Refusal::Exhausted)?;
        out.commit_paced(gap_ns);
        self.tx_bytes += total as u64;
        self.peer.data_sent(now, 1, len as u64);
        Ok(())
    }

    /// Notes a frame of circuits that came in `datagram` on the session `index`. `false` where we
    /// speak no frames.
    pub fn note_cell(&mut self, index: Index, datagram: &[u8], now: Instant) -> bool {
        let len = datagram.len().saturating_sub(wireguard::OVERHEAD_LEN);
        self.peer.data_received(now, 1, len as u64);
        let counter = wireguard::counter(datagram);
        self.note_received(true, (index, counter), now);
        self.frames.as_mut().map(|frames| frames.note_bare(index, counter, true, now)).is_some()
    }
}
