//! The rule by which the kernel leaves requests of ours to us.
//!
//! The kernel answers every echo request by itself. A rule at its input gives those with our
//! marker, to the responder's address, a type for experiments, which the kernel drops in silence
//! (RFC 1122,
//! 3.2.2.1) after it has handed it to raw sockets. Everybody else's pings are answered as before,
//! the machine's own rules still decide who may come in, and no socket looks at all other packets.
//!
//! One table a responder, made and removed in one transaction each. A name in the space of abstract
//! sockets says that its owner lives: the kernel takes it back from whoever is killed, and it
//! belongs to a network namespace, as tables do. So a second responder at one address is refused,
//! and what a killed one left is removed by the next start with the same name, or by
//! [`clear_leftovers`].

use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::socket::{TAKEN_V4, TAKEN_V6};

/// What our tables begin with.
const TABLE: &str = "warren_icmp_";
/// What the names of living responders begin with.
const LIVES: &str = "warren-icmp/";
/// The names of sockets in this network namespace.
const NAMES: &str = "/proc/thread-self/net/unix";

/// How `nft` is run: with these words and this input. Gives what it printed, or why not.
type Nft = fn(&[&str], &str) -> Result<String, String>;

/// A rule in force; dropped, it is no more.
#[derive(Debug)]
pub struct Rule {
    table: String,
    nft: Nft,
    _lives: UnixListener,
}

impl Rule {
    /// Makes one for requests to `at`, in a table called after `name`.
    ///
    /// # Errors
    /// Another responder is at that address, or what `nft` says.
    pub fn add(name: &str, at: IpAddr, nft: Nft) -> Result<Self, String> {
        let name = plain(name);
        let lives = claim(&name, at)?;
        let table = format!("{TABLE}{name}");
        nft(&["-f", "-"], &script(&table, at)).map_err(|why| {
            format!("{why}; pings need nftables and CAP_NET_ADMIN (docs/link.md, Carriers)")
        })?;
        Ok(Self { table, nft, _lives: lives })
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        let table = &self.table;
        let script = format!("add table inet {table}\ndelete table inet {table}\n");
        // Whoever could make it can remove it; if not, the next start or a clean-up does.
        let _ = (self.nft)(&["-f", "-"], &script);
    }
}

fn script(table: &str, at: IpAddr) -> String {
    let marker = u32::from_be_bytes(wire::ping::MARKER);
    let (ip, icmp, taken) = match at {
        IpAddr::V4(_) => ("ip", "icmp", TAKEN_V4),
        IpAddr::V6(_) => ("ip6", "icmpv6", TAKEN_V6),
    };
    let to = if at.is_unspecified() { String::new() } else { format!("{ip} daddr {at} ") };
    format!(
        "add table inet {table}\n\
         delete table inet {table}\n\
         add table inet {table}\n\
         add chain inet {table} input {{ type filter hook input priority 10; }}\n\
         add rule inet {table} input {to}{icmp} type echo-request @th,64,32 {marker:#x} \
         {icmp} type set {taken} counter\n"
    )
}

/// Says that the responder `name` at `at` lives, if no other one would answer the same requests.
fn claim(name: &str, at: IpAddr) -> Result<UnixListener, String> {
    let full = format!("{LIVES}{name}/{at}");
    let other = |whose: &str| {
        format!(
            "{at} has a responder of pings already, {whose}, and each request would be answered \
             twice; end that one, or give this one another address"
        )
    };
    let address = SocketAddr::from_abstract_name(&full).map_err(|error| error.to_string())?;
    let lives = UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => other(name),
        _ => error.to_string(),
    })?;
    match living().find(|(whose, theirs)| whose != name && overlap(*theirs, at)) {
        Some((whose, _)) => Err(other(&whose)),
        None => Ok(lives),
    }
}

fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let is_any = one.is_unspecified() || other.is_unspecified();
    one == other || (is_any && one.is_ipv4() == other.is_ipv4())
}

/// The responders of this network namespace, with their addresses.
fn living() -> impl Iterator<Item = (String, IpAddr)> {
    let text = std::fs::read_to_string(NAMES).unwrap_or_default();
    let names: Vec<_> = text.lines().filter_map(responder).collect();
    names.into_iter()
}

/// What a line of the kernel's list says of a responder.
fn responder(line: &str) -> Option<(String, IpAddr)> {
    let (_, name) = line.rsplit_once('@')?;
    let (name, at) = name.strip_prefix(LIVES)?.split_once('/')?;
    Some((name.to_owned(), at.parse().ok()?))
}

/// A name as tables have it.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Removes the tables of responders that were killed.
///
/// # Errors
/// What `nft` says.
pub fn clear_leftovers(nft: Nft) -> Result<(), String> {
    let listed = nft(&["list", "tables", "inet"], "")?;
    let ours = listed.lines().filter_map(|line| line.trim().strip_prefix("table inet "));
    let lives: Vec<String> = living().map(|(name, _)| name).collect();
    let is_left = |table: &&str| {
        table.strip_prefix(TABLE).is_some_and(|name| !lives.iter().any(|living| living == name))
    };
    let script: String =
        ours.filter(is_left).map(|table| format!("delete table inet {table}\n")).collect();
    if script.is_empty() {
        return Ok(());
    }
    nft(&["-f", "-"], &script).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_responder_at_one_address_is_refused_as_long_as_the_first_lives() {
        let name = |n: u32| format!("test{}_{n}", std::process::id());
        let [one, other, any] =
            ["192.0.2.77", "192.0.2.78", "0.0.0.0"].map(|at| at.parse().unwrap());
        let first = claim(&name(1), one).unwrap();
        let why = claim(&name(2), one).unwrap_err();
        assert!(why.contains(&name(1)) && why.contains("another address"), "{why}");
        assert!(claim(&name(3), any).unwrap_err().contains(&name(1)));
        assert!(claim(&name(1), one).is_err(), "nor one of its name");
        let second = claim(&name(4), other).unwrap();
        assert!(claim(&name(5), "::".parse().unwrap()).is_ok(), "of the other family");
        drop((first, second));
        assert!(claim(&name(2), one).is_ok());
    }

    #[test]
    fn lines_of_the_kernel_are_read_and_others_are_none() {
        let line = "0: 0000 00010000 0001 01 4711 @warren-icmp/wg0/198.51.100.2";
        assert_eq!(responder(line), Some(("wg0".to_owned(), "198.51.100.2".parse().unwrap())));
        for line in ["", "Num RefCount", "0: 1 2 3 4 5 @other/wg0/1.2.3.4", "@warren-icmp/x/y"] {
            assert_eq!(responder(line), None);
        }
    }
}
