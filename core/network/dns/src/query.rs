//! A query: header, one question, and what the client can take.

use crate::name::Name;

/// Bytes that every client takes in a datagram (RFC 1035, section 2.3.4).
const REPLY_LEN_MIN: usize = 512;
/// Bytes of a datagram that pass every path without fragments (RFC 9715).
pub const REPLY_LEN_MAX: usize = 1232;
/// Bytes of a query, at most: a name of 255, and options of a few hundred.
pub const QUERY_LEN_MAX: usize = 1232;
/// Bytes of a DNS header.
pub(crate) const HEADER_LEN: usize = 12;
/// Records behind the question, at most.
const ADDITIONAL_MAX: u16 = 4;

/// What a query came over, which bounds its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A stream: up to 65,535 bytes.
    Tcp,
}

/// What is asked for, by RFC 1035's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

impl Kind {
    /// An IPv4 address.
    pub const A: Self = Self(1);
    /// The servers of a zone.
    pub const NS: Self = Self(2);
    /// What a zone is.
    pub const SOA: Self = Self(6);
    /// A name for an address.
    pub const PTR: Self = Self(12);
    /// An IPv6 address.
    pub const AAAA: Self = Self(28);
    /// What a client can take (RFC 6891).
    pub const OPT: Self = Self(41);
    /// Part of a zone, from here.
    pub const IXFR: Self = Self(251);
    /// A whole zone.
    pub const AXFR: Self = Self(252);
    /// Everything.
    pub const ANY: Self = Self(255);
}

/// The class of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u16);

impl Class {
    /// The Internet.
    pub const IN: Self = Self(1);
}

/// How a query ended (RFC 1035, section 4.1.1; RFC 6891, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rcode {
    /// Well.
    NoError,
    /// The query cannot be read.
    FormErr,
    /// Nobody who should know answers.
    ServFail,
    /// The name does not exist.
    NxDomain,
    /// Not that kind of query.
    NotImp,
    /// We do not want to.
    Refused,
    /// Not that version of OPT.
    BadVers,
}

impl Rcode {
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::FormErr => 1,
            Self::ServFail => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
            Self::BadVers => 16,
        }
    }
}

/// Why something is not even answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Shorter than a header, or longer than [`QUERY_LEN_MAX`].
    Length,
    /// It is an answer; to answer it would make two servers talk for ever.
    Answer,
}

/// One question, and who asks it how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The client's number.
    pub id: u16,
    /// Recursion is desired, checking is disabled: repeated in the answer.
    pub(crate) flags: u16,
    /// The name.
    pub name: Name,
    /// The type.
    pub kind: Kind,
    /// The class.
    pub class: Class,
    /// Where the question ends.
    pub(crate) question_end: usize,
    /// The client sent OPT.
    pub(crate) opt: bool,
    /// Bytes that the client takes in one datagram, never fewer than 512.
    pub(crate) udp_len_max: usize,
}

/// A query that cannot be answered as asked: how it ended, and the header to say so with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Drop(DropReason),
    Reply(Rcode),
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// What to answer instead, or why not to answer at all.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() < HEADER_LEN || bytes.len() > QUERY_LEN_MAX {
            return Err(Fault::Drop(DropReason::Length));
        }
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let flags = word(2);
        if flags & 0x8000 != 0 {
            return Err(Fault::Drop(DropReason::Answer));
        }
        if flags & 0x7800 != 0 {
            return Err(Fault::Reply(Rcode::NotImp));
        }
        let formerr = Fault::Reply(Rcode::FormErr);
        if [word(4), word(6), word(8)] != [1, 0, 0] || word(10) > ADDITIONAL_MAX {
            return Err(formerr);
        }
        let (name, end) = Name::read(bytes, HEADER_LEN).map_err(|_| formerr)?;
        let fixed = bytes.get(end..end + 4).ok_or(formerr)?;
        let mut query = Self {
            id: word(0),
            flags: flags & 0x0110,
            name,
            kind: Kind(u16::from_be_bytes([fixed[0], fixed[1]])),
            class: Class(u16::from_be_bytes([fixed[2], fixed[3]])),
            question_end: end + 4,
            opt: false,
            udp_len_max: REPLY_LEN_MIN,
        };
        query.read_additional(bytes, word(10))?;
        Ok(query)
    }

    /// The largest answer that may go back over `transport`, in bytes.
    #[must_use]
    pub fn reply_len_max(&self, transport: Transport) -> usize {
        match transport {
            Transport::Udp => self.udp_len_max,
            Transport::Tcp => usize::from(u16::MAX),
        }
    }

    fn read_additional(&mut self, bytes: &[u8], count: u16) -> Result<(), Fault> {
        let formerr = Fault::Reply(Rcode::FormErr);
        let mut at = self.question_end;
        for _ in 0..count {
            let (is_root, name_end) = skip_name(bytes, at).ok_or(formerr)?;
            let fixed = bytes.get(name_end..name_end + 10).ok_or(formerr)?;
            let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
            at = name_end + 10 + usize::from(word(8));
            if at > bytes.len() {
                return Err(formerr);
            }
            if Kind(word(0)) != Kind::OPT {
                continue;
            }
            if self.opt || !is_root {
                return Err(formerr);
            }
            self.opt = true;
            self.udp_len_max = usize::from(word(2)).clamp(REPLY_LEN_MIN, REPLY_LEN_MAX);
            if fixed[5] != 0 {
                return Err(Fault::Reply(Rcode::BadVers));
            }
        }
        if at == bytes.len() { Ok(()) } else { Err(formerr) }
    }
}

/// Whether the name at `at` is the root, and where it ends; a pointer ends it.
pub(crate) fn skip_name(bytes: &[u8], at: usize) -> Option<(bool, usize)> {
    let mut end = at;
    loop {
        let len = usize::from(*bytes.get(end)?);
        match len {
            0 => return Some((end == at, end + 1)),
            1..64 => end += 1 + len,
            192.. => return bytes.get(end + 1).map(|_| (false, end + 2)),
            _ => return None,
        }
    }
}

/// Two bytes of a message as a number.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A query as a client would send it; `opt` is the size it tells.
    pub(crate) fn ask(name: &str, kind: Kind, opt: Option<u16>) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(opt.is_some())];
        let root = Name::read(&[0], 0).unwrap().0;
        let name = if name == "." { root } else { Name::from_text(name).unwrap() };
        name.write(&mut bytes);
        bytes.extend(kind.0.to_be_bytes());
        bytes.extend([0, 1]);
        if let Some(len) = opt {
            bytes.extend([0, 0, 41]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 0, 0]);
        }
        bytes
    }

    #[test]
    fn a_query_is_read_with_what_its_client_can_take() {
        let query = Query::read(&ask("a.Example", Kind::AAAA, None)).unwrap();
        assert_eq!((query.id, query.kind, query.class), (0xabcd, Kind::AAAA, Class::IN));
        assert_eq!((query.reply_len_max(Transport::Udp), query.opt), (512, false));
        assert_eq!(query.reply_len_max(Transport::Tcp), 65535);
        for (told, held) in [(0, 512), (512, 512), (900, 900), (1232, 1232), (65535, 1232)] {
            let query = Query::read(&ask("a.example", Kind::A, Some(told))).unwrap();
            assert_eq!((query.opt, query.reply_len_max(Transport::Udp)), (true, held));
        }
        let query = Query::read(&ask(".", Kind::NS, None)).unwrap();
        assert!(query.name.is_empty());
    }

    #[test]
    fn dn_06_what_is_no_query_has_its_reason() {
        let good = ask("robot.warren.internal", Kind::A, Some(1232));
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            Query::read(&bytes).unwrap_err()
        };
        let formerr = Fault::Reply(Rcode::FormErr);
        assert_eq!(changed(&|b| b[2] |= 0x80), Fault::Drop(DropReason::Answer));
        assert_eq!(changed(&|b| b.truncate(11)), Fault::Drop(DropReason::Length));
        assert_eq!(changed(&|b| b.resize(1233, 0)), Fault::Drop(DropReason::Length));
        assert_eq!(changed(&|b| b[2] |= 0x28), Fault::Reply(Rcode::NotImp), "an update");
        assert_eq!(changed(&|b| b[5] = 0), formerr, "no question");
        assert_eq!(changed(&|b| b[5] = 2), formerr, "two questions");
        assert_eq!(changed(&|b| b[7] = 1), formerr, "an answer in a query");
        assert_eq!(changed(&|b| b[9] = 1), formerr);
        assert_eq!(changed(&|b| b[11] = 5), formerr);
        assert_eq!(changed(&|b| b[11] = 0), formerr, "bytes that nobody announced");
        assert_eq!(changed(&|b| b.push(0)), formerr);
        assert_eq!(changed(&|b| b[12] = 0xc0), formerr, "a pointer in a question");
        let at = good.len() - 11;
        assert_eq!(changed(&|b| b[at + 6] = 1), Fault::Reply(Rcode::BadVers));
        assert_eq!(changed(&|b| b[at + 10] = 1), formerr, "longer than it is");
        let twice = |b: &mut Vec<u8>| {
            b[11] = 2;
            b.extend_from_within(at..);
        };
        assert_eq!(changed(&twice), formerr, "two OPT records");
        for len in 12..good.len() {
            assert!(changed(&|b| b.truncate(len)) == formerr, "cut to {len}");
        }
    }
}
