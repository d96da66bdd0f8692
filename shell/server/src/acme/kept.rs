//! What is kept in the server's folder: the account at an authority, the certificate together with
//! its key, so that no crash parts the two, and when the authority was asked last without success.
//! None of it is needed to be a server: what is lost or damaged is had again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keys;
use crate::tls::Certificate;

/// The account and its key.
const ACCOUNT: &str = "acme.account";
/// The certificate and its key.
const CERTIFICATE: &str = "acme.pem";
/// When the authority was asked.
const ASKED: &str = "acme.asked";
/// How the line begins that says whose certificate it is.
const FROM: &str = "certificate of ";

/// An account at an authority.
#[derive(Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) directory: String,
    pub(super) email: Option<String>,
    pub(super) credentials: AccountCredentials,
}

/// The folder that it is kept in.
#[derive(Clone, Debug)]
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn new(data: &Path) -> Self {
        Self(data.to_owned())
    }

    fn read(&self, name: &str) -> Option<Zeroizing<String>> {
        let path = self.0.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Some(Zeroizing::new(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(%error, "{} is unreadable; a new one is had", path.display());
                None
            }
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.0.join(name);
        let told =
            |why: io::Error| io::Error::new(why.kind(), format!("{}: {why}", path.display()));
        keys::write(&path, text.as_bytes()).map_err(told)
    }

    /// The account at this authority, if there is one.
    pub(super) fn account(&self, directory: &str) -> Option<Account> {
        let text = self.read(ACCOUNT)?;
        match serde_json::from_str::<Account>(&text) {
            Ok(account) => Some(account).filter(|account| account.directory == directory),
            Err(error) => {
                let path = self.0.join(ACCOUNT);
                tracing::error!(%error, "{} is damaged; a new account is made", path.display());
                None
            }
        }
    }

    /// Keeps an account.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn keep_account(&self, account: &Account) -> io::Result<()> {
        self.write(ACCOUNT, &Zeroizing::new(serde_json::to_string(account)?))
    }

    /// The certificate, and whether it is of this authority.
    pub(super) fn certificate(&self, directory: &str) -> Option<(Certificate, bool)> {
        let text = self.read(CERTIFICATE)?;
        match Certificate::read(text.as_bytes(), text.as_bytes()) {
            Ok(certificate) => {
                let from = text.lines().next().and_then(|line| line.strip_prefix(FROM));
                Some((certificate, from == Some(directory)))
            }
            Err(error) => {
                let path = self.0.join(CERTIFICATE);
                tracing::error!(%error, "{} is damaged; a new one is asked for", path.display());
                None
            }
        }
    }

    /// Keeps a certificate: its chain and its key, both in PEM.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn keep_certificate(
        &self,
        directory: &str,
        chain: &str,
        key: &str,
    ) -> io::Result<()> {
        let text = Zeroizing::new(format!("{FROM}{directory}\n{key}{chain}"));
        self.write(CERTIFICATE, &text)
    }

    /// When the authority was asked last without success, in Unix seconds.
    pub(super) fn asked(&self) -> Option<u64> {
        self.read(ASKED)?.trim().parse().ok()
    }

    /// Notes that the authority is asked, before it is: a server that ends and begins again and
    /// again asks no more often for it. Success takes the note away.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn note_asked(&self, at: Option<u64>) -> io::Result<()> {
        let Some(at) = at else {
            return match fs::remove_file(self.0.join(ASKED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        self.write(ASKED, &format!("{at}\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::tests::Folder;

    const DIRECTORY: &str = "https://ca.example/directory";

    #[test]
    fn lc_03_what_is_kept_comes_back_and_what_is_damaged_is_had_again() {
        let folder = Folder::new("acme-kept");
        let kept = Kept::new(&folder.0);
        assert!(kept.certificate(DIRECTORY).is_none() && kept.account(DIRECTORY).is_none());
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        let chain = params.self_signed(&pair).unwrap().pem();
        kept.keep_certificate(DIRECTORY, &chain, &pair.serialize_pem()).unwrap();
        let (certificate, is_its) = kept.certificate(DIRECTORY).unwrap();
        assert!(is_its && certificate.is_for("a.example"));
        assert!(!kept.certificate("https://other.example/directory").unwrap().1);

        let path = folder.0.join(CERTIFICATE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = fs::read(&path).unwrap();
        for len in (0..good.len() - 1).step_by(7) {
            fs::write(&path, &good[..len]).unwrap();
            assert!(kept.certificate(DIRECTORY).is_none(), "{len} of {} bytes", good.len());
        }
        for text in ["", "{", "{}", "\u{0}"] {
            fs::write(folder.0.join(ACCOUNT), text).unwrap();
            assert!(kept.account(DIRECTORY).is_none(), "{text}");
        }
    }

    #[test]
    fn co_20_when_the_authority_was_asked_is_remembered_until_it_gave() {
        let folder = Folder::new("acme-asked");
        let kept = Kept::new(&folder.0);
        assert_eq!(kept.asked(), None);
        kept.note_asked(None).unwrap();
        kept.note_asked(Some(1_700_000_000)).unwrap();
        assert_eq!(kept.asked(), Some(1_700_000_000));
        kept.note_asked(None).unwrap();
        assert_eq!(kept.asked(), None);
    }
}
