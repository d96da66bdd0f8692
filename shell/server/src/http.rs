//! HTTP/1.1 over TLS, and over the local socket: connections, limits, and which request goes where.
//!
//! Everything that a stranger can make us hold is bounded: connections, the time of a TLS
//! handshake, of a head and of a body, the size of both. Who calls is known before a body is
//! read, except for the channel's own requests, whose bodies are small (threat CO-11). How much
//! one source may ask for is in `limits`; a reader that does not read is cut by `patience`.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use admit::Source;
use control::channel::OPEN_LEN;
use control::client::{ASK_PATH, OPEN_PATH};

use crate::api::{self, Caller, OPENAPI, Problem, Reply};
use crate::app::App;
use crate::connection::{ACCEPT_PAUSE, READ_WITHIN, talk, unless_cut};
use crate::doorstep::{KNOWN_MAX, OnProof, STRANGERS_MAX, Way};
use crate::events::Sending;
use crate::patience::Patience;
use crate::protocol::{self, ASK_BYTES_MAX, Failure};
use crate::relay::Pipe;
use crate::requests::{read_body, session_cookie};
use crate::{origin, relay, signin, tls};

/// Connections at a time, all together: those that have a place on the doorstep, and those that
/// have just lost theirs and are about to end.
const CONNECTIONS_MAX: usize = STRANGERS_MAX + KNOWN_MAX + 1024;
type Sent = Response<Sending>;

/// Serves TLS connections until the task is dropped.
pub(crate) async fn serve_tls(app: Arc<App>, listener: TcpListener, acceptor: TlsAcceptor) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            app.limits.refuse();
            tracing::warn!(CONNECTIONS_MAX, "a connection was refused: too many are open");
            continue;
        };
        let source = Source::from(from.ip());
        if !app.limits.connect(source) {
            app.limits.refuse();
            tracing::debug!(%from, "a connection was refused: its source makes too many");
            continue;
        }
        let app = Arc::clone(&app);
        let acceptor = acceptor.clone();
        let (place, cut) = app.doorstep.enter(source);
        let way = Way { source: Some(source), place: Some(Arc::new(place)), proof: None };
        tokio::spawn(async move {
            let _permit = permit;
            let _ = stream.set_nodelay(true);
            unless_cut(serve_stream(app, acceptor, stream, way), cut).await;
        });
    }
}

/// Serves one TLS connection.
async fn serve_stream(app: Arc<App>, acceptor: TlsAcceptor, stream: TcpStream, way: Way) {
    // No queue before it: those who say nothing would hold up those who do.
    let accepted = acceptor.accept(Patience::new(stream));
    let Ok(Ok(mut stream)) = timeout(READ_WITHIN, accepted).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(tls::CHALLENGE) {
        // An authority saw in the handshake what it wanted to see. There is no more.
        let _ = timeout(READ_WITHIN, stream.shutdown()).await;
        return;
    }
    connection(app, stream, Caller::Anonymous, way).await;
}

/// Serves what a node says by ping in place of a TLS connection: what it says is sealed by itself.
pub(crate) async fn serve_pipe(app: Arc<App>, pipe: Pipe) {
    let Pipe { proof, sending, receiving, stranger } = pipe;
    let source = Source::from(proof.connection.remote_address().ip());
    if !app.limits.connect(source) {
        app.limits.refuse();
        return;
    }
    let (place, cut) = app.doorstep.enter(source);
    // It has a place of its own while it proves itself.
    drop(stranger);
    let proof = Some(OnProof(Arc::new(move || proof.tell())));
    let way = Way { source: Some(source), place: Some(Arc::new(place)), proof };
    let stream = Patience::new(tokio::io::join(receiving, sending));
    unless_cut(connection(app, stream, Caller::Anonymous, way), cut).await;
}

/// Serves the local socket until the task is dropped. Only `owner` and root may call.
pub(crate) async fn serve_local(app: Arc<App>, listener: UnixListener, owner: u32) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let uid = match stream.peer_cred() {
            Ok(peer) if peer.uid() == 0 || peer.uid() == owner => peer.uid(),
            _ => continue,
        };
        let app = Arc::clone(&app);
        let serving = connection(app, Patience::new(stream), Caller::Local(uid), Way::default());
        tokio::spawn(serving);
    }
}

/// Serves requests of one connection: who calls as far as it tells, and by which way.
async fn connection<S>(app: Arc<App>, stream: S, caller: Caller, way: Way)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        let caller = caller.clone();
        let way = way.clone();
        async move { Ok::<_, Infallible>(answer(app, request, caller, way).await) }
    });
    talk(stream, service).await;
}

async fn answer(app: Arc<App>, request: Request<Incoming>, caller: Caller, way: Way) -> Sent {
    let source = way.source;
    let path = request.uri().path();
    let is_post = request.method() == Method::POST;
    let mut sent = match path {
        OPEN_PATH if is_post && source.is_some_and(|source| !app.limits.channel(source)) => {
            refused(&Problem::too_often())
        }
        OPEN_PATH if is_post => {
            control(request, OPEN_LEN, |body| protocol::open(app, source, body)).await
        }
        ASK_PATH if is_post => {
            control(request, ASK_BYTES_MAX, |body| protocol::ask(app, way, body)).await
        }
        OPEN_PATH | ASK_PATH => plain(StatusCode::METHOD_NOT_ALLOWED),
        path if signin::is_page(path) => signin::answer(app, request, way).await,
        control::relay::PATH => relay::upgrade(&app.relay, request).map(Sending::Whole),
        _ if is_read(&request) && ui::is_page(path) => match app.limits.request(source) {
            true => page(&request).unwrap_or_default(),
            false => refused(&Problem::too_often()),
        },
        _ => match call(app, request, caller, &way).await {
            Ok(reply) => replied(reply),
            Err(problem) => refused(&problem),
        },
    };
    harden(&mut sent);
    sent
}

fn is_read(request: &Request<Incoming>) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
}

/// The file of the web interface that is asked for.
pub(crate) fn page(request: &Request<Incoming>) -> Option<Sent> {
    let known = request.headers().get(header::IF_NONE_MATCH);
    let page = ui::page(request.uri().path(), known.and_then(|known| known.to_str().ok()))?;
    let mut sent = Response::new(page.body.into());
    *sent.status_mut() = StatusCode::from_u16(page.status).unwrap_or_default();
    for (name, value) in page.fields {
        let value = HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""));
        sent.headers_mut().insert(name, value);
    }
    Some(sent)
}

async fn control<F>(
    request: Request<Incoming>,
    len_max: usize,
    work: impl FnOnce(Vec<u8>) -> F,
) -> Sent
where
    F: Future<Output = Result<Vec<u8>, Failure>>,
{
    let body = match read_body(request, len_max).await {
        Ok(body) => body,
        Err(problem) => return closing(refused(&problem)),
    };
    match work(body).await {
        Ok(bytes) => {
            let mut sent = Response::new(bytes.into());
            let kind = HeaderValue::from_static("application/octet-stream");
            sent.headers_mut().insert(header::CONTENT_TYPE, kind);
            sent
        }
        Err(Failure::Malformed) => plain(StatusCode::BAD_REQUEST),
        Err(Failure::NoChannel) => plain(StatusCode::GONE),
        Err(Failure::Busy) => plain(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn call(
    app: Arc<App>,
    request: Request<Incoming>,
    caller: Caller,
    way: &Way,
) -> Result<Reply, Problem> {
    let found = api::find(request.method().as_str(), request.uri().path())?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let field = request.headers().get(header::AUTHORIZATION);
    let field = field.map(|field| field.to_str().unwrap_or_default());
    let caller = match (caller, field, session_cookie(request.headers())) {
        (Caller::Anonymous, None, Some(cookie)) => api::signed_in(&app, way, cookie).await?,
        (Caller::Anonymous, field, _) => api::bearer(&app, way, field).await?,
        (local, ..) => local,
    };
    if request.method() != Method::GET {
        origin::check(&app, request.headers(), &caller, found.0)?;
    }
    api::authorise(found.0, &caller)?;
    let has_body = !request.body().is_end_stream();
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if has_body && !kind.is_some_and(|kind| kind.starts_with(b"application/json")) {
        let detail = "a body is JSON: Content-Type: application/json";
        return Err(Problem::new(415, "the body's type is not taken", detail));
    }
    let body = read_body(request, api::BODY_BYTES_MAX).await?;
    api::run(app, found, caller, (None, way.source), query, body).await
}

fn replied(reply: Reply) -> Sent {
    match reply {
        Reply::Json(value) => json(StatusCode::OK, value.to_string()),
        Reply::Written(text) => json(StatusCode::OK, text),
        Reply::Created(value) => json(StatusCode::CREATED, value.to_string()),
        Reply::Empty => plain(StatusCode::NO_CONTENT),
        Reply::Cookie(value, cookie) => {
            let mut sent = json(StatusCode::OK, value.to_string());
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                sent.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            sent
        }
        Reply::Text(lines) => text(lines),
        Reply::Events(stream) => {
            let mut sent = Response::new(stream);
            let kind = HeaderValue::from_static("text/event-stream");
            sent.headers_mut().insert(header::CONTENT_TYPE, kind);
            sent
        }
        Reply::Document => json(StatusCode::OK, OPENAPI.to_owned()),
    }
}

fn text(lines: String) -> Sent {
    let mut sent = Response::new(lines.into());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    sent.headers_mut().insert(header::CONTENT_TYPE, kind);
    sent
}

pub(crate) fn json(status: StatusCode, body: String) -> Sent {
    let mut sent = Response::new(body.into());
    *sent.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    sent.headers_mut().insert(header::CONTENT_TYPE, kind);
    sent
}

pub(crate) fn refused(problem: &Problem) -> Sent {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut sent = json(status, problem.print());
    let kind = HeaderValue::from_static("application/problem+json");
    sent.headers_mut().insert(header::CONTENT_TYPE, kind);
    if problem.status == 429 {
        sent.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    }
    if problem.status == 401 {
        sent.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // A body that was not wanted may still be on its way.
    if matches!(problem.status, 401 | 403 | 408 | 413 | 415 | 429) { closing(sent) } else { sent }
}

pub(crate) fn closing(mut sent: Sent) -> Sent {
    sent.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    sent
}

pub(crate) fn plain(status: StatusCode) -> Sent {
    let mut sent = Response::new(Sending::default());
    *sent.status_mut() = status;
    sent
}

/// No answer of ours is kept, guessed at, framed, or runs anything, unless it is a page, which says
/// itself what it may (threats WB-02, WB-03).
pub(crate) fn harden(sent: &mut Sent) {
    let fields = sent.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        fields.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
