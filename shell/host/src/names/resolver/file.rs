//! A plain resolv.conf: kept, replaced in one step, and given back if it is still ours.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Error, FILE_LEN_MAX, Paths, Restored, Way};

/// What was there before; absent if there was no file.
const BEFORE: &str = "resolv.conf.before";
/// What we wrote, to tell later whether it is still that.
const OURS: &str = "resolv.conf.ours";

/// The file's content; `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let io = |e| Error::Io(path.to_owned(), e);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(e)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(io(io::Error::other("it is longer than 64 KiB; is it a resolv.conf?")));
    }
    Ok(Some(bytes))
}

/// The addresses in `nameserver` lines.
pub(super) fn nameservers(text: &str) -> Vec<IpAddr> {
    named(text).into_iter().map(|(address, _)| address).collect()
}

/// The interfaces of those that are link-local, as in `fe80::1%eth0`; without one such an address
/// is nowhere.
pub(super) fn zones(text: &str) -> BTreeMap<IpAddr, String> {
    named(text).into_iter().filter_map(|(address, zone)| Some((address, zone?))).collect()
}

fn named(text: &str) -> Vec<(IpAddr, Option<String>)> {
    let address = |line: &str| {
        let rest = line.trim_start().strip_prefix("nameserver")?;
        if !rest.starts_with([' ', '\t']) {
            return None;
        }
        let word = rest.split_whitespace().next()?;
        match word.split_once('%') {
            None => Some((word.parse().ok()?, None)),
            Some((address, zone)) => Some((address.parse().ok()?, Some(zone.to_owned()))),
        }
    };
    text.lines().filter_map(address).collect()
}

/// What stands on top of our file.
pub(super) fn header(state: &Path) -> String {
    format!(
        "# Made by Warren while it is up. What was here before is kept in\n# {}\n# and comes back \
         when it goes down, at its next start, or with `warren cleanup`.\n",
        state.join(BEFORE).display()
    )
}

/// Keeps `before`, writes everything down, and puts `ours` in its place.
pub(super) fn take_over(
    paths: &Paths,
    before: Option<&[u8]>,
    ours: &[u8],
    write_down: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    match before {
        Some(before) => write_durably(&paths.state.join(BEFORE), before, 0o600)?,
        None => remove(&paths.state.join(BEFORE))?,
    }
    write_durably(&paths.state.join(OURS), ours, 0o600)?;
    write_down()?;
    replace(&paths.resolv_conf, ours)
}

/// Puts back what was there, unless somebody else has changed it.
pub(super) fn give_back(paths: &Paths) -> Result<Restored, Error> {
    if !is_ours(paths)? && !is_torn(paths)? {
        return Ok(Restored::Foreign);
    }
    match read(&paths.state.join(BEFORE))? {
        Some(before) => replace(&paths.resolv_conf, &before)?,
        None => remove(&paths.resolv_conf)?,
    }
    Ok(Restored::Before(Way::File))
}

/// Whether the file is what we wrote, and no link.
pub(super) fn is_ours(paths: &Paths) -> Result<bool, Error> {
    let link = fs::symlink_metadata(&paths.resolv_conf).is_ok_and(|m| m.is_symlink());
    let ours = read(&paths.state.join(OURS))?;
    Ok(!link && ours.is_some() && read(&paths.resolv_conf)? == ours)
}

/// Whether the file is empty, as where we were killed before we wrote it in place.
fn is_torn(paths: &Paths) -> Result<bool, Error> {
    let link = fs::symlink_metadata(&paths.resolv_conf).is_ok_and(|m| m.is_symlink());
    let is_recorded = read(&paths.state.join(OURS))?.is_some();
    Ok(!link && is_recorded && read(&paths.resolv_conf)?.is_some_and(|now| now.is_empty()))
}

/// Removes what was kept.
pub(super) fn forget(paths: &Paths) -> Result<(), Error> {
    remove(&paths.state.join(BEFORE))?;
    remove(&paths.state.join(OURS))
}

/// Removes a file; one that is not there is no error.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::Io(path.to_owned(), e)),
        _ => Ok(()),
    }
}

/// Replaces the file at `path` in one step and has it on the disk.
pub(super) fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let io = |e| Error::Io(path.to_owned(), e);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".warren-new");
    let temporary = PathBuf::from(temporary);
    remove(&temporary)?;
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&temporary)?;
        // whatever the umask is
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Ok(old) = fs::metadata(path) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary))).map_err(io)
}

/// As [`write_durably`], with the mode that the file has; in place where it cannot be renamed over:
/// it is a mount of its own, as in containers, or the folder around it is read-only, as in the
/// sandbox of a unit that may write this one file.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mode = fs::metadata(path).map_or(0o644, |m| m.permissions().mode() & 0o777);
    match write_durably(path, bytes, mode) {
        Err(Error::Io(_, e)) if cannot_be_renamed_over(e.kind()) => {
            tracing::info!("{} is written in place: {e}", path.display());
            let write = || {
                let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
                file.write_all(bytes)?;
                file.sync_all()
            };
            write().map_err(|e| Error::Io(path.to_owned(), e))
        }
        other => other,
    }
}

fn cannot_be_renamed_over(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem)
}
