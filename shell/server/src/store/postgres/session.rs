//! A session with PostgreSQL in which every question is answered within a time, or the session is
//! given up: a server that is stopped, or whose disk is frozen, keeps its connections open and says
//! nothing, and whoever asks holds the lock of the store.
//!
//! The library awaits; here a small runtime of the session's own waits for it, on the thread that
//! asks. Between questions nothing runs.

use std::fmt;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Row, Statement};

use super::tls::Connector;

/// A session that is not there after this time is given up, whatever was heard meanwhile.
const START_WITHIN: Duration = Duration::from_secs(5);
/// A goodbye may take so long.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The library's, or the database's.
    Said(Error),
    /// Nothing came for so long, and the session is over.
    Silent(Duration),
    /// The session was given up before.
    Over,
    /// The system has no room for a runtime.
    System(std::io::Error),
}

/// What the database answers.
pub(super) type Answered<T> = Result<T, Failed>;

/// A session, until it is closed or given up.
pub(super) struct Session {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    client: Option<Client>,
    connection: Option<JoinHandle<()>>,
    /// How long an answer may take.
    within: Duration,
}

impl Session {
    /// Connects.
    pub(super) fn open(config: &Config, tls: Connector, within: Duration) -> Answered<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failed::System)?;
        let opened = runtime.block_on(async {
            let connected = timeout(START_WITHIN, config.connect(tls)).await;
            let (client, connection) =
                connected.map_err(|_| Failed::Silent(START_WITHIN))?.map_err(Failed::Said)?;
            let connection = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a session with PostgreSQL ended");
                }
            });
            Ok((client, connection))
        });
        match opened {
            Ok((client, connection)) => {
                let client = Some(client);
                let connection = Some(connection);
                Ok(Self { runtime: Some(runtime), client, connection, within })
            }
            Err(failed) => {
                // A name that is looked up on a thread is not waited for.
                runtime.shutdown_background();
                Err(failed)
            }
        }
    }

    /// How long answers may take from now on.
    pub(super) const fn set_patience(&mut self, within: Duration) {
        self.within = within;
    }

    /// Whether nothing can be asked any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.as_ref().is_none_or(Client::is_closed)
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Answered<Statement> {
        self.ask(async |client| client.prepare(sql).await)
    }

    pub(super) fn query(
        &mut self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Answered<Vec<Row>> {
        self.ask(async |client| client.query(statement, values).await)
    }

    pub(super) fn execute(
        &mut self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Answered<u64> {
        self.ask(async |client| client.execute(statement, values).await)
    }

    pub(super) fn batch_execute(&mut self, sql: &str) -> Answered<()> {
        self.ask(async |client| client.batch_execute(sql).await)
    }

    fn ask<T>(&mut self, question: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Answered<T> {
        let within = self.within;
        let (Some(runtime), Some(client)) = (&self.runtime, &self.client) else {
            return Err(Failed::Over);
        };
        match runtime.block_on(async { timeout(within, question(client)).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                // Its last word may come before the end of the connection does.
                if is_last_word(&error) || client.is_closed() {
                    self.client = None;
                    self.end(None);
                }
                Err(Failed::Said(error))
            }
            Err(_) => {
                // What was asked may be done later: nothing more is said in this session.
                self.client = None;
                self.end(None);
                Err(Failed::Silent(within))
            }
        }
    }

    /// Lets go of the connection, after `patience` for a goodbye.
    fn end(&mut self, patience: Option<Duration>) {
        let Some(runtime) = self.runtime.take() else { return };
        if let (Some(patience), Some(connection)) = (patience, self.connection.take()) {
            let goodbye = async move { timeout(patience, connection).await };
            let _ = runtime.block_on(goodbye);
        }
        runtime.shutdown_background();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without its client the connection says goodbye, so that the server's lock is free.
        let is_open = self.client.take().is_some_and(|client| !client.is_closed());
        self.end(is_open.then_some(END_WITHIN));
    }
}

/// Whether the database says nothing more in this session.
fn is_last_word(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    error.is_closed() || matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

impl Failed {
    /// The code of what the database said.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Said(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the session was given up just now.
    pub(super) const fn is_silence(&self) -> bool {
        matches!(self, Self::Silent(_))
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(error) => {
                let source = std::error::Error::source(error);
                match (error.as_db_error(), source) {
                    (Some(said), _) => f.write_str(said.message()),
                    (None, Some(source)) => write!(f, "{error}: {source}"),
                    (None, None) => error.fmt(f),
                }
            }
            Self::Silent(within) => {
                write!(f, "it did not answer within {} s and was given up", within.as_secs())
            }
            Self::Over => f.write_str("the session was given up"),
            Self::System(error) => error.fmt(f),
        }
    }
}
