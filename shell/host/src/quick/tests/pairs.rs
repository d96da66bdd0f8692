//! How addresses are to be rewritten, as a file says it.

use super::*;

#[test]
fn source_004_2_pairs_of_addresses_are_read_and_may_stand_more_than_once() {
    let text = format!(
        "[Interface]\nPrivateKey = {KEY}\n[Peer]\nPublicKey = {PEER}\n\
         TranslateSource = 192.168.0.1=18.8.8.9, fd00:a::/64 = fd00:b::/64\n\
         TranslateDestination = 10.99.1.0/24=192.168.1.0/24\n\
         TranslateDestination = 10.99.2.0/24=192.168.2.0/24\n[Peer]\nPublicKey = {OTHER}\n"
    );
    let Settings { peers, warnings, .. } = good(&text);
    assert!(warnings.is_empty(), "{warnings:?}");
    let shown = |pairs: &[node::translate::Pair]| -> Vec<String> {
        pairs.iter().map(ToString::to_string).collect()
    };
    let table = &peers[0].translate;
    assert_eq!(shown(table.source()), ["192.168.0.1=18.8.8.9", "fd00:a::/64=fd00:b::/64"]);
    assert_eq!(
        shown(table.destination()),
        ["10.99.1.0/24=192.168.1.0/24", "10.99.2.0/24=192.168.2.0/24"]
    );
    assert!(peers[1].translate.is_empty());
}

#[test]
fn pairs_that_are_none_have_their_place_and_what_is_wrong() {
    let peer = |line: &str| format!("[Interface]\n[Peer]\nPublicKey = {PEER}\n{line}\n");
    for (text, expected) in [
        (
            peer("TranslateSource = 10.0.0.0/24"),
            "4:19: TranslateSource: `10.0.0.0/24`: write A=B, two addresses or two prefixes of one \
             length; for example 192.168.1.0/24=10.99.1.0/24",
        ),
        (
            peer("TranslateDestination = 10.0.0.0/24=10.1.0.0/16"),
            "4:24: TranslateDestination: `10.0.0.0/24=10.1.0.0/16`: /24 and /16 differ; both sides",
        ),
        (
            peer("TranslateSource = 10.0.0.1=10.1.0.1\nTranslateSource = 10.0.0.1=10.2.0.1"),
            "5:19: TranslateSource, TranslateDestination: 10.0.0.1=10.1.0.1 and 10.0.0.1=10.2.0.1 \
             overlap; each address may be in one on either side",
        ),
    ] {
        let found = fault(&text);
        assert!(found.starts_with(expected), "{found}");
    }
}
