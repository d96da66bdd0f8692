//! Hops of several operators: the directory that this node was told to use, and links to those in
//! it that its own network does not have.
//!
//! The file is looked at every few seconds; one that is not signed by the key that was named, or
//! is too old, is told of, and the one before goes on until its last day.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use directory::{Directory, FILE_BYTES_MAX, Hop};
use node::{Change, PeerChange};
use noise::PublicKey;

use crate::circuits::DirectoryAt;
use crate::member::{Daemon, Fault};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The directory as it was read last, and whom the data loop has a link to because of it.
#[derive(Debug, Default)]
pub(super) struct Book {
    at: Option<DirectoryAt>,
    read: Option<Directory>,
    changed: Option<(SystemTime, u64)>,
    looked: Option<Instant>,
    linked: BTreeMap<PublicKey, SocketAddr>,
    pub(super) said: Option<String>,
}

impl Book {
    /// Reads the file if it is another than before; whether that changed anything.
    fn look(&mut self, now_unix_s: u64) -> bool {
        let Some(at) = &self.at else { return false };
        let is_over = self.read.as_ref().is_some_and(|read| read.until.is_over(now_unix_s));
        let meta = std::fs::metadata(&at.path);
        let changed = meta.ok().and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        if changed == self.changed && self.looked.is_some() && !is_over {
            return false;
        }
        self.changed = changed;
        let opened = read(&at.path).and_then(|text| {
            directory::open(&text, &at.key, now_unix_s).map_err(|e| e.to_string())
        });
        match opened {
            Ok(directory) => (self.read, self.said) = (Some(directory), None),
            Err(why) => {
                let why = format!("the directory of circuits {}: {why}", at.path.display());
                if self.said.as_ref() != Some(&why) {
                    tracing::warn!("{why}");
                }
                self.said = Some(why);
                if is_over {
                    self.read = None;
                }
            }
        }
        true
    }
}

fn read(path: &std::path::Path) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if meta.len() > FILE_BYTES_MAX as u64 {
        return Err(format!("{} bytes; at most {FILE_BYTES_MAX}", meta.len()));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

impl Daemon {
    /// The hops of the directory.
    pub(super) fn directory_hops(&self) -> impl Iterator<Item = &Hop> {
        self.circuits.book.read.iter().flat_map(|directory| &directory.hops)
    }

    /// Those that this node has links to because of it.
    pub(super) fn book_links(&self) -> impl Iterator<Item = &PublicKey> {
        self.circuits.book.linked.keys()
    }

    /// Who runs a hop, where the directory says so.
    pub(super) fn operator(&self, key: &PublicKey) -> Option<String> {
        let hop = self.circuits.book.read.as_ref()?.hop(key)?;
        Some(hop.operator.clone())
    }

    /// Keeps links to the hops of the directory that the network does not have, and lets guests
    /// go that are gone.
    pub(super) fn keep_directory(&mut self) -> Result<(), Fault> {
        let wanted = &self.state.kept.settings.circuit_directory;
        if self.circuits.book.at != *wanted {
            let linked = std::mem::take(&mut self.circuits.book.linked);
            self.circuits.book = Book { at: wanted.clone(), linked, ..Book::default() };
        }
        let is_due = |at: Instant| at.elapsed() >= LOOK_EVERY;
        if !self.circuits.book.looked.is_none_or(is_due) {
            return Ok(());
        }
        let is_used = self.circuits.book.at.is_some() || !self.circuits.book.linked.is_empty();
        let now_s = self.now_unix_s();
        self.circuits.book.look(now_s);
        self.circuits.book.looked = Some(Instant::now());
        // An exit may have got a way out for IPv6, or lost it.
        if self.circuits.told.as_ref().is_some_and(|told| told.exit.is_some()) {
            self.tell_circuits()?;
        }
        if self.state.kept.settings.circuit_guests {
            self.remote.call(|desk| {
                let (node, clock, _) = desk.node();
                node.forget_guests(clock.now);
            })?;
        }
        if is_used { self.link_directory() } else { Ok(()) }
    }

    fn link_directory(&mut self) -> Result<(), Fault> {
        let own = self.state.kept.node.public();
        let is_ours = |key: &PublicKey| *key == own || self.plan.peers.contains_key(key);
        let hops = self.directory_hops().filter(|hop| !is_ours(&hop.key));
        // One of IPv4 first: every machine has that.
        let place = |hop: &Hop| {
            let v4 = hop.addresses.iter().find(|at| at.is_ipv4());
            Some((hop.key, *v4.or_else(|| hop.addresses.first())?))
        };
        let wanted: BTreeMap<PublicKey, SocketAddr> = hops.filter_map(place).collect();
        let linked = &self.circuits.book.linked;
        let mut changes = Vec::new();
        for key in linked.keys().filter(|key| !wanted.contains_key(*key) && !is_ours(key)) {
            changes.push(Change::Peer(PeerChange { remove: true, ..PeerChange::new(*key) }));
        }
        for (key, at) in wanted.iter().filter(|(key, at)| linked.get(key) != Some(at)) {
            changes.push(Change::Peer(PeerChange { endpoint: Some(*at), ..PeerChange::new(*key) }));
        }
        self.circuits.book.linked = wanted;
        if changes.is_empty() {
            return Ok(());
        }
        let failed = self.remote.call(move |desk| desk.configure(&changes).err())?;
        if let Some(error) = failed {
            self.complain(&error);
        }
        self.tell_circuits()
    }
}

#[cfg(test)]
mod tests {
    use control::SigningKey;

    use super::*;

    #[test]
    fn ci_09_a_file_of_somebody_else_changes_nothing_and_an_old_one_ends() {
        let folder = std::env::temp_dir().join(format!("warren-book-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("hops.toml");
        let key = SigningKey::from_seed(&[1; 32]).unwrap();
        let at = DirectoryAt { key: key.verifying(), path: path.clone() };
        assert_eq!(at.to_string().parse(), Ok(at.clone()));
        assert!("x:/y".parse::<DirectoryAt>().unwrap_err().contains("KEY:FILE"));
        let text = |name: &str| {
            let key = PublicKey([7; 32]);
            format!(
                "until = \"1970-01-03\"\n[[hop]]\nname = \"{name}\"\noperator = \"alice\"\n\
                 key = \"{key}\"\naddresses = [\"192.0.2.7:41820\"]\n"
            )
        };
        let mut book = Book { at: Some(at), ..Book::default() };
        let names = |book: &Book| -> Vec<String> {
            book.read.iter().flat_map(|read| &read.hops).map(|hop| hop.name.clone()).collect()
        };
        assert!(book.look(5) && book.said.is_some(), "there is no file");
        book.looked = Some(Instant::now());
        std::fs::write(&path, directory::sign(&text("one"), &key).unwrap()).unwrap();
        assert!(book.look(5) && names(&book) == ["one"] && book.said.is_none());
        assert!(!book.look(5), "nothing new");
        let other = SigningKey::from_seed(&[2; 32]).unwrap();
        std::fs::write(&path, directory::sign(&text("forged"), &other).unwrap()).unwrap();
        assert!(book.look(5) && names(&book) == ["one"], "{:?}", book.said);
        assert!(book.said.as_ref().is_some_and(|why| why.contains("another key")));
        assert!(book.look(3 * 86_400) && names(&book).is_empty(), "it is over");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
