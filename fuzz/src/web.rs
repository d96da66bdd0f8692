//! What browsers and providers send to a server: forms, and ID tokens.

use server::oracle;

/// A form. What was read can be written and read again, and leads nowhere else.
pub fn form(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pairs, back) = oracle::form(&text);
    let is_plain = back.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    assert!(is_plain && back.starts_with('/') && !back.starts_with("//"), "{back:?}");
    let written = oracle::written(&pairs);
    if written.len() <= 8192 {
        assert_eq!(oracle::form(&written).0, pairs);
    }
}

/// A set of keys, a token, and claims that the provider signed: taken is only what it signed, for
/// us and for now.
pub fn id_token(data: &[u8]) {
    let _ = oracle::keys(data);
    let genuine = oracle::signed(oracle::claims().to_string().as_bytes());
    let message = |token: &str| token.rsplit_once('.').map(|(message, _)| message.to_owned());
    let text = String::from_utf8_lossy(data);
    if oracle::id_token(&text).is_some() {
        assert_eq!(message(&text), message(&genuine), "nobody else has the key");
    }
    if let Some(claims) = oracle::id_token(&oracle::signed(data)) {
        assert_eq!(claims["iss"], oracle::claims()["iss"]);
        assert_eq!(claims["nonce"], "n1");
        let ours = claims["aud"] == "warren" || claims["aud"].as_array().is_some();
        assert!(ours && claims["sub"].as_str().is_some_and(|who| !who.is_empty()), "{claims}");
        let ends = claims["exp"].as_f64().unwrap_or(0.0);
        assert!(ends + 61.0 > oracle::NOW as f64, "{claims}");
    }
}

pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    if target == "form" {
        return [
            "user=anna%40x&password=a+b%2Bc&return=%2Fa%2Fx",
            "return=//evil&a=%zz&b=%ff&c",
            "return=/%5Cevil",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
    }
    let claims = oracle::claims();
    let mut other = claims.clone();
    other["aud"] = serde_json::json!(["warren", "other"]);
    other["azp"] = "warren".into();
    let keys = "{\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"AA\", \"y\": \"AA\"}]}";
    vec![
        oracle::signed(claims.to_string().as_bytes()).into_bytes(),
        claims.to_string().into_bytes(),
        other.to_string().into_bytes(),
        keys.as_bytes().to_vec(),
        b"eyJhbGciOiJub25lIn0.e30.".to_vec(),
    ]
}
