//! A question of our own for addresses, and what an answer to it says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::Name;
use crate::query::{Class, HEADER_LEN, Kind, Query, skip_name};

/// Addresses that are taken from one answer.
const ADDRESSES_MAX: usize = 16;
/// Records of an answer that are looked at.
const RECORDS_MAX: u16 = 64;
/// Recursion is desired.
const FLAGS: u16 = 0x0100;
/// The answer did not fit and is cut short.
const TRUNCATED: u8 = 0x02;

/// What an answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// These addresses; none if the name has none.
    Addresses(Vec<IpAddr>),
    /// It is cut short: to be asked over a stream.
    Truncated,
    /// The server does not know, or does not say; its code (RFC 1035, section 4.1.1).
    Failed(u8),
    /// It is no answer to this question.
    Foreign,
}

/// A question for the addresses of `name`, of IPv4 or of IPv6, and the same as it is sent.
#[must_use]
pub fn question(name: &Name, is_six: bool, id: u16) -> (Query, Vec<u8>) {
    let kind = if is_six { Kind::AAAA } else { Kind::A };
    let mut bytes = Vec::with_capacity(HEADER_LEN + name.len() + 4);
    for word in [id, FLAGS, 1, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    name.write(&mut bytes);
    for word in [kind.0, Class::IN.0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let query = Query {
        id,
        flags: FLAGS,
        name: name.clone(),
        kind,
        class: Class::IN,
        question_end: bytes.len(),
        opt: false,
        udp_len_max: 512,
    };
    (query, bytes)
}

/// What `answer` says to a question that was `sent`. A server that resolves gives the addresses
/// behind an alias as well, so every address in the answer is the name's.
#[must_use]
pub fn said(query: &Query, sent: &[u8], answer: &[u8]) -> Said {
    if !crate::is_answer(query, sent, answer) {
        return Said::Foreign;
    }
    if answer[2] & TRUNCATED != 0 {
        return Said::Truncated;
    }
    if answer[3] & 0x0f != 0 {
        return Said::Failed(answer[3] & 0x0f);
    }
    Said::Addresses(addresses(answer, query))
}

fn addresses(answer: &[u8], query: &Query) -> Vec<IpAddr> {
    let mut at = query.question_end;
    let mut found = Vec::new();
    let count = u16::from_be_bytes([answer[6], answer[7]]).min(RECORDS_MAX);
    for _ in 0..count {
        let Some((_, fixed)) = skip_name(answer, at) else { break };
        let Some(head) = answer.get(fixed..fixed + 10) else { break };
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let start = fixed + 10;
        at = start + usize::from(word(8));
        let Some(data) = answer.get(start..at) else { break };
        if Kind(word(0)) == query.kind && Class(word(2)) == Class::IN && found.len() < ADDRESSES_MAX
        {
            found.extend(address(query.kind, data));
        }
    }
    found
}

/// The address of a record, if it is one of this kind.
fn address(kind: Kind, data: &[u8]) -> Option<IpAddr> {
    match kind {
        Kind::A => <[u8; 4]>::try_from(data).ok().map(|bytes| Ipv4Addr::from(bytes).into()),
        Kind::AAAA => <[u8; 16]>::try_from(data).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(sent: &[u8], flags: [u8; 2], count: u8, records: &[u8]) -> Vec<u8> {
        let mut answer = sent.to_vec();
        answer[2..4].copy_from_slice(&flags);
        answer[7] = count;
        answer.extend_from_slice(records);
        answer
    }

    #[test]
    fn addresses_are_read_behind_an_alias_and_nothing_makes_it_panic() {
        let name = Name::from_text("page.example").unwrap();
        let (query, sent) = question(&name, false, 7);
        let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x02\xc0\x11".to_vec();
        let address = b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\xcb\0\x71\x09".to_vec();
        let good = answered(&sent, [0x81, 0x80], 2, &[&alias[..], &address].concat());
        let at = IpAddr::from([203, 0, 113, 9]);
        assert_eq!(said(&query, &sent, &good), Said::Addresses(vec![at]));
        assert_eq!(said(&query, &sent, &sent), Said::Foreign, "a question is no answer");
        let none = answered(&sent, [0x81, 0x83], 0, &[]);
        assert_eq!(said(&query, &sent, &none), Said::Failed(3));
        let cut = answered(&sent, [0x83, 0x80], 0, &[]);
        assert_eq!(said(&query, &sent, &cut), Said::Truncated);
        let (other, _) = question(&Name::from_text("other.example").unwrap(), false, 7);
        assert_eq!(said(&other, &sent, &good), Said::Foreign);
        let (query_six, sent_six) = question(&name, true, 8);
        let at_six = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
        let of_six = [&b"\xc0\x0c\0\x1c\0\x01\0\0\0\x09\0\x10"[..], &at_six.octets()].concat();
        let both = [&address[..], &of_six].concat();
        let answer = answered(&sent_six, [0x81, 0x80], 2, &both);
        let found = said(&query_six, &sent_six, &answer);
        assert_eq!(found, Said::Addresses(vec![at_six.into()]), "and none of the other kind");
        for end in 0..good.len() {
            let _ = said(&query, &sent, &good[..end]);
        }
        for at in 12..good.len() {
            let mut changed = good.clone();
            changed[at] = 0xff;
            let _ = said(&query, &sent, &changed);
        }
    }
}
