//! One lock a site, at its provider itself, so that two operators do not meet in the middle.
//!
//! Clouds have no locks, but they give some names once: who makes what bears the name of the lock
//! holds it. Beside it stands who that is and until when. A lock whose time is over, or whose owner
//! was a process of this machine that is gone, is taken by the number that was read with it, so
//! that of two who take it one finds it gone.

use std::time::{Duration, Instant};

/// A lock ends by itself after so long without a sign of its owner.
pub(crate) const LOCK_S: u64 = 600;
/// How often its owner gives one.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(60);
/// Times that a lock is tried to be had.
pub(crate) const TRIES: usize = 3;

/// A lock that is held.
pub(crate) struct Held {
    pub(crate) name: String,
    /// The provider's own word for it.
    pub(crate) its: String,
    pub(crate) renewed: Instant,
}

impl Held {
    pub(crate) fn new(name: &str, its: String) -> Self {
        Self { name: name.to_owned(), its, renewed: Instant::now() }
    }

    /// Whether it is time for a sign; it is given then.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.renewed.elapsed() >= RENEW_EVERY;
        if is_due {
            self.renewed = Instant::now();
        }
        is_due
    }
}

/// What is said of a lock that another has; none if it may be taken.
pub(crate) fn refused(site: &str, by: &str, left_s: u64, who: &Who) -> Option<String> {
    if left_s == 0 || who.knows_dead(by) {
        return None;
    }
    let person: String = by.chars().filter(|c| !c.is_control()).take(80).collect();
    let person = person.split(' ').next().unwrap_or_default();
    Some(format!(
        "{person} is changing {site} now; wait, or at most {left_s} s if that machine is gone"
    ))
}

/// Who holds a lock: a person, and one process of one run of one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Who {
    person: String,
    /// The machine's run and the processes among which the number counts.
    among: String,
    process: u32,
}

impl Who {
    /// This process.
    pub(crate) fn this() -> Self {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().chars().filter(char::is_ascii_graphic).take(64).collect::<String>()
        };
        let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
        let plain = |text: &str| text.chars().filter(char::is_ascii_graphic).take(64).collect();
        let user: String = plain(&user);
        let host = read("/proc/sys/kernel/hostname");
        let among = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let among: String = plain(&among.display().to_string());
        let boot = read("/proc/sys/kernel/random/boot_id");
        let among = format!("{boot}/{among}");
        Self { person: format!("{user}@{host}"), among, process: std::process::id() }
    }

    /// Whether it is a process of this machine that is not there any more.
    fn knows_dead(&self, by: &str) -> bool {
        let mut words = by.split(' ').skip(1);
        let among = words.next().unwrap_or_default();
        let process = words.next().and_then(|text| text.parse::<u32>().ok());
        among == self.among
            && process.is_some_and(|id| !std::path::Path::new(&format!("/proc/{id}")).exists())
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.person, self.among, self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_machine_is_known_to_be_gone() {
        let who = Who::this();
        assert!(!who.knows_dead(&who.to_string()), "it lives");
        let mut gone = who.clone();
        gone.process = u32::MAX;
        assert!(who.knows_dead(&gone.to_string()));
        gone.among = "another".to_owned();
        assert!(!who.knows_dead(&gone.to_string()), "of others nothing is known");
        assert!(!who.knows_dead("") && !who.knows_dead("x y z"));
    }
}
