//! What is asked of circuits: by commands, and in what `warren set` keeps.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use control::VerifyingKey;
use serde::{Deserialize, Serialize};

/// What is asked of circuits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "circuit", rename_all = "kebab-case")]
pub enum CircuitAsk {
    /// To begin one; the answer has its number, and it does not carry yet.
    Open(Wanted),
    /// All of them.
    List,
    /// One of them.
    Show {
        /// Its number.
        id: u16,
    },
    /// To end one.
    Close {
        /// Its number.
        id: u16,
    },
}

/// What a circuit is to be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Hops; three if it is not said.
    pub hops: Option<usize>,
    /// These, in this order, by name or address.
    #[serde(default)]
    pub via: Vec<String>,
    /// The last one.
    pub exit: Option<String>,
    /// Whether another one takes its place when it dies.
    #[serde(default)]
    pub again: bool,
}

/// Which directory, and by whom it is signed: `KEY:FILE`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DirectoryAt {
    /// Whose signature counts.
    pub key: VerifyingKey,
    /// Where the file is.
    pub path: PathBuf,
}

impl fmt::Display for DirectoryAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", control::text::to_base64(&self.key.0), self.path.display())
    }
}

impl FromStr for DirectoryAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let why = || {
            format!(
                "{text:?}: KEY:FILE, where `warren circuit directory show FILE` says the key, and \
                 FILE begins with /"
            )
        };
        let (key, path) = text.split_once(':').ok_or_else(why)?;
        let key = control::text::from_base64(key).and_then(|key| key.try_into().ok());
        let path = PathBuf::from(path);
        let key = key.filter(|_| path.is_absolute()).ok_or_else(why)?;
        Ok(Self { key: VerifyingKey(key), path })
    }
}

impl From<DirectoryAt> for String {
    fn from(at: DirectoryAt) -> Self {
        at.to_string()
    }
}

impl TryFrom<String> for DirectoryAt {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Whether a door may be there: who reaches it uses this node's circuits.
pub(crate) fn check_place(at: SocketAddr) -> Result<(), String> {
    let is_near = match at.ip() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
    };
    (is_near && at.port() != 0).then_some(()).ok_or_else(|| {
        format!(
            "--socks {at}: whoever reaches the door uses this node's circuits, so it is at a \
             loopback or private address, with a port: --socks 127.0.0.1:1080"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_open_to_nobody_beyond() {
        for good in ["127.0.0.1:1080", "192.168.1.4:9", "[::1]:1080"] {
            assert_eq!(check_place(good.parse().unwrap()), Ok(()));
        }
        for bad in ["0.0.0.0:1080", "203.0.113.1:1080", "127.0.0.1:0", "[::]:1080"] {
            assert!(check_place(bad.parse().unwrap()).unwrap_err().contains("--socks"), "{bad}");
        }
    }
}
