//! The protocol's timers and constants (WireGuard paper, section 6).

use core::time::Duration;

/// An initiator renews a session of this age.
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// Nobody uses a session of this age.
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Least time between two initiations to one peer.
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// After receiving data, silence longer than this is broken by a keepalive.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Initiations sent before a peer is given up: REKEY_ATTEMPT_TIME 90 s over REKEY_TIMEOUT 5 s.
pub const HANDSHAKE_ATTEMPTS_MAX: u32 = 18;

/// Why a peer wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// `poll_action` has something; due at once.
    Action,
    /// No response to the initiation in flight.
    Retransmit,
    /// Data came in and nothing went out for 10 s.
    Keepalive,
    /// Data went out and nothing came back for 15 s.
    Silence,
    /// The configured persistent keepalive.
    PersistentKeepalive,
    /// A session has reached 180 s and is dropped.
    SessionEnd,
    /// 540 s without a new session: every secret of the handshake is wiped.
    Wipe,
}
