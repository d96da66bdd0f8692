//! TLS whose certificate is not looked at.
//!
//! Four programs want it, each for a reason of its own: a node and its relay's stream know the
//! server by the key in their token, so that what TLS says of it protects nothing (`dial`); a
//! database by `sslmode=require` is asked for secrecy alone, as libpq does (`server`); a proxy that
//! opens TLS takes whom it finds inside (`lab`); and a download that is measured comes from the
//! program that compares it (`lab`, for `bench`).
//!
//! # The life of a handshake
//!
//! The certificate is taken, whoever made it, whatever name it bears and whenever it was good: a
//! robot whose clock lost its battery joins too. Then the signature over the handshake must be of
//! its key, so that a broken peer is told early, and whoever replays somebody's certificate is not
//! taken for its owner. A certificate with a critical extension that nobody here knows cannot be
//! read, and ends the handshake there; those that an ACME authority is shown are of that kind, and
//! they are not for us.
//!
//! # What it does not do
//!
//! It never stands where TLS is all the protection there is. Who adds a use says in this essay what
//! protects the bytes instead; a database across a hostile network, for one, has nothing else, and
//! its user asks for `sslmode=verify-full`, which does not come here.

#![forbid(unsafe_code)]

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Takes every certificate, and still wants the handshake signed with its key.
#[derive(Debug)]
pub struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Signatures are checked as `provider` knows them.
    #[must_use]
    pub fn new(provider: Arc<CryptoProvider>) -> Arc<Self> {
        Arc::new(Self(provider))
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
