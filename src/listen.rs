//! Where connections are taken, and with what certificate: the same words for `warren serve` and
//! `warren relay`.

use std::net::SocketAddr;
use std::path::PathBuf;

use ::server::{Acme, IcmpAt, LETS_ENCRYPT};
use anyhow::Result;
use dial::proxy::Proxies;

#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// Where TCP connections are taken; :PORT is all addresses
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:443", env = "WARREN_LISTEN")]
    #[arg(value_parser = place)]
    pub(crate) listen: SocketAddr,
    /// Relay over HTTPS alone, and not over QUIC at the UDP port of the same number, too
    #[arg(long)]
    pub(crate) no_quic: bool,
    /// Take nodes by ping, too, whose networks let nothing else out: at all addresses of this
    /// machine, or at one. It needs CAP_NET_RAW, CAP_NET_ADMIN and nftables
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "any", value_parser = icmp_at)]
    pub(crate) icmp: Option<IcmpAt>,
    #[command(flatten)]
    certificate: Certificate,
}

fn icmp_at(text: &str) -> std::result::Result<IcmpAt, String> {
    match text {
        "any" => Ok(IcmpAt::Any),
        _ => text.parse().map(IcmpAt::One).map_err(|_| {
            format!("{text:?} is no address; say --icmp, or --icmp=ADDR as in --icmp=198.51.100.2")
        }),
    }
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

/// An address and a port; a port alone is that of all addresses.
pub(crate) fn place(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| {
        "an address and a port are wanted, as in 192.0.2.1:8443, [2001:db8::1]:8443, or :8443 for \
         all addresses; a name is none"
            .to_owned()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_that_of_all_addresses_and_a_mistake_has_examples() {
        assert_eq!(place(":8443"), Ok("[::]:8443".parse().unwrap()));
        assert_eq!(place("192.0.2.1:1"), Ok("192.0.2.1:1".parse().unwrap()));
        for wrong in ["", ":", ":x", "8443", "localhost:8443", "192.0.2.1", "::1:8443"] {
            assert!(place(wrong).unwrap_err().contains(":8443 for all"), "{wrong}");
        }
    }
}
