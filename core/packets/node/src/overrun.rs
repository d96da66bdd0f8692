//! The judgement that more is sent than can be taken, as a peer reports it.
//!
//! A machine can be slower than its network: what it has no time to read is lost in its socket, and
//! nobody but itself knows. Its reports tell, as they tell of any full queue. TCP slows down by
//! what is lost; who sends datagrams without pace has to be made to wait. That holds up all that
//! this machine sends, so a peer is only heeded while nearly all goes to it: what it says then
//! concerns itself.

use link::Overrun;
use noise::PeerId;

/// Of what was sealed for anybody, at least this part must have gone to the peer that complains.
const MOST: u64 = 2;

/// What was reported.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    /// Who reported last, and what had been sealed by then.
    of: Option<(PeerId, u64)>,
    share: Option<f64>,
}

impl Overruns {
    /// A report came, when `sealed` segments had been sealed in all.
    pub(crate) fn note(&mut self, id: PeerId, overrun: Overrun, sealed: u64) {
        let before = self.of.replace((id, sealed)).filter(|(of, _)| *of == id);
        let all = before.map(|(_, before)| sealed.saturating_sub(before));
        // Another peer's report between two of one's own hides the first: then there are two.
        if all.is_some_and(|all| overrun.sent.saturating_mul(MOST) >= all) {
            self.share = Some(overrun.share);
        }
    }

    /// The share that was too much, once a report.
    pub(crate) fn poll(&mut self) -> Option<f64> {
        self.share.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_nearly_all_is_heeded_and_nobody_else() {
        let (one, other) = (PeerId(1), PeerId(2));
        let told = |sent| Overrun { share: 0.25, sent };
        let mut overruns = Overruns::default();
        overruns.note(one, told(900), 1_000);
        assert_eq!(overruns.poll(), None, "of how many is not known yet");
        overruns.note(one, told(900), 2_000);
        assert_eq!((overruns.poll(), overruns.poll()), (Some(0.25), None));
        overruns.note(one, told(400), 3_000);
        assert_eq!(overruns.poll(), None, "most goes elsewhere");
        overruns.note(other, told(900), 4_000);
        overruns.note(one, told(900), 5_000);
        assert_eq!(overruns.poll(), None, "two complain");
    }
}
