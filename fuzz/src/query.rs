//! A DNS query, and what a resolver answers to it.

use std::net::{IpAddr, SocketAddr};

use dns::{Names, Outcome, Pending, Settings, Transport, Verdict};
use noise::Instant;

use crate::Seeded;

const RESOLVER: [u8; 4] = [192, 0, 2, 53];

/// The resolver is behind an alias.
fn aliases() -> translate::Table {
    let pair = "192.0.2.0/24=10.0.0.0/24".parse().expect("a pair");
    translate::Table::new(Vec::new(), vec![pair]).expect("a table")
}

fn names() -> Names {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let settings = Settings {
        domain: "warren.internal".to_owned(),
        own: "me".to_owned(),
        hosts: vec![("me".to_owned(), vec![IpAddr::from([100, 64, 0, 1])])],
        ranges: vec![prefix("100.64.0.0/10"), prefix("fd77::/48")],
        resolvers: vec![IpAddr::from(RESOLVER)],
        zones: vec![("corp.example".to_owned(), vec![IpAddr::from([192, 0, 2, 1])])],
        records: vec![("nas.warren.internal".to_owned(), vec![IpAddr::from([10, 7, 0, 10])])],
        aliases: vec![aliases()],
        serial: 1,
    };
    Names::new(settings).expect("names")
}

/// A DNS query. What is answered carries its number, is an answer and fits; what is handed on
/// takes any bytes for an answer without harm, and only a right one closes it.
pub fn query(data: &[u8]) {
    let names = names();
    let mut renamed = data.to_vec();
    names.rename(IpAddr::from(RESOLVER), &mut renamed);
    assert_eq!(renamed.len(), data.len());
    for transport in [Transport::Udp, Transport::Tcp] {
        match names.judge(data, transport) {
            Verdict::Reply(reply) => {
                assert!((12..=1232).contains(&reply.len()) && reply[2] & 0x80 != 0);
                assert_eq!(reply[..2], data[..2]);
                assert_eq!(names.judge(&reply, transport), Verdict::Drop(dns::DropReason::Answer));
            }
            Verdict::Forward(forward) => {
                assert!(!forward.to.is_empty());
                hand_on(&forward, data);
            }
            Verdict::Drop(_) => assert!(data.len() != 12 || data[2] & 0x80 != 0),
        }
    }
}

fn hand_on(forward: &dns::Forward<'_>, data: &[u8]) {
    let mut pending = Pending::default();
    let mut random = Seeded(1);
    let client = SocketAddr::from(([100, 64, 0, 1], 4242));
    let asked = (forward.query.clone(), data);
    let begun = pending.begin((client, ()), asked, forward.to, Instant(1), &mut random);
    let (Outcome::Ask(ask), None) = begun else { panic!("{begun:?}") };
    assert_eq!(ask.bytes[2..], data[2..]);
    let waits = |outcome| matches!(outcome, Outcome::Wait(_));
    assert!(waits(pending.handle_answer(ask.number, data, Instant(1), &mut random)));
    let mut answer = ask.bytes.clone();
    answer[2] = 0x81;
    answer[3] = 0x80;
    answer.extend_from_slice(data);
    match pending.handle_answer(ask.number, &answer, Instant(1), &mut random) {
        Outcome::Reply { bytes, .. } => {
            assert!(bytes[..2] == data[..2] && bytes.len() <= 1232);
        }
        other => panic!("a right answer is taken: {other:?}"),
    }
    assert!(pending.is_empty());
}

/// Queries of every kind.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let question = |name: &[&[u8]], kind: u8, opt: bool| {
        let mut bytes = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(opt)];
        for label in name {
            bytes.push(label.len() as u8);
            bytes.extend_from_slice(label);
        }
        bytes.extend([0, 0, kind, 0, 1]);
        if opt {
            bytes
                .extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
        bytes
    };
    vec![
        question(&[b"Me", b"warren", b"internal"], 1, true),
        question(&[b"nobody", b"warren", b"internal"], 28, false),
        question(&[b"warren", b"internal"], 6, true),
        question(&[b"1", b"0", b"64", b"100", b"in-addr", b"arpa"], 12, false),
        question(&[b"7", b"7", b"d", b"f", b"ip6", b"arpa"], 12, false),
        question(&[b"www", b"corp", b"example"], 16, true),
        question(&[b"www", b"debian", b"org"], 255, true),
        question(&[], 2, false),
    ]
}
