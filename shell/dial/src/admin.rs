//! An administrator's calls of the API: over the local socket, or inside a channel to the server
//! that the API token names, so that no certificate has to be trusted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::channel;
use control::client::{ASK_PATH, OPEN_PATH};
use control::limits::ANSWER_BYTES_MAX;
use control::{
    Answer, ApiRequest, Envelope, Hello, Kind, Request, ServerUrl, Token, VERSION, WireSecret,
};
use noise::{PrivateKey, PublicKey};

use crate::http::Connection;
use crate::proxy::Proxies;
use crate::random::SystemRandom;

/// Where a server says what everybody may know, and bytes of that.
const HEALTH: &str = "/api/v1/health";
const HEALTH_BYTES_MAX: usize = 64 * 1024;
/// An answer may take so long.
const WITHIN: Duration = Duration::from_secs(30);
/// The server ends connections on which nothing is asked; so long it certainly keeps them.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Where an administrator's calls go.
pub enum Admin {
    /// The server on this machine.
    Local(Box<Local>),
    /// A server elsewhere.
    Remote(Box<Remote>),
}

/// The server on this machine, and the connection to it.
pub struct Local {
    socket: PathBuf,
    connection: Connection,
    used: Instant,
}

/// A server elsewhere, and the token for it.
pub struct Remote {
    url: ServerUrl,
    token: Token,
    proxies: Proxies,
    /// The key that its calls prove; one that is made for the moment if there is none.
    own: Option<PrivateKey>,
}

/// What the API answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiReply {
    /// The HTTP status.
    pub status: u16,
    /// JSON, or nothing.
    pub body: String,
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum AdminError {
    /// The server on this machine does not answer on its socket.
    Local(io::Error),
    /// No server answers there.
    Unreachable(String, io::Error),
    /// Who answers does not hold the key that the token names.
    NotTheServer(String),
    /// The answer cannot be understood.
    Answer,
}

impl Admin {
    /// The server on this machine whose directory is `data`.
    ///
    /// # Errors
    /// [`AdminError::Local`].
    pub fn local(data: &Path) -> Result<Self, AdminError> {
        let socket = data.join("warren.sock");
        let connection = Connection::open_local(&socket).map_err(AdminError::Local)?;
        Ok(Self::Local(Box::new(Local { socket, connection, used: Instant::now() })))
    }

    /// The server that an API token names, at `url` or where the token says.
    ///
    /// # Errors
    /// If the text is no API token.
    pub fn remote(
        url: Option<ServerUrl>,
        token: &str,
        proxies: Proxies,
    ) -> Result<Self, control::BadToken> {
        let token = Token::parse(token, Kind::Api)?;
        let url = url.unwrap_or_else(|| token.urls[0].clone());
        Ok(Self::Remote(Box::new(Remote { url, token, proxies, own: None })))
    }

    /// The same, but each call proves that the caller holds this key, as a relay does that enters
    /// itself.
    #[must_use]
    pub fn proving(mut self, key: PrivateKey) -> Self {
        if let Self::Remote(remote) = &mut self {
            remote.own = Some(key);
        }
        self
    }

    /// One call. `body` is JSON or nothing.
    ///
    /// # Errors
    /// [`AdminError`]; an answer that is a refusal is no error.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Result<ApiReply, AdminError> {
        match self {
            Self::Local(local) => {
                let connection = local.connection()?;
                let fields = &[("Content-Type", "application/json")];
                let limit = ANSWER_BYTES_MAX;
                let answer = connection
                    .request((method, path), fields, body.as_bytes(), limit, WITHIN)
                    .map_err(AdminError::Local)?;
                let body = String::from_utf8(answer.body).map_err(|_| AdminError::Answer)?;
                Ok(ApiReply { status: answer.status, body })
            }
            Self::Remote(remote) => remote.call(method, path, body),
        }
    }
}

/// The key of the server at this URL, by the word of a certificate that this machine trusts.
///
/// # Errors
/// What keeps the server from being asked, or that it is no Warren.
pub fn server_key(url: &ServerUrl, proxies: &Proxies) -> io::Result<PublicKey> {
    let mut connection = Connection::open_verified(url, proxies, None)?;
    let answer = connection.request(("GET", HEALTH), &[], &[], HEALTH_BYTES_MAX, WITHIN)?;
    let value: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let key = value["key"].as_str().and_then(control::text::from_base64);
    let key = key.and_then(|key| key.try_into().ok()).map(PublicKey);
    key.ok_or_else(|| io::Error::other("who answers there is no server of Warren, or an older one"))
}

impl Local {
    /// The connection, or a new one if the server may have ended it meanwhile.
    fn connection(&mut self) -> Result<&mut Connection, AdminError> {
        if !self.connection.is_usable() || self.used.elapsed() > IDLE_MAX {
            self.connection = Connection::open_local(&self.socket).map_err(AdminError::Local)?;
        }
        self.used = Instant::now();
        Ok(&mut self.connection)
    }
}

impl Remote {
    fn call(&self, method: &str, path: &str, body: &str) -> Result<ApiReply, AdminError> {
        let place = || self.url.to_string();
        let unreachable = |error| AdminError::Unreachable(place(), error);
        let other = || AdminError::NotTheServer(place());
        let moment = || PrivateKey::generate(&mut SystemRandom);
        let machine = self.own.clone().unwrap_or_else(moment);
        let (message, opening) =
            channel::open(&machine, &self.token.server, &mut SystemRandom).map_err(|_| other())?;
        let mut connection = Connection::open(&self.url, &self.proxies).map_err(unreachable)?;
        let fields = &[("Content-Type", "application/octet-stream")];
        let mut post = |path, body: &[u8]| {
            connection.request(("POST", path), fields, body, ANSWER_BYTES_MAX * 2, WITHIN)
        };
        let answer = post(OPEN_PATH, &message).map_err(unreachable)?;
        let (channel, hello) = opening.finish(&answer.body).map_err(|_| other())?;
        let hello: Hello = serde_json::from_slice(&hello).map_err(|_| AdminError::Answer)?;
        let request = Request::Api(ApiRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            id: self.token.id.0,
            secret: WireSecret(self.token.secret.0),
            body: body.to_owned(),
        });
        let envelope = Envelope { version: VERSION, node_key: machine.public(), request };
        let sealed = channel.seal(1, &envelope.print()).map_err(|_| AdminError::Answer)?;
        let message = [&hello.channel[..], &1_u64.to_be_bytes(), &sealed].concat();
        let answer = post(ASK_PATH, &message).map_err(unreachable)?;
        let plain = channel.receive(1, &answer.body, ANSWER_BYTES_MAX).map_err(|_| other())?;
        match Answer::read(&plain) {
            Ok(Answer::Api(answer)) => Ok(ApiReply { status: answer.status, body: answer.body }),
            _ => Err(AdminError::Answer),
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(error) => write!(
                f,
                "no server answers on this machine ({error}); start `warren serve` with the same \
                 --data, as the same user or as root"
            ),
            Self::Unreachable(url, error) => write!(f, "{url} cannot be reached: {error}"),
            Self::NotTheServer(url) => write!(
                f,
                "who answers at {url} is not the server that this token is for; check --server \
                 and the token"
            ),
            Self::Answer => f.write_str("the server's answer cannot be understood; update both"),
        }
    }
}

impl std::error::Error for AdminError {}
