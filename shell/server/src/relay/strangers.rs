//! Who has proven nothing yet: a small place for each address, and one for all together.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::app::lock;

/// Connections that have not proven a key, of one IPv4 address or IPv6 /64 at a time.
const STRANGERS_MAX: usize = 32;
/// Connections that have not proven a key, all together.
const STRANGERS_ALL_MAX: usize = 1024;

/// How many there are, by address.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<BTreeMap<IpAddr, usize>>);

impl Strangers {
    /// A place for a connection of this address that has to prove a key, if there is one.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let address = network_of(address);
        let mut strangers = lock(&self.0);
        let all: usize = strangers.values().sum();
        let count = strangers.get(&address).copied().unwrap_or(0);
        if count >= STRANGERS_MAX || all >= STRANGERS_ALL_MAX {
            return None;
        }
        strangers.insert(address, count + 1);
        Some(Stranger { among: Arc::clone(self), address })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        lock(&self.0).values().sum()
    }
}

/// What one machine may have many of counts as one: an IPv6 /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(
            || {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            },
            IpAddr::V4,
        ),
    }
}

/// A place among those who have proven nothing yet; given back when it is dropped.
pub(super) struct Stranger {
    among: Arc<Strangers>,
    address: IpAddr,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = lock(&self.among.0);
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_05_who_has_proven_nothing_has_a_small_place_for_each_address() {
        let strangers = Arc::new(Strangers::default());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut here: Vec<Stranger> = Vec::new();
        for number in 0..STRANGERS_MAX {
            here.extend(strangers.enter(address(&format!("2001:db8::{number:x}"))));
        }
        assert_eq!((here.len(), strangers.len()), (STRANGERS_MAX, STRANGERS_MAX));
        assert!(strangers.enter(address("2001:db8::ffff")).is_none(), "the same /64");
        assert!(strangers.enter(address("2001:db8:0:1::1")).is_some());
        assert!(strangers.enter(address("192.0.2.1")).is_some());
        here.pop();
        assert!(strangers.enter(address("2001:db8::ffff")).is_some(), "a place was given back");
        here.clear();
        assert_eq!(strangers.len(), 0);
    }

    #[test]
    fn rl_05_all_addresses_together_have_a_bound() {
        let strangers = Arc::new(Strangers::default());
        let enter = |number: u32| strangers.enter(Ipv4Addr::from(number).into());
        let here: Vec<_> = (0..2000).filter_map(enter).collect();
        assert_eq!(here.len(), STRANGERS_ALL_MAX);
    }

    use std::net::Ipv4Addr;
}
