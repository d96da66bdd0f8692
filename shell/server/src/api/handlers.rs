//! One function a route: the body as a type, one call of the store, the answer as JSON. Every
//! answer has `"schema": 1`.

use core::net::Ipv4Addr;

use control::{Kind, Prefix, Token, text::rfc3339};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroize;

use super::{Call, Problem, Reach, Reply, SCOPES};
use crate::store::{Made, NewApiToken, NewJoinKey, Node, StoreError, Verified};
use crate::tls::{Origin, Shown, Trouble};

pub(super) type Answer = Result<Reply, Problem>;

/// The longest lifetime that can be asked for: 100 years in seconds.
const LIFETIME_S_MAX: u64 = 100 * 366 * 86_400;

pub(super) fn health(call: &Call) -> Answer {
    if !call.app.is_well() {
        return Err(Problem::busy());
    }
    let certificate = certificate(call);
    let key = call.app.keys.noise.public().to_string();
    let mut shown = json!({ "schema": 1, "ok": true, "key": key, "certificate": certificate });
    if call.is_known() {
        shown["books"] = json!({ "trouble": call.app.unwritten.why() });
    }
    if let Some(oidc) = call.app.oidc.get().filter(|_| call.is_known()) {
        shown["provider"] = json!({ "name": oidc.name(), "trouble": oidc.trouble() });
    }
    Ok(Reply::Json(shown))
}

/// The outer certificate: for everybody what everybody sees, for those we know also what is amiss.
fn certificate(call: &Call) -> Value {
    let Shown { certificate, origin, trouble } = call.app.outer.shown();
    let from = match origin {
        Origin::Own => "self-signed",
        Origin::Files => "files",
        Origin::Authority => "acme",
    };
    let expires = certificate.dates.map(|(_, until)| rfc3339(until));
    let mut shown = json!({ "from": from, "expires": expires });
    if call.is_known() {
        shown["trouble"] = trouble.map_or(Value::Null, |Trouble { what, failures, next }| {
            json!({ "what": what, "failures": failures, "next_try": rfc3339(next) })
        });
    }
    shown
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

pub(super) fn keys(call: &Call) -> Answer {
    let keys = call.app.store().join_keys()?;
    Ok(Reply::Json(json!({ "schema": 1, "keys": keys })))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct KeyWanted {
    reusable: bool,
    ephemeral: bool,
    expires_in_s: Option<u64>,
    tags: Vec<String>,
    user: Option<String>,
    name: Option<String>,
    address: Option<Ipv4Addr>,
}

pub(super) fn lifetime(expires_in_s: Option<u64>) -> Result<Option<u64>, Problem> {
    match expires_in_s {
        Some(s) if !(1..=LIFETIME_S_MAX).contains(&s) => {
            let detail = "expires_in_s is 1 second to 100 years; leave it out for never";
            Err(Problem::new(400, "the lifetime is impossible", detail))
        }
        other => Ok(other),
    }
}

pub(super) fn add_key(call: &Call) -> Answer {
    let wanted: KeyWanted = call.json()?;
    let (maker, giver) = call.makers();
    let new = NewJoinKey {
        reusable: wanted.reusable,
        ephemeral: wanted.ephemeral,
        lifetime_s: lifetime(wanted.expires_in_s)?,
        tags: wanted.tags,
        user: wanted.user,
        maker,
        giver,
        name: wanted.name,
        address: wanted.address,
    };
    may_give(call, new.user.as_deref(), &new.tags)?;
    let token = call.app.token(Kind::Join);
    let actor = &call.actor;
    let now = call.app.now();
    let made = call.app.store().add_join_key(&new, token.id, &token.secret, actor, now)?;
    call.app.tell("key", made.id);
    Ok(secret(made, &token))
}

/// Whether the policy lets these tags be given, by a user if one is named.
pub(super) fn may_give(call: &Call, user: Option<&str>, tags: &[String]) -> Result<(), Problem> {
    let why = call.app.network().refuses_tags(user, tags, call.app.now());
    why.map_or(Ok(()), |why| Err(Problem::new(409, "the policy does not let this be given", why)))
}

/// The one answer that has the secret.
fn secret(made: Made, token: &Token) -> Reply {
    let mut line = token.print();
    let reply = json!({ "schema": 1, "id": made.id, "prefix": token.id.to_hex(), "token": line,
                        "expires": made.expires.map(rfc3339) });
    line.zeroize();
    Reply::Created(reply)
}

pub(super) fn expire_key(call: &Call) -> Answer {
    call.app.store().revoke_join_key(call.id, &call.actor, call.app.now())?;
    call.app.tell("key", call.id);
    Ok(Reply::Empty)
}

/// A node as the API shows it.
pub(super) fn shown(call: &Call, node: &Node) -> Value {
    let network = call.app.network();
    let (online, seen) = network.presence(node.id);
    let last_seen = if online { seen } else { node.last_seen.max(seen) };
    json!({
        "id": node.id,
        "name": node.name,
        "addresses": network.addresses(node),
        "key": node.node_key.to_string(),
        "machine": node.machine_key.to_string(),
        "user": node.user,
        "tags": node.tags,
        "ephemeral": node.ephemeral,
        "approved": node.approved,
        "online": online,
        "created": rfc3339(node.created),
        "expires": node.expires.map(rfc3339),
        "expired": node.is_expired(call.app.now()),
        "expires_soon": node.ends_soon(call.app.now()),
        "last_seen": last_seen.map(rfc3339),
        "gateway": node.gateway,
        "hostname": node.host.hostname,
        "os": node.host.os,
        "program": node.host.program,
        "endpoints": node.host.endpoints,
        "routes": {
            "advertised": node.host.routes,
            "aliases": node.host.aliases,
            "approved": node.approved_routes,
            "active": node.routes(),
            "down": node.down(),
        },
        "ways": node.ways,
    })
}

pub(super) fn nodes(call: &Call) -> Answer {
    let mut nodes = call.app.store().nodes()?;
    if let Reach::Own(name) = &call.reach {
        nodes.retain(|node| node.user.as_ref() == Some(name));
    }
    let nodes: Vec<Value> = nodes.iter().map(|node| shown(call, node)).collect();
    Ok(Reply::Json(json!({ "schema": 1, "nodes": nodes })))
}

fn one(call: &Call, node: &Node) -> Answer {
    Ok(Reply::Json(json!({ "schema": 1, "node": shown(call, node) })))
}

pub(super) fn node(call: &Call) -> Answer {
    let node = call.app.store().node(call.id)?;
    one(call, &node)
}

pub(super) fn remove_node(call: &Call) -> Answer {
    call.app.dismiss_node(call.id, &call.actor)?;
    Ok(Reply::Empty)
}

pub(super) fn rename_node(call: &Call) -> Answer {
    let Named { name } = call.json()?;
    let id = call.id;
    let actor = &call.actor;
    one(call, &call.app.write_node(true, |store, now| store.rename(id, &name, actor, now))?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tags {
    tags: Vec<String>,
}

pub(super) fn tag_node(call: &Call) -> Answer {
    let Tags { tags } = call.json()?;
    may_give(call, None, &tags)?;
    let id = call.id;
    let actor = &call.actor;
    let node = call.app.write_node(true, |store, now| store.tag(id, &tags, actor, now))?;
    call.app.approve_automatic(id);
    one(call, &node)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    /// None, which has to be said: it belongs to nobody.
    #[serde(deserialize_with = "Option::deserialize")]
    user: Option<String>,
}

pub(super) fn move_node(call: &Call) -> Answer {
    let Owner { user } = call.json()?;
    let id = call.id;
    let actor = &call.actor;
    let give = |store: &mut crate::store::Store, now| store.give(id, user.as_deref(), actor, now);
    one(call, &call.app.write_node(true, give)?)
}

pub(super) fn approve_node(call: &Call) -> Answer {
    let id = call.id;
    let actor = &call.actor;
    let node = call.app.write_node(true, |store, now| store.approve(id, actor, now))?;
    call.app.approve_automatic(id);
    one(call, &node)
}

pub(super) fn expire_node(call: &Call) -> Answer {
    let id = call.id;
    let actor = &call.actor;
    one(call, &call.app.write_node(true, |store, now| store.expire(id, actor, now))?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Routes {
    routes: Vec<Prefix>,
}

pub(super) fn approve_routes(call: &Call) -> Answer {
    let Routes { routes } = call.json()?;
    let id = call.id;
    let actor = &call.actor;
    let write =
        |store: &mut crate::store::Store, now| store.approve_routes(id, &routes, actor, now);
    let node = call.app.write_node(true, write)?;
    call.app.tell("route", id);
    one(call, &node)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ways {
    passes_on: bool,
    through: Vec<control::Through>,
}

pub(super) fn set_ways(call: &Call) -> Answer {
    let Ways { passes_on, through } = call.json()?;
    let ways = control::Ways { passes_on, through };
    let id = call.id;
    let actor = &call.actor;
    one(call, &call.app.write_node(true, |store, now| store.set_ways(id, &ways, actor, now))?)
}

pub(super) fn audit(call: &Call) -> Answer {
    let limit = call.number("limit")?.unwrap_or(100);
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let entries = call.app.store().audit(call.number("before")?, limit)?;
    Ok(Reply::Json(json!({ "schema": 1, "entries": entries })))
}

/// Whether the log is as it was written. Others have the books between its pages.
pub(super) fn verify_audit(call: &Call) -> Answer {
    let mut verified = Verified::default();
    loop {
        let page = call.app.store().verify_page(&mut verified);
        let why = match page {
            Ok(true) => continue,
            Ok(false) => None,
            Err(StoreError::Damaged(why)) => Some(why),
            Err(error) => return Err(error.into()),
        };
        let reply =
            json!({ "schema": 1, "ok": why.is_none(), "entries": verified.last, "why": why });
        return Ok(Reply::Json(reply));
    }
}

pub(super) fn tokens(call: &Call) -> Answer {
    let tokens = call.app.store().api_tokens()?;
    Ok(Reply::Json(json!({ "schema": 1, "tokens": tokens })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenWanted {
    scopes: Vec<String>,
    #[serde(default)]
    expires_in_s: Option<u64>,
}

pub(super) fn add_token(call: &Call) -> Answer {
    let wanted: TokenWanted = call.json()?;
    let mut scopes = wanted.scopes;
    scopes.sort_unstable();
    scopes.dedup();
    let is_known = |scope: &String| SCOPES.contains(&scope.as_str());
    if scopes.is_empty() || !scopes.iter().all(is_known) {
        let detail = format!("scopes are some of: {}", SCOPES.join(" "));
        return Err(Problem::new(400, "the scopes are unknown", detail));
    }
    // Nobody hands out what they do not have.
    if let Some(own) = call.within()
        && let Some(scope) = scopes.iter().find(|scope| !own.contains(scope))
    {
        let detail = format!("you lack {scope} yourself");
        return Err(Problem::new(403, "this token may not do that", detail));
    }
    let token = call.app.token(Kind::Api);
    let lifetime_s = lifetime(wanted.expires_in_s)?;
    let (maker, giver) = call.makers();
    let new = NewApiToken { scopes, lifetime_s, maker, giver };
    let actor = &call.actor;
    let now = call.app.now();
    let made = call.app.store().add_api_token(&new, token.id, &token.secret, actor, now)?;
    Ok(secret(made, &token))
}

pub(super) fn expire_token(call: &Call) -> Answer {
    let within = call.within();
    call.app.end_token(call.id, within.as_deref(), &call.actor)?;
    Ok(Reply::Empty)
}
