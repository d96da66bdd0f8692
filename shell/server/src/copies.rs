//! A copy of everything for an administrator elsewhere: made in the directory, as `warren backup`
//! makes it there, and read in pieces, so that no memory has to hold it. There is one at a time; it
//! is removed when it was read, when another is begun, after an hour, and with the server.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::backup::backup;
use crate::clock::Moment;
use crate::held::held;

/// The file, for its owner only, as the whole directory is.
const FILE: &str = "backup.copy";
/// Bytes of one piece; an answer in a channel has room for twice as much.
pub(crate) const PIECE_LEN: u64 = 4 << 20;
/// A copy that nobody reads to its end is kept so long, in seconds.
const KEPT_S: u64 = 3600;

/// See the module.
pub(crate) struct Copies {
    data: PathBuf,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    copy: Option<Copy>,
    last_id: u64,
}

/// The one that is there.
struct Copy {
    id: u64,
    len: u64,
    made_up_s: u64,
}

impl Copies {
    /// Of the server in this directory.
    pub(crate) fn new(data: PathBuf) -> Self {
        Self { data, held: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.data.join(FILE)
    }

    /// Removes what is there, also of a server that was killed.
    pub(crate) fn clear(&self) {
        self.remove(&mut held(&self.held));
    }

    fn remove(&self, held: &mut Held) {
        held.copy = None;
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!("{}: {error}; it has the server's keys", self.path().display());
            }
            _ => {}
        }
    }

    /// Makes a copy in place of the one there is: its number, and its length in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the books are in no file; what the disk refused.
    pub(crate) fn make(&self, now: Moment) -> io::Result<(u64, u64)> {
        let mut held = held(&self.held);
        self.remove(&mut held);
        let len = backup(&self.data, &self.path())?;
        let id = now.unix_s.max(held.last_id + 1);
        held.last_id = id;
        held.copy = Some(Copy { id, len, made_up_s: now.up_s });
        Ok((id, len))
    }

    /// A piece from `offset` on, and the length of all; nothing if that copy is there no longer.
    ///
    /// # Errors
    /// What the disk refused.
    pub(crate) fn piece(&self, id: u64, offset: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
        let held = held(&self.held);
        let Some(copy) = held.copy.as_ref().filter(|copy| copy.id == id) else { return Ok(None) };
        let len = copy.len.saturating_sub(offset).min(PIECE_LEN);
        let mut piece = vec![0; usize::try_from(len).unwrap_or(0)];
        File::open(self.path())?.read_exact_at(&mut piece, offset)?;
        Ok(Some((piece, copy.len)))
    }

    /// Removes that copy; whether it was there.
    pub(crate) fn end(&self, id: u64) -> bool {
        let mut held = held(&self.held);
        let is_there = held.copy.as_ref().is_some_and(|copy| copy.id == id);
        if is_there {
            self.remove(&mut held);
        }
        is_there
    }

    /// Removes a copy that nobody wanted to its end.
    pub(crate) fn sweep(&self, up_s: u64) {
        let mut held = held(&self.held);
        if held.copy.as_ref().is_some_and(|copy| up_s >= copy.made_up_s.saturating_add(KEPT_S)) {
            tracing::warn!("a backup was not read to its end within an hour, and is removed");
            self.remove(&mut held);
        }
    }
}
