//! One event on its way: a POST over HTTP or HTTPS, through a proxy where one is set, with bounds
//! on time and on what is read.

use std::sync::Arc;
use std::time::Duration;

use dial::proxy::Proxies;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::acme::https::{self, Failure};

/// A receiver may take so long, from the first packet to its status.
const WITHIN: Duration = Duration::from_secs(10);
/// Who posts.
const NAME: HeaderValue = HeaderValue::from_static(concat!("warren/", env!("CARGO_PKG_VERSION")));
/// The field with the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("warren-signature");

/// The way to one receiver.
pub(super) struct Poster {
    uri: Uri,
    tls: Option<TlsConnector>,
    proxies: Proxies,
}

impl Poster {
    /// May wait for the disk: HTTPS trusts what this machine trusts.
    pub(super) fn new(uri: Uri) -> Result<Self, String> {
        let tls = match uri.scheme_str() {
            Some("https") => {
                Some(TlsConnector::from(Arc::new(https::client(https::of_this_machine()?)?)))
            }
            _ => None,
        };
        let proxies = Proxies::from_environment().map_err(|why| why.to_string())?;
        Ok(Self { uri, tls, proxies })
    }

    /// Posts a body.
    ///
    /// # Errors
    /// Why it was not taken: any answer but a status of 200 to 299 is a no.
    pub(super) async fn post(&self, body: &str, signature: &str) -> Result<(), String> {
        let within = WITHIN.as_secs();
        let posted = timeout(WITHIN, self.exchange(body, signature)).await;
        let status = posted
            .unwrap_or_else(|_| Err(format!("no answer in {within} s").into()))
            .map_err(|why| why.to_string())?;
        if status.is_success() { Ok(()) } else { Err(format!("it answers {}", status.as_u16())) }
    }

    async fn exchange(&self, body: &str, signature: &str) -> Result<StatusCode, Failure> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.uri.port_u16().unwrap_or_else(|| if self.tls.is_some() { 443 } else { 80 });
        let tcp = https::connect((host, port), &self.proxies).await?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or(host, |authority| authority.as_str());
        let mut request = Request::post(path.parse::<Uri>()?);
        if let Some(fields) = request.headers_mut() {
            fields.insert(HOST, HeaderValue::from_str(authority)?);
            fields.insert(USER_AGENT, NAME);
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            fields.insert(SIGNATURE, HeaderValue::from_str(signature)?);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        match &self.tls {
            Some(tls) => {
                let stream = tls.connect(ServerName::try_from(host.to_owned())?, tcp).await?;
                send(TokioIo::new(stream), request).await
            }
            None => send(TokioIo::new(tcp), request).await,
        }
    }
}

/// The status alone: what a receiver writes behind it is not read.
async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, Failure>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await?;
    // Ends with this request, however that ends.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    Ok(sender.send_request(request).await?.status())
}
