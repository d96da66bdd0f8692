//! The books: users, keys, nodes, policy texts, API tokens and the audit log, in one SQLite file.
//!
//! One connection writes, every write is one transaction, and a transaction that was acknowledged
//! is on the disk (WAL, `synchronous = FULL`), so that neither kill -9 nor a power cut loses it.
//! Nothing here is a trait: another database would be another module with these functions. SQL
//! is text that is written here, never put together; values are always bound (threat WB-09).

mod audit;
mod keys;
mod nodes;
#[cfg(test)]
pub(crate) mod tests;
mod users;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use control::address::Pool;
use control::{Prefix, Secret, SecretId};
use noise::Random;
use ring::hmac;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

pub use audit::{Entry, PolicyText};
pub use keys::{ApiToken, JoinKey, NewJoinKey};
pub use nodes::{Enrolment, Joining, Node, Registered};
pub use users::User;

/// Every change of the schema, in order; a database is as new as the number that it has seen.
const MIGRATIONS: [&str; 1] = [include_str!("store/migrations/0001.sql")];
/// How long a write waits for another process that looks at the file, as a backup does.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// The books, open for one server.
pub struct Store {
    db: Connection,
    pepper: hmac::Key,
    pool: Pool,
}

/// Why something was not done.
#[derive(Debug)]
pub enum StoreError {
    /// There is no such thing: what.
    Missing(String),
    /// It would not fit what is there: why.
    Conflict(String),
    /// What was asked for is impossible: why.
    Invalid(String),
    /// A join key lets nobody in.
    Key(control::join::Refused),
    /// The node's key does not belong to its machine.
    WrongKey,
    /// No address is left.
    Full,
    /// The disk is full, cannot be written or is broken now; nothing was changed.
    Unavailable(String),
    /// The file is no database of ours, or is damaged: what, and how to mend it.
    Damaged(String),
}

/// A result of the store.
pub type Stored<T> = Result<T, StoreError>;

impl Store {
    /// Opens the database, makes it if it is not there, and brings it up to date.
    ///
    /// The address ranges are fixed by the first start: `v4` is only for that one, or must be
    /// equal.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the file is damaged or of a later version, with its name;
    /// [`StoreError::Conflict`] if `v4` is not what the network was made with.
    pub fn open(
        path: &Path,
        pepper: &[u8; 32],
        v4: Option<Prefix>,
        random: &mut dyn Random,
    ) -> Stored<Self> {
        let mut db = Connection::open(path)?;
        db.busy_timeout(BUSY_WAIT)?;
        let damaged = |why: &str| {
            StoreError::Damaged(format!(
                "{}: {why}; stop the server and put a backup in its place",
                path.display()
            ))
        };
        prepare(&db).map_err(|error| damaged(&error.to_string()))?;
        migrate(&mut db, path)?;
        let pool = pool(&mut db, v4, random)?;
        Ok(Self { db, pepper: hmac::Key::new(hmac::HMAC_SHA256, pepper), pool })
    }

    /// The network's ranges.
    #[must_use]
    pub const fn pool(&self) -> Pool {
        self.pool
    }

    /// Begins the next epoch of maps: later than every one before, and than any that a copy of
    /// this database began (threat CO-17), as far as the clock is right.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn next_epoch(&mut self, now: u64) -> Stored<u64> {
        self.write(|tx| {
            let last = setting(tx, "epoch")?.and_then(|text| text.parse().ok()).unwrap_or(0_u64);
            let epoch = last.saturating_add(1).max(now);
            set(tx, "epoch", &epoch.to_string())?;
            Ok(epoch)
        })
    }

    /// Whether anything is in the books.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn is_empty(&self) -> Stored<bool> {
        let sql =
            "SELECT NOT EXISTS (SELECT 1 FROM nodes) AND NOT EXISTS (SELECT 1 FROM join_keys)";
        Ok(self.db.query_row(sql, [], |row| row.get(0))?)
    }

    /// Writes a copy of the database as it is now into a new file.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file exists or cannot be written.
    pub fn backup(&self, to: &Path) -> Stored<()> {
        self.db.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
        Ok(())
    }

    /// One transaction that writes: everything in `work`, or nothing.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Stored<T>) -> Stored<T> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    fn hash(&self, id: SecretId, secret: &Secret) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.pepper);
        context.update(&id.0);
        context.update(&secret.0);
        context.sign().as_ref().to_vec()
    }

    fn is_hash(&self, hash: &[u8], id: [u8; 8], secret: &[u8; 16]) -> bool {
        hmac::verify(&self.pepper, &[&id[..], secret].concat(), hash).is_ok()
    }
}

fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "trusted_schema", false)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    let check: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check == "ok" {
        Ok(())
    } else {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Err(rusqlite::Error::SqliteFailure(code, Some(check)))
    }
}

fn migrate(db: &mut Connection, path: &Path) -> Stored<()> {
    let seen: usize = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if seen > MIGRATIONS.len() {
        return Err(StoreError::Damaged(format!(
            "{} was written by a later version of Warren (schema {seen}, this program knows {}); \
             update this program",
            path.display(),
            MIGRATIONS.len()
        )));
    }
    if (1..MIGRATIONS.len()).contains(&seen) {
        let copy = path.with_extension(format!("before-{}", MIGRATIONS.len()));
        db.execute("VACUUM INTO ?1", [copy.to_string_lossy()])?;
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in &MIGRATIONS[seen..] {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "user_version", MIGRATIONS.len())?;
    tx.commit()?;
    Ok(())
}

fn pool(db: &mut Connection, v4: Option<Prefix>, random: &mut dyn Random) -> Stored<Pool> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let prefix = |name| -> Stored<Option<Prefix>> {
        let Some(text) = setting(&tx, name)? else { return Ok(None) };
        let prefix = text.parse();
        prefix.map(Some).map_err(|why| StoreError::Damaged(format!("the setting {name}: {why}")))
    };
    let default = || control::address::DEFAULT_V4.parse().ok();
    let (known4, known6) = (prefix("range_v4")?, prefix("range_v6")?);
    if let (Some(known), Some(wanted)) = (known4, v4)
        && known != wanted
    {
        return Err(StoreError::Conflict(format!(
            "this network was made with the range {known}; it cannot become {wanted}, because \
             addresses are stable"
        )));
    }
    let first = known4.or(v4).or_else(default);
    let first = first.ok_or_else(|| StoreError::Invalid("no IPv4 range".to_owned()))?;
    let second = known6.unwrap_or_else(|| Pool::unique_local(random));
    let pool = Pool::new(first, second).map_err(|why| StoreError::Invalid(why.to_string()))?;
    set(&tx, "range_v4", &first.to_string())?;
    set(&tx, "range_v6", &second.to_string())?;
    tx.commit()?;
    Ok(pool)
}

fn setting(db: &Connection, name: &str) -> Stored<Option<String>> {
    let sql = "SELECT value FROM settings WHERE name = ?1";
    Ok(db.query_row(sql, [name], |row| row.get(0)).optional()?)
}

fn set(tx: &Transaction<'_>, name: &str, value: &str) -> Stored<()> {
    let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tx.execute(sql, params![name, value])?;
    Ok(())
}

/// A list that is stored as JSON.
fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data has text as keys")
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged(format!("the database is damaged ({error}); restore a backup"))
            }
            Some(ErrorCode::ConstraintViolation) => Self::Conflict(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "there is no {what}"),
            Self::Conflict(why) | Self::Invalid(why) | Self::Damaged(why) => f.write_str(why),
            Self::Key(why) => why.fmt(f),
            Self::WrongKey => f.write_str("the node key does not belong to this machine"),
            Self::Full => f.write_str("no address is left in the network's range"),
            Self::Unavailable(why) => {
                write!(f, "the database cannot be used now: {why}; see to the disk, then try again")
            }
        }
    }
}

impl std::error::Error for StoreError {}
