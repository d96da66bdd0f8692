//! ID tokens: three parts of base64url (RFC 7515), of which the last is a signature by a key of the
//! provider (RFC 7517, 7518). Pure: keys, token and time come in, claims or a reason go out.
//!
//! The algorithm is the key's and never the token's word for it: a token that says `none`, or a
//! keyed hash with a public key as its secret, finds no key here (threat WB-07).

use std::fmt;

use control::text::from_base64url;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// Bytes of a token, and keys of a provider.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
const KEYS_MAX: usize = 64;
/// How far two clocks may differ, in seconds.
const SKEW_S: u64 = 60;
/// Bytes of a subject (OpenID Connect Core, section 2).
const SUBJECT_BYTES_MAX: usize = 255;

/// Why a token is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadToken {
    Form,
    Encrypted,
    /// No key of the provider is for it.
    Key,
    Signature,
    Issuer,
    Audience,
    Expired,
    /// It is of the future: one of the two clocks is wrong.
    Early,
    Nonce,
    Subject,
}

/// What a token has to say.
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client: &'a str,
    /// The word of this sign-in; `None` for a token that renews another.
    pub(crate) nonce: Option<&'a str>,
    pub(crate) now_unix_s: u64,
}

#[derive(Clone)]
enum Kind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    kind: Kind,
}

/// The keys of a provider that are of a kind we know.
#[derive(Clone, Default)]
pub(crate) struct Keys(Vec<Key>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Keys {
    /// Reads a set; keys for other purposes and of other kinds are left out.
    ///
    /// # Errors
    /// If it is none, or has too many.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let set: Set = serde_json::from_slice(bytes).map_err(|_| "the keys cannot be read")?;
        if set.keys.len() > KEYS_MAX {
            return Err("the provider has too many keys");
        }
        Ok(Self(set.keys.iter().filter_map(key).collect()))
    }
}

fn key(value: &Value) -> Option<Key> {
    let text = |name: &str| value[name].as_str();
    let bytes = |name: &str| text(name).and_then(from_base64url);
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let (kind, algorithm) = match (text("kty")?, text("crv")) {
        ("RSA", None) => (Kind::Rsa { n: bytes("n")?, e: bytes("e")? }, "RS256"),
        ("EC", Some("P-256")) => {
            let x = bytes("x")?;
            let y = bytes("y")?;
            if x.len() != 32 || y.len() != 32 {
                return None;
            }
            (Kind::P256([&[4][..], &x, &y].concat()), "ES256")
        }
        ("OKP", Some("Ed25519")) => (Kind::Ed25519(bytes("x")?), "EdDSA"),
        _ => return None,
    };
    if text("alg").is_some_and(|said| said != algorithm && said != "Ed25519") {
        return None;
    }
    Some(Key { id: text("kid").map(str::to_owned), kind })
}

impl Kind {
    fn is_for(&self, algorithm: &str) -> bool {
        match self {
            Self::Rsa { .. } => algorithm == "RS256",
            Self::P256(_) => algorithm == "ES256",
            Self::Ed25519(_) => algorithm == "EdDSA" || algorithm == "Ed25519",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => {
                // Zeros in front are no part of a number, and ring takes none.
                let plain = |bytes: &[u8]| -> Vec<u8> {
                    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
                };
                let key = RsaPublicKeyComponents { n: plain(n), e: plain(e) };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
            Self::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
            }
        }
    }
}

/// The claims of a token that is good.
///
/// # Errors
/// [`BadToken`]; what is not signed is not looked at.
pub(crate) fn verify(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Value, BadToken> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(BadToken::Form);
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, signature] = parts[..] else {
        return Err(if parts.len() == 5 { BadToken::Encrypted } else { BadToken::Form });
    };
    let json = |part: &str| -> Result<Value, BadToken> {
        let bytes = from_base64url(part).ok_or(BadToken::Form)?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| BadToken::Form)?;
        if value.is_object() { Ok(value) } else { Err(BadToken::Form) }
    };
    let fields = json(head)?;
    // What has to be understood (RFC 7515, section 4.1.11) is nothing that is understood here.
    if !fields["crit"].is_null() {
        return Err(BadToken::Form);
    }
    let algorithm = fields["alg"].as_str().ok_or(BadToken::Form)?;
    let id = fields["kid"].as_str();
    let signature = from_base64url(signature).ok_or(BadToken::Form)?;
    let message = &token.as_bytes()[..head.len() + 1 + body.len()];
    let is_meant = |key: &&Key| {
        let is_named = id.is_none_or(|id| key.id.as_deref().is_none_or(|known| known == id));
        is_named && key.kind.is_for(algorithm)
    };
    let mut meant = keys.0.iter().filter(is_meant).peekable();
    meant.peek().ok_or(BadToken::Key)?;
    if !meant.any(|key| key.kind.has_signed(message, &signature)) {
        return Err(BadToken::Signature);
    }
    let claims = json(body)?;
    check(&claims, expected)?;
    Ok(claims)
}

/// Whether signed claims are for us, now, and for this sign-in (OpenID Connect Core, 3.1.3.7).
fn check(claims: &Value, expected: &Expected<'_>) -> Result<(), BadToken> {
    let text = |name: &str| claims[name].as_str();
    if text("iss") != Some(expected.issuer) {
        return Err(BadToken::Issuer);
    }
    let audience: Vec<&str> = match &claims["aud"] {
        Value::String(one) => vec![one],
        Value::Array(all) => {
            all.iter().map(Value::as_str).collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let party = text("azp");
    let is_ours = audience.contains(&expected.client);
    let is_alone = audience.len() == 1 || party.is_some();
    if !is_ours || !is_alone || party.is_some_and(|party| party != expected.client) {
        return Err(BadToken::Audience);
    }
    let time = |name: &str| claims[name].as_f64().filter(|at| *at >= 0.0).map(|at| at as u64);
    let now = expected.now_unix_s;
    let ends = time("exp").ok_or(BadToken::Form)?;
    if now >= ends.saturating_add(SKEW_S) {
        return Err(BadToken::Expired);
    }
    let begins = time("iat").ok_or(BadToken::Form)?.max(time("nbf").unwrap_or(0));
    if begins > now.saturating_add(SKEW_S) {
        return Err(BadToken::Early);
    }
    if expected.nonce.is_some_and(|nonce| text("nonce") != Some(nonce)) {
        return Err(BadToken::Nonce);
    }
    let is_subject = |who: &str| (1..=SUBJECT_BYTES_MAX).contains(&who.len());
    if text("sub").is_some_and(is_subject) { Ok(()) } else { Err(BadToken::Subject) }
}

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "it cannot be read",
            Self::Encrypted => "it is encrypted; turn that off for this client at the provider",
            Self::Key => {
                "no key of the provider is for it; it signs with RS256, ES256 or EdDSA, or nothing \
                 of it is taken"
            }
            Self::Signature => "its signature is wrong",
            Self::Issuer => "it is of another issuer",
            Self::Audience => "it is for another client",
            Self::Expired => "its time is over; are both clocks right?",
            Self::Early => "it is of the future; are both clocks right?",
            Self::Nonce => "it is of another sign-in",
            Self::Subject => "it says of nobody",
        })
    }
}

#[cfg(test)]
mod tests;
