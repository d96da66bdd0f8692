//! Longest-prefix match: the kernel's hand-written cases (threats A.1), and a property test
//! against a list that is searched from end to end.

use proptest::prelude::*;

use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);
const C: PeerId = PeerId(3);
const D: PeerId = PeerId(4);
const E: PeerId = PeerId(5);
const F: PeerId = PeerId(6);
const G: PeerId = PeerId(7);
const H: PeerId = PeerId(8);

fn filled() -> Table {
    let mut table = Table::new();
    for (text, owner) in [
        ("192.168.4.0/24", A),
        ("192.168.4.4/32", B),
        ("192.168.0.0/16", C),
        ("192.95.5.64/27", D),
        ("192.95.5.65/27", C),
        ("0.0.0.0/0", E),
        ("::/0", E),
        ("64.15.112.0/20", G),
        ("64.15.123.211/25", H),
        ("10.0.0.0/25", A),
        ("10.0.0.128/25", B),
        ("10.1.0.0/30", A),
        ("10.1.0.4/30", B),
        ("10.1.0.8/29", C),
        ("10.1.0.16/29", D),
        ("2607:5300:6006:6b00::c05f:543/128", D),
        ("2607:5300:6006:6b00::/64", C),
        ("2607:5300:6006:6b00::/56", F),
        ("2404:6800:4004:800::/55", G),
        ("2404:6800:4004:806::1006/128", H),
        ("2404:6800:4004:806::1234:5678/65", A),
        ("2404:6800:4004:0:0:aaaa::/96", B),
    ] {
        table.insert(prefix(text), owner).expect("room");
    }
    table
}

#[test]
fn pf_01_the_longest_prefix_wins() {
    let table = filled();
    for (text, owner) in [
        ("192.168.4.20", A),
        ("192.168.4.0", A),
        ("192.168.4.4", B),
        ("192.168.200.182", C),
        ("192.95.5.68", C),
        ("192.95.5.96", E),
        ("64.15.116.26", G),
        ("64.15.127.3", G),
        ("64.15.123.128", H),
        ("64.15.123.127", G),
        ("10.0.0.52", A),
        ("10.0.0.220", B),
        ("10.1.0.2", A),
        ("10.1.0.6", B),
        ("10.1.0.10", C),
        ("10.1.0.20", D),
        ("10.1.0.24", E),
        ("255.255.255.255", E),
        ("0.0.0.0", E),
        ("2607:5300:6006:6b00::c05f:543", D),
        ("2607:5300:6006:6b00::c02e:1ee", C),
        ("2607:5300:6006:6b01::", F),
        ("2607:5300:6006:6aff:ffff::", E),
        ("2404:6800:4004:806::1006", H),
        ("2404:6800:4004:806:0:1234:0:5678", A),
        ("2404:6800:4004:806:8000::", G),
        ("2404:6800:4004:9ff::", G),
        ("2404:6800:4004:a00::", E),
        ("2404:6800:4004::aaaa:0:1", B),
        ("2404:6800:4004::aaaa:1:0:0", E),
        ("::", E),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", E),
        // An IPv4-mapped address is not the IPv4 address.
        ("::ffff:192.168.4.4", E),
    ] {
        assert_eq!(table.lookup(address(text)), Some(owner), "{text}");
    }
}

#[test]
fn without_default_routes_a_stranger_has_no_owner() {
    let mut table = filled();
    assert!(table.remove(prefix("0.0.0.0/0"), E));
    assert!(table.remove(prefix("::/0"), E));
    for text in ["192.95.5.96", "8.8.8.8", "10.0.1.0", "2404:6800:4004:a00::", "::"] {
        assert_eq!(table.lookup(address(text)), None, "{text}");
    }
}

#[test]
fn a_peer_that_is_removed_uncovers_what_lies_beneath() {
    let mut table = filled();
    let before = table.len();
    table.remove_owner(A);
    assert_eq!(table.len(), before - 4);
    assert_eq!(table.lookup(address("192.168.4.20")), Some(C));
    assert_eq!(table.lookup(address("192.168.4.4")), Some(B));
    assert_eq!(table.lookup(address("10.0.0.52")), Some(E));
    assert_eq!(table.lookup(address("2404:6800:4004:806:0:1234:0:5678")), Some(G));
    for owner in [B, C, D, E, F, G, H] {
        table.remove_owner(owner);
    }
    assert!(table.is_empty());
    assert_eq!(table.roots, [NONE; 2]);
    assert_eq!(table.free.len(), table.branches.len(), "every branch was given back");
}

#[test]
fn a_later_insertion_takes_a_prefix_over() {
    let mut table = Table::new();
    table.insert(prefix("10.0.0.0/8"), A).expect("room");
    table.insert(prefix("10.255.1.2/8"), B).expect("room");
    assert_eq!(table.len(), 1);
    assert_eq!(table.lookup(address("10.1.1.1")), Some(B));
    assert!(!table.remove(prefix("10.0.0.0/8"), A), "it is not theirs any more");
    assert!(!table.remove(prefix("10.0.0.0/9"), B));
    assert!(table.remove(prefix("10.0.0.0/8"), B));
    assert_eq!(table.lookup(address("10.1.1.1")), None);
}

#[test]
fn telling_gives_exactly_what_was_put_in() {
    let table = filled();
    let mut told = Vec::new();
    table.for_each(|prefix, owner| told.push((prefix.to_string(), owner)));
    assert_eq!(told.len(), table.len());
    assert_eq!(told[0], ("0.0.0.0/0".to_owned(), E));
    assert!(told.contains(&("192.95.5.64/27".to_owned(), C)), "the later insertion won");
    assert!(told.contains(&("2404:6800:4004:806::/65".to_owned(), A)));
}

/// The same table as a list: slow, and plainly right.
#[derive(Default)]
struct List(Vec<(Prefix, PeerId)>);

impl List {
    fn insert(&mut self, prefix: Prefix, owner: PeerId) {
        self.0.retain(|entry| entry.0 != prefix);
        self.0.push((prefix, owner));
    }

    fn lookup(&self, address: IpAddr) -> Option<PeerId> {
        let containing = self.0.iter().filter(|(prefix, _)| {
            let same = prefix.address().is_ipv4() == address.is_ipv4();
            same && Prefix::new(address, prefix.bits()) == Some(*prefix)
        });
        containing.max_by_key(|(prefix, _)| prefix.bits()).map(|entry| entry.1)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Prefix, PeerId),
    Remove(Prefix, PeerId),
    RemoveOwner(PeerId),
}

/// Few distinct bits, so that prefixes nest, meet and collide often.
fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0_u32..64, 0_u32..26).prop_map(|(bits, shift)| IpAddr::V4(Ipv4Addr::from(bits << shift))),
        (0_u128..64, 0_u32..122)
            .prop_map(|(bits, shift)| IpAddr::V6(Ipv6Addr::from(bits << shift))),
    ]
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    (addresses(), 0_u8..=128).prop_map(|(address, bits)| {
        let bits = if address.is_ipv4() { bits % 33 } else { bits };
        Prefix::new(address, bits).expect("bits fit the family")
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let owner = || (0_u32..6).prop_map(PeerId);
    prop_oneof![
        6 => (prefixes(), owner()).prop_map(|(prefix, owner)| Step::Insert(prefix, owner)),
        2 => (prefixes(), owner()).prop_map(|(prefix, owner)| Step::Remove(prefix, owner)),
        1 => owner().prop_map(Step::RemoveOwner),
    ]
}

proptest! {
    #[test]
    fn pf_01_the_trie_agrees_with_a_list(
        steps in proptest::collection::vec(steps(), 1..120),
        probes in proptest::collection::vec(addresses(), 1..60),
    ) {
        let (mut table, mut list) = (Table::new(), List::default());
        for step in steps {
            match step {
                Step::Insert(prefix, owner) => {
                    table.insert(prefix, owner).expect("room");
                    list.insert(prefix, owner);
                }
                Step::Remove(prefix, owner) => {
                    let had = list.0.contains(&(prefix, owner));
                    list.0.retain(|entry| *entry != (prefix, owner));
                    prop_assert_eq!(table.remove(prefix, owner), had);
                }
                Step::RemoveOwner(owner) => {
                    table.remove_owner(owner);
                    list.0.retain(|entry| entry.1 != owner);
                }
            }
            prop_assert_eq!(table.len(), list.0.len());
            let live = table.branches.len() - table.free.len();
            prop_assert!(live <= 2 * table.len(), "{} branches for {}", live, table.len());
        }
        for (prefix, _) in list.0.clone() {
            prop_assert_eq!(table.lookup(prefix.address()), list.lookup(prefix.address()));
        }
        for probe in probes {
            prop_assert_eq!(table.lookup(probe), list.lookup(probe));
        }
    }
}

/// The same table as one map for each length of prefix: plainly right, and fast enough for many.
#[derive(Default)]
struct Maps(std::collections::BTreeMap<Prefix, PeerId>);

impl Maps {
    fn lookup(&self, address: IpAddr) -> Option<PeerId> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let mut lengths = (0..=bits).rev().filter_map(|bits| Prefix::new(address, bits));
        lengths.find_map(|prefix| self.0.get(&prefix).copied())
    }
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn drawn(state: &mut u64, v4: bool) -> (u128, u8) {
    let key = u128::from(draw(state)) << 64 | u128::from(draw(state));
    let bits = 1 + (draw(state) % if v4 { 32 } else { 128 }) as u8;
    (key, bits)
}

fn whole(key: u128, v4: bool) -> IpAddr {
    match v4 {
        true => IpAddr::V4(Ipv4Addr::from_bits((key >> 96) as u32)),
        false => IpAddr::V6(Ipv6Addr::from_bits(key)),
    }
}

/// The kernel's random test (threats A.1): 2000 peers, 400 routes, 100 mutations of each route,
/// both families, and queries near and far from them; then half the peers go.
#[test]
fn pf_01_eighty_thousand_routes_of_two_thousand_peers_agree_with_maps() {
    const PEERS: u64 = 2000;
    let (mut table, mut maps, mut state) = (Table::new(), Maps::default(), 0x5eed);
    let mut keys = Vec::new();
    for v4 in [true, false] {
        for _ in 0..400 {
            let (route, _) = drawn(&mut state, v4);
            for mutation in 0..100 {
                // A mutation keeps some leading bits of its route and draws the rest anew.
                let (other, bits) = drawn(&mut state, v4);
                let kept = (draw(&mut state) % if v4 { 33 } else { 129 }) as u32;
                let mask = u128::MAX.checked_shl(128 - kept).unwrap_or(0);
                let key = if mutation == 0 { route } else { route & mask | other & !mask };
                let prefix = Prefix::new(whole(key, v4), bits).expect("bits fit the family");
                let owner = PeerId((draw(&mut state) % PEERS) as u32);
                table.insert(prefix, owner).expect("room");
                maps.0.insert(prefix, owner);
                keys.push((key, v4));
            }
        }
    }
    assert_eq!(table.len(), maps.0.len());
    for round in 0..2 {
        for query in 0..120_000 {
            let (key, v4) = keys[(draw(&mut state) % keys.len() as u64) as usize];
            let noise = u128::from(draw(&mut state)) << 64 >> (draw(&mut state) % 128);
            let address = whole(if query % 4 == 0 { key } else { key ^ noise }, v4);
            assert_eq!(table.lookup(address), maps.lookup(address), "round {round}: {address}");
        }
        for owner in (0..PEERS as u32).step_by(2).map(PeerId) {
            table.remove_owner(owner);
        }
        maps.0.retain(|_, owner| owner.0 % 2 == 1);
        assert_eq!(table.len(), maps.0.len());
    }
}

#[test]
fn a_full_table_says_so_and_keeps_what_it_has() {
    let mut table = Table::new();
    for number in 0..PREFIXES_MAX as u32 {
        table.insert(Prefix::host(Ipv4Addr::from_bits(number).into()), A).expect("room");
    }
    let newcomer = prefix("2001:db8::/32");
    assert_eq!(table.insert(newcomer, B), Err(Full));
    assert_eq!(table.lookup(newcomer.address()), None);
    // One that is held changes hands, and one that goes makes room.
    assert_eq!(table.insert(prefix("0.0.0.9/32"), B), Ok(()));
    assert_eq!((table.len(), table.lookup(address("0.0.0.9"))), (PREFIXES_MAX, Some(B)));
    assert!(table.remove(prefix("0.0.0.8/32"), A));
    assert_eq!(table.insert(newcomer, B), Ok(()));
}
