//! Users: whose a node is.

use serde::Serialize;
use serde_json::json;

use super::audit::record;
use super::db::Db;
use super::row::{Row, values};
use super::{Store, StoreError, Stored};

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
    /// When it was made, RFC 3339.
    pub created: String,
}

fn is_name(name: &str) -> bool {
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

impl Store {
    /// All users by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn users(&self) -> Stored<Vec<User>> {
        let rows = self.db.rows("SELECT id, name, created FROM users ORDER BY name", &[])?;
        let read = |row: &Row| {
            let created = control::text::rfc3339(row.read(2)?);
            Ok(User { id: row.read(0)?, name: row.read(1)?, created })
        };
        rows.iter().map(read).collect()
    }

    /// A new user.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a name that is none, [`StoreError::Conflict`] for one in use.
    pub fn add_user(&mut self, name: &str, actor: &str, now: u64) -> Stored<User> {
        if !is_name(name) {
            return Err(StoreError::Invalid(
                "a user's name is 1 to 254 letters, digits and . _ - @ +, with no @ at its end"
                    .to_owned(),
            ));
        }
        self.write(|tx| {
            // In a policy Ann is ann; two that answer to one name would be nobody.
            let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE lower(name) = lower($1))";
            if tx.value(sql, values![name])? {
                return Err(StoreError::Conflict(format!("there is a user {name:?} already")));
            }
            let sql = "INSERT INTO users (name, created) VALUES ($1, $2) RETURNING id";
            let id: u64 = tx.value(sql, values![name, now])?;
            record(tx, now, actor, "user.create", &format!("user:{id}"), &json!({ "name": name }))?;
            Ok(User { id, name: name.to_owned(), created: control::text::rfc3339(now) })
        })
    }

    /// Removes a user who has no nodes, and no join keys that still let nodes in.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Conflict`] names what is in the way.
    pub fn remove_user(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
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
                    "the user has join keys that still let nodes in ({}); take them back first, \
                     with `warren key expire`",
                    keys.join(", ")
                )));
            }
            // Keys that have ended stay in the list, and are nobody's.
            let sql = "UPDATE join_keys SET \"user\" = NULL WHERE \"user\" = $1";
            tx.execute(sql, values![id])?;
            if tx.execute("DELETE FROM users WHERE id = $1", values![id])? == 0 {
                return Err(StoreError::Missing(format!("user {id}")));
            }
            record(tx, now, actor, "user.remove", &format!("user:{id}"), &json!({}))
        })
    }
}
