//! QUIC and HTTPS to one relay at once, QUIC a little before: a network that lets no UDP pass costs
//! that head start and nothing else. Ping is the last: it begins when all others have failed, or
//! have not answered for a while. Where HTTPS is refused, as by a machine whose relay is being
//! started, silence by QUIC is not waited for long: the next try comes the sooner.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use control::Relay;
use control::relay::Refused;
use noise::PrivateKey;

use super::{Admitted, Claim, Failed, Way, connect_if, quic};
use crate::proxy::Proxies;

/// How long QUIC is alone.
pub const HEAD_START: Duration = Duration::from_millis(300);
/// How long QUIC may go on by itself once HTTPS has failed.
const ALONE: Duration = Duration::from_secs(2);

/// By what a relay is dialled.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// By QUIC, before HTTPS.
    pub quic: bool,
    /// How HTTPS begins.
    pub first: Way,
    /// By ping, after so long.
    pub ping: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rider {
    Quic,
    Https,
    Ping,
}

/// Connects by QUIC, or by HTTPS if that is quicker after [`HEAD_START`]; one of the two, and no
/// other, proves the node's key, since a relay keeps one connection of each. HTTPS begins with
/// `first`.
///
/// # Errors
/// What HTTPS failed with, or the relay's refusal by either way.
pub fn race(
    relay: &Relay,
    node: &PrivateKey,
    proxies: &Proxies,
    first: Way,
) -> Result<Admitted, Failed> {
    race_by(relay, node, proxies, Ways { quic: true, first, ping: None })
}

/// The same by these ways.
///
/// # Errors
/// Those of [`race`].
pub fn race_by(
    relay: &Relay,
    node: &PrivateKey,
    proxies: &Proxies,
    ways: Ways,
) -> Result<Admitted, Failed> {
    race_if(relay, node, proxies, ways, &Arc::default())
}

/// The same, unless somebody else takes the claim.
pub(crate) fn race_if(
    relay: &Relay,
    node: &PrivateKey,
    proxies: &Proxies,
    ways: Ways,
    claim: &Arc<Claim>,
) -> Result<Admitted, Failed> {
    let https = if ways.quic { HEAD_START } else { Duration::ZERO };
    let mut ahead = VecDeque::new();
    ahead.extend(ways.quic.then_some((Duration::ZERO, Rider::Quic)));
    ahead.push_back((https, Rider::Https));
    ahead.extend(ways.ping.map(|after| (after, Rider::Ping)));
    let (told, came) = sync_channel(ahead.len());
    let begin = Instant::now();
    let mut open = 0;
    let mut failed = None;
    let mut by_ping = None;
    let mut alone_until: Option<Instant> = None;
    loop {
        // Who is behind begins early where nobody is left before.
        let is_due = |(after, _): &(Duration, Rider)| open == 0 || *after <= begin.elapsed();
        if ahead.front().is_some_and(is_due)
            && let Some((_, rider)) = ahead.pop_front()
        {
            let theirs = (relay.clone(), node.clone(), proxies.clone());
            start(rider, theirs, (ways.first, Arc::clone(claim)), told.clone())?;
            open += 1;
            continue;
        }
        if open == 0 {
            return Err(with_pings(failed, by_ping));
        }
        let is_quic_alone = ahead.is_empty() && open == 1 && ways.quic;
        if is_quic_alone && alone_until.is_some_and(|until| until <= Instant::now()) {
            alone_until = None;
            if claim.take() {
                return Err(with_pings(failed, by_ping));
            }
        }
        let next = match alone_until {
            Some(until) if is_quic_alone => Some(until.saturating_duration_since(Instant::now())),
            _ => ahead.front().map(|(after, _)| after.saturating_sub(begin.elapsed())),
        };
        let result = match next {
            Some(wait) => came.recv_timeout(wait),
            None => came.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Ok((rider, result)) = result else { continue };
        open -= 1;
        match result {
            Ok(admitted) => return Ok(admitted),
            Err(refused @ Failed::Refused(Refused::Verdict(_))) if claim.take() => {
                return Err(refused);
            }
            Err(Failed::Unreachable(why)) if rider == Rider::Ping => by_ping = Some(why),
            Err(why) if rider == Rider::Https => {
                failed = Some(why);
                alone_until = Some(Instant::now() + ALONE);
            }
            Err(why) if failed.is_none() => failed = Some(why),
            Err(_) => {}
        }
    }
}

/// What is missing for pings is told beside what the other ways failed with, whichever came first.
fn with_pings(failed: Option<Failed>, by_ping: Option<io::Error>) -> Failed {
    match (failed, by_ping) {
        (Some(Failed::Unreachable(why)), Some(ping)) => {
            io::Error::new(ping.kind(), format!("{why}; {ping}")).into()
        }
        (Some(why), _) => why,
        (None, Some(ping)) => ping.into(),
        (None, None) => io::Error::other("no answer").into(),
    }
}

type Told = SyncSender<(Rider, Result<Admitted, Failed>)>;

/// Begins one way on a thread of its own. One that is too late finds the claim taken.
fn start(
    rider: Rider,
    theirs: (Relay, PrivateKey, Proxies),
    ours: (Way, Arc<Claim>),
    told: Told,
) -> io::Result<()> {
    let (relay, node, proxies) = theirs;
    let (first, claim) = ours;
    let name = format!("relay-{}-{rider:?}", relay.id);
    let run = move || {
        let result = match rider {
            Rider::Quic => quic::connect_if(&relay, &node, proxies.mark(), &claim)
                .map(|answered| Admitted::Quic(Box::new(answered))),
            Rider::Https => connect_if(&relay, &node, (&proxies, first), &claim)
                .map(|connected| Admitted::Https(Box::new(connected))),
            Rider::Ping => quic::connect_by_ping(&relay, &node, proxies.mark(), &claim)
                .map(|answered| Admitted::Icmp(Box::new(answered))),
        };
        // Who is no longer waited for has nobody to tell.
        let _ = told.send((rider, result));
    };
    thread::Builder::new().name(name).spawn(run).map(drop)
}
