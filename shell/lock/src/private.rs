//! A directory for keys and books, into which nobody but its owner writes.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Who is not the owner writes.
const OTHERS_WRITE: u32 = 0o022;
/// A place for everybody, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Makes the directory, for its owner alone, or takes from others the right to write into one that
/// is there: who writes into it may put keys of its own in the place of ours. Whether there was
/// such a right.
///
/// # Errors
/// It cannot be made, or changed; or it is a place for everybody, as `/tmp` is.
pub fn private_directory(path: &Path) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS_WRITE == 0 {
        return Ok(false);
    }
    if mode & STICKY != 0 {
        let why = "everybody writes into it: name a directory of its own below it";
        return Err(io::Error::other(why));
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS_WRITE))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_01_nobody_else_writes_into_a_directory_of_keys() {
        let path = std::env::temp_dir().join(format!("warren-private-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let mode = || fs::metadata(&path).expect("it is there").permissions().mode() & 0o7777;
        let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        assert!(!private_directory(&path).expect("made"));
        assert_eq!(mode(), 0o700);
        for (before, after) in [(0o755, 0o755), (0o777, 0o755), (0o770, 0o750)] {
            set(before);
            assert_eq!(private_directory(&path).expect("ours"), before != after);
            assert_eq!(mode(), after);
        }
        set(0o1777);
        let why = private_directory(&path).expect_err("a place for everybody").to_string();
        assert!(why.contains("a directory of its own"), "{why}");
        assert_eq!(mode(), 0o1777, "it stays what it is");
        fs::remove_dir_all(&path).expect("removed");
    }
}
