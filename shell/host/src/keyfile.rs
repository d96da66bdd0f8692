//! Files that have preshared keys: one, in base64, or the blocks of a schedule.
//!
//! A file is read in whole when the link's file is, and again when that is read again. What becomes
//! of it in between does not matter to the link, but it is told: see [`KeyFile::change`].

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use node::{Preshared, Schedule};
use noise::{BadMaterial, KeyMaterial, PresharedKey};

/// The longest key file, in bytes: blocks for two centuries of hours.
pub const KEY_FILE_LEN_MAX: u64 = 128 << 20;
/// How far apart both ends may change keys, if nothing is said.
pub const OVERLAP: Duration = Duration::from_secs(60);
/// And at most.
pub const OVERLAP_MAX: Duration = Duration::from_secs(3600);
/// The shortest period of a schedule: handshakes are no closer.
pub const PERIOD_MIN: Duration = noise::REKEY_TIMEOUT;
/// The longest.
pub const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a link's file says of a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// Where it is; what is relative is so to the directory of the link's file.
    pub path: PathBuf,
    /// How long each key is used, if it has those of a schedule.
    pub period: Option<Duration>,
    /// How far apart both ends may change keys.
    pub overlap: Duration,
    /// What was read.
    seen: Option<Seen>,
}

/// By which a file is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    len: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Seen {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            changed_s: metadata.mtime(),
            changed_ns: metadata.mtime_nsec(),
        }
    }
}

/// What is wrong with a key file, and how to mend it.
#[derive(Debug)]
pub(crate) enum KeyFileError {
    Io(std::io::Error),
    /// A device or a pipe, which could not be read again.
    NoFile,
    /// Others may read it: its mode.
    Open(u32),
    Long,
    /// It was written while it was read.
    Moving,
    Material(BadMaterial),
    /// Not one key in base64.
    NoKey,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) if e.kind() == std::io::ErrorKind::NotFound => write!(
                f,
                "{e}; both ends need the same one: `dd if=/dev/urandom of=FILE bs=64 count=7300` \
                 makes one for a schedule, `warren genpsk` one key"
            ),
            Self::Io(e) => write!(f, "{e}"),
            Self::NoFile => f.write_str("not a file; it is read again when the link's file is"),
            Self::Open(mode) => {
                write!(f, "others may read or write it (mode {mode:03o}); run `chmod 400` on it")
            }
            Self::Long => {
                write!(f, "longer than {} MiB; is it the right file?", KEY_FILE_LEN_MAX >> 20)
            }
            Self::Moving => f.write_str("it changed while it was read; try again"),
            Self::Material(why) => why.fmt(f),
            Self::NoKey => f.write_str(
                "not one key in base64, as `warren genpsk` prints it; for the blocks of a schedule \
                 say PresharedKeySchedule = 24h",
            ),
        }
    }
}

impl KeyFile {
    pub(crate) fn new(path: PathBuf, period: Option<Duration>, overlap: Duration) -> Self {
        Self { path, period, overlap, seen: None }
    }

    /// Reads it, from `directory` if it is relative.
    pub(crate) fn read(&mut self, directory: &Path) -> Result<Preshared, KeyFileError> {
        self.path = directory.join(&self.path);
        let metadata = std::fs::metadata(&self.path).map_err(KeyFileError::Io)?;
        if !metadata.is_file() {
            return Err(KeyFileError::NoFile);
        }
        let file = File::open(&self.path).map_err(KeyFileError::Io)?;
        let metadata = file.metadata().map_err(KeyFileError::Io)?;
        if metadata.mode() & 0o007 != 0 {
            return Err(KeyFileError::Open(metadata.mode() & 0o777));
        }
        if metadata.len() > KEY_FILE_LEN_MAX {
            return Err(KeyFileError::Long);
        }
        let seen = Seen::of(&metadata);
        // Exactly as long as the file, so that nothing of it stays where a longer one grew.
        let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
        (&file).take(metadata.len() + 1).read_to_end(&mut bytes).map_err(KeyFileError::Io)?;
        let after = file.metadata().map_err(KeyFileError::Io)?;
        if bytes.len() as u64 != metadata.len() || Seen::of(&after) != seen {
            wipe(&mut bytes);
            return Err(KeyFileError::Moving);
        }
        let told = self.keys(bytes)?;
        self.seen = Some(seen);
        Ok(told)
    }

    fn keys(&self, mut bytes: Vec<u8>) -> Result<Preshared, KeyFileError> {
        let Some(period) = self.period else {
            let text = std::str::from_utf8(&bytes).ok();
            let key = text.and_then(|text| text.trim().parse::<PresharedKey>().ok());
            wipe(&mut bytes);
            let key = key.ok_or(KeyFileError::NoKey)?;
            return Ok(Preshared::Key(key, self.overlap));
        };
        let material = KeyMaterial::new(bytes).map_err(KeyFileError::Material)?;
        let schedule = Schedule::new(material, period, self.overlap);
        let schedule = schedule.expect("what was parsed has an overlap of half a period at most");
        Ok(Preshared::Scheduled(Arc::new(schedule)))
    }

    /// What happened to the file since it was read, if anything did.
    pub fn change(&self) -> Option<&'static str> {
        let seen = self.seen?;
        match std::fs::metadata(&self.path) {
            Ok(metadata) if Seen::of(&metadata) == seen => None,
            Ok(_) => Some("changed"),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some("was removed"),
            Err(_) => Some("cannot be looked at"),
        }
    }
}

fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}
