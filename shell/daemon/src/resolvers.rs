//! What others do with the system's resolvers, and what of them an exit hides: noticed, mended
//! where that helps, and told.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use control::Map;
use host::names::resolver::{Applied, Wish};

use crate::Settings;

/// What is written over more often than this,
const TAKEN_MAX: usize = 5;
/// within so long, is not put back any more: somebody means it.
const TAKEN_WITHIN: Duration = Duration::from_secs(600);

/// When `/etc/resolv.conf` was found to be another program's.
#[derive(Debug, Default)]
pub(crate) struct Taken(VecDeque<Instant>);

impl Taken {
    /// It was found so now.
    ///
    /// # Errors
    /// It happens again and again; how to mend that.
    pub(crate) fn note(&mut self, now: Instant) -> Result<(), String> {
        while self.0.front().is_some_and(|at| now.duration_since(*at) > TAKEN_WITHIN) {
            self.0.pop_front();
        }
        if self.0.len() >= TAKEN_MAX {
            return Err(
                "another program writes /etc/resolv.conf again and again, so names of the \
                        network are not found; have it leave that file alone (NetworkManager: \
                        dns=none), or do without names (--accept-dns=false)"
                    .to_owned(),
            );
        }
        self.0.push_back(now);
        Ok(())
    }
}

/// What to tell where an exit is in use and all resolvers for other names are on the LAN, which it
/// hides.
pub(crate) fn beside_exit(
    resolver: Option<&(Wish, Applied)>,
    map: Option<&Map>,
    settings: &Settings,
) -> Option<String> {
    let has_own = map.is_none_or(|map| !map.dns.resolvers.is_empty());
    if settings.exit_node.is_none() || settings.exit_node_allow_lan_access || has_own {
        return None;
    }
    hidden(resolver?.1.upstreams())
}

fn hidden(upstreams: &[IpAddr]) -> Option<String> {
    let is_near = |address: &IpAddr| match address {
        IpAddr::V4(a) => a.is_private() || a.is_link_local(),
        IpAddr::V6(a) => a.is_unique_local() || a.is_unicast_link_local(),
    };
    let first = upstreams.first().filter(|_| upstreams.iter().all(is_near))?;
    Some(format!(
        "names of the Internet are not found: this machine's resolver {first} is on its LAN, which \
         the exit hides; name one for the network (`warren dns set --upstream 9.9.9.9` at the \
         server), or `warren set --exit-node-allow-lan-access`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_the_file_now_and_then_is_written_over_and_who_insists_is_told() {
        let (mut taken, begin) = (Taken::default(), Instant::now());
        for hour in 0..20 {
            assert!(taken.note(begin + TAKEN_WITHIN * 2 * hour).is_ok());
        }
        let now = begin + TAKEN_WITHIN * 50;
        for _ in 0..TAKEN_MAX {
            assert!(taken.note(now).is_ok());
        }
        assert!(taken.note(now).unwrap_err().contains("--accept-dns=false"));
        assert!(taken.note(now + TAKEN_WITHIN * 2).is_ok(), "and later again");
    }

    #[test]
    fn only_resolvers_that_are_all_on_the_lan_are_hidden() {
        let list = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert!(hidden(&list(&["192.168.1.1", "fd00::1"])).unwrap().contains("192.168.1.1"));
        assert_eq!(hidden(&list(&["192.168.1.1", "9.9.9.9"])), None);
        assert_eq!(hidden(&[]), None);
    }
}
