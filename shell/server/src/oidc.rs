//! OpenID Connect: somebody else says who somebody is (OpenID Connect Core 1.0, the authorization
//! code flow with PKCE). The server is the relying party; nodes never talk to the provider.
//!
//! The life of a sign-in:
//!
//! 1. [`Oidc::begin`] asks the provider's discovery document, if it is not known or is old, and
//!    makes a state, a nonce and a verifier, each of 128 bits or more. They are kept in memory with
//!    a word that only this browser has, in a cookie.
//! 2. The browser comes back with a code. [`Oidc::finish`] takes the state out of the table, so
//!    that it is good once; browser and issuer have to be those of the beginning.
//! 3. The code is exchanged, and the ID token verified ([`jwt`]) with a key of the provider. Its
//!    keys are fetched again after an hour, and when none of those that are known has signed a
//!    token, but for that once a minute at most.
//! 4. What is told of the person becomes a [`Person`]: (issuer, subject) is who it is, and nothing
//!    else is. An address of mail counts only if the provider has verified it.
//!
//! A provider that is down blocks new sign-ins and nothing else: nothing is asked at the start, who
//! is signed in stays so, and local passwords work. Groups are asked for again on a timer, with the
//! refresh token; a provider that refuses that has removed the person, whose sessions end and whose
//! groups are empty from then on. One that does not answer has said nothing.
//!
//! Everything that comes from the provider has a bound in size and time, comes over HTTPS whose
//! certificate is verified, and no redirect is followed (threats WB-06, WB-07).

mod config;
mod fetch;
pub(crate) mod jwt;
mod person;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use admit::{Crowd, Number, Source};
use control::text::to_base64url;
use noise::Random as _;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;

pub use config::Provider;
pub(crate) use fetch::Failure;
use fetch::{Endpoint, Fetch};
use jwt::{Expected, Keys};

use crate::clock::Moment;
use crate::held::held;
use crate::keys::SystemRandom;
use crate::passwords::is_equal;
use crate::percent::percent;
use crate::store::Person;

/// Sign-ins that are under way, all together.
const BEGUN_MAX: usize = 1024;
/// How long one may take, in seconds.
pub(crate) const LAST_S: u64 = 600;
/// What the provider said of itself, and of its keys, is asked again after so long: a key that it
/// took back is believed no longer.
const DISCOVERY_LASTS: Duration = Duration::from_secs(3600);
/// For tokens that no known key has signed keys are fetched again no sooner, however many come.
const KEYS_PAUSE: Duration = Duration::from_secs(60);
/// After a provider did not answer it is left alone for so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of what a provider says of itself, of its keys, and of a person.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
const KEYS_BYTES_MAX: usize = 512 * 1024;
const TOKENS_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a code and of a state that come back.
const WORD_BYTES_MAX: usize = 4096;

/// What stands in a form beside letters and digits (RFC 3986, section 2.3).
const UNRESERVED: &[u8] = b"-_.~";

/// The name of a sign-in, which comes back with the browser.
type State = [u8; 16];

/// A sign-in that is under way.
struct Begun {
    browser: [u8; 16],
    nonce: String,
    verifier: String,
    back: String,
    ends_up_s: u64,
    place: Number,
}

/// What the provider says of itself (OpenID Connect Discovery 1.0).
#[derive(Clone, Deserialize)]
struct Discovery {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// What comes for a code or a refresh token.
#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    id_token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    refresh_token: Option<String>,
}

#[derive(Default)]
struct Known {
    discovery: Option<(Instant, Discovery)>,
    keys: Option<(Instant, Keys)>,
    /// When keys were fetched for a token that no known one had signed.
    doubted: Option<Instant>,
    failed: Option<(Instant, String)>,
}

/// A provider, and the sign-ins that are under way.
pub(crate) struct Oidc {
    provider: Provider,
    fetch: Fetch,
    redirect: String,
    known: Mutex<Known>,
    begun: Mutex<Waiting>,
}

/// Sign-ins that are under way, and the order in which they make room.
type Waiting = (BTreeMap<State, Begun>, Crowd<u64, Source, State>);

/// Where a browser is sent, and what it has to keep.
pub(crate) struct Sent {
    pub(crate) to: String,
    pub(crate) browser: String,
}

/// Who came back, and where to go on to.
pub(crate) struct Came {
    pub(crate) person: Person,
    pub(crate) refresh: Option<String>,
    pub(crate) back: String,
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom.fill(&mut bytes);
    bytes
}

impl Oidc {
    /// A provider to which the server at `base` sends people.
    pub(crate) fn new(provider: Provider, base: &str) -> Self {
        let redirect = format!("{}/sign-in/oidc/callback", base.trim_end_matches('/'));
        let fetch = Fetch::new(provider.ca_file.clone());
        let begun = Mutex::new((BTreeMap::new(), Crowd::new(BEGUN_MAX)));
        Self { provider, fetch, redirect, known: Mutex::default(), begun }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> &str {
        &self.provider.name
    }

    /// The identity's first half.
    pub(crate) fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    /// Whether it says what people may do.
    pub(crate) fn gives_roles(&self) -> bool {
        !self.provider.roles.is_empty()
    }

    /// How often groups are asked for again.
    pub(crate) fn refresh_s(&self) -> u64 {
        self.provider.refresh_minutes.max(1) * 60
    }

    /// Why it did not answer, if it did not when it was asked last.
    pub(crate) fn trouble(&self) -> Option<String> {
        held(&self.known).failed.as_ref().map(|(_, why)| why.clone())
    }

    /// Begins a sign-in. May wait for the provider.
    pub(crate) fn begin(&self, back: &str, source: Source, now: Moment) -> Result<Sent, Failure> {
        let discovery = self.discovery()?;
        let state = random::<16>();
        let browser = random::<16>();
        let nonce = to_base64url(&random::<16>());
        let verifier = to_base64url(&random::<32>());
        let challenge = to_base64url(digest(&SHA256, verifier.as_bytes()).as_ref());
        let scopes = self.provider.scopes.join(" ");
        let shown = to_base64url(&state);
        let query = form(&[
            ("response_type", "code"),
            ("client_id", self.provider.client_id.as_str()),
            ("redirect_uri", self.redirect.as_str()),
            ("scope", scopes.as_str()),
            ("state", shown.as_str()),
            ("nonce", nonce.as_str()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ]);
        let joint = if discovery.authorization_endpoint.contains('?') { '&' } else { '?' };
        let to = format!("{}{joint}{query}", discovery.authorization_endpoint);
        let mut table = held(&self.begun);
        let (begun, crowd) = &mut *table;
        let over = begun.iter().filter(|(_, one)| now.up_s >= one.ends_up_s);
        for state in over.map(|(state, _)| *state).collect::<Vec<_>>() {
            if let Some(one) = begun.remove(&state) {
                let _ = crowd.leave(one.place);
            }
        }
        let (place, lost) = crowd.enter(source.wide(), source, state);
        if let Some(lost) = lost {
            begun.remove(&lost);
        }
        let back = back.to_owned();
        let ends_up_s = now.up_s.saturating_add(LAST_S);
        begun.insert(state, Begun { browser, nonce, verifier, back, ends_up_s, place });
        Ok(Sent { to, browser: to_base64url(&browser) })
    }

    /// Ends a sign-in with what the browser came back with. May wait for the provider.
    pub(crate) fn finish(
        &self,
        state: &str,
        code: &str,
        issuer: Option<&str>,
        browser: Option<&str>,
        now: Moment,
    ) -> Result<Came, Failure> {
        let refused = |why: &str| Err(Failure::Refused(why.to_owned()));
        let begun = self.take(state, now);
        let Some(begun) = begun else {
            return refused("this sign-in is over, or was none of ours; begin again");
        };
        let browser = browser.unwrap_or_default();
        if !is_equal(to_base64url(&begun.browser).as_bytes(), browser.as_bytes()) {
            return refused("this sign-in began in another browser; begin again in this one");
        }
        if issuer.is_some_and(|issuer| issuer != self.provider.issuer) {
            return refused("another provider answered than was asked");
        }
        if code.is_empty() || code.len() > WORD_BYTES_MAX {
            return refused("the provider sent no code");
        }
        let discovery = self.discovery()?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect.as_str()),
            ("code_verifier", begun.verifier.as_str()),
        ];
        let tokens = self.tokens(&discovery, &fields)?;
        let Some(token) = &tokens.id_token else { return refused("the provider sent no ID token") };
        let claims = self.claims(&discovery, token, Some(&begun.nonce), now.unix_s)?;
        let claims = self.with_more(&discovery, claims, tokens.access_token.as_deref())?;
        let person = person::person(&self.provider, &claims).map_err(Failure::Refused)?;
        Ok(Came { person, refresh: tokens.refresh_token, back: begun.back })
    }

    /// Asks again who somebody is, by a refresh token: and what to ask with next. The user is lost
    /// where the grant is over or the person may not come in. A provider that refuses us, or says
    /// what is not to be believed, has said nothing of the person.
    pub(crate) fn again(
        &self,
        refresh: &str,
        subject: &str,
        now: Moment,
    ) -> Result<(Person, Option<String>), Failure> {
        let discovery = self.discovery()?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        let tokens = self.tokens(&discovery, &fields).map_err(Failure::unsure)?;
        let claims = match &tokens.id_token {
            Some(token) => self.claims(&discovery, token, None, now.unix_s),
            None => Ok(serde_json::json!({ "iss": self.provider.issuer, "sub": subject })),
        };
        let claims = claims.map_err(Failure::unsure)?;
        let claims = self.with_more(&discovery, claims, tokens.access_token.as_deref());
        let claims = claims.map_err(Failure::unsure)?;
        let person = person::person(&self.provider, &claims).map_err(Failure::Refused)?;
        if person.subject != subject {
            return Err(Failure::Trouble("the provider told of somebody else".to_owned()));
        }
        Ok((person, tokens.refresh_token))
    }

    fn take(&self, state: &str, now: Moment) -> Option<Begun> {
        let state: [u8; 16] = control::text::from_base64url(state)?.try_into().ok()?;
        let mut table = held(&self.begun);
        let (begun, crowd) = &mut *table;
        let one = begun.remove(&state)?;
        let _ = crowd.leave(one.place);
        (now.up_s < one.ends_up_s).then_some(one)
    }

    fn discovery(&self) -> Result<Discovery, Failure> {
        {
            let known = held(&self.known);
            if let Some((at, discovery)) = &known.discovery
                && at.elapsed() < DISCOVERY_LASTS
            {
                return Ok(discovery.clone());
            }
            if let Some((at, why)) = &known.failed
                && at.elapsed() < FAILURE_PAUSE
            {
                return Err(Failure::Trouble(why.clone()));
            }
        }
        let found = self.discover();
        let mut known = held(&self.known);
        match found {
            Ok(discovery) => {
                known.discovery = Some((Instant::now(), discovery.clone()));
                known.failed = None;
                Ok(discovery)
            }
            Err(failure) => {
                known.failed = Some((Instant::now(), failure.to_string()));
                // What was known an hour ago is better than nothing.
                known.discovery.as_ref().map(|(_, old)| old.clone()).ok_or(failure)
            }
        }
    }

    fn discover(&self) -> Result<Discovery, Failure> {
        let issuer = &self.provider.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let body = self.fetch.get(&Endpoint::parse(&url)?, None, DOCUMENT_BYTES_MAX)?;
        let trouble = |why: String| Failure::Trouble(format!("{url}: {why}"));
        let found: Discovery =
            serde_json::from_slice(&body).map_err(|why| trouble(why.to_string()))?;
        if &found.issuer != issuer {
            let other = found.issuer.chars().take(200).collect::<String>();
            return Err(trouble(format!("it is {other:?}'s, not {issuer:?}'s")));
        }
        let home = Endpoint::parse(issuer)?;
        let more = found.userinfo_endpoint.iter();
        let all = [&found.authorization_endpoint, &found.token_endpoint, &found.jwks_uri];
        for place in all.into_iter().chain(more) {
            Endpoint::parse(place)?.is_within_reach_of(&home)?;
        }
        Ok(found)
    }

    fn tokens(&self, discovery: &Discovery, fields: &[(&str, &str)]) -> Result<Tokens, Failure> {
        let place = Endpoint::parse(&discovery.token_endpoint)?;
        let id = self.provider.client_id.as_str();
        let secret = self.provider.secret();
        let methods = discovery.token_endpoint_auth_methods_supported.as_ref();
        let is_posted = methods.is_some_and(|known| {
            let has = |name: &str| known.iter().any(|method| method == name);
            has("client_secret_post") && !has("client_secret_basic")
        });
        let mut all = fields.to_vec();
        let mut basic = None;
        match secret {
            Some(secret) if is_posted => all.extend([("client_id", id), ("client_secret", secret)]),
            Some(secret) => {
                // Both are a form's values first (RFC 6749, section 2.3.1).
                let pair = format!("{}:{}", percent(id, UNRESERVED), percent(secret, UNRESERVED));
                basic = Some(format!("Basic {}", control::text::to_base64(pair.as_bytes())));
            }
            None => all.push(("client_id", id)),
        }
        let body = self.fetch.post(&place, basic.as_deref(), &form(&all), TOKENS_BYTES_MAX)?;
        serde_json::from_slice(&body)
            .map_err(|why| Failure::Trouble(format!("the token endpoint's answer: {why}")))
    }

    /// The claims of an ID token that is good.
    fn claims(
        &self,
        discovery: &Discovery,
        token: &str,
        nonce: Option<&str>,
        now_unix_s: u64,
    ) -> Result<Value, Failure> {
        let expected = Expected {
            issuer: &self.provider.issuer,
            client: &self.provider.client_id,
            nonce,
            now_unix_s,
        };
        let refused = |why: jwt::BadToken| Failure::Refused(format!("the ID token: {why}"));
        let known = held(&self.known).keys.clone();
        if let Some((_, keys)) = known.filter(|(at, _)| at.elapsed() < DISCOVERY_LASTS) {
            match jwt::verify(token, &keys, &expected) {
                // Another key may have the name of an old one, or none.
                Err(jwt::BadToken::Key | jwt::BadToken::Signature) if self.may_doubt() => {}
                done => return done.map_err(refused),
            }
        }
        let body = self.fetch.get(&Endpoint::parse(&discovery.jwks_uri)?, None, KEYS_BYTES_MAX)?;
        let keys = Keys::read(&body).map_err(|why| Failure::Trouble(why.to_owned()))?;
        held(&self.known).keys = Some((Instant::now(), keys.clone()));
        jwt::verify(token, &keys, &expected).map_err(refused)
    }

    /// Whether keys may be fetched once more for a token that no known one has signed.
    fn may_doubt(&self) -> bool {
        let mut known = held(&self.known);
        let may = known.doubted.is_none_or(|at| at.elapsed() >= KEYS_PAUSE);
        if may {
            known.doubted = Some(Instant::now());
        }
        may
    }

    /// What the provider tells of the person only when it is asked.
    fn with_more(
        &self,
        discovery: &Discovery,
        mut claims: Value,
        access: Option<&str>,
    ) -> Result<Value, Failure> {
        let wanted = [self.provider.user_claim.as_str(), self.provider.groups_claim.as_str()];
        let is_whole = wanted.iter().all(|name| name.is_empty() || !claims[*name].is_null());
        let (Some(place), Some(access)) = (&discovery.userinfo_endpoint, access) else {
            return Ok(claims);
        };
        if is_whole {
            return Ok(claims);
        }
        let bearer = format!("Bearer {access}");
        let place = Endpoint::parse(place)?;
        let body = self.fetch.get(&place, Some(&bearer), TOKENS_BYTES_MAX)?;
        let more: Value = serde_json::from_slice(&body)
            .map_err(|why| Failure::Trouble(format!("the userinfo endpoint's answer: {why}")))?;
        if more["sub"] != claims["sub"] {
            return Err(Failure::Refused("the provider told of somebody else".to_owned()));
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            // What was signed counts more.
            if claims[name.as_str()].is_null() {
                claims[name.as_str()] = value.clone();
            }
        }
        Ok(claims)
    }
}

/// Pairs as a form has them.
fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={}", percent(value, UNRESERVED)));
    pairs.collect::<Vec<_>>().join("&")
}
