//! What became of packets on their way out.

/// Why packets on their way out were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows where the peer is: no endpoint configured, and it was not heard from.
    NoEndpoint,
    /// The outbox takes no datagram of that size.
    NoRoom,
    /// The session's counter came to its end in the middle of a superpacket.
    Exhausted,
    /// It does not fit through the path in use: [`crate::Link::room`] says what does.
    TooBig,
}

/// What became of packets on their way out, counted in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Sealed and committed to the outbox.
    pub sent: u64,
    /// Now waiting for a session.
    pub staged: u64,
    /// Dropped from the front of the stage, to make room.
    pub overflowed: u64,
    /// Dropped from the stage, because the peer does not answer.
    pub expired: u64,
    /// Dropped, with the reason.
    pub refused: Option<(Refusal, u64)>,
}

impl Outcome {
    /// Counts packets that were dropped for a reason; of two reasons the later stands for both.
    pub(crate) fn refuse(&mut self, refusal: Refusal, segments: u64) {
        let before = self.refused.map_or(0, |(_, before)| before);
        self.refused = Some((refusal, before + segments));
    }
}
