//! Services that are found by multicast DNS (RFC 6762, RFC 6763), carried from one network to
//! another: chosen ones, and nothing else.
//!
//! A gateway hears what machines on its LAN ask and tell each other, and what nodes do. Whatever
//! concerns a chosen service is told on the other side: questions for it, its instances, where
//! they are, and the addresses of the machines that they are on. All other records are left out,
//! and a message in which nothing is left is not told at all. Addresses that lead somewhere on
//! their own link alone (169.254.0.0/16, fe80::/10) are left out, too: whoever tried one first
//! would wait for nothing (RFC 8766 section 5.5.2).
//!
//! Several gateways may stand between the same two networks. What was told lately is not told
//! again, so that no message goes in a circle.

use core::fmt;
use core::str::FromStr;
use std::collections::VecDeque;

use crate::name::{BadName, Name};
use crate::query::{HEADER_LEN, word};

/// Bytes of a message that is told on, at most: it has to fit a link whole.
const MESSAGE_LEN_MAX: usize = 1232;
/// Questions and records of a message, at most.
const ENTRIES_MAX: usize = 128;
/// Services that may be chosen.
const SERVICES_MAX: usize = 16;
/// Machines that are remembered because a service is on them.
const HOSTS_MAX: usize = 256;
/// Messages that are remembered, and for how long: responders repeat after a second (RFC 6762
/// section 8.3).
const RECENT_MAX: usize = 256;
const RECENT_MS: u64 = 900;

const A: u16 = 1;
const PTR: u16 = 12;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
/// Bytes of SRV before its target.
const SRV_FIXED_LEN: usize = 6;
/// The bit of a class that asks for an answer to the asker alone, or says that a record is unique.
const TOP_BIT: u16 = 0x8000;
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;

/// A kind of service as it is chosen: `_ipp._tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service(Name);

impl FromStr for Service {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let text = text.strip_suffix(".local").unwrap_or(text);
        let name = Name::from_text(&format!("{text}.local"))?;
        let [kind, transport, _] = name.labels() else { return Err(BadName::Label) };
        let is_named = kind.len() > 1 && kind.starts_with(b"_") && kind.iter().all(is_plain);
        let is_over = [&b"_tcp"[..], b"_udp"].iter().any(|own| transport.eq_ignore_ascii_case(own));
        (is_named && is_over).then_some(Self(name)).ok_or(BadName::Label)
    }
}

fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.strip_suffix(".local").unwrap_or(&text))
    }
}

/// Why a message is not told on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is no message of multicast DNS, or has more than a message needs.
    Malformed,
    /// Nothing in it is of a chosen service.
    Others,
    /// It was told lately.
    Again,
    /// What is of a chosen service does not fit a link.
    Long,
}

/// What one gateway tells on, in both directions.
#[derive(Clone, Debug, Default)]
pub struct Reflector {
    services: Vec<Name>,
    hosts: VecDeque<Name>,
    recent: VecDeque<(u64, u64)>,
}

/// A record whose names are written out.
struct Record {
    name: Name,
    kind: u16,
    class: u16,
    ttl: [u8; 4],
    data: Vec<u8>,
    /// What a PTR or an SRV leads to.
    target: Option<Name>,
}

struct Question {
    name: Name,
    kind: u16,
    class: u16,
}

/// Questions, and the records of the three sections behind them.
struct Message {
    flags: u16,
    questions: Vec<Question>,
    sections: [Vec<Record>; 3],
}

impl Reflector {
    /// One for these services; those beyond the sixteenth are not looked at.
    #[must_use]
    pub fn new(services: &[Service]) -> Self {
        let services = services.iter().take(SERVICES_MAX).map(|service| service.0.clone());
        Self { services: services.collect(), ..Self::default() }
    }

    /// What to tell on the other side of a message that was heard at `now_ms`.
    ///
    /// # Errors
    /// [`Kept`]: nothing.
    pub fn handle(&mut self, message: &[u8], now_ms: u64) -> Result<Vec<u8>, Kept> {
        let mut message = read(message).ok_or(Kept::Malformed)?;
        self.note_hosts(&message);
        message.questions.retain(|question| self.is_asked_for(&question.name, question.kind));
        for section in &mut message.sections {
            section.retain(|record| self.is_told(record));
        }
        let has_records = message.sections.iter().any(|section| !section.is_empty());
        let is_response = message.flags & RESPONSE != 0;
        if message.questions.is_empty() && (!has_records || !is_response) {
            return Err(Kept::Others);
        }
        let told = write(&message);
        if told.len() > MESSAGE_LEN_MAX {
            return Err(Kept::Long);
        }
        self.note_told(&told, now_ms)?;
        Ok(told)
    }

    /// Machines that services are on.
    fn note_hosts(&mut self, message: &Message) {
        for record in message.sections.iter().flatten().filter(|record| record.kind == SRV) {
            let Some(host) = record.target.as_ref().filter(|_| self.is_chosen(&record.name)) else {
                continue;
            };
            if !self.is_host(host) {
                self.hosts.truncate(HOSTS_MAX - 1);
                self.hosts.push_front(host.clone());
            }
        }
    }

    fn is_chosen(&self, name: &Name) -> bool {
        self.services.iter().any(|service| name.below(service).is_some())
    }

    fn is_host(&self, name: &Name) -> bool {
        self.hosts.iter().any(|host| host.same(name))
    }

    fn is_asked_for(&self, name: &Name, kind: u16) -> bool {
        self.is_chosen(name) || (kind == PTR && is_list_of_services(name)) || self.is_host(name)
    }

    fn is_told(&self, record: &Record) -> bool {
        match record.kind {
            PTR => record.target.as_ref().is_some_and(|target| {
                self.is_chosen(target)
                    && (self.is_chosen(&record.name) || is_list_of_services(&record.name))
            }),
            SRV | TXT => self.is_chosen(&record.name),
            A | AAAA => self.is_host(&record.name) && !is_of_its_link(&record.data),
            _ => false,
        }
    }

    fn note_told(&mut self, told: &[u8], now_ms: u64) -> Result<(), Kept> {
        // Who makes two messages with one sum suppresses his own.
        let sum = wire::fnv::sum(told.iter().copied());
        self.recent.retain(|(_, at)| now_ms.saturating_sub(*at) < RECENT_MS);
        if self.recent.iter().any(|(known, _)| *known == sum) {
            return Err(Kept::Again);
        }
        self.recent.truncate(RECENT_MAX - 1);
        self.recent.push_front((sum, now_ms));
        Ok(())
    }
}

/// Whether these are the bytes of an address that is of use on its own link alone.
fn is_of_its_link(address: &[u8]) -> bool {
    match address {
        [169, 254, _, _] => true,
        [0xfe, second, ..] => address.len() == 16 && second & 0xc0 == 0x80,
        _ => false,
    }
}

/// `_services._dns-sd._udp.local`, which lists the kinds of services (RFC 6763 section 9).
fn is_list_of_services(name: &Name) -> bool {
    let labels = [&b"_services"[..], b"_dns-sd", b"_udp", b"local"];
    name.labels().len() == labels.len()
        && name.labels().iter().zip(labels).all(|(own, other)| own.eq_ignore_ascii_case(other))
}

fn read(bytes: &[u8]) -> Option<Message> {
    let flags = word(bytes, 2)?;
    if flags & OPCODE != 0 {
        return None;
    }
    let [questions, first, second, third] = [4, 6, 8, 10].map(|at| word(bytes, at));
    let counts = [first?, second?, third?];
    let all = counts.iter().map(|count| usize::from(*count)).sum::<usize>();
    if all + usize::from(questions?) > ENTRIES_MAX {
        return None;
    }
    let mut message = Message { flags, questions: Vec::new(), sections: Default::default() };
    let mut at = HEADER_LEN;
    for _ in 0..questions? {
        let (name, end) = name(bytes, at)?;
        // Asked to answer the asker alone, a machine would answer the gateway.
        let class = word(bytes, end + 2)? & !TOP_BIT;
        message.questions.push(Question { name, kind: word(bytes, end)?, class });
        at = end + 4;
    }
    for (section, count) in message.sections.iter_mut().zip(counts) {
        for _ in 0..count {
            let (record, end) = record(bytes, at)?;
            section.push(record);
            at = end;
        }
    }
    Some(message)
}

fn record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let (name, fixed) = name(bytes, at)?;
    let kind = word(bytes, fixed)?;
    let class = word(bytes, fixed + 2)?;
    let ttl = *bytes.get(fixed + 4..)?.first_chunk()?;
    let start = fixed + 10;
    let end = start + usize::from(word(bytes, fixed + 8)?);
    let raw = bytes.get(start..end)?;
    let before = if kind == SRV { SRV_FIXED_LEN } else { 0 };
    let target = match kind {
        PTR | SRV => Some(self::name(&bytes[..end], start + before)?.0),
        _ => None,
    };
    let mut data = match &target {
        Some(_) => raw.get(..before)?.to_vec(),
        None => raw.to_vec(),
    };
    if let Some(target) = &target {
        target.write(&mut data);
    }
    Some((Record { name, kind, class, ttl, data, target }, end))
}

/// A name that may end in a pointer to an earlier one (RFC 1035 section 4.1.4), and where it ends.
fn name(bytes: &[u8], at: usize) -> Option<(Name, usize)> {
    let mut whole = Vec::new();
    let mut from = at;
    let mut end = None;
    // Each pointer leads to what stands before it, so that this ends.
    let mut bound = bytes.len();
    loop {
        let len = *bytes.get(from).filter(|_| from < bound)?;
        match len {
            0 => break,
            1..64 => {
                whole.extend_from_slice(bytes.get(from..=from + usize::from(len))?);
                from += 1 + usize::from(len);
                if whole.len() > 255 {
                    return None;
                }
            }
            192.. => {
                end = end.or(Some(from + 2));
                bound = from;
                from = usize::from(word(bytes, from)? & 0x3fff);
            }
            _ => return None,
        }
    }
    whole.push(0);
    let name = Name::read(&whole, 0).ok()?.0;
    Some((name, end.unwrap_or(from + 1)))
}

fn write(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(message.flags.to_be_bytes());
    let count = |len: usize| u16::try_from(len).unwrap_or_default().to_be_bytes();
    bytes.extend(count(message.questions.len()));
    message.sections.iter().for_each(|section| bytes.extend(count(section.len())));
    for question in &message.questions {
        question.name.write(&mut bytes);
        bytes.extend(question.kind.to_be_bytes());
        bytes.extend(question.class.to_be_bytes());
    }
    for record in message.sections.iter().flatten() {
        record.name.write(&mut bytes);
        bytes.extend(record.kind.to_be_bytes());
        bytes.extend(record.class.to_be_bytes());
        bytes.extend(record.ttl);
        bytes.extend(count(record.data.len()));
        bytes.extend_from_slice(&record.data);
    }
    bytes
}

#[cfg(test)]
mod tests;
