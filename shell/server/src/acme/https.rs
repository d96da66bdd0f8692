//! What carries the library's requests to an authority: one TLS connection each, through
//! `HTTPS_PROXY` where that is set, with the sockets, the TLS and the HTTP that the server has
//! anyway. All that comes back has a bound.

use std::error::Error as StdError;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dial::proxy::{Proxies, Proxy};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::held::held;
use crate::roots;

/// A request and its answer may take so long together.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of an answer; a chain of certificates is a hundredth of it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a proxy's answer before what it leads to speaks.
const PROXY_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Who asks (RFC 8555, section 6.1).
const NAME: HeaderValue = HeaderValue::from_static(concat!("warren/", env!("CARGO_PKG_VERSION")));

pub(crate) type Failure = Box<dyn StdError + Send + Sync>;

/// How long an authority said to wait that refused because it was asked too often.
pub(super) type Wait = Arc<Mutex<Option<Duration>>>;

/// The way to an authority.
pub(super) struct Https {
    tls: TlsConnector,
    wait: Wait,
    proxies: Proxies,
}

impl Https {
    /// A way that trusts what `file` has, or else what this machine trusts. May wait for the disk.
    ///
    /// # Errors
    /// If nothing is to be trusted.
    pub(super) fn new(file: Option<&Path>, wait: Wait, proxies: Proxies) -> Result<Self, String> {
        let roots = file.map_or_else(of_this_machine, roots::roots)?;
        Ok(Self { tls: TlsConnector::from(Arc::new(client(roots)?)), wait, proxies })
    }
}

/// A client of TLS that trusts these authorities.
///
/// # Errors
/// If the library has no version of TLS.
pub(crate) fn client(roots: RootCertStore) -> Result<ClientConfig, String> {
    Ok(ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The authorities that this machine trusts.
///
/// # Errors
/// If it trusts none.
pub(crate) fn of_this_machine() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Of a hundred, one that is not read is no reason to trust none.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(format!("this machine has no list of authorities to trust{why}"));
    }
    Ok(roots)
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.tls.clone();
        let wait = Arc::clone(&self.wait);
        let proxies = self.proxies.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let within = REQUEST_WITHIN.as_secs();
            let answer = timeout(REQUEST_WITHIN, exchange(&tls, &proxies, request)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {within} s").into()));
            let answer = answer.map_err(|why| Error::Other(format!("{uri}: {why}").into()))?;
            if let Some(pause) = asked_to_wait(&answer) {
                *held(&wait) = Some(pause);
            }
            Ok(answer.into())
        })
    }
}

/// For how long an answer says that nothing is to be asked.
fn asked_to_wait<T>(answer: &Response<T>) -> Option<Duration> {
    let status = answer.status();
    let is_refused =
        status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
    let seconds = answer.headers().get(RETRY_AFTER).filter(|_| is_refused)?;
    Some(Duration::from_secs(seconds.to_str().ok()?.trim().parse().ok()?))
}

async fn exchange(
    tls: &TlsConnector,
    proxies: &Proxies,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Full<Bytes>>, Failure> {
    let uri = request.uri().clone();
    let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("it does not begin with https://".into());
    };
    let host = authority.host().trim_matches(['[', ']']);
    let tcp = connect((host, authority.port_u16().unwrap_or(443)), proxies).await?;
    let stream = tls.connect(ServerName::try_from(host.to_owned())?, tcp).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with this request, however that ends.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let fields = request.headers_mut();
    fields.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    fields.insert(USER_AGENT, NAME);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}

/// A connection to a host, through the proxy that leads there if there is one.
pub(crate) async fn connect(place: (&str, u16), proxies: &Proxies) -> Result<TcpStream, Failure> {
    let (host, port) = place;
    let Some(Proxy { host: at, port: at_port, authorization }) = proxies.proxy(host) else {
        return Ok(TcpStream::connect((host, port)).await?);
    };
    let by = |why: String| Failure::from(format!("the proxy {at}:{at_port}: {why}"));
    let opened = TcpStream::connect((at.as_str(), *at_port)).await;
    let mut tcp = opened.map_err(|why| by(why.to_string()))?;
    let place =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(known) = authorization {
        head.push_str(&format!("Proxy-Authorization: {known}\r\n"));
    }
    head.push_str("\r\n");
    tcp.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= PROXY_HEAD_BYTES_MAX {
            return Err(by("its answer is too long".to_owned()));
        }
        // Nothing of what comes behind the head is ours to read here.
        match tcp.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(why) => return Err(by(format!("it said nothing ({why})"))),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().next().unwrap_or_default();
    let mut words = line.split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let is_open = words.next().is_some_and(|status| status.len() == 3 && status.starts_with('2'));
    if is_http && is_open {
        return Ok(tcp);
    }
    let line: String = line.chars().filter(|c| !c.is_control()).take(100).collect();
    Err(by(format!("it does not let us through ({line})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_20_who_refuses_says_for_how_long() {
        let answer = |status: u16, field: &'static str| {
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(field));
            asked_to_wait(&answer)
        };
        assert_eq!(answer(429, "3600"), Some(Duration::from_secs(3600)));
        assert_eq!(answer(503, " 1 "), Some(Duration::from_secs(1)));
        // An order that is worked on says when to look again; that is the library's.
        assert_eq!(answer(200, "3600"), None);
        for other in ["", "soon", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(answer(429, other), None, "{other}");
        }
        assert_eq!(asked_to_wait(&Response::new(())), None);
    }
}
