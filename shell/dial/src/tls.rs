//! TLS whose certificate is not looked at.
//!
//! Nothing that is said depends on it: every request is sealed for the key that the token pins,
//! and an answer that does not come from its holder is refused. Looking at the certificate would
//! refuse self-signed servers and networks that intercept TLS, and protect nothing. What TLS
//! still does is to look like what networks let out, and to hide from who only listens that this
//! is Warren. Signatures of the handshake are verified, so that a broken peer is told early.

use std::sync::{Arc, LazyLock};

use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use trust::AnyCertificate;

/// The configuration of every connection, with resumption between them.
#[must_use]
pub fn config() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let provider = Arc::new(default_provider());
        let verifier = AnyCertificate::new(Arc::clone(&provider));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the library's own versions fit its own ciphers")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    });
    Arc::clone(&CONFIG)
}
