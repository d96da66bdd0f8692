//! Judgements, one table for each kind of name, and any bytes at all.

use proptest::prelude::*;

use super::*;
use crate::query::tests::ask;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn settings() -> Settings {
    let host =
        |label: &str, list: &[&str]| (label.to_owned(), list.iter().map(|a| address(a)).collect());
    Settings {
        domain: "warren.internal".to_owned(),
        own: "me".to_owned(),
        hosts: vec![
            host("me", &["100.64.0.1", "fd77::1"]),
            host("robot", &["100.64.0.2", "fd77::2"]),
            host("old", &["100.64.9.3"]),
            host("wpad", &["100.64.0.66"]),
        ],
        ranges: vec!["100.64.0.0/10".parse().unwrap(), "fd77::/48".parse().unwrap()],
        resolvers: vec![address("192.0.2.53"), address("100.64.0.1")],
        zones: vec![
            ("example".to_owned(), vec![address("192.0.2.1")]),
            ("corp.example".to_owned(), vec![address("192.0.2.2"), address("192.0.2.3")]),
            ("deep.warren.internal".to_owned(), vec![address("192.0.2.4")]),
            ("nobody.example".to_owned(), vec![]),
        ],
        records: Vec::new(),
        aliases: Vec::new(),
        serial: 7,
    }
}

/// What came back: rcode, authoritative, and the answers and authority as type and data.
type Said = (u16, bool, Vec<(u16, Vec<u8>)>, Vec<(u16, Vec<u8>)>);

/// Reads an answer of ours, whose records all point into the question.
fn read(bytes: &[u8]) -> Said {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!(word(2) & 0x8000, 0x8000);
    assert_eq!(word(4), 1);
    let (_, mut at) = Name::read(bytes, 12).unwrap();
    at += 4;
    let mut sections = [Vec::new(), Vec::new()];
    for (section, count) in sections.iter_mut().zip([word(6), word(8)]) {
        for _ in 0..count {
            let pointer = usize::from(word(at) & 0x3fff);
            assert!(word(at) >= 0xc000 && Name::read(bytes, pointer).is_ok());
            let len = usize::from(word(at + 10));
            section.push((word(at + 2), bytes[at + 12..at + 12 + len].to_vec()));
            at += 12 + len;
        }
    }
    let opt = if word(10) == 1 { 11 } else { 0 };
    assert_eq!(at + opt, bytes.len());
    let [answers, authority] = sections;
    (word(2) & 0xf, word(2) & 0x400 != 0, answers, authority)
}

fn said(names: &Names, name: &str, kind: Kind) -> Said {
    match names.judge(&ask(name, kind, None), Transport::Udp) {
        Verdict::Reply(bytes) => read(&bytes),
        other => panic!("{name}: {other:?}"),
    }
}

const NOERROR: u16 = 0;
const NXDOMAIN: u16 = 3;
const REFUSED: u16 = 5;

#[test]
fn names_have_addresses_by_type_and_no_capitals() {
    let names = Names::new(settings()).unwrap();
    for name in ["robot.warren.internal", "ROBOT.Warren.INTERNAL"] {
        let (rcode, authoritative, answers, _) = said(&names, name, Kind::A);
        assert_eq!((rcode, authoritative), (NOERROR, true));
        assert_eq!(answers, [(1, vec![100, 64, 0, 2])]);
        let (_, _, answers, _) = said(&names, name, Kind::AAAA);
        let IpAddr::V6(a) = address("fd77::2") else { unreachable!() };
        assert_eq!(answers, [(28, a.octets().to_vec())]);
    }
    let query = ask("RoBoT.warren.INTERNAL", Kind::A, None);
    let Verdict::Reply(reply) = names.judge(&query, Transport::Udp) else { panic!() };
    assert_eq!(reply[..2], query[..2]);
    assert_eq!(reply[12..query.len()], query[12..], "the question in the client's capitals");
}

#[test]
fn dn_06_no_data_where_the_name_exists_and_nxdomain_only_where_nothing_does() {
    let names = Names::new(settings()).unwrap();
    for (name, kind, rcode) in [
        ("old.warren.internal", Kind::AAAA, NOERROR),
        ("robot.warren.internal", Kind(16), NOERROR),
        ("robot.warren.internal", Kind(65), NOERROR),
        ("robot.warren.internal", Kind::SOA, NOERROR),
        ("warren.internal", Kind::A, NOERROR),
        ("nobody.warren.internal", Kind::A, NXDOMAIN),
        ("nobody.warren.internal", Kind::AAAA, NXDOMAIN),
        ("a.robot.warren.internal", Kind::A, NXDOMAIN),
        ("_dmarc.warren.internal", Kind(16), NXDOMAIN),
        ("1.0.64.100.in-addr.arpa", Kind::A, NOERROR),
        ("0.64.100.in-addr.arpa", Kind::PTR, NOERROR),
        ("5.64.100.in-addr.arpa", Kind::PTR, NXDOMAIN),
        ("70.100.in-addr.arpa", Kind::A, NOERROR),
        ("9.0.64.100.in-addr.arpa", Kind::PTR, NXDOMAIN),
        ("0.0.0.0.0.0.0.0.7.7.d.f.ip6.arpa", Kind::A, NOERROR),
        ("1.0.0.0.0.0.0.0.0.7.7.d.f.ip6.arpa", Kind::A, NXDOMAIN),
    ] {
        let (found, authoritative, answers, authority) = said(&names, name, kind);
        assert_eq!((found, authoritative), (rcode, true), "{name} {kind:?}");
        assert!(answers.is_empty() && authority.len() == 1 && authority[0].0 == 6, "{name}");
        assert!(authority[0].1.ends_with(&crate::reply::ABSENT_S.to_be_bytes()), "{name}");
    }
}

#[test]
fn addresses_have_names_and_zones_have_tops() {
    let names = Names::new(settings()).unwrap();
    let mut robot = Vec::new();
    Name::from_text("robot.warren.internal").unwrap().write(&mut robot);
    let v6 = "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.7.7.d.f.ip6.arpa";
    for name in ["2.0.64.100.in-addr.arpa", v6] {
        assert_eq!(said(&names, name, Kind::PTR).2, [(12, robot.clone())]);
    }
    for top in ["warren.internal", "64.100.in-addr.arpa", "0.0.0.0.0.0.0.0.7.7.d.f.ip6.arpa"] {
        let (_, _, soa, _) = said(&names, top, Kind::SOA);
        assert!(soa.len() == 1 && soa[0].0 == 6);
        assert!(soa[0].1.windows(4).any(|w| w == [0, 0, 0, 7]), "the serial");
        assert!(said(&names, top, Kind::NS).2[0].1.starts_with(b"\x02me\x06warren"));
    }
}

fn to(names: &Names, name: &str) -> Option<Vec<String>> {
    match names.judge(&ask(name, Kind::A, Some(1232)), Transport::Udp) {
        Verdict::Forward(forward) => Some(forward.to.iter().map(ToString::to_string).collect()),
        _ => None,
    }
}

#[test]
fn the_longest_zone_is_asked_and_never_we_ourselves() {
    let names = Names::new(settings()).unwrap();
    let asked = |name: &str| to(&names, name).unwrap_or_default().join(" ");
    assert_eq!(asked("www.debian.org"), "192.0.2.53", "but not our own address");
    assert_eq!(asked("a.example"), "192.0.2.1");
    assert_eq!(asked("A.Corp.EXAMPLE"), "192.0.2.2 192.0.2.3");
    assert_eq!(asked("corp.example"), "192.0.2.2 192.0.2.3");
    assert_eq!(asked("xcorp.example"), "192.0.2.1", "labels, not letters");
    assert_eq!(asked("a.deep.warren.internal"), "192.0.2.4");
    assert_eq!(asked("4.3.2.1.in-addr.arpa"), "192.0.2.53");
    assert_eq!(asked("100.in-addr.arpa"), "192.0.2.53", "more than our range");
    assert_eq!(said(&names, "a.nobody.example", Kind::A).0, REFUSED);
    let alone = Names::new(Settings { resolvers: vec![], ..settings() }).unwrap();
    assert_eq!(said(&alone, "www.debian.org", Kind::A).0, REFUSED);
    let bare = Names::new(Settings { domain: String::new(), ..settings() }).unwrap();
    assert_eq!(to(&bare, "robot.warren.internal").unwrap(), ["192.0.2.53"]);
}

#[test]
fn dn_08_a_name_of_ours_is_never_handed_on() {
    let mut settings = settings();
    settings.zones = vec![
        ("internal".to_owned(), vec![address("192.0.2.9")]),
        ("warren.internal".to_owned(), vec![address("192.0.2.9")]),
        ("in-addr.arpa".to_owned(), vec![address("192.0.2.9")]),
    ];
    let names = Names::new(settings).unwrap();
    for name in
        ["x.warren.internal", "warren.internal", "a.b.warren.internal", "9.9.100.100.in-addr.arpa"]
    {
        for kind in [1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 48, 65, 251, 252, 255, 999] {
            let verdict = names.judge(&ask(name, Kind(kind), None), Transport::Tcp);
            assert!(matches!(verdict, Verdict::Reply(_)), "{name} {kind}");
        }
    }
    assert_eq!(to(&names, "x.internal").unwrap(), ["192.0.2.9"]);
}

#[test]
fn dn_03_labels_that_programs_look_for_are_nobodys() {
    let names = Names::new(settings()).unwrap();
    for label in RESERVED {
        let mut with = settings();
        with.hosts.push((label.to_uppercase(), vec![address("100.64.0.67")]));
        let with = Names::new(with).unwrap();
        let name = format!("{label}.warren.internal");
        assert_eq!(said(&with, &name, Kind::A).0, NXDOMAIN);
        assert_eq!(said(&names, &name, Kind::A).0, NXDOMAIN);
    }
    assert_eq!(said(&names, "66.0.64.100.in-addr.arpa", Kind::PTR).0, NXDOMAIN);
}

#[test]
fn dn_05_any_transfers_and_other_classes_are_refused() {
    let names = Names::new(settings()).unwrap();
    for kind in [Kind::ANY, Kind::AXFR, Kind::IXFR] {
        for name in ["robot.warren.internal", "www.debian.org"] {
            let (rcode, _, answers, authority) = said(&names, name, kind);
            assert_eq!((rcode, answers.len() + authority.len()), (REFUSED, 0));
        }
    }
    let mut chaos = ask("version.bind", Kind(16), None);
    let at = chaos.len() - 1;
    chaos[at] = 3;
    let Verdict::Reply(reply) = names.judge(&chaos, Transport::Udp) else { panic!() };
    assert_eq!(read(&reply).0, REFUSED);
}

#[test]
fn dn_05_what_is_too_long_for_a_datagram_is_marked_and_goes_over_a_stream() {
    let mut settings = settings();
    let many = (1..100).map(|n| IpAddr::from([100, 64, 7, n])).collect();
    settings.hosts.push(("many".to_owned(), many));
    let names = Names::new(settings).unwrap();
    for (opt, limit) in [(None, 512), (Some(700), 700), (Some(4096), 1232)] {
        let query = ask("many.warren.internal", Kind::A, opt);
        let Verdict::Reply(short) = names.judge(&query, Transport::Udp) else { panic!() };
        assert!(short.len() <= limit && short[2] & 2 == 2, "the TC bit");
        assert_eq!(read(&short).2.len(), 0);
        let Verdict::Reply(long) = names.judge(&query, Transport::Tcp) else { panic!() };
        assert!(long[2] & 2 == 0 && read(&long).2.len() == 99);
    }
}

#[test]
fn dn_06_faults_are_answered_with_a_header() {
    let names = Names::new(settings()).unwrap();
    let mut update = ask("robot.warren.internal", Kind::A, Some(1232));
    update[2] |= 0x28;
    let Verdict::Reply(reply) = names.judge(&update, Transport::Udp) else { panic!() };
    assert_eq!((reply.len(), reply[2] & 0xf8, reply[3]), (12, 0xa8, 4));
    let mut versioned = ask("robot.warren.internal", Kind::A, Some(1232));
    let at = versioned.len() - 5;
    versioned[at] = 1;
    let Verdict::Reply(reply) = names.judge(&versioned, Transport::Udp) else { panic!() };
    assert_eq!((reply.len(), reply[3] & 0xf, reply[11], reply[17]), (23, 0, 1, 1), "BADVERS");
}

#[test]
fn settings_that_cannot_hold_are_told() {
    let wrong = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        Names::new(settings).unwrap_err().to_string()
    };
    let said = wrong(&|s| s.domain = "a..b\u{1b}[31m".to_owned());
    assert!(said.contains("is no domain name") && !said.contains('\u{1b}'), "{said}");
    wrong(&|s| s.zones.push((String::new(), vec![])));
    wrong(&|s| s.hosts.push(("x".repeat(64), vec![])));
}

proptest! {
    /// Any bytes, and any change of a good query: no panic, and an answer is one to the question.
    #[test]
    fn dn_06_nothing_that_arrives_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in 0_usize..60, value in any::<u8>(), kind in 0_u16..300,
        name in prop::sample::select(
            vec!["robot.warren.internal", "a.example", "3.9.64.100.in-addr.arpa"],
        ),
    ) {
        let names = Names::new(settings()).unwrap();
        let mut changed = ask(name, Kind(kind), Some(1232));
        if let Some(byte) = changed.get_mut(at) {
            *byte = value;
        }
        for bytes in [bytes, changed] {
            for transport in [Transport::Udp, Transport::Tcp] {
                match names.judge(&bytes, transport) {
                    Verdict::Reply(reply) => {
                        prop_assert!(reply.len() <= 1232 && reply[..2] == bytes[..2]);
                        prop_assert!(reply[2] & 0x80 != 0);
                    }
                    Verdict::Forward(forward) => prop_assert!(!forward.to.is_empty()),
                    Verdict::Drop(_) => {}
                }
            }
        }
    }
}

#[test]
fn names_that_are_no_nodes_are_answered_below_our_domain_alone() {
    let mut settings = settings();
    let record = |name: &str, list: &[&str]| -> (String, Vec<IpAddr>) {
        (name.to_owned(), list.iter().map(|a| address(a)).collect())
    };
    settings.records = vec![
        record("nas.warren.internal", &["10.7.0.10"]),
        record("grafana.lab.warren.internal", &["10.7.0.11", "fd00::11"]),
        record("robot.warren.internal", &["10.7.0.66"]),
        record("wpad.warren.internal", &["10.7.0.66"]),
        record("bank.example", &["10.7.0.66"]),
    ];
    let names = Names::new(settings).unwrap();
    let said = |name: &str, kind: Kind| {
        let bytes = ask(name, kind, None);
        match names.judge(&bytes, Transport::Udp) {
            Verdict::Reply(reply) => {
                let (rcode, _, answers, _) = read(&reply);
                Some((rcode, answers.into_iter().map(|(_, data)| data).collect::<Vec<_>>()))
            }
            _ => None,
        }
    };
    assert_eq!(said("nas.warren.internal", Kind::A), Some((0, vec![vec![10, 7, 0, 10]])));
    assert_eq!(said("NAS.warren.internal", Kind::AAAA), Some((0, vec![])));
    let two = said("grafana.lab.warren.internal", Kind::AAAA).unwrap();
    assert_eq!((two.0, two.1.len()), (0, 1));
    assert_eq!(said("lab.warren.internal", Kind::A), Some((0, vec![])), "what is above is there");
    assert_eq!(said("other.warren.internal", Kind::A).unwrap().0, 3);
    let robot = Some((0, vec![vec![100, 64, 0, 2]]));
    assert_eq!(said("robot.warren.internal", Kind::A), robot, "a node's name is the node's");
    assert_eq!(said("wpad.warren.internal", Kind::A).unwrap().0, 3, "DN-03");
    assert_eq!(said("bank.example", Kind::A), None, "names of others are asked of others");
}
