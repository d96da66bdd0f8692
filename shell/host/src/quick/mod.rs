//! wg-quick files without wg-quick: from the text of a file to addresses, routes and rules.
//!
//! [`read`] turns a file into [`Settings`], or into every [`Fault`] it has, each with line and
//! column. [`Facts::gather`] asks the machine what a plan depends on; [`Plan::new`] decides,
//! purely, what is to be done; [`apply`] does it through netlink and returns [`Applied`], which
//! undoes all of it in reverse order when dropped. Scripts of the file run only if the caller
//! allows it. What a killed program could not undo, the next start does: see [`clear_leftovers`].
//!
//! Differences from wg-quick, on purpose:
//! - Each link with a default route has its own pair of rules, with explicit priorities, so that
//!   two links do not remove each other's, and the rule that protects local networks comes first.
//! - What protects against spoofed inner addresses, and what lets strict reverse-path filters see
//!   the mark, is one nftables table; without `nft` the link comes up with a warning.
//! - `DNS` is handed to `resolvconf`; where there is none the link comes up with a warning.
//! - A comment `# Warren: KEY = VALUE` is read, so that one file serves them and us.
//! - `SaveConfig` has no effect: a file written by people is not rewritten by a program.

mod apply;
mod error;
mod facts;
mod known;
mod leftovers;
mod nearest;
mod parse;
mod plan;
mod preshared;
mod resolve;
mod run;
mod silence;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node::{AllowedIp, Carrier, Change, PeerChange, Prefix, Preshared};
use noise::{PresharedKey, PrivateKey, PublicKey};

use crate::keyfile::{KeyFile, OVERLAP};

pub use apply::{Applied, Scripts, apply};
pub use error::ApplyError;
pub use facts::Facts;
pub use leftovers::clear_leftovers;
pub use parse::parse;
pub use plan::{Plan, PlanError, Step};
pub use resolve::{Host, Looked, ResolveError, look_once, resolve};
pub use run::{RunError, run};

use known::Known;

/// The longest file, in bytes.
pub const FILE_LEN_MAX: u64 = 16 << 20;
/// Milliseconds that a small packet waits for others, at most, as in source 004.
pub const HOLD_MS_MAX: u16 = 1_000;
/// Milliseconds between echo requests of an idle link, if nothing is said.
pub const ICMP_POLL_MS: u32 = carrier::icmp::POLL.as_millis() as u32;
/// Seconds between keepalives of a link over ICMP, if nothing is said.
pub const ICMP_KEEPALIVE_S: u16 = 25;
/// How long TCP waits for its order if nothing is said, and at most, milliseconds.
pub const ORDER_MS: u16 = node::ORDER.as_millis() as u16;
/// See [`ORDER_MS`].
pub const ORDER_MS_MAX: u16 = node::ORDER_MAX.as_millis() as u16;

/// How much repair may be sent for what is sent, percent, if nothing is said and at most.
pub const REPAIR_PERCENT: u8 = node::REPAIR_PERCENT;

/// Where a file stands that is named only by its interface.
pub const DIRECTORY: &str = "/etc/wireguard";

/// What a wg-quick file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Our own side.
    pub interface: Interface,
    /// The peers, in the order of the file.
    pub peers: Vec<Peer>,
    /// What is odd but not wrong.
    pub warnings: Vec<String>,
    /// Line and column of each peer's key file, in the order of the peers.
    key_files_at: Vec<(usize, usize)>,
}

/// The section `[Interface]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Our static key.
    pub private_key: Option<PrivateKey>,
    /// The UDP port; 0 or none lets the system choose.
    pub listen_port: Option<u16>,
    /// The mark on what leaves; `Some(0)` is `off`.
    pub fwmark: Option<u32>,
    /// Addresses of the interface with the length of their networks.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The largest inner packet, in bytes.
    pub mtu: Option<u32>,
    /// Resolvers.
    pub dns: Vec<IpAddr>,
    /// Domains to search.
    pub dns_search: Vec<String>,
    /// Where routes go.
    pub table: Table,
    /// Scripts, by occasion.
    pub hooks: Hooks,
    /// Whether to speak frames with peers that know them; none is yes.
    pub frames: Option<bool>,
    /// Milliseconds that TCP waits for its order at most; none is [`ORDER_MS`].
    pub order_ms: Option<u16>,
    /// How much repair may be sent for what is sent, percent; none is [`REPAIR_PERCENT`].
    pub repair_percent: Option<u8>,
    /// Our address at which echo requests of peers are answered.
    pub listen_icmp: Option<IpAddr>,
    /// The IP protocol whose packets are taken from peers.
    pub listen_ip: Option<u8>,
    /// Bytes of the largest packet that leaves the machine.
    pub outer_mtu: Option<u32>,
    /// How fast the line is; none is no limit.
    pub line_rate: Option<node::LineRate>,
    /// Whether the file asks to be rewritten; it is not.
    pub save_config: bool,
}

/// The scripts of a file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Before the interface is configured.
    pub pre_up: Vec<String>,
    /// When all is up.
    pub post_up: Vec<String>,
    /// Before anything is taken down.
    pub pre_down: Vec<String>,
    /// When all is gone.
    pub post_down: Vec<String>,
}

impl Hooks {
    /// Every script with the name of its occasion.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("PreUp", &self.pre_up),
            ("PostUp", &self.post_up),
            ("PreDown", &self.pre_down),
            ("PostDown", &self.post_down),
        ]
        .into_iter()
        .flat_map(|(name, scripts)| scripts.iter().map(move |s| (name, s.as_str())))
    }
}

/// Where routes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// The main table, and a table of its own for a default route.
    #[default]
    Auto,
    /// Nowhere: no routes are made.
    Off,
    /// All of them into this table.
    Number(u32),
}

/// A section `[Peer]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's static key.
    pub key: PublicKey,
    /// The pre-shared key, or the schedule of them.
    pub preshared_key: Option<Preshared>,
    /// The file that has it.
    pub key_file: Option<KeyFile>,
    /// The prefixes the peer has.
    pub allowed_ips: Vec<Prefix>,
    /// Where to send, not yet resolved.
    pub endpoint: Option<Host>,
    /// What carries datagrams there; none is UDP.
    pub carrier: Option<Carrier>,
    /// Milliseconds between echo requests at most, where they carry; none is [`ICMP_POLL_MS`].
    pub icmp_poll_ms: Option<u32>,
    /// Seconds between persistent keepalives; 0 is `off`.
    pub keepalive_s: Option<u16>,
    /// Whether what goes to it is compressed, where it reads that.
    pub compress: bool,
    /// Milliseconds that a small packet to it waits for others, at most [`HOLD_MS_MAX`].
    pub hold_ms: u16,
    /// How addresses are rewritten between it and this machine.
    pub translate: node::translate::Table,
}

impl Settings {
    /// The configuration of a node with these settings. `endpoints` are the peers' resolved ones,
    /// in the order of the peers, and `fwmark` is the plan's.
    pub fn changes(&self, endpoints: &[Option<SocketAddr>], fwmark: u32) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.interface.private_key.is_some() {
            changes.push(Change::PrivateKey(self.interface.private_key.clone()));
        }
        changes.push(Change::ListenPort(self.interface.listen_port.unwrap_or(0)));
        changes.push(Change::Fwmark(fwmark));
        changes.extend(self.interface.listen_icmp.map(Change::ListenIcmp));
        changes.extend(self.interface.listen_ip.map(Change::ListenIp));
        changes.push(Change::ReplacePeers);
        let endpoints = endpoints.iter().copied().chain(std::iter::repeat(None));
        for (peer, endpoint) in self.peers.iter().zip(endpoints) {
            changes.push(peer.change(endpoint));
        }
        changes
    }

    /// What turns a running node with the settings `old` into one with these: nothing that stayed
    /// the same is touched, so sessions go on, and so do endpoints learnt since. `resolve` is asked
    /// for the endpoints that are new.
    ///
    /// # Errors
    /// The first that `resolve` gives.
    pub fn changes_since<E>(
        &self,
        old: &Self,
        mut resolve: impl FnMut(&Host) -> Result<SocketAddr, E>,
    ) -> Result<Vec<Change>, E> {
        let mut changes = Vec::new();
        let (new_interface, old_interface) = (&self.interface, &old.interface);
        if new_interface.private_key != old_interface.private_key {
            changes.push(Change::PrivateKey(new_interface.private_key.clone()));
        }
        if new_interface.listen_port != old_interface.listen_port {
            changes.push(Change::ListenPort(new_interface.listen_port.unwrap_or(0)));
        }
        let gone = old.peers.iter().filter(|peer| self.peer(&peer.key).is_none());
        changes.extend(
            gone.map(|peer| Change::Peer(PeerChange { remove: true, ..PeerChange::new(peer.key) })),
        );
        for peer in &self.peers {
            let before = old.peer(&peer.key);
            if before == Some(peer) {
                continue;
            }
            let moved = before.is_none_or(|before| {
                (&before.endpoint, before.carrier) != (&peer.endpoint, peer.carrier)
            });
            let endpoint = peer.endpoint.as_ref().filter(|_| moved);
            changes.push(peer.change(endpoint.map(&mut resolve).transpose()?));
        }
        Ok(changes)
    }

    /// What differs from the settings `old` and takes effect with the next `link up` only.
    fn waits_for_next_up(&self, old: &Self) -> Vec<&'static str> {
        let (new, old) = (&self.interface, &old.interface);
        let differs = [
            ("Address", new.addresses != old.addresses),
            ("MTU", new.mtu != old.mtu),
            ("DNS", new.dns != old.dns || new.dns_search != old.dns_search),
            ("Table", new.table != old.table),
            ("FwMark", new.fwmark != old.fwmark),
            ("Frames", new.frames != old.frames),
            ("OrderMs", new.order_ms != old.order_ms),
            ("RepairMax", new.repair_percent != old.repair_percent),
            ("ListenIcmp", new.listen_icmp != old.listen_icmp),
            ("ListenIp", new.listen_ip != old.listen_ip),
            ("OuterMtu", new.outer_mtu != old.outer_mtu),
            ("LineRate", new.line_rate != old.line_rate),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// The key files, by peer.
    fn key_files(&self) -> Vec<(PublicKey, KeyFile)> {
        let files = self.peers.iter();
        files.filter_map(|peer| Some((peer.key, peer.key_file.clone()?))).collect()
    }

    fn peer(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.key == *key)
    }
}

impl Peer {
    /// Who pings is to be reached from the start: only requests that follow a session are kept.
    fn default_keepalive_s(&self) -> u16 {
        if self.carrier == Some(Carrier::IcmpRequest) { ICMP_KEEPALIVE_S } else { 0 }
    }

    /// Makes the peer what the file says, and at `endpoint` if there is one; what the file does not
    /// say is off.
    fn change(&self, endpoint: Option<SocketAddr>) -> Change {
        Change::Peer(PeerChange {
            preshared_key: Some(self.preshared_key.clone().unwrap_or_else(none)),
            endpoint,
            carrier: self.carrier,
            poll: Some(Duration::from_millis(self.icmp_poll_ms.unwrap_or(ICMP_POLL_MS).into())),
            keepalive_s: Some(self.keepalive_s.unwrap_or_else(|| self.default_keepalive_s())),
            replace_allowed_ips: true,
            allowed_ips: self.allowed_ips.iter().map(|p| AllowedIp::give(*p)).collect(),
            compress: Some(self.compress),
            hold: Some(Duration::from_millis(self.hold_ms.into())),
            translate: Some(self.translate.clone()),
            ..PeerChange::new(self.key)
        })
    }
}

/// No pre-shared key; where there was one it holds a while longer.
fn none() -> Preshared {
    Preshared::Key(PresharedKey::default(), OVERLAP)
}

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong, and after a `;` how to mend it. Secrets are never repeated.
    pub what: String,
}

/// Why a file could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The system refused.
    Io(PathBuf, std::io::Error),
    /// The file is longer than [`FILE_LEN_MAX`].
    Length(PathBuf),
    /// The file says things that cannot be.
    Faults(PathBuf, Vec<Fault>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, e) => {
                write!(f, "cannot read {}: {e}", path.display())?;
                match e.kind() {
                    std::io::ErrorKind::NotFound => f.write_str("; check the path"),
                    std::io::ErrorKind::PermissionDenied => {
                        let root =
                            "; something beside its mode keeps root out (SELinux, AppArmor?)";
                        f.write_str(crate::advice("; run as root", root))
                    }
                    _ => Ok(()),
                }
            }
            Self::Length(path) => {
                let mib = FILE_LEN_MAX >> 20;
                write!(f, "{} is longer than {mib} MiB; is it the right file?", path.display())
            }
            Self::Faults(path, faults) => {
                for (i, fault) in faults.iter().enumerate() {
                    let end = if i + 1 < faults.len() { "\n" } else { "" };
                    let Fault { line, column, what } = fault;
                    write!(f, "{}:{line}:{column}: {what}{end}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// The file that `argument` means: a path, or a bare interface name for a file in [`DIRECTORY`].
pub fn locate(argument: &str) -> PathBuf {
    if crate::uapi::is_interface_name(argument) && !argument.ends_with(".conf") {
        return Path::new(DIRECTORY).join(format!("{argument}.conf"));
    }
    PathBuf::from(argument)
}

/// The interface name in a file's name, `NAME.conf`.
pub fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".conf")?;
    crate::uapi::is_interface_name(name).then(|| name.to_owned())
}

/// Reads the file at `path`.
///
/// # Errors
/// [`ReadError`], with every fault of the file at once.
pub fn read(path: &Path) -> Result<Settings, ReadError> {
    let io = |e| ReadError::Io(path.to_owned(), e);
    let file = std::fs::File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.permissions().mode();
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(ReadError::Length(path.to_owned()));
    }
    drop_odd_comments(&mut bytes);
    let parsed = match std::str::from_utf8(&bytes) {
        Ok(text) => parse::parse_with(text, Known::here()),
        Err(e) => {
            let before = &bytes[..e.valid_up_to()];
            let line = 1 + before.iter().filter(|b| **b == b'\n').count();
            let column = 1 + before.iter().rev().take_while(|b| **b != b'\n').count();
            let what = "not UTF-8 text; is this a wg-quick file?".to_owned();
            Err(vec![Fault { line, column, what }])
        }
    };
    bytes.fill(0);
    std::hint::black_box(&mut bytes);
    let faults = |faults| ReadError::Faults(path.to_owned(), faults);
    let mut settings = parsed.map_err(faults)?;
    settings.read_key_files(path.parent().unwrap_or_else(|| Path::new("."))).map_err(faults)?;
    if mode & 0o007 != 0 && settings.holds_secrets() {
        settings.warnings.push(format!(
            "{0} holds secrets and others may read or write it (mode {1:03o}); \
             run `chmod 600 {0}`",
            path.display(),
            mode & 0o777
        ));
    }
    Ok(settings)
}

/// Comments may be in any encoding, as for `wg`; what is not UTF-8 in them becomes a `?`.
fn drop_odd_comments(bytes: &mut [u8]) {
    if std::str::from_utf8(bytes).is_ok() {
        return;
    }
    for line in bytes.split_mut(|b| *b == b'\n') {
        let comment =
            line.iter().position(|b| *b == b'#').map_or(&mut [][..], |at| &mut line[at..]);
        if std::str::from_utf8(comment).is_err() {
            comment.iter_mut().filter(|b| !b.is_ascii()).for_each(|b| *b = b'?');
        }
    }
}

impl Settings {
    fn holds_secrets(&self) -> bool {
        let has_key = |p: &Peer| p.preshared_key.is_some() && p.key_file.is_none();
        self.interface.private_key.is_some() || self.peers.iter().any(has_key)
    }

    /// Reads the key files that it names.
    fn read_key_files(&mut self, directory: &Path) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        for (peer, &(line, column)) in self.peers.iter_mut().zip(&self.key_files_at) {
            let Some(file) = &mut peer.key_file else { continue };
            match file.read(directory) {
                Ok(key) => peer.preshared_key = Some(key),
                Err(why) => {
                    let what = format!("PresharedKeyFile: {}: {why}", file.path.display());
                    faults.push(Fault { line, column, what });
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
