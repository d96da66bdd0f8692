//! The authorities in a file that vouch for others.

use std::fmt::Display;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The certificates in a PEM file, as those that sign others.
///
/// # Errors
/// If it cannot be read or has none.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let bad = |why: &dyn Display| format!("{}: {why}", path.display());
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(path).map_err(|why| bad(&why))? {
        roots.add(one.map_err(|why| bad(&why))?).map_err(|why| bad(&why))?;
    }
    if roots.is_empty() { Err(bad(&"it has no certificate")) } else { Ok(roots) }
}
