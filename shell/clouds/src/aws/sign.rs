//! Signature Version 4: how a request proves who makes it, without the secret in it.
//!
//! The form is the one that AWS publishes (General Reference, "Signature Version 4 signing
//! process"); the test below has two of its published examples.

use ring::digest::{SHA256, digest};
use ring::hmac;

use super::credentials::Keys;
use crate::time::stamp;

/// The only way a body is sent.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// What is signed beside the keys.
pub(crate) struct Request<'r> {
    pub(crate) method: &'r str,
    /// As in the field `Host`.
    pub(crate) host: &'r str,
    /// The body's type, if there is a body.
    pub(crate) form: Option<&'r str>,
    pub(crate) body: &'r [u8],
    pub(crate) region: &'r str,
    pub(crate) service: &'r str,
    /// Seconds since 1970.
    pub(crate) now_s: u64,
}

/// The fields that a signed request bears, beside `Host`.
pub(crate) fn fields(keys: &Keys, request: &Request<'_>) -> Vec<(&'static str, String)> {
    let time = stamp(request.now_s);
    let day = time.get(..8).unwrap_or_default().to_owned();
    let mut signed: Vec<(&'static str, String)> = Vec::new();
    if let Some(form) = request.form {
        signed.push(("content-type", form.to_owned()));
    }
    signed.push(("host", request.host.to_owned()));
    signed.push(("x-amz-date", time.clone()));
    if let Some(session) = &keys.session {
        signed.push(("x-amz-security-token", session.clone()));
    }
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let Request { method, region, service, body, .. } = request;
    let canonical = format!("{method}\n/\n\n{lines}\n{names}\n{}", hex(&hash(body)));
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(&hash(canonical.as_bytes())));
    let mut key = mac(format!("AWS4{}", keys.secret).as_bytes(), &day);
    for part in [*region, *service, "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &text));
    let id = &keys.id;
    let authorization = format!(
        "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
    );
    signed.retain(|(name, _)| *name != "host");
    signed.push(("authorization", authorization));
    signed
}

fn hash(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(method: &str, form: Option<&str>, body: &[u8], session: Option<&str>) -> String {
        let keys = Keys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session: session.map(str::to_owned),
        };
        let request = Request {
            method,
            host: "example.amazonaws.com",
            form,
            body,
            region: "us-east-1",
            service: "service",
            now_s: 1_440_938_160,
        };
        let fields = fields(&keys, &request);
        let last = fields.iter().find(|(name, _)| *name == "authorization").unwrap();
        last.1.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn requests_are_signed_as_the_published_examples_are() {
        assert_eq!(
            signature("GET", None, b"", None),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        let form = "application/x-www-form-urlencoded";
        assert_eq!(
            signature("POST", Some(form), b"Param1=value1", None),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
        );
        let with = signature("POST", Some(form), b"Param1=value1", Some("t"));
        assert_ne!(with, signature("POST", Some(form), b"Param1=value1", None));
    }
}
