//! What is read of a request: a body with a bound in bytes and time, and a session's cookie.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use tokio::time::timeout;

use crate::api::{self, Problem};
use crate::connection::READ_WITHIN;

/// What the browser keeps of a session, if it says one.
pub(crate) fn session_cookie(fields: &HeaderMap) -> Option<&str> {
    cookie(fields, api::COOKIE)
}

/// What the browser keeps under a name, if it says that.
pub(crate) fn cookie<'a>(fields: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = fields.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
}

/// The whole body, if it is short enough and comes in time.
pub(crate) async fn read_body(
    request: Request<Incoming>,
    len_max: usize,
) -> Result<Vec<u8>, Problem> {
    let too_large =
        || Problem::new(413, "the body is too large", format!("at most {len_max} bytes are taken"));
    // What says beforehand that it is too large is not read at all.
    if request.body().size_hint().lower() > len_max as u64 {
        return Err(too_large());
    }
    let body = Limited::new(request.into_body(), len_max);
    match timeout(READ_WITHIN, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(400, "the body broke off", "send it again")),
        Err(_) => Err(Problem::new(408, "the body took too long", "10 s are allowed")),
    }
}
