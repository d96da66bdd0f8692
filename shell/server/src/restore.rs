//! A backup that takes the database's place, also while the server runs: it is looked at as a
//! start would, laid beside the database, and taken by the next start. A server that runs sees it
//! within a second and starts again. What was there before is kept, so that a backup of the wrong
//! day is no loss.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::backup::{at, beside, broken};
use crate::books::{self, DATABASE, KEYS, SOCKET};
use crate::keys::{self, SystemRandom};
use crate::store::{Place, Store};

/// A backup that waits to be taken.
const WAITING: &str = "restore.db";
/// What was in its place.
const BEFORE: &str = "before-restore.db";
/// Files that belong to a database, by what follows its name.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];
/// How long a running server may take to start with it.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(50);

/// Who took the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// A server that runs has started anew with it.
    Running,
    /// None runs; the next start has it.
    Standing,
}

fn refuse<T>(kind: io::ErrorKind, why: String) -> io::Result<T> {
    Err(io::Error::new(kind, why))
}

/// Removes a database and all that belongs to it, as far as it is there.
fn clear(database: &Path) {
    PARTS.iter().for_each(|suffix| drop(fs::remove_file(beside(database, suffix))));
}

/// Puts the backup in `from` in the place of the books in `data`, whose server may run.
///
/// # Errors
/// If it is no backup, another server's, damaged, or of a later version; if the books are in no
/// file; if something cannot be written, or the server does not come back. All but the last leave
/// everything as it was.
pub fn restore(data: &Path, from: &Path) -> io::Result<Restored> {
    if let Some(place) = books::elsewhere(data)? {
        let why = "load a dump with PostgreSQL's own programs, while the server is stopped";
        return refuse(io::ErrorKind::Unsupported, format!("its books are in {place}: {why}"));
    }
    let waiting = data.join(WAITING);
    let part = beside(&waiting, ".part");
    let staged = stage(data, from, &part).and_then(|()| {
        fs::rename(&part, &waiting).map_err(at(&waiting))?;
        sync(data)
    });
    clear(&part);
    staged?;
    match books::lock(data) {
        Ok(_lock) => take(data).map(|_| Restored::Standing),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            wait(data, &waiting).map(|()| Restored::Running)
        }
        Err(error) => Err(error),
    }
}

/// Copies the file and looks whether a server here could start with it.
fn stage(data: &Path, from: &Path, part: &Path) -> io::Result<()> {
    let mut source = File::open(from).map_err(at(from))?;
    clear(part);
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    let mut file = new.map_err(at(part))?;
    io::copy(&mut source, &mut file).map_err(at(part))?;
    file.sync_all().map_err(at(part))?;
    let kept = look(part, from)?;
    let path = data.join(KEYS);
    match fs::read(&path) {
        Ok(there) if there != kept => {
            let from = from.display();
            let path = path.display();
            let why = "to become that server, take an empty directory";
            let why = format!("{from} is another server's: {path} has other keys; {why}");
            return refuse(io::ErrorKind::InvalidInput, why);
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
        _ => {}
    }
    let pepper = keys::pepper(&kept);
    let bad = |why: String| io::Error::other(format!("{}: {why}", from.display()));
    let pepper = pepper.ok_or_else(|| bad("the keys in it are damaged".to_owned()))?;
    // As a start does: this refuses what is of a later version, and updates what is older.
    let store = Store::open(&Place::File(part.to_owned()), &pepper, None, &mut SystemRandom);
    let store = store.map_err(|why| bad(why.to_string()))?;
    store.is_empty().map_err(|why| bad(why.to_string()))?;
    drop(store);
    // With all that the update wrote.
    File::open(part).and_then(|file| file.sync_all()).map_err(at(part))
}

/// The keys in a backup that is whole.
fn look(part: &Path, from: &Path) -> io::Result<Vec<u8>> {
    let bad =
        |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{} {why}", from.display()));
    let damaged = |what: &str| bad(&format!("is damaged ({what}); take another copy"));
    let refused = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => damaged(&error.to_string()),
        _ => bad("is no backup that `warren backup` made"),
    };
    let db = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let db = db.map_err(broken(part))?;
    let kept = db.query_row("SELECT keys FROM backup", [], |row| row.get(0)).map_err(refused)?;
    let whole: String =
        db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(refused)?;
    if whole == "ok" { Ok(kept) } else { Err(damaged(&whole)) }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

/// Whether a backup waits in a server's directory.
pub(crate) fn is_waiting(data: &Path) -> bool {
    data.join(WAITING).exists()
}

/// Takes the backup that waits, if one does. Whoever calls has the lock. A cut at any moment is
/// mended by the next call: the database is never without its own journal.
///
/// # Errors
/// If a file cannot be moved.
pub(crate) fn take(data: &Path) -> io::Result<bool> {
    let waiting = data.join(WAITING);
    let database = data.join(DATABASE);
    let before = data.join(BEFORE);
    if !waiting.exists() {
        return Ok(false);
    }
    if database.exists() {
        clear(&before);
    }
    for suffix in PARTS {
        let from = beside(&database, suffix);
        let to = beside(&before, suffix);
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&from)(error)),
            _ => {}
        }
    }
    sync(data)?;
    fs::rename(&waiting, &database).map_err(at(&database))?;
    sync(data)?;
    tracing::warn!("{} was restored; {} is what was there", database.display(), before.display());
    Ok(true)
}

/// Waits until a running server has started with it.
fn wait(data: &Path, waiting: &Path) -> io::Result<()> {
    let begin = Instant::now();
    let socket = data.join(SOCKET);
    let is_up = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    while waiting.exists() || !is_up() {
        if begin.elapsed() > PATIENCE {
            let why = "the server has not restarted; look at its log, and start it";
            return refuse(io::ErrorKind::TimedOut, why.to_owned());
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}
