//! The books: users, keys, nodes, policy texts, API tokens and the audit log, in one SQLite file
//! or one PostgreSQL database.
//!
//! Every write is one transaction that is alone, and a transaction that was acknowledged is on the
//! disk, so that neither kill -9 nor a power cut loses it. Every question is written once, in the
//! SQL that both read (`db`); what differs is how each is opened, and the types of its columns
//! (`sqlite`, `postgres`). SQL is text that is written here, never put together; values are
//! always bound (threat WB-09).

mod audit;
mod db;
mod enrol;
mod hostname;
mod hours;
mod keys;
mod life;
mod naming;
mod nodes;
mod peers;
mod persons;
mod postgres;
mod relays;
mod released;
mod resolvers;
mod row;
mod secrets;
mod sessions;
mod sqlite;
#[cfg(test)]
pub(crate) mod tests;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use control::address::Pool;
use control::{Prefix, Secret, SecretId};
use noise::Random;
use ring::hmac;

pub(crate) use audit::Verified;
pub use audit::{Entry, PolicyText, PolicyVersion};
pub(crate) use db::Unwritten;
use db::{Db, Tx};
pub use enrol::{Admission, Enrolment, Joining, Registered};
pub use keys::{ApiToken, Bearer, JoinKey, Made, NewApiToken, NewJoinKey};
pub use nodes::Node;
pub use peers::{CARRIED_MAX, NewPeer};
pub(crate) use persons::Person;
pub use postgres::PostgresUrl;
use row::values;
pub(crate) use secrets::Secrets;
pub(crate) use sessions::{Session, SessionId};
pub use users::{NewUser, User};

/// Where books are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In this file, which is made if it is not there.
    File(PathBuf),
    /// In this database, whose tables are made if there are none and `may_make`.
    Postgres {
        /// Which.
        url: PostgresUrl,
        /// Whether it may be a new network.
        may_make: bool,
    },
}

/// The books, open for one server.
pub struct Store {
    db: Db,
    pepper: hmac::Key,
    pool: Pool,
    secrets: Arc<Secrets>,
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
    /// Who asks may not: why.
    Denied(String),
    /// The node's key is over, and its machine alone may not renew it.
    Expired,
    /// A join key lets nobody in.
    Key(control::join::Refused),
    /// The node's key does not belong to its machine.
    WrongKey,
    /// No address is left.
    Full,
    /// The disk is full, cannot be written or is broken now, or the database is away.
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
        place: &Place,
        pepper: &[u8; 32],
        v4: Option<Prefix>,
        random: &mut dyn Random,
    ) -> Stored<Self> {
        let db = match place {
            Place::File(path) => Db::sqlite(sqlite::Sqlite::open(path)?),
            Place::Postgres { url, may_make } => {
                Db::postgres(postgres::Postgres::open(url, *may_make)?)
            }
        };
        let pool = db.write(|tx| pool(tx, v4, random))?;
        let pepper = hmac::Key::new(hmac::HMAC_SHA256, pepper);
        let secrets = Arc::new(Secrets::new(pepper.clone()));
        secrets.read(&db)?;
        Ok(Self { db, pepper, pool, secrets })
    }

    /// Counts the times that the books could not be read or written, also for who has no lock.
    #[must_use]
    pub(crate) fn errors(&self) -> Arc<AtomicU64> {
        self.db.errors()
    }

    /// Why the books cannot be written, if the last attempt failed, also for who has no lock.
    #[must_use]
    pub(crate) fn unwritten(&self) -> Arc<Unwritten> {
        self.db.unwritten()
    }

    /// Makes this server the only one with these books, as long as it has them open.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another has.
    pub fn claim(&self) -> Stored<()> {
        self.db.claim()?;
        self.read_secrets()
    }

    /// What every join key and API token opens, for who has no lock.
    #[must_use]
    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.secrets)
    }

    /// Reads again what they open.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) fn read_secrets(&self) -> Stored<()> {
        self.secrets.read(&self.db)
    }

    /// Looks whether the database is there: whether what was read before is to be read again,
    /// because a commit failed in the dark or the database was away.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Conflict`] if another server took over.
    pub fn look(&self) -> Stored<bool> {
        self.db.look()?;
        self.db.try_to_write();
        Ok(self.db.is_uncertain())
    }

    /// Everything was read again.
    pub fn is_read_again(&self) {
        self.db.is_read_again();
    }

    /// The network's ranges.
    #[must_use]
    pub const fn pool(&self) -> Pool {
        self.pool
    }

    /// Begins the next epoch of maps: later than every one before, and than any that a copy of
    /// this database began (threat CO-17), as far as the clock is right; later than `seen`, too,
    /// which a node has a map of.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn next_epoch(&mut self, now: u64, seen: u64) -> Stored<u64> {
        self.write(|tx| {
            let last = setting(tx, "epoch")?.and_then(|text| text.parse().ok()).unwrap_or(0_u64);
            let epoch = last.max(seen).saturating_add(1).max(now);
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
        self.db.value(sql, &[])
    }

    /// Writes a copy of the database as it is now into a new file.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file exists or cannot be written;
    /// [`StoreError::Invalid`] if the books are in no file.
    pub fn backup(&self, to: &Path) -> Stored<()> {
        let file = self.db.file();
        let file = file.ok_or_else(|| StoreError::Invalid("use pg_dump".to_owned()))?;
        file.backup(to)
    }

    /// One transaction that writes: everything in `work`, or nothing.
    fn write<T>(&mut self, work: impl FnOnce(&Tx<'_>) -> Stored<T>) -> Stored<T> {
        self.db.write(work)
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

fn pool(tx: &Tx<'_>, v4: Option<Prefix>, random: &mut dyn Random) -> Stored<Pool> {
    let prefix = |name| -> Stored<Option<Prefix>> {
        let Some(text) = setting(tx, name)? else { return Ok(None) };
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
    set(tx, "range_v4", &first.to_string())?;
    set(tx, "range_v6", &second.to_string())?;
    Ok(pool)
}

fn setting(db: &Db, name: &str) -> Stored<Option<String>> {
    let row = db.row("SELECT value FROM settings WHERE name = $1", values![name])?;
    row.map(|row| row.read(0)).transpose()
}

fn set(tx: &Tx<'_>, name: &str, value: &str) -> Stored<()> {
    let sql = "INSERT INTO settings (name, value) VALUES ($1, $2)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tx.execute(sql, values![name, value])?;
    Ok(())
}

/// A list that is stored as JSON.
fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data has text as keys")
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "there is no {what}"),
            Self::Conflict(why) | Self::Invalid(why) | Self::Damaged(why) | Self::Denied(why) => {
                f.write_str(why)
            }
            Self::Expired => f.write_str("this node's key has expired; join again with a token"),
            Self::Key(why) => why.fmt(f),
            Self::WrongKey => f.write_str("the node key does not belong to this machine"),
            Self::Full => f.write_str("no address is left in the network's range"),
            Self::Unavailable(why) => write!(
                f,
                "the database cannot be used now: {why}; see to the disk or to the database \
                 server, then try again"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
