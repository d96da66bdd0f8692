//! Answers as bytes: a header, the question as it was asked, records, and OPT where the client
//! sent one.

use crate::name::Name;
use crate::query::{Class, HEADER_LEN, Kind, Query, REPLY_LEN_MAX, Rcode, Transport};

/// Seconds for which an answer of ours may be kept: short, since nodes come and go.
const TTL_S: u32 = 30;
/// Seconds for which a name's absence may be kept (RFC 2308, section 5): hardly any, since whoever
/// asks too early for a node that is about to join would go on not to find it.
pub(crate) const ABSENT_S: u32 = 1;
/// Bytes of a record before its data, its name a pointer.
const RECORD_LEN: usize = 12;
/// Bytes of an OPT record without options.
const OPT_LEN: usize = 11;

const IS_ANSWER: u16 = 0x8000;
const AUTHORITATIVE: u16 = 0x0400;
const TRUNCATED: u16 = 0x0200;
const RECURSION_AVAILABLE: u16 = 0x0080;

/// One answer in the making.
pub(crate) struct Reply<'q> {
    query: &'q Query,
    out: Vec<u8>,
    records: [u16; 2],
    rcode: Rcode,
    authoritative: bool,
}

impl<'q> Reply<'q> {
    pub(crate) fn new(query: &'q Query, rcode: Rcode, authoritative: bool) -> Self {
        let mut out = vec![0; HEADER_LEN];
        query.name.write(&mut out);
        out.extend(query.kind.0.to_be_bytes());
        out.extend(query.class.0.to_be_bytes());
        Self { query, out, records: [0; 2], rcode, authoritative }
    }

    /// An answer about the name that was asked for.
    pub(crate) fn answer(&mut self, kind: Kind, data: &[u8]) {
        self.record(0, 0, kind, data);
    }

    /// The SOA of the zone whose top stands `before` labels into the question: the answer itself,
    /// or beside an answer that has none.
    pub(crate) fn soa(&mut self, is_answer: bool, before: usize, server: &Name, serial: u32) {
        let mut data = Vec::new();
        server.write(&mut data);
        data.extend_from_slice(b"\x0ahostmaster");
        server.write(&mut data);
        // refresh, retry, expire, and how long a name's absence may be kept
        for value in [serial, 3600, 600, 86_400, ABSENT_S] {
            data.extend(value.to_be_bytes());
        }
        self.record(usize::from(!is_answer), before, Kind::SOA, &data);
    }

    fn record(&mut self, section: usize, before: usize, kind: Kind, data: &[u8]) {
        let labels = &self.query.name.labels()[..before];
        let at = HEADER_LEN + labels.iter().map(|l| l.len() + 1).sum::<usize>();
        let words = [0xc000 | u16::try_from(at).unwrap_or(0), kind.0, Class::IN.0];
        self.out.reserve(RECORD_LEN + data.len());
        self.out.extend(words.iter().flat_map(|w| w.to_be_bytes()));
        self.out.extend(TTL_S.to_be_bytes());
        self.out.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
        self.out.extend_from_slice(data);
        self.records[section] += 1;
    }

    /// The bytes, cut to the question and marked when they are too many for `transport`.
    pub(crate) fn finish(mut self, transport: Transport) -> Vec<u8> {
        let opt_len = if self.query.opt { OPT_LEN } else { 0 };
        let mut flags = IS_ANSWER | RECURSION_AVAILABLE | self.query.flags;
        if self.authoritative {
            flags |= AUTHORITATIVE;
        }
        if self.out.len() + opt_len > self.query.reply_len_max(transport) {
            flags |= TRUNCATED;
            self.out.truncate(HEADER_LEN + self.query.name.len() + 4);
            self.records = [0; 2];
        }
        let rcode = self.rcode.number();
        flags |= rcode & 0xf;
        let [answers, authority] = self.records;
        let words = [self.query.id, flags, 1, answers, authority, u16::from(self.query.opt)];
        for (place, word) in self.out.chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        if self.query.opt {
            let len = u16::try_from(REPLY_LEN_MAX).unwrap_or(u16::MAX).to_be_bytes();
            let high = u8::try_from(rcode >> 4).unwrap_or(0);
            self.out.extend([0, 0, 41, len[0], len[1], high, 0, 0, 0, 0, 0]);
        }
        self.out
    }
}

/// The answer that says only how `query` ended, over any transport.
#[must_use]
pub fn failure(query: &Query, rcode: Rcode) -> Vec<u8> {
    Reply::new(query, rcode, false).finish(Transport::Udp)
}

/// As [`failure`], when the query could not be read: a header alone. `bytes` has one.
pub(crate) fn headless(bytes: &[u8], rcode: Rcode) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    out[..2].copy_from_slice(&bytes[..2]);
    let asked = u16::from_be_bytes([bytes[2], bytes[3]]) & 0x7900;
    out[2..4].copy_from_slice(&(IS_ANSWER | asked | rcode.number() & 0xf).to_be_bytes());
    out
}

/// A resolver's answer as it may go back to who asked `query`: cut to the question and marked
/// when it is longer than the client takes.
#[must_use]
pub fn fit(query: &Query, transport: Transport, mut answer: Vec<u8>) -> Vec<u8> {
    if answer.len() > query.reply_len_max(transport) && answer.len() >= query.question_end {
        answer.truncate(query.question_end);
        answer[2] |= TRUNCATED.to_be_bytes()[0];
        answer[6..HEADER_LEN].fill(0);
    }
    answer
}
