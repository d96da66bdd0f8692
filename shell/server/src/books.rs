//! A server's folder, and where its books are: in a file of it, or in PostgreSQL. The folder
//! remembers which, so that neither a forgotten flag nor a wrong one begins another network.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use lock::Lock;

use crate::keys;
use crate::store::{Place, PostgresUrl};

/// The database in its folder.
pub(crate) const DATABASE: &str = "warren.db";
/// The keys beside it.
pub(crate) const KEYS: &str = "keys";
/// The socket for administrators on this machine.
pub(crate) const SOCKET: &str = "warren.sock";
/// The file that says in which database the books are, without any password.
const ELSEWHERE: &str = "store";

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Two servers on one directory would each know half.
pub(crate) fn lock(data: &Path) -> io::Result<Lock> {
    let path = data.join("lock");
    let file =
        File::options().create(true).append(true).open(&path).map_err(|error| at(&path, &error))?;
    match Lock::take(file) {
        Ok(lock) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another server runs on {}; stop it, or use another --data", data.display()),
        )),
        Err(TryLockError::Error(error)) => Err(at(&path, &error)),
    }
}

fn refuse(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Where the books of this folder are; `store` is the URL of a database, if one is given.
///
/// # Errors
/// If the folder says otherwise, or the URL is none.
pub(crate) fn place(data: &Path, store: Option<&str>) -> io::Result<Place> {
    let database = data.join(DATABASE);
    let keys = data.join(KEYS);
    let Some(store) = store else {
        if let Some(place) = elsewhere(data)? {
            return Err(refuse(format!(
                "this server's books are in {place}; give its URL with --store or WARREN_STORE"
            )));
        }
        if keys.exists() && !database.exists() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} is gone; put it back from a backup", database.display()),
            ));
        }
        return Ok(Place::File(database));
    };
    let url = PostgresUrl::parse(store).map_err(|why| refuse(why.to_string()))?;
    if database.exists() {
        return Err(refuse(format!(
            "{} has the books of a network already, so --store would begin another; leave it out, \
             or use an empty --data",
            database.display()
        )));
    }
    Ok(Place::Postgres { url, may_make: !keys.exists() })
}

/// Remembers where the books are, once they are open.
///
/// # Errors
/// Those of the file system.
pub(crate) fn remember(data: &Path, place: &Place) -> io::Result<()> {
    let Place::Postgres { url, .. } = place else { return Ok(()) };
    let text = format!("{url}\n");
    let path = data.join(ELSEWHERE);
    if fs::read_to_string(&path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    keys::write(&path, text.as_bytes())
}

/// The database that has this folder's books, if they are in none of its files.
///
/// # Errors
/// Those of the file system.
pub(crate) fn elsewhere(data: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(data.join(ELSEWHERE)) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
