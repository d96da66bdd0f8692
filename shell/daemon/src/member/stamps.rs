//! The promise of the stamps, kept for the data loop.

use super::{Daemon, Fault};

impl Daemon {
    /// What cannot be kept is told once, and wished for again.
    pub(crate) fn keep_promise(&mut self, promised_unix_s: u64) -> Result<(), Fault> {
        let Some(promise) = &mut self.promise else { return Ok(()) };
        match promise.keep(promised_unix_s) {
            Ok(kept_s) => self.remote.post(move |desk| desk.promise(kept_s))?,
            Err(error) if self.complaint.as_ref() == Some(&error.to_string()) => {}
            Err(error) => self.complain(&error),
        }
        Ok(())
    }
}
