//! Users: who may sign in, and what they may do. Nobody changes a user who may do more.

use serde::Deserialize;
use serde_json::json;

use super::handlers::Answer;
use super::{Call, Problem, Reply};
use crate::passwords;
use crate::roles::Role;
use crate::store::NewUser;

pub(super) fn users(call: &Call) -> Answer {
    let users = call.app.store().users()?;
    Ok(Reply::Json(json!({ "schema": 1, "users": users })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

fn role(word: &str) -> Result<Role, Problem> {
    Role::parse(word).ok_or_else(|| {
        let words = Role::ALL.map(Role::name).join(", ");
        Problem::new(400, "there is no such role", format!("roles are: {words}"))
    })
}

/// A password to be kept.
pub(super) fn hashed(password: &str) -> Result<String, Problem> {
    match passwords::fault(password) {
        Some(why) => Err(Problem::new(400, "this is no password", why)),
        None => Ok(passwords::hash(password)),
    }
}

pub(super) fn add_user(call: &Call) -> Answer {
    let wanted: Wanted = call.json()?;
    let role = wanted.role.as_deref().map_or(Ok(Role::Member), role)?;
    let password = wanted.password.as_deref().map(hashed).transpose()?;
    let new = NewUser { name: &wanted.name, role, password };
    let within = call.within();
    let add = |store: &mut crate::store::Store, now| {
        store.add_user(&new, within.as_deref(), &call.actor, now)
    };
    let user = call.app.write_users(add)?;
    call.app.tell("user", user.id);
    Ok(Reply::Created(json!({ "schema": 1, "user": user })))
}

pub(super) fn remove_user(call: &Call) -> Answer {
    let within = call.within();
    call.app.write_users(|store, now| {
        store.remove_user(call.id, within.as_deref(), &call.actor, now)
    })?;
    call.app.tell("user", call.id);
    Ok(Reply::Empty)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Roled {
    role: String,
}

pub(super) fn set_role(call: &Call) -> Answer {
    let Roled { role: word } = call.json()?;
    let role = role(&word)?;
    let within = call.within();
    let user = call.app.write_users(|store, now| {
        store.set_role(call.id, role, within.as_deref(), &call.actor, now)
    })?;
    call.app.tell("user", call.id);
    Ok(Reply::Json(json!({ "schema": 1, "user": user })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Passworded {
    /// None: the user cannot sign in with a password.
    password: Option<String>,
}

pub(super) fn set_password(call: &Call) -> Answer {
    let Passworded { password } = call.json()?;
    let hash = password.as_deref().map(hashed).transpose()?;
    let within = call.within();
    let actor = &call.actor;
    let now = call.app.now();
    let new = (hash.as_deref(), None);
    call.app.store().set_password(call.id, new, within.as_deref(), actor, now)?;
    call.app.tell("user", call.id);
    Ok(Reply::Empty)
}

pub(super) fn sign_out(call: &Call) -> Answer {
    let ended = call.app.store().end_sessions_of(call.id, &call.actor, call.app.now())?;
    Ok(Reply::Json(json!({ "schema": 1, "sessions": ended })))
}
