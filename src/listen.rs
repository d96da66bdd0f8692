//! Where connections are taken, and with what certificate: the same words for `warren serve` and
//! `warren relay`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ::server::{Acme, LETS_ENCRYPT};
use anyhow::Result;
use dial::proxy::Proxies;

#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// Where TCP connections are taken
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:443", env = "WARREN_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Relay over HTTPS alone, and not over QUIC at the UDP port of the same number, too
    #[arg(long)]
    pub(crate) no_quic: bool,
    #[command(flatten)]
    certificate: Certificate,
}

#[derive(Debug, clap::Args)]
struct Certificate {
    /// A certificate chain in PEM instead of our own
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Get and renew a certificate for this name, which leads here by port 443, from an ACME
    /// authority, whose terms you agree to; several, or with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "tls_cert")]
    #[arg(env = "WARREN_ACME")]
    acme: Vec<String>,
    /// Where the authority reaches you
    #[arg(long, value_name = "ADDR", requires = "acme", env = "WARREN_ACME_EMAIL")]
    acme_email: Option<String>,
    /// The authority's directory
    #[arg(long, value_name = "URL", requires = "acme", default_value = LETS_ENCRYPT)]
    acme_directory: String,
    /// Who signs that directory's own certificate, in PEM, if this machine does not trust it anyway
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_ca: Option<PathBuf>,
}

/// A certificate that is there: its chain and its key.
type Files = Option<(PathBuf, PathBuf)>;

impl Listen {
    /// The certificate's files, and what is to be asked of an authority, if either is wanted; it is
    /// asked through the proxy that the environment names.
    pub(crate) fn certificate(self) -> Result<(Files, Option<Acme>)> {
        let Certificate { tls_cert, tls_key, acme, acme_email, acme_directory, acme_ca } =
            self.certificate;
        let files = tls_cert.zip(tls_key);
        if acme.is_empty() {
            return Ok((files, None));
        }
        let acme = Acme::new(&acme, acme_email, &acme_directory, acme_ca)?;
        Ok((files, Some(acme.through(Proxies::from_environment()?))))
    }
}
