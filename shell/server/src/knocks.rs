//! Machines that wait for somebody to sign in and let them in (threats CO-04, WB-12).
//!
//! A machine that has no join key proves its key in a channel and is given a link with 128 random
//! bits. Who opens the link in a browser sees which machine asks, signs in, and lets it in or
//! does not. A link is for one machine and one of its keys, is over after ten minutes, and is used
//! up by an answer: by the answer, and never by being looked at, since programs look at links, too.
//! All of it is in memory: who waits asks again after a start of the server, and gets another link.

use std::collections::BTreeMap;
use std::sync::Mutex;

use admit::{Crowd, Number, Source};
use control::HostInfo;
use noise::{PublicKey, Random as _};
use tokio::sync::watch;

use crate::clock::Moment;
use crate::held::held;
use crate::keys::SystemRandom;

/// Machines that wait, all together; of more the source gives way that has most.
const KNOCKS_MAX: usize = 1024;
/// How long a link is good, in seconds.
pub(crate) const LAST_S: u64 = 600;

/// The secret of a link.
pub(crate) type Code = [u8; 16];

/// A machine that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Knock {
    pub(crate) machine: PublicKey,
    pub(crate) node_key: PublicKey,
    pub(crate) host: HostInfo,
    pub(crate) source: Source,
    /// When the link is over, by either clock.
    pub(crate) ends_unix_s: u64,
    ends_up_s: u64,
    is_refused: bool,
    place: Number,
}

/// What a machine hears that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Its link is new.
    New(Code, u64),
    /// It has this link.
    Known(Code, u64),
    /// Somebody said no.
    Refused,
}

#[derive(Default)]
struct Table {
    knocks: BTreeMap<Code, Knock>,
    codes: BTreeMap<PublicKey, Code>,
}

/// All machines that wait.
pub(crate) struct Knocks {
    table: Mutex<(Table, Crowd<u64, Source, Code>)>,
    answered: watch::Sender<u64>,
}

impl Knocks {
    pub(crate) fn new() -> Self {
        let table = Mutex::new((Table::default(), Crowd::new(KNOCKS_MAX)));
        Self { table, answered: watch::channel(0).0 }
    }

    /// Wakes when a machine was answered.
    pub(crate) fn answers(&self) -> watch::Receiver<u64> {
        self.answered.subscribe()
    }

    /// A machine asks. Whoever has another key or another name than before gets another link.
    pub(crate) fn ask(
        &self,
        keys: (PublicKey, PublicKey),
        host: &HostInfo,
        source: Source,
        now: Moment,
    ) -> Heard {
        let (machine, node_key) = keys;
        let mut held = held(&self.table);
        let (table, crowd) = &mut *held;
        if let Some(code) = table.codes.get(&machine).copied()
            && let Some(knock) = table.knocks.get(&code)
        {
            let is_same = knock.node_key == node_key && told(&knock.host) == told(host);
            if knock.is_refused {
                table.forget(crowd, &code);
                return Heard::Refused;
            }
            if is_same && now.up_s < knock.ends_up_s {
                return Heard::Known(code, knock.ends_unix_s);
            }
            table.forget(crowd, &code);
        }
        let mut code = [0; 16];
        SystemRandom.fill(&mut code);
        let (place, lost) = crowd.enter(source.wide(), source, code);
        if let Some(knock) = lost.and_then(|lost| table.knocks.remove(&lost)) {
            table.codes.remove(&knock.machine);
        }
        let ends_unix_s = now.unix_s.saturating_add(LAST_S);
        let knock = Knock {
            machine,
            node_key,
            host: host.clone(),
            source,
            ends_unix_s,
            ends_up_s: now.up_s.saturating_add(LAST_S),
            is_refused: false,
            place,
        };
        table.codes.insert(machine, code);
        table.knocks.insert(code, knock);
        Heard::New(code, ends_unix_s)
    }

    /// The machine of a link that is good.
    pub(crate) fn find(&self, code: &Code, now: Moment) -> Option<Knock> {
        let held = held(&self.table);
        let knock = held.0.knocks.get(code)?;
        (now.up_s < knock.ends_up_s && !knock.is_refused).then(|| knock.clone())
    }

    /// Uses a link up for letting its machine in; nobody else can after that.
    pub(crate) fn take(&self, code: &Code, now: Moment) -> Option<Knock> {
        let mut held = held(&self.table);
        let (table, crowd) = &mut *held;
        let knock = table.knocks.get(code)?.clone();
        if knock.is_refused || now.up_s >= knock.ends_up_s {
            return None;
        }
        table.forget(crowd, code);
        Some(knock)
    }

    /// Uses a link up by a no, which its machine is told when it asks.
    pub(crate) fn refuse(&self, code: &Code, now: Moment) -> bool {
        let mut held = held(&self.table);
        let found = held.0.knocks.get_mut(code).filter(|knock| now.up_s < knock.ends_up_s);
        let is_there = found.is_some_and(|knock| !std::mem::replace(&mut knock.is_refused, true));
        drop(held);
        self.answer();
        is_there
    }

    /// Tells those who wait that there is an answer.
    pub(crate) fn answer(&self) {
        self.answered.send_modify(|number| *number += 1);
    }

    /// Forgets links that are over.
    pub(crate) fn sweep(&self, up_s: u64) {
        let mut held = held(&self.table);
        let (table, crowd) = &mut *held;
        let over = table.knocks.iter().filter(|(_, knock)| up_s >= knock.ends_up_s);
        for code in over.map(|(code, _)| *code).collect::<Vec<_>>() {
            table.forget(crowd, &code);
        }
    }
}

/// What a page shows of a machine, and what makes it another one if it differs.
fn told(host: &HostInfo) -> (&str, &str) {
    (&host.hostname, &host.os)
}

impl Table {
    fn forget(&mut self, crowd: &mut Crowd<u64, Source, Code>, code: &Code) {
        if let Some(knock) = self.knocks.remove(code) {
            self.codes.remove(&knock.machine);
            let _ = crowd.leave(knock.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn source(number: u32) -> Source {
        Source::from(IpAddr::from(Ipv4Addr::from(number)))
    }

    const fn at(up_s: u64) -> Moment {
        Moment { unix_s: 1_800_000_000 + up_s, up_s }
    }

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn named(name: &str) -> HostInfo {
        HostInfo { hostname: name.to_owned(), ..HostInfo::default() }
    }

    #[test]
    fn co_04_a_link_is_for_one_machine_and_one_key_and_used_once() {
        let knocks = Knocks::new();
        let keys = (key(1), key(2));
        let ask = |keys, name: &str, up_s| knocks.ask(keys, &named(name), source(1), at(up_s));
        let Heard::New(code, ends) = ask(keys, "a", 0) else { panic!("it is new") };
        assert_eq!(ends, 1_800_000_000 + LAST_S);
        assert_eq!(ask(keys, "a", 100), Heard::Known(code, ends), "the same as long as it lasts");
        assert!(knocks.find(&code, at(599)).is_some() && knocks.find(&code, at(600)).is_none());
        assert!(knocks.find(&[0; 16], at(0)).is_none());
        // With another key, or as another machine, the link of before is none any more.
        let Heard::New(second, _) = ask((key(1), key(3)), "a", 1) else { panic!("another") };
        assert!(knocks.take(&code, at(1)).is_none() && second != code);
        let Heard::New(third, _) = ask((key(1), key(3)), "b", 1) else { panic!("another") };
        let taken = knocks.take(&third, at(2)).unwrap();
        assert_eq!((taken.machine, taken.node_key), (key(1), key(3)));
        assert!(knocks.take(&third, at(2)).is_none(), "once");
        let Heard::New(fourth, _) = ask(keys, "a", 3) else { panic!("another") };
        assert!(knocks.refuse(&fourth, at(4)) && !knocks.refuse(&fourth, at(4)));
        assert!(knocks.take(&fourth, at(4)).is_none());
        assert_eq!(ask(keys, "a", 5), Heard::Refused);
        assert!(matches!(ask(keys, "a", 6), Heard::New(..)), "and it may ask again");
        knocks.sweep(6 + LAST_S);
        assert!(held(&knocks.table).0.codes.is_empty() && held(&knocks.table).1.is_empty());
    }

    #[test]
    fn wb_12_who_asks_for_most_links_loses_its_own() {
        let knocks = Knocks::new();
        let machine = |n: u32| {
            let mut key = [7; 32];
            key[..4].copy_from_slice(&n.to_be_bytes());
            (PublicKey(key), self::key(9))
        };
        let honest = knocks.ask(machine(0), &named("a"), source(1), at(0));
        for n in 1..3000 {
            knocks.ask(machine(n), &named("b"), source(2), at(1));
        }
        let Heard::New(code, _) = honest else { panic!("it is new") };
        assert!(knocks.find(&code, at(2)).is_some());
        assert_eq!(held(&knocks.table).0.knocks.len(), KNOCKS_MAX);
        assert_eq!(held(&knocks.table).0.codes.len(), KNOCKS_MAX);
    }
}
