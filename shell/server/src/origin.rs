//! Where a request that changes something was made: on a page of this server, or nowhere that we
//! let speak for somebody who signed in (threats WB-01, WB-13).
//!
//! A browser says the origin of the page (`Origin`, RFC 6454) with every request that is no plain
//! navigation. It has to be this server's: by the name that the request itself is for, or one of
//! those that nodes are told. What a program says with a token is not looked at: no browser sends
//! a token by itself.

use hyper::header::{self, HeaderMap};

use crate::api::{self, Caller, Problem, Route};
use crate::app::App;

/// What a change has to bear besides the cookie.
const CSRF: &str = "x-warren-csrf";

/// Refuses a change that was not made on a page of ours.
pub(crate) fn check(
    app: &App,
    fields: &HeaderMap,
    caller: &Caller,
    route: &Route,
) -> Result<(), Problem> {
    let refused = |detail| Err(Problem::new(403, "this was asked for by another page", detail));
    match caller {
        // Who signs in has no proof yet, and may come from a program.
        // Whatever else nobody may do is refused anyhow.
        Caller::Anonymous if route.is_about_caller() && is_foreign(app, fields) => {
            refused("its origin is not this server")
        }
        Caller::User(_) if !is_ours(app, fields) => refused("Origin has to be this server"),
        Caller::User(session) if !route.is_sign_in() => {
            let said = fields.get(CSRF).and_then(|field| field.to_str().ok()).unwrap_or_default();
            match api::is_csrf(app, &session.id, said) {
                true => Ok(()),
                false => refused("X-Warren-Csrf has to be the session's: GET /api/v1/session"),
            }
        }
        _ => Ok(()),
    }
}

/// Whether a browser says that the page is somebody else's.
pub(crate) fn is_foreign(app: &App, fields: &HeaderMap) -> bool {
    let site = fields.get("sec-fetch-site").map(|site| site.as_bytes());
    let is_cross = site.is_some_and(|site| site == b"cross-site" || site == b"same-site");
    is_cross || fields.contains_key(header::ORIGIN) && !is_ours(app, fields)
}

/// Whether a browser says that the page is ours.
pub(crate) fn is_ours(app: &App, fields: &HeaderMap) -> bool {
    let text = |name| fields.get(name).and_then(|field: &header::HeaderValue| field.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else { return false };
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let host = text(header::HOST).unwrap_or_default();
    let is_named = |scheme_of: &str| scheme == scheme_of && same(authority, host);
    // A page on this machine needs no certificate.
    let is_here = ["127.0.0.1", "localhost", "[::1]"]
        .iter()
        .any(|here| authority == *here || authority.starts_with(&format!("{here}:")));
    let is_told = app.urls.iter().any(|url| {
        url.to_string().trim_end_matches('/').eq_ignore_ascii_case(origin)
            || same(authority, &format!("{}:{}", url.host(), url.port()))
    });
    is_named("https") || is_here && is_named("http") || scheme == "https" && is_told
}

/// Whether both are the same host and port, by HTTPS' own port where none is said.
fn same(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.strip_suffix(":443").unwrap_or(text).to_ascii_lowercase();
    !one.is_empty() && plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_same_with_and_without_the_usual_port() {
        assert!(same("vpn.example", "VPN.example:443") && same("a:8443", "a:8443"));
        assert!(!same("a", "a:8443") && !same("", "") && !same("a.evil", "a"));
    }
}
