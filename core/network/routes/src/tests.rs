//! Failover by its story, and any history against what must always hold.

use proptest::prelude::*;

use super::*;

impl Choices {
    /// Whether anything can be reached in `prefix`: its gateway is not dead.
    fn is_reachable(&self, prefix: &Prefix) -> bool {
        let chosen = self.chosen(prefix).and_then(|g| self.gateways.get(&g));
        chosen.is_some_and(|record| record.health != Health::Dead)
    }
}

const START: Instant = Instant(1_000_000_000_000);

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn choices(gateways: &[Gateway]) -> (Choices, Prefix) {
    let lan = prefix("10.20.0.0/16");
    let mut choices = Choices::default();
    choices.set(&BTreeMap::from([(lan, gateways.to_vec())]), START);
    (choices, lan)
}

fn at(ms: u64) -> Instant {
    START + Duration::from_millis(ms)
}

/// All changes at `now`, as gateways.
fn changes(choices: &mut Choices, now: Instant) -> Vec<Option<Gateway>> {
    core::iter::from_fn(|| choices.poll_change(now)).map(|c| c.gateway).collect()
}

#[test]
fn gw_06_a_gateway_that_dies_is_replaced_after_its_grace_and_not_returned_to() {
    let (mut choices, lan) = choices(&[7, 3]);
    choices.handle_health(7, Health::Direct, at(0));
    choices.handle_health(3, Health::Direct, at(0));
    assert_eq!(changes(&mut choices, at(0)), [Some(3)], "the lower number");
    choices.handle_health(3, Health::Dead, at(10_000));
    assert_eq!(changes(&mut choices, at(10_999)), []);
    assert_eq!(choices.poll_timeout(at(10_999)), Some(at(11_000)));
    assert_eq!(changes(&mut choices, at(11_000)), [Some(7)]);
    choices.handle_health(3, Health::Direct, at(12_000));
    for minute in 1..60 {
        assert_eq!(changes(&mut choices, at(minute * 60_000)), [], "no way back");
    }
    choices.handle_health(7, Health::Dead, at(4_000_000));
    assert_eq!(changes(&mut choices, at(4_001_000)), [Some(3)]);
    assert!(choices.is_reachable(&lan));
}

/// Gateways have no role that two could believe to have: whom a user goes through is its own to
/// say, and each goes through one, whatever another sees.
#[test]
fn gw_07_users_who_see_otherwise_go_through_one_gateway_each_and_stay() {
    let (mut one, lan) = choices(&[3, 7]);
    let (mut other, _) = choices(&[3, 7]);
    for user in [&mut one, &mut other] {
        user.handle_health(3, Health::Direct, at(0));
        user.handle_health(7, Health::Direct, at(0));
        assert_eq!(changes(user, at(0)), [Some(3)], "who sees the same chooses the same");
    }
    // The network is cut between 3 and the other; one still sees both.
    other.handle_health(3, Health::Dead, at(10_000));
    assert_eq!(
        (changes(&mut one, at(11_000)), changes(&mut other, at(11_000))),
        (vec![], vec![Some(7)])
    );
    assert!(one.is_reachable(&lan) && other.is_reachable(&lan));
    // Then between 7 and one, and then it is whole again: nobody moves without a reason.
    one.handle_health(7, Health::Dead, at(20_000));
    assert_eq!((changes(&mut one, at(30_000)), changes(&mut other, at(30_000))), (vec![], vec![]));
    one.handle_health(7, Health::Direct, at(40_000));
    other.handle_health(3, Health::Direct, at(40_000));
    for minute in 1..60 {
        let now = at(60_000 * minute);
        assert_eq!((changes(&mut one, now), changes(&mut other, now)), (vec![], vec![]));
    }
}

#[test]
fn a_lost_probe_is_no_failure() {
    let (mut choices, lan) = choices(&[3, 7]);
    choices.handle_health(3, Health::Direct, at(0));
    choices.handle_health(7, Health::Direct, at(0));
    assert_eq!(changes(&mut choices, at(0)), [Some(3)]);
    for n in 1..100 {
        choices.handle_health(3, Health::Dead, at(n * 2_000));
        assert_eq!(changes(&mut choices, at(n * 2_000 + 900)), []);
        choices.handle_health(3, Health::Direct, at(n * 2_000 + 900));
        assert_eq!(changes(&mut choices, at(n * 2_000 + 1_900)), []);
    }
    assert_eq!(choices.chosen(&lan), Some(3));
}

#[test]
fn gw_06_both_down_is_told_and_nothing_is_led_elsewhere() {
    let (mut choices, lan) = choices(&[3, 7]);
    assert_eq!(changes(&mut choices, at(0)), [Some(3)], "somebody, so that nothing leaks");
    assert!(!choices.is_reachable(&lan));
    choices.handle_health(7, Health::Relayed, at(100));
    assert_eq!(changes(&mut choices, at(1_000)), [Some(7)]);
    assert!(choices.is_reachable(&lan));
    choices.handle_health(7, Health::Dead, at(60_000));
    assert_eq!(changes(&mut choices, at(90_000)), []);
    assert!(!choices.is_reachable(&lan) && choices.chosen(&lan) == Some(7));
    // who comes back first has it
    choices.handle_health(3, Health::Relayed, at(91_000));
    assert_eq!(changes(&mut choices, at(91_000)), [Some(3)]);
}

#[test]
fn a_direct_path_is_worth_a_move_when_it_holds() {
    let (mut choices, _) = choices(&[3, 7]);
    choices.handle_health(3, Health::Relayed, at(0));
    assert_eq!(changes(&mut choices, at(0)), [Some(3)]);
    choices.handle_health(7, Health::Direct, at(1_000));
    assert_eq!(changes(&mut choices, at(30_999)), []);
    assert_eq!(choices.poll_timeout(at(30_999)), Some(at(31_000)));
    assert_eq!(changes(&mut choices, at(31_000)), [Some(7)]);
    choices.handle_health(7, Health::Relayed, at(40_000));
    assert_eq!(changes(&mut choices, at(400_000)), [], "equals do not move");
}

#[test]
fn prefixes_come_and_go() {
    let (mut choices, lan) = choices(&[3]);
    choices.handle_health(3, Health::Direct, at(0));
    assert_eq!(changes(&mut choices, at(0)), [Some(3)]);
    let other = prefix("fd20::/64");
    choices.set(&BTreeMap::from([(other, vec![3, 9])]), at(1_000));
    let all: Vec<Change> = core::iter::from_fn(|| choices.poll_change(at(1_000))).collect();
    let expected = [(lan, None), (other, Some(3))];
    assert_eq!(all, expected.map(|(prefix, gateway)| Change { prefix, gateway }));
    assert_eq!((choices.chosen(&lan), choices.is_reachable(&lan)), (None, false));
    // the gateway itself is withdrawn
    choices.set(&BTreeMap::from([(other, vec![9])]), at(2_000));
    assert_eq!(changes(&mut choices, at(2_000)), [Some(9)]);
    choices.set(&BTreeMap::new(), at(3_000));
    choices.set(&BTreeMap::from([(other, vec![9])]), at(3_000));
    assert_eq!(changes(&mut choices, at(3_000)), [Some(9)], "gone and back between two looks");
    choices.handle_health(77, Health::Direct, at(3_000));
}

#[test]
fn gw_06_a_flapping_gateway_moves_a_prefix_ever_more_rarely() {
    for period_s in [2_u64, 5, 20, 40, 90] {
        let (mut choices, _) = choices(&[3, 7]);
        choices.handle_health(7, Health::Relayed, at(0));
        let mut moves = 0;
        for second in 0..3600 {
            let health = if second / period_s % 2 == 0 { Health::Direct } else { Health::Dead };
            choices.handle_health(3, health, at(second * 1_000));
            moves += changes(&mut choices, at(second * 1_000)).len();
            moves += changes(&mut choices, at(second * 1_000 + 999)).len();
        }
        assert!(moves <= 10, "{moves} moves in an hour with a period of {period_s} s");
    }
}

fn health() -> impl Strategy<Value = Health> {
    prop::sample::select(vec![Health::Dead, Health::Relayed, Health::Direct])
}

proptest! {
    /// Any history: whoever is chosen is a candidate; nobody dead stays chosen beyond the grace
    /// while another lives; the order in which candidates are named does not matter.
    #[test]
    fn gw_06_any_history_keeps_what_must_hold(
        steps in prop::collection::vec((0_u64..4, health(), 0_u64..60_000), 1..80),
        reversed in any::<bool>(),
    ) {
        let mut candidates = vec![0, 1, 2, 3];
        let (mut one, lan) = choices(&candidates);
        if reversed {
            candidates.reverse();
        }
        let (mut two, _) = choices(&candidates);
        let (mut now, mut known) = (0, [(Health::Dead, 0); 4]);
        for (gateway, health, pause_ms) in steps {
            now += pause_ms;
            for choices in [&mut one, &mut two] {
                choices.handle_health(gateway, health, at(now));
            }
            let slot = &mut known[usize::try_from(gateway).unwrap()];
            if slot.0 != health {
                *slot = (health, now);
            }
            prop_assert_eq!(changes(&mut one, at(now)), changes(&mut two, at(now)));
            prop_assert_eq!(changes(&mut one, at(now)), [], "one look is enough");
            let chosen = one.chosen(&lan).unwrap();
            let (health, since) = known[usize::try_from(chosen).unwrap()];
            let graced = now - since < 1_000;
            if health == Health::Dead && !graced {
                prop_assert!(known.iter().all(|(h, _)| *h == Health::Dead));
            }
            prop_assert_eq!(one.is_reachable(&lan), health != Health::Dead);
            prop_assert!(one.poll_timeout(at(now)).is_none_or(|t| t > at(now)));
        }
    }
}
