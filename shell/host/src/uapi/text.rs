//! Requests from text and replies to text, <https://www.wireguard.com/xplatform/>. No I/O but the
//! look-up of an interface's number for a scoped IPv6 address.

use std::ffi::CString;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use node::{AllowedIp, Change, PeerChange, Prefix, Status};
use noise::{PresharedKey, PrivateKey, PublicKey};

use super::{Errno, LINE_LEN_MAX, Request};

/// Reads one request, without the empty line that ends it.
///
/// # Errors
/// [`Errno::PROTOCOL`] if it is not a request or a line is not `key=value`, [`Errno::INVALID`] for
/// a key that is not known or a bad value, [`Errno::IO`] for a line that is too long.
pub fn parse(request: &[u8]) -> Result<Request, Errno> {
    let mut lines = request.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    match lines.next() {
        Some(b"get=1") if lines.all(<[u8]>::is_empty) => Ok(Request::Get),
        Some(b"weather=1") if lines.all(<[u8]>::is_empty) => Ok(Request::Weather),
        Some(b"reload=1") if lines.all(<[u8]>::is_empty) => Ok(Request::Reload),
        Some(b"get=1" | b"weather=1" | b"reload=1") => Err(Errno::INVALID),
        Some(b"set=1") => {
            let mut changes = Vec::new();
            for line in lines.take_while(|l| !l.is_empty()) {
                if line.len() > LINE_LEN_MAX {
                    return Err(Errno::IO);
                }
                // no valid value is outside ASCII, so a line that is not UTF-8 is a bad value
                let line = std::str::from_utf8(line).map_err(|_| Errno::INVALID)?;
                let (key, value) = line.split_once('=').ok_or(Errno::PROTOCOL)?;
                read_line(&mut changes, key, value)?;
            }
            Ok(Request::Set(changes))
        }
        _ => Err(Errno::PROTOCOL),
    }
}

/// Writes `status` as the reply to `get=1`, with the `errno=0` that ends it.
#[must_use]
pub fn format(status: &Status) -> String {
    let mut out = String::with_capacity(256 + status.peers.len() * 512);
    write(&mut out, status).expect("writing to a string cannot fail");
    out
}

/// Writes the reply to `weather=1`.
#[must_use]
pub fn format_weather(json: &str) -> String {
    format!("weather={json}\nerrno=0\n\n")
}

/// Writes the reply to `reload=1`.
#[must_use]
pub fn format_reload(result: &Result<usize, String>) -> String {
    let (told, errno) = match result {
        Ok(changes) => (serde_json::json!({ "changes": changes }), 0),
        Err(why) => (serde_json::json!({ "error": why }), Errno::INVALID.0),
    };
    format!("reload={told}\nerrno={errno}\n\n")
}

/// Writes the reply that carries nothing but `errno`; 0 for success.
#[must_use]
pub fn format_errno(errno: i32) -> String {
    format!("errno={errno}\n\n")
}

fn read_line(changes: &mut Vec<Change>, key: &str, value: &str) -> Result<(), Errno> {
    if key == "public_key" {
        let key = PublicKey::from_hex(value).map_err(|_| Errno::INVALID)?;
        changes.push(Change::Peer(PeerChange::new(key)));
        return Ok(());
    }
    if let Some(Change::Peer(peer)) = changes.last_mut() {
        return read_peer_line(peer, key, value);
    }
    changes.push(match key {
        "private_key" => {
            let key = PrivateKey::from_hex(value).map_err(|_| Errno::INVALID)?;
            // the key is clamped by now, so that zero is told from the text
            Change::PrivateKey((!value.bytes().all(|b| b == b'0')).then_some(key))
        }
        "listen_port" => Change::ListenPort(number(value)?),
        "fwmark" if value.is_empty() => Change::Fwmark(0),
        "fwmark" => Change::Fwmark(number(value)?),
        "replace_peers" => {
            only_true(value)?;
            Change::ReplacePeers
        }
        _ => return Err(Errno::INVALID),
    });
    Ok(())
}

fn read_peer_line(peer: &mut PeerChange, key: &str, value: &str) -> Result<(), Errno> {
    match key {
        "update_only" => peer.update_only = only_true(value)?,
        "remove" => peer.remove = only_true(value)?,
        "preshared_key" => {
            let key = PresharedKey::from_hex(value).map_err(|_| Errno::INVALID)?;
            peer.preshared_key = Some(key.into());
        }
        "endpoint" => peer.endpoint = Some(endpoint(value).ok_or(Errno::INVALID)?),
        "persistent_keepalive_interval" => peer.keepalive_s = Some(number(value)?),
        "replace_allowed_ips" => {
            peer.replace_allowed_ips = only_true(value)?;
            peer.allowed_ips.clear();
        }
        "allowed_ip" => {
            let (remove, text) = value.strip_prefix('-').map_or((false, value), |v| (true, v));
            peer.allowed_ips.push(AllowedIp { prefix: prefix(text)?, remove });
        }
        "protocol_version" if value == "1" => {}
        _ => return Err(Errno::INVALID),
    }
    Ok(())
}

fn only_true(value: &str) -> Result<bool, Errno> {
    if value == "true" { Ok(true) } else { Err(Errno::INVALID) }
}

/// Decimal digits and nothing else: `u16::from_str` would take a sign.
fn number<T: FromStr>(value: &str) -> Result<T, Errno> {
    if !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Errno::INVALID);
    }
    value.parse().map_err(|_| Errno::INVALID)
}

/// `ADDRESS/BITS`; the length is not optional here, and has no leading zero.
fn prefix(value: &str) -> Result<Prefix, Errno> {
    let (_, bits) = value.split_once('/').ok_or(Errno::INVALID)?;
    if bits.len() > 1 && bits.starts_with('0') {
        return Err(Errno::INVALID);
    }
    value.parse().map_err(|_| Errno::INVALID)
}

/// `1.2.3.4:5`, `[fd00::1]:5` or `[fe80::1%eth0]:5`.
pub(crate) fn endpoint(value: &str) -> Option<SocketAddr> {
    if let Ok(address) = value.parse() {
        return Some(address);
    }
    let (inside, port) = value.strip_prefix('[')?.rsplit_once("]:")?;
    let (address, zone) = inside.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let scope = scope_id(zone)?;
    Some(SocketAddr::V6(SocketAddrV6::new(address, number(port).ok()?, 0, scope)))
}

fn scope_id(zone: &str) -> Option<u32> {
    let zone = CString::new(zone).ok()?;
    // SAFETY: `zone` ends with a NUL byte and outlives the call.
    let index = unsafe { libc::if_nametoindex(zone.as_ptr()) };
    (index != 0).then_some(index)
}

/// The order of keys is wireguard-go's, which scripts have come to rely on.
fn write(out: &mut String, status: &Status) -> std::fmt::Result {
    if let Some(key) = &status.private_key {
        writeln!(out, "private_key={}", key.to_hex())?;
    }
    if status.listen_port != 0 {
        writeln!(out, "listen_port={}", status.listen_port)?;
    }
    if status.fwmark != 0 {
        writeln!(out, "fwmark={}", status.fwmark)?;
    }
    for peer in &status.peers {
        writeln!(out, "public_key={}", peer.key.to_hex())?;
        writeln!(out, "preshared_key={}", peer.preshared_key.to_hex())?;
        writeln!(out, "protocol_version=1")?;
        if let Some(endpoint) = peer.endpoint {
            writeln!(out, "endpoint={}", unmapped(endpoint))?;
        }
        let last = peer.last_handshake.unwrap_or_default();
        writeln!(out, "last_handshake_time_sec={}", last.as_secs())?;
        writeln!(out, "last_handshake_time_nsec={}", last.subsec_nanos())?;
        writeln!(out, "tx_bytes={}", peer.tx_bytes)?;
        writeln!(out, "rx_bytes={}", peer.rx_bytes)?;
        writeln!(out, "persistent_keepalive_interval={}", peer.keepalive_s)?;
        for prefix in &peer.allowed_ips {
            writeln!(out, "allowed_ip={prefix}")?;
        }
    }
    out.push_str("errno=0\n\n");
    Ok(())
}

/// An IPv4 address that arrived on an IPv6 socket is shown as what it is.
fn unmapped(endpoint: SocketAddr) -> SocketAddr {
    match endpoint.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, endpoint.port()),
        IpAddr::V6(_) => endpoint,
    }
}
