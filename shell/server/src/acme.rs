//! Certificates of an authority that speaks ACME (RFC 8555), such as Let's Encrypt.
//!
//! One task asks for a certificate when there is none or a third of its life is left, shows it and
//! keeps it (`kept`). How one is asked for is in `order`, how the authority is reached in `https`,
//! and the answer to its question, whether a name leads here, in `tls`: it comes over the port
//! that the server has, by TLS-ALPN-01 (RFC 8737). No node needs any of this: whatever fails here,
//! the server goes on with what it shows.

pub(crate) mod https;
mod kept;
mod order;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::ServerUrl;
use dial::proxy::Proxies;
use noise::Random;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::held::held;
use crate::keys::SystemRandom;
use crate::roots;
use crate::tls::{Certificate, Origin, Outer, Trouble};
use https::Wait;
use kept::Kept;
use order::{Failure, Issued, blocking};

/// Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Names in one certificate, which is what Let's Encrypt takes.
const NAMES_MAX: usize = 100;
/// The longest that an authority may keep us from asking.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// How often the date is looked at: clocks are set, machines sleep.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// One step of an order may take so long.
const ORDER_WITHIN: Duration = Duration::from_secs(90);
/// All of them may take so long together.
const ASK_WITHIN: Duration = Duration::from_secs(300);

/// How often an authority is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The pause after a failure. It doubles with every further one.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// The pause after a certificate came, however short its life is.
    pub after: Duration,
}

impl Default for Pace {
    /// Five failures in the first hour, which is what Let's Encrypt allows for one name; later four
    /// a day. A third of a life of 90 days are 30 days, and of one of six days two.
    fn default() -> Self {
        let [first, longest, after] = [120, 6 * 3600, 3600].map(Duration::from_secs);
        Self { first, longest, after }
    }
}

impl Pace {
    /// The pause after so many failures in a row, a random part of a quarter longer, so that those
    /// who failed together do not come back together.
    fn pause(&self, failures: u32, random: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(30));
        let pause = doubled.min(self.longest);
        pause + pause.mul_f64(f64::from(random) / f64::from(u32::MAX) / 4.0)
    }
}

/// What is asked of which authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acme {
    names: Vec<String>,
    email: Option<String>,
    directory: String,
    roots: Option<PathBuf>,
    proxies: Proxies,
    /// How often it is asked.
    pub pace: Pace,
}

impl Acme {
    /// A certificate for `names`, of the authority at the URL `directory`, whose own certificate is
    /// signed by one in the file `roots`, or else by one that this machine trusts.
    ///
    /// # Errors
    /// What cannot be asked for, and what to give instead.
    pub fn new(
        names: &[String],
        email: Option<String>,
        directory: &str,
        roots: Option<PathBuf>,
    ) -> io::Result<Self> {
        let bad = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let mut wanted: Vec<String> = Vec::new();
        for name in names {
            let name = name.to_ascii_lowercase();
            if let Some(why) = unfit(&name) {
                return Err(bad(format!("--acme {name:?}: {why}")));
            }
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        if !(1..=NAMES_MAX).contains(&wanted.len()) {
            return Err(bad(format!("--acme: {} names; give 1 to {NAMES_MAX}", wanted.len())));
        }
        let is_address = |text: &String| {
            let (user, host) = text.split_once('@').unwrap_or_default();
            !user.is_empty()
                && !host.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
        };
        if let Some(email) = email.as_ref().filter(|email| !is_address(email)) {
            return Err(bad(format!(
                "--acme-email {email:?} is no e-mail address; give NAME@HOST"
            )));
        }
        let url = directory.parse::<hyper::Uri>().ok();
        if url.is_none_or(|url| url.scheme_str() != Some("https") || url.host().is_none()) {
            return Err(bad(format!(
                "--acme-directory {directory:?} is no URL of a directory; give it as the authority \
                 does, as in {LETS_ENCRYPT}"
            )));
        }
        if let Some(path) = &roots {
            roots::roots(path).map_err(|why| bad(format!("--acme-ca: {why}")))?;
        }
        let directory = directory.to_owned();
        let proxies = Proxies::default();
        let pace = Pace::default();
        Ok(Self { names: wanted, email, directory, roots, proxies, pace })
    }

    /// The same, with the authority reached through these proxies.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }
}

/// Why an authority does not certify this, or not in the way that we have.
fn unfit(name: &str) -> Option<&'static str> {
    let last = name.rsplit('.').next().unwrap_or_default();
    if name.contains('*') {
        Some("wildcards are proven by DNS alone; give each name, or files with --tls-cert")
    } else if name.contains(':') || last.bytes().all(|byte| byte.is_ascii_digit()) {
        Some("that is an address; give a name that leads to it, or no --acme: nodes need none")
    } else if !control::name::is_domain(name) {
        Some("that is no name; give one as in vpn.example.com, outside ASCII as xn--…")
    } else {
        None
    }
}

/// The outer certificate, what accepts TLS with it, and who sees that there is one of an authority.
///
/// # Errors
/// If a file cannot be read, or files and an authority are both asked for.
pub(crate) fn outer(
    data: &Path,
    urls: &[ServerUrl],
    files: Option<&(PathBuf, PathBuf)>,
    acme: Option<&Acme>,
    clock: fn() -> u64,
) -> io::Result<(Arc<Outer>, TlsAcceptor, Option<Keeper>)> {
    let outer = Outer::open(data, files, urls)?;
    let Some(acme) = acme else {
        let acceptor = outer.acceptor()?;
        return Ok((outer, acceptor, None));
    };
    if files.is_some() {
        let why = "a certificate is in files or is asked for: leave --tls-cert or --acme out";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let keeper = Keeper::new(acme.clone(), data, Arc::clone(&outer), clock);
    let acceptor = outer.acceptor_with_challenges()?;
    Ok((outer, acceptor, Some(keeper)))
}

/// When a certificate is to be renewed that is good from and until then: a third is left.
const fn due(dates: (u64, u64)) -> u64 {
    let (from, until) = dates;
    until - until.saturating_sub(from) / 3
}

/// Sees that there is a certificate of the authority.
pub(crate) struct Keeper {
    acme: Acme,
    kept: Kept,
    outer: Arc<Outer>,
    clock: fn() -> u64,
}

impl Keeper {
    /// Shows at once what is kept from before.
    pub(crate) fn new(acme: Acme, data: &Path, outer: Arc<Outer>, clock: fn() -> u64) -> Self {
        let kept = Kept::new(data);
        if let Some((certificate, is_its)) = kept.certificate(&acme.directory)
            && is_its
        {
            outer.show(certificate, Origin::Authority);
        }
        Self { acme, kept, outer, clock }
    }

    /// When the authority is to be asked, in Unix seconds.
    fn due(&self) -> u64 {
        let shown = self.outer.shown();
        let is_fit = shown.origin == Origin::Authority
            && self.acme.names.iter().all(|name| shown.certificate.is_for(name));
        shown.certificate.dates.filter(|_| is_fit).map_or(0, due)
    }

    /// Asks when it is time, for ever.
    pub(crate) async fn keep(self) {
        let mut failures = 0;
        self.rest_of_the_pause().await;
        loop {
            while let Some(left) = self.due().checked_sub((self.clock)()).filter(|s| *s > 0) {
                sleep(Duration::from_secs(left).min(LOOK_EVERY)).await;
            }
            let wait = Wait::default();
            let Err(failure) = self.ask_once(&wait).await else {
                failures = 0;
                sleep(self.acme.pace.after).await;
                continue;
            };
            failures += 1;
            let mut random = [0; 4];
            SystemRandom.fill(&mut random);
            let own = self.acme.pace.pause(failures, u32::from_ne_bytes(random));
            let pause = held(&wait).unwrap_or_default().min(WAIT_MAX).max(own);
            self.tell(&failure, failures, pause);
            sleep(pause).await;
        }
    }

    /// A server that ended soon after it asked in vain, and began again, waits for the rest of the
    /// first pause.
    async fn rest_of_the_pause(&self) {
        let (Some(asked), now) = (self.kept.asked(), (self.clock)()) else { return };
        let first = self.acme.pace.first;
        let since = Duration::from_secs(now.checked_sub(asked).unwrap_or(u64::MAX));
        sleep(first.saturating_sub(since)).await;
    }

    fn tell(&self, failure: &Failure, failures: u32, pause: Duration) {
        let Acme { names, directory, .. } = &self.acme;
        let what = format!("no certificate for {} from {directory}: {failure}", names.join(", "));
        tracing::error!(failures, next_try_s = pause.as_secs(), "{what}");
        let next = (self.clock)().saturating_add(pause.as_secs());
        self.outer.note(Trouble { what, failures, next });
    }

    /// Asks, keeps what comes, and shows it.
    async fn ask_once(&self, wait: &Wait) -> Result<(), Failure> {
        let mend = "make room, or let the server write there";
        let written = |written: io::Result<()>| written.map_err(|why| Failure::new(why, mend));
        let kept = self.kept.clone();
        let now = (self.clock)();
        written(blocking(move || kept.note_asked(Some(now))).await?)?;
        let ask = order::ask(&self.acme, &self.kept, &self.outer, wait);
        let Issued { chain, key } = timeout(ASK_WITHIN, ask).await.unwrap_or_else(|_| {
            let why = format!("no certificate in {} s", ASK_WITHIN.as_secs());
            Err(Failure::new(why, "it is tried again"))
        })?;
        let certificate = Certificate::read(chain.as_bytes(), key.as_bytes())
            .map_err(|why| Failure::new(format!("what it gave is of no use: {why}"), OTHER))?;
        if let Some(name) = self.acme.names.iter().find(|name| !certificate.is_for(name)) {
            return Err(Failure::new(format!("what it gave is not for {name}"), OTHER));
        }
        let dates = certificate.dates.ok_or_else(|| Failure::new("it has no dates", OTHER))?;
        let kept = self.kept.clone();
        let directory = self.acme.directory.clone();
        let keep = move || {
            kept.keep_certificate(&directory, &chain, &key)?;
            kept.note_asked(None)
        };
        // It is shown even if it cannot be kept: it is there.
        let is_kept = blocking(keep).await;
        self.outer.show(certificate, Origin::Authority);
        written(is_kept?)?;
        let names = self.acme.names.join(", ");
        let until = control::text::rfc3339(dates.1);
        tracing::info!(names, until, "there is a new certificate");
        if due(dates) <= (self.clock)() {
            let why = format!("the new certificate ends {until}, which is soon by this clock");
            return Err(Failure::new(why, "set this machine's clock"));
        }
        Ok(())
    }
}

/// What to do about an authority that gives something else.
const OTHER: &str = "use another authority";

#[cfg(test)]
mod tests {
    use super::*;

    fn acme(names: &[&str]) -> io::Result<Acme> {
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        Acme::new(&names, None, LETS_ENCRYPT, None)
    }

    #[test]
    fn what_cannot_be_asked_for_is_told_with_what_to_give_instead() {
        let good = acme(&["VPN.Example.com", "b.example", "vpn.example.com"]).unwrap();
        assert_eq!(good.names, ["vpn.example.com", "b.example"]);
        for (name, told) in [
            ("*.example.com", "wildcards"),
            ("192.0.2.1", "address"),
            ("2001:db8::1", "address"),
            ("vpn.example.com:443", "address"),
            ("", "address"),
            ("-a.example", "no name"),
            ("a..example", "no name"),
            ("bücher.example", "xn--"),
            ("a b.example", "no name"),
        ] {
            let why = acme(&[name]).unwrap_err().to_string();
            assert!(why.starts_with("--acme ") && why.contains(told), "{name}: {why}");
        }
        let many: Vec<String> = (0..=NAMES_MAX).map(|n| format!("n{n}.example")).collect();
        assert!(Acme::new(&many, None, LETS_ENCRYPT, None).is_err());
        assert!(Acme::new(&[], None, LETS_ENCRYPT, None).is_err());
        let one = ["a.example".to_owned()];
        let email = |email: &str| Acme::new(&one, Some(email.to_owned()), LETS_ENCRYPT, None);
        assert!(email("admin@example.com").is_ok());
        for bad in ["", "admin", "@example.com", "admin@", "a b@c", "a@b,c@d"] {
            let why = email(bad).unwrap_err().to_string();
            assert!(why.contains("--acme-email"), "{why}");
        }
        for bad in ["", "example.com", "http://example.com/dir", "https://", "https:///dir"] {
            let why = Acme::new(&one, None, bad, None).unwrap_err().to_string();
            assert!(why.contains("--acme-directory"), "{bad}: {why}");
        }
        let why = Acme::new(&one, None, LETS_ENCRYPT, Some("/nowhere.pem".into())).unwrap_err();
        assert!(why.to_string().contains("--acme-ca: /nowhere.pem"), "{why}");
    }

    #[test]
    fn co_20_pauses_double_to_a_bound_and_are_drawn() {
        let pace = Pace::default();
        let mut last = Duration::ZERO;
        let mut sum = Duration::ZERO;
        let mut in_an_hour = 1;
        for failures in 1..100 {
            let (least, most) = (pace.pause(failures, 0), pace.pause(failures, u32::MAX));
            assert!(least >= last && least <= pace.longest, "{failures}: {least:?}");
            assert!(most <= pace.longest + pace.longest / 4 && most > least, "{failures}");
            last = least;
            sum += least;
            in_an_hour += u32::from(sum < Duration::from_secs(3600));
        }
        assert_eq!(last, pace.longest);
        assert!(in_an_hour <= 5, "{in_an_hour} in the first hour");
        assert_eq!(pace.pause(1, 0), pace.first);
        assert_eq!(pace.pause(u32::MAX, 0), pace.longest);
    }

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_life_is_left() {
        assert_eq!(due((1000, 1090)), 1060);
        assert_eq!(due((1000, 1000)), 1000);
        assert_eq!(due((1000, 0)), 0, "one that ends before it begins, at once");
        assert_eq!(due((0, u64::MAX)), u64::MAX - u64::MAX / 3);
    }
}
