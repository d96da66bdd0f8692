//! How long a node's key is good for.

/// A key that ended by its time is renewed by its own machine for as long again as it lasted,
/// and for so long at most, in seconds: a week.
const RENEWABLE_S_MAX: u64 = 7 * 86_400;

/// The life of a node's key that begins now.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub(super) begun: u64,
    pub(super) expires: Option<u64>,
    /// Until when its machine may renew it although it is over.
    pub(super) renewable: Option<u64>,
}

impl Life {
    pub(super) fn new(lifetime_s: Option<u64>, now: u64) -> Self {
        let expires = lifetime_s.map(|s| now.saturating_add(s));
        let longer = lifetime_s.map_or(0, |s| s.min(RENEWABLE_S_MAX));
        Self { begun: now, expires, renewable: expires.map(|at| at.saturating_add(longer)) }
    }
}
