//! The sending side of mac1, mac2 and cookies: what a peer's handshake messages end with.
//! (WireGuard paper, section 5.4.4 and 5.4.7.)

use core::time::Duration;

use wire::wireguard::{CookieReply, MAC_LEN};
use zeroize::Zeroize;

use crate::kdf::{self, Secret};
use crate::{Drop, Index, Instant, PublicKey, aead};

/// How long a responder keeps the secret behind its cookies.
pub(crate) const SECRET_LIFETIME: Duration = Duration::from_secs(120);
/// Allowance for the time a cookie reply travels.
const LATENCY: Duration = Duration::from_secs(5);
/// How long a received cookie is used: 115 s.
pub(crate) const COOKIE_LIFETIME: Duration = SECRET_LIFETIME.saturating_sub(LATENCY);

/// The cookie a peer gave us, and what we need to believe the next one.
#[derive(Default)]
pub(crate) struct Macs {
    cookie: Option<([u8; MAC_LEN], Instant)>,
    /// Index and mac1 of the last handshake message sent; a cookie reply answers it, once.
    sent: Option<(Index, [u8; MAC_LEN])>,
}

impl Macs {
    /// Writes mac1 and, if there is a fresh cookie, mac2 at the end of a message from `local` to
    /// `peer`.
    pub(crate) fn finish(
        &mut self,
        message: &mut [u8],
        peer: &PublicKey,
        local: Index,
        now: Instant,
    ) {
        let mac1_at = message.len() - 2 * MAC_LEN;
        let key = Secret(kdf::hash(&[kdf::LABEL_MAC1, &peer.0]));
        let mac1 = kdf::mac(&key.0, &[&message[..mac1_at]]);
        message[mac1_at..mac1_at + MAC_LEN].copy_from_slice(&mac1);
        self.sent = Some((local, mac1));
        if let Some((cookie, received)) = &self.cookie
            && !received.is_older_than(COOKIE_LIFETIME, now)
        {
            let mac2 = kdf::mac(cookie, &[&message[..mac1_at + MAC_LEN]]);
            message[mac1_at + MAC_LEN..].copy_from_slice(&mac2);
        }
    }

    /// Takes the cookie from a reply to the last message sent.
    pub(crate) fn accept(
        &mut self,
        message: &[u8; 64],
        peer: &PublicKey,
        now: Instant,
    ) -> Result<(), Drop> {
        let fields = CookieReply(message);
        let Some((_, mac1)) = self.sent.filter(|(local, _)| local.0 == fields.receiver()) else {
            return Err(Drop::BadCookie);
        };
        let key = Secret(kdf::hash(&[kdf::LABEL_COOKIE, &peer.0]));
        let cookie = aead::open_cookie(&key, fields.nonce(), fields.encrypted_cookie(), &mac1)
            .ok_or(Drop::BadCookie)?;
        self.cookie = Some((cookie, now));
        self.sent = None;
        Ok(())
    }
}

impl core::ops::Drop for Macs {
    fn drop(&mut self) {
        if let Some((cookie, _)) = &mut self.cookie {
            cookie.zeroize();
        }
    }
}
