//! What the node has promised of its stamps: see `node::Stamps`. The file is made once and then
//! written in place, so that a disk that is full later does not matter: two lines of fixed width,
//! of which the older one is overwritten, so that a write that is cut leaves the other. Each line
//! has its number twice; one whose halves differ was cut.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::state::StateError;

const FILE: &str = "stamps";
/// Two numbers of 20 digits, a blank between and a line's end.
const LINE_BYTES: usize = 42;
/// The latest time that is believed: 34,000 years, beyond any clock's.
const PROMISE_S_MAX: u64 = 1 << 40;

/// The file, held open.
#[derive(Debug)]
pub(crate) struct Promise {
    file: File,
    path: PathBuf,
    /// The line that is written next.
    next: usize,
}

impl Promise {
    /// Opens or makes it; and what was promised, in seconds since 1970, if anything was.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Option<u64>), StateError> {
        let path = directory.join(FILE);
        let at = |what| {
            let path = path.clone();
            move |error| StateError::Io(what, path, error)
        };
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.open(&path).map_err(at("open"))?;
        let mut bytes = [b' '; 2 * LINE_BYTES];
        let len = read(&file, &mut bytes).map_err(at("read"))?;
        let first = parse(&bytes[..LINE_BYTES]);
        let second = parse(&bytes[LINE_BYTES..]);
        if len > 0 && first.is_none() && second.is_none() {
            tracing::warn!(
                "{} is damaged and left aside: peers may refuse this node until its clock is \
                 later than what they have seen",
                path.display()
            );
        }
        let next = usize::from(first > second);
        Ok((Self { file, path, next }, first.max(second)))
    }

    /// Keeps a promise and returns it: it is on the disk then.
    ///
    /// # Errors
    /// What the system refused; the promise before is still there.
    pub(crate) fn keep(&mut self, promised_unix_s: u64) -> Result<u64, StateError> {
        let promised = promised_unix_s.min(PROMISE_S_MAX);
        let line = format!("{promised:020} {promised:020}\n");
        let offset = (self.next * LINE_BYTES) as u64;
        let written = self.file.write_all_at(line.as_bytes(), offset);
        written
            .and_then(|()| self.file.sync_all())
            .map_err(|error| StateError::Io("write", self.path.clone(), error))?;
        self.next = 1 - self.next;
        Ok(promised)
    }
}

fn read(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn parse(line: &[u8]) -> Option<u64> {
    let (one, two) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split_once(' ')?;
    let promised = one.parse().ok().filter(|promised| *promised <= PROMISE_S_MAX);
    promised.filter(|_| one == two && one.len() == 20)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lc_04_a_promise_is_there_again_and_a_write_that_was_cut_leaves_the_one_before() {
        let folder = std::env::temp_dir().join(format!("warren-promise-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let read = || Promise::open(&folder).unwrap().1;
        assert_eq!(read(), None);
        for promised in [1_800_000_000, 1_800_003_600, 1_831_536_000, 1_831_539_600] {
            Promise::open(&folder).unwrap().0.keep(promised).unwrap();
            assert_eq!(read(), Some(promised));
        }
        let path = folder.join(FILE);
        let before = fs::read(&path).unwrap();
        let (mut promise, _) = Promise::open(&folder).unwrap();
        promise.keep(1_900_000_000).unwrap();
        let after = fs::read(&path).unwrap();
        for cut in 0..=after.len() {
            let cut = [&after[..cut], &before[cut..]].concat();
            fs::write(&path, &cut).unwrap();
            let promised = read().unwrap();
            assert!([1_831_539_600, 1_900_000_000].contains(&promised), "{promised}");
        }
        for rubbish in ["", "rubbish", &"9".repeat(84), &"9".repeat(42)] {
            fs::write(&path, rubbish).unwrap();
            assert_eq!(read(), None);
            Promise::open(&folder).unwrap().0.keep(5).unwrap();
            assert_eq!(read(), Some(5));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
