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
    choices_of("10.20.0.0/16", gateways)
}

fn choices_of(text: &str, gateways: &[Gateway]) -> (Choices, Prefix) {
    let prefix = prefix(text);
    let mut choices = Choices::default();
    choices.set(&BTreeMap::from([(prefix, gateways.to_vec())]), START);
    (choices, prefix)
}

/// Exits that are reached directly, with these round trips in milliseconds.
fn exits(rtts_ms: &[(Gateway, u32)]) -> Choices {
    let gateways: Vec<Gateway> = rtts_ms.iter().map(|(gateway, _)| *gateway).collect();
    let (mut choices, _) = choices_of("0.0.0.0/0", &gateways);
    for (gateway, ms) in rtts_ms {
        choices.handle_health(*gateway, Health::Direct, at(0));
        choices.handle_rtt(*gateway, Some(ms * 1_000), at(0));
    }
    choices
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

#[test]
fn of_exits_that_are_reached_alike_the_nearest_is_chosen_and_of_equals_the_lower_number() {
    let chosen = |rtts: &[(Gateway, u32)]| changes(&mut exits(rtts), at(0));
    assert_eq!(chosen(&[(3, 80), (7, 12)]), [Some(7)]);
    assert_eq!(chosen(&[(7, 12), (3, 80)]), [Some(7)], "in whatever order");
    assert_eq!(chosen(&[(3, 15), (7, 9)]), [Some(3)], "one power of two");
    // A path that is better in kind comes first, and what is not known last.
    let mut relayed = exits(&[(3, 80), (7, 12)]);
    relayed.handle_health(7, Health::Relayed, at(0));
    assert_eq!(changes(&mut relayed, at(0)), [Some(3)]);
    let mut unknown = exits(&[(3, 80), (7, 12)]);
    unknown.handle_rtt(7, None, at(0));
    assert_eq!(changes(&mut unknown, at(0)), [Some(3)]);
    // When the one in use dies, the nearest of the others takes over.
    let mut three = exits(&[(3, 80), (5, 200), (7, 12), (9, 40)]);
    assert_eq!(changes(&mut three, at(0)), [Some(7)]);
    three.handle_health(7, Health::Dead, at(1_000));
    assert_eq!(changes(&mut three, at(2_000)), [Some(9)]);
}

#[test]
fn an_exit_that_works_is_left_for_one_that_was_twice_as_near_for_a_while() {
    let mut choices = exits(&[(3, 40), (7, 90)]);
    assert_eq!(changes(&mut choices, at(0)), [Some(3)]);
    choices.handle_rtt(7, Some(20_000), at(1_000));
    assert_eq!(changes(&mut choices, at(100_000)), [], "half is not less than half");
    choices.handle_rtt(7, Some(19_999), at(101_000));
    assert_eq!(changes(&mut choices, at(130_999)), []);
    assert_eq!(choices.poll_timeout(at(130_999)), Some(at(131_000)));
    // One that is less near for a moment begins anew.
    choices.handle_rtt(7, Some(25_000), at(130_999));
    choices.handle_rtt(7, Some(15_000), at(130_999));
    assert_eq!(changes(&mut choices, at(160_998)), []);
    assert_eq!(changes(&mut choices, at(160_999)), [Some(7)]);
    // One that fell is waited for longer: after three falls a minute.
    let mut falling = exits(&[(3, 40), (7, 10)]);
    falling.handle_health(7, Health::Dead, at(0));
    assert_eq!(changes(&mut falling, at(0)), [Some(3)]);
    for fall in 1..=2 {
        falling.handle_health(7, Health::Direct, at(fall * 2_000));
        falling.handle_health(7, Health::Dead, at(fall * 2_000 + 1_000));
    }
    falling.handle_health(7, Health::Direct, at(10_000));
    assert_eq!(changes(&mut falling, at(69_999)), []);
    assert_eq!(changes(&mut falling, at(70_000)), [Some(7)]);
}

#[test]
fn a_subnet_is_chosen_alike_by_all_whatever_the_round_trips() {
    for text in ["10.20.0.0/16", "0.0.0.0/1", "::/1", "fd20::/64"] {
        let (mut choices, _) = choices_of(text, &[3, 7]);
        for gateway in [3, 7] {
            choices.handle_health(gateway, Health::Direct, at(0));
        }
        choices.handle_rtt(3, Some(200_000), at(0));
        choices.handle_rtt(7, Some(1_000), at(0));
        assert_eq!(changes(&mut choices, at(0)), [Some(3)], "{text}");
        choices.handle_rtt(7, Some(900), at(1));
        assert_eq!(changes(&mut choices, at(3_600_000)), [], "{text}");
    }
    // Also where the same gateways are exits.
    let both = ["10.20.0.0/16", "0.0.0.0/0", "::/0"].map(|text| (prefix(text), vec![3, 7]));
    let mut choices = Choices::default();
    choices.set(&BTreeMap::from(both), START);
    for (gateway, rtt_us) in [(3, 200_000), (7, 1_000)] {
        choices.handle_health(gateway, Health::Direct, at(0));
        choices.handle_rtt(gateway, Some(rtt_us), at(0));
    }
    while choices.poll_change(at(0)).is_some() {}
    let chosen = ["10.20.0.0/16", "0.0.0.0/0", "::/0"].map(|text| choices.chosen(&prefix(text)));
    assert_eq!(chosen, [Some(3), Some(7), Some(7)]);
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

    /// Any history of exits' round trips, none of which dies: the order in which they are named
    /// does not matter; two moves are no closer than [`HOLD`]; near equals take no turns; and who
    /// was nearer by half for long enough has it.
    #[test]
    fn any_history_of_round_trips_moves_rarely_and_with_a_reason(
        steps in prop::collection::vec((0_u64..4, 0_u32..200, 0_u64..40_000), 1..80),
        reversed in any::<bool>(),
        steady in any::<bool>(),
    ) {
        let mut named = vec![(0, 50), (1, 50), (2, 50), (3, 50)];
        let mut one = exits(&named);
        if reversed {
            named.reverse();
        }
        let mut two = exits(&named);
        prop_assert_eq!(changes(&mut one, at(0)), changes(&mut two, at(0)));
        let everything = prefix("0.0.0.0/0");
        let (mut now, mut moved) = (0, None);
        let mut rtts = [50; 4];
        for (gateway, ms, pause_ms) in steps {
            now += pause_ms;
            // Between 32 and 63 ms none is less than half of another.
            let ms = if steady { 32 + ms % 32 } else { ms };
            let current = one.chosen(&everything).unwrap();
            rtts[usize::try_from(gateway).unwrap()] = ms;
            for choices in [&mut one, &mut two] {
                choices.handle_rtt(gateway, Some(ms * 1_000), at(now));
            }
            let told = changes(&mut one, at(now));
            prop_assert_eq!(&told, &changes(&mut two, at(now)));
            prop_assert!(told.len() <= 1, "{told:?}");
            if let [Some(next)] = told[..] {
                prop_assert!(!steady, "near equals took turns");
                let [is, was] = [next, current].map(|g| rtts[usize::try_from(g).unwrap()]);
                prop_assert!(is * 2 < was, "{is} ms for {was} ms");
                prop_assert!(moved.is_none_or(|before| now - before >= 30_000));
                moved = Some(now);
            }
            prop_assert!(one.poll_timeout(at(now)).is_none_or(|t| t > at(now)));
        }
    }
}
