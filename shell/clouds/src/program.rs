//! The program that gateways get: the one that runs here.

use std::path::PathBuf;

use ring::digest::{SHA256, digest};

use crate::Error;

/// The program, as it is put on a machine.
pub struct Program {
    pub(crate) bytes: Vec<u8>,
    /// The hexadecimal SHA-256 of it.
    pub digest: String,
}

impl Program {
    /// Reads the program that runs now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn this() -> Result<Self, Error> {
        let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        let bytes = std::fs::read(&path)
            .map_err(|error| Error::new(path.display(), format!("it cannot be read: {error}")))?;
        let digest = digest(&SHA256, &bytes);
        let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, digest })
    }
}
