//! Packets whose addresses are rewritten.

use translate::{Pair, Table};
use wire::packet;

/// A word of choice, then a packet; both ways by a table that moves what such packets are full of.
///
/// What is refused is untouched. What is rewritten has its length, the addresses that the table
/// says, and right checksums if it had them.
pub fn translate(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let table = table();
    let mut bytes = rest.to_vec();
    let before = packet::parse_quoted(rest).map(|view| (view.source(), view.destination()));
    let is_in = choice & 1 == 0;
    let result = if is_in { table.inward(&mut bytes) } else { table.outward(&mut bytes) };
    assert_eq!(bytes.len(), rest.len());
    let (Ok(changed), Ok((source, _))) = (result, before) else {
        assert_eq!(bytes, rest, "refused, and changed all the same");
        return;
    };
    assert_eq!(changed, bytes != rest);
    let view = packet::parse_quoted(&bytes).expect("a rewritten packet is one");
    if is_in {
        assert_eq!(view.source(), table.source_of(source));
    }
    if let (Ok(old), Ok(new)) = (packet::parse(rest), packet::parse(&bytes)) {
        assert!(new.checksums_hold() || !old.checksums_hold(), "a checksum is wrong");
    }
}

/// From and to 10.0.0.0/24 and fd00::/16, which the seeds use.
fn table() -> Table {
    let pairs = |texts: [&str; 2]| -> Vec<Pair> {
        texts.iter().map(|text| text.parse().expect("a pair")).collect()
    };
    let source = pairs(["10.0.0.0/24=172.16.9.0/24", "fd00::/16=fc01::/16"]);
    let destination = pairs(["10.0.0.0/16=192.168.0.0/16", "fd00::/32=fd99::/32"]);
    Table::new(source, destination).expect("no pairs overlap")
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let packet = crate::machine::inner(1, 2, 60);
    let mut error = packet.clone();
    let len = 28 + packet.len();
    error[9] = 1;
    error[20] = 3;
    error[21] = 1;
    error.truncate(28);
    error.extend(&packet);
    error[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    [packet, error]
        .iter()
        .flat_map(|one| [[&[0], &one[..]].concat(), [&[1], &one[..]].concat()])
        .collect()
}
