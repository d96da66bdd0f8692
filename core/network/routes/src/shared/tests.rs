//! A pair on one LAN: by its story, and any history against what must always hold.

use proptest::prelude::*;

use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 252);
const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// How often each looks.
const STEP: Duration = Duration::from_millis(100);
/// From the holder's last word to the other one's first, and a look.
const TAKEN_WITHIN: Duration = Duration::from_millis(2_200);

/// Two gateways that hear each other, unless the LAN loses it.
struct Lan {
    pair: [Shared; 2],
    lives: [bool; 2],
    now: Instant,
}

impl Lan {
    fn new() -> Self {
        let now = Instant(1_000_000_000);
        let mut pair = MACS.map(|mac| Shared::new(ADDRESS, mac, now));
        pair.iter_mut().for_each(|one| one.set_fit(true, now));
        Self { pair, lives: [true; 2], now }
    }

    /// Time passes; `is_lost` says of each message whether nobody hears it.
    fn run(&mut self, time: Duration, is_lost: &mut dyn FnMut() -> bool) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            for at in 0..2 {
                while let Some(out) = self.pair[at].poll(self.now).filter(|_| self.lives[at]) {
                    let mut messages = vec![(1 - at, out)];
                    while let Some((to, out)) = messages.pop() {
                        if self.lives[to] && !is_lost() {
                            let answer = self.pair[to].handle(&out.message, self.now);
                            messages.extend(answer.map(|out| (1 - to, out)));
                        }
                    }
                }
            }
        }
    }

    fn holders(&self) -> Vec<usize> {
        (0..2).filter(|at| self.lives[*at] && self.pair[*at].holds()).collect()
    }
}

#[test]
fn source_001_14_when_the_holder_falls_silent_the_other_one_has_the_address() {
    let mut lan = Lan::new();
    let heard = &mut || false;
    lan.run(SILENCE - STEP * 2, heard);
    assert_eq!(lan.holders(), [0; 0], "nobody takes it unheard");
    lan.run(TAKEN_WITHIN, heard);
    let holder = lan.holders()[0];
    assert_eq!(lan.holders().len(), 1);
    lan.run(Duration::from_secs(60), heard);
    assert_eq!(lan.holders(), [holder], "and keeps it");
    lan.lives[holder] = false;
    lan.run(TAKEN_WITHIN, heard);
    assert_eq!(lan.holders(), [1 - holder]);
    let now = lan.now;
    lan.pair[holder] = Shared::new(ADDRESS, MACS[holder], now);
    lan.pair[holder].set_fit(true, now);
    lan.lives[holder] = true;
    lan.run(Duration::from_secs(60), heard);
    assert_eq!(lan.holders(), [1 - holder], "nobody goes back");
    // One that is of no use gives it away.
    let now = lan.now;
    lan.pair[1 - holder].set_fit(false, now);
    lan.run(TAKEN_WITHIN, heard);
    assert_eq!(lan.holders(), [holder]);
}

#[test]
fn source_001_14_who_gives_way_has_it_again_only_if_nobody_took_it() {
    let mut lan = Lan::new();
    let heard = &mut || false;
    lan.run(SILENCE + TAKEN_WITHIN, heard);
    let first = lan.holders()[0];
    let wait = Duration::from_secs(10);
    let now = lan.now;
    lan.pair[first].give_way(wait, now);
    lan.run(ANSWER_WITHIN + STEP * 3, heard);
    assert_eq!(lan.holders(), [1 - first], "without a silence");
    lan.run(Duration::from_secs(60), heard);
    assert_eq!(lan.holders(), [1 - first], "and nobody goes back");
    // Nobody is there who could take it.
    lan.lives[first] = false;
    let now = lan.now;
    lan.pair[1 - first].give_way(wait, now);
    lan.run(wait, heard);
    assert_eq!(lan.holders(), [0; 0]);
    lan.run(TAKEN_WITHIN, heard);
    assert_eq!(lan.holders(), [1 - first]);
}

#[test]
fn who_asks_is_answered_by_the_holder_alone() {
    let mut lan = Lan::new();
    lan.run(SILENCE + TAKEN_WITHIN, &mut || false);
    let holder = lan.holders()[0];
    let mac = [2, 0, 0, 0, 0, 77];
    let sender = Ipv4Addr::new(10, 4, 0, 7);
    let asked =
        Arp { is_reply: false, sender_mac: mac, sender, target_mac: [0; 6], target: ADDRESS };
    let now = lan.now;
    let answer = lan.pair[holder].handle(&asked.write(), now).unwrap();
    let read = Arp::parse(&answer.message).unwrap();
    assert_eq!((answer.to, read.sender_mac, read.sender), (mac, MACS[holder], ADDRESS));
    assert_eq!((read.is_reply, read.target_mac, read.target), (true, mac, sender));
    assert_eq!(lan.pair[1 - holder].handle(&asked.write(), now), None);
    let other = Arp { target: Ipv4Addr::new(10, 4, 0, 253), ..asked };
    assert_eq!(lan.pair[holder].handle(&other.write(), now), None, "for others nothing is said");
    assert_eq!(lan.pair[holder].handle(&[0; 9], now), None);
}

#[test]
fn gw_15_what_a_machine_has_is_never_taken() {
    let mut lan = Lan::new();
    let mac = [2, 0, 0, 0, 0, 77];
    for _ in 0..40 {
        lan.run(STEP, &mut || false);
        for (at, own) in MACS.iter().enumerate() {
            if let State::Asking { .. } = lan.pair[at].state {
                let has = Arp {
                    is_reply: true,
                    sender_mac: mac,
                    sender: ADDRESS,
                    target_mac: *own,
                    target: Ipv4Addr::UNSPECIFIED,
                };
                let now = lan.now;
                lan.pair[at].handle(&has.write(), now);
            }
        }
        assert_eq!(lan.holders(), [0; 0]);
    }
    assert!(lan.pair.iter().any(|one| one.stranger() == Some(mac)), "and it is told");
}

proptest! {
    /// Whatever is lost and whoever dies and comes back: once the LAN works and both live, one of
    /// them holds the address.
    #[test]
    fn source_001_14_any_history_ends_with_one_holder(
        steps in prop::collection::vec((any::<[bool; 2]>(), 0_u64..5_000, 0_u8..100), 0..20),
        seed in any::<u64>(),
    ) {
        let mut lan = Lan::new();
        let mut state = seed | 1;
        for (lives, ms, loss) in steps {
            lan.lives = lives;
            lan.run(Duration::from_millis(ms), &mut || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % 100 < u64::from(loss)
            });
        }
        lan.lives = [true; 2];
        lan.run(SILENCE + TAKEN_WITHIN, &mut || false);
        prop_assert_eq!(lan.holders().len(), 1);
    }
}
