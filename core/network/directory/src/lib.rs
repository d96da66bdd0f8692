//! A directory of hops: machines of several operators that serve circuits of people who are in
//! none of their networks. It is a TOML file with a signature in its last line.
//!
//! ```toml
//! until = "2027-01-31"                     # it is good for as long
//!
//! [[hop]]
//! name = "ams1"
//! operator = "alice"                       # a family: never two of one in a path
//! key = "K1l…="                            # the hop's WireGuard key
//! addresses = ["192.0.2.7:41820"]
//! exit = true
//! refuses = ["198.51.100.0/24", ":25"]     # of an exit: networks, and ports of every one
//!
//! # warren-signature: KEY SIGNATURE
//! ```
//!
//! The life of a directory: its operators write the text; one of them signs it ([`sign`]), which
//! [`check`]s it first; everybody else reads it with the key of that one ([`open`]). A node that
//! is a hop makes links to the others, a client chooses a path among them. What is signed is every
//! byte before the last line, so nothing is serialised again before it is verified. The line is a
//! comment, so a signed file is a TOML file still.
//!
//! What it is not: a consensus. The holder of the key may say one thing to one person and another
//! to the next; readers compare its digest if they care ([`digest`]). It holds nothing secret.
//!
//! Bounds: [`FILE_BYTES_MAX`], [`HOPS_MAX`], [`ADDRESSES_MAX`]. Nothing in a file panics; a mistake
//! is told with its line, and how to mend it.

#![forbid(unsafe_code)]

mod day;
mod problem;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use control::{Prefix, Signed, SigningKey, VerifyingKey};
use noise::PublicKey;
use serde::Deserialize;

pub use day::Day;
pub use problem::Problem;

/// Largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Hops of a directory.
pub const HOPS_MAX: usize = 1024;
/// Addresses of a hop.
pub const ADDRESSES_MAX: usize = 8;
/// Letters of a name or of an operator.
pub const NAME_LEN_MAX: usize = 64;
/// What the last line begins with.
const MARK: &str = "# warren-signature: ";

/// A directory as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// The last day on which it is good.
    pub until: Day,
    /// Its hops, in the order of the file.
    pub hops: Vec<Hop>,
}

/// One hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// What it is called; no two are called the same.
    pub name: String,
    /// Who runs it.
    pub operator: String,
    /// The key that it proves.
    pub key: PublicKey,
    /// Where it is.
    pub addresses: Vec<SocketAddr>,
    /// Whether packets leave there.
    pub exit: bool,
    /// What it refuses beyond what every exit does, as it says.
    pub refuses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    until: String,
    #[serde(default)]
    hop: Vec<HopText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HopText {
    name: String,
    operator: String,
    key: String,
    addresses: Vec<String>,
    #[serde(default)]
    exit: bool,
    #[serde(default)]
    refuses: Vec<String>,
}

/// Reads a file, whether signed or not.
///
/// # Errors
/// What is wrong, where, and how to mend it.
pub fn check(text: &str) -> Result<Directory, Problem> {
    if text.len() > FILE_BYTES_MAX {
        return Err(Problem::Size(text.len()));
    }
    let read: Text = toml::from_str(text).map_err(|error| Problem::Toml(error.to_string()))?;
    let until = Day::read(&read.until).ok_or(Problem::Day(read.until))?;
    if read.hop.is_empty() || read.hop.len() > HOPS_MAX {
        return Err(Problem::Hops(read.hop.len()));
    }
    let (mut names, mut keys, mut hops) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for hop in read.hop {
        let hop = read_hop(hop)?;
        if !names.insert(hop.name.clone()) {
            return Err(Problem::Twice(hop.name, "name"));
        }
        if !keys.insert(hop.key) {
            return Err(Problem::Twice(hop.name, "key"));
        }
        hops.push(hop);
    }
    Ok(Directory { until, hops })
}

fn read_hop(text: HopText) -> Result<Hop, Problem> {
    let HopText { name, operator, key, addresses, exit, refuses } = text;
    let of = |what| Problem::Hop(name.clone(), what);
    let is_word = |word: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !word.is_empty() && word.len() <= NAME_LEN_MAX && word.bytes().all(good)
    };
    if !is_word(&name) || !is_word(&operator) {
        return Err(of("name and operator are letters, digits, and - _ . between them"));
    }
    let key = key.parse().map_err(|_| of("key is a WireGuard key in base64, 44 characters"))?;
    let read = |text: &String| text.parse().ok().filter(is_reachable);
    let addresses: Option<Vec<SocketAddr>> = addresses.iter().map(read).collect();
    let addresses = addresses.filter(|list| !list.is_empty() && list.len() <= ADDRESSES_MAX);
    let addresses =
        addresses.ok_or_else(|| of("addresses are 1 to 8 of the form 192.0.2.7:41820"))?;
    let is_rule = |rule: &String| match rule.strip_prefix(':') {
        Some(port) => port.parse::<u16>().is_ok_and(|port| port > 0),
        None => rule.parse::<Prefix>().is_ok(),
    };
    if !refuses.iter().all(is_rule) {
        return Err(of("refuses are networks (198.51.100.0/24) and ports (\":25\")"));
    }
    if !exit && !refuses.is_empty() {
        return Err(of("only an exit refuses; say exit = true, or leave refuses out"));
    }
    Ok(Hop { name, operator, key, addresses, exit, refuses })
}

fn is_reachable(at: &SocketAddr) -> bool {
    at.port() != 0 && !at.ip().is_unspecified() && !at.ip().is_multicast()
}

/// Signs a text, in place of a signature that it has.
///
/// # Errors
/// It is no directory.
pub fn sign(text: &str, key: &SigningKey) -> Result<String, Problem> {
    check(text)?;
    let body = body(text).0;
    let body = format!("{}\n\n", body.trim_end());
    let signed = key.sign(body);
    let signature = control::text::to_base64(&signed.signature);
    let by = control::text::to_base64(&key.verifying().0);
    Ok(format!("{}{MARK}{by} {signature}\n", signed.text))
}

/// What is signed, and the line that says by whom.
fn body(text: &str) -> (&str, Option<&str>) {
    match text.rfind(MARK) {
        Some(at) if at == 0 || text[..at].ends_with('\n') => (&text[..at], Some(&text[at..])),
        _ => (text, None),
    }
}

/// Who signed a file, as it says itself.
#[must_use]
pub fn signer(text: &str) -> Option<VerifyingKey> {
    let words = body(text).1?.strip_prefix(MARK)?;
    let key = control::text::from_base64(words.split_whitespace().next()?)?;
    Some(VerifyingKey(key.try_into().ok()?))
}

/// Reads a file that `key` has signed and that is good at `now_unix_s`.
///
/// # Errors
/// Somebody else signed it or nobody, it is too old, or it is no directory.
pub fn open(text: &str, key: &VerifyingKey, now_unix_s: u64) -> Result<Directory, Problem> {
    if text.len() > FILE_BYTES_MAX {
        return Err(Problem::Size(text.len()));
    }
    let (body, line) = body(text);
    let words = line.and_then(|line| line.strip_prefix(MARK)).ok_or(Problem::Unsigned)?;
    let mut words = words.split_whitespace();
    let signature = words.nth(1).and_then(control::text::from_base64);
    let (Some(signature), None) = (signature, words.next()) else {
        return Err(Problem::Unsigned);
    };
    let signed = Signed { text: body.to_owned(), signature, bare: false };
    signed.verify(key).map_err(|_| Problem::Forged)?;
    let directory = check(body)?;
    if directory.until.is_over(now_unix_s) {
        return Err(Problem::Old(directory.until));
    }
    Ok(directory)
}

/// A short digest of all that is signed, for people who compare what they were given.
#[must_use]
pub fn digest(text: &str) -> String {
    let hash = noise::parts::hash(&[body(text).0.as_bytes()]);
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The networks that a hop is reached at, to keep two of one apart: a /16, or a /32 of IPv6.
pub fn networks(addresses: &[SocketAddr]) -> impl Iterator<Item = u64> {
    addresses.iter().map(|at| match at.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits() >> 16),
        IpAddr::V6(v6) => 1 << 32 | u64::try_from(v6.to_bits() >> 96).unwrap_or(0),
    })
}

impl Directory {
    /// The hop with this key.
    #[must_use]
    pub fn hop(&self, key: &PublicKey) -> Option<&Hop> {
        self.hops.iter().find(|hop| hop.key == *key)
    }

    /// What whoever signs it should know: operators alone at being an exit, and too few of them.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let operators: BTreeSet<&str> = self.hops.iter().map(|hop| &hop.operator[..]).collect();
        let exits: BTreeSet<&str> =
            self.hops.iter().filter(|hop| hop.exit).map(|hop| &hop.operator[..]).collect();
        let mut remarks = Vec::new();
        if operators.len() < 3 {
            remarks.push(format!(
                "{} operators: a path of three hops needs three of them",
                operators.len()
            ));
        }
        match exits.len() {
            0 => remarks.push("no exit: nothing leaves any path".to_owned()),
            1 => remarks.push("one operator has all exits, and reads what leaves them".to_owned()),
            _ => {}
        }
        for (at, hop) in self.hops.iter().enumerate() {
            let nets: BTreeSet<u64> = networks(&hop.addresses).collect();
            let near = self.hops[..at].iter().find(|other| {
                other.operator != hop.operator
                    && networks(&other.addresses).any(|net| nets.contains(&net))
            });
            if let Some(other) = near {
                remarks.push(format!(
                    "{} and {} are of two operators, but at one /16 (of IPv6 /32): never in one \
                     path",
                    other.name, hop.name
                ));
            }
        }
        remarks
    }
}
