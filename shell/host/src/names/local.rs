//! The addresses of this machine: only its own programs are answered, those in containers
//! included.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use node::Prefix;

use crate::linux::netlink::{self, Netlink};

/// How often the kernel is asked for addresses because of a source that is not known.
const PAUSE: Duration = Duration::from_secs(1);

/// This machine's addresses and the networks of its containers, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Local {
    known: BTreeSet<IpAddr>,
    /// Looked at again while they ask: a bridge that gets a port to elsewhere is a LAN.
    inner: Vec<Prefix>,
    asked: Option<Instant>,
}

impl Local {
    /// Whether `source` is an address of this machine, of a container of it, or in one of `also`.
    pub(super) fn admits(&mut self, source: IpAddr, also: &[Prefix]) -> bool {
        let source = source.to_canonical();
        let inside = source.is_loopback() || also.iter().any(|p| p.contains(source));
        if inside || self.known.contains(&source) {
            return true;
        }
        if self.asked.is_none_or(|at| at.elapsed() >= PAUSE) {
            self.asked = Some(Instant::now());
            if let Err(e) = self.ask() {
                tracing::warn!("names: {e}");
            }
        }
        self.known.contains(&source) || self.inner.iter().any(|p| p.contains(source))
    }

    fn ask(&mut self) -> netlink::Result<()> {
        let mut netlink = Netlink::open()?;
        self.known = netlink.addresses()?.into_iter().map(|a| a.address).collect();
        self.known.remove(&IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.inner = netlink.inner_networks()?;
        Ok(())
    }
}
