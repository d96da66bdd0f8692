//! The authority of gateways that run strongSwan or OpenVPN: whose certificates they have.
//!
//! Its key lies beside the site file, where nobody else can read it, as an Easy-RSA's would. Who
//! loses it loses nothing that lasts: a new one is made, and the next `apply` gives every gateway a
//! certificate of that one.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::Error;

const END_OF_KEY: &str = "-----END PRIVATE KEY-----\n";
/// Certificates hold until the end of this year: a gateway that nobody looks after goes on.
const LAST_YEAR: i32 = 2049;
/// The attribute by which OpenVPN knows whose a certificate is (X.520, 2.5.4.3).
const SUBJECT: [u64; 4] = [2, 5, 4, 3];

/// Who says which gateway is which.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM.
    pub certificate: String,
}

/// What a gateway is known by.
pub struct Identity {
    /// Its certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

impl Authority {
    /// Reads the one that lies at `path`, or makes one there.
    ///
    /// # Errors
    /// If the file cannot be read or written, or holds something else.
    pub fn open(path: &Path, network: &str) -> Result<Self, Error> {
        let failed = |what: String| Error::new(path.display(), what);
        if !path.exists() {
            let made = Self::make(network).map_err(|error| failed(error.to_string()))?;
            let text = format!("{}{}", made.issuer.key().serialize_pem(), made.certificate);
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(|error| failed(format!("it cannot be written: {error}")))?;
            return Ok(made);
        }
        let text = fs::read_to_string(path)
            .map_err(|error| failed(format!("it cannot be read: {error}")))?;
        let bad =
            || failed("it is no authority of sites; move it away, and one is made".to_owned());
        let (key, certificate) = text.split_once(END_OF_KEY).ok_or_else(bad)?;
        let key = KeyPair::from_pem(&format!("{key}{END_OF_KEY}")).map_err(|_| bad())?;
        let issuer = Issuer::new(Self::params(network), key);
        Ok(Self { issuer, certificate: certificate.to_owned() })
    }

    fn make(network: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = Self::params(network);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The same each time, so that nothing but the key has to be kept.
    fn params(network: &str) -> CertificateParams {
        let mut params = named(&format!("sites of {network}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// By which it is told from another one.
    #[must_use]
    pub fn mark(&self) -> String {
        sites::mark(&self.certificate)
    }

    /// A new key and its certificate for a gateway.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn issue(&self, name: &str) -> Result<Identity, Error> {
        let made = || -> Result<Identity, rcgen::Error> {
            let key = KeyPair::generate()?;
            let mut params = named(name);
            params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into()?)];
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok(Identity { certificate, key: key.serialize_pem() })
        };
        made().map_err(|error| Error::new(name, format!("no certificate: {error}")))
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CustomDnType(SUBJECT.to_vec()), name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(LAST_YEAR, 12, 31);
    params
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_made_once_and_read_again_and_nobody_else_reads_it() {
        let path = std::env::temp_dir().join(format!("warren-authority-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let made = Authority::open(&path, "acme").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Authority::open(&path, "acme").unwrap();
        assert_eq!(made.mark(), again.mark());
        let [one, two] = [&made, &again].map(|authority| authority.issue("acme-a-gw1").unwrap());
        assert_ne!(one.key, two.key, "a key is never given twice");
        fs::write(&path, "something else").unwrap();
        assert!(Authority::open(&path, "acme").is_err());
        fs::remove_file(&path).unwrap();
        assert_ne!(Authority::open(&path, "acme").unwrap().mark(), made.mark());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn openssl_takes_what_it_issues() {
        let folder = std::env::temp_dir().join(format!("warren-issued-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = Authority::open(&folder.join("authority.pem"), "acme").unwrap();
        let again = Authority::open(&folder.join("authority.pem"), "acme").unwrap();
        fs::write(folder.join("ca.pem"), &made.certificate).unwrap();
        fs::write(folder.join("own.pem"), again.issue("acme-a-gw1").unwrap().certificate).unwrap();
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(["verify", "-purpose", "sslserver", "-CAfile", "ca.pem", "own.pem"]);
        let checked = openssl.current_dir(&folder).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
