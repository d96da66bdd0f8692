//! The books in one SQLite file. What was acknowledged is on the disk: WAL, `synchronous = FULL`.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement, ToSql, TransactionBehavior};

use super::row::{Row, Value};
use super::{StoreError, Stored};

/// Every change of the schema, in order; a database is as new as the number that it has seen.
pub(super) const MIGRATIONS: [&str; 7] = [
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
    include_str!("migrations/0007.sql"),
];
/// What helps where the database may be read only.
const MEND_READ_ONLY: &str = "make its file, folder and disk writable for the server";
/// How long a write waits for another process that looks at the file, as a backup does.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// The names of parameters; SQLite would number them in the order in which they come.
const NAMES: [&str; 13] =
    ["$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13"];

/// A file, open.
pub(super) struct Sqlite(pub(super) Connection);

impl Sqlite {
    /// Opens the file, makes it if it is not there, and brings it up to date.
    pub(super) fn open(path: &Path) -> Stored<Self> {
        Self::open_with(path, &MIGRATIONS)
    }

    /// The same with other migrations than this program's.
    pub(super) fn open_with(path: &Path, migrations: &[&str]) -> Stored<Self> {
        let mut db = Connection::open(path)?;
        db.busy_timeout(BUSY_WAIT)?;
        let damaged = |why: &str| {
            StoreError::Damaged(format!(
                "{}: {why}; stop the server and put a backup in its place",
                path.display()
            ))
        };
        prepare(&db).map_err(|error| damaged(&error.to_string()))?;
        migrate(&mut db, path, migrations)?;
        Ok(Self(db))
    }

    pub(super) fn rows(&self, sql: &'static str, values: &[Value]) -> Stored<Vec<Row>> {
        let mut statement = self.0.prepare(sql)?;
        bind(&mut statement, values)?;
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let value = |column| row.get_ref(column).map(read);
            all.push(Row((0..columns).map(value).collect::<Result<_, _>>()?));
        }
        Ok(all)
    }

    pub(super) fn execute(&self, sql: &'static str, values: &[Value]) -> Stored<u64> {
        let mut statement = self.0.prepare(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    pub(super) fn begin(&self) -> Stored<()> {
        Ok(self.0.execute_batch("BEGIN IMMEDIATE")?)
    }

    pub(super) fn end(&self, is_done: bool) -> Stored<()> {
        let ended = self.0.execute_batch(if is_done { "COMMIT" } else { "ROLLBACK" });
        if ended.is_err() && !self.0.is_autocommit() {
            // A commit that fails may leave the transaction open.
            let _ = self.0.execute_batch("ROLLBACK");
        }
        Ok(ended?)
    }

    /// Writes a copy of the database as it is now into a new file.
    pub(super) fn backup(&self, to: &Path) -> Stored<()> {
        self.0.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
        Ok(())
    }
}

fn bind(statement: &mut Statement<'_>, values: &[Value]) -> rusqlite::Result<()> {
    debug_assert_eq!(statement.parameter_count(), values.len(), "each value has its number");
    for (name, value) in NAMES.iter().zip(values) {
        if let Some(at) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(at, value)?;
        }
    }
    Ok(())
}

fn read(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        // No column is of this kind; nothing reads it as a number.
        ValueRef::Real(number) => Value::Text(number.to_string()),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
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

/// Brings a database up to date: all of it, or nothing, with a copy of before beside it (LC-17).
fn migrate(db: &mut Connection, path: &Path, migrations: &[&str]) -> Stored<()> {
    let seen: usize = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let Some(news) = migrations.get(seen..) else {
        return Err(StoreError::Damaged(format!(
            "{} was written by a later version of Warren (schema {seen}, this program knows {}); \
             update this program",
            path.display(),
            migrations.len()
        )));
    };
    if news.is_empty() {
        return Ok(());
    }
    if seen > 0 {
        let copy = path.with_extension(format!("before-{}", migrations.len()));
        copy_before(db, &copy)?;
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = news.iter().try_for_each(|migration| tx.execute_batch(migration));
    let done = done.and_then(|()| tx.pragma_update(None, "user_version", migrations.len()));
    done.and_then(|()| tx.commit()).map_err(|error| {
        StoreError::Unavailable(format!(
            "{} cannot be brought up to date, and is as it was: {error}",
            path.display()
        ))
    })
}

/// Writes a copy, whole or not at all; one of an earlier attempt gives way.
fn copy_before(db: &Connection, copy: &Path) -> Stored<()> {
    let part = copy.with_added_extension("part");
    let told = |error: std::io::Error| {
        StoreError::Unavailable(format!("cannot write {}: {error}", copy.display()))
    };
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(told(error)),
        _ => {}
    }
    db.execute("VACUUM INTO ?1", [part.to_string_lossy()])?;
    std::fs::rename(&part, copy).map_err(told)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged(format!("the database is damaged ({error}); restore a backup"))
            }
            Some(ErrorCode::ConstraintViolation) => Self::Conflict(error.to_string()),
            Some(ErrorCode::ReadOnly) => Self::Unavailable(format!(
                "the database can be read and not written ({error}): {MEND_READ_ONLY}"
            )),
            Some(ErrorCode::DiskFull) => Self::Unavailable(format!(
                "the database cannot be written ({error}): make room on its disk"
            )),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
