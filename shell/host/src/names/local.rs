//! The addresses of this machine: only its own programs are answered.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use node::Prefix;

use crate::netlink::Netlink;

/// How often the kernel is asked for addresses because of a source that is not known.
const PAUSE: Duration = Duration::from_secs(1);

/// This machine's addresses, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Local {
    known: BTreeSet<IpAddr>,
    asked: Option<Instant>,
}

impl Local {
    /// Whether `source` is an address of this machine, or in one of `also`.
    pub(super) fn admits(&mut self, source: IpAddr, also: &[Prefix]) -> bool {
        let source = source.to_canonical();
        let inside = source.is_loopback() || also.iter().any(|p| p.contains(source));
        if inside || self.known.contains(&source) {
            return true;
        }
        if self.asked.is_none_or(|at| at.elapsed() >= PAUSE) {
            self.asked = Some(Instant::now());
            let listed = Netlink::open().and_then(|mut netlink| netlink.addresses());
            match listed {
                Ok(list) => self.known = list.into_iter().map(|a| a.address).collect(),
                Err(e) => tracing::warn!("names: {e}"),
            }
            self.known.remove(&IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        }
        self.known.contains(&source)
    }
}
