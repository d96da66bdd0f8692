//! Users: whose a node is, what they may do, and by what they sign in.
//!
//! Nobody changes a user who may do more than they do themselves, nor makes one (`within`, the
//! scopes of who asks): else a token for users would be one for everything.

use serde::Serialize;
use serde_json::json;

use super::audit::record;
use super::db::{Db, Tx};
use super::row::{Row, values};
use super::{Store, StoreError, Stored, list};
use crate::roles::Role;

/// Characters of a user's name: an address of mail has so many at most (RFC 5321, 4.5.3.1.3).
const NAME_LEN_MAX: usize = 254;

/// Of what is in the way of a user's removal, so many are named.
const NAMED_MAX: u32 = 8;

/// Somebody who owns nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct User {
    /// Its number.
    pub id: u64,
    /// Its name, unique.
    pub name: String,
    /// What it may do: the word of a role.
    pub role: String,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Whether it can sign in with a password.
    pub password: bool,
    /// The provider that knows it, if one does.
    pub issuer: Option<String>,
    /// Its address, if the provider has verified it.
    pub email: Option<String>,
    /// The groups that the provider says it is in.
    pub groups: Vec<String>,
}

impl User {
    /// What it may do; a word that nobody knows gives nothing.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::parse(&self.role).unwrap_or(Role::Member)
    }
}

/// What a user is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewUser<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it may do.
    pub role: Role,
    /// The hash of its password, if it has one.
    pub password: Option<String>,
}

impl<'a> NewUser<'a> {
    /// A member without a password.
    #[must_use]
    pub const fn member(name: &'a str) -> Self {
        Self { name, role: Role::Member, password: None }
    }
}

/// What is known of somebody who wants to sign in with a password.
pub(crate) struct Claim {
    pub(crate) id: u64,
    /// The hash of the password.
    pub(crate) password: Option<String>,
}

/// The question about users, with its end.
macro_rules! users {
    ($end:literal) => {
        concat!(
            "SELECT id, name, role, created, password IS NOT NULL, issuer, email, groups
             FROM users ",
            $end
        )
    };
}

fn read(row: &Row) -> Stored<User> {
    Ok(User {
        id: row.read(0)?,
        name: row.read(1)?,
        role: row.read(2)?,
        created: control::text::rfc3339(row.read(3)?),
        password: row.read(4)?,
        issuer: row.read(5)?,
        email: row.read(6)?,
        groups: list(&row.read::<String>(7)?),
    })
}

pub(super) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@+".contains(&b);
    // A policy calls a user by the name with an @ behind.
    let len = name.len();
    (1..=NAME_LEN_MAX).contains(&len) && name.bytes().all(plain) && !name.ends_with('@')
}

/// The number of the user with this name.
pub(super) fn id_of(db: &Db, name: &str) -> Stored<u64> {
    let found = db.row("SELECT id FROM users WHERE name = $1", values![name])?;
    found.ok_or_else(|| StoreError::Missing(format!("user {name:?}")))?.read(0)
}

pub(super) fn by_id(db: &Db, id: u64) -> Stored<User> {
    let found = db.row(users!("WHERE id = $1"), values![id])?;
    read(&found.ok_or_else(|| StoreError::Missing(format!("user {id}")))?)
}

/// Whether somebody with these scopes may make a user of this role, or change one.
fn may(role: Role, within: Option<&[String]>) -> Stored<()> {
    let Some(own) = within else { return Ok(()) };
    match role.scopes().into_iter().find(|scope| !own.iter().any(|has| has == scope)) {
        None => Ok(()),
        Some(scope) => Err(StoreError::Denied(format!(
            "a user who is {} has {scope}, which you lack",
            role.name()
        ))),
    }
}

/// Somebody has to be left who may do everything.
fn keep_an_owner(tx: &Tx<'_>) -> Stored<()> {
    let sql = "SELECT count(*) FROM users WHERE role = 'owner'";
    match tx.value::<u64>(sql, &[])? {
        0 => Err(StoreError::Conflict(
            "this is the last owner; make another one first: warren user role NAME owner"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

impl Store {
    /// All users by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn users(&self) -> Stored<Vec<User>> {
        self.db.rows(users!("ORDER BY name"), &[])?.iter().map(read).collect()
    }

    /// One user.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn user(&self, id: u64) -> Stored<User> {
        by_id(&self.db, id)
    }

    /// What is known of who calls itself so, whatever the case of its letters.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) fn claim_of(&self, name: &str) -> Stored<Option<Claim>> {
        let sql = "SELECT id, password FROM users WHERE lower(name) = lower($1)";
        let read = |row: Row| Ok(Claim { id: row.read(0)?, password: row.read(1)? });
        self.db.row(sql, values![name])?.map(read).transpose()
    }

    /// A new user, by somebody who has these scopes (`None`: all).
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a name that is none, [`StoreError::Conflict`] for one in use,
    /// [`StoreError::Denied`] for a role that may do more than who asks.
    pub fn add_user(
        &mut self,
        new: &NewUser<'_>,
        within: Option<&[String]>,
        actor: &str,
        now: u64,
    ) -> Stored<User> {
        let name = new.name;
        if !is_name(name) {
            return Err(StoreError::Invalid(
                "a user's name is 1 to 254 letters, digits and . _ - @ +, with no @ at its end"
                    .to_owned(),
            ));
        }
        may(new.role, within)?;
        self.write(|tx| {
            // In a policy Ann is ann; two that answer to one name would be nobody.
            let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE lower(name) = lower($1))";
            if tx.value(sql, values![name])? {
                return Err(StoreError::Conflict(format!("there is a user {name:?} already")));
            }
            let sql = "INSERT INTO users (name, created, role, password)
                       VALUES ($1, $2, $3, $4) RETURNING id";
            let role = new.role.name();
            let id: u64 = tx.value(sql, values![name, now, role, new.password.clone()])?;
            let detail = json!({ "name": name, "role": role });
            record(tx, now, actor, "user.create", &format!("user:{id}"), &detail)?;
            by_id(tx, id)
        })
    }

    /// Gives a user another role; who is signed in has to sign in again (threat WB-04).
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Denied`]; [`StoreError::Conflict`] for the last
    /// owner.
    pub fn set_role(
        &mut self,
        id: u64,
        role: Role,
        within: Option<&[String]>,
        actor: &str,
        now: u64,
    ) -> Stored<User> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            may(before.role(), within)?;
            may(role, within)?;
            tx.execute("UPDATE users SET role = $2 WHERE id = $1", values![id, role.name()])?;
            if before.role() == Role::Owner {
                keep_an_owner(tx)?;
            }
            if before.role() != role {
                tx.execute("DELETE FROM sessions WHERE \"user\" = $1", values![id])?;
            }
            let detail = json!({ "before": before.role, "after": role.name() });
            record(tx, now, actor, "user.role", &format!("user:{id}"), &detail)?;
            by_id(tx, id)
        })
    }

    /// Gives a user another password, or takes it: every session of its ends, but for `but`.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Denied`].
    pub fn set_password(
        &mut self,
        id: u64,
        new: (Option<&str>, Option<&[u8; 16]>),
        within: Option<&[String]>,
        actor: &str,
        now: u64,
    ) -> Stored<()> {
        let (password, but) = new;
        self.write(|tx| {
            may(by_id(tx, id)?.role(), within)?;
            let sql = "UPDATE users SET password = $2 WHERE id = $1";
            tx.execute(sql, values![id, password.map(str::to_owned)])?;
            let but = but.map_or(&[][..], |but| &but[..]);
            let sql = "DELETE FROM sessions WHERE \"user\" = $1 AND id <> $2";
            tx.execute(sql, values![id, but])?;
            let detail = json!({ "has_one": password.is_some() });
            record(tx, now, actor, "user.password", &format!("user:{id}"), &detail)
        })
    }

    /// Removes a user who has no nodes, and no join keys that still let nodes in. What tokens it
    /// made end with it.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Denied`]; [`StoreError::Conflict`] names what is in
    /// the way.
    pub fn remove_user(
        &mut self,
        id: u64,
        within: Option<&[String]>,
        actor: &str,
        now: u64,
    ) -> Stored<()> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            may(before.role(), within)?;
            refuse_if_in_use(tx, id, now)?;
            // Keys that have ended stay in the list, and are nobody's.
            let sql = "UPDATE join_keys SET \"user\" = NULL WHERE \"user\" = $1";
            tx.execute(sql, values![id])?;
            let sql = "UPDATE join_keys SET revoked = coalesce(revoked, $2) WHERE giver = $1";
            tx.execute(sql, values![id, now])?;
            let sql = "UPDATE api_tokens SET revoked = coalesce(revoked, $2) WHERE giver = $1";
            tx.execute(sql, values![id, now])?;
            tx.execute("DELETE FROM users WHERE id = $1", values![id])?;
            if before.role() == Role::Owner {
                keep_an_owner(tx)?;
            }
            record(tx, now, actor, "user.remove", &format!("user:{id}"), &json!({}))
        })
    }
}

/// A user who still owns something stays.
fn refuse_if_in_use(tx: &Tx<'_>, id: u64, now: u64) -> Stored<()> {
    let sql = "SELECT name FROM nodes WHERE \"user\" = $1 ORDER BY id LIMIT $2";
    let nodes = tx.rows(sql, values![id, NAMED_MAX])?;
    let nodes = nodes.iter().map(|row| row.read(0)).collect::<Stored<Vec<String>>>()?;
    let sql = "SELECT id FROM join_keys WHERE \"user\" = $1 AND revoked IS NULL
               AND (expires IS NULL OR expires > $2) AND (reusable = 1 OR used IS NULL)
               ORDER BY id LIMIT $3";
    let keys = tx.rows(sql, values![id, now, NAMED_MAX])?;
    let keys = keys.iter().map(|row| row.read(0)).collect::<Stored<Vec<u64>>>()?;
    if !nodes.is_empty() {
        let why = format!("the user has nodes ({}); remove them first", nodes.join(", "));
        return Err(StoreError::Conflict(why));
    }
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(u64::to_string).collect();
        return Err(StoreError::Conflict(format!(
            "the user has join keys that still let nodes in ({}); take them back first, with \
             `warren key expire`",
            keys.join(", ")
        )));
    }
    Ok(())
}
