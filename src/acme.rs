//! What is asked of whom for a certificate: the same words for `warren serve` and `warren relay`.

use std::path::PathBuf;

use ::server::{Acme, LETS_ENCRYPT};
use anyhow::Result;
use dial::proxy::Proxies;

#[derive(Debug, clap::Args)]
pub(crate) struct Certificate {
    /// Get and renew a certificate for this name, which leads here by port 443, from an ACME
    /// authority, whose terms you agree to; several, or with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "tls_cert")]
    acme: Vec<String>,
    /// Where the authority reaches you
    #[arg(long, value_name = "ADDR", requires = "acme")]
    acme_email: Option<String>,
    /// The authority's directory
    #[arg(long, value_name = "URL", requires = "acme", default_value = LETS_ENCRYPT)]
    acme_directory: String,
    /// Who signs that directory's own certificate, in PEM, if this machine does not trust it anyway
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_ca: Option<PathBuf>,
}

impl Certificate {
    /// What is to be asked, if anything is; through the proxy that the environment names.
    pub(crate) fn wanted(self) -> Result<Option<Acme>> {
        if self.acme.is_empty() {
            return Ok(None);
        }
        let acme = Acme::new(&self.acme, self.acme_email, &self.acme_directory, self.acme_ca)?;
        Ok(Some(acme.through(Proxies::from_environment()?)))
    }
}
