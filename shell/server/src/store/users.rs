//! Users: whose a node is.

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde_json::json;

use super::audit::record;
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
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// The number of the user with this name.
pub(super) fn id_of(db: &Connection, name: &str) -> Stored<u64> {
    let sql = "SELECT id FROM users WHERE name = ?1";
    let found = db.query_row(sql, [name], |row| row.get(0)).optional()?;
    found.ok_or_else(|| StoreError::Missing(format!("user {name:?}")))
}

impl Store {
    /// All users by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn users(&self) -> Stored<Vec<User>> {
        let mut query = self.db.prepare("SELECT id, name, created FROM users ORDER BY name")?;
        let rows = query.query_map([], |row| {
            let created = control::text::rfc3339(row.get(2)?);
            Ok(User { id: row.get(0)?, name: row.get(1)?, created })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// A new user.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a name that is none, [`StoreError::Conflict`] for one in use.
    pub fn add_user(&mut self, name: &str, actor: &str, now: u64) -> Stored<User> {
        if !is_name(name) {
            return Err(StoreError::Invalid(
                "a user's name is 1 to 63 letters, digits and . _ - @ +".to_owned(),
            ));
        }
        self.write(|tx| {
            let sql = "INSERT INTO users (name, created) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            if tx.execute(sql, params![name, now])? == 0 {
                return Err(StoreError::Conflict(format!("there is a user {name:?} already")));
            }
            let id = tx.last_insert_rowid() as u64;
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
            let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE user = ?1)
                           OR EXISTS (SELECT 1 FROM join_keys WHERE user = ?1)";
            if tx.query_row(sql, [id], |row| row.get(0))? {
                return Err(StoreError::Conflict(
                    "the user has nodes or join keys; remove the nodes first".to_owned(),
                ));
            }
            if tx.execute("DELETE FROM users WHERE id = ?1", [id])? == 0 {
                return Err(StoreError::Missing(format!("user {id}")));
            }
            record(tx, now, actor, "user.remove", &format!("user:{id}"), &json!({}))
        })
    }
}
