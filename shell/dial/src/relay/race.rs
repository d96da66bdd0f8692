//! QUIC and HTTPS to one relay at once, QUIC a little before: a network that lets no UDP pass costs
//! that head start and nothing else.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use control::Relay;
use control::relay::Refused;
use noise::PrivateKey;

use super::{Admitted, Claim, Connected, Failed, connect_if, quic};
use crate::proxy::Proxies;

/// How long QUIC is alone.
pub const HEAD_START: Duration = Duration::from_millis(300);

/// Connects by QUIC, or by HTTPS if that is quicker after [`HEAD_START`]; one of the two, and no
/// other, proves the node's key, since a relay keeps one connection of each.
///
/// # Errors
/// What HTTPS failed with, or the relay's refusal by either way.
pub fn race(relay: &Relay, node: &PrivateKey, proxies: &Proxies) -> Result<Admitted, Failed> {
    let claim = Arc::new(Claim::default());
    let (go, held) = sync_channel::<()>(1);
    let (told, came) = sync_channel(1);
    let (theirs, ours) = ((relay.clone(), node.clone(), proxies.clone()), Arc::clone(&claim));
    let run = move || {
        if held.recv_timeout(HEAD_START) != Err(RecvTimeoutError::Disconnected) {
            let (relay, node, proxies) = &theirs;
            // Who is no longer waited for has nobody to tell.
            let _ = told.send(connect_if(relay, node, proxies, &ours));
        }
    };
    thread::Builder::new().name(format!("relay-{}-https", relay.id)).spawn(run)?;
    // When this returns with QUIC or a refusal, `go` is dropped, and a thread that has not begun
    // never does; one that has finds the claim taken.
    match quic::connect_if(relay, node, proxies.mark(), &claim) {
        Ok(answered) => Ok(Admitted::Quic(Box::new(answered))),
        Err(refused @ Failed::Refused(Refused::Verdict(_))) if claim.take() => Err(refused),
        Err(_) => wait(&go, || came.recv().ok()),
    }
}

fn wait(
    go: &SyncSender<()>,
    came: impl FnOnce() -> Option<Result<Connected, Failed>>,
) -> Result<Admitted, Failed> {
    let _ = go.try_send(());
    let connected = came().unwrap_or_else(|| Err(io::Error::other("no answer").into()))?;
    Ok(Admitted::Https(Box::new(connected)))
}
