//! Both ends of TLS that nobody is to be known by: a certificate made here, and a client that takes
//! any. What protects the bytes instead stands in the essay of [`trust`].

use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ServerConfig};
use trust::AnyCertificate;

/// Settings of a server that shows a new certificate for `name`, and of a client.
///
/// # Errors
/// No key can be made.
pub fn ends(name: &str) -> Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|why| anyhow::anyhow!("our own key: {why}"))?;
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::new(provider))
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}
