//! Small packets that wait for others, and leave as a bundle.

use super::*;

impl Sender {
    /// Lets a small packet wait for others; what waits already and cannot be joined goes first.
    pub(super) fn gather<O: Outbox>(
        &mut self,
        packet: &Superpacket<'_>,
        len: usize,
        (manner, hold): (Manner, Duration),
        way: &mut Way<'_, O>,
        outcome: &mut Outcome,
    ) {
        if !self.gathered.takes(len, manner, !hold.is_zero()) {
            self.close(manner.now_us, way, outcome);
        }
        let number = manner.tag.map(|tag| (tag, self.number(tag, 1)));
        self.gathered.push(len, manner, |out| {
            if let Some((tag, number)) = number {
                Ordered::write_fixed(tag, number, out);
            }
            packet.write_segment(0, &mut out[manner.order_len()..]);
        });
        let waits =
            !hold.is_zero() && !gather::is_urgent(packet.packet(), self.tuning.keystroke_len);
        let wait_us = if waits { hold.as_micros() as u64 } else { 0 };
        self.gathered.set_due(Instant((manner.now_us + wait_us) * 1_000));
    }

    /// Sends the small packets that waited. They leave `now_us`, which is what their delay is of.
    pub(crate) fn close<O: Outbox>(
        &mut self,
        now_us: u64,
        way: &mut Way<'_, O>,
        outcome: &mut Outcome,
    ) {
        let mut gathered = std::mem::take(&mut self.gathered);
        if let Some((plain, manner, count)) = gathered.plain() {
            let manner = Manner { now_us, ..manner };
            let is_bare = count == 1 && manner.tag.is_none() && !manner.protect;
            let result = if is_bare {
                self.bare(plain.len(), manner, way, |out| out.copy_from_slice(plain))
            } else {
                self.piece(plain.len(), manner, way, |out| out.copy_from_slice(plain))
            };
            match result {
                Ok(()) => outcome.sent += count,
                Err(refusal) => outcome.refuse(refusal, count),
            }
            self.bundled += if count > 1 { count } else { 0 };
        }
        gathered.clear();
        self.gathered = gathered;
    }

    /// Sends the small packets that waited bare: on a session on which the peer has not said yet
    /// that it reads frames.
    pub(crate) fn close_bare<O: Outbox>(&mut self, way: &mut Way<'_, O>, outcome: &mut Outcome) {
        let mut gathered = std::mem::take(&mut self.gathered);
        let entries = gathered.bundle().into_iter().flat_map(|bundle| bundle.entries());
        for (_, entry) in entries {
            let is_ordered = frame::is_frame(entry);
            let packet = if is_ordered { &entry[Ordered::FIXED_LEN..] } else { entry };
            self.note_bare(packet.len());
            match way.seal(packet.len(), |out| out.copy_from_slice(packet)) {
                Ok(()) => outcome.sent += 1,
                Err(refusal) => outcome.refuse(refusal, 1),
            }
        }
        gathered.clear();
        self.gathered = gathered;
    }

    /// Gives up the small packets that wait: how many these are.
    pub(crate) fn drop_gathered(&mut self) -> u64 {
        let count = self.gathered.count();
        self.gathered.clear();
        count
    }

    /// Packets that were sent in bundles.
    pub(crate) const fn bundled(&self) -> u64 {
        self.bundled
    }

    /// Small packets that wait for [`Sender::close`].
    pub(crate) const fn gathered(&self) -> u64 {
        self.gathered.count()
    }

    /// When the small packets that wait, if any do, are due for [`Sender::close`].
    pub(crate) fn gathered_until(&self) -> Option<Instant> {
        self.gathered.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sender {
        /// Whether the other end reads bundles.
        pub(crate) const fn sends_bundles(&self) -> bool {
            self.bundles
        }
    }
}
