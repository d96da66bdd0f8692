//! What of one turn is each peer's.
//!
//! A datagram may hold 64 packets, each of which costs what a datagram of its own would, and
//! compressed it has 200 bytes. So while others are heard, too, a peer's bundles yield so many
//! packets in a turn and no more (threat BC-04); the rest is counted and dropped. Who is alone has
//! all of it.

use std::time::Duration;

use super::*;

/// Packets of bundles that one peer may bring in one turn of the loop while others wait.
pub const SHARE_MAX: u32 = 256;
/// Others wait if one was heard so lately.
const LATELY: Duration = Duration::from_millis(10);

/// Who was heard lately, and what each used of this turn. Turns are told apart by their time.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Who was heard last, and who before that one.
    last: Option<(PeerId, Instant)>,
    other: Option<(PeerId, Instant)>,
    /// By the peer's number: the last turn in which others waited, and packets in it.
    used: Vec<(Instant, u32)>,
}

impl Turn {
    /// An authentic datagram of this peer came.
    #[inline]
    pub(super) fn note(&mut self, id: PeerId, now: Instant) {
        if self.last.is_some_and(|(last, _)| last != id) {
            self.other = self.last;
        }
        self.last = Some((id, now));
    }

    /// Whether the peer that was noted last may bring one more packet in this turn.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let (Some((id, _)), Some((_, at))) = (self.last, self.other) else { return true };
        if now.since(at) > LATELY {
            return true;
        }
        let place = id.0 as usize;
        if self.used.len() <= place {
            self.used.resize(place + 1, (Instant::ZERO, 0));
        }
        let (turn, packets) = &mut self.used[place];
        if *turn != now {
            *turn = now;
            *packets = 0;
        }
        *packets = packets.saturating_add(1);
        *packets <= SHARE_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Machine, address, packet_to, settle};
    use super::SHARE_MAX;

    /// A hub, and two that it knows.
    fn three() -> [Machine; 3] {
        let mut all = [1, 2, 3].map(Machine::new);
        all.iter_mut().for_each(|machine| machine.node.set_frames(true));
        let [hub, one, two] = &mut all;
        for (number, peer) in [(2, &mut *one), (3, &mut *two)] {
            hub.knows(peer, &[&format!("10.0.0.{number}/32")]);
            peer.knows(hub, &["10.0.0.1/32"]);
            peer.send(&packet_to(number, 1, 1));
            settle(peer, hub);
        }
        hub.delivered.clear();
        all
    }

    /// How many of 640 small packets the hub takes of what one sends in a turn.
    fn takes(hub: &mut Machine, one: &mut Machine) -> u32 {
        let small: Vec<Vec<u8>> = (0..640).map(|mark| packet_to(2, 1, mark as u8)).collect();
        one.send_together(&small);
        for (_, datagram) in std::mem::take(&mut one.out.sent) {
            hub.receive(address(2), &datagram);
        }
        let taken = hub.delivered.len() as u32;
        hub.delivered.clear();
        taken
    }

    #[test]
    fn bc_04_a_peer_has_its_share_of_a_turn_while_others_wait_and_all_of_it_alone() {
        let [mut hub, mut one, mut two] = three();
        let pass = |hub: &mut Machine, one: &mut Machine, two: &mut Machine, ms: u64| {
            for machine in [hub, one, two] {
                machine.pass(Duration::from_millis(ms));
            }
        };
        pass(&mut hub, &mut one, &mut two, 1_000);
        assert_eq!(takes(&mut hub, &mut one), 640, "alone");
        two.send(&packet_to(3, 1, 9));
        settle(&mut two, &mut hub);
        hub.delivered.clear();
        assert_eq!(takes(&mut hub, &mut one), SHARE_MAX, "another waits");
        two.send(&packet_to(3, 1, 9));
        settle(&mut two, &mut hub);
        assert_eq!(hub.delivered.len(), 1, "and has its own");
        hub.delivered.clear();
        assert_eq!(takes(&mut hub, &mut one), 0, "it is the same turn");
        pass(&mut hub, &mut one, &mut two, 1);
        assert_eq!(takes(&mut hub, &mut one), SHARE_MAX, "the next one");
        pass(&mut hub, &mut one, &mut two, 20);
        assert_eq!(takes(&mut hub, &mut one), 640, "alone again");
        let pieces = hub.node.pieces();
        assert_eq!(pieces.crowded, u64::from(3 * 640 - 2 * SHARE_MAX));
        assert_eq!(pieces.taken, pieces.ended());
    }
}
