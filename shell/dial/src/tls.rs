//! TLS whose certificate is not looked at.
//!
//! Nothing that is said depends on it: every request is sealed for the key that the token pins,
//! and an answer that does not come from its holder is refused. Looking at the certificate would
//! refuse self-signed servers and networks that intercept TLS, and protect nothing. What TLS
//! still does is to look like what networks let out, and to hide from who only listens that this
//! is Warren. Signatures of the handshake are verified, so that a broken peer is told early.

use std::sync::{Arc, LazyLock};

use rustls::crypto::ring::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};
use trust::AnyCertificate;

/// The configuration of every connection over TCP, with resumption between them.
#[must_use]
pub fn config() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> =
        LazyLock::new(|| made(&[&TLS13, &TLS12], b"http/1.1"));
    Arc::clone(&CONFIG)
}

/// The same for QUIC to a relay.
#[must_use]
pub fn quic_config() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| made(&[&TLS13], quic::ALPN));
    Arc::clone(&CONFIG)
}

fn made(versions: &[&'static SupportedProtocolVersion], protocol: &[u8]) -> Arc<ClientConfig> {
    let provider = Arc::new(default_provider());
    let verifier = AnyCertificate::new(Arc::clone(&provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("the library's own versions fit its own ciphers")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}
