//! Tokens that are good, and thirty that are not (threat WB-07).

use base64::Engine as _;
use control::text::to_base64url;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;
/// A token of RS256 that OpenSSL signed, and its key.
const RSA_TOKEN: &str = "\
    eyJhbGciOiJSUzI1NiIsImtpZCI6InIxIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL29wLmV4YW1wbGUi\
    LCJzdWIiOiJ1MSIsImF1ZCI6IndhcnJlbiIsImV4cCI6MTgwMDAwMDYwMCwiaWF0IjoxODAwMDAwMDAwLCJub25j\
    ZSI6Im4xIn0.QTdpd_DsykXPp-ItfA0e2IuPslOpwlxhY1focZrbh75aQvkOY07ADiqEL9oz89RlLhRjxwsyXp7-\
    diuCF9gKNr8FHYdF8CyFwMeM5NjXCj4FU1ySnsRYFh6veaOq6GlI_LxmapPB2XtLIBnDzShaQYrF2SnP94eVRVeD\
    KKVN0uHzqqRrNfbwFrfQ57RV3qjYdpwbLAFMipZ_M_DFaBRw9bZCmuI15Ga9we0sVT3RATCa0dbEOEK-epZk30t6\
    75cdnZDUyxY-3sjwrkTOB7vdKb2znEvwo534bx_wl_i2nvQ0h8mXM8RkpPWysgxntvmvRhbuPwC48IVG9QRBmLIe\
    -g";
const RSA_N: &str = "\
    tRmFZtqjPG-RTtRB6cWueEcII0b5qwNokVzV2Qhi9Zhr4BieGfAqUumr2iJhu6lnRPMVsYG1HW6RQbkWWAaF4P-E\
    Y3J-nFxgTUaLWrfm4AYdrKgOxFfPPkhxFxfmYftlsRkPL2P7cpsLKvJo6MZWtOrP4_Jf1GJyN7B3XwmnoRU8mJTq\
    uWkbxVhdUPV4vRzQqPkWFyh-9oDRKGpBnSvLxVQ4t9u7PXfS-zkwSyxl-HGis6zaeYfMoJWk5nTnPHKrliUHabg8\
    A0VcUxOzh2mjv7xaDQTXMtpDIQka-jHITAqSDdP7i-qNTBn3tblOjY6uGYDcxKrhYfAJtI3Y1hRZSw";

const ISSUER: &str = "https://op.example";

fn expected() -> Expected<'static> {
    Expected { issuer: ISSUER, client: "warren", nonce: Some("n1"), now_unix_s: NOW }
}

/// A provider with keys of two kinds.
struct Signer {
    edwards: Ed25519KeyPair,
    curve: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let edwards = Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap();
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let curve = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let curve = EcdsaKeyPair::from_pkcs8(kind, curve.as_ref(), &random).unwrap();
        Self { edwards, curve }
    }

    fn keys(&self) -> Value {
        let point = self.curve.public_key().as_ref();
        json!({ "keys": [
            { "kty": "OKP", "crv": "Ed25519", "kid": "e", "use": "sig", "alg": "EdDSA",
              "x": to_base64url(self.edwards.public_key().as_ref()) },
            { "kty": "EC", "crv": "P-256", "kid": "c",
              "x": to_base64url(&point[1..33]), "y": to_base64url(&point[33..]) },
            { "kty": "RSA", "kid": "r1", "alg": "RS256", "n": RSA_N, "e": "AQAB" },
            { "kty": "RSA", "kid": "enc", "use": "enc", "n": RSA_N, "e": "AQAB" },
            { "kty": "oct", "kid": "secret", "k": "c2VjcmV0" },
            { "kty": "EC", "crv": "P-521", "kid": "far" },
            { "nonsense": true },
        ] })
    }

    fn read(&self) -> Keys {
        Keys::read(self.keys().to_string().as_bytes()).unwrap()
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            to_base64url(head.to_string().as_bytes()),
            to_base64url(claims.to_string().as_bytes())
        );
        let signature = match head["alg"].as_str() {
            Some("EdDSA" | "Ed25519") => self.edwards.sign(message.as_bytes()).as_ref().to_vec(),
            Some("ES256") => {
                let signed = self.curve.sign(&SystemRandom::new(), message.as_bytes());
                signed.unwrap().as_ref().to_vec()
            }
            Some("HS256") => {
                // The public key as a secret, which a careless reader would find good.
                let key = ring::hmac::Key::new(
                    ring::hmac::HMAC_SHA256,
                    self.edwards.public_key().as_ref(),
                );
                ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{message}.{}", to_base64url(&signature))
    }
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "u1", "aud": "warren", "exp": NOW + 600, "iat": NOW,
            "nonce": "n1" })
}

#[test]
fn wb_07_tokens_of_all_three_algorithms_are_good() {
    let signer = Signer::new();
    let keys = signer.read();
    assert_eq!(keys.0.len(), 3, "keys of other kinds and for other purposes are left out");
    for (alg, kid) in
        [("EdDSA", Some("e")), ("EdDSA", None), ("ES256", Some("c")), ("Ed25519", None)]
    {
        let token = signer.token(&json!({ "alg": alg, "kid": kid }), &claims());
        let found = verify(&token, &keys, &expected()).unwrap();
        assert_eq!(found["sub"], "u1", "{alg}");
    }
    assert_eq!(verify(RSA_TOKEN, &keys, &expected()).unwrap()["sub"], "u1");
    let renewed = Expected { nonce: None, ..expected() };
    let mut plain = claims();
    plain.as_object_mut().unwrap().remove("nonce");
    let token = signer.token(&json!({ "alg": "EdDSA" }), &plain);
    assert!(verify(&token, &keys, &renewed).is_ok(), "one that renews has no word of a sign-in");
    let several = json!({ "aud": ["other", "warren"], "azp": "warren" });
    let token = signer.token(&json!({ "alg": "EdDSA" }), &with(&several));
    assert!(verify(&token, &keys, &expected()).is_ok());
}

/// The usual claims with these instead.
fn with(other: &Value) -> Value {
    let mut all = claims();
    for (name, value) in other.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

#[test]
fn wb_07_what_is_signed_and_not_for_us_is_not_taken() {
    let signer = Signer::new();
    let keys = signer.read();
    for (other, why) in [
        (json!({ "iss": "https://evil.example" }), BadToken::Issuer),
        (json!({ "iss": "https://op.example/" }), BadToken::Issuer),
        (json!({ "iss": null }), BadToken::Issuer),
        (json!({ "aud": "other" }), BadToken::Audience),
        (json!({ "aud": [] }), BadToken::Audience),
        (json!({ "aud": null }), BadToken::Audience),
        (json!({ "aud": ["warren", 7] }), BadToken::Audience),
        (json!({ "aud": ["warren", "other"] }), BadToken::Audience),
        (json!({ "aud": ["warren", "other"], "azp": "other" }), BadToken::Audience),
        (json!({ "azp": "other" }), BadToken::Audience),
        (json!({ "exp": NOW - 61 }), BadToken::Expired),
        (json!({ "exp": 0 }), BadToken::Expired),
        (json!({ "exp": null }), BadToken::Form),
        (json!({ "exp": "tomorrow" }), BadToken::Form),
        (json!({ "exp": -5 }), BadToken::Form),
        (json!({ "iat": NOW + 61 }), BadToken::Early),
        (json!({ "nbf": NOW + 61 }), BadToken::Early),
        (json!({ "iat": null }), BadToken::Form),
        (json!({ "nonce": "n2" }), BadToken::Nonce),
        (json!({ "nonce": null }), BadToken::Nonce),
        (json!({ "sub": "" }), BadToken::Subject),
        (json!({ "sub": 7 }), BadToken::Subject),
        (json!({ "sub": "x".repeat(256) }), BadToken::Subject),
    ] {
        let token = signer.token(&json!({ "alg": "EdDSA", "kid": "e" }), &with(&other));
        assert_eq!(verify(&token, &keys, &expected()).unwrap_err(), why, "{other}");
    }
}

#[test]
fn wb_07_no_word_of_a_token_chooses_how_it_is_checked() {
    let signer = Signer::new();
    let keys = signer.read();
    for (head, why) in [
        (json!({ "alg": "none" }), BadToken::Key),
        (json!({ "alg": "None", "kid": "e" }), BadToken::Key),
        (json!({ "alg": "", "kid": "e" }), BadToken::Key),
        (json!({ "alg": "HS256", "kid": "e" }), BadToken::Key),
        (json!({ "alg": "HS256", "kid": "secret" }), BadToken::Key),
        (json!({ "alg": "ES256", "kid": "e" }), BadToken::Key),
        (json!({ "alg": "RS256", "kid": "enc" }), BadToken::Key),
        (json!({ "alg": "EdDSA", "kid": "gone" }), BadToken::Key),
        (json!({ "alg": "RS256", "kid": "r1" }), BadToken::Signature),
        (json!({ "alg": "EdDSA", "crit": ["b64"] }), BadToken::Form),
        (json!({ "alg": 7 }), BadToken::Form),
        (json!([]), BadToken::Form),
    ] {
        let token = signer.token(&head, &claims());
        assert_eq!(verify(&token, &keys, &expected()).unwrap_err(), why, "{head}");
    }
    let good = signer.token(&json!({ "alg": "EdDSA", "kid": "e" }), &claims());
    let parts: Vec<&str> = good.split('.').collect();
    let other = to_base64url(with(&json!({ "sub": "admin" })).to_string().as_bytes());
    let standard = base64::engine::general_purpose::STANDARD.encode([251; 64]);
    for (token, why) in [
        (format!("{}.{other}.{}", parts[0], parts[2]), BadToken::Signature),
        (format!("{}.{}.", parts[0], parts[1]), BadToken::Signature),
        (format!("{}.{}", parts[0], parts[1]), BadToken::Form),
        (format!("{good}.x"), BadToken::Form),
        (format!("{good}.x.y"), BadToken::Encrypted),
        (format!("{}.{}.{standard}", parts[0], parts[1]), BadToken::Form),
        (String::new(), BadToken::Form),
        ("a.b.c".to_owned(), BadToken::Form),
        (format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX)), BadToken::Form),
    ] {
        assert_eq!(verify(&token, &keys, &expected()).unwrap_err(), why, "{token:.80}");
    }
    let others = Signer::new().read();
    assert_eq!(verify(&good, &others, &expected()).unwrap_err(), BadToken::Signature);
    assert!(verify(&good, &Keys::default(), &expected()).is_err());
}

#[test]
fn wb_07_a_set_of_keys_is_bounded_and_what_is_no_key_is_none() {
    assert!(Keys::read(b"").is_err() && Keys::read(b"{}").is_err() && Keys::read(b"[]").is_err());
    let many = json!({ "keys": vec![json!({}); KEYS_MAX + 1] });
    assert!(Keys::read(many.to_string().as_bytes()).is_err());
    for bad in [
        json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" }),
        json!({ "kty": "OKP", "crv": "Ed25519" }),
        json!({ "kty": "RSA", "n": "!", "e": "AQAB" }),
        json!({ "kty": "RSA", "alg": "HS256", "n": RSA_N, "e": "AQAB" }),
    ] {
        let set = json!({ "keys": [bad] });
        assert!(Keys::read(set.to_string().as_bytes()).unwrap().0.is_empty(), "{bad}");
    }
    // A key that is too short to be one verifies nothing.
    let set = json!({ "keys": [{ "kty": "RSA", "kid": "r1", "n": "AQAB", "e": "AQAB" }] });
    let keys = Keys::read(set.to_string().as_bytes()).unwrap();
    assert_eq!(verify(RSA_TOKEN, &keys, &expected()).unwrap_err(), BadToken::Signature);
}

#[test]
fn sc_05_clocks_may_differ_by_a_minute_and_every_bound_is_where_it_is_said() {
    let signer = Signer::new();
    let keys = signer.read();
    let head = json!({ "alg": "EdDSA", "kid": "e" });
    let judged =
        |other: &Value| verify(&signer.token(&head, &with(other)), &keys, &expected()).map(|_| ());
    for (other, verdict) in [
        (json!({ "exp": NOW - 59 }), Ok(())),
        (json!({ "exp": NOW - 60 }), Err(BadToken::Expired)),
        (json!({ "iat": NOW + 60, "nbf": NOW + 60 }), Ok(())),
        (json!({ "sub": "x".repeat(SUBJECT_BYTES_MAX) }), Ok(())),
        (json!({ "aud": ["warren"] }), Ok(())),
    ] {
        assert_eq!(judged(&other), verdict, "{other}");
    }
    let all = json!({ "keys": vec![json!({ "kty": "none" }); KEYS_MAX] });
    assert!(Keys::read(all.to_string().as_bytes()).is_ok());
    // Half of a point is none.
    let half = to_base64url(&[1; 32]);
    for [x, y] in [[half.as_str(), "AA"], ["AA", half.as_str()]] {
        let set = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y }] });
        assert!(Keys::read(set.to_string().as_bytes()).unwrap().0.is_empty(), "{x} {y}");
    }
}

#[test]
fn every_reason_is_told_in_words_of_its_own() {
    let all = [
        BadToken::Form,
        BadToken::Encrypted,
        BadToken::Key,
        BadToken::Signature,
        BadToken::Issuer,
        BadToken::Audience,
        BadToken::Expired,
        BadToken::Early,
        BadToken::Nonce,
        BadToken::Subject,
    ];
    let words: std::collections::BTreeSet<String> = all.map(|why| why.to_string()).into();
    assert!(words.len() == all.len() && !words.contains(""), "{words:?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_token_or_a_reason(text in "[A-Za-z0-9_.-]{0,200}") {
        assert!(verify(&text, &Keys::default(), &expected()).is_err());
    }
}
