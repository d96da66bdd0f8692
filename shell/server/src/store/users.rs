//! Users: whose a node is.

use serde::Serialize;
use serde_json::json;

use super::audit::record;
use super::db::{Db, Row, values};
use super::{Store, StoreError, Stored};

/// Characters of a user's name.
const NAME_LEN_MAX: usize = 63;

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
                "a user's name is 1 to 63 letters, digits and . _ - @ +, with no @ at its end"
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

    /// Removes a user who owns nothing.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Conflict`] if nodes or keys are the user's.
    pub fn remove_user(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE \"user\" = $1)
                           OR EXISTS (SELECT 1 FROM join_keys WHERE \"user\" = $1)";
            if tx.value(sql, values![id])? {
                return Err(StoreError::Conflict(
                    "the user has nodes or join keys; remove the nodes first".to_owned(),
                ));
            }
            if tx.execute("DELETE FROM users WHERE id = $1", values![id])? == 0 {
                return Err(StoreError::Missing(format!("user {id}")));
            }
            record(tx, now, actor, "user.remove", &format!("user:{id}"), &json!({}))
        })
    }
}
