//! Telling the system who resolves names, and putting back what was there.
//!
//! Three ways, and the system says which: systemd-resolved is told through `resolvectl`, for our
//! link only and, unless everything is to be asked here, for our domains only; resolvconf or
//! openresolv is given our lines under our name; a plain `/etc/resolv.conf` is replaced in one step
//! ([`file`]). A link to somebody else's file is not touched.
//!
//! What was done is written down first, in the state directory, so that the next start or
//! [`restore_leftovers`] undoes what a killed daemon left (threat DN-07). What somebody else
//! changed since then is theirs and stays.

mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::linux::program::{feed, find};

/// The record of what was done.
const JOURNAL: &str = "resolver";
/// Bytes of a resolv.conf that we would take over, at most.
const FILE_LEN_MAX: u64 = 64 << 10;
/// Domains that glibc searches, at most.
const SEARCH_MAX: usize = 6;

/// What the system is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Our interface.
    pub link: String,
    /// Our name server's addresses, one or two.
    pub servers: Vec<IpAddr>,
    /// The network's domain, in which short names are looked for; empty means none.
    pub domain: String,
    /// Other domains that are asked of our server: split zones and reverse names.
    pub zones: Vec<String>,
    /// Whether all other names are asked of it as well, where the system can tell names apart.
    pub everything: bool,
}

/// Where things are.
#[derive(Clone, Debug)]
pub struct Paths {
    /// `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// The state directory; made if it is not there.
    pub state: PathBuf,
}

impl Paths {
    /// The usual file, and this state directory.
    #[must_use]
    pub fn system(state: &Path) -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), state: state.to_owned() }
    }
}

/// By which way the system is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// systemd-resolved.
    Resolved,
    /// resolvconf or openresolv.
    Resolvconf,
    /// The file itself.
    File,
}

/// What became of an earlier wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// There was nothing to undo.
    Nothing,
    /// It is as it was before.
    Before(Way),
    /// Somebody else changed it meanwhile, so it was left as it is.
    Foreign,
}

/// Why the system was not told, or not put back.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read or written.
    Io(PathBuf, io::Error),
    /// A program refused; its words.
    Program(String),
    /// `/etc/resolv.conf` is a link to this, which we do not know.
    Foreign(PathBuf),
}

/// A wish in force; dropping it puts everything back.
#[derive(Debug)]
pub struct Applied {
    paths: Paths,
    way: Way,
    upstreams: Vec<IpAddr>,
    zones: BTreeMap<IpAddr, String>,
    restored: bool,
}

/// Tells the system what `wish` says; undoes first what an earlier run left.
///
/// # Errors
/// [`Error`]; nothing has changed then.
pub fn apply(wish: &Wish, paths: &Paths) -> Result<Applied, Error> {
    restore_leftovers(paths)?;
    let way = way(paths)?;
    let before = file::read(&paths.resolv_conf)?;
    let before_text = before.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let mut upstreams = file::nameservers(&before_text);
    upstreams.retain(|a| !wish.servers.contains(a));
    let io = |e| Error::Io(paths.state.clone(), e);
    std::fs::create_dir_all(&paths.state).map_err(io)?;
    let journal = Journal { way, link: wish.link.clone() };
    match way {
        Way::Resolved => {
            journal.write(paths)?;
            resolved(wish)
        }
        Way::Resolvconf => {
            journal.write(paths)?;
            let arguments = resolvconf_add(&wish.link);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            feed("resolvconf", &arguments, &lines(wish, &before_text))
                .map(drop)
                .map_err(Error::Program)
        }
        Way::File => {
            let ours = file::header(&paths.state) + &lines(wish, &before_text);
            file::take_over(paths, before.as_deref(), ours.as_bytes(), || journal.write(paths))
        }
    }
    .inspect_err(|_| drop(restore_leftovers(paths)))?;
    tracing::info!("names are resolved here, through {way}");
    let zones = file::zones(&before_text);
    Ok(Applied { paths: paths.clone(), way, upstreams, zones, restored: false })
}

/// Undoes what an earlier run did and could not undo itself.
///
/// # Errors
/// [`Error`]; the record stays, so that it can be tried again.
pub fn restore_leftovers(paths: &Paths) -> Result<Restored, Error> {
    let Some(journal) = Journal::read(paths)? else { return Ok(Restored::Nothing) };
    let restored = match journal.way {
        Way::Resolved => {
            // what resolved knows of a link goes with the link
            if crate::linux::netlink::Netlink::open()
                .and_then(|mut n| n.link(&journal.link))
                .is_ok_and(|link| link.is_some())
            {
                undo("resolvectl", &["revert", &journal.link]);
            }
            Restored::Before(Way::Resolved)
        }
        Way::Resolvconf => {
            let name = format!("{}.warren", journal.link);
            undo("resolvconf", &["-d", &name]);
            Restored::Before(Way::Resolvconf)
        }
        Way::File => file::give_back(paths)?,
    };
    if restored == Restored::Foreign {
        tracing::warn!(
            "{} was changed by another program since and stays as it is",
            paths.resolv_conf.display()
        );
    }
    file::forget(paths)?;
    Journal::remove(paths)?;
    Ok(restored)
}

/// A program that is gone, or whose service is, has nothing left to undo.
fn undo(program: &str, arguments: &[&str]) {
    if let Err(why) = feed(program, arguments, "") {
        tracing::warn!("{why}");
    }
}

impl Applied {
    /// By which way the system was told.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// The resolvers that the system had before, for names that are not ours.
    #[must_use]
    pub fn upstreams(&self) -> &[IpAddr] {
        &self.upstreams
    }

    /// The interfaces of those that are link-local.
    #[must_use]
    pub fn zones(&self) -> &BTreeMap<IpAddr, String> {
        &self.zones
    }

    /// Whether nobody has changed what we wrote; always so where we wrote no file.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.way != Way::File || file::is_ours(&self.paths).unwrap_or(false)
    }

    /// Puts back what was there before.
    ///
    /// # Errors
    /// [`Error`]; [`restore_leftovers`] can try again.
    pub fn restore(mut self) -> Result<Restored, Error> {
        self.restored = true;
        restore_leftovers(&self.paths)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if !self.restored
            && let Err(e) = restore_leftovers(&self.paths)
        {
            tracing::error!("the system's resolvers are not put back: {e}");
        }
    }
}

/// Who decides what is in resolv.conf.
fn way(paths: &Paths) -> Result<Way, Error> {
    let path = &paths.resolv_conf;
    match std::fs::read_link(path) {
        Ok(target) => {
            let text = target.to_string_lossy().into_owned();
            if text.contains("systemd/resolve/") || text.ends_with("systemd/resolv.conf") {
                return known(Way::Resolved, "resolvectl", path, &target);
            }
            if text.contains("/resolvconf/") {
                return known(Way::Resolvconf, "resolvconf", path, &target);
            }
            Err(Error::Foreign(target))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Way::File),
        // EINVAL: it is no link
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            let text = file::read(path)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let stub = IpAddr::from([127, 0, 0, 53]);
            let servers = file::nameservers(&text);
            if !servers.is_empty() && servers.iter().all(|s| *s == stub) && find("resolvectl") {
                return Ok(Way::Resolved);
            }
            let generated = text.lines().any(|l| l.contains("Generated by resolvconf"));
            Ok(if generated && find("resolvconf") { Way::Resolvconf } else { Way::File })
        }
        Err(e) => Err(Error::Io(path.clone(), e)),
    }
}

fn known(way: Way, program: &str, path: &Path, target: &Path) -> Result<Way, Error> {
    if find(program) {
        return Ok(way);
    }
    let (path, target) = (path.display(), target.display());
    Err(Error::Program(format!(
        "{path} is a link to {target}, but there is no {program} to ask; install it, or replace \
         the link by a file"
    )))
}

/// Tells systemd-resolved of our link: its servers, its domains, and whether it is for the rest.
fn resolved(wish: &Wish) -> Result<(), Error> {
    let call = |words: Vec<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        feed("resolvectl", &words, "").map(drop).map_err(Error::Program)
    };
    let with = |verb: &str| vec![verb.to_owned(), wish.link.clone()];
    let mut domains = with("domain");
    if !wish.domain.is_empty() {
        domains.push(wish.domain.clone());
    }
    domains.extend(wish.zones.iter().map(|zone| format!("~{zone}")));
    if wish.everything {
        domains.push("~.".to_owned());
    }
    let mut servers = with("dns");
    servers.extend(wish.servers.iter().map(ToString::to_string));
    let mut rest = with("default-route");
    rest.push(if wish.everything { "yes" } else { "no" }.to_owned());
    [servers, domains, rest].into_iter().try_for_each(call)
}

/// The words that add our lines; openresolv can make them the only ones.
fn resolvconf_add(link: &str) -> Vec<String> {
    let name = format!("{link}.warren");
    let exclusive = feed("resolvconf", &["--version"], "").is_ok_and(|s| s.contains("openresolv"));
    let words: &[&str] = if exclusive { &["-m", "0", "-x", "-a"] } else { &["-a"] };
    words.iter().map(|w| (*w).to_owned()).chain([name]).collect()
}

/// A resolv.conf with our servers, our domain before those that were searched, and the options
/// that were there.
fn lines(wish: &Wish, before: &str) -> String {
    let mut text: String = wish.servers.iter().map(|a| format!("nameserver {a}\n")).collect();
    let mut search: Vec<&str> = Vec::new();
    search.extend(Some(wish.domain.as_str()).filter(|d| !d.is_empty()));
    for line in before.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("search" | "domain") => {
                search.truncate(1);
                search.extend(words.filter(|w| *w != wish.domain));
            }
            Some("options") => {
                text += &format!("options {}\n", words.collect::<Vec<_>>().join(" "));
            }
            _ => {}
        }
    }
    search.truncate(SEARCH_MAX);
    if !search.is_empty() {
        text += &format!("search {}\n", search.join(" "));
    }
    text
}

/// What is written down before anything is done.
struct Journal {
    way: Way,
    link: String,
}

impl Journal {
    fn write(&self, paths: &Paths) -> Result<(), Error> {
        let path = paths.state.join(JOURNAL);
        file::write_durably(&path, format!("{} {}\n", self.way, self.link).as_bytes(), 0o600)
    }

    fn read(paths: &Paths) -> Result<Option<Self>, Error> {
        let text = match file::read(&paths.state.join(JOURNAL))? {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => return Ok(None),
        };
        let mut words = text.split_whitespace();
        let way = match words.next() {
            Some("systemd-resolved") => Way::Resolved,
            Some("resolvconf") => Way::Resolvconf,
            // whatever else stands there, the file's own records decide
            _ => Way::File,
        };
        let link = words.next().unwrap_or_default().to_owned();
        Ok(Some(Self { way, link }))
    }

    fn remove(paths: &Paths) -> Result<(), Error> {
        file::remove(&paths.state.join(JOURNAL))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolved => "systemd-resolved",
            Self::Resolvconf => "resolvconf",
            Self::File => "resolv.conf",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, e) => {
                write!(f, "cannot change {}: {e}", path.display())?;
                match e.kind() {
                    io::ErrorKind::PermissionDenied => {
                        let user = "; run as root, and see `lsattr` for an immutable file";
                        f.write_str(crate::advice(user, "; is it immutable? see `lsattr`"))
                    }
                    io::ErrorKind::ReadOnlyFilesystem => {
                        f.write_str("; do without names there (--accept-dns=false)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Program(words) => write!(f, "the system's resolver was not told: {words}"),
            Self::Foreign(target) => write!(
                f,
                "/etc/resolv.conf is a link to {}, which another program writes; let that program \
                 ask our name server, replace the link by a file, or do without names \
                 (--accept-dns=false)",
                target.display()
            ),
        }
    }
}

impl std::error::Error for Error {}
