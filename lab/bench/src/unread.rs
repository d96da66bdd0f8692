//! What reached a host and found the buffer of the program that should read it full: on a small
//! machine that is the measuring program, and not the way to it.

use anyhow::{Context, Result};
use lab::netns::Host;

const FILES: [&str; 4] = ["/proc/net/snmp", "/proc/net/snmp6", "/proc/net/udp", "/proc/net/udp6"];

/// What a host's sockets for UDP had no room for since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Of all sockets there ever were.
    all: u64,
    /// Of those that are open.
    open: u64,
}

impl Unread {
    pub(crate) fn of(host: &Host) -> Result<Self> {
        let texts = host.run(&[&["cat"], FILES.as_slice()].concat())?;
        Self::parse(&texts).context("the kernel's counters of UDP are not what they were")
    }

    /// Of sockets that were closed in between: daemons keep theirs.
    pub(crate) fn by_closed(before: Self, after: Self) -> u64 {
        (after.all - before.all).saturating_sub(after.open.saturating_sub(before.open))
    }

    fn parse(texts: &str) -> Option<Self> {
        let mut found = Self { all: counter(texts, "Udp:", "RcvbufErrors")?, open: 0 };
        for line in texts.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match *words.first()? {
                "Udp6RcvbufErrors" => found.all += words.get(1)?.parse::<u64>().ok()?,
                // A socket's line begins with its number, and ends with its drops.
                slot if slot.trim_end_matches(':').parse::<u64>().is_ok() => {
                    found.open += words.last()?.parse::<u64>().ok()?;
                }
                _ => {}
            }
        }
        Some(found)
    }
}

/// What a host's kernel counts of pings, over both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echoes {
    /// Answers that came back, whoever read them.
    pub(crate) came: u64,
    /// Requests that came and were not answered: what waits on the way out has used up the room
    /// that the kernel allows its answers.
    pub(crate) unanswered: u64,
}

impl Echoes {
    pub(crate) fn of(host: &Host) -> Result<Self> {
        Self::parse(&host.run(&["cat", FILES[0], FILES[1]])?)
            .context("the kernel's counters of ICMP are not what they were")
    }

    fn parse(texts: &str) -> Option<Self> {
        let both = |four: &str, six: &str| {
            let value = |line: &str| line.strip_prefix(six)?.trim().parse::<u64>().ok();
            Some(counter(texts, "Icmp:", four)? + texts.lines().find_map(value)?)
        };
        let asked = both("InEchos", "Icmp6InEchos")?;
        let answered = both("OutEchoReps", "Icmp6OutEchoReplies")?;
        let came = both("InEchoReps", "Icmp6InEchoReplies")?;
        Some(Self { came, unanswered: asked.saturating_sub(answered) })
    }
}

/// A number below its name: there is a line of names and then one of numbers, and both begin so.
fn counter(texts: &str, begin: &str, name: &str) -> Option<u64> {
    let mut lines = texts.lines().filter(|line| line.split_whitespace().next() == Some(begin));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &str = "\
Tcp: RtoAlgorithm RtoMin
Tcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 900 0 17 50 16 0
UdpLite: InDatagrams RcvbufErrors
UdpLite: 0 0
Icmp: InMsgs InErrors InEchos InEchoReps OutEchoReps
Icmp: 90 0 15 70 11
Icmp6InEchos                    \t5
Icmp6InEchoReplies              \t8
Icmp6OutEchoReplies             \t3
Udp6InDatagrams                 \t3
Udp6RcvbufErrors                \t4
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt inode pointer drops
 1234: 00000000:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 15 2 0000 5
  sl  local_address                         remote_address                        drops
 99: 00000000000000000000000000000000:CA6C 0000 07 0:0 00:0 00000000 0 0 16 2 0000 1
";

    #[test]
    fn what_closed_sockets_had_no_room_for_is_the_difference() {
        let after = Unread::parse(TEXTS).expect("as the kernel prints it");
        assert_eq!(after, Unread { all: 20, open: 6 });
        assert_eq!(Unread::by_closed(Unread { all: 3, open: 2 }, after), 13);
        assert_eq!(Unread::by_closed(after, after), 0);
        assert_eq!(Unread::parse("Udp: RcvbufErrors\nUdp: many\n"), None);
    }

    #[test]
    fn echoes_are_of_both_families() {
        assert_eq!(Echoes::parse(TEXTS), Some(Echoes { came: 78, unanswered: 6 }));
        assert_eq!(Echoes::parse("Icmp: InMsgs\nIcmp: 1\n"), None);
    }
}
