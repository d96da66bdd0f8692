//! What a relay is asked for over HTTPS: the upgrade to its own protocol, or to WebSocket, and what
//! is told where something in between passes neither.

use std::fmt;
use std::io;
use std::time::Duration;

use control::ServerUrl;
use control::relay::{
    PATH, PROTOCOL, WEBSOCKET, WEBSOCKET_KEY_LEN, websocket_accept, websocket_key,
};
use noise::Random;

use super::{Connected, Failed};
use crate::SystemRandom;
use crate::http::Connection;

/// Bytes of a body that says why not.
const BODY_LEN_MAX: usize = 4096;
/// An answer to the upgrade takes no longer; a proxy may swallow the question.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What a relay answers to a question without an upgrade.
const UPGRADE_REQUIRED: u16 = 426;

/// How a stream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By the relay's own protocol, which costs nothing more.
    #[default]
    Own,
    /// By WebSocket, which is all that some proxies pass.
    WebSocket,
}

/// What answers there upgrades nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoUpgrade {
    url: ServerUrl,
    status: u16,
    /// The field `Server`.
    server: String,
}

impl Way {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Own => Self::WebSocket,
            Self::WebSocket => Self::Own,
        }
    }
}

/// Asks for a stream on a connection.
pub(super) fn ask(
    mut connection: Connection,
    url: &ServerUrl,
    way: Way,
) -> Result<Connected, Failed> {
    let mut key = [0; WEBSOCKET_KEY_LEN];
    SystemRandom.fill(&mut key);
    let key = websocket_key(&key);
    let own = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL)];
    let websocket = [
        ("Connection", "Upgrade"),
        ("Upgrade", WEBSOCKET),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", &key),
        ("Sec-WebSocket-Protocol", PROTOCOL),
    ];
    let fields = match way {
        Way::Own => &own[..],
        Way::WebSocket => &websocket[..],
    };
    let answer = connection.request(("GET", PATH), fields, &[], BODY_LEN_MAX, ANSWER_WITHIN)?;
    let said = connection.said();
    if answer.status != 101 {
        let status = answer.status;
        let server = said.server.clone();
        return Err(Failed::NoUpgrade(NoUpgrade { url: url.clone(), status, server }));
    }
    if way == Way::WebSocket && websocket_accept(&key).as_ref() != Some(&said.accept) {
        return Err(io::Error::other("what answers as a WebSocket did not read the key").into());
    }
    let (socket, tls, early) = connection.into_parts()?;
    Ok(Connected::new((socket, tls), early, way)?)
}

impl NoUpgrade {
    /// Whether a relay answered that nothing asked it for an upgrade, although we did: it was taken
    /// away on the way.
    #[must_use]
    pub const fn is_by_a_proxy(&self) -> bool {
        self.status == UPGRADE_REQUIRED
    }

    /// What to change, and where.
    #[must_use]
    pub fn mend(&self) -> String {
        let url = &self.url;
        let what = if self.is_by_a_proxy() {
            format!(
                "a proxy in front of {url} passes no WebSocket on, so its relay works for nobody"
            )
        } else {
            format!(
                "{url} answers a relay's stream with status {}: a proxy in front of it passes no \
                 WebSocket on, or no relay is behind it",
                self.status
            )
        };
        format!("{what}; where it is configured, add: {}", lines(&self.server))
    }
}

/// What a proxy of this name is to be told.
fn lines(server: &str) -> &'static str {
    const NGINX: &str = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                         proxy_set_header Connection \"upgrade\"; (nginx)";
    const APACHE: &str = "ProxyPass /relay https://SERVER/relay upgrade=websocket (Apache)";
    const CADDY: &str = "transport http { versions 1.1 } in reverse_proxy (Caddy)";
    const ALL: &str = "in nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                       proxy_set_header Connection \"upgrade\"; in Apache: ProxyPass /relay \
                       https://SERVER/relay upgrade=websocket; in Caddy, in reverse_proxy: \
                       transport http { versions 1.1 }";
    let server = server.to_ascii_lowercase();
    match () {
        () if server.starts_with("nginx") || server.starts_with("openresty") => NGINX,
        () if server.starts_with("apache") => APACHE,
        () if server.starts_with("caddy") => CADDY,
        () => ALL,
    }
}

impl fmt::Display for NoUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = &self.url;
        let status = self.status;
        match self.is_by_a_proxy() {
            true => write!(f, "a proxy in front of {url} passes no WebSocket on"),
            false => write!(f, "{url} is no relay: it answers with status {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, server: &str) -> NoUpgrade {
        NoUpgrade { url: "https://vpn.example".parse().unwrap(), status, server: server.to_owned() }
    }

    #[test]
    fn a_proxy_that_passes_no_upgrade_is_told_with_the_lines_to_add() {
        let nginx = refused(426, "nginx/1.24.0").mend();
        assert!(nginx.starts_with("a proxy in front of https://vpn.example passes no"), "{nginx}");
        assert!(nginx.contains("proxy_set_header Upgrade $http_upgrade;"), "{nginx}");
        assert!(!nginx.contains("Apache"), "{nginx}");
        assert!(refused(426, "Apache/2.4.57 (Debian)").mend().contains("upgrade=websocket"));
        assert!(refused(426, "Caddy").mend().contains("versions 1.1"));
        let unknown = refused(403, "\u{1b}[31mx").mend();
        for part in ["status 403", "in nginx:", "in Apache:", "in Caddy"] {
            assert!(unknown.contains(part), "{unknown}");
        }
        assert!(!unknown.contains('\u{1b}'), "what a stranger calls itself is not repeated");
        assert_eq!(
            refused(404, "").to_string(),
            "https://vpn.example is no relay: it answers with status 404"
        );
    }
}
