//! A copy of everything in one file, made while the server runs or stands, and taken back by a
//! start with it in the database's place.
//!
//! The copy is the database as it is at one moment, with the server's own keys in a table that no
//! running database has. A start that finds this table puts the keys back into their file and
//! removes it. So a backup must be kept as the directory itself is: who has it, is the server.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::books::{DATABASE, KEYS};
use crate::{books, keys};

/// How long a write of the server may hold us up.
const BUSY_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The file whose name goes on with `suffix`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn broken(path: &Path) -> impl Fn(rusqlite::Error) -> io::Error {
    move |error| io::Error::other(format!("{}: {error}", path.display()))
}

/// Writes everything that is in a server's folder into one new file, for its owner only: its
/// length in bytes.
///
/// # Errors
/// If the folder has no server's files, or the file is there already or cannot be written. Then
/// no file is left.
pub fn backup(data: &Path, to: &Path) -> io::Result<u64> {
    let database = data.join(DATABASE);
    let keys = data.join(KEYS);
    if let Some(place) = books::elsewhere(data)? {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "this server's books are in {place}: copy them with PostgreSQL's pg_dump, and keep \
                 a copy of {}, without which no node trusts them",
                keys.display()
            ),
        ));
    }
    let keys = fs::read(&keys).map_err(at(&keys))?;
    let refuse = |error| io::Error::new(io::ErrorKind::AlreadyExists, error);
    if to.exists() {
        let why = "it is there already; a backup overwrites nothing";
        return Err(refuse(format!("{}: {why}", to.display())));
    }
    let part = beside(to, ".part");
    let done = copy(&database, &keys, &part).and_then(|len| {
        fs::hard_link(&part, to).map_err(at(to))?;
        Ok(len)
    });
    let _ = fs::remove_file(&part);
    done
}

fn copy(database: &Path, keys: &[u8], part: &Path) -> io::Result<u64> {
    let _ = fs::remove_file(part);
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    drop(new.map_err(at(part))?);
    let from = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let from = from.map_err(broken(database))?;
    from.busy_timeout(BUSY_WAIT).map_err(broken(database))?;
    from.execute("VACUUM INTO ?1", [part.to_string_lossy()]).map_err(broken(part))?;
    let into = Connection::open(part).map_err(broken(part))?;
    let sql = "CREATE TABLE backup (keys BLOB NOT NULL) STRICT";
    into.execute(sql, []).map_err(broken(part))?;
    into.execute("INSERT INTO backup (keys) VALUES (?1)", [keys]).map_err(broken(part))?;
    into.close().map_err(|(_, error)| broken(part)(error))?;
    let file = File::open(part).map_err(at(part))?;
    file.sync_all().map_err(at(part))?;
    Ok(file.metadata().map_err(at(part))?.len())
}

/// Takes the keys out of a database that is a backup. Any other is left alone.
///
/// # Errors
/// If there are other keys already, or a file cannot be written.
pub(crate) fn unpack(data: &Path) -> io::Result<()> {
    let database = data.join(DATABASE);
    let path = data.join(KEYS);
    if !database.exists() {
        return Ok(());
    }
    let db = Connection::open(&database).map_err(broken(&database))?;
    db.busy_timeout(BUSY_WAIT).map_err(broken(&database))?;
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'backup')";
    // What is no database is told by whoever opens it next.
    if !db.query_row(sql, [], |row| row.get(0)).unwrap_or(false) {
        return Ok(());
    }
    let sql = "SELECT keys FROM backup";
    let kept: Option<Vec<u8>> =
        db.query_row(sql, [], |row| row.get(0)).optional().map_err(broken(&database))?;
    match (fs::read(&path), kept) {
        (Ok(there), Some(kept)) if there != kept => {
            let why = "holds other keys than the backup; move it away to take the backup's";
            let why = format!("{} {why}", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        (Ok(_), _) | (_, None) => {}
        (Err(error), Some(kept)) if error.kind() == io::ErrorKind::NotFound => {
            keys::write(&path, &kept)?;
        }
        (Err(error), _) => return Err(at(&path)(error)),
    }
    let sql = "PRAGMA secure_delete = ON; DROP TABLE backup;";
    db.execute_batch(sql).map_err(broken(&database))
}
