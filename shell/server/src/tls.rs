//! The outer TLS: which certificate is shown to whom. It is one from files, one that is made at the
//! first start, or one of an ACME authority (`acme`), and may be exchanged while connections last.
//! It is for the network's sake; what is said is protected by the channel inside.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use control::ServerUrl;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::client::verify_server_name;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Result, BERReader, Tag};

use crate::held::held;
use crate::keys;

/// How long a certificate that we made is good for: ten years.
const DAYS: u64 = 3653;
/// What is spoken here.
const HTTP: &[u8] = b"http/1.1";
/// What an authority speaks that looks whether a name leads here (RFC 8737, section 4).
pub(crate) const CHALLENGE: &[u8] = b"acme-tls/1";

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    key: Arc<CertifiedKey>,
    /// From when until when it is good, in Unix seconds, if that can be read.
    pub(crate) dates: Option<(u64, u64)>,
}

/// Where a certificate is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// It was made here.
    Own,
    /// Files of the administrator's.
    Files,
    /// An ACME authority.
    Authority,
}

/// Why there is no certificate, or no new one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    /// What failed, where, and how to mend it.
    pub(crate) what: String,
    /// How often in a row.
    pub(crate) failures: u32,
    /// When it is tried again, in Unix seconds.
    pub(crate) next: u64,
}

/// What is shown now.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) origin: Origin,
    pub(crate) trouble: Option<Trouble>,
}

/// What is shown to whom.
#[derive(Debug)]
pub(crate) struct Outer {
    shown: Mutex<Shown>,
    /// For names that an authority is about to look at; at most as many as it was asked for.
    challenges: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl Certificate {
    /// Reads a chain and its key, both in PEM.
    ///
    /// # Errors
    /// If there is nothing in one of them, or the two do not belong together.
    pub(crate) fn read(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|why| format!("the certificate: {why}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| format!("the key: {why}"))?;
        let key = CertifiedKey::from_der(chain, key, &default_provider());
        let key = key.map_err(|why| match why {
            Error::InconsistentKeys(_) => "the key is another certificate's".to_owned(),
            Error::NoCertificatesPresented => "there is no certificate".to_owned(),
            why => why.to_string(),
        })?;
        let dates = key.cert.first().and_then(|first| dates(first));
        Ok(Self { key: Arc::new(key), dates })
    }

    /// Whether it is for this name.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        let first = self.key.end_entity_cert().and_then(ParsedCertificate::try_from);
        let (Ok(first), Ok(name)) = (first, ServerName::try_from(name)) else { return false };
        verify_server_name(&first, &name).is_ok()
    }
}

impl Outer {
    /// Shows the certificate in `files`, or else the one in the folder `data`, which is made for
    /// the hosts of `urls` if it is not there.
    ///
    /// # Errors
    /// If a file cannot be read or written, has nothing in it, or the two do not belong together.
    pub(crate) fn open(
        data: &Path,
        files: Option<&(PathBuf, PathBuf)>,
        urls: &[ServerUrl],
    ) -> io::Result<Arc<Self>> {
        if let Some((certificate, key)) = files {
            return Self::read(certificate, key, Origin::Files);
        }
        let certificate = data.join("tls.crt");
        let key = data.join("tls.key");
        make(&certificate, &key, urls)?;
        Self::read(&certificate, &key, Origin::Own)
    }

    fn read(certificate: &Path, key: &Path, origin: Origin) -> io::Result<Arc<Self>> {
        let read = |path: &Path| {
            let bytes = std::fs::read(path);
            bytes.map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))
        };
        let bad = |why| {
            let why = format!("{} and {}: {why}", certificate.display(), key.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        let first = Certificate::read(&read(certificate)?, &read(key)?).map_err(bad)?;
        let shown = Shown { certificate: Arc::new(first), origin, trouble: None };
        Ok(Arc::new(Self { shown: Mutex::new(shown), challenges: Mutex::default() }))
    }

    /// What accepts TLS with it, for those who want `protocols`.
    fn accept(self: &Arc<Self>, protocols: &[&[u8]]) -> io::Result<TlsAcceptor> {
        Ok(TlsAcceptor::from(self.config(&[&TLS13, &TLS12], protocols)?))
    }

    fn config(
        self: &Arc<Self>,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&[u8]],
    ) -> io::Result<Arc<ServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// How TLS in QUIC is accepted with it, for those who want `protocols`.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn quic(self: &Arc<Self>, protocols: &[&[u8]]) -> io::Result<Arc<ServerConfig>> {
        self.config(&[&TLS13], protocols)
    }

    /// What accepts TLS for HTTP.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn acceptor(self: &Arc<Self>) -> io::Result<TlsAcceptor> {
        self.accept(&[HTTP])
    }

    /// What accepts TLS for HTTP, and for an authority that looks whether a name leads here.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn acceptor_with_challenges(self: &Arc<Self>) -> io::Result<TlsAcceptor> {
        // Ours first: who speaks both is a client and no authority.
        self.accept(&[HTTP, CHALLENGE])
    }

    /// What is shown now.
    pub(crate) fn shown(&self) -> Shown {
        held(&self.shown).clone()
    }

    /// Shows another certificate from the next handshake on.
    pub(crate) fn show(&self, certificate: Certificate, origin: Origin) {
        let certificate = Arc::new(certificate);
        *held(&self.shown) = Shown { certificate, origin, trouble: None };
    }

    /// Notes why there is no certificate, or no new one.
    pub(crate) fn note(&self, trouble: Trouble) {
        held(&self.shown).trouble = Some(trouble);
    }

    /// Shows an authority that looks at `name` the digest that it expects (RFC 8737, section 3).
    ///
    /// # Errors
    /// If no certificate can be made for that name.
    pub(crate) fn challenge(&self, name: &str, digest: &[u8; 32]) -> Result<(), String> {
        let mut params =
            CertificateParams::new([name.to_owned()]).map_err(|why| why.to_string())?;
        params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(digest)];
        let pair = KeyPair::generate().map_err(|why| why.to_string())?;
        let made = params.self_signed(&pair).map_err(|why| why.to_string())?;
        let secret = PrivatePkcs8KeyDer::from(pair.serialize_der());
        let secret = default_provider().key_provider.load_private_key(secret.into());
        let secret = secret.map_err(|why| why.to_string())?;
        // What is in it is critical and known to authorities only, so nobody here can check it.
        let key = CertifiedKey::new(vec![made.der().clone()], secret);
        held(&self.challenges).insert(name.to_owned(), Arc::new(key));
        Ok(())
    }

    /// Nobody looks any more.
    pub(crate) fn end_challenges(&self) {
        held(&self.challenges).clear();
    }
}

impl ResolvesServerCert for Outer {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|all| all.eq([CHALLENGE]));
        if !is_challenge {
            return Some(Arc::clone(&held(&self.shown).certificate.key));
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        held(&self.challenges).get(&name).cloned()
    }
}

/// Makes a self-signed certificate for the hosts of `urls`, unless both files are there.
///
/// # Errors
/// If a file cannot be written, or a host is none that a certificate can name.
fn make(certificate: &Path, key: &Path, urls: &[ServerUrl]) -> io::Result<()> {
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

/// From when until when a certificate is good, in Unix seconds (RFC 5280, section 4.1).
fn dates(certificate: &[u8]) -> Option<(u64, u64)> {
    let read = yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|parts| {
            let dates = parts.next().read_sequence(|fields| {
                let version = Tag::context(0);
                fields.read_optional(|field| field.read_tagged(version, |it| it.read_der()))?;
                // Serial number, algorithm, issuer.
                for _ in 0..3 {
                    fields.next().read_der()?;
                }
                let dates = fields
                    .next()
                    .read_sequence(|dates| Ok((date(dates.next())?, date(dates.next())?)))?;
                while fields.read_optional(|field| field.read_der())?.is_some() {}
                Ok(dates)
            })?;
            // Algorithm and signature.
            parts.next().read_der()?;
            parts.next().read_der()?;
            Ok(dates)
        })
    });
    let (from, until) = read.ok()?;
    Some((from.try_into().ok()?, until.try_into().ok()?))
}

fn date(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    if reader.lookahead_tag()? == TAG_UTCTIME {
        return Ok(reader.read_utctime()?.datetime().unix_timestamp());
    }
    Ok(reader.read_generalized_time()?.datetime().unix_timestamp())
}

#[cfg(test)]
mod tests;
