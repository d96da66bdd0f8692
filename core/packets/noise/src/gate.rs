//! The gate: every handshake datagram passes it before it may cost a Diffie-Hellman.
//! (WireGuard paper, sections 5.3 and 5.4.7; threats DP-01 to DP-06, DP-19.)
//!
//! In order: length, mac1; if the caller is under load also mac2, then the source's rate.

use std::net::{IpAddr, SocketAddr};

use subtle::ConstantTimeEq;
use wire::wireguard::{CookieReply, INITIATION_LEN, MAC_LEN, RESPONSE_LEN};

use crate::cookie::SECRET_LIFETIME;
use crate::kdf::{self, KeyedMac, Secret};
use crate::limiter::{FORGET_AFTER, Limiter};
use crate::replies::Replies;
use crate::{Drop, Identity, Instant, Random, aead};

/// Checks mac1 on every handshake datagram and, under load, mac2 and the source's rate.
///
/// One gate serves one identity; make a new one when the private key changes.
pub struct Gate {
    /// Keyed for mac1: the key costs a third of what it takes to check one.
    mac1: KeyedMac,
    cookie_key: Secret,
    /// What cookies are made from, and since when.
    secret: Secret,
    secret_born: Option<Instant>,
    limiter: Limiter,
    replies: Replies,
}

/// What to do with a handshake datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Read it.
    Accept,
    /// Do not read it; send this cookie reply to its source (threat DP-06: 64 bytes for 92 or 148).
    Cookie([u8; 64]),
    /// Drop it in silence.
    Refuse(Drop),
}

impl Gate {
    /// A gate for messages sent to `identity`.
    #[must_use]
    pub fn new(identity: &Identity, random: &mut dyn Random) -> Self {
        let mut secret = Secret([0; 32]);
        random.fill(&mut secret.0);
        // No cookie is made from this one: the first draws another.
        let (seed, other) = secret.0.split_at(16);
        Self {
            mac1: KeyedMac::new(&identity.mac1_key.0),
            cookie_key: identity.cookie_key.clone(),
            limiter: Limiter::new(FORGET_AFTER, seed),
            replies: Replies::new(other),
            secret,
            secret_born: None,
        }
    }

    /// Judges an initiation (148 bytes) or response (92 bytes). Cookie replies need no gate; they
    /// carry no mac1.
    pub fn admit(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        under_load: bool,
        random: &mut dyn Random,
    ) -> Admission {
        if !matches!(datagram.len(), INITIATION_LEN | RESPONSE_LEN) {
            return Admission::Refuse(Drop::Malformed);
        }
        let (covered, mac2) = datagram.split_at(datagram.len() - MAC_LEN);
        let (body, mac1) = covered.split_at(covered.len() - MAC_LEN);
        if !bool::from(self.mac1.of(body).ct_eq(mac1)) {
            return Admission::Refuse(Drop::BadMac1);
        }
        if !under_load {
            return Admission::Accept;
        }
        let claims_cookie = mac2.iter().any(|&byte| byte != 0);
        if claims_cookie {
            let cookie = self.cookie(source, now, random);
            if bool::from(kdf::mac(&cookie, &[covered]).ct_eq(mac2)) {
                return match self.limiter.handle_handshake(source.ip(), now) {
                    Ok(()) => Admission::Accept,
                    Err(reason) => Admission::Refuse(reason),
                };
            }
        }
        // A wrong cookie is answered at the same price as none. Whether a reply is due is asked
        // before anything is computed for it.
        if let Err(reason) = self.replies.handle_handshake(source.ip(), now) {
            return Admission::Refuse(reason);
        }
        let cookie = self.cookie(source, now, random);
        Admission::Cookie(self.reply(body, mac1, &cookie, random))
    }

    /// Forgets idle sources if it is time. `admit` does so too, so this only frees memory sooner.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.limiter.sweep(now);
        self.replies.sweep(now);
    }

    /// When idle sources should next be forgotten; `None` if there are none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [self.limiter.poll_timeout(), self.replies.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    /// The cookie of a source: a MAC over its address and port (threat DP-05), under a secret that
    /// is replaced every 120 s.
    fn cookie(&mut self, source: SocketAddr, now: Instant, random: &mut dyn Random) -> [u8; 16] {
        if self.secret_born.is_none_or(|born| born.is_older_than(SECRET_LIFETIME, now)) {
            random.fill(&mut self.secret.0);
            self.secret_born = Some(now);
        }
        let port = source.port().to_be_bytes();
        match source.ip().to_canonical() {
            IpAddr::V4(v4) => kdf::mac(&self.secret.0, &[&v4.octets(), &port]),
            IpAddr::V6(v6) => kdf::mac(&self.secret.0, &[&v6.octets(), &port]),
        }
    }

    fn reply(
        &self,
        body: &[u8],
        mac1: &[u8],
        cookie: &[u8; 16],
        random: &mut dyn Random,
    ) -> [u8; 64] {
        let sender = u32::from_le_bytes([body[4], body[5], body[6], body[7]]);
        let mac1 = mac1.try_into().expect("mac1 was split off with 16 bytes");
        let mut nonce = [0; 24];
        random.fill(&mut nonce);
        let sealed = aead::seal_cookie(&self.cookie_key, &nonce, cookie, mac1);
        CookieReply::build(sender, &nonce, &sealed)
    }
}

#[cfg(test)]
mod tests;
