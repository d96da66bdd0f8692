//! The file with a process's number, for those who send it signals.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lock::Lock;

/// A place that is ours until this is dropped; then the file goes.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    file: File,
    _lock: Lock,
}

impl PidFile {
    /// Takes the place, empty. What a killed process left there is overwritten; what a link leads
    /// to is not, nor anything but a file that has this name alone.
    pub(super) fn take(path: PathBuf) -> Result<Self> {
        let what = || format!("cannot write the pid file {}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // A new file is never made through a link; one that is there is looked at before it is
        // emptied.
        let mut file = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(&path),
            opened => opened,
        }
        .with_context(what)?;
        let found = file.metadata().with_context(what)?;
        let named = std::fs::symlink_metadata(&path).with_context(what)?;
        let is_itself = (found.dev(), found.ino()) == (named.dev(), named.ino());
        if !is_itself || !found.is_file() || found.nlink() != 1 {
            bail!("{}: it is a link, or no plain file: name another", path.display());
        }
        let Ok(lock) = Lock::take(file.try_clone().with_context(what)?) else {
            let mut pid = String::new();
            let _ = (&mut file).take(20).read_to_string(&mut pid);
            let pid = if pid.trim().is_empty() { "another" } else { pid.trim() };
            bail!("{}: process {pid} has this pid file; stop it, or name another", path.display());
        };
        file.set_len(0).with_context(what)?;
        Ok(Self { path, file, _lock: lock })
    }

    /// Says who we are.
    pub(super) fn write(&mut self) -> Result<()> {
        let pid = std::process::id();
        let what = || format!("cannot write the pid file {}", self.path.display());
        writeln!(self.file, "{pid}").with_context(what)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_08_a_pid_file_has_one_owner_goes_with_it_and_empties_nothing_else() {
        let path = std::env::temp_dir().join(format!("warren-pid-{}", std::process::id()));
        std::fs::write(&path, "12345678\n").expect("a place for it");
        let mut first = PidFile::take(path.clone()).expect("nobody has it");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "", "what was left is gone");
        first.write().expect("written");
        let pid = std::process::id().to_string();
        assert_eq!(std::fs::read_to_string(&path).expect("there").trim(), pid);
        let second = PidFile::take(path.clone()).expect_err("it is taken").to_string();
        assert!(second.contains(&format!("process {pid} has this")), "{second}");
        drop(first);
        assert!(!path.exists());
        let precious = path.with_extension("precious");
        std::fs::write(&precious, "kept").expect("written");
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        let led = PidFile::take(path.clone()).expect_err("HO-08: not followed").to_string();
        assert!(led.contains("it is a link"), "{led}");
        std::fs::remove_file(&path).expect("removed");
        std::fs::hard_link(&precious, &path).expect("a second name");
        let shared = PidFile::take(path.clone()).expect_err("HO-08: not emptied").to_string();
        assert!(shared.contains("or no plain file"), "{shared}");
        assert_eq!(std::fs::read_to_string(&precious).expect("there"), "kept");
        for left in [&path, &precious] {
            std::fs::remove_file(left).expect("removed");
        }
        let nowhere = PidFile::take(path.join("deeper")).expect_err("no such directory");
        assert!(format!("{nowhere:#}").contains("cannot write the pid file"), "{nowhere:#}");
    }
}
