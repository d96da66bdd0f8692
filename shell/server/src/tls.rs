//! The outer TLS: a certificate from files, or one that is made at the first start. It is for the
//! network's sake; what is said is protected by the channel inside.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use control::ServerUrl;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::keys;

/// How long a certificate that we made is good for: ten years.
const DAYS: u64 = 3653;

/// What accepts TLS with the certificate and key in these PEM files.
///
/// # Errors
/// If a file cannot be read, has nothing in it, or the two do not belong together.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let bad = |path: &Path, why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| bad(certificate, &why))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| bad(key, &why))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| bad(certificate, &why))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|why| bad(certificate, &why))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Makes a self-signed certificate for the hosts of `urls`, unless both files are there.
///
/// # Errors
/// If a file cannot be written, or a host is none that a certificate can name.
pub(crate) fn make(certificate: &Path, key: &Path, urls: &[ServerUrl]) -> io::Result<()> {
    if certificate.exists() && key.exists() {
        return Ok(());
    }
    let hosts: Vec<String> = urls.iter().map(|url| url.host().to_owned()).collect();
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "warren");
    params.distinguished_name = name;
    let now = SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    params.not_before = (now - day).into();
    params.not_after = (now + day * DAYS as u32).into();
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let made = params.self_signed(&pair).map_err(io::Error::other)?;
    keys::write(key, pair.serialize_pem().as_bytes())?;
    keys::write(certificate, made.pem().as_bytes())
}
