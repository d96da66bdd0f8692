//! Which hosts are reached through which proxy: `HTTPS_PROXY` and `NO_PROXY`, in capitals or not.
//!
//! A proxy is `http://[USER:PASSWORD@]HOST[:PORT]`, the port 3128 if it is not said, where most
//! proxies listen.
//! `NO_PROXY` is a list with commas: `*`, a domain
//! with or without a leading dot that covers itself and what is below it, an address, or a prefix.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::Prefix;

use crate::pings::Pings;

const PORT: u16 = 3128;

/// One proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The field `Proxy-Authorization`, if it wants to know who asks.
    pub authorization: Option<String>,
}

/// Which hosts are reached through which proxy, and under which mark.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Proxies {
    proxy: Option<Proxy>,
    except: Vec<String>,
    mark: Option<u32>,
    pings: Option<Pings>,
}

/// A proxy that cannot be understood: the reason, without its password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadProxy(&'static str);

impl Proxies {
    /// From the environment.
    ///
    /// # Errors
    /// [`BadProxy`].
    pub fn from_environment() -> Result<Self, BadProxy> {
        let read = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let proxy = read(["HTTPS_PROXY", "https_proxy"]);
        Self::new(&proxy, &read(["NO_PROXY", "no_proxy"]))
    }

    /// From the values of the two variables; an empty proxy is none.
    ///
    /// # Errors
    /// [`BadProxy`].
    pub fn new(proxy: &str, except: &str) -> Result<Self, BadProxy> {
        let proxy = if proxy.is_empty() { None } else { Some(parse(proxy)?) };
        let except = except.split(',').map(|part| part.trim().to_ascii_lowercase());
        let except = except.filter(|part| !part.is_empty()).collect();
        Ok(Self { proxy, except, mark: None, pings: None })
    }

    /// Gives every connection this mark (SO_MARK), so that the machine's routing rules can tell it
    /// from what goes through the network. Needs CAP_NET_ADMIN.
    #[must_use]
    pub fn with_mark(self, mark: u32) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Has servers asked by ping, too, where no other way leads to them.
    #[must_use]
    pub fn with_pings(self, pings: Pings) -> Self {
        Self { pings: Some(pings), ..self }
    }

    /// How `host` is asked by ping, if it is; whoever has a proxy has that.
    pub(crate) fn pings(&self, host: &str) -> Option<&Pings> {
        self.pings.as_ref().filter(|pings| !pings.is_off() && self.proxy(host).is_none())
    }

    /// The mark of connections, if they get one.
    #[must_use]
    pub fn mark(&self) -> Option<u32> {
        self.mark
    }

    /// The proxy for `host`, if there is one.
    #[must_use]
    pub fn proxy(&self, host: &str) -> Option<&Proxy> {
        let is_direct = self.except.iter().any(|rule| covers(rule, host));
        self.proxy.as_ref().filter(|_| !is_direct)
    }
}

fn covers(rule: &str, host: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        let prefix = rule.parse::<Prefix>().is_ok_and(|prefix| prefix.contains(address));
        return prefix || rule.parse() == Ok(address);
    }
    let domain = rule.strip_prefix('.').unwrap_or(rule);
    let host = host.to_ascii_lowercase();
    host == domain || host.strip_suffix(domain).is_some_and(|head| head.ends_with('.'))
}

fn parse(text: &str) -> Result<Proxy, BadProxy> {
    let rest = match text.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return Err(BadProxy("a proxy's URL begins with http://")),
        None => text,
    };
    let rest = rest.trim_end_matches('/');
    let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(u, p)| (Some(u), p));
    let (host, port) = match place.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let bad = |c: char| c.is_whitespace() || c.is_control() || "/?#".contains(c);
    if host.is_empty() || host.contains(bad) {
        return Err(BadProxy("a proxy is http://HOST:PORT"));
    }
    let port = port.map_or(Ok(PORT), str::parse).map_err(|_| BadProxy("the port is no number"))?;
    let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(decode(user))));
    Ok(Proxy { host: host.to_owned(), port, authorization })
}

/// Percent-encoded bytes as they are (RFC 3986, section 2.1).
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, later @ ..] = rest {
        let code = later.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &later[2..]).1,
            None => (bytes.push(*first), rest = later).1,
        }
    }
    bytes
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

impl fmt::Display for BadProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTPS_PROXY: {}", self.0)
    }
}

impl std::error::Error for BadProxy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_understood_as_their_users_write_them() {
        for (text, host, port) in [
            ("http://proxy.example:8080", "proxy.example", 8080),
            ("http://proxy.example/", "proxy.example", PORT),
            ("10.0.0.1:80", "10.0.0.1", 80),
            ("http://[::1]:81", "::1", 81),
        ] {
            let proxies = Proxies::new(text, "").unwrap();
            let proxy = proxies.proxy("a.example").unwrap();
            assert_eq!((proxy.host.as_str(), proxy.port), (host, port), "{text}");
        }
        let proxies = Proxies::new("http://anna:p%40ss%3A@proxy:1", "").unwrap();
        let authorization = proxies.proxy("x").unwrap().authorization.as_deref();
        assert_eq!(authorization, Some("Basic YW5uYTpwQHNzOg=="));
        assert!(!format!("{proxies:?}").contains("YW5"), "HO-04: no password in a log");
        for text in ["https://proxy", "socks5://proxy", "http://", "http://a b", "a:b"] {
            assert!(Proxies::new(text, "").is_err(), "{text}");
        }
        assert_eq!(Proxies::new("", "").unwrap().proxy("x"), None);
    }

    #[test]
    fn what_needs_no_proxy_is_reached_directly() {
        let except = "localhost, .corp.example,10.0.0.0/8,192.168.1.1,fd00::/8";
        let proxies = Proxies::new("http://proxy:1", except).unwrap();
        for host in
            ["localhost", "corp.example", "A.Corp.Example", "10.1.2.3", "192.168.1.1", "fd00::1"]
        {
            assert_eq!(proxies.proxy(host), None, "{host}");
        }
        for host in ["notcorp.example", "corp.example.org", "11.0.0.1", "192.168.1.2", "a"] {
            assert!(proxies.proxy(host).is_some(), "{host}");
        }
        assert_eq!(Proxies::new("http://proxy:1", "*").unwrap().proxy("x"), None);
    }
}
