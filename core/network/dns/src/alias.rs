//! Addresses of machines behind a gateway whose network is known by an alias: a resolver there says
//! the site's own, and who asks from elsewhere needs the alias.
//!
//! Only the data of A and AAAA records changes, in place: no length and no name does, so nothing
//! else of a message has to be understood. A signature over such a record (RFC 4035) does not hold
//! any more; resolvers of a site do not sign.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use translate::Table;

use crate::query::{HEADER_LEN, word};

const A: u16 = 1;
const AAAA: u16 = 28;
const IN: u16 = 1;
/// Bytes of a record behind its name and before its data.
const FIXED_LEN: usize = 10;
/// Labels that a name has, at most (RFC 1035: 255 bytes).
const LABELS_MAX: usize = 128;

/// Rewrites the addresses in `answer`, which came from the resolver `from`, by the table of the
/// gateway that it is behind. Bytes that are no message stay as they are from there on.
pub(crate) fn rename(tables: &[Table], from: IpAddr, answer: &mut [u8]) {
    let is_behind =
        |table: &&Table| table.destination().iter().any(|pair| pair.from().contains(from));
    if let Some(table) = tables.iter().find(is_behind) {
        let _ = walk(answer, |address| table.destination_before(address));
    }
}

/// Walks over all records; `None` at the end of what can be read.
fn walk(answer: &mut [u8], alias: impl Fn(IpAddr) -> IpAddr) -> Option<()> {
    let questions = word(answer, 4)?;
    let records = [6, 8, 10].into_iter().map(|at| word(answer, at).map(u32::from));
    let records = records.sum::<Option<u32>>()?;
    let mut at = HEADER_LEN;
    for _ in 0..questions {
        at = behind_name(answer, at)? + 4;
    }
    for _ in 0..records {
        at = behind_name(answer, at)?;
        let kind = word(answer, at)?;
        let class = word(answer, at + 2)?;
        let len = word(answer, at + 8)?;
        at += FIXED_LEN;
        let data = answer.get_mut(at..at + usize::from(len))?;
        at += data.len();
        if class == IN {
            put(kind, data, &alias);
        }
    }
    Some(())
}

fn put(kind: u16, data: &mut [u8], alias: &impl Fn(IpAddr) -> IpAddr) {
    if let (A, Ok(own)) = (kind, <[u8; 4]>::try_from(&*data))
        && let IpAddr::V4(known) = alias(Ipv4Addr::from(own).into())
    {
        data.copy_from_slice(&known.octets());
    }
    if let (AAAA, Ok(own)) = (kind, <[u8; 16]>::try_from(&*data))
        && let IpAddr::V6(known) = alias(Ipv6Addr::from(own).into())
    {
        data.copy_from_slice(&known.octets());
    }
}

/// Where the name at `at` ends: behind its last label, or behind a pointer.
fn behind_name(answer: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..LABELS_MAX {
        match *answer.get(at)? {
            0 => return Some(at + 1),
            len if len & 0xc0 == 0xc0 => return Some(at + 2),
            len if len & 0xc0 == 0 => at += 1 + usize::from(len),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tables() -> Vec<Table> {
        let table = |texts: &[&str]| {
            let pairs = texts.iter().map(|text| text.parse().unwrap()).collect();
            Table::new(Vec::new(), pairs).unwrap()
        };
        vec![
            table(&["10.99.1.0/24=192.168.1.0/24", "fd99:1::/64=fd05::/64"]),
            table(&["10.99.2.0/24=192.168.1.0/24"]),
        ]
    }

    /// An answer about `a.b` with these records: type, class, data.
    fn answer(records: &[(u16, u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        bytes.extend([1, b'a', 1, b'b', 0, 0, 1, 0, 1]);
        for (kind, class, data) in records {
            bytes.extend([0xc0, 12]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend(class.to_be_bytes());
            bytes.extend([0, 0, 0, 30]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn a_resolver_behind_an_alias_tells_the_alias_and_others_tell_what_they_say() {
        let v6: IpAddr = "fd05::9".parse().unwrap();
        let IpAddr::V6(v6) = v6 else { panic!("an IPv6 address") };
        let records: [(u16, u16, &[u8]); 5] = [
            (5, 1, &[1, b'c', 0]),
            (1, 1, &[192, 168, 1, 9]),
            (28, 1, &v6.octets()),
            (1, 1, &[192, 168, 2, 9]),
            (1, 3, &[192, 168, 1, 9]),
        ];
        let known: IpAddr = "fd99:1::9".parse().unwrap();
        let IpAddr::V6(known) = known else { panic!("an IPv6 address") };
        let (mut first, mut second) = (records, records);
        first[1].2 = &[10, 99, 1, 9];
        let octets = known.octets();
        first[2].2 = &octets;
        second[1].2 = &[10, 99, 2, 9];
        for (from, expected) in
            [("10.99.1.53", first), ("10.99.2.53", second), ("192.168.1.53", records)]
        {
            let mut bytes = answer(&records);
            rename(&tables(), from.parse().unwrap(), &mut bytes);
            assert_eq!(bytes, answer(&expected), "from {from}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_keep_their_length_and_nothing_but_addresses_changes(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..80,
        ) {
            let from = "10.99.1.53".parse().unwrap();
            let before = bytes.clone();
            rename(&tables(), from, &mut bytes);
            prop_assert_eq!(bytes.len(), before.len());
            let mut good = answer(&[(1, 1, &[192, 168, 1, 9]), (1, 1, &[192, 168, 1, 7])]);
            good.truncate(cut);
            rename(&tables(), from, &mut good);
            prop_assert!(good.len() <= cut);
        }
    }
}
