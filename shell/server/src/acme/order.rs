//! One certificate, asked for (RFC 8555, section 7): the account, an order, for each name a proof
//! that it leads here, the certificate. The library speaks; what is said of a failure is here.

use std::fmt::{self, Display, Formatter};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, Problem, RetryPolicy,
};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::https::{Https, Wait};
use super::kept::{self, Kept};
use super::{Acme, ORDER_WITHIN};
use crate::tls::Outer;

/// Characters of what an authority says of a failure.
const SAID_CHARS_MAX: usize = 400;
/// What all types of problems begin with (RFC 8555, section 6.7).
const PROBLEM: &str = "urn:ietf:params:acme:error:";

/// What failed, where, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    what: String,
    mend: String,
}

impl Failure {
    pub(super) fn new(what: impl Display, mend: impl Into<String>) -> Self {
        Self { what: what.to_string(), mend: mend.into() }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, mend } = self;
        write!(f, "{what}; {mend}")
    }
}

/// A certificate in PEM.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: Zeroizing<String>,
}

/// Answers of an authority's questions, taken away with this.
struct Answers<'a>(&'a Outer);

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        self.0.end_challenges();
    }
}

/// Asks for one certificate.
///
/// # Errors
/// What failed, where, and how to mend it.
pub(super) async fn ask(
    acme: &Acme,
    kept: &Kept,
    outer: &Outer,
    wait: &Wait,
) -> Result<Issued, Failure> {
    let names: Vec<_> = acme.names.iter().cloned().map(Identifier::Dns).collect();
    let wanted = NewOrder::new(&names);
    let account = account(acme, kept, wait, true).await?;
    let mut order = match account.new_order(&wanted).await {
        // It forgot us, or is another one at the same URL: once more, as somebody new.
        Err(Error::Api(problem)) if kind(&problem) == "accountDoesNotExist" => {
            let account = self::account(acme, kept, wait, false).await?;
            account.new_order(&wanted).await
        }
        order => order,
    }
    .map_err(|why| told(acme, "the order", &why))?;
    let _answers = Answers(outer);
    prove(acme, &mut order, outer).await?;
    let patience = RetryPolicy::new().timeout(ORDER_WITHIN);
    match order.poll_ready(&patience).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(Error::Api(_)) => return Err(unproven(&mut order).await),
        Err(why) => return Err(told(acme, "the proof", &why)),
    }
    let doing = "the certificate";
    let key = order.finalize().await.map_err(|why| told(acme, doing, &why))?;
    let key = Zeroizing::new(key);
    let chain = order.poll_certificate(&patience).await.map_err(|why| told(acme, doing, &why))?;
    Ok(Issued { chain, key })
}

/// The account: the one that is kept, if `may_be_kept` and there is one, or a new one.
async fn account(
    acme: &Acme,
    kept: &Kept,
    wait: &Wait,
    may_be_kept: bool,
) -> Result<Account, Failure> {
    let roots = acme.roots.clone();
    let wait = wait.clone();
    let proxies = acme.proxies.clone();
    let https = blocking(move || Https::new(roots.as_deref(), wait, proxies)).await?;
    let https = https.map_err(|why| {
        Failure::new(why, "install ca-certificates, or give the authority's root as --acme-ca")
    })?;
    let builder = Account::builder_with_http(Box::new(https));
    let doing = "the account";
    let contact = acme.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    let there = kept.account(&acme.directory).filter(|_| may_be_kept);
    let (account, credentials) = if let Some(there) = there {
        let text = Zeroizing::new(serde_json::to_string(&there.credentials).unwrap_or_default());
        let account = builder.from_credentials(there.credentials).await;
        let account = account.map_err(|why| told(acme, doing, &why))?;
        if there.email == acme.email {
            return Ok(account);
        }
        let updated = account.update_contacts(&contact).await;
        updated.map_err(|why| told(acme, "the e-mail address", &why))?;
        let again = serde_json::from_str(&text);
        (account, again.map_err(|why| Failure::new(why, "start the server again"))?)
    } else {
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = builder.create(&new, acme.directory.clone(), None).await;
        made.map_err(|why| told(acme, doing, &why))?
    };
    let directory = acme.directory.clone();
    let email = acme.email.clone();
    let made = kept::Account { directory, email, credentials };
    let kept = kept.clone();
    let written = blocking(move || kept.keep_account(&made)).await?;
    written.map_err(|why| Failure::new(why, "make room, or let the server write there"))?;
    Ok(account)
}

/// Answers for every name that the authority has not looked at before, and tells it to look.
async fn prove(acme: &Acme, order: &mut Order, outer: &Outer) -> Result<(), Failure> {
    let doing = "the proof";
    let mut open = order.authorizations();
    while let Some(one) = open.next().await {
        let mut one = one.map_err(|why| told(acme, doing, &why))?;
        let name = one.identifier().to_string().to_ascii_lowercase();
        if !acme.names.contains(&name) {
            let why = format!("the authority asks about {name:?}, which is no name of --acme");
            return Err(Failure::new(why, "use another authority"));
        }
        if one.status == AuthorizationStatus::Valid {
            continue;
        }
        let Some(mut challenge) = one.challenge(ChallengeType::TlsAlpn01) else {
            let why = format!("the authority does not prove {name} by TLS-ALPN-01");
            return Err(Failure::new(why, "use one that does, or give files: --tls-cert"));
        };
        let mut digest = [0; 32];
        digest.copy_from_slice(challenge.key_authorization().digest().as_ref());
        let shown = outer.challenge(&name, &digest);
        shown.map_err(|why| Failure::new(format!("{name}: {why}"), "give another name"))?;
        challenge.set_ready().await.map_err(|why| told(acme, doing, &why))?;
    }
    Ok(())
}

/// Which name could not be proven, and what the authority says of it.
async fn unproven(order: &mut Order) -> Failure {
    let mut all = order.authorizations();
    while let Some(Ok(mut one)) = all.next().await {
        // What is known here is how it was before.
        let Ok(now) = one.refresh().await else { continue };
        let name = now.identifier().to_string();
        let mut errors = now.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = errors.next() {
            return problem_of(&name, problem);
        }
    }
    Failure::new("the authority gave up the order and does not say why", "it is tried again")
}

/// What the authority says of a failure, and what to do.
fn problem_of(about: &str, problem: &Problem) -> Failure {
    let mend = match kind(problem) {
        "connection" | "dns" | "tls" | "unauthorized" | "incorrectResponse" => {
            "see that the name leads to this server from outside: its addresses in DNS, and port \
             443 of them to --listen"
        }
        "caa" => "the domain's CAA records in DNS must allow this authority",
        "rateLimited" => "it is asked again when it takes questions; a restart does not help",
        "externalAccountRequired" => {
            "it wants accounts that are made beforehand: use another authority, or --tls-cert"
        }
        "rejectedIdentifier" | "unsupportedIdentifier" | "malformed" => {
            "give names with --acme that this authority certifies"
        }
        "invalidContact" | "unsupportedContact" => {
            "give an address with --acme-email that it takes"
        }
        _ => "see what this authority wants",
    };
    Failure::new(format!("{about}: the authority says {}", said(&problem.to_string())), mend)
}

fn told(acme: &Acme, doing: &str, error: &Error) -> Failure {
    match error {
        Error::Api(problem) => problem_of(doing, problem),
        Error::Timeout(_) => Failure::new(
            format!("{doing}: the authority did not come to an end in time"),
            "it is tried again",
        ),
        Error::Json(why) => Failure::new(
            format!("{doing}: what answers at {} is no ACME authority: {why}", acme.directory),
            "see --acme-directory",
        ),
        other => Failure::new(
            format!("{doing}: {}", said(&other.to_string())),
            "see that this machine reaches the authority, and that --acme-directory is right; one \
             that is not public needs --acme-ca",
        ),
    }
}

/// The last part of a problem's type.
fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(PROBLEM).unwrap_or(kind)
}

/// Somebody else's words: short, and on one line.
fn said(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SAID_CHARS_MAX).collect()
}

/// Work that waits for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|why| Failure::new(why, "start the server again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_it_is_and_how_to_mend_it() {
        let problem = |kind: &str| -> Problem {
            let text = format!(r#"{{"type":"{PROBLEM}{kind}","detail":"said\u001b[31m so"}}"#);
            serde_json::from_str(&text).unwrap()
        };
        for (kind, mend) in [
            ("connection", "port 443"),
            ("unauthorized", "port 443"),
            ("dns", "DNS"),
            ("caa", "CAA"),
            ("rateLimited", "a restart does not help"),
            ("externalAccountRequired", "--tls-cert"),
            ("rejectedIdentifier", "--acme"),
            ("invalidContact", "--acme-email"),
            ("serverInternal", "see what"),
        ] {
            let told = problem_of("a.example", &problem(kind)).to_string();
            assert!(told.starts_with("a.example: the authority says "), "{told}");
            assert!(told.contains(kind) && told.contains(mend), "{told}");
            assert!(!told.contains('\u{1b}'), "{told:?}");
        }
        let long = said(&"x".repeat(5000));
        assert_eq!(long.len(), SAID_CHARS_MAX);
    }
}
