//! The rule by which the kernel leaves requests of ours to us.
//!
//! The kernel answers every echo request by itself. A rule at its input gives those with our
//! marker, to the responder's address, a type for experiments, which the kernel drops in silence
//! (RFC 1122,
//! 3.2.2.1) after it has handed it to raw sockets. Everybody else's pings are answered as before,
//! the machine's own rules still decide who may come in, and no socket looks at all other packets.
//!
//! One table a responder, made and removed in one transaction each. What a killed program left is
//! replaced by the next start with the same name, and removed by [`clear_leftovers`].

use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{TAKEN_V4, TAKEN_V6};
use crate::program::feed;
use crate::uapi::DIRECTORY;

/// What our tables begin with.
const PREFIX: &str = "warren_icmp_";

/// A rule in force; dropped, it is no more.
#[derive(Debug)]
pub(super) struct Rule {
    table: String,
}

impl Rule {
    pub(super) fn add(name: &str, at: IpAddr) -> Result<Self, String> {
        let table = format!("{PREFIX}{}", plain(name));
        feed("nft", &["-f", "-"], &script(&table, at))
            .map_err(|why| format!("ListenIcmp needs nftables: {why}"))?;
        Ok(Self { table })
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

impl Drop for Rule {
    fn drop(&mut self) {
        let table = &self.table;
        let script = format!("add table inet {table}\ndelete table inet {table}\n");
        if let Err(why) = feed("nft", &["-f", "-"], &script) {
            tracing::warn!("the table {table} is left behind: {why}");
        }
    }
}

/// A name as tables have it.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Whether a link with this plain name lives: its interface goes with its program, and so does the
/// one that listens at its control socket.
fn lives(suffix: &str) -> bool {
    let names = |directory: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let has_interface = names("/sys/class/net").iter().any(|name| plain(name) == suffix);
    let listens = |file: &String| {
        let is_named = file.strip_suffix(".sock").is_some_and(|name| plain(name) == suffix);
        is_named && UnixStream::connect(Path::new(DIRECTORY).join(file)).is_ok()
    };
    has_interface || names(DIRECTORY).iter().any(listens)
}

/// Removes the tables of links that were killed.
///
/// # Errors
/// What `nft` says.
pub fn clear_leftovers() -> Result<(), String> {
    if !crate::program::find("nft") {
        return Ok(());
    }
    let listed = feed("nft", &["list", "tables", "inet"], "")?;
    let ours = listed.lines().filter_map(|line| line.trim().strip_prefix("table inet "));
    let script: String = ours
        .filter(|table| table.strip_prefix(PREFIX).is_some_and(|suffix| !lives(suffix)))
        .map(|table| format!("delete table inet {table}\n"))
        .collect();
    if script.is_empty() {
        return Ok(());
    }
    feed("nft", &["-f", "-"], &script).map(drop)
}
