//! A local socket's place. What a killed program left there goes; what is no socket stays, and so
//! does a socket that another program has put there since.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The file of a socket. It goes with this, if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, which has these permissions then. A socket that is there is taken for one
    /// that was left: ask it first.
    ///
    /// # Errors
    /// `AlreadyExists` where something else is there, and what the kernel says.
    pub fn bind(path: &Path, mode: u32) -> io::Result<(UnixListener, Self)> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                let why = "what is there is no socket, and stays: move it, or name another place";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let identity = identity(path)?;
        Ok((listener, Self { path: path.to_owned(), identity }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The device and the number of what is there, and not of what a link leads to.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_08_only_sockets_make_room_and_only_our_own_goes_with_us() {
        let folder = std::env::temp_dir().join(format!("warren-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (path, other) = (folder.join("s"), folder.join("precious"));
        fs::write(&other, "kept").expect("written");
        for make in [
            |path: &Path, _: &Path| fs::write(path, "a file"),
            |path: &Path, other: &Path| std::os::unix::fs::symlink(other, path),
            |path: &Path, _: &Path| fs::create_dir(path),
        ] {
            make(&path, &other).expect("made");
            let refused = SocketFile::bind(&path, 0o600).expect_err("it is no socket");
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
            assert!(fs::symlink_metadata(&path).is_ok(), "it stays");
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
        assert_eq!(fs::read_to_string(&other).expect("read"), "kept");
        let (_listener, first) = SocketFile::bind(&path, 0o600).expect("free");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(first.path(), path, "as those who ask at it are told");
        // Another program takes the place of one that it found silent.
        let (_other, second) = SocketFile::bind(&path, 0o666).expect("a socket makes room");
        drop(first);
        assert!(path.exists(), "it is another's");
        drop(second);
        assert!(!path.exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
