//! What a node keeps in its directory: keys and membership in `node.json`, the signed map in
//! `map.json`. Each is replaced as a whole, so that a process that is killed, or a disk that is
//! full, leaves the one before. One daemon at a time holds the directory.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::limits::URLS_KEPT_MAX;
use control::{ServerUrl, Signed, VerifyingKey};
use dial::SystemRandom;
use lock::{Lock, private_directory};
use noise::{PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::Settings;

/// The directory when none is named.
pub const DIRECTORY: &str = "/var/lib/warren-node";
const NODE: &str = "node.json";
const MAP: &str = "map.json";
/// What only helps: see `seen`.
const SEEN: &str = "seen.json";
/// By whom circuits enter: see `member::circuits::guards`.
const GUARDS: &str = "circuits.json";
const LOCK: &str = "lock";
/// The version of `node.json`.
const VERSION: u32 = 1;
/// Bytes of a file, at most: larger ones are not ours.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is in `node.json`.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The machine's key, which the server knows it by.
    pub machine: PrivateKey,
    /// The WireGuard key.
    pub node: PrivateKey,
    /// The WireGuard key that was asked for, until the server has said yes.
    pub next: Option<PrivateKey>,
    /// The network it belongs to, or is about to join.
    pub member: Option<Member>,
    /// Whether it is to be up.
    pub wanted: bool,
    /// Settings.
    pub settings: Settings,
    /// The settings to go back to, while those above are on trial.
    pub trial: Option<Settings>,
}

/// A membership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Where the server is, the preferred first.
    pub urls: Vec<ServerUrl>,
    /// Its key.
    #[serde(with = "control::text::key")]
    pub server: PublicKey,
    /// What its maps are signed with, once that was said.
    pub verifying: Option<VerifyingKey>,
    /// The token, until it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether somebody has to sign in in a browser before this machine is in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signs_in: bool,
}

impl Member {
    /// Puts these URLs first, and those that were known behind them.
    pub(crate) fn learn(&mut self, told: &[ServerUrl]) {
        let known = std::mem::take(&mut self.urls);
        for url in told.iter().cloned().chain(known) {
            if !self.urls.contains(&url) && self.urls.len() < URLS_KEPT_MAX {
                self.urls.push(url);
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    machine: String,
    node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<Member>,
    wanted: bool,
    #[serde(default)]
    settings: Settings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Settings>,
}

/// Why the directory cannot be used.
#[derive(Debug)]
pub enum StateError {
    /// The system refused; what was to be done, and with which file.
    Io(&'static str, PathBuf, io::Error),
    /// Another daemon has it.
    Taken(PathBuf),
    /// `node.json` is damaged; what is wrong with it.
    Damaged(PathBuf, String),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, path, error) => write!(f, "cannot {what} {}: {error}", path.display()),
            Self::Taken(path) => write!(
                f,
                "another daemon uses {}; stop it, or give this one another --state",
                path.display()
            ),
            Self::Damaged(path, why) => write!(
                f,
                "{} cannot be read: {why}; put a copy of it back, or move it away and join again \
                 with a token",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StateError {}

/// A node's directory, held until it is dropped.
#[derive(Debug)]
pub struct State {
    directory: PathBuf,
    /// What `node.json` says, to be changed and then saved.
    pub kept: Kept,
    _lock: Lock,
}

impl State {
    /// Opens the directory, and makes it with new keys if there is none.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let at = |what, path: &Path| {
            let path = path.to_owned();
            move |error| StateError::Io(what, path, error)
        };
        if private_directory(directory).map_err(at("use", directory))? {
            tracing::warn!("others could write into {}: no more", directory.display());
        }
        let lock = directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let held = options.open(&lock).map_err(at("open", &lock))?;
        let held = match Lock::take(held) {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return Err(StateError::Taken(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(at("lock", &lock)(error)),
        };
        let path = directory.join(NODE);
        let (kept, is_new) = match read(&path) {
            Ok(text) => {
                let damaged = |why| StateError::Damaged(path.clone(), why);
                (parse(&text).map_err(damaged)?, false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Kept::new(), true),
            Err(error) => return Err(at("read", &path)(error)),
        };
        let state = Self { directory: directory.to_owned(), kept, _lock: held };
        if is_new {
            state.save()?;
        }
        Ok(state)
    }

    /// Where all of it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes `node.json`.
    ///
    /// # Errors
    /// The file before is still there.
    pub fn save(&self) -> Result<(), StateError> {
        let kept = &self.kept;
        let mut text = Text {
            version: VERSION,
            machine: kept.machine.to_base64(),
            node: kept.node.to_base64(),
            next: kept.next.as_ref().map(PrivateKey::to_base64),
            member: kept.member.clone(),
            wanted: kept.wanted,
            settings: kept.settings.clone(),
            trial: kept.trial.clone(),
        };
        let mut bytes = serde_json::to_vec_pretty(&text).expect("it is plain");
        let written = self.replace(NODE, &bytes);
        bytes.zeroize();
        text.machine.zeroize();
        text.node.zeroize();
        text.next.zeroize();
        written
    }

    /// The signed statements of the map that was kept. None if they cannot be read: the server
    /// has them.
    #[must_use]
    pub fn map(&self) -> Vec<Arc<Signed>> {
        let path = self.directory.join(MAP);
        match read(&path).map(|text| serde_json::from_str::<Vec<Signed>>(&text)) {
            Ok(Ok(statements)) => statements.into_iter().map(Arc::new).collect(),
            Ok(Err(error)) => {
                tracing::warn!("{} is damaged and left aside: {error}", path.display());
                Vec::new()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!("cannot read {}: {error}", path.display());
                Vec::new()
            }
        }
    }

    /// Keeps the map for a start without a server.
    ///
    /// # Errors
    /// The one before is still there.
    pub fn save_map(&self, statements: &[Arc<Signed>]) -> Result<(), StateError> {
        let statements: Vec<&Signed> = statements.iter().map(AsRef::as_ref).collect();
        self.replace(MAP, &serde_json::to_vec(&statements).expect("it is plain"))
    }

    /// What was seen last, if it was kept.
    pub(crate) fn seen(&self) -> Option<String> {
        read(&self.directory.join(SEEN)).ok()
    }

    /// Keeps what was seen last.
    ///
    /// # Errors
    /// What was kept before is still there.
    pub(crate) fn save_seen(&self, bytes: &[u8]) -> Result<(), StateError> {
        self.replace(SEEN, bytes)
    }

    /// The entries of circuits that were kept, if they can be read.
    pub(crate) fn guards(&self) -> Option<String> {
        read(&self.directory.join(GUARDS)).ok()
    }

    /// Keeps the entries of circuits.
    ///
    /// # Errors
    /// Those before are still there.
    pub(crate) fn save_guards(&self, bytes: &[u8]) -> Result<(), StateError> {
        self.replace(GUARDS, bytes)
    }

    /// Forgets membership, map and keys; settings stay.
    ///
    /// # Errors
    /// The files could not be written.
    pub fn forget(&mut self) -> Result<(), StateError> {
        let settings = self.kept.settings.clone();
        self.kept = Kept { settings, ..Kept::new() };
        for name in [MAP, SEEN] {
            let path = self.directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StateError::Io("remove", path, error));
                }
                _ => {}
            }
        }
        self.save()
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.directory.join(name);
        let new = self.directory.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let write = || -> io::Result<()> {
            let mut file = options.open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&new);
            StateError::Io("write", path.clone(), error)
        })
    }
}

impl Kept {
    fn new() -> Self {
        Self {
            machine: PrivateKey::generate(&mut SystemRandom),
            node: PrivateKey::generate(&mut SystemRandom),
            next: None,
            member: None,
            wanted: false,
            settings: Settings::default(),
            trial: None,
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let len = fs::metadata(path)?.len();
    if len > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has {len} bytes, which no file of ours has")));
    }
    fs::read_to_string(path)
}

fn parse(text: &str) -> Result<Kept, String> {
    let text: Text = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if text.version != VERSION {
        return Err(format!("it is of version {}; this program reads {VERSION}", text.version));
    }
    let key = |name: &str, text: &str| {
        text.parse::<PrivateKey>().map_err(|_| format!("{name:?} is no key"))
    };
    Ok(Kept {
        machine: key("machine", &text.machine)?,
        node: key("node", &text.node)?,
        next: text.next.map(|next| key("next", &next)).transpose()?,
        member: text.member,
        wanted: text.wanted,
        settings: text.settings,
        trial: text.trial,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("warren-state-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_kept_is_there_again_and_one_daemon_has_it() {
        let folder = Folder::new("kept");
        let mut state = State::open(&folder.0).unwrap();
        state.kept.wanted = true;
        state.kept.settings.hostname = Some("robot".to_owned());
        state.save().unwrap();
        let machine = state.kept.machine.public();
        assert!(matches!(State::open(&folder.0), Err(StateError::Taken(_))));
        drop(state);
        let mut state = State::open(&folder.0).unwrap();
        assert_eq!(state.kept.machine.public(), machine);
        assert!(state.kept.wanted);
        state.forget().unwrap();
        assert_ne!(state.kept.machine.public(), machine, "another machine, for the server");
        assert_eq!(state.kept.settings.hostname.as_deref(), Some("robot"));
    }

    /// What a process that is killed, or a machine without power, can leave of a write: some of the
    /// new file beside the whole old one, or the new one in its place. Which bytes of a file are on
    /// the disk before it was synced is the disk's to say, so the new one may be anything.
    #[test]
    fn lc_01_whatever_a_cut_leaves_of_a_write_is_the_state_before_or_after() {
        let folder = Folder::new("cut");
        let mut state = State::open(&folder.0).unwrap();
        let machine = state.kept.machine.public();
        state.kept.settings.hostname = Some("before".to_owned());
        state.save().unwrap();
        let path = folder.0.join(NODE);
        let before = fs::read(&path).unwrap();
        state.kept.settings.hostname = Some("after-with-more-in-it".to_owned());
        state.save().unwrap();
        let after = fs::read(&path).unwrap();
        drop(state);
        let new = folder.0.join(format!("{NODE}.new"));
        let hostname = |cut: &str| {
            let mut state = State::open(&folder.0).unwrap();
            assert_eq!(state.kept.machine.public(), machine, "{cut}");
            let hostname = state.kept.settings.hostname.take();
            // And the next write is whole, whatever lay about.
            state.kept.settings.hostname = Some("next".to_owned());
            state.save().unwrap();
            drop(state);
            assert!(!new.exists());
            let state = State::open(&folder.0).unwrap();
            assert_eq!(state.kept.settings.hostname.as_deref(), Some("next"), "{cut}");
            hostname.unwrap()
        };
        for len in 0..=after.len() {
            for rubbish in [false, true] {
                let mut left = after[..len].to_vec();
                if rubbish {
                    left.iter_mut().skip(len / 2).for_each(|byte| *byte = 0);
                }
                fs::write(&path, &before).unwrap();
                fs::write(&new, &left).unwrap();
                assert_eq!(hostname(&format!("{len} bytes")), "before");
            }
        }
        fs::write(&new, &after).unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!(hostname("renamed"), "after-with-more-in-it");
    }

    #[test]
    fn damage_is_told_and_mended_by_its_owner() {
        let folder = Folder::new("damage");
        drop(State::open(&folder.0).unwrap());
        let path = folder.0.join(NODE);
        let whole = fs::read_to_string(&path).unwrap();
        for broken in ["", "{", &whole[..whole.len() / 2], "{\"version\": 9}"] {
            fs::write(&path, broken).unwrap();
            let error = State::open(&folder.0).unwrap_err().to_string();
            assert!(error.contains("put a copy of it back"), "{error}");
        }
        let future = whole.replace("\"version\": 1", "\"version\": 2");
        fs::write(&path, future).unwrap();
        assert!(State::open(&folder.0).unwrap_err().to_string().contains("version 2"));
        fs::write(&path, whole).unwrap();
        fs::write(folder.0.join(MAP), "rubbish").unwrap();
        assert_eq!(State::open(&folder.0).unwrap().map(), []);
    }
}
