//! The topology file: its keys, and what is said of mistakes in it.
//!
//! ```toml
//! name = "example"              # of the lab; without it the file's own name
//!
//! [hosts.alice]
//! blocked = ["udp"]             # also "tcp", "icmp", "all-but-443"
//!
//! [routers.home]
//! nat = "port-restricted"       # or "full-cone", "address-restricted", "symmetric"
//! outside = ["home-net"]        # the links it translates on
//!
//! [switches.net]
//!
//! [[links]]
//! between = ["alice", "home"]   # named alice-home unless `name` says otherwise
//! addresses = [["10.0.0.2/24"], ["10.0.0.1/24"]]        # without them they are assigned
//! impair = "medium loss=2%"     # makes it an impaired wire; `impair-back` for the other way
//! seed = 7                      # of the wire's chance
//! mtu = 1500
//!
//! [[links]]
//! between = ["home", "net"]
//! shape = { rate = "20mbit", burst = "32kb", latency = "50ms" }    # both ways, by tbf
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

/// Largest topology file that is read.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is wrong with a topology file, where, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub path: PathBuf,
    /// Its line, from 1; 0 where it is the file as a whole.
    pub line: usize,
    /// The column in it, from 1, in characters.
    pub column: usize,
    /// What is wrong and how to mend it.
    pub what: String,
}

/// A topology as it was written; [`super::Plan::new`] makes sense of it.
#[derive(Debug, Clone)]
pub struct Topology {
    pub(super) raw: Raw,
    text: String,
    path: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) name: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) hosts: BTreeMap<Spanned<String>, RawHost>,
    #[serde(default)]
    pub(super) routers: BTreeMap<Spanned<String>, RawRouter>,
    #[serde(default)]
    pub(super) switches: BTreeMap<Spanned<String>, RawSwitch>,
    #[serde(default)]
    pub(super) links: Vec<Spanned<RawLink>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    #[serde(default)]
    pub(super) blocked: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRouter {
    #[serde(default)]
    pub(super) blocked: Vec<Spanned<String>>,
    pub(super) nat: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) outside: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawLink {
    pub(super) name: Option<Spanned<String>>,
    pub(super) between: Spanned<Vec<Spanned<String>>>,
    pub(super) addresses: Option<Spanned<Vec<Vec<Spanned<String>>>>>,
    pub(super) impair: Option<Spanned<String>>,
    pub(super) impair_back: Option<Spanned<String>>,
    pub(super) seed: Option<u64>,
    pub(super) mtu: Option<Spanned<usize>>,
    pub(super) shape: Option<RawShape>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShape {
    pub(super) rate: Spanned<String>,
    pub(super) burst: Spanned<String>,
    pub(super) latency: Spanned<String>,
}

impl Topology {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns the mistake; a file that cannot be read is one without a line.
    pub fn read(path: &Path) -> Result<Self, Mistake> {
        let unreadable = |what: String| Mistake { path: path.to_owned(), line: 0, column: 0, what };
        let refused = |error: std::io::Error| {
            unreadable(format!("it cannot be read: {error}; check the path"))
        };
        let len = std::fs::metadata(path).map_err(refused)?.len();
        if len > FILE_BYTES_MAX {
            return Err(unreadable(format!("it has {len} bytes, above {FILE_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(refused)?;
        Self::parse(&text, path)
    }

    /// Reads a text that came from `path`.
    ///
    /// # Errors
    /// Returns the first mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Mistake> {
        let raw = toml::from_str(text).map_err(|error| {
            mistake(text, path, error.span().unwrap_or(0..0), error.message().to_owned())
        })?;
        Ok(Self { raw, text: text.to_owned(), path: path.to_owned() })
    }

    /// The file as it was read.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the file without its folder and ending.
    pub(super) fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn mistake(&self, span: Range<usize>, what: impl Into<String>) -> Mistake {
        mistake(&self.text, &self.path, span, what.into())
    }
}

fn mistake(text: &str, path: &Path, span: Range<usize>, what: String) -> Mistake {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Mistake { path: path.to_owned(), line, column, what }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let what = self.what.trim_end();
        match self.line {
            0 => write!(f, "{path}: {what}"),
            line => write!(f, "{path}:{line}:{}: {what}", self.column),
        }
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_has_no_line() {
        let said = |path: &str| Topology::read(Path::new(path)).unwrap_err().to_string();
        let missing = said("/nowhere/topology.toml");
        assert!(missing.starts_with("/nowhere/topology.toml: it cannot be read: No such"));
        assert!(missing.ends_with("; check the path"), "{missing}");
        assert!(said("/").contains("Is a directory"));
    }
}
