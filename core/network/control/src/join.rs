//! The rules of join keys, as one function, so that every store asks the same question.
//!
//! A key is a capability to add a node: once, or often if it is reusable. That it is used up is
//! recorded in the transaction that adds the node, by whoever holds the store's lock.

use core::fmt;

use crate::Code;

/// What the store knows of a join key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// It may be used more than once.
    pub reusable: bool,
    /// When it stops, in Unix seconds; `None` means never. Zero is a time like any other.
    pub expires_unix_s: Option<u64>,
    /// When it was first used, in Unix seconds.
    pub used_unix_s: Option<u64>,
    /// It was taken back by an administrator.
    pub revoked: bool,
}

/// Why a key lets nobody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No such key, or a wrong secret: not told apart.
    Unknown,
    /// It is for one node, which has joined.
    Used,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

/// Whether the key lets a new node in at `now_unix_s`. `key` is `None` if the secret fits none.
///
/// # Errors
/// [`Refused`]. A key expires at its time, not after it.
pub fn judge(key: Option<&Record>, now_unix_s: u64) -> Result<(), Refused> {
    let key = key.ok_or(Refused::Unknown)?;
    if key.revoked {
        return Err(Refused::Revoked);
    }
    if key.expires_unix_s.is_some_and(|expires| now_unix_s >= expires) {
        return Err(Refused::Expired);
    }
    if !key.reusable && key.used_unix_s.is_some() {
        return Err(Refused::Used);
    }
    Ok(())
}

impl Refused {
    /// The code that a node is told.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Unknown => Code::KeyUnknown,
            Self::Used => Code::KeyUsed,
            Self::Expired => Code::KeyExpired,
            Self::Revoked => Code::KeyRevoked,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the server does not know this join key; ask for a new one",
            Self::Used => "this join key was for one node and has been used; ask for a new one",
            Self::Expired => "this join key has expired; ask for a new one",
            Self::Revoked => "this join key was taken back; ask for a new one",
        })
    }
}

impl core::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_03_every_kind_of_key_is_judged() {
        let fresh = Record::default();
        let used = Record { used_unix_s: Some(5), ..fresh.clone() };
        let expiring = Record { expires_unix_s: Some(100), ..fresh.clone() };
        let reused = Record { reusable: true, ..used.clone() };
        let revoked = Record { revoked: true, ..reused.clone() };
        for (key, now, verdict) in [
            (None, 0, Err(Refused::Unknown)),
            (Some(&fresh), u64::MAX, Ok(())),
            (Some(&used), 6, Err(Refused::Used)),
            (Some(&reused), 6, Ok(())),
            (Some(&revoked), 6, Err(Refused::Revoked)),
            (Some(&expiring), 99, Ok(())),
            (Some(&expiring), 100, Err(Refused::Expired)),
        ] {
            assert_eq!(judge(key, now), verdict, "{key:?} at {now}");
        }
        let zero = Record { expires_unix_s: Some(0), ..fresh };
        assert_eq!(judge(Some(&zero), 0), Err(Refused::Expired), "zero is a time, not never");
    }
}
