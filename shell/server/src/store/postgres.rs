//! The books in a PostgreSQL database: one session, which comes back when it was lost.
//!
//! A server is one client of the database, under the lock of the store: it holds one connection,
//! and while that is away every question fails at once and says so. What was committed is there
//! afterwards; what failed in the middle was never there; of a commit whose answer was lost nobody
//! knows, so that everything is read again (`was_away`).
//!
//! A transaction that writes begins with a lock on `settings` that conflicts with itself and not
//! with readers: the manner of SQLite, so that both behave alike under races.
//!
//! One server at a time serves a database, since each holds the network in memory: the session
//! takes an advisory lock, and with the session it is gone. Another server may take over then;
//! the first finds the lock taken when it comes back, and writes nothing.
//!
//! A database that says nothing is given up after [`ANSWER_WITHIN`] (`session`), so that whoever
//! waits for the lock of the store waits no longer. What was asked last may still be done when it
//! wakes: its own session ends behind that, and the next one begins with the lock that the old one
//! had, so what is read again is what there is.

mod session;
mod tls;
mod url;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use session::{Answered, Failed, Session};
pub use url::PostgresUrl;

use super::row::{Row, Value};
use super::{StoreError, Stored};

/// Every change of the schema, in order.
pub(super) const MIGRATIONS: [&str; 7] = [
    include_str!("postgres/migrations/0001.sql"),
    include_str!("postgres/migrations/0002.sql"),
    include_str!("postgres/migrations/0003.sql"),
    include_str!("postgres/migrations/0004.sql"),
    include_str!("postgres/migrations/0005.sql"),
    include_str!("postgres/migrations/0006.sql"),
    include_str!("postgres/migrations/0007.sql"),
];
/// After an attempt to connect that failed, questions fail at once for so long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// An answer may take so long; then the session is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The same at the start, when tables are made and changed.
const START_WITHIN: Duration = Duration::from_secs(600);
/// A session that was given up may hold the lock of the one server for so long.
const LINGERS: Duration = Duration::from_secs(60);
/// Every session: how long it waits for what, when it is given up, and that what it committed is
/// on the disk whatever the database's own default is.
const SESSION: &str = "
    SET lock_timeout = '3s';
    SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '60s';
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') = 'off';";
const BEGIN: &str = "BEGIN; LOCK TABLE settings IN SHARE ROW EXCLUSIVE MODE";
/// One server for each schema that has our tables. The number is a name: "Warn".
const CLAIM: &str = "SELECT pg_advisory_lock(
    (1466003054::bigint << 32) + 'settings'::regclass::oid::bigint)";
/// One program at a time makes tables.
const MIGRATE: &str = "BEGIN; SELECT pg_advisory_xact_lock(1466003054::bigint << 32)";

/// A database, connected or to be connected again.
pub(super) struct Postgres {
    url: PostgresUrl,
    client: Session,
    statements: BTreeMap<&'static str, Statement>,
    /// Whether the session takes the lock of the one server.
    claims: bool,
    /// The last attempt to connect that failed, and how long it took: so long none follows.
    failed: Option<(Instant, String, Duration)>,
    /// Inside a transaction: whether a statement of it failed.
    transaction: Option<bool>,
    was_away: bool,
    /// When a session was given up.
    given_up: Option<Instant>,
}

impl Postgres {
    /// Connects, makes the tables if `may_make` and there are none, and brings them up to date.
    pub(super) fn open(url: &PostgresUrl, may_make: bool) -> Stored<Self> {
        Self::open_with(url, may_make, &MIGRATIONS)
    }

    /// The same with other migrations than this program's.
    pub(super) fn open_with(
        url: &PostgresUrl,
        may_make: bool,
        migrations: &[&str],
    ) -> Stored<Self> {
        let client = connect(url)?;
        let mut opened = Self {
            url: url.clone(),
            client,
            statements: BTreeMap::new(),
            claims: false,
            failed: None,
            transaction: None,
            was_away: false,
            given_up: None,
        };
        opened.check_server()?;
        opened.client.set_patience(START_WITHIN);
        opened.migrate(may_make, migrations)?;
        opened.client.set_patience(ANSWER_WITHIN);
        Ok(opened)
    }

    fn check_server(&mut self) -> Stored<()> {
        let sql = "SELECT current_setting('server_encoding'), current_setting('fsync')";
        let rows = self.rows(sql, &[])?;
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("no answer".to_owned()))?;
        let (encoding, fsync): (String, String) = (row.read(0)?, row.read(1)?);
        if encoding != "UTF8" {
            return Err(StoreError::Invalid(format!(
                "{}: its encoding is {encoding}; make one with ENCODING 'UTF8'",
                self.url
            )));
        }
        if fsync == "off" {
            tracing::warn!(
                "PostgreSQL runs with fsync = off: a power cut loses what was acknowledged"
            );
        }
        Ok(())
    }

    fn migrate(&mut self, may_make: bool, migrations: &[&str]) -> Stored<()> {
        self.client.batch_execute(MIGRATE).map_err(|error| told(&self.url, &error))?;
        self.transaction = Some(false);
        let done = self.migrate_locked(may_make, migrations);
        self.end(done.is_ok())?;
        done
    }

    fn migrate_locked(&mut self, may_make: bool, migrations: &[&str]) -> Stored<()> {
        let is_there = "SELECT to_regclass('settings') IS NOT NULL";
        let is_there = self.rows(is_there, &[])?.first().map_or(Ok(false), |row| row.read(0))?;
        let seen = if is_there { self.seen()? } else { 0 };
        if seen == 0 && !may_make {
            return Err(StoreError::Missing(format!(
                "network in {}, but this directory has the keys of one; restore the database, or \
                 use an empty directory for a new network",
                self.url
            )));
        }
        let Some(news) = migrations.get(seen..) else {
            return Err(StoreError::Damaged(format!(
                "{} was written by a later version of Warren (schema {seen}, this program knows \
                 {}); update this program",
                self.url,
                migrations.len()
            )));
        };
        for migration in news {
            self.client.batch_execute(migration).map_err(|error| told(&self.url, &error))?;
        }
        let sql = "INSERT INTO settings (name, value) VALUES ('schema', $1)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, &[Value::Text(migrations.len().to_string())])?;
        Ok(())
    }

    /// The migrations that made the tables that are there.
    fn seen(&mut self) -> Stored<usize> {
        let foreign = StoreError::Conflict(format!(
            "{} has a table `settings` that is not Warren's; use an empty database, or a schema \
             of its own (options=-csearch_path%3Dwarren)",
            self.url
        ));
        let sql = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'settings'
                   AND table_schema = current_schema() AND column_name IN ('name', 'value')";
        let columns = self.rows(sql, &[])?.first().map_or(Ok(0_u64), |row| row.read(0))?;
        if columns != 2 {
            return Err(foreign);
        }
        let rows = self.rows("SELECT value FROM settings WHERE name = 'schema'", &[])?;
        let text: Option<String> = rows.first().map(|row| row.read(0)).transpose()?;
        text.and_then(|text| text.parse().ok()).ok_or(foreign)
    }

    pub(super) fn rows(&mut self, sql: &'static str, values: &[Value]) -> Stored<Vec<Row>> {
        self.ask(sql, values, |client, statement, values| {
            let rows = client.query(statement, values)?;
            rows.iter().map(read).collect()
        })
    }

    pub(super) fn execute(&mut self, sql: &'static str, values: &[Value]) -> Stored<u64> {
        self.ask(sql, values, Session::execute)
    }

    /// One statement. Outside a transaction a lost session is opened again, and asked once more:
    /// what is written there may be written twice.
    fn ask<T>(
        &mut self,
        sql: &'static str,
        values: &[Value],
        run: impl Fn(&mut Session, &Statement, &[&(dyn ToSql + Sync)]) -> Answered<T>,
    ) -> Stored<T> {
        let values: Vec<&(dyn ToSql + Sync)> =
            values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let is_alone = self.transaction.is_none();
        if is_alone {
            self.come_back()?;
        }
        let mut done =
            self.prepared(sql).and_then(|statement| run(&mut self.client, &statement, &values));
        if done.is_err() && is_alone && self.client.is_closed() {
            self.come_back()?;
            done = self.prepared(sql).and_then(|s| run(&mut self.client, &s, &values));
        }
        if let (Err(_), Some(has_failed)) = (&done, &mut self.transaction) {
            *has_failed = true;
        }
        done.map_err(|error| self.note(&error))
    }

    /// What went wrong. A session that was given up is not opened again at once.
    fn note(&mut self, failed: &Failed) -> StoreError {
        let error = told(&self.url, failed);
        if failed.is_silence() {
            tracing::error!(%error, "PostgreSQL is silent");
            self.given_up = Some(Instant::now());
            self.failed = Some((Instant::now(), failed_why(&error), RETRY_AFTER));
        }
        error
    }

    fn prepared(&mut self, sql: &'static str) -> Answered<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) fn begin(&mut self) -> Stored<()> {
        self.come_back()?;
        let mut begun = self.client.batch_execute(BEGIN);
        if begun.is_err() && self.client.is_closed() {
            // It was lost while it rested: nothing was asked of it yet.
            self.come_back()?;
            begun = self.client.batch_execute(BEGIN);
        }
        if let Err(error) = begun {
            let _ = self.client.batch_execute("ROLLBACK");
            return Err(self.note(&error));
        }
        self.transaction = Some(false);
        Ok(())
    }

    /// Ends the transaction. One of whose statements failed is not committed: PostgreSQL would
    /// take it back and call that a success.
    pub(super) fn end(&mut self, is_done: bool) -> Stored<()> {
        let has_failed = self.transaction.take().unwrap_or(true);
        if has_failed && is_done {
            let _ = self.client.batch_execute("ROLLBACK");
            return Err(StoreError::Unavailable("a statement failed in between".to_owned()));
        }
        let ended = self.client.batch_execute(if is_done { "COMMIT" } else { "ROLLBACK" });
        ended.map_err(|error| match self.note(&error) {
            StoreError::Unavailable(why) if is_done => StoreError::Unavailable(format!(
                "{why}; it is not known whether the change was made: look before you repeat it"
            )),
            other => other,
        })
    }

    /// Makes this server the only one, and keeps it so.
    pub(super) fn claim(&mut self) -> Stored<()> {
        self.claims = true;
        claim(&self.url, &mut self.client)
    }

    /// Whether the session was lost, and another server may have written, since this was asked.
    pub(super) const fn was_away(&mut self) -> bool {
        std::mem::replace(&mut self.was_away, false)
    }

    /// Whether a session that was given up may still be there at the database.
    fn lingers(&self) -> bool {
        self.given_up.is_some_and(|at| at.elapsed() < LINGERS)
    }

    /// Opens the session again if it was lost.
    fn come_back(&mut self) -> Stored<()> {
        if !self.client.is_closed() {
            return Ok(());
        }
        if let Some((at, why, took)) = &self.failed
            && at.elapsed() < RETRY_AFTER.max(*took)
        {
            return Err(StoreError::Unavailable(why.clone()));
        }
        let begin = Instant::now();
        let opened = connect(&self.url).and_then(|mut client| {
            if self.claims {
                claim(&self.url, &mut client).map_err(|error| match error {
                    // Our own, perhaps, which has not ended yet.
                    StoreError::Conflict(why) if self.lingers() => StoreError::Unavailable(why),
                    error => error,
                })?;
            }
            Ok(client)
        });
        match opened {
            Ok(client) => {
                tracing::warn!("the session with PostgreSQL was lost, and is there again");
                self.statements.clear();
                self.client = client;
                self.failed = None;
                self.was_away = true;
                self.given_up = None;
                Ok(())
            }
            Err(StoreError::Unavailable(why)) => {
                self.failed = Some((Instant::now(), why.clone(), begin.elapsed()));
                Err(StoreError::Unavailable(why))
            }
            Err(error) => Err(error),
        }
    }
}

fn connect(url: &PostgresUrl) -> Stored<Session> {
    let mut client = url.connect(ANSWER_WITHIN)?;
    client.batch_execute(SESSION).map_err(|error| told(url, &error))?;
    Ok(client)
}

fn claim(url: &PostgresUrl, client: &mut Session) -> Stored<()> {
    client.batch_execute(CLAIM).map_err(|error| match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => StoreError::Conflict(format!(
            "another server serves the network in {url}; stop it, or wait until it is gone"
        )),
        _ => told(url, &error),
    })
}

fn read(row: &tokio_postgres::Row) -> Answered<Row> {
    let values: Result<_, tokio_postgres::Error> =
        (0..row.len()).map(|column| row.try_get(column)).collect();
    Ok(Row(values?))
}

/// What is told to those who come soon after.
fn failed_why(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => why.clone(),
        other => other.to_string(),
    }
}

/// What went wrong, with where: never the password, which no error of the library has either.
fn told(url: &PostgresUrl, error: &Failed) -> StoreError {
    let text = format!("{url}: {error}");
    let Some(code) = error.code() else { return StoreError::Unavailable(text) };
    match (&code.code()[..2], code) {
        (_, &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
            StoreError::Damaged(format!("{text}; restore a backup"))
        }
        ("23", _) => StoreError::Conflict(text),
        ("22", _) => StoreError::Invalid(text),
        _ => StoreError::Unavailable(text),
    }
}

type Failure = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *kind == Type::INT8 => number.to_sql(kind, out),
            Self::Text(text) if *kind == Type::TEXT => text.to_sql(kind, out),
            Self::Blob(bytes) if *kind == Type::BYTEA => bytes.to_sql(kind, out),
            other => Err(format!("{other:?} is no {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        match *kind {
            Type::INT8 => i64::from_sql(kind, raw).map(Self::Integer),
            Type::INT4 => i32::from_sql(kind, raw).map(|n| Self::Integer(n.into())),
            Type::BOOL => bool::from_sql(kind, raw).map(|is| Self::Integer(is.into())),
            Type::BYTEA => Vec::from_sql(kind, raw).map(Self::Blob),
            _ => String::from_sql(kind, raw).map(Self::Text),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failure> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        const KINDS: [Type; 7] = [
            Type::INT8,
            Type::INT4,
            Type::BOOL,
            Type::BYTEA,
            Type::TEXT,
            Type::NAME,
            Type::VARCHAR,
        ];
        KINDS.contains(kind)
    }
}
