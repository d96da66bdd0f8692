//! What this node says of itself: to the server, and to who asks how it is.

use control::HostInfo;

use super::{Daemon, Fault};
use crate::{lan, system};

impl Daemon {
    /// Tells the server what this node says of itself now; if nothing changed, it is not told.
    pub(crate) fn report(&mut self) -> Result<(), Fault> {
        let info = self.host_info()?;
        if let Some(membership) = &self.membership {
            membership.report(info);
        }
        Ok(())
    }

    /// What this node says of itself, and of what is behind it.
    pub(crate) fn host_info(&mut self) -> Result<HostInfo, Fault> {
        let endpoints = self.endpoints()?;
        let settings = &self.state.kept.settings;
        let before = self.lan.down();
        if let Err(error) = self.lan.look(settings, self.interface.name()) {
            tracing::warn!("the networks behind this node are not looked at: {error}");
        }
        let mut down = self.lan.down();
        for route in down.iter().filter(|route| !before.contains(route)) {
            tracing::warn!(%route, "a network behind this node is not reached");
        }
        down.extend(self.stood_by());
        down.sort_unstable();
        down.dedup();
        let info = system::host_info(settings, endpoints, self.home.relay());
        Ok(HostInfo { down, ..info })
    }

    /// What to tell of networks that are not reached: behind this node, or behind all that lead
    /// there.
    pub(crate) fn lan_trouble(&self) -> Vec<String> {
        let Some(map) = self.map.as_deref() else { return Vec::new() };
        let mut said: Vec<String> = self.lan.said(&map.me.routes).collect();
        said.extend(self.sharing_trouble());
        if self.state.kept.settings.accept_routes {
            said.extend(lan::lost(map));
        }
        said
    }
}
