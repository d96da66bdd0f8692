//! The address of a server: `https://HOST[:PORT]` and nothing else, so that there is nothing to
//! interpret in it.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{DOMAIN_LEN_MAX, URL_BYTES_MAX};

/// A server's address as its users write it. The port is 443 if it is not said.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerUrl {
    host: String,
    port: u16,
}

/// Why a text is no [`ServerUrl`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadUrl {
    /// It does not begin with `https://`.
    Scheme,
    /// The host is empty, too long, or has a character that no host has.
    Host,
    /// The port is not a number from 1 to 65535.
    Port,
    /// Something follows host and port, or a user name stands before them.
    Path,
}

const PORT: u16 = 443;

impl ServerUrl {
    /// The host: a name, an IPv4 address, or an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `HOST:PORT` as `CONNECT` and the field `Host` want it, IPv6 in brackets.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    !host.is_empty() && host.len() <= DOMAIN_LEN_MAX && host.split('.').all(label)
}

impl FromStr for ServerUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let rest = text.strip_prefix("https://").ok_or(BadUrl::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if text.len() > URL_BYTES_MAX {
            return Err(BadUrl::Host);
        }
        if rest.contains(['/', '?', '#', '@']) {
            return Err(BadUrl::Path);
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, port) = inner.split_once(']').ok_or(BadUrl::Host)?;
            let host: Ipv6Addr = host.parse().map_err(|_| BadUrl::Host)?;
            (IpAddr::V6(host).to_string(), port)
        } else {
            let end = rest.find(':').unwrap_or(rest.len());
            let (host, port) = rest.split_at(end);
            if !is_host(host) {
                return Err(BadUrl::Host);
            }
            (host.to_ascii_lowercase(), port)
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT,
            None => return Err(BadUrl::Port),
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port != 0).ok_or(BadUrl::Port)?
            }
            Some(_) => return Err(BadUrl::Port),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority();
        let end = if self.port == PORT { authority.len() - 4 } else { authority.len() };
        write!(f, "https://{}", &authority[..end])
    }
}

impl From<ServerUrl> for String {
    fn from(url: ServerUrl) -> Self {
        url.to_string()
    }
}

impl TryFrom<String> for ServerUrl {
    type Error = BadUrl;

    fn try_from(text: String) -> Result<Self, BadUrl> {
        text.parse()
    }
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "a server's URL begins with https://",
            Self::Host => "the URL's host is no name and no address",
            Self::Port => "the URL's port is no number from 1 to 65535",
            Self::Path => "a server's URL is https://HOST[:PORT] and has no path or user",
        })
    }
}

impl core::error::Error for BadUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_back_and_what_is_none_is_told_why() {
        for (text, authority, printed) in [
            ("https://a.example", "a.example:443", "https://a.example"),
            ("https://A.example:443/", "a.example:443", "https://a.example"),
            ("https://10.0.0.1:8443", "10.0.0.1:8443", "https://10.0.0.1:8443"),
            ("https://[2001:db8:0::1]", "[2001:db8::1]:443", "https://[2001:db8::1]"),
            ("https://[::1]:44", "[::1]:44", "https://[::1]:44"),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!((url.authority().as_str(), url.to_string().as_str()), (authority, printed));
            assert_eq!(url.to_string().parse(), Ok(url));
        }
        for (text, why) in [
            ("http://a", BadUrl::Scheme),
            ("", BadUrl::Scheme),
            ("https://", BadUrl::Host),
            ("https://a b", BadUrl::Host),
            ("https://a\r\nHost: b", BadUrl::Host),
            ("https://[::1", BadUrl::Host),
            ("https://a:", BadUrl::Port),
            ("https://a:+1", BadUrl::Port),
            ("https://a:0", BadUrl::Port),
            ("https://a:65536", BadUrl::Port),
            ("https://[::1]44", BadUrl::Port),
            ("https://a/b", BadUrl::Path),
            ("https://u@a", BadUrl::Path),
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(why), "{text}");
        }
    }
}
