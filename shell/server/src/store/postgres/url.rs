//! The URL of a PostgreSQL database, in the words of its own programs.
//!
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`; a socket is `?host=/run/postgresql`.
//! As with those programs `require` alone encrypts for whoever answers: a server is verified with
//! `sslrootcert=FILE`, and `verify-full` insists on that.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::super::{StoreError, Stored};
use super::session::Session;
use super::{tls, told};

/// A server that does not answer is given up after this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// What was sent and is not acknowledged for so long ends the session.
const UNSENT_WITHIN: Duration = Duration::from_secs(15);

/// Where the database is, and who we are there. Shown without the password.
#[derive(Clone)]
pub struct PostgresUrl {
    config: Box<Config>,
    /// Who signs the server's certificate.
    roots: Option<PathBuf>,
}

impl PostgresUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] says what is wrong, and has no password in it.
    pub fn parse(text: &str) -> Stored<Self> {
        let invalid = |why: &str| {
            StoreError::Invalid(format!(
                "the store's URL: {why}; one is postgres://USER:PASSWORD@HOST:PORT/DATABASE"
            ))
        };
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(invalid("it does not begin with postgres://"));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut kept = Vec::new();
        let mut roots = None;
        let mut must_verify = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(path)),
                Some(("sslmode", "verify-full" | "verify-ca")) => must_verify = true,
                _ => kept.push(pair),
            }
        }
        if must_verify && roots.is_none() {
            return Err(invalid("sslmode=verify-full needs sslrootcert=FILE"));
        }
        let mut text = base.to_owned();
        if !kept.is_empty() {
            text = format!("{text}?{}", kept.join("&"));
        }
        let mut config: Config = text.parse().map_err(|why: tokio_postgres::Error| {
            let source = std::error::Error::source(&why).map(ToString::to_string);
            invalid(&source.unwrap_or_else(|| "it cannot be read".to_owned()))
        })?;
        if config.get_dbname().is_none() {
            return Err(invalid("it names no database"));
        }
        if roots.is_some() {
            if config.get_ssl_mode() == SslMode::Disable {
                return Err(invalid("sslmode=disable and sslrootcert contradict each other"));
            }
            config.ssl_mode(SslMode::Require);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WITHIN);
        }
        config.tcp_user_timeout(UNSENT_WITHIN).keepalives_idle(UNSENT_WITHIN);
        config.application_name("warren");
        Ok(Self { config: Box::new(config), roots })
    }

    /// The file of certificates that sign the server's, if it is verified.
    pub(super) fn roots(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    /// A new session, in which an answer may take so long.
    pub(super) fn connect(&self, within: Duration) -> Stored<Session> {
        let tls = tls::Connector::new(self.roots())?;
        Session::open(&self.config, tls, within).map_err(|error| told(self, &error))
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.config.get_dbname().unwrap_or_default();
        write!(f, "the PostgreSQL database {name:?} at")?;
        let ports = self.config.get_ports();
        for (n, host) in self.config.get_hosts().iter().enumerate() {
            let port = ports.get(n).or_else(|| ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => write!(f, " {host}:{port}")?,
                Host::Unix(path) => write!(f, " {}/.s.PGSQL.{port}", path.display())?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_04_a_url_is_shown_without_its_password_and_its_mistakes_too() {
        let good = "postgres://warren:secret@db.example:5433/net?sslmode=require";
        let url = PostgresUrl::parse(good).unwrap();
        assert_eq!(url.to_string(), "the PostgreSQL database \"net\" at db.example:5433");
        let url = PostgresUrl::parse("postgresql:///net?host=/run/pg&user=a").unwrap();
        assert_eq!(url.to_string(), "the PostgreSQL database \"net\" at /run/pg/.s.PGSQL.5432");
        assert!(url.roots().is_none());
        for bad in [
            "mysql://warren:secret@db/net",
            "postgres://warren:secret@db",
            "postgres://warren:secret@db/net?sslmode=verify-full",
            "postgres://warren:secret@db/net?sslmode=perhaps",
            "postgres://warren:secret@db/net?sslmode=disable&sslrootcert=/ca.pem",
            "postgres://warren:secret@db:port/net",
            "postgres://warren:secret@db/net?unknown=1",
            "",
        ] {
            let why = PostgresUrl::parse(bad).unwrap_err().to_string();
            assert!(why.contains("postgres://USER") && !why.contains("secret"), "{bad}: {why}");
        }
        let verified = "postgres://db/net?sslmode=verify-full&sslrootcert=/etc/ca.pem";
        let url = PostgresUrl::parse(verified).unwrap();
        assert_eq!(url.roots(), Some(Path::new("/etc/ca.pem")));
    }
}
