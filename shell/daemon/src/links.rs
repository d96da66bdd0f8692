//! How links are, told to the server: for a page that shows the network, and nothing depends on it.

use std::time::{Duration, Instant};

use crate::member::{Daemon, Fault};
use crate::status;

/// The server is told so often.
const LINKS_EVERY: Duration = Duration::from_secs(15);

impl Daemon {
    /// Tells the server how links are, if that is due.
    pub(crate) fn tell_links(&mut self) -> Result<(), Fault> {
        if self.links_at.elapsed() < LINKS_EVERY || !self.is_in_touch {
            return Ok(());
        }
        self.links_at = Instant::now();
        let links = status::links(self)?;
        if let Some(membership) = self.membership.as_ref().filter(|_| !links.is_empty()) {
            membership.report_links(links);
        }
        Ok(())
    }
}
