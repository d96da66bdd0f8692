//! The web interface on the loopback of an administrator's machine: what `warren ui` serves. Calls
//! of the API go on to the server by whatever the caller lends, a channel that pins the server's
//! key or the local socket; so nobody needs a certificate for it.
//!
//! Every program of this machine, and every page in its browser, can connect here. What keeps them
//! out: the host of a request is this address by number and port, so that a name that points here
//! opens nothing (DNS rebinding); a link holds a secret that is good once and for ten minutes,
//! behind `#`, where neither logs nor other sites see it; what the page gets for it is a key that
//! it sends in a field of its own, which no other page can. There is no cookie: those of 127.0.0.1
//! are sent to every port of it (threats WB-01, WB-04, WB-12 and WB-13).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::api::{BODY_BYTES_MAX, Problem};
use crate::connection::{ACCEPT_PAUSE, talk};
use crate::events::Sending;
use crate::held::held;
use crate::http::{closing, harden, json, page, plain, refused};
use crate::patience::Patience;
use crate::requests::read_body;

/// The field that carries a session's key.
const FIELD: &str = "x-warren-csrf";
/// Where a page learns who is signed in.
const SESSION: &str = "/api/v1/session";
/// How long a link opens.
const LINK_FOR: Duration = Duration::from_secs(600);
/// How long a session lasts.
const SESSION_FOR: Duration = Duration::from_secs(12 * 3600);
/// Links and sessions at a time; the oldest gives way.
const LINKS_MAX: usize = 8;
const SESSIONS_MAX: usize = 8;
/// Connections at a time: a browser makes six.
const CONNECTIONS_MAX: usize = 64;
/// Threads that wait for the server.
const WAITING_MAX: usize = 8;

/// Carries a call to the server: method, path with query, body; status and body, or why not.
pub type Carry = dyn Fn(&str, &str, &str) -> Result<(u16, String), String> + Send + Sync;

/// A secret that was given out: its tag, and until when it is good.
type Given = (hmac::Tag, Instant);

/// What all requests share.
struct Desk {
    carry: Box<Carry>,
    user: String,
    hosts: [String; 2],
    key: hmac::Key,
    links: Mutex<Vec<Given>>,
    sessions: Mutex<Vec<Given>>,
}

/// The interface, served until it is dropped.
pub struct Loopback {
    runtime: Runtime,
    desk: Arc<Desk>,
    address: SocketAddr,
}

impl Loopback {
    /// Serves at a port of 127.0.0.1, or at any free one for 0. `user` is who the page says is
    /// signed in.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn start(port: u16, user: &str, carry: Box<Carry>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(WAITING_MAX)
            .thread_name("warren-ui")
            .enable_all()
            .build()?;
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = runtime.block_on(TcpListener::bind(at));
        let listener = listener
            .map_err(|error| io::Error::new(error.kind(), format!("--port {port}: {error}")))?;
        let address = listener.local_addr()?;
        let port = address.port();
        let mut key = [0; 32];
        fill(&mut key)?;
        let desk = Arc::new(Desk {
            carry,
            user: user.to_owned(),
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            links: Mutex::default(),
            sessions: Mutex::default(),
        });
        runtime.spawn(serve(Arc::clone(&desk), listener));
        Ok(Self { runtime, desk, address })
    }

    /// Where it is served.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A link that opens the interface once, within ten minutes.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub fn link(&self) -> io::Result<String> {
        let secret = self.desk.give(&self.desk.links, LINKS_MAX, LINK_FOR)?;
        Ok(format!("http://{}/#/open/{secret}", self.address))
    }

    /// Waits for SIGINT or SIGTERM.
    ///
    /// # Errors
    /// If the signals cannot be watched.
    pub fn wait(&self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        self.runtime.block_on(async {
            let mut term = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            std::future::poll_fn(|context| {
                let is_told = term.poll_recv(context).is_ready();
                match is_told || interrupt.poll_recv(context).is_ready() {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            })
            .await;
            Ok(())
        })
    }
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| io::Error::other("the kernel has no randomness"))
}

impl Desk {
    /// A new secret of 128 bits.
    fn give(&self, given: &Mutex<Vec<Given>>, most: usize, life: Duration) -> io::Result<String> {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut given = held(given);
        if given.len() >= most {
            given.remove(0);
        }
        given.push((hmac::sign(&self.key, secret.as_bytes()), Instant::now() + life));
        Ok(secret)
    }

    /// Where a secret stands that is good.
    fn place(&self, given: &[Given], shown: &str) -> Option<usize> {
        let now = Instant::now();
        given.iter().position(|(tag, until)| {
            now < *until && hmac::verify(&self.key, shown.as_bytes(), tag.as_ref()).is_ok()
        })
    }

    /// Whether the request comes from the page that this served, by this address.
    fn is_ours(&self, fields: &HeaderMap) -> bool {
        let of = |name| fields.get(name).map(|value| value.to_str().unwrap_or("?"));
        let host = of(header::HOST).unwrap_or_default();
        let origin = of(header::ORIGIN);
        let site = of(header::HeaderName::from_static("sec-fetch-site"));
        self.hosts.iter().any(|own| host == own)
            && origin.is_none_or(|origin| origin.strip_prefix("http://") == Some(host))
            && site.is_none_or(|site| ["same-origin", "none"].contains(&site))
    }

    fn is_open(&self, fields: &HeaderMap) -> bool {
        let shown = fields.get(FIELD).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.place(&held(&self.sessions), shown).is_some()
    }

    /// Who is signed in, as far as the server says: what the caller's token may.
    fn session(&self, key: Option<&str>) -> Value {
        let said = (self.carry)("GET", SESSION, "").ok().filter(|(status, _)| *status == 200);
        let said = said.and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok());
        let said = said.unwrap_or_default();
        json!({
            "schema": 1,
            "user": self.user,
            "role": said["role"],
            "scopes": said.get("scopes"),
            "csrf": key,
            "expires_s_at": null,
            "loopback": true,
        })
    }

    /// The key of a new session for who has a link.
    fn open(&self, body: &[u8]) -> Result<String, Problem> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let shown = body["link"].as_str().unwrap_or_default();
        let used = {
            let mut links = held(&self.links);
            self.place(&links, shown).map(|place| links.remove(place))
        };
        let no_link = "press Enter where `warren ui` runs, and open the link that it prints";
        used.ok_or_else(|| Problem::new(401, "this link was used or is too old", no_link))?;
        let key = self.give(&self.sessions, SESSIONS_MAX, SESSION_FOR);
        key.map_err(|_| Problem::busy())
    }

    fn close(&self, fields: &HeaderMap) {
        let shown = fields.get(FIELD).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut sessions = held(&self.sessions);
        if let Some(place) = self.place(&sessions, shown) {
            sessions.remove(place);
        }
    }
}

async fn serve(desk: Arc<Desk>, listener: TcpListener) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            connection(desk, stream).await;
            drop(permit);
        });
    }
}

async fn connection(desk: Arc<Desk>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move {
            let mut sent = match answer(desk, request).await {
                Ok(sent) => sent,
                Err(problem) => refused(&problem),
            };
            harden(&mut sent);
            Ok::<_, Infallible>(sent)
        }
    });
    talk(Patience::new(stream), service).await;
}

async fn session(desk: Arc<Desk>, key: Option<String>) -> Result<Response<Sending>, Problem> {
    let told = tokio::task::spawn_blocking(move || desk.session(key.as_deref()));
    let told = told.await.map_err(|_| Problem::busy())?;
    Ok(json(StatusCode::OK, told.to_string()))
}

async fn answer(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<Sending>, Problem> {
    if !desk.is_ours(request.headers()) {
        let why = format!("only pages of http://{} may ask here", desk.hosts[0]);
        return Ok(closing(refused(&Problem::new(403, "this is not for other pages", why))));
    }
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    if [Method::GET, Method::HEAD].contains(&method)
        && let Some(page) = page(&request)
    {
        return Ok(page);
    }
    if path == SESSION && method == Method::POST {
        let body = read_body(request, BODY_BYTES_MAX).await?;
        let key = desk.open(&body)?;
        return session(desk, Some(key)).await;
    }
    if !desk.is_open(request.headers()) {
        let why = "press Enter where `warren ui` runs, and open the link that it prints";
        let ways = json!({ "password": false, "oidc": [], "loopback": true });
        return Err(Problem::new(401, "nobody is signed in here", why).with("sign_in", ways));
    }
    match (path.as_str(), &method) {
        (SESSION, &Method::GET) => {
            return session(desk, None).await;
        }
        (SESSION, &Method::DELETE) => {
            desk.close(request.headers());
            return Ok(plain(StatusCode::NO_CONTENT));
        }
        (path, _) if path.starts_with("/api/v1/") => {}
        _ => return Err(Problem::new(404, "there is no such path", "see docs/ui.md")),
    }
    let whole = request.uri().path_and_query().map(|whole| whole.as_str().to_owned());
    let body = read_body(request, BODY_BYTES_MAX).await?;
    let body = String::from_utf8(body)
        .map_err(|_| Problem::new(400, "the body is no text", "JSON is UTF-8"))?;
    let carried = tokio::task::spawn_blocking(move || {
        (desk.carry)(method.as_str(), &whole.unwrap_or_default(), &body)
    });
    let carried = carried.await.map_err(|_| Problem::busy())?;
    let (status, body) =
        carried.map_err(|why| Problem::new(502, "the server does not answer", why))?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut sent = json(status, body);
    if status.is_client_error() || status.is_server_error() {
        let kind = HeaderValue::from_static("application/problem+json");
        sent.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    Ok(sent)
}
