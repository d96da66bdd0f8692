//! What a node asks of the server, and what it is answered: JSON inside the channel, every message
//! with its version. Unknown fields are ignored, so that the program of yesterday works with the
//! server of today; an unknown request is refused with a code.

use core::fmt;
use core::net::SocketAddr;

use noise::PublicKey;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::limits::{
    DETAIL_BYTES_MAX, ENDPOINTS_MAX, FACT_BYTES_MAX, HOSTNAME_BYTES_MAX, LINK_BYTES_MAX, LINKS_MAX,
    ROUTES_MAX,
};
use crate::text::{bytes, is_plain};
use crate::{Alias, Prefix, Signed, VerifyingKey};

/// The version of these messages.
pub const VERSION: u16 = 1;

/// What the server says first, inside the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The latest version of messages that it understands.
    pub version: u16,
    /// The name of this channel in later requests.
    #[serde(with = "bytes")]
    pub channel: [u8; 16],
    /// What its maps are signed with.
    pub verifying: VerifyingKey,
    /// Its clock, in Unix seconds.
    pub now_unix_s: u64,
}

/// One request with what it is bound to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// [`VERSION`].
    pub version: u16,
    /// The node's WireGuard key. Together with the machine's key, which the channel proves, it
    /// must be that of one node (threat CO-05).
    #[serde(with = "crate::text::key")]
    pub node_key: PublicKey,
    /// The request.
    pub request: Request,
}

/// What a node asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// To join, or to be told again that it has.
    Enrol(Enrol),
    /// To be told what changed.
    Poll(Poll),
    /// To join as a node of whoever signs in in a browser and says so.
    SignIn(SignIn),
    /// To record what it says of itself.
    Report(HostInfo),
    /// To record how its links are; nothing depends on it.
    Links {
        /// Those that carried something lately.
        links: Vec<LinkReport>,
    },
    /// To go on under another WireGuard key.
    Rotate {
        /// The new key.
        #[serde(with = "crate::text::key")]
        new_key: PublicKey,
    },
    /// To leave the network.
    Logout,
    /// To end, for now: a node that is ephemeral leaves by that, another stays.
    Stop,
    /// A call of the API, for programs that hold an API token and trust no certificate.
    Api(ApiRequest),
}

/// A request to join. Its secret is wiped when it is dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Enrol {
    /// The join key's look-up name.
    #[serde(with = "bytes")]
    pub id: [u8; 8],
    /// The join key's secret.
    pub secret: WireSecret,
    /// What the node says of itself.
    pub host: HostInfo,
}

/// A request to join of a machine that has no join key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SignIn {
    /// What the node says of itself.
    pub host: HostInfo,
    /// How long the server may wait for somebody to sign in, in milliseconds.
    pub wait_ms: u32,
}

/// Where somebody signs in to let a machine in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignInLink {
    /// The page, to be opened in any browser on any device.
    pub url: String,
    /// When it is over, in Unix seconds; the next request gets another.
    pub expires_unix_s: u64,
}

/// A secret on its way. Wiped when dropped; prints nothing.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct WireSecret(#[serde(with = "bytes")] pub [u8; 16]);

/// Where a node's map stands.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Poll {
    /// The epoch of its map; 0 if it has none.
    pub epoch: u64,
    /// The sequence of its map.
    pub sequence: u64,
    /// How long the server may wait for news, in milliseconds.
    pub wait_ms: u32,
    /// It reads bare statements ([`Signed::bare`]), which a server may then send.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub bare: bool,
}

/// What a node says of itself; bounded and checked at the server's door (threat CO-19).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostInfo {
    /// What it calls itself.
    pub hostname: String,
    /// Its operating system.
    pub os: String,
    /// The version of its program.
    pub program: String,
    /// Where it may be reached.
    pub endpoints: Vec<SocketAddr>,
    /// What it offers to route.
    pub routes: Vec<Prefix>,
    /// Which of these stand for others, and for which: shown to who approves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Alias>,
    /// Which of these lead nowhere now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<Prefix>,
    /// The relay on which it waits.
    pub relay: Option<u32>,
}

/// How a link is, as one of its ends sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The other end: the number of a node.
    pub peer: u64,
    /// `direct`, `relay` or `none`.
    pub path: String,
    /// Round trip in microseconds, if it was measured.
    pub rtt_us: Option<u32>,
    /// Datagrams lost on the way to the peer, of a million.
    pub loss_ppm: u32,
    /// Bytes received since the daemon began.
    pub rx_bytes: u64,
    /// Bytes sent since then.
    pub tx_bytes: u64,
    /// What the way to the peer has left, if somebody had it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Available>,
}

/// What a way has left beside what others send, as it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Available {
    /// So much at least, bits a second.
    pub low_bps: u64,
    /// So much at most.
    pub high_bps: u64,
    /// How long ago that was found.
    pub age_s: u32,
}

/// A call of the API inside the channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiRequest {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The path with its query, from `/api/v1`.
    pub path: String,
    /// The API token's look-up name.
    #[serde(with = "bytes")]
    pub id: [u8; 8],
    /// The API token's secret.
    pub secret: WireSecret,
    /// JSON, or nothing.
    pub body: String,
}

/// What the API answers inside the channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiAnswer {
    /// The HTTP status.
    pub status: u16,
    /// JSON, or nothing.
    pub body: String,
}

/// What the server answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// The node is in the books.
    Enrolled(Enrolled),
    /// Nobody has signed in yet.
    SignIn(SignInLink),
    /// A whole map or a change, to be verified.
    News {
        /// A [`Statement`](crate::Statement), signed.
        signed: Signed,
    },
    /// Nothing happened while the server waited.
    Unchanged,
    /// What was asked for is done.
    Done,
    /// It is known that the node ends.
    Stopped {
        /// It was ephemeral, and is in the books no more.
        has_left: bool,
    },
    /// It is not done.
    Refused(Refusal),
    /// The API's answer.
    Api(ApiAnswer),
}

/// A node's place in the books.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enrolled {
    /// Its number.
    pub node: u64,
    /// The name that it was given.
    pub name: String,
    /// Whether an administrator has let it in.
    pub approved: bool,
}

/// Why something is not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people: what, why, how to mend it.
    pub detail: String,
}

/// Why something is not done, for programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// No join key has this secret.
    KeyUnknown,
    /// The join key was for one node.
    KeyUsed,
    /// The join key's time is over.
    KeyExpired,
    /// The join key was taken back.
    KeyRevoked,
    /// This machine is not in the books, or no longer.
    NotEnrolled,
    /// The node's key has expired; it may join again with a join key.
    Expired,
    /// The node key is not the one that belongs to this machine.
    WrongKey,
    /// The request cannot be understood or is out of bounds.
    Invalid,
    /// No address is left.
    Full,
    /// The server cannot do it now; ask again later.
    Busy,
    /// A code of a later version.
    #[serde(other)]
    Unknown,
}

/// Why a message is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadMessage {
    /// It is no JSON of the expected shape.
    Form,
    /// It is of a later version: which.
    Version(u16),
    /// A field is too long or has characters that it must not have: which.
    Field(&'static str),
    /// A WireGuard key has its top bit set: another spelling of a key, as which it would be taken
    /// for a different one (threat CO-05).
    Key,
}

impl Code {
    /// Whether asking again later may help, without anybody doing anything on this machine.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Busy | Self::Full | Self::Unknown)
    }
}

impl Envelope {
    /// As the bytes to seal.
    #[must_use]
    pub fn print(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("no map with other keys than text is in it")
    }

    /// Reads and checks.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn read(bytes: &[u8]) -> Result<Self, BadMessage> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u16,
        }
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|_| BadMessage::Form)?;
        if version != VERSION {
            return Err(BadMessage::Version(version));
        }
        let envelope: Self = serde_json::from_slice(bytes).map_err(|_| BadMessage::Form)?;
        check_key(&envelope.node_key)?;
        match &envelope.request {
            Request::Enrol(enrol) => enrol.host.check()?,
            Request::Report(host) => host.check()?,
            Request::SignIn(asked) => asked.host.check()?,
            Request::Links { links } => check_links(links)?,
            Request::Rotate { new_key } => check_key(new_key)?,
            Request::Poll(_) | Request::Logout | Request::Stop | Request::Api(_) => {}
        }
        Ok(envelope)
    }
}

fn check_key(key: &PublicKey) -> Result<(), BadMessage> {
    if key.has_top_bit() { Err(BadMessage::Key) } else { Ok(()) }
}

impl Answer {
    /// As the bytes to seal.
    #[must_use]
    pub fn print(&self) -> Vec<u8> {
        let json = |answer: &Self| {
            serde_json::to_vec(answer).expect("no map with other keys than text is in it")
        };
        let Self::News { signed } = self else { return json(self) };
        if !signed.bare {
            return json(self);
        }
        // Its text stands behind the JSON as it is: large, and mostly quotes.
        let signature = signed.signature.clone();
        let head = Self::News { signed: Signed { text: String::new(), signature, bare: true } };
        let mut bytes = json(&head);
        bytes.reserve_exact(1 + signed.text.len());
        bytes.push(b'\n');
        bytes.extend_from_slice(signed.text.as_bytes());
        bytes
    }

    /// Reads.
    ///
    /// # Errors
    /// [`BadMessage::Form`], and [`BadMessage::Field`] for an explanation that is too long.
    pub fn read(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut read = serde_json::Deserializer::from_slice(bytes).into_iter::<Self>();
        let answer = read.next().and_then(Result::ok);
        let mut answer = answer.ok_or(BadMessage::Form)?;
        let behind = &bytes[read.byte_offset()..];
        match &mut answer {
            Self::News { signed } if signed.bare && signed.text.is_empty() => {
                let text = behind.strip_prefix(b"\n").ok_or(BadMessage::Form)?;
                signed.text = str::from_utf8(text).map_err(|_| BadMessage::Form)?.to_owned();
            }
            _ if behind.iter().any(|byte| !byte.is_ascii_whitespace()) => {
                return Err(BadMessage::Form);
            }
            _ => {}
        }
        match &answer {
            Self::SignIn(link) if !link.is_sound() => Err(BadMessage::Field("url")),
            Self::Refused(refusal) if refusal.detail.len() > DETAIL_BYTES_MAX => {
                Err(BadMessage::Field("detail"))
            }
            _ => Ok(answer),
        }
    }

    /// A refusal with its explanation.
    #[must_use]
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Refusal { code, detail: detail.into() })
    }
}

/// Checks a report.
fn check_links(links: &[LinkReport]) -> Result<(), BadMessage> {
    let is_path = |link: &LinkReport| matches!(link.path.as_str(), "direct" | "relay" | "none");
    match links.len() <= LINKS_MAX && links.iter().all(is_path) {
        true => Ok(()),
        false => Err(BadMessage::Field("links")),
    }
}

impl SignInLink {
    /// Whether it may be shown on a terminal, and leads to a server by HTTPS.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_plain = is_plain(&self.url) && !self.url.contains(' ');
        is_plain && self.url.len() <= LINK_BYTES_MAX && self.url.starts_with("https://")
    }
}

impl HostInfo {
    /// Checks lengths and characters.
    ///
    /// # Errors
    /// [`BadMessage::Field`].
    pub fn check(&self) -> Result<(), BadMessage> {
        let field = |what, fits: bool| if fits { Ok(()) } else { Err(BadMessage::Field(what)) };
        field("hostname", self.hostname.len() <= HOSTNAME_BYTES_MAX)?;
        field("os", self.os.len() <= FACT_BYTES_MAX && is_plain(&self.os))?;
        field("program", self.program.len() <= FACT_BYTES_MAX && is_plain(&self.program))?;
        field("endpoints", self.endpoints.len() <= ENDPOINTS_MAX)?;
        field("routes", self.routes.len() <= ROUTES_MAX)?;
        let is_alias = |one: &Alias| {
            one.prefix.bits() == one.alias.bits()
                && one.prefix.address().is_ipv4() == one.alias.address().is_ipv4()
                && self.routes.contains(&one.alias)
        };
        let fits = self.aliases.len() <= ROUTES_MAX && self.aliases.iter().all(is_alias);
        field("aliases", fits)?;
        let is_offered = |route: &Prefix| self.routes.contains(route);
        field("down", self.down.len() <= ROUTES_MAX && self.down.iter().all(is_offered))
    }
}

impl fmt::Debug for WireSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WireSecret(…)")
    }
}

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("the message cannot be read"),
            Self::Version(version) => {
                write!(f, "the message has version {version}, this program knows {VERSION}")
            }
            Self::Field(what) => write!(f, "{what}: too long, too many, or not plain text"),
            Self::Key => f.write_str(
                "this WireGuard key has its top bit set, as no key that was computed has; join \
                 with a new key pair",
            ),
        }
    }
}

impl core::error::Error for BadMessage {}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(request: Request) -> Envelope {
        Envelope { version: VERSION, node_key: PublicKey([1; 32]), request }
    }

    #[test]
    fn a_bare_statement_stands_behind_its_answer_and_nothing_else_does() {
        let signed = |text: &str, bare| {
            let signature = vec![7; 64];
            Answer::News { signed: Signed { text: text.to_owned(), signature, bare } }
        };
        for text in ["", "{}", "\"\u{e4}\"\n{\"is\":\"done\"}\n"] {
            for bare in [false, true] {
                let bytes = signed(text, bare).print();
                assert_eq!(bytes.ends_with(format!("\n{text}").as_bytes()), bare);
                assert_eq!(Answer::read(&bytes), Ok(signed(text, bare)));
            }
        }
        // As a node keeps it, or another writer may say it: inside.
        let inside = serde_json::to_vec(&signed("{}", true)).unwrap();
        assert_eq!(Answer::read(&inside), Ok(signed("{}", true)));
        let bare = signed("", true).print();
        let cut = &bare[..bare.len() - 1];
        for bytes in [cut, b"{\"is\":\"done\"}x", b"{\"is\":\"done\"}\n{}", b"", b"\n"] {
            assert_eq!(Answer::read(bytes), Err(BadMessage::Form), "{bytes:?}");
        }
        assert_eq!(Answer::read(b"{\"is\":\"done\"} \n"), Ok(Answer::Done));
        assert_eq!(Answer::read(&[&bare[..], b"\xff"].concat()), Err(BadMessage::Form));
        assert_eq!(Answer::read(&[&inside[..], b"\n{}"].concat()), Err(BadMessage::Form));
    }

    #[test]
    fn requests_come_back_and_unknown_fields_are_ignored() {
        let poll = Poll { epoch: 1, sequence: 2, wait_ms: 3, bare: true };
        let bytes = envelope(Request::Poll(poll.clone())).print();
        let text = String::from_utf8(bytes).unwrap();
        let more = text.replace("\"epoch\":1", "\"epoch\":1,\"later\":[{}]");
        let Request::Poll(back) = Envelope::read(more.as_bytes()).unwrap().request else {
            panic!("it was a poll");
        };
        assert_eq!(back, poll);
        let other = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(Envelope::read(other.as_bytes()).unwrap_err(), BadMessage::Version(2));
        for text in ["", "{", "[]", "{\"version\":1}", &text.replace("poll", "dance")] {
            assert_eq!(Envelope::read(text.as_bytes()).unwrap_err(), BadMessage::Form, "{text}");
        }
        let later = br#"{"is":"refused","code":"of-tomorrow","detail":"x"}"#;
        assert_eq!(Answer::read(later), Ok(Answer::refused(Code::Unknown, "x")));
    }

    #[test]
    fn co_05_a_key_with_the_bit_that_nobody_looks_at_is_refused() {
        let mut key = [9; 32];
        key[31] |= 0x80;
        let key = PublicKey(key);
        let host = HostInfo::default();
        let enrol =
            Request::Enrol(Enrol { id: [1; 8], secret: WireSecret([2; 16]), host: host.clone() });
        let sign_in = Request::SignIn(SignIn { host, wait_ms: 0 });
        for request in [enrol, sign_in, Request::Poll(Poll::default()), Request::Logout] {
            assert!(Envelope::read(&envelope(request.clone()).print()).is_ok());
            let other = Envelope { node_key: key, ..envelope(request) };
            assert_eq!(Envelope::read(&other.print()).unwrap_err(), BadMessage::Key);
        }
        let rotate = |new_key| Envelope::read(&envelope(Request::Rotate { new_key }).print());
        assert!(rotate(PublicKey([9; 32])).is_ok());
        assert_eq!(rotate(key).unwrap_err(), BadMessage::Key);
    }

    #[test]
    fn co_19_what_a_node_says_of_itself_is_bounded() {
        let fine = HostInfo { hostname: "x".repeat(255), ..HostInfo::default() };
        let check = |host: HostInfo| Envelope::read(&envelope(Request::Report(host)).print());
        assert!(check(fine.clone()).is_ok());
        let route: Prefix = "10.0.0.0/8".parse().unwrap();
        for (what, host) in [
            ("hostname", HostInfo { hostname: "x".repeat(256), ..fine.clone() }),
            ("os", HostInfo { os: "a\nb".to_owned(), ..fine.clone() }),
            ("program", HostInfo { program: "x".repeat(65), ..fine.clone() }),
            ("endpoints", HostInfo { endpoints: vec![([1; 4], 1).into(); 33], ..fine.clone() }),
            ("routes", HostInfo { routes: vec![route; 257], ..fine.clone() }),
        ] {
            assert_eq!(check(host).unwrap_err(), BadMessage::Field(what));
        }
    }

    #[test]
    fn ho_04_secrets_of_requests_are_not_printed() {
        let enrol = Enrol { id: [1; 8], secret: WireSecret([0x5a; 16]), host: HostInfo::default() };
        let said = format!("{:?}", envelope(Request::Enrol(enrol)));
        assert!(!said.contains("90") && !said.contains("Wlpa"), "{said}");
    }
}
