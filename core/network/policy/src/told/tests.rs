//! What is written is read, and nothing else is.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn set(words: &[&str]) -> Ranges {
    Ranges::of_prefixes(words.iter().map(|word| word.parse().unwrap()))
}

fn web() -> Rules {
    let tcp = |first, last| Service { protocol: Some(6), first, last };
    let sources = set(&["100.64.0.2/32", "100.64.0.8/29", "fd7a::/64"]);
    let own = set(&["100.64.0.1/32"]);
    let inward = Rule {
        sources: sources.clone(),
        destinations: own.clone(),
        services: vec![tcp(80, 81), Service { protocol: Some(17), first: 0, last: u16::MAX }],
        line: 4,
        compress: false,
    };
    let outward = Rule {
        sources: own,
        destinations: sources,
        services: vec![Service::ANY],
        line: 9,
        compress: true,
    };
    Rules::new(vec![inward], vec![outward])
}

const WEB: &str = "warren-rules 1\n\
    = 100.64.0.2,100.64.0.8-100.64.0.15,fd7a::-fd7a::ffff:ffff:ffff:ffff\n= 100.64.0.1\n\
    in 4 6:80-81,17:* 0 1\nout 9 * 1 0 compress\n";

#[test]
fn a_set_is_written_once() {
    assert_eq!(web().print().as_deref(), Some(WEB));
    assert_eq!(Rules::read(WEB), Ok(Some(web())));
    assert_eq!(Rules::default().print().as_deref(), Some("warren-rules 1\n"));
    assert_eq!(Rules::read("warren-rules 1\n"), Ok(Some(Rules::default())));
    assert_eq!(Rules::read(OPEN), Ok(None));
}

#[test]
fn pf_08_whatever_no_writer_writes_is_refused() {
    for (text, why) in [
        ("", BadRules::Head),
        ("{}", BadRules::Head),
        ("warren-rules 2\n", BadRules::Head),
        ("warren-rules 1 open", BadRules::Head),
        (" warren-rules 1\n", BadRules::Head),
        ("warren-rules 1", BadRules::Line(2)),
        ("warren-rules 1\n\n", BadRules::Line(3)),
        ("warren-rules 1\nin 1 * 0 0\n", BadRules::Line(2)),
    ] {
        assert_eq!(Rules::read(text), Err(why), "{text:?}");
    }
    for (from, to) in [
        ("= 100.64.0.1\n", ""),
        ("= 100.64.0.1\n", "= 100.64.0.1\n= 100.64.0.2\n"),
        ("= 100.64.0.1\n", "= 100.64.0.1,\n"),
        ("= 100.64.0.1\n", "= 100.64.0.1-100.64.0.0\n"),
        ("= 100.64.0.1\n", "= ::ffff:100.64.0.1\n"),
        ("100.64.0.8-", "100.64.0.3-"),
        ("100.64.0.8-", "100.64.0.1-"),
        ("in 4", "in 04"),
        ("in 4", "in +4"),
        ("in 4", "in  4"),
        ("in 4", "by 4"),
        ("in 4", "in 4294967296"),
        ("80-81", "81-80"),
        ("80-81", "80-65536"),
        ("80-81", "80"),
        ("17:*", "17:0-65535"),
        ("17:*", "256:*"),
        ("17:*", ""),
        ("0 1\n", "0 2\n"),
        ("0 1\n", "0\n"),
        ("0 1\n", "0 1 \n"),
        ("0 1\n", "0 1\r\n"),
        ("1 0 compress\n", "1 0 compress"),
        ("1 0 compress\n", "1 0 compressed\n"),
        ("1 0 compress\n", "1 0 compress compress\n"),
    ] {
        let text = WEB.replacen(from, to, 1);
        assert_ne!(text, WEB, "{from} {to}");
        assert!(matches!(Rules::read(&text), Err(BadRules::Line(_))), "{text}");
    }
}

#[test]
fn what_is_too_much_is_neither_written_nor_read() {
    let mut rules = web();
    let rule = rules.inward[0].clone();
    rules.inward = vec![rule.clone(); TOLD_RULES_MAX + 1];
    assert_eq!(rules.print(), None);
    let many = (0..40_000).map(|n: u128| Range { first: n * 4, last: n * 4 + 1 }).collect();
    let wide = Rule { sources: Ranges::new(many), ..rule };
    rules.inward = vec![wide.clone(); 7];
    assert_eq!(rules.print(), None, "ranges count as often as they are used");
    let one = Rules::new(vec![wide], Vec::new()).print().unwrap();
    let line = one.lines().last().unwrap().to_owned() + "\n";
    assert_eq!(Rules::read(&(one + &line.repeat(6))), Err(BadRules::Bound("ranges")));
    let text = WEB.to_owned() + &"out 9 * 1 0\n".repeat(TOLD_RULES_MAX);
    assert_eq!(Rules::read(&text), Err(BadRules::Bound("rules")));
    assert_eq!(Rules::read(&"x".repeat(TOLD_BYTES_MAX + 1)), Err(BadRules::Bound("bytes")));
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let end = || prop_oneof![any::<u128>(), (0_u128..64).prop_map(|n| 0xffff_0a00_0000 + n)];
    let range = (end(), end()).prop_map(|(a, b)| Range { first: a.min(b), last: a.max(b) });
    vec(range, 1..5).prop_map(Ranges::new)
}

fn rule() -> impl Strategy<Value = Rule> {
    let service = prop_oneof![
        Just(Service::ANY),
        (any::<u8>(), any::<u16>(), any::<u16>()).prop_map(|(protocol, a, b)| Service {
            protocol: Some(protocol),
            first: a.min(b),
            last: a.max(b)
        }),
    ];
    (ranges(), ranges(), vec(service, 1..4), any::<u32>(), any::<bool>()).prop_map(
        |(sources, destinations, services, line, compress)| Rule {
            sources,
            destinations,
            services,
            line,
            compress,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(inward in vec(rule(), 0..5), outward in vec(rule(), 0..5)) {
        let rules = Rules::new(inward, outward);
        let text = rules.print().unwrap();
        prop_assert_eq!(Rules::read(&text), Ok(Some(rules)));
    }

    #[test]
    fn whatever_is_read_is_what_would_be_written(
        rules in vec(rule(), 0..4),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut text = Rules::new(rules, Vec::new()).print().unwrap().into_bytes();
        let at = at.index(text.len());
        text[at] = byte & 0x7f;
        let text = String::from_utf8(text).unwrap();
        if let Ok(Some(read)) = Rules::read(&text) {
            prop_assert_eq!(read.print(), Some(text));
        }
    }
}
