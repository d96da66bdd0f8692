//! TLS whose certificate is not looked at.
//!
//! Nothing that is said depends on it: every request is sealed for the key that the token pins,
//! and an answer that does not come from its holder is refused. Looking at the certificate would
//! refuse self-signed servers and networks that intercept TLS, and protect nothing. What TLS
//! still does is to look like what networks let out, and to hide from who only listens that this
//! is Warren. Signatures of the handshake are verified, so that a broken peer is told early.

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
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

/// The same for what is said to a server by ping.
pub(crate) fn pipe_config() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| made(&[&TLS13], quic::PIPE_ALPN));
    Arc::clone(&CONFIG)
}

/// For requests whose answer is trusted because of the certificate: one that the authorities in a
/// file vouch for, or else those that this machine trusts, and nobody else.
///
/// # Errors
/// If the file cannot be read, or this machine trusts nobody.
pub fn verified_config(ca_file: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let bad = |why: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
        };
        let found = CertificateDer::pem_file_iter(path).map_err(|why| bad(&why))?;
        for one in found {
            roots.add(one.map_err(|why| bad(&why))?).map_err(|why| bad(&why))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        let why = "this machine trusts no certificates at all; install ca-certificates";
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
