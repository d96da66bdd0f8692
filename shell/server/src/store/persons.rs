//! Users whom a provider knows: who it is says (issuer, subject), and nothing else (threat CO-08).

use serde_json::json;

use super::audit::record;
use super::db::Tx;
use super::row::{Row, values};
use super::users::{by_id, is_name};
use super::{Store, StoreError, Stored, User, to_json};
use crate::roles::Role;

/// Names that are tried for a user whose own is taken.
const TRIES_MAX: u32 = 1000;
/// Users that are asked for at a time.
const DUE_MAX: u32 = 50;

/// Somebody, by the word of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Person {
    /// With the issuer: who it is, for ever.
    pub(crate) subject: String,
    /// What it is to be called, if that name is free.
    pub(crate) name: String,
    /// Its address, verified by the provider.
    pub(crate) email: Option<String>,
    /// Its groups as a policy names them, behind `group:`.
    pub(crate) groups: Vec<String>,
    /// What it may do, if the provider says so.
    pub(crate) role: Option<Role>,
}

/// A user of a provider's that is to be asked for again.
pub(crate) struct Due {
    pub(crate) id: u64,
    pub(crate) subject: String,
    /// What it is asked for with, hidden.
    pub(crate) refresh: String,
}

impl Store {
    /// The user who this person is, made if there is none, with what the provider says now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) fn know(
        &mut self,
        issuer: &str,
        person: &Person,
        refresh: Option<&str>,
        now: u64,
    ) -> Stored<User> {
        self.write(|tx| {
            let sql = "SELECT id FROM users WHERE issuer = $1 AND subject = $2";
            let found = tx.row(sql, values![issuer, person.subject.as_str()])?;
            let id = match found {
                Some(row) => row.read(0)?,
                None => make(tx, issuer, person, now)?,
            };
            update(tx, id, person, refresh, now)?;
            by_id(tx, id)
        })
    }

    /// What the provider says now of a user whom it was asked for: whether that is news.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub(crate) fn know_again(
        &mut self,
        id: u64,
        person: &Person,
        refresh: Option<&str>,
        now: u64,
    ) -> Stored<bool> {
        self.write(|tx| update(tx, id, person, refresh, now))
    }

    /// The provider knows this user no more: it is in no group, and its sessions end. Where the
    /// provider gives roles it is a member.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub(crate) fn lose(&mut self, id: u64, gives_roles: bool, now: u64) -> Stored<()> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            let sql = "UPDATE users SET groups = '[]', refresh = NULL, refreshed = $2
                       WHERE id = $1";
            tx.execute(sql, values![id, now])?;
            if gives_roles {
                give(tx, &before, Role::Member, now)?;
            }
            tx.execute("DELETE FROM sessions WHERE \"user\" = $1", values![id])?;
            let at = format!("user:{id}");
            let detail = json!({ "groups": before.groups });
            record(tx, now, "provider", "user.lost", &at, &detail)
        })
    }

    /// Users of this issuer of whom nothing was heard since `before`; each is noted as asked for.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) fn due(&mut self, issuer: &str, before: u64, now: u64) -> Stored<Vec<Due>> {
        self.write(|tx| {
            let sql = "SELECT id, subject, refresh FROM users
                       WHERE issuer = $1 AND refresh IS NOT NULL
                         AND (refreshed IS NULL OR refreshed <= $2)
                       ORDER BY refreshed, id LIMIT $3";
            let rows = tx.rows(sql, values![issuer, before, DUE_MAX])?;
            let read = |row: &Row| {
                Ok(Due { id: row.read(0)?, subject: row.read(1)?, refresh: row.read(2)? })
            };
            let all: Vec<Due> = rows.iter().map(read).collect::<Stored<_>>()?;
            for due in &all {
                let sql = "UPDATE users SET refreshed = $2 WHERE id = $1";
                tx.execute(sql, values![due.id, now])?;
            }
            Ok(all)
        })
    }
}

fn make(tx: &Tx<'_>, issuer: &str, person: &Person, now: u64) -> Stored<u64> {
    let base = if is_name(&person.name) { person.name.as_str() } else { "user" };
    let mut name = base.to_owned();
    let mut number = 1;
    // Whoever has this name already is somebody else, whatever the provider calls this one.
    let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE lower(name) = lower($1))";
    while tx.value::<bool>(sql, values![name.as_str()])? {
        number += 1;
        if number > TRIES_MAX {
            return Err(StoreError::Conflict(format!("too many users are called {base:?}")));
        }
        name = format!("{base}-{number}");
    }
    let sql = "INSERT INTO users (name, created, issuer, subject) VALUES ($1, $2, $3, $4)
               RETURNING id";
    let id: u64 = tx.value(sql, values![name.as_str(), now, issuer, person.subject.as_str()])?;
    let detail = json!({ "name": name, "issuer": issuer, "subject": person.subject });
    record(tx, now, "provider", "user.create", &format!("user:{id}"), &detail)?;
    Ok(id)
}

fn update(tx: &Tx<'_>, id: u64, person: &Person, refresh: Option<&str>, now: u64) -> Stored<bool> {
    let before = by_id(tx, id)?;
    let sql = "UPDATE users SET email = $2, groups = $3, refreshed = $4,
               refresh = coalesce($5, refresh) WHERE id = $1";
    let email = person.email.clone();
    let groups = to_json(&person.groups);
    tx.execute(sql, values![id, email, groups, now, refresh.map(str::to_owned)])?;
    let is_given = match person.role {
        Some(role) => give(tx, &before, role, now)?,
        None => false,
    };
    let is_news = is_given || before.groups != person.groups || before.email != person.email;
    if before.groups != person.groups {
        let detail = json!({ "before": before.groups, "after": person.groups });
        record(tx, now, "provider", "user.groups", &format!("user:{id}"), &detail)?;
    }
    Ok(is_news)
}

/// Gives a user the role that the provider says, and ends its sessions: whether it is another role.
/// The last owner stays one.
fn give(tx: &Tx<'_>, before: &User, role: Role, now: u64) -> Stored<bool> {
    let id = before.id;
    if before.role() == role {
        return Ok(false);
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE role = 'owner' AND id <> $1)";
    if before.role() == Role::Owner && !tx.value::<bool>(sql, values![id])? {
        tracing::warn!(id, "the provider takes the last owner its role, which it keeps");
        return Ok(false);
    }
    tx.execute("UPDATE users SET role = $2 WHERE id = $1", values![id, role.name()])?;
    tx.execute("DELETE FROM sessions WHERE \"user\" = $1", values![id])?;
    let detail = json!({ "before": before.role, "after": role.name() });
    record(tx, now, "provider", "user.role", &format!("user:{id}"), &detail)?;
    Ok(true)
}
