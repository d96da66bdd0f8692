//! Which relay this node waits on: a near one, and of several that are equally near the one that
//! falls to its key, so that many nodes share them.
//!
//! A relay that is added takes its share of the nodes and moves no others, since each node gives
//! every relay a rank of its own (rendezvous hashing: Thaler and Ravishankar 1998).

use noise::PublicKey;

/// Another relay is nearer if it answers in this share of the time, and by so much.
const NEARER: f64 = 0.66;
const NEARER_BY_US: u64 = 1_000;

/// A relay that answers, and its round trip in microseconds once it is known.
pub type Answering = (u32, Option<u64>);

/// The relay to wait on, and what the choice was made among.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    relay: Option<u32>,
    /// Those whose round trip was known when it was chosen.
    among: Vec<u32>,
}

impl Home {
    /// The relay, by its number.
    #[must_use]
    pub const fn relay(&self) -> Option<u32> {
        self.relay
    }

    /// Chooses again where there is a reason: the one in use is gone, another is nearer, or there
    /// are others than at the last choice. Returns whether it is another one.
    pub fn choose(&mut self, own: &PublicKey, answering: &[Answering]) -> bool {
        let before = self.relay;
        let Some(&(first, _)) = answering.first() else {
            // While none answers, the one of before is where we come back to.
            return false;
        };
        let mut among: Vec<u32> =
            answering.iter().filter(|(_, rtt)| rtt.is_some()).map(|(id, _)| *id).collect();
        among.sort_unstable();
        let known = || answering.iter().filter_map(|&(id, rtt_us)| Some((id, rtt_us?)));
        let Some(best_us) = known().map(|(_, rtt_us)| rtt_us).min() else {
            if !answering.iter().any(|(id, _)| Some(*id) == before) {
                self.relay = Some(first);
            }
            return self.relay != before;
        };
        let is_near = |rtt_us: u64| {
            best_us as f64 > rtt_us as f64 * NEARER || rtt_us < best_us + NEARER_BY_US
        };
        let stays = known().any(|(id, rtt_us)| Some(id) == before && is_near(rtt_us));
        if !stays || among != self.among {
            let near = known().filter(|(_, rtt_us)| is_near(*rtt_us)).map(|(id, _)| id);
            self.relay = near.max_by_key(|id| rank(own, *id));
            self.among = among;
        }
        self.relay != before
    }
}

/// How much a relay is this node's: a sum of key and number, mixed so that neighbouring numbers
/// are far apart. Who chooses a key to be on a certain relay does no harm.
fn rank(own: &PublicKey, relay: u32) -> u64 {
    let bytes = own.0.iter().copied().chain(relay.to_le_bytes());
    let sum = wire::fnv::sum(bytes);
    let mixed = (sum ^ (sum >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u16) -> PublicKey {
        let [low, high] = number.to_le_bytes();
        PublicKey([low, high, 7, 9].repeat(8).try_into().unwrap())
    }

    fn chosen(own: u16, answering: &[Answering]) -> Option<u32> {
        let mut home = Home::default();
        home.choose(&key(own), answering);
        home.relay()
    }

    #[test]
    fn the_nearest_is_chosen_and_left_only_for_one_that_is_nearer_by_far() {
        let mut home = Home::default();
        assert!(home.choose(&key(1), &[(0, Some(30_000)), (1, Some(12_000)), (2, Some(5_000))]));
        assert_eq!(home.relay(), Some(2));
        let drifting = [(0, Some(30_000)), (1, Some(4_000)), (2, Some(5_500))];
        assert!(!home.choose(&key(1), &drifting), "not nearer by a third");
        assert!(home.choose(&key(1), &[(0, Some(30_000)), (1, Some(3_000)), (2, Some(5_500))]));
        assert_eq!(home.relay(), Some(1));
        assert!(!home.choose(&key(1), &[]), "it comes back to that one");
        assert!(home.choose(&key(1), &[(0, None)]) && home.relay() == Some(0));
    }

    #[test]
    fn source_000_5_15_relays_equally_near_share_the_nodes_and_a_new_one_moves_only_its_share() {
        let two = [(0, Some(400)), (1, Some(700))];
        let three = [(0, Some(400)), (1, Some(700)), (2, Some(300))];
        let mut counts = [0; 3];
        for own in 0..3_000 {
            let (before, after) = (chosen(own, &two), chosen(own, &three));
            assert!(after == before || after == Some(2), "{before:?} {after:?}");
            counts[after.unwrap() as usize] += 1;
            // A node that runs comes to the same as one that starts.
            let mut home = Home::default();
            home.choose(&key(own), &two);
            home.choose(&key(own), &three);
            assert_eq!(home.relay(), after);
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn noise_of_the_round_trips_moves_nobody() {
        let mut home = Home::default();
        home.choose(&key(3), &[(0, Some(10_000)), (1, Some(10_300))]);
        let first = home.relay();
        for (a, b) in [(9_000, 11_000), (11_000, 9_000), (8_000, 11_500), (12_000, 9_000)] {
            assert!(!home.choose(&key(3), &[(0, Some(a)), (1, Some(b))]), "{a} {b}");
            assert_eq!(home.relay(), first);
        }
    }
}
