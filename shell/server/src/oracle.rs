//! Parsers of what browsers and providers send, for fuzz targets: forms, and ID tokens. Here, and
//! nowhere in a program, is a provider whose key is known.

use control::text::to_base64url;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::oidc::jwt::{Expected, Keys, verify};
use crate::percent::percent;
use crate::signin::form::Form;

/// When tokens are looked at, in Unix seconds.
pub const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://op.example";

/// The pairs of a form, and where it goes on to.
#[must_use]
pub fn form(text: &str) -> (Vec<(String, String)>, String) {
    let form = Form::read(text);
    (form.pairs().to_vec(), form.back())
}

/// Pairs as a browser writes them.
#[must_use]
pub fn written(pairs: &[(String, String)]) -> String {
    let pair = |(name, value): &(String, String)| {
        format!("{}={}", percent(name, b"-_.~"), percent(value, b"-_.~"))
    };
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a seed")
}

/// A token with these claims, signed by the provider.
#[must_use]
pub fn signed(claims: &[u8]) -> String {
    let head = json!({ "alg": "EdDSA", "kid": "one" }).to_string();
    let message = format!("{}.{}", to_base64url(head.as_bytes()), to_base64url(claims));
    let signature = to_base64url(signer().sign(message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}

/// Claims that are good.
#[must_use]
pub fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "u1", "aud": "warren", "exp": NOW + 600, "iat": NOW,
            "nonce": "n1" })
}

/// The claims of a token, if it is taken.
#[must_use]
pub fn id_token(token: &str) -> Option<Value> {
    let x = to_base64url(signer().public_key().as_ref());
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x }] });
    let keys = Keys::read(set.to_string().as_bytes()).ok()?;
    let expected =
        Expected { issuer: ISSUER, client: "warren", nonce: Some("n1"), now_unix_s: NOW };
    verify(token, &keys, &expected).ok()
}

/// Whether a set of keys is taken.
#[must_use]
pub fn keys(bytes: &[u8]) -> bool {
    Keys::read(bytes).is_ok()
}
