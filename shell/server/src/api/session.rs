//! Sessions of people in browsers: begun with a password, told of, ended.
//!
//! The cookie is a name that we made (`store::sessions`) and a keyed hash of it. A request that
//! changes something bears a second hash of the same name in `X-Warren-Csrf`, which a page of ours
//! was told and no other can read, and comes from a page of this server (threat WB-01). A sign-in
//! always makes another name, whatever the browser came with (threat WB-04).

use std::sync::Arc;

use admit::Source;
use control::text::{from_base64url, to_base64url};
use noise::Random as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::handlers::Answer;
use super::people::hashed;
use super::{Call, Caller, Problem, Reply};
use crate::app::App;
use crate::keys::SystemRandom;
use crate::passwords;
use crate::store::{Session, SessionId};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "warren_session";
/// Bytes of a name that somebody may sign in with, and of a password that is looked at.
const WORD_BYTES_MAX: usize = 1024;

/// The name in a cookie, if it is one that we made.
pub(crate) fn read(app: &App, cookie: &str) -> Option<SessionId> {
    let bytes: [u8; 32] = from_base64url(cookie)?.try_into().ok()?;
    let (id, seal) = bytes.split_at(16);
    passwords::is_equal(&app.secrets.seal("session", id), seal)
        .then(|| id.try_into().ok())
        .flatten()
}

/// A part of it, for limits.
pub(crate) fn short(id: &SessionId) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&id[..8]);
    short
}

/// What a change made by this session has to say in `X-Warren-Csrf`.
pub(crate) fn csrf(app: &App, id: &SessionId) -> String {
    to_base64url(&app.secrets.seal("csrf", id))
}

/// Whether a change says it.
pub(crate) fn is_csrf(app: &App, id: &SessionId, said: &str) -> bool {
    passwords::is_equal(csrf(app, id).as_bytes(), said.as_bytes())
}

/// What the browser is told to keep.
pub(crate) fn cookie(app: &App, session: &Session) -> String {
    let seal = app.secrets.seal("session", &session.id);
    let value = to_base64url(&[session.id, seal].concat());
    format!("{COOKIE}={value}; Path=/; HttpOnly; Secure; SameSite=Lax")
}

/// What it is told to forget.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=0")
}

/// Somebody who may be signed in: begins a session, and ends the one of before.
pub(crate) fn enter(
    app: &Arc<App>,
    user: u64,
    how: &str,
    before: Option<&Session>,
) -> Result<Session, Problem> {
    let mut id = [0; 16];
    SystemRandom.fill(&mut id);
    let now = app.now();
    let mut store = app.store();
    if let Some(before) = before {
        store.end_session(&before.id, &format!("user:{}", before.user.id), now)?;
    }
    Ok(store.begin_session(user, id, how, now)?)
}

/// Who has this name and this password. Costs as much, and says as much, where there is no such
/// user.
pub(crate) fn prove(
    app: &App,
    source: Option<Source>,
    name: &str,
    password: &str,
) -> Result<u64, Problem> {
    let account = app.secrets.seal("account", name.to_lowercase().as_bytes());
    if !app.limits.sign_in(source, account) {
        let detail = "too many passwords were tried; wait a minute, then try again";
        return Err(Problem::new(429, "too much was asked for", detail));
    }
    let is_short = name.len() <= WORD_BYTES_MAX && password.len() <= WORD_BYTES_MAX;
    let claim = if is_short { app.store().claim_of(name)? } else { None };
    let kept = claim.as_ref().and_then(|claim| claim.password.as_deref());
    let is_right = passwords::is_right(password, kept);
    claim.filter(|_| is_right).map(|claim| claim.id).ok_or_else(|| {
        let detail = "the name or the password is wrong";
        Problem::new(401, "nobody is signed in", detail)
    })
}

fn session(call: &Call) -> Option<&Session> {
    match &call.caller {
        Caller::User(session) => Some(session),
        _ => None,
    }
}

fn shown(app: &App, session: &Session) -> Value {
    json!({
        "schema": 1,
        "user": session.user.name,
        "id": session.user.id,
        "role": session.user.role,
        "scopes": session.user.role().scopes(),
        "csrf": csrf(app, &session.id),
        "expires_s_at": session.expires,
        "sign_in": ways(app),
    })
}

/// How people sign in here.
fn ways(app: &App) -> Value {
    let oidc = providers(app).into_iter().map(|(name, url)| json!({ "name": name, "url": url }));
    json!({ "password": true, "oidc": oidc.collect::<Value>() })
}

/// Providers that know people: their names, and where a sign-in by each begins.
pub(crate) fn providers(app: &App) -> Vec<(String, String)> {
    let known = app.oidc.get().map(|oidc| (oidc.name().to_owned(), "/sign-in/oidc".to_owned()));
    known.into_iter().collect()
}

pub(super) fn show(call: &Call) -> Answer {
    let app = &call.app;
    if let Some(session) = session(call) {
        return Ok(Reply::Json(shown(app, session)));
    }
    let Some(within) = call.within() else {
        let scopes = super::SCOPES;
        return Ok(Reply::Json(json!({ "schema": 1, "user": call.actor, "role": "owner",
            "scopes": scopes, "csrf": null, "expires_s_at": null, "sign_in": ways(app) })));
    };
    if call.is_known() {
        return Ok(Reply::Json(json!({ "schema": 1, "user": call.actor, "role": null,
            "scopes": within, "csrf": null, "expires_s_at": null, "sign_in": ways(app) })));
    }
    let detail = "sign in: POST /api/v1/session";
    Err(Problem::new(401, "nobody is signed in", detail).with("sign_in", ways(app)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    user: String,
    password: String,
}

pub(super) fn begin(call: &Call) -> Answer {
    let Credentials { user, password } = call.json()?;
    let id = prove(&call.app, call.source, &user, &password)?;
    let begun = enter(&call.app, id, "password", session(call))?;
    Ok(Reply::Cookie(shown(&call.app, &begun), cookie(&call.app, &begun)))
}

pub(super) fn end(call: &Call) -> Answer {
    if let Some(session) = session(call) {
        call.app.store().end_session(&session.id, &call.actor, call.app.now())?;
    }
    Ok(Reply::Cookie(json!({ "schema": 1 }), no_cookie()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    old: String,
    new: String,
}

/// Another password of who is signed in; other sessions of its end.
pub(super) fn change_password(call: &Call) -> Answer {
    let Change { old, new } = call.json()?;
    let Some(session) = session(call) else {
        return Err(Problem::new(401, "nobody is signed in", "sign in first"));
    };
    prove(&call.app, call.source, &session.user.name, &old)?;
    let hash = hashed(&new)?;
    let id = session.user.id;
    let but = Some(&session.id);
    let new = (Some(hash.as_str()), but);
    call.app.store().set_password(id, new, None, &call.actor, call.app.now())?;
    Ok(Reply::Empty)
}
