//! Endpoints as people write them, and the way from a name to an address.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr::null_mut;
use std::time::Duration;

use node::{Change, PeerChange};
use noise::PublicKey;

use super::Settings;

/// From this length on, a word that could be base64 or hexadecimal could be a key: one has 44
/// characters or 64, and some may have got lost.
const SECRET_CHARS_MIN: usize = 32;
/// How often a name that cannot be looked up just now is tried again, as `wg` does.
const RETRIES: u32 = 15;

/// An endpoint as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address and a port.
    Address(SocketAddr),
    /// A name and a port.
    Name(String, u16),
}

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveError {
    name: String,
    why: String,
    temporary: bool,
}

impl std::fmt::Display for ResolveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mend = if self.temporary {
            "is the network up and its resolver reachable?"
        } else {
            "check the spelling, or write the address itself"
        };
        write!(f, "cannot find the endpoint {}: {}; {mend}", self.name, self.why)
    }
}

impl std::error::Error for ResolveError {}

impl Host {
    /// Reads `1.2.3.4:5`, `[fd00::1]:5`, `[fe80::1%eth0]:5` or `name:5`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(address) = crate::uapi::text::endpoint(text) {
            return match address.port() {
                0 => Err("port 0 cannot be sent to; write a port from 1 to 65535".to_owned()),
                _ => Ok(Self::Address(address)),
            };
        }
        let shown = cut(text);
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(format!("`{shown}` has no port; write `{shown}:51820`"));
        };
        if text.parse::<Ipv6Addr>().is_ok() || (host.contains(':') && !host.starts_with('[')) {
            return Err(format!("`{shown}`: write an IPv6 endpoint as `[address]:port`"));
        }
        let port = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok()).flatten();
        let Some(port) = port.filter(|p| *p != 0) else {
            return Err(format!("`{shown}` ends in no port from 1 to 65535"));
        };
        let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if numeric || !is_host_name(host) {
            return Err(format!("`{}` is neither an address nor a host name", cut(host)));
        }
        Ok(Self::Name(host.to_owned(), port))
    }
}

impl Host {
    /// Reads an address or a name without a port, for carriers that have none.
    pub(super) fn parse_portless(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = inner.parse::<IpAddr>() {
            return Ok(Self::Address(SocketAddr::new(address, 0)));
        }
        let shown = cut(text);
        match is_host_name(text) && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            true => Ok(Self::Name(text.to_owned(), 0)),
            false => Err(format!(
                "`{shown}` is neither an address nor a host name; this carrier has no ports, so \
                 write it without one"
            )),
        }
    }
}

/// The first address of `host`. A failure that may pass is tried again 15 times with growing
/// pauses, or as often as `WG_ENDPOINT_RESOLUTION_RETRIES` says (a number or `infinity`).
///
/// # Errors
/// [`ResolveError`] if there is no such name, or still no answer.
pub fn resolve(host: &Host) -> Result<SocketAddr, ResolveError> {
    let (name, port) = match host {
        Host::Address(address) => return Ok(*address),
        Host::Name(name, port) => (name, *port),
    };
    let retries = match std::env::var("WG_ENDPOINT_RESOLUTION_RETRIES") {
        Ok(text) if text == "infinity" => u32::MAX,
        Ok(text) => text.parse().unwrap_or(RETRIES),
        Err(_) => RETRIES,
    };
    let mut pause = Duration::from_secs(1);
    let mut tried = 0;
    loop {
        match look_up(name, port) {
            Err(e) if e.temporary && tried < retries => {
                tracing::warn!("{e}; trying again in {:.1} s", pause.as_secs_f32());
                std::thread::sleep(pause);
                pause = (pause * 6 / 5).min(Duration::from_secs(20));
                tried += 1;
            }
            other => return other,
        }
    }
}

/// Where names of endpoints led when they were looked up last. A name that leads elsewhere has
/// moved its peer; one that does not leaves a peer where it was heard since.
#[derive(Debug, Default)]
pub struct Looked(BTreeMap<PublicKey, SocketAddr>);

impl Looked {
    /// What was found for these settings' endpoints, in the order of their peers.
    #[must_use]
    pub fn new(settings: &Settings, endpoints: &[Option<SocketAddr>]) -> Self {
        let known = settings.peers.iter().zip(endpoints);
        Self(known.filter_map(|(peer, at)| Some((peer.key, (*at)?))).collect())
    }

    /// Looks all names up again, once each, and says which peers have moved. What is not found is
    /// told, and leaves its peer where it is.
    pub fn again(
        &mut self,
        settings: &Settings,
        mut look: impl FnMut(&Host) -> Result<SocketAddr, ResolveError>,
    ) -> Vec<Change> {
        self.0.retain(|key, _| settings.peers.iter().any(|peer| peer.key == *key));
        let mut moved = Vec::new();
        for peer in &settings.peers {
            let Some(host @ Host::Name(..)) = &peer.endpoint else { continue };
            match look(host) {
                Ok(now) if self.0.insert(peer.key, now) != Some(now) => {
                    let endpoint = Some(now);
                    let carrier = peer.carrier;
                    let change = PeerChange { endpoint, carrier, ..PeerChange::new(peer.key) };
                    moved.push(Change::Peer(change));
                }
                Ok(_) => {}
                Err(why) => tracing::warn!("{why}; the peer is left where it is"),
            }
        }
        moved
    }
}

/// The first address of `host`, asked for once.
///
/// # Errors
/// [`ResolveError`].
pub fn look_once(host: &Host) -> Result<SocketAddr, ResolveError> {
    match host {
        Host::Address(address) => Ok(*address),
        Host::Name(name, port) => look_up(name, *port),
    }
}

fn look_up(name: &str, port: u16) -> Result<SocketAddr, ResolveError> {
    let error = |why: &str, temporary| ResolveError {
        name: format!("{name}:{port}"),
        why: why.to_owned(),
        temporary,
    };
    let c_name = CString::new(name).map_err(|_| error("not a name", false))?;
    // SAFETY: all zeros is a valid addrinfo, and as hints it asks for nothing.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_family = libc::AF_UNSPEC;
    hints.ai_socktype = libc::SOCK_DGRAM;
    let mut found: *mut libc::addrinfo = null_mut();
    // SAFETY: the name ends with a NUL byte; hints and result outlive the call.
    let rc = unsafe { libc::getaddrinfo(c_name.as_ptr(), std::ptr::null(), &hints, &mut found) };
    if rc != 0 {
        // SAFETY: gai_strerror returns a static text for every code.
        let why = unsafe { CStr::from_ptr(libc::gai_strerror(rc)) };
        let temporary = rc == libc::EAI_AGAIN || rc == libc::EAI_SYSTEM;
        return Err(error(&why.to_string_lossy(), temporary));
    }
    // SAFETY: on success `found` heads a list of which every node and address is valid until freed.
    let address = unsafe {
        let mut at = found;
        let mut address = None;
        while !at.is_null() && address.is_none() {
            address = from_raw(&*at, port);
            at = (*at).ai_next;
        }
        libc::freeaddrinfo(found);
        address
    };
    address.ok_or_else(|| error("the name has no address", false))
}

/// # Safety
/// `info.ai_addr` must be null or point to an address of the family it names.
unsafe fn from_raw(info: &libc::addrinfo, port: u16) -> Option<SocketAddr> {
    if info.ai_addr.is_null() {
        return None;
    }
    match info.ai_family {
        libc::AF_INET => {
            // SAFETY: the family says what is behind the pointer.
            let raw = unsafe { info.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from_bits(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(address), port))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says what is behind the pointer.
            let raw = unsafe { info.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(address, port, 0, raw.sin6_scope_id)))
        }
        _ => None,
    }
}

pub(super) fn is_host_name(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !l.starts_with('-')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(label)
}

/// A text as it may be shown: short, on one line, without control characters. A word that could be
/// a secret in the wrong place is not shown at all.
pub(super) fn cut(text: &str) -> String {
    let encoded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    if text.split(|c| !encoded(c)).any(|word| word.len() >= SECRET_CHARS_MIN) {
        return "…".to_owned();
    }
    let shown: String =
        text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().count() > 40 { format!("{shown}…") } else { shown }
}
