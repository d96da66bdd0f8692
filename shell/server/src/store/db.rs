//! One way to ask two databases: SQL that both read, values that both hold, rows that were read
//! whole.
//!
//! Parameters are `$1`, `$2` … in both; numbers are 64 bits and truths are 0 and 1; a number that
//! the database made comes back by `RETURNING`. A statement is a text of this program
//! (`&'static str`), so none can be put together of what somebody said (threat WB-09).
//!
//! A transaction that writes is alone: SQLite locks the file at its beginning, PostgreSQL a table.
//! So what a transaction read is still so when it writes, and of two that want the same one waits
//! (threats CO-02, CO-07), whichever server they came by.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::postgres::Postgres;
use super::row::{Column, Row, Value};
use super::sqlite::Sqlite;
use super::{StoreError, Stored};
use crate::held::held;

/// A connection to one of the two.
pub(super) struct Db {
    engine: Engine,
    /// Whether a commit failed so that nobody knows what it did, or another server wrote.
    is_uncertain: Cell<bool>,
    /// What failed for the database's sake since the start.
    errors: Arc<AtomicU64>,
    /// Why the last transaction that writes could not.
    unwritten: Arc<Unwritten>,
}

/// Why the books cannot be written, if so, for who has no lock of theirs.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(Mutex<Option<String>>);

impl Unwritten {
    /// What is said of it.
    pub(crate) fn why(&self) -> Option<String> {
        held(&self.0).clone()
    }

    fn note<T>(&self, done: Stored<T>) -> Stored<T> {
        match &done {
            Ok(_) => *held(&self.0) = None,
            Err(StoreError::Unavailable(why)) => *held(&self.0) = Some(why.clone()),
            Err(_) => {}
        }
        done
    }
}

enum Engine {
    Sqlite(Sqlite),
    Postgres(Box<RefCell<Postgres>>),
}

/// A connection inside a transaction that writes.
pub(super) struct Tx<'a>(&'a Db);

impl Deref for Tx<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.0
    }
}

/// Undoes a transaction that was not committed, also when its work panics.
struct Undo<'a>(&'a Db, bool);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.end(false).unwrap_or_else(|error| tracing::debug!(%error, "nothing to undo"));
        }
    }
}

impl Db {
    pub(super) fn sqlite(sqlite: Sqlite) -> Self {
        Self::new(Engine::Sqlite(sqlite))
    }

    pub(super) fn postgres(postgres: Postgres) -> Self {
        Self::new(Engine::Postgres(Box::new(RefCell::new(postgres))))
    }

    fn new(engine: Engine) -> Self {
        let is_uncertain = Cell::new(false);
        Self { engine, is_uncertain, errors: Arc::default(), unwritten: Arc::default() }
    }

    /// See [`super::Store::unwritten`].
    pub(super) fn unwritten(&self) -> Arc<Unwritten> {
        Arc::clone(&self.unwritten)
    }

    /// See [`super::Store::errors`].
    pub(super) fn errors(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.errors)
    }

    fn counted<T>(&self, done: Stored<T>) -> Stored<T> {
        if matches!(done, Err(StoreError::Unavailable(_) | StoreError::Damaged(_))) {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// All rows of an answer.
    pub(super) fn rows(&self, sql: &'static str, values: &[Value]) -> Stored<Vec<Row>> {
        self.counted(match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.rows(sql, values),
            Engine::Postgres(postgres) => {
                let mut postgres = postgres.borrow_mut();
                let rows = postgres.rows(sql, values);
                self.doubt(postgres.was_away());
                rows
            }
        })
    }

    /// The first row, if there is one.
    pub(super) fn row(&self, sql: &'static str, values: &[Value]) -> Stored<Option<Row>> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// The only value of the only row.
    pub(super) fn value<T: Column>(&self, sql: &'static str, values: &[Value]) -> Stored<T> {
        let row = self.row(sql, values)?;
        row.ok_or_else(|| StoreError::Damaged(format!("no answer to {sql:?}")))?.read(0)
    }

    /// Writes: how many rows it changed.
    pub(super) fn execute(&self, sql: &'static str, values: &[Value]) -> Stored<u64> {
        self.counted(match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.execute(sql, values),
            Engine::Postgres(postgres) => postgres.borrow_mut().execute(sql, values),
        })
    }

    /// Everything in `work`, or nothing, and nobody writes in between.
    pub(super) fn write<T>(&self, work: impl FnOnce(&Tx<'_>) -> Stored<T>) -> Stored<T> {
        self.unwritten.note(self.transact(work))
    }

    fn transact<T>(&self, work: impl FnOnce(&Tx<'_>) -> Stored<T>) -> Stored<T> {
        self.counted(match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.begin(),
            Engine::Postgres(postgres) => {
                let mut postgres = postgres.borrow_mut();
                let begun = postgres.begin();
                self.doubt(postgres.was_away());
                begun
            }
        })?;
        let mut undo = Undo(self, true);
        let done = work(&Tx(self))?;
        undo.1 = false;
        self.counted(self.end(true)).inspect_err(|_| self.doubt(true))?;
        Ok(done)
    }

    fn end(&self, is_done: bool) -> Stored<()> {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.end(is_done),
            Engine::Postgres(postgres) => postgres.borrow_mut().end(is_done),
        }
    }

    /// Whether what was read before may be other than what is there now.
    pub(super) const fn is_uncertain(&self) -> bool {
        self.is_uncertain.get()
    }

    /// Everything was read again.
    pub(super) fn is_read_again(&self) {
        self.is_uncertain.set(false);
    }

    fn doubt(&self, is_uncertain: bool) {
        self.is_uncertain.set(self.is_uncertain() || is_uncertain);
    }

    /// The file, if it is one.
    pub(super) const fn file(&self) -> Option<&Sqlite> {
        match &self.engine {
            Engine::Sqlite(sqlite) => Some(sqlite),
            Engine::Postgres(_) => None,
        }
    }

    /// Looks whether the database is there, and comes back to it.
    pub(super) fn look(&self) -> Stored<()> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(_) => self.rows("SELECT 1", &[]).map(|_| ()),
        }
    }

    /// Tries whether a database can be written again that could not.
    pub(super) fn try_to_write(&self) {
        if self.unwritten.why().is_some() {
            let tried = self.write(|_| Ok(()));
            tried.unwrap_or_else(|error| tracing::debug!(%error, "still not written"));
        }
    }

    /// Makes this server the only one that uses the database, as long as it is connected.
    pub(super) fn claim(&self) -> Stored<()> {
        match &self.engine {
            // Its folder has a lock.
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(postgres) => postgres.borrow_mut().claim(),
        }
    }
}
