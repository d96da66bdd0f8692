//! Names of endpoints are looked up again when their peers fall silent, as where the address behind
//! a name changes every night.
//!
//! A peer is silent that was sent something and said nothing since: after [`SILENCE`] its session
//! begins again, and where it is said to be is asked as well, each [`SILENCE`] while that lasts. A
//! thread of its own asks, because a look-up may wait; what it finds it has the loop change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use node::{Carrier, Change, PeerChange};
use noise::{KEEPALIVE_TIMEOUT, PublicKey, REKEY_TIMEOUT};

use super::{Host, Settings, look_once};
use crate::driver::mail::{Gone, Remote};

/// Without an answer for so long a session begins anew (WireGuard's paper, section 6.5).
const SILENCE: Duration =
    Duration::from_secs(KEEPALIVE_TIMEOUT.as_secs() + REKEY_TIMEOUT.as_secs());

/// What is known of a peer's traffic.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    rx_bytes: u64,
    tx_bytes: u64,
    /// Since when it is sent to in vain.
    since: Option<Instant>,
}

/// Which peers are silent.
#[derive(Debug, Default)]
struct Silences(BTreeMap<PublicKey, Traffic>);

impl Silences {
    /// Takes what a peer has been sent and has sent; whether it is time to look where it is.
    fn handle(&mut self, key: PublicKey, traffic: (u64, u64), now: Instant) -> bool {
        let (rx_bytes, tx_bytes) = traffic;
        let fresh = Traffic { rx_bytes, tx_bytes, since: None };
        let known = self.0.entry(key).or_insert(fresh);
        if known.rx_bytes != rx_bytes {
            *known = fresh;
            return false;
        }
        if known.tx_bytes != tx_bytes {
            known.tx_bytes = tx_bytes;
            known.since.get_or_insert(now);
        }
        let is_due = known.since.is_some_and(|at| now.duration_since(at) >= SILENCE);
        if is_due {
            // Anew with the next that is sent.
            known.since = None;
        }
        is_due
    }
}

/// A peer whose endpoint is a name.
#[derive(Clone, Debug)]
struct Named {
    key: PublicKey,
    host: Host,
    carrier: Option<Carrier>,
}

/// The thread that looks names up; it ends with this.
#[derive(Debug)]
pub(super) struct Watch {
    names: Arc<Mutex<Vec<Named>>>,
    /// Closed to end the thread.
    _end: SyncSender<()>,
}

impl Watch {
    /// Begins to look after the names in `settings`.
    pub(super) fn start(remote: Remote, settings: &Settings) -> std::io::Result<Self> {
        let names = Arc::new(Mutex::new(named(settings)));
        let (_end, ended) = sync_channel(1);
        let thread = std::thread::Builder::new().name("endpoints".to_owned());
        let known = Arc::clone(&names);
        thread.spawn(move || {
            crate::linux::signals::block_all();
            // A loop that has ended needs no names.
            let _ = run(&ended, &remote, &known);
        })?;
        Ok(Self { names, _end })
    }

    /// The file was read again.
    pub(super) fn change(&self, settings: &Settings) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = named(settings);
    }
}

fn named(settings: &Settings) -> Vec<Named> {
    let peers = settings.peers.iter();
    let named = peers.filter_map(|peer| {
        let host = peer.endpoint.clone().filter(|host| matches!(host, Host::Name(..)))?;
        Some(Named { key: peer.key, host, carrier: peer.carrier })
    });
    named.collect()
}

fn run(ended: &Receiver<()>, remote: &Remote, names: &Mutex<Vec<Named>>) -> Result<(), Gone> {
    let mut silences = Silences::default();
    while ended.recv_timeout(REKEY_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
        let names = names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        silences.0.retain(|key, _| names.iter().any(|peer| peer.key == *key));
        if names.is_empty() {
            continue;
        }
        let status = remote.call(|desk| desk.status())?;
        for peer in &status.peers {
            let Some(named) = names.iter().find(|named| named.key == peer.key) else { continue };
            if silences.handle(peer.key, (peer.rx_bytes, peer.tx_bytes), Instant::now()) {
                follow(named, peer.endpoint, remote)?;
            }
        }
    }
    Ok(())
}

/// Looks a name up, and sends where it leads if that is elsewhere.
fn follow(named: &Named, before: Option<SocketAddr>, remote: &Remote) -> Result<(), Gone> {
    let now = match look_once(&named.host) {
        Ok(now) => now,
        Err(why) => {
            tracing::warn!("{why}; the peer is left where it is");
            return Ok(());
        }
    };
    if before == Some(now) {
        return Ok(());
    }
    tracing::info!(endpoint = %now, "a silent peer's name leads elsewhere now");
    let change = PeerChange {
        update_only: true,
        endpoint: Some(now),
        carrier: named.carrier,
        ..PeerChange::new(named.key)
    };
    let failed = remote.call(move |desk| desk.configure(&[Change::Peer(change)]).err())?;
    if let Some(why) = failed {
        tracing::warn!("{why}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_silent_that_was_sent_something_and_said_nothing_since() {
        let begin = Instant::now();
        let at = |s: u64| begin + Duration::from_secs(s);
        let key = PublicKey([1; 32]);
        let mut silences = Silences::default();
        let mut is_due = |traffic: (u64, u64), s: u64| silences.handle(key, traffic, at(s));
        assert!(!is_due((0, 0), 0));
        assert!(!is_due((0, 0), 1000), "nobody spoke");
        assert!(!is_due((0, 148), 1000), "it was asked");
        assert!(!is_due((0, 296), 1010));
        assert!(is_due((0, 444), 1015), "three times in vain");
        assert!(!is_due((0, 444), 1100), "and nothing since");
        assert!(!is_due((0, 592), 1100));
        assert!(is_due((0, 592), 1115), "again, while it lasts");
        assert!(!is_due((92, 600), 1120), "it answers");
        assert!(!is_due((92, 700), 1121));
        assert!(!is_due((124, 700), 1130), "late, but in time");
        assert!(!is_due((124, 700), 2000));
    }
}
