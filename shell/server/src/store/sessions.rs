//! Sessions of people who signed in. The books have a name of 128 random bits; what a browser holds
//! is that name with a keyed hash of it, so that neither a copy of the books nor a guess opens one,
//! and what is nobody's is refused without a look into the books (threats WB-04, WB-12).

use serde_json::json;

use super::audit::record;
use super::row::values;
use super::users;
use super::{Store, Stored, User};

/// A session that nobody used for so long is over, in seconds: half a day.
pub(crate) const IDLE_S: u64 = 12 * 3600;
/// A session lasts so long at most, in seconds: a week.
const LAST_S: u64 = 7 * 86_400;
/// Sessions of one user; a further one ends the oldest.
const OF_ONE_MAX: u64 = 32;

/// The name of a session.
pub(crate) type SessionId = [u8; 16];

/// A session that is going on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) user: User,
    /// When it ends if nobody uses it, in Unix seconds.
    pub(crate) expires: u64,
}

impl Store {
    /// Begins a session of a user who has proven who it is.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing).
    pub(crate) fn begin_session(
        &mut self,
        user: u64,
        id: SessionId,
        how: &str,
        now: u64,
    ) -> Stored<Session> {
        self.write(|tx| {
            let found = users::by_id(tx, user)?;
            let sql = "DELETE FROM sessions WHERE ends <= $1 OR used <= $2";
            tx.execute(sql, values![now, now.saturating_sub(IDLE_S)])?;
            let sql = "DELETE FROM sessions WHERE id IN
                         (SELECT id FROM sessions WHERE \"user\" = $1
                          ORDER BY used DESC, id LIMIT 1000000 OFFSET $2)";
            tx.execute(sql, values![user, OF_ONE_MAX - 1])?;
            let sql = "INSERT INTO sessions (id, \"user\", created, used, ends)
                       VALUES ($1, $2, $3, $3, $4)";
            tx.execute(sql, values![&id[..], user, now, now.saturating_add(LAST_S)])?;
            let at = format!("user:{user}");
            record(tx, now, &at, "session.begin", &at, &json!({ "how": how }))?;
            let expires = now.saturating_add(IDLE_S.min(LAST_S));
            Ok(Session { id, user: found, expires })
        })
    }

    /// The session with this name, which is used by that.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](super::StoreError::Unavailable).
    pub(crate) fn session(&self, id: &SessionId, now: u64) -> Stored<Option<Session>> {
        let sql = "SELECT \"user\", used, ends FROM sessions WHERE id = $1";
        let Some(row) = self.db.row(sql, values![&id[..]])? else { return Ok(None) };
        let (user, used, ends): (u64, u64, u64) = (row.read(0)?, row.read(1)?, row.read(2)?);
        if now >= ends || now >= used.saturating_add(IDLE_S) {
            return Ok(None);
        }
        // To the minute, so that reading is not one write each.
        if now >= used.saturating_add(60) {
            let sql = "UPDATE sessions SET used = $2 WHERE id = $1";
            if let Err(error) = self.db.execute(sql, values![&id[..], now]) {
                tracing::warn!(%error, "cannot note the use of a session");
            }
        }
        let user = users::by_id(&self.db, user)?;
        Ok(Some(Session { id: *id, user, expires: ends.min(now.saturating_add(IDLE_S)) }))
    }

    /// Ends a session, if it is there.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](super::StoreError::Unavailable).
    pub(crate) fn end_session(&mut self, id: &SessionId, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            if tx.execute("DELETE FROM sessions WHERE id = $1", values![&id[..]])? > 0 {
                record(tx, now, actor, "session.end", actor, &json!({}))?;
            }
            Ok(())
        })
    }

    /// Ends all sessions of a user: how many.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing).
    pub(crate) fn end_sessions_of(&mut self, user: u64, actor: &str, now: u64) -> Stored<u64> {
        self.write(|tx| {
            users::by_id(tx, user)?;
            let ended = tx.execute("DELETE FROM sessions WHERE \"user\" = $1", values![user])?;
            let at = format!("user:{user}");
            let detail = json!({ "sessions": ended });
            record(tx, now, actor, "user.sign-out", &at, &detail)?;
            Ok(ended)
        })
    }
}
