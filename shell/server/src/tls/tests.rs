//! Who is shown what, by what real clients ask for.

use std::time::Duration;

use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection};
use trust::AnyCertificate;

use super::*;
use crate::store::tests::Folder;

/// A chain of one certificate and its key in PEM, for a name, good from and until.
fn pem(name: &str, from: SystemTime, until: SystemTime) -> (String, String) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (from.into(), until.into());
    let pair = KeyPair::generate().unwrap();
    (params.self_signed(&pair).unwrap().pem(), pair.serialize_pem())
}

fn at(unix_s: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s)
}

fn certificate(name: &str) -> Certificate {
    let (chain, key) = pem(name, at(1_000_000_000), at(4_000_000_000));
    Certificate::read(chain.as_bytes(), key.as_bytes()).unwrap()
}

fn outer(folder: &Folder, name: &str) -> Arc<Outer> {
    let (chain, key) = pem(name, at(1_000_000_000), at(4_000_000_000));
    let files = (folder.0.join("a.crt"), folder.0.join("a.key"));
    std::fs::write(&files.0, chain).unwrap();
    std::fs::write(&files.1, key).unwrap();
    Outer::open(&folder.0, Some(&files), &[]).unwrap()
}

/// The certificate and the protocol that a client gets who asks for `name` with `protocols`.
fn meet(
    acceptor: &TlsAcceptor,
    name: &str,
    protocols: &[&[u8]],
) -> Result<(Vec<u8>, Option<Vec<u8>>), Error> {
    let provider = Arc::new(default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::new(provider))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name)?;
    let (mut bytes, mut asked) = (Vec::new(), Acceptor::default());
    client.write_tls(&mut bytes).unwrap();
    asked.read_tls(&mut bytes.as_slice()).unwrap();
    let asked = asked.accept().map_err(|(why, _)| why)?.expect("a whole hello");
    // Not from the client: what an authority is shown has a critical extension that only
    // authorities know, so our verifier cannot read it.
    let shown = acceptor.config().cert_resolver.resolve(asked.client_hello());
    let config = Arc::clone(acceptor.config());
    let server = asked.into_connection(config).map_err(|(why, _)| why)?;
    let shown = shown.ok_or(Error::NoCertificatesPresented)?;
    Ok((shown.cert[0].to_vec(), server.alpn_protocol().map(<[u8]>::to_vec)))
}

#[test]
fn co_20_only_an_authority_that_looks_at_a_name_in_question_sees_the_answer() {
    let folder = Folder::new("tls-challenge");
    let outer = outer(&folder, "a.example");
    let ours = outer.shown().certificate.key.cert[0].to_vec();
    let acceptor = outer.acceptor_with_challenges().unwrap();
    assert!(meet(&acceptor, "a.example", &[CHALLENGE]).is_err(), "nothing is in question");
    let digest = [0xd5; 32];
    outer.challenge("a.example", &digest).unwrap();

    let (shown, spoken) = meet(&acceptor, "A.Example", &[CHALLENGE]).unwrap();
    assert_eq!(spoken.as_deref(), Some(CHALLENGE));
    assert_ne!(shown, ours);
    assert!(shown.windows(32).any(|window| window == digest), "what the authority looks for");
    // id-pe-acmeIdentifier, critical: 1.3.6.1.5.5.7.1.31, then TRUE.
    let extension = [6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 0x1f, 1, 1, 0xff];
    assert!(shown.windows(extension.len()).any(|window| window == extension));

    assert!(meet(&acceptor, "b.example", &[CHALLENGE]).is_err(), "another name is not in question");
    for protocols in [&[][..], &[HTTP], &[CHALLENGE, HTTP], &[HTTP, CHALLENGE]] {
        let (shown, spoken) = meet(&acceptor, "a.example", protocols).unwrap();
        assert_eq!(shown, ours, "{protocols:?}: a client sees the certificate");
        assert!(spoken.is_none_or(|spoken| spoken == HTTP), "{protocols:?}");
    }
    outer.end_challenges();
    assert!(meet(&acceptor, "a.example", &[CHALLENGE]).is_err(), "no longer");
    let without = outer.acceptor().unwrap();
    outer.challenge("a.example", &digest).unwrap();
    assert!(meet(&without, "a.example", &[CHALLENGE]).is_err(), "a server without an authority");
}

#[test]
fn another_certificate_is_shown_from_the_next_handshake_on() {
    let folder = Folder::new("tls-swap");
    let outer = outer(&folder, "a.example");
    let acceptor = outer.acceptor().unwrap();
    let before = meet(&acceptor, "a.example", &[HTTP]).unwrap().0;
    outer.note(Trouble { what: "it failed".to_owned(), failures: 1, next: 7 });
    assert_eq!(outer.shown().trouble.unwrap().failures, 1);
    let other = certificate("a.example");
    let expected = other.key.cert[0].to_vec();
    outer.show(other, Origin::Authority);
    let after = meet(&acceptor, "a.example", &[HTTP]).unwrap().0;
    assert!(after == expected && after != before);
    let shown = outer.shown();
    assert_eq!((shown.origin, shown.trouble), (Origin::Authority, None), "the trouble is over");
}

#[test]
fn dates_and_names_of_a_certificate_are_read() {
    // Both forms of a date: from 2050 on it is the long one.
    for (from, until) in [(1, 2), (1_700_000_000, 1_800_000_000), (2_500_000_000, 253_402_300_799)]
    {
        let (chain, key) = pem("a.example", at(from), at(until));
        let read = Certificate::read(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(read.dates, Some((from, until)));
        assert!(read.is_for("a.example") && read.is_for("A.EXAMPLE"));
        assert!(!read.is_for("b.example") && !read.is_for("b.a.example") && !read.is_for(""));
        let der = read.key.cert[0].to_vec();
        for len in 0..der.len() {
            assert_eq!(dates(&der[..len]), None, "{len}");
        }
    }
}

#[test]
fn what_does_not_belong_together_is_told() {
    let (now, later) = (at(1_700_000_000), at(1_800_000_000));
    let (chain, key) = pem("a.example", now, later);
    let (_, other) = pem("a.example", now, later);
    let read =
        |chain: &str, key: &str| Certificate::read(chain.as_bytes(), key.as_bytes()).unwrap_err();
    assert_eq!(read(&chain, &other), "the key is another certificate's");
    assert!(read(&chain, "").starts_with("the key: "), "{}", read(&chain, ""));
    assert_eq!(read("", &key), "there is no certificate");
}
