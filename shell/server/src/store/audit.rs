//! The audit log, in which every entry's hash covers the one before (threat CO-18), and the policy
//! texts, of which none is ever overwritten.

use ring::digest::{Context, SHA256};
use serde::Serialize;

use super::db::{Db, Tx};
use super::row::{Row, values};
use super::{Store, StoreError, Stored, set, setting};

/// Entries in one page.
const PAGE_MAX: u32 = 1000;
/// The setting that has the number of the last entry.
const LAST: &str = "audit_last";

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

/// How far a log was looked at.
pub(crate) struct Verified {
    /// The number of the last entry.
    pub(crate) last: u64,
    chain: Vec<u8>,
}

impl Default for Verified {
    fn default() -> Self {
        Self { last: 0, chain: vec![0; 32] }
    }
}

/// One version of the policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PolicyText {
    /// Its version, from 1.
    pub version: u64,
    /// The text as it was set.
    pub text: String,
}

/// One version of the policy, without its text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PolicyVersion {
    /// Its number, from 1.
    pub version: u64,
    /// Who set it, as in the audit log.
    pub actor: String,
    /// When, RFC 3339.
    pub created: String,
}

/// Appends to the log, in the transaction of what it tells.
pub(super) fn record(
    tx: &Tx<'_>,
    now: u64,
    actor: &str,
    action: &str,
    object: &str,
    detail: &serde_json::Value,
) -> Stored<()> {
    let detail = detail.to_string();
    let (last, previous) = last(tx)?;
    // Kept apart, so that entries which are cut off at the end leave a gap.
    let told = setting(tx, LAST)?.and_then(|text| text.parse().ok()).unwrap_or(last);
    let id = last.max(told) + 1;
    let chain = chain(&previous, now, [actor, action, object, &detail]);
    tx.execute(
        "INSERT INTO audit (id, time, actor, action, object, detail, chain)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        values![id, now, actor, action, object, detail, chain.as_slice()],
    )?;
    // Numbers alone: what others wrote, names too, stays in the books.
    tracing::info!("{action} {object} by {actor}");
    set(tx, LAST, &id.to_string())
}

/// The number and the hash of the last entry.
fn last(db: &Db) -> Stored<(u64, Vec<u8>)> {
    let row = db.row("SELECT id, chain FROM audit ORDER BY id DESC LIMIT 1", &[])?;
    row.map_or_else(|| Ok((0, vec![0; 32])), |row| Ok((row.read(0)?, row.read(1)?)))
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

fn version(row: &Row) -> Stored<PolicyVersion> {
    let created = control::text::rfc3339(row.read(2)?);
    Ok(PolicyVersion { version: row.read(0)?, actor: row.read(1)?, created })
}

impl Store {
    /// Entries before `before`, the newest first, at most `limit` and 1000.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn audit(&self, before: Option<u64>, limit: u32) -> Stored<Vec<Entry>> {
        let sql = "SELECT id, time, actor, action, object, detail FROM audit
                   WHERE id < $1 ORDER BY id DESC LIMIT $2";
        let before = before.unwrap_or(u64::MAX);
        let rows = self.db.rows(sql, values![before, limit.min(PAGE_MAX)])?;
        let read = |row: &Row| {
            let detail: String = row.read(5)?;
            Ok(Entry {
                id: row.read(0)?,
                time: control::text::rfc3339(row.read(1)?),
                actor: row.read(2)?,
                action: row.read(3)?,
                object: row.read(4)?,
                detail: serde_json::from_str(&detail).unwrap_or_default(),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Whether the log is as it was written: each hash follows from the entry and the one before,
    /// and none is missing at its end. How many entries it has.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first entry that was changed or is missing.
    pub fn verify_audit(&self) -> Stored<u64> {
        let mut verified = Verified::default();
        while self.verify_page(&mut verified)? {}
        Ok(verified.last)
    }

    /// The same for the next page, so that others may have the books in between: whether there is
    /// more.
    ///
    /// # Errors
    /// As of [`Store::verify_audit`].
    pub(crate) fn verify_page(&self, verified: &mut Verified) -> Stored<bool> {
        let sql = "SELECT id, time, actor, action, object, detail, chain FROM audit
                   WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = self.db.rows(sql, values![verified.last, PAGE_MAX])?;
        for row in &rows {
            let (id, time): (u64, u64) = (row.read(0)?, row.read(1)?);
            let texts: [String; 4] = [row.read(2)?, row.read(3)?, row.read(4)?, row.read(5)?];
            let expected = chain(&verified.chain, time, texts.each_ref().map(String::as_str));
            verified.chain = row.read(6)?;
            if id != verified.last + 1 || verified.chain != expected {
                return Err(StoreError::Damaged(format!("audit entry {id} was tampered with")));
            }
            verified.last = id;
        }
        if !rows.is_empty() {
            return Ok(true);
        }
        let told = setting(&self.db, LAST)?.and_then(|text| text.parse().ok()).unwrap_or(0);
        if told > verified.last {
            let first = verified.last + 1;
            return Err(StoreError::Damaged(format!(
                "audit entries {first} to {told} are missing"
            )));
        }
        Ok(false)
    }

    /// Notes that somebody took a copy of everything.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn note_backup(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        let object = format!("backup:{id}");
        self.write(|tx| record(tx, now, actor, "backup.make", &object, &serde_json::json!({})))
    }

    /// Notes that the books were restored from a backup.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn note_restore(&mut self, now: u64) -> Stored<()> {
        self.write(|tx| {
            record(tx, now, "server", "backup.restore", "books", &serde_json::json!({}))
        })
    }

    /// The policy that holds, if one was ever set.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn policy(&self) -> Stored<Option<PolicyText>> {
        let sql = "SELECT version, text FROM policies ORDER BY version DESC LIMIT 1";
        let read = |row: Row| Ok(PolicyText { version: row.read(0)?, text: row.read(1)? });
        self.db.row(sql, &[])?.map(read).transpose()
    }

    /// Versions before `before`, the newest first, at most `limit` and 1000.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn policy_versions(&self, before: Option<u64>, limit: u32) -> Stored<Vec<PolicyVersion>> {
        let sql = "SELECT version, actor, created FROM policies
                   WHERE version < $1 ORDER BY version DESC LIMIT $2";
        let before = before.unwrap_or(u64::MAX);
        let rows = self.db.rows(sql, values![before, limit.min(PAGE_MAX)])?;
        rows.iter().map(version).collect()
    }

    /// One version, and its text.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn policy_version(&self, wanted: u64) -> Stored<(PolicyVersion, String)> {
        let sql = "SELECT version, actor, created, text FROM policies WHERE version = $1";
        let found = self.db.row(sql, values![wanted])?;
        let row =
            found.ok_or_else(|| StoreError::Missing(format!("version {wanted} of the policy")))?;
        Ok((version(&row)?, row.read(3)?))
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
            let known: u64 = tx.value(sql, &[])?;
            if expected.is_some_and(|version| version != known) {
                return Err(StoreError::Conflict(format!(
                    "the policy has version {known} by now; read it again, then change it"
                )));
            }
            let version = known + 1;
            tx.execute(
                "INSERT INTO policies (version, text, actor, created) VALUES ($1, $2, $3, $4)",
                values![version, text, actor, now],
            )?;
            let detail = serde_json::json!({ "before": known, "after": version });
            record(tx, now, actor, "policy.set", "policy", &detail)?;
            Ok(version)
        })
    }
}
