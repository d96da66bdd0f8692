//! Kernel settings: what forwarding and an exit need, and what was there before, written down
//! first.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use node::Prefix;

use super::{Error, Setup};
use crate::linux::netlink::{self, Family, Link, MAIN_TABLE, Netlink};

/// Where settings are.
const ROOT: &str = "/proc/sys/net";
/// The record of what was changed, in the state directory.
const RECORD: &str = "gateway";

/// One setting: its path below [`ROOT`] and its value.
pub(super) type Setting = (String, String);

/// What was changed so far, in order.
#[derive(Debug)]
pub(super) struct Saved {
    record: PathBuf,
    changed: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    path: String,
    before: String,
    ours: String,
    /// Whether the machine forwarded IPv4 everywhere at that time.
    forwarding: bool,
}

/// On when the machine forwards IPv4 on every interface, as Docker makes it.
pub(super) const FORWARDING: &str = "ipv4/ip_forward";
/// On when the machine forwards IPv6 at all.
pub(super) const FORWARDING_V6: &str = "ipv6/conf/all/forwarding";

/// What `setup` needs. For IPv4 forwarding is a matter of each interface that packets come in by;
/// for IPv6 it is one for all, and interfaces that learn their routes from routers must be told to
/// go on doing so.
pub(super) fn wanted(
    setup: &Setup,
    netlink: &mut Netlink,
    link: &Link,
) -> Result<Vec<Setting>, Error> {
    let mut wanted = Vec::new();
    let mut want = |path: String, value: &str| wanted.push((path, value.to_owned()));
    if setup.exit && setup.own.iter().any(|a| a.is_ipv4()) && is_strict(netlink)? {
        want("ipv4/conf/all/src_valid_mark".to_owned(), "1");
    }
    if setup.serves_family(Family::V4) {
        want(format!("ipv4/conf/{}/forwarding", link.name), "1");
        for name in outside(setup, netlink, link)? {
            want(format!("ipv4/conf/{name}/forwarding"), "1");
        }
    }
    if setup.serves_family(Family::V6) && value(FORWARDING_V6).is_some() {
        let mut names: Vec<String> = netlink.links()?.into_iter().map(|l| l.name).collect();
        names.push("default".to_owned());
        let is = |name: &str, what: &str, is: &str| {
            value(&format!("ipv6/conf/{name}/{what}")).as_deref() == Some(is)
        };
        for name in &names {
            // ours from an earlier call, or an interface that listens to routers; what appears
            // later must not inherit it
            let listens = is(name, "accept_ra", "1") && is(name, "forwarding", "0");
            if name != "default" && (is(name, "accept_ra", "2") || listens) {
                want(format!("ipv6/conf/{name}/accept_ra"), "2");
            }
            // what is on already must be on again after all were turned off
            if is(name, "forwarding", "1") {
                want(format!("ipv6/conf/{name}/forwarding"), "1");
            }
        }
        want(FORWARDING_V6.to_owned(), "1");
    }
    Ok(wanted)
}

/// Whether an interface takes only what it would send back by itself (rp_filter 1): there a mark
/// has to be looked at as well.
fn is_strict(netlink: &mut Netlink) -> Result<bool, Error> {
    let filter = |name: &str| value(&format!("ipv4/conf/{name}/rp_filter")).unwrap_or_default();
    // the stricter of the two is looser: 2 takes what comes by any interface
    let all = filter("all");
    let links = netlink.links()?;
    Ok(links.iter().any(|link| std::cmp::max(&filter(&link.name), &all) == "1"))
}

/// The interfaces by which the machine reaches what it serves.
fn outside(setup: &Setup, netlink: &mut Netlink, link: &Link) -> Result<Vec<String>, Error> {
    let routes = netlink.routes()?;
    let usable = |r: &&netlink::Route| {
        r.table == MAIN_TABLE
            && r.link != link.index
            && r.link != 0
            && r.destination.address().is_ipv4()
    };
    let routes: Vec<netlink::Route> = routes.iter().filter(usable).copied().collect();
    let mut served: Vec<Prefix> =
        setup.serves.iter().filter(|p| p.address().is_ipv4()).copied().collect();
    let everything = Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    served.extend(everything.filter(|_| setup.serves_exit));
    let mut links = Vec::new();
    for prefix in served {
        let meets = |r: &&netlink::Route| {
            let a = r.destination;
            let b = prefix;
            a.bits() <= b.bits() && a.contains(b.address())
                || b.bits() <= a.bits() && b.contains(a.address())
        };
        let meeting: Vec<&netlink::Route> = routes.iter().filter(meets).collect();
        let nearer = meeting.iter().any(|r| !r.destination.is_default());
        let is_far = |r: &netlink::Route| nearer && r.destination.is_default();
        let chosen = meeting.into_iter().filter(|r| !is_far(r) || prefix.is_default());
        links.extend(chosen.map(|r| r.link));
    }
    links.sort_unstable();
    links.dedup();
    let mut names = Vec::new();
    for index in links {
        names.extend(netlink.link_at(index)?.map(|l| l.name).filter(|name| name != "lo"));
    }
    Ok(names)
}

pub(super) fn value(path: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(path)).ok()?;
    Some(text.trim().to_owned())
}

fn write(path: &str, value: &str) -> Result<(), Error> {
    let path = Path::new(ROOT).join(path);
    fs::write(&path, value).map_err(|e| Error::Setting(path, e))
}

impl Saved {
    /// What an earlier run wrote down.
    pub(super) fn load(state: &Path) -> Result<Self, Error> {
        let record = state.join(RECORD);
        let text = match fs::read_to_string(&record) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::Setting(record, e)),
        };
        // an interface of that name that was made anew has its own settings
        let in_force =
            |c: &Change| value(&c.path).is_some_and(|now| now != c.before || c.before == c.ours);
        Ok(Self { changed: text.lines().filter_map(read).filter(in_force).collect(), record })
    }

    /// Puts back what is wanted no more.
    pub(super) fn keep(&mut self, wanted: &[Setting]) -> Result<(), Error> {
        let is_over = |c: &Change| !wanted.iter().any(|(path, _)| *path == c.path);
        for change in self.changed.iter().rev().filter(|c| is_over(c)) {
            put_back(change)?;
        }
        self.changed.retain(|c| !is_over(c));
        self.write_down()
    }

    /// Makes settings as `wanted`, and again what somebody has undone; gives whether that was so,
    /// and what cannot be set. One that is refused does not stop the others.
    ///
    /// # Errors
    /// The record cannot be written: then nothing more is changed.
    pub(super) fn set(&mut self, wanted: &[Setting]) -> Result<(bool, Vec<Error>), Error> {
        let mut failed = Vec::new();
        let missed = self.put_again(wanted, &mut failed);
        for (path, ours) in wanted {
            let Some(before) = value(path) else { continue };
            let all_are_ours = self.changed.iter().any(|c| c.path == FORWARDING_V6);
            let all_are_on = value(FORWARDING_V6).as_deref() == Some("1");
            let one_of_all = is_one_of_all(path);
            if self.changed.iter().any(|c| c.path == *path) || one_of_all && all_are_ours {
                continue;
            }
            // one of all is written down although it is right: turning off all turns it off
            if before == *ours && (!one_of_all || all_are_on) {
                continue;
            }
            let forwarding = value(FORWARDING).as_deref() == Some("1");
            self.changed.push(Change {
                path: path.clone(),
                before,
                ours: ours.clone(),
                forwarding,
            });
            self.write_down()?;
            if let Err(e) = write(path, ours) {
                self.changed.pop();
                failed.push(e);
            }
        }
        self.write_down()?;
        Ok((missed, failed))
    }

    /// Writes again what was ours and is so no longer. Whether an interface listens to routers is
    /// for whoever says so last.
    fn put_again(&self, wanted: &[Setting], failed: &mut Vec<Error>) -> bool {
        let mut missed = false;
        for change in &self.changed {
            let is_wanted = wanted.iter().any(|(path, _)| *path == change.path);
            let is_undone = value(&change.path).is_some_and(|now| now != change.ours);
            if is_wanted && is_undone && !change.path.ends_with("/accept_ra") {
                match write(&change.path, &change.ours) {
                    Ok(()) => missed = true,
                    Err(e) => failed.push(e),
                }
            }
        }
        missed
    }

    /// Puts everything back that is still as we made it, the last first.
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let changes = std::mem::take(&mut self.changed);
        // all are tried, whatever becomes of the first
        let failed: Vec<Error> =
            changes.iter().rev().filter_map(|change| put_back(change).err()).collect();
        if let Some(e) = failed.into_iter().next() {
            return Err(e);
        }
        match fs::remove_file(&self.record) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::Setting(self.record.clone(), e))
            }
            _ => Ok(()),
        }
    }

    /// The record is replaced in one step, before the setting that it tells of.
    fn write_down(&self) -> Result<(), Error> {
        let failed = |e| Error::Setting(self.record.clone(), e);
        if self.changed.is_empty() {
            return match fs::remove_file(&self.record) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
                _ => Ok(()),
            };
        }
        let text: String = self
            .changed
            .iter()
            .map(|c| {
                let forwarding = u8::from(c.forwarding);
                format!("{} {} {} {forwarding}\n", c.path, c.before, c.ours)
            })
            .collect();
        if let Some(parent) = self.record.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let temporary = self.record.with_extension("new");
        fs::write(&temporary, text).map_err(failed)?;
        fs::rename(&temporary, &self.record).map_err(failed)
    }
}

/// IPv6 forwarding of one interface, which changes with that of all.
fn is_one_of_all(path: &str) -> bool {
    path.starts_with("ipv6/") && path.ends_with("/forwarding") && path != FORWARDING_V6
}

/// A line of the record. Only settings below the places that we change are believed.
fn read(line: &str) -> Option<Change> {
    let mut words = line.split(' ').map(str::to_owned);
    let [path, before, ours, forwarding] =
        [words.next()?, words.next()?, words.next()?, words.next()?];
    let ours_to_change = ["ipv4/conf/", "ipv6/conf/"].iter().any(|p| path.starts_with(p));
    let plain = ours_to_change && !path.contains("..") && words.next().is_none();
    plain.then(|| Change { path, before, ours, forwarding: forwarding == "1" })
}

fn put_back(change: &Change) -> Result<(), Error> {
    // an interface that is gone took its settings along
    let Some(now) = value(&change.path) else { return Ok(()) };
    if now == change.before {
        return Ok(());
    }
    let theirs = now != change.ours && !is_one_of_all(&change.path);
    // somebody has turned forwarding on everywhere meanwhile and needs it here too
    let needed = change.path.starts_with("ipv4/")
        && change.path.ends_with("/forwarding")
        && !change.forwarding
        && value(FORWARDING).as_deref() == Some("1");
    if theirs || needed { Ok(()) } else { write(&change.path, &change.before) }
}

/// What helps where a setting cannot be changed.
pub(super) fn mend(path: &Path, e: &io::Error) -> String {
    let name = path.strip_prefix("/proc/sys").map(|path| {
        let words: Vec<_> = path.iter().map(|word| word.to_string_lossy()).collect();
        words.join(".")
    });
    match (name, e.raw_os_error()) {
        (Ok(name), Some(libc::EROFS)) => format!(
            "set it outside, as with `docker run --sysctl {name}=VALUE`: what is right already is \
             left alone"
        ),
        (_, Some(libc::EPERM | libc::EACCES)) => crate::advice(
            "run as root",
            "this root may not: give the container CAP_NET_ADMIN and a /proc/sys that it may write",
        )
        .to_owned(),
        (_, Some(libc::ENOSPC)) => "the disk is full".to_owned(),
        _ => "see the kernel's log".to_owned(),
    }
}
