//! The text of a wg-quick file. Every fault is found in one go, with its line and column.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use carrier::icmp;
use node::translate::{self, BadPair, Pair};
use node::{Carrier, Prefix};
use noise::{PrivateKey, PublicKey};

use super::known::Known;
use super::nearest::nearest;
use super::preshared::{Draft, time};
use super::resolve::{cut, is_host_name};
use super::{
    Fault, HOLD_MS_MAX, Host, Interface, ORDER_MS_MAX, Peer, REPAIR_PERCENT, Settings, Table,
};
use crate::keyfile::{OVERLAP_MAX, PERIOD_MAX, PERIOD_MIN};

/// Faults told at once; who has more has the wrong file.
const FAULTS_MAX: usize = 20;

/// The smallest MTU IPv4 allows (RFC 791, section 3.2), and the kernel for a TUN device.
pub(super) const MTU_MIN: u32 = 68;
/// The smallest MTU IPv6 allows (RFC 8200 section 5).
pub(super) const MTU_MIN_V6: u32 = 1280;
const MTU_MAX: u32 = 65535;
/// What `OuterMtu` may be: what every IPv4 host takes (RFC 791), and jumbo frames.
const OUTER_MTU_MIN: u32 = 576;
const OUTER_MTU_MAX: u32 = 9000;
/// What `IcmpPollMs` may be.
const ICMP_POLL_MS: RangeInclusive<u32> =
    icmp::POLL_MIN.as_millis() as u32..=icmp::POLL_MAX.as_millis() as u32;
/// "Any private encryption scheme".
const IP_PROTOCOL: u8 = 99;

const INTERFACE_KEYS: [&str; 19] = [
    "PrivateKey",
    "ListenPort",
    "FwMark",
    "Address",
    "MTU",
    "DNS",
    "Table",
    "PreUp",
    "PostUp",
    "PreDown",
    "PostDown",
    "SaveConfig",
    "Frames",
    "OrderMs",
    "RepairMax",
    "ListenIcmp",
    "ListenIp",
    "OuterMtu",
    "LineRate",
];
const PEER_KEYS: [&str; 14] = [
    "PublicKey",
    "PresharedKey",
    "PresharedKeyFile",
    "PresharedKeySchedule",
    "PresharedKeyOverlap",
    "AllowedIPs",
    "Endpoint",
    "PersistentKeepalive",
    "Compress",
    "HoldMs",
    "Carrier",
    "IcmpPollMs",
    "TranslateSource",
    "TranslateDestination",
];

/// How a comment begins that is for Warren.
const FOR_WARREN: &str = "Warren:";

/// What is wrong with a value, and how to mend it.
type Wrong = String;

/// Reads the text of a wg-quick file.
///
/// # Errors
/// Every fault, at most 20.
pub fn parse(text: &str) -> Result<Settings, Vec<Fault>> {
    parse_with(text, Known::default())
}

/// As [`parse`], where tables and ports may have names.
pub(super) fn parse_with(text: &str, known: Known) -> Result<Settings, Vec<Fault>> {
    let mut reader = Reader { known, ..Reader::default() };
    // Editors of Windows begin a file with it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        reader.line = number + 1;
        reader.handle_line(line);
        if reader.faults.len() >= FAULTS_MAX {
            break;
        }
    }
    reader.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Interface,
    Peer,
    /// A section whose header was a fault: its lines are passed over.
    Unknown,
}

/// A `[Peer]` that may still lack its key.
#[derive(Default)]
struct PeerDraft {
    line: usize,
    key: Option<PublicKey>,
    preshared: Draft,
    allowed_ips: Vec<Prefix>,
    /// The line, the column and the text; what it means depends on the carrier.
    endpoint: Option<(usize, usize, String)>,
    carrier: Option<Carrier>,
    icmp_poll_ms: Option<u32>,
    keepalive_s: Option<u16>,
    compress: bool,
    hold_ms: u16,
    /// `TranslateSource` and `TranslateDestination`, and where the last of them stands.
    pairs: [Vec<Pair>; 2],
    pairs_at: (usize, usize),
}

#[derive(Default)]
struct Reader {
    line: usize,
    section: Option<Section>,
    interface: Interface,
    interface_seen: bool,
    mtu_at: (usize, usize),
    peers: Vec<PeerDraft>,
    /// Keys of the current section that may stand there once.
    seen: Vec<&'static str>,
    warnings: Vec<String>,
    faults: Vec<Fault>,
    known: Known,
}

impl Reader {
    fn fault(&mut self, column: usize, what: impl Into<String>) {
        self.fault_at(self.line, column, what.into());
    }

    /// Faults are also found when all lines were read, so the bound is kept here.
    fn fault_at(&mut self, line: usize, column: usize, what: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { line, column, what });
        }
    }

    fn handle_line(&mut self, line: &str) {
        let own = for_warren(line).unwrap_or(line);
        let before = line.chars().count() - own.chars().count();
        let content = own.split('#').next().unwrap_or_default().trim_end();
        let trimmed = content.trim_start();
        let column = 1 + before + content.chars().count() - trimmed.chars().count();
        if trimmed.is_empty() {
            return;
        }
        if trimmed.starts_with('[') {
            return self.handle_header(column, trimmed);
        }
        let Some((key, value)) = trimmed.split_once('=') else {
            return self
                .fault(column, format!("`{}` has no `=`; write `Key = value`", cut(trimmed)));
        };
        let value_column = column + key.chars().count() + 1;
        let lead = value.chars().take_while(|c| c.is_whitespace()).count();
        self.handle_pair((column, key.trim()), (value_column + lead, value.trim()));
    }

    fn handle_header(&mut self, column: usize, header: &str) {
        self.seen.clear();
        let name = header.trim_start_matches('[').trim_end_matches(']').trim();
        let whole = header.ends_with(']');
        if whole && name.eq_ignore_ascii_case("interface") {
            if self.interface_seen {
                self.fault(column, "a second [Interface]; one file describes one interface");
            }
            self.interface_seen = true;
            self.section = Some(Section::Interface);
        } else if whole && name.eq_ignore_ascii_case("peer") {
            self.peers.push(PeerDraft { line: self.line, ..PeerDraft::default() });
            self.section = Some(Section::Peer);
        } else {
            self.section = Some(Section::Unknown);
            let what = format!("unknown section `{}`; write [Interface] or [Peer]", cut(header));
            self.fault(column, what);
        }
    }

    fn handle_pair(&mut self, key: (usize, &str), value: (usize, &str)) {
        let (mine, others, there) = match self.section {
            Some(Section::Interface) => (&INTERFACE_KEYS[..], &PEER_KEYS[..], "[Peer]"),
            Some(Section::Peer) => (&PEER_KEYS[..], &INTERFACE_KEYS[..], "[Interface]"),
            Some(Section::Unknown) => return,
            None => {
                let what = "stands before any section; begin the file with [Interface]";
                return self.fault(key.0, format!("{} {what}", cut(key.1)));
            }
        };
        let find =
            |keys: &[&'static str]| keys.iter().find(|k| k.eq_ignore_ascii_case(key.1)).copied();
        let Some(name) = find(mine) else {
            let what = match find(others) {
                Some(name) => format!("{name} does not belong here; put it into {there}"),
                None => match nearest(key.1, mine) {
                    Some(near) => format!("unknown key `{}`; did you mean {near}?", cut(key.1)),
                    None => {
                        format!("unknown key `{}`; known here: {}", cut(key.1), mine.join(", "))
                    }
                },
            };
            return self.fault(key.0, what);
        };
        if self.seen.contains(&name) {
            let line = self.line;
            self.warnings
                .push(format!("line {line}: {name} stands here twice; the last one counts"));
        } else if !matches!(name, "Address" | "DNS" | "AllowedIPs")
            && !name.starts_with("Translate")
            && !name.starts_with("Pre")
            && !name.starts_with("Post")
        {
            self.seen.push(name);
        }
        let result = match self.section {
            Some(Section::Peer) => self.set_peer(name, value),
            _ => self.set_interface(name, value),
        };
        if let Err((column, wrong)) = result {
            self.fault(column, format!("{name}: {wrong}"));
        }
    }

    fn set_interface(&mut self, name: &str, at: (usize, &str)) -> Result<(), (usize, Wrong)> {
        let (column, value) = at;
        let at = |wrong| (column, wrong);
        let interface = &mut self.interface;
        match name {
            "PrivateKey" => {
                let key = value.parse::<PrivateKey>().map_err(|_| at(bad_key("warren genkey")))?;
                interface.private_key = Some(key);
            }
            "ListenPort" => {
                interface.listen_port = Some(number(value, 0..=65535).map_err(at)? as u16);
            }
            "FwMark" => interface.fwmark = Some(mark(value).map_err(at)?),
            "Address" => {
                for (column, item) in items(column, value) {
                    interface.addresses.push(address(item).map_err(|w| (column, w))?);
                }
            }
            "MTU" => {
                interface.mtu = Some(number(value, MTU_MIN..=MTU_MAX).map_err(at)?);
                self.mtu_at = (self.line, column);
            }
            "DNS" => {
                for (column, item) in items(column, value) {
                    match item.parse() {
                        Ok(resolver) => interface.dns.push(resolver),
                        // with a tilde: names below it are asked for there, and no others
                        Err(_) if item == "~." || is_host_name(item.trim_start_matches('~')) => {
                            interface.dns_search.push(item.to_owned());
                        }
                        Err(_) => return Err((column, not_an("address or a domain", item))),
                    }
                }
            }
            "Table" => {
                let named = self.known.table(value).map(Table::Number);
                interface.table = table(value).or_else(|e| named.ok_or(e)).map_err(at)?;
            }
            "PreUp" => interface.hooks.pre_up.push(value.to_owned()),
            "PostUp" => interface.hooks.post_up.push(value.to_owned()),
            "PreDown" => interface.hooks.pre_down.push(value.to_owned()),
            "PostDown" => interface.hooks.post_down.push(value.to_owned()),
            "SaveConfig" => {
                interface.save_config = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(at(format!("`{}` is neither true nor false", cut(value)))),
                };
            }
            _ => self.set_own(name, value).map_err(at)?,
        }
        Ok(())
    }

    /// What is Warren's own of an interface.
    fn set_own(&mut self, name: &str, value: &str) -> Result<(), Wrong> {
        let interface = &mut self.interface;
        match name {
            "Frames" => interface.frames = Some(switch(value)?),
            "OrderMs" => {
                let order_ms = number(value, 0..=ORDER_MS_MAX.into())?;
                interface.order_ms = Some(order_ms as u16);
            }
            "RepairMax" => {
                let percent = value.strip_suffix('%').map_or(value, str::trim_end);
                let percent = number(percent, 0..=REPAIR_PERCENT.into())?;
                interface.repair_percent = Some(percent as u8);
            }
            "ListenIcmp" => {
                let address =
                    value.parse().map_err(|_| not_an("address of this machine", value))?;
                interface.listen_icmp = Some(address);
            }
            "ListenIp" => interface.listen_ip = Some(protocol(value)?),
            "OuterMtu" => {
                interface.outer_mtu = Some(number(value, OUTER_MTU_MIN..=OUTER_MTU_MAX)?);
            }
            "LineRate" => {
                let rate = value.parse().map_err(|why| format!("`{}`: {why}", cut(value)))?;
                interface.line_rate = Some(rate);
            }
            _ => {}
        }
        Ok(())
    }

    fn set_peer(&mut self, name: &str, at: (usize, &str)) -> Result<(), (usize, Wrong)> {
        let (column, value) = at;
        let at = |wrong| (column, wrong);
        let line = self.line;
        let Some(peer) = self.peers.last_mut() else { return Ok(()) };
        match name {
            "PublicKey" => {
                let key = value.parse().map_err(|_| at(bad_key("warren pubkey")))?;
                peer.key = Some(key);
            }
            "PresharedKey" => {
                let key = value.parse().map_err(|_| at(bad_key("warren genpsk")))?;
                peer.preshared.key = Some(key);
            }
            "PresharedKeyFile" if value.is_empty() => {
                return Err(at("no file is named; write its path".to_owned()));
            }
            "PresharedKeyFile" => peer.preshared.file = Some((value.into(), (self.line, column))),
            "PresharedKeySchedule" => {
                let period = time(value, PERIOD_MIN..=PERIOD_MAX).map_err(at)?;
                peer.preshared.period = Some((period, (self.line, column)));
            }
            "PresharedKeyOverlap" => {
                let overlap = time(value, Duration::ZERO..=OVERLAP_MAX).map_err(at)?;
                peer.preshared.overlap = Some((overlap, (self.line, column)));
            }
            "AllowedIPs" => {
                for (column, item) in items(column, value) {
                    let prefix = item.parse().map_err(|e| {
                        (column, format!("`{}`: {e}; write it as 10.0.0.0/24", cut(item)))
                    })?;
                    peer.allowed_ips.push(prefix);
                }
            }
            "Compress" => peer.compress = compress(value).map_err(at)?,
            "HoldMs" => peer.hold_ms = number(value, 0..=HOLD_MS_MAX.into()).map_err(at)? as u16,
            "TranslateSource" | "TranslateDestination" => {
                let pairs = &mut peer.pairs[usize::from(name == "TranslateDestination")];
                for (column, item) in items(column, value) {
                    pairs.push(item.parse().map_err(|e| (column, bad_pair(item, e)))?);
                }
                peer.pairs_at = (line, column);
            }
            "Endpoint" => peer.endpoint = Some((self.line, column, value.to_owned())),
            "Carrier" => peer.carrier = carrier(value).map_err(at)?,
            "IcmpPollMs" => peer.icmp_poll_ms = Some(number(value, ICMP_POLL_MS).map_err(at)?),
            _ if value.eq_ignore_ascii_case("off") => peer.keepalive_s = Some(0),
            _ => peer.keepalive_s = Some(number(value, 0..=65535).map_err(at)? as u16),
        }
        Ok(())
    }

    /// Where the peer is, in the form that its carrier has.
    fn endpoint_of(&mut self, draft: &PeerDraft) -> Option<Host> {
        let (line, column, text) = draft.endpoint.as_ref()?;
        let host = match draft.carrier {
            None => Host::parse(self.known.numbered(text).as_deref().unwrap_or(text)),
            Some(_) => Host::parse_portless(text),
        };
        host.map_err(|wrong| self.fault_at(*line, *column, format!("Endpoint: {wrong}"))).ok()
    }

    fn finish(mut self) -> Result<Settings, Vec<Fault>> {
        if !self.interface_seen && self.faults.is_empty() {
            self.line = 1;
            self.fault(1, "there is no [Interface]; begin the file with [Interface]");
        }
        let mut peers: Vec<Peer> = Vec::new();
        let mut key_files_at = Vec::new();
        for draft in std::mem::take(&mut self.peers) {
            let Some(key) = draft.key else {
                self.line = draft.line;
                self.fault(1, "this [Peer] has no PublicKey; add the peer's public key");
                continue;
            };
            let endpoint = self.endpoint_of(&draft);
            let PeerDraft { line, preshared, allowed_ips, pairs_at, .. } = draft;
            let PeerDraft { carrier, icmp_poll_ms, keepalive_s, compress, hold_ms, .. } = draft;
            let [source, destination] = draft.pairs;
            let at = preshared.file.as_ref().map_or((line, 1), |(_, at)| *at);
            let (preshared_key, key_file) =
                preshared.finish().unwrap_or_else(|((line, column), what)| {
                    self.fault_at(line, column, what);
                    (None, None)
                });
            key_files_at.push(at);
            let translate = translate::Table::new(source, destination).unwrap_or_else(|bad| {
                let what = format!("TranslateSource, TranslateDestination: {bad}");
                self.fault_at(pairs_at.0, pairs_at.1, what);
                translate::Table::default()
            });
            if peers.iter().any(|p| p.key == key) {
                self.line = line;
                self.fault(1, format!("the peer {key} stands here twice; merge the two sections"));
            }
            peers.push(Peer {
                key,
                preshared_key,
                key_file,
                allowed_ips,
                endpoint,
                carrier,
                icmp_poll_ms,
                keepalive_s,
                compress,
                hold_ms,
                translate,
            });
        }
        let v6 = self.interface.addresses.iter().any(|(a, _)| a.is_ipv6());
        let v6 = v6 || peers.iter().flat_map(|p| &p.allowed_ips).any(|p| p.address().is_ipv6());
        if v6 && self.interface.mtu.is_some_and(|mtu| mtu < MTU_MIN_V6) {
            let (line, column) = self.mtu_at;
            let what = format!("MTU: IPv6 needs at least {MTU_MIN_V6}; raise it or drop IPv6");
            self.fault_at(line, column, what);
        }
        if self.faults.is_empty() {
            let interface = self.interface;
            let warnings = self.warnings;
            return Ok(Settings { interface, peers, warnings, key_files_at });
        }
        self.faults.sort_by_key(|f| (f.line, f.column));
        Err(self.faults)
    }
}

/// What a comment says to Warren alone: `# Warren: KEY = VALUE`, for a file that `wg` and wg-quick
/// read as well.
fn for_warren(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let name = rest.get(..FOR_WARREN.len())?;
    name.eq_ignore_ascii_case(FOR_WARREN).then(|| &rest[FOR_WARREN.len()..])
}

/// The items of a comma list with the column each begins at; empty ones are passed over.
fn items(column: usize, value: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = column;
    let with_columns = value.split(',').map(move |item| {
        let at = next + item.chars().take_while(|c| c.is_whitespace()).count();
        next += item.chars().count() + 1;
        (at, item.trim())
    });
    with_columns.filter(|(_, item)| !item.is_empty())
}

fn switch(value: &str) -> Result<bool, Wrong> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{}` is neither on nor off", cut(value))),
    }
}

/// LZ4 has one level, so each of a scale of 0 to 9 says on or off, too.
fn compress(value: &str) -> Result<bool, Wrong> {
    switch(value)
        .or_else(|_| number(value, 0..=9).map(|level| level > 0))
        .map_err(|_| format!("`{}` is neither on nor off, nor a level from 0 to 9", cut(value)))
}

/// `None` is UDP.
fn carrier(value: &str) -> Result<Option<Carrier>, Wrong> {
    match value {
        "udp" => Ok(None),
        "icmp" => Ok(Some(Carrier::IcmpRequest)),
        "ip" => Ok(Some(Carrier::Ip(IP_PROTOCOL))),
        _ => match value.strip_prefix("ip:") {
            Some(number) => protocol(number).map(|number| Some(Carrier::Ip(number))),
            None => Err(format!("`{}` is not a carrier; write udp, icmp or ip:N", cut(value))),
        },
    }
}

/// An IP protocol that the machine does not need for itself.
fn protocol(value: &str) -> Result<u8, Wrong> {
    let number = number(value, 2..=254)? as u8;
    match number {
        6 => Err("6 is TCP, which this machine speaks itself; write another number".to_owned()),
        17 => Err("17 is UDP; write Carrier = udp, and ListenPort".to_owned()),
        58 => Err("58 is ICMPv6; write Carrier = icmp, and ListenIcmp".to_owned()),
        _ => Ok(number),
    }
}

fn number(value: &str, range: RangeInclusive<u32>) -> Result<u32, Wrong> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse() {
        Ok(number) if digits && range.contains(&number) => Ok(number),
        _ => Err(format!(
            "`{}` is not a number from {} to {}",
            cut(value),
            range.start(),
            range.end()
        )),
    }
}

/// `off`, decimal, or hexadecimal after `0x`.
fn mark(value: &str) -> Result<u32, Wrong> {
    if value.eq_ignore_ascii_case("off") {
        return Ok(0);
    }
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    let is_plain = !digits.starts_with('+');
    u32::from_str_radix(digits, radix).ok().filter(|_| is_plain).ok_or_else(|| {
        format!("`{}` is not a mark; write off, a decimal, or a hexadecimal as 0xca6c", cut(value))
    })
}

fn table(value: &str) -> Result<Table, Wrong> {
    match value.to_ascii_lowercase().as_str() {
        "auto" => Ok(Table::Auto),
        "off" => Ok(Table::Off),
        "main" => Ok(Table::Number(254)),
        "default" => Ok(Table::Number(253)),
        _ => match mark(value) {
            Ok(number) if number > 0 => Ok(Table::Number(number)),
            _ => Err(format!("`{}` is not a table; write auto, off, main or a number", cut(value))),
        },
    }
}

fn address(item: &str) -> Result<(IpAddr, u8), Wrong> {
    let prefix: Prefix = item
        .parse()
        .map_err(|e| format!("`{}`: {e}; write it as 10.0.0.1/24 or fd00::1/64", cut(item)))?;
    let address = item.split('/').next().unwrap_or_default();
    let address = address.parse().map_err(|_| not_an("address", item))?;
    Ok((address, prefix.bits()))
}

fn bad_pair(item: &str, bad: BadPair) -> Wrong {
    format!("`{}`: {bad}; for example 192.168.1.0/24=10.99.1.0/24", cut(item))
}

fn bad_key(maker: &str) -> Wrong {
    format!("this is not a key; write the 44 characters of base64 that `{maker}` prints")
}

fn not_an(what: &str, item: &str) -> Wrong {
    format!("`{}` is not an {what}", cut(item))
}
