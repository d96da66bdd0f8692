//! How a stream is asked for: an upgrade of HTTP/1.1 to the relay's own protocol, or to WebSocket
//! (RFC 6455), which is all that some proxies pass.
//!
//! Only what a node says word by word is taken, and nothing that a page can make a browser send: a
//! browser's WebSocket has an `Origin` (threat RL-16).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use control::relay::{PROTOCOL, WEBSOCKET, websocket_accept};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::{Relay, connection};

/// The version of RFC 6455.
const VERSION: &str = "13";

/// What was asked for.
enum Asked {
    Own,
    /// The answer to its key.
    WebSocket(HeaderValue),
}

/// Answers a request for [`control::relay::PATH`]: 101 with the stream taken over, or why not.
pub(crate) fn upgrade(relay: &Arc<Relay>, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let asked = match check(&request) {
        Ok(asked) => asked,
        Err(status) => return refused(relay, status),
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let is_websocket = matches!(asked, Asked::WebSocket(_));
    tokio::spawn(connection::serve(Arc::clone(relay), upgraded, is_websocket));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = answer.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    match asked {
        Asked::Own => {
            fields.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        }
        Asked::WebSocket(accept) => {
            fields.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
            fields.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            fields.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        }
    }
    answer
}

fn refused(relay: &Relay, status: StatusCode) -> Response<Full<Bytes>> {
    let mut refused = Response::new(Full::default());
    *refused.status_mut() = status;
    if status == StatusCode::UPGRADE_REQUIRED {
        refused.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        if !relay.told_of_proxy.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a request for the relay came without an upgrade: if a proxy stands in front, it \
                 must pass WebSocket on (docs/operations.md, \"Behind a proxy\")"
            );
        }
    }
    refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    refused
}

fn check(request: &Request<Incoming>) -> Result<Asked, StatusCode> {
    let fields = request.headers();
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if fields.contains_key(header::ORIGIN) {
        return Err(StatusCode::FORBIDDEN);
    }
    let asked = asked(fields).filter(|_| request.version() == Version::HTTP_11);
    let asked = asked.ok_or(StatusCode::UPGRADE_REQUIRED)?;
    if !request.body().is_end_stream() {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(asked)
}

fn asked(fields: &HeaderMap) -> Option<Asked> {
    let says =
        |name, word: &str| only(fields, name).is_some_and(|it| it.eq_ignore_ascii_case(word));
    if says(header::UPGRADE, PROTOCOL) && says(header::CONNECTION, "upgrade") {
        return Some(Asked::Own);
    }
    // Proxies say `keep-alive, Upgrade` here.
    let connection = only(fields, header::CONNECTION)?;
    let upgrades = connection.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    let asks = upgrades
        && says(header::UPGRADE, WEBSOCKET)
        && says(header::SEC_WEBSOCKET_VERSION, VERSION)
        && says(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    let accept = websocket_accept(only(fields, header::SEC_WEBSOCKET_KEY)?)?;
    HeaderValue::from_str(&accept).ok().filter(|_| asks).map(Asked::WebSocket)
}

/// The value of a field that is there once.
fn only(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = fields.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}
