//! A lock on a file or a directory that ends with who took it.
//!
//! Four programs must be the only one in a place: the daemon in its state directory and the server
//! in its data, which two would each know half of; a lab with its prefix, whose names two would
//! give twice; and the bench in the folder it writes into, where each would lose what the other
//! measured.
//!
//! # The life of a lock
//!
//! Who wants a place opens a file there, or the directory itself, and [takes](Lock::take) it. It
//! does not wait: where another has it, that is said at once, and the caller says in its own words
//! whose the place is and what to do. While the [`Lock`] lives nobody else gets it, in this process
//! or another; when it is dropped the next one may come.
//!
//! The kernel keeps it (flock), so a killed program leaves none behind, and a file that was left is
//! no sign of anything. It belongs to the open file and not to the descriptor: a program that
//! another thread is just starting holds a copy of every descriptor until it is its own program,
//! and would keep the lock for that long after its owner had closed it. So it is given back by
//! hand, and not by closing alone.
//!
//! Nothing is written into the file, and who has it is not told: the kernel knows (`lslocks`).
//!
//! A place that is to be one program's is also one that nobody else writes into:
//! [`private_directory`] makes it so. A local socket has its place in the file system, too, which
//! a [`SocketFile`] takes and gives back.

mod private;
mod socket;

pub use private::private_directory;
pub use socket::SocketFile;

use std::fs::{File, TryLockError};
use std::os::fd::{AsFd, BorrowedFd};

/// A file is ours while this lives.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes `file`, or does not wait.
    ///
    /// # Errors
    /// `WouldBlock` where another has it, and what the kernel says.
    pub fn take(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Lock {
    /// Copies of the descriptor lose it, too.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_a_copy_of_the_descriptor_keeps_nobody_out() {
        let name = format!("warren-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = || File::create(&path).expect("a place for it");
        let first = Lock::take(open()).expect("nobody has it");
        assert!(matches!(Lock::take(open()), Err(TryLockError::WouldBlock)));
        // As a program that is just being started has it.
        let _copy = first.as_fd().try_clone_to_owned().expect("a copy");
        drop(first);
        Lock::take(open()).expect("it was given back");
        std::fs::remove_file(&path).expect("removed");
    }
}
