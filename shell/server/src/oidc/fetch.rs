//! What is asked of a provider: over HTTPS with a certificate that is verified, through the proxy
//! that leads there, bounded in bytes and time, and without following anything (threat WB-06).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use control::ServerUrl;
use dial::http::Connection;
use dial::proxy::Proxies;

/// An answer may take so long.
const WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a URL.
const URL_BYTES_MAX: usize = 2048;

/// Why there is no answer, or none that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The provider, or what it said, cannot be used now.
    Trouble(String),
    /// It said no, or what came is not to be believed.
    Refused(String),
    /// What was given to it is over: a code, or whom a refresh token is for (`invalid_grant`).
    Over(String),
}

impl Failure {
    /// The same, where a refusal says nothing of a person.
    pub(super) fn unsure(self) -> Self {
        match self {
            Self::Refused(why) => Self::Trouble(why),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble(why) | Self::Refused(why) | Self::Over(why) => f.write_str(why),
        }
    }
}

/// A place at a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    server: ServerUrl,
    path: String,
}

impl Endpoint {
    /// Reads a URL, which is one of HTTPS without a user or a fragment.
    pub(super) fn parse(url: &str) -> Result<Self, Failure> {
        let shown: String = url.chars().take(200).collect();
        let bad = |why: &str| Failure::Trouble(format!("{shown:?}: {why}"));
        let rest = url.strip_prefix("https://").ok_or_else(|| bad("it is not https://"))?;
        let is_plain = rest.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !is_plain || url.len() > URL_BYTES_MAX || rest.contains(['#', '\\']) {
            return Err(bad("it is no plain URL"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(bad("a user stands in it"));
        }
        let server = format!("https://{authority}").parse();
        let server: ServerUrl = server.map_err(|why: control::BadUrl| bad(&why.to_string()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { server, path })
    }

    /// Refuses a place on this machine or its link that a provider elsewhere names.
    pub(super) fn is_within_reach_of(&self, home: &Self) -> Result<(), Failure> {
        let host = self.server.host().trim_matches(['[', ']']);
        let is_inner = match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
            Ok(IpAddr::V6(v6)) => {
                v6.is_loopback() || v6.is_unspecified() || v6.segments()[0] & 0xffc0 == 0xfe80
            }
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        if is_inner && host != home.server.host().trim_matches(['[', ']']) {
            return Err(Failure::Trouble(format!("the provider names a place of ours: {host}")));
        }
        Ok(())
    }
}

/// How a provider is reached.
pub(super) struct Fetch {
    ca_file: Option<PathBuf>,
}

impl Fetch {
    pub(super) const fn new(ca_file: Option<PathBuf>) -> Self {
        Self { ca_file }
    }

    pub(super) fn get(
        &self,
        place: &Endpoint,
        authorization: Option<&str>,
        len_max: usize,
    ) -> Result<Vec<u8>, Failure> {
        self.ask("GET", place, authorization, "", len_max)
    }

    pub(super) fn post(
        &self,
        place: &Endpoint,
        authorization: Option<&str>,
        form: &str,
        len_max: usize,
    ) -> Result<Vec<u8>, Failure> {
        self.ask("POST", place, authorization, form, len_max)
    }

    fn ask(
        &self,
        method: &str,
        place: &Endpoint,
        authorization: Option<&str>,
        form: &str,
        len_max: usize,
    ) -> Result<Vec<u8>, Failure> {
        let trouble = |why: &dyn fmt::Display| {
            Failure::Trouble(format!("{}{}: {why}", place.server, place.path))
        };
        let proxies = Proxies::from_environment().map_err(|why| trouble(&why))?;
        let opened = Connection::open_verified(&place.server, &proxies, self.ca_file.as_deref());
        let mut connection = opened.map_err(|why| trouble(&why))?;
        let mut fields = vec![("Accept", "application/json")];
        fields.extend(authorization.map(|value| ("Authorization", value)));
        if method == "POST" {
            fields.push(("Content-Type", "application/x-www-form-urlencoded"));
        }
        let target = (method, place.path.as_str());
        let answer = connection
            .request(target, &fields, form.as_bytes(), len_max, WITHIN)
            .map_err(|why| trouble(&why))?;
        match answer.status {
            200 => Ok(answer.body),
            // What the provider calls wrong: a code, a token, us (RFC 6749, section 5.2).
            400 | 401 | 403 => {
                let said: serde_json::Value =
                    serde_json::from_slice(&answer.body).unwrap_or_default();
                let word = said["error"].as_str().unwrap_or("it said no");
                let more = said["error_description"].as_str().unwrap_or_default();
                let what: String = word.chars().take(100).collect();
                let more: String = more.chars().take(200).collect();
                let joint = if more.is_empty() { "" } else { ": " };
                let why = format!("the provider refuses: {what}{joint}{more}");
                Err(if word == "invalid_grant" {
                    Failure::Over(why)
                } else {
                    Failure::Refused(why)
                })
            }
            status => Err(trouble(&format!("status {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wb_06_a_provider_leads_nobody_to_places_on_this_machine() {
        let home = Endpoint::parse("https://login.example/realm").unwrap();
        for inner in [
            "https://127.0.0.1/x",
            "https://169.254.169.254/latest",
            "https://[::1]:8443/",
            "https://[::ffff:127.0.0.1]/",
            "https://[fe80::1]/",
            "https://0.0.0.0/",
            "https://localhost:1/",
        ] {
            let place = Endpoint::parse(inner).unwrap();
            assert!(place.is_within_reach_of(&home).is_err(), "{inner}");
            assert!(place.is_within_reach_of(&place).is_ok(), "where it is itself");
        }
        let other = Endpoint::parse("https://oauth.example:8443/token?x=1").unwrap();
        assert!(other.is_within_reach_of(&home).is_ok());
        assert_eq!(other.path, "/token?x=1");
        for bad in [
            "http://login.example",
            "https://",
            "https://u@h/",
            "https://h/#f",
            "https://h/ x",
            "https://h\\x",
            "file:///etc/passwd",
            "",
            "https://h/\u{e9}",
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
