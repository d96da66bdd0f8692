//! The audit log, in which every entry's hash covers the one before (threat CO-18), and the policy
//! texts, of which none is ever overwritten.

use ring::digest::{Context, SHA256};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::Serialize;

use super::{Store, StoreError, Stored};

/// Entries in one page.
const PAGE_MAX: u32 = 1000;

/// One entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// Its place.
    pub id: u64,
    /// When, RFC 3339.
    pub time: String,
    /// Who: `local:UID`, `token:LOOKUP` or `node:ID`.
    pub actor: String,
    /// What, as in `node.rename`.
    pub action: String,
    /// To what, as in `node:7`.
    pub object: String,
    /// JSON: before and after, where there is such.
    pub detail: serde_json::Value,
}

/// One version of the policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PolicyText {
    /// Its version, from 1.
    pub version: u64,
    /// The text as it was set.
    pub text: String,
}

/// Appends to the log, in the transaction of what it tells.
pub(super) fn record(
    tx: &Transaction<'_>,
    now: u64,
    actor: &str,
    action: &str,
    object: &str,
    detail: &serde_json::Value,
) -> Stored<()> {
    let detail = detail.to_string();
    let previous = last_chain(tx)?;
    let chain = chain(&previous, now, [actor, action, object, &detail]);
    tx.execute(
        "INSERT INTO audit (time, actor, action, object, detail, chain)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![now, actor, action, object, detail, chain],
    )?;
    Ok(())
}

fn last_chain(db: &Connection) -> Stored<Vec<u8>> {
    let sql = "SELECT chain FROM audit ORDER BY id DESC LIMIT 1";
    let last = db.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or_else(|| vec![0; 32]))
}

fn chain(previous: &[u8], now: u64, parts: [&str; 4]) -> Vec<u8> {
    let mut hash = Context::new(&SHA256);
    hash.update(previous);
    hash.update(&now.to_be_bytes());
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref().to_vec()
}

impl Store {
    /// Entries before `before`, the newest first, at most `limit` and 1000.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn audit(&self, before: Option<u64>, limit: u32) -> Stored<Vec<Entry>> {
        let sql = "SELECT id, time, actor, action, object, detail FROM audit
                   WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
        let mut query = self.db.prepare(sql)?;
        let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
        let rows = query.query_map(params![before, limit.min(PAGE_MAX)], |row| {
            let detail: String = row.get(5)?;
            Ok(Entry {
                id: row.get(0)?,
                time: control::text::rfc3339(row.get(1)?),
                actor: row.get(2)?,
                action: row.get(3)?,
                object: row.get(4)?,
                detail: serde_json::from_str(&detail).unwrap_or_default(),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether the log is as it was written: each hash follows from the entry and the one before.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first entry that was changed.
    pub fn verify_audit(&self) -> Stored<()> {
        let sql = "SELECT id, time, actor, action, object, detail, chain FROM audit ORDER BY id";
        let mut query = self.db.prepare(sql)?;
        let mut rows = query.query([])?;
        let (mut previous, mut next) = (vec![0; 32], 1_u64);
        while let Some(row) = rows.next()? {
            let (id, time): (u64, u64) = (row.get(0)?, row.get(1)?);
            let texts: [String; 4] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            let expected = chain(&previous, time, texts.each_ref().map(String::as_str));
            previous = row.get(6)?;
            if id != next || previous != expected {
                return Err(StoreError::Damaged(format!("audit entry {id} was tampered with")));
            }
            next += 1;
        }
        Ok(())
    }

    /// The policy that holds, if one was ever set.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn policy(&self) -> Stored<Option<PolicyText>> {
        let sql = "SELECT version, text FROM policies ORDER BY version DESC LIMIT 1";
        let read =
            |row: &rusqlite::Row<'_>| Ok(PolicyText { version: row.get(0)?, text: row.get(1)? });
        Ok(self.db.query_row(sql, [], read).optional()?)
    }

    /// Makes `text` the policy: its version. `expected` is the version that the writer read; with
    /// another one in force nothing changes (threat CO-06).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if somebody else was faster.
    pub fn set_policy(
        &mut self,
        text: &str,
        expected: Option<u64>,
        actor: &str,
        now: u64,
    ) -> Stored<u64> {
        self.write(|tx| {
            let sql = "SELECT coalesce(max(version), 0) FROM policies";
            let known: u64 = tx.query_row(sql, [], |row| row.get(0))?;
            if expected.is_some_and(|version| version != known) {
                return Err(StoreError::Conflict(format!(
                    "the policy has version {known} by now; read it again, then change it"
                )));
            }
            tx.execute(
                "INSERT INTO policies (text, actor, created) VALUES (?1, ?2, ?3)",
                params![text, actor, now],
            )?;
            let version = tx.last_insert_rowid() as u64;
            let detail = serde_json::json!({ "before": known, "after": version });
            record(tx, now, actor, "policy.set", "policy", &detail)?;
            Ok(version)
        })
    }
}
