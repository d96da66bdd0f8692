//! The Query API of EC2: one call, signed, sent again where that is safe, its answer as XML.
//!
//! A call that was throttled was not done, so it is sent again after a pause that doubles and is
//! chosen at random. A call whose answer was lost may have been done. It is sent again only where
//! doing it twice is doing it once; else the caller looks what became of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::ServerUrl;
use dial::http::{Answer, Connection};
use dial::proxy::Proxies;
use xmltree::Element;

use super::credentials::{self, Keys, METADATA};
use super::sign::{self, FORM};
use crate::Error;
use crate::rest::escaped;
use crate::retry::{Failure, PATIENCE, Patience, SHORT_PATIENCE, chance, now_s, pause};
use crate::time::read_field;

/// The version of the API.
const VERSION: &str = "2016-11-15";
/// One request and its answer.
const WITHIN: Duration = Duration::from_secs(30);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Clocks that are further apart are told of, and reckoned with.
const SKEW_S: u64 = 60;
/// Letters of an answer that are told.
const TOLD_MAX: usize = 400;

/// Parameters of a call.
pub(crate) type Parameters = Vec<(String, String)>;

/// The API of one region.
pub(crate) struct Client {
    pub(crate) region: String,
    url: ServerUrl,
    /// Whether the region's own name is where it is looked for.
    is_usual: bool,
    ca_file: Option<PathBuf>,
    proxies: Proxies,
    keys: Option<Keys>,
    /// Where keys are found.
    source: fn() -> Result<Keys, String>,
    patience: Patience,
    connection: Option<Connection>,
    /// Seconds that the provider's clock is before ours.
    ahead_s: i64,
}

impl Client {
    /// For a region, at its usual place or at `endpoint`.
    ///
    /// # Errors
    /// If there is no such place.
    pub(crate) fn new(region: &str, endpoint: Option<&str>) -> Result<Self, Error> {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let usual = format!("https://ec2.{region}.{domain}");
        let url = endpoint.unwrap_or(&usual);
        let bad = |why: String| Error::new(format!("aws {region}"), why);
        let url = url.parse().map_err(|why| bad(format!("{url:?} is no address: {why}")))?;
        let proxies = Proxies::from_environment().map_err(|why| bad(why.to_string()))?;
        let ca_file = std::env::var_os("AWS_CA_BUNDLE").filter(|text| !text.is_empty());
        Ok(Self {
            region: region.to_owned(),
            url,
            is_usual: endpoint.is_none(),
            ca_file: ca_file.map(PathBuf::from),
            proxies,
            keys: None,
            source: || credentials::find(&|name| std::env::var(name).ok()),
            patience: Patience::new(PATIENCE),
            connection: None,
            ahead_s: 0,
        })
    }

    /// The same for a machine's own program: with its role and no other keys, patient for a
    /// moment only, and under a mark for the machine's rules of routing.
    pub(crate) fn of_machine(self, mark: u32) -> Self {
        let source = || credentials::of_instance(METADATA);
        Self {
            source,
            patience: Patience::new(SHORT_PATIENCE),
            proxies: self.proxies.with_mark(mark),
            ..self
        }
    }

    /// Looks for keys again before the next call: those of a role end.
    pub(crate) fn forget_keys(&mut self) {
        self.keys = None;
    }

    /// One call.
    ///
    /// # Errors
    /// [`Failure`]; the last one, if it was sent again.
    pub(crate) fn call(
        &mut self,
        action: &str,
        parameters: &[(String, String)],
    ) -> Result<Element, Failure> {
        let body = body(action, parameters);
        let is_safe = is_safe(action, parameters);
        let begin = Instant::now();
        let patience = self.patience.whole();
        let mut skewed = false;
        for tries in 0.. {
            let answer = match self.once(action, body.as_bytes()) {
                Ok(answer) => answer,
                Err(failure) => {
                    self.connection = None;
                    let left = patience.saturating_sub(begin.elapsed());
                    self.patience.note(&failure, left);
                    let wait = pause(tries, left, is_safe, &failure, chance());
                    let Some(wait) = wait else { return Err(failure) };
                    std::thread::sleep(wait);
                    continue;
                }
            };
            self.patience.hear();
            let failure = match read(&answer) {
                Ok(element) => return Ok(element),
                Err(failure) => failure,
            };
            // A clock that is wrong makes signatures that nobody accepts.
            if !skewed && is_about_clocks(&failure.code) && self.learn_clock(&answer) {
                skewed = true;
                continue;
            }
            let left = patience.saturating_sub(begin.elapsed());
            let wait = pause(tries, left, is_safe, &failure, chance());
            let Some(wait) = wait else { return Err(told(failure, action)) };
            std::thread::sleep(wait);
        }
        Err(Failure::lost(action, "there was no answer"))
    }

    fn once(&mut self, action: &str, body: &[u8]) -> Result<Answer, Failure> {
        let place = self.url.clone();
        let unsent = |why: &dyn std::fmt::Display| Failure::new("", format!("{place}: {why}"));
        if self.keys.is_none() {
            let keys = (self.source)();
            self.keys = Some(keys.map_err(|why| Failure {
                code: "NoCredentials".to_owned(),
                what: why,
                is_lost: false,
            })?);
        }
        let Some(keys) = &self.keys else { return Err(unsent(&"there are no credentials")) };
        let connection = match self.connection.take().filter(Connection::is_usable) {
            Some(connection) => connection,
            None => Connection::open_verified(&self.url, &self.proxies, self.ca_file.as_deref())
                .map_err(|why| unsent(&format!("{why}{}", self.hint())))?,
        };
        let connection = self.connection.insert(connection);
        let host = connection.host().to_owned();
        let request = sign::Request {
            method: "POST",
            host: &host,
            form: Some(FORM),
            body,
            region: &self.region,
            service: "ec2",
            now_s: now_s().saturating_add_signed(self.ahead_s),
        };
        let fields = sign::fields(keys, &request);
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = connection.request(("POST", "/"), &fields, body, ANSWER_BYTES_MAX, WITHIN);
        answer.map_err(|why| Failure::lost(action, &format!("{place}: {why}")))
    }

    /// What may be wrong where nobody can be reached: a region that is none has no place.
    fn hint(&self) -> String {
        if !self.is_usual {
            return String::new();
        }
        let region = &self.region;
        format!("; is {region} a region? `aws ec2 describe-regions` lists them")
    }

    /// Notes how far the provider's clock is from ours; whether that is far.
    fn learn_clock(&mut self, answer: &Answer) -> bool {
        let Some(theirs) = answer.field("date").and_then(read_field) else { return false };
        let before = self.ahead_s;
        self.ahead_s = theirs.cast_signed() - now_s().cast_signed();
        self.ahead_s.abs_diff(before) > SKEW_S
    }

    /// The provider's time, as far as it is known.
    pub(crate) fn now_s(&self) -> u64 {
        now_s().saturating_add_signed(self.ahead_s)
    }
}

impl Failure {
    /// Whether what was to be removed is not there.
    pub(crate) fn is_absence(&self) -> bool {
        self.code.ends_with("NotFound") || self.code == "Gateway.NotAttached"
    }

    /// Whether it is so already.
    pub(crate) fn is_done_already(&self) -> bool {
        matches!(
            self.code.as_str(),
            "InvalidPermission.Duplicate" | "RouteAlreadyExists" | "Resource.AlreadyAssociated"
        )
    }

    /// Whether something else has to end first.
    pub(crate) fn is_in_use(&self) -> bool {
        self.code == "DependencyViolation" || self.code.ends_with("InUse")
    }
}

/// Whether doing it twice is doing it once.
fn is_safe(action: &str, parameters: &[(String, String)]) -> bool {
    let is_making = ["Create", "Allocate", "Import", "Run"].iter().any(|w| action.starts_with(w));
    let is_known = action == "CreateRoute" || action == "CreateTags";
    !is_making || is_known || parameters.iter().any(|(name, _)| name == "ClientToken")
}

fn is_about_clocks(code: &str) -> bool {
    matches!(code, "RequestExpired" | "AuthFailure" | "SignatureDoesNotMatch")
}

/// A failure with what to do about it.
fn told(failure: Failure, action: &str) -> Failure {
    let Failure { code, what, is_lost } = failure;
    let more = match code.as_str() {
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => format!(
            "; the right ec2:{action} is missing; `warren sites export --rights FILE` prints all"
        ),
        "AuthFailure" | "SignatureDoesNotMatch" | "InvalidClientTokenId" => {
            "; the access key or its secret is wrong, or the region is not enabled".to_owned()
        }
        "RequestExpired" | "ExpiredToken" => {
            "; the credentials ended, or a clock is wrong; log in again".to_owned()
        }
        "OptInRequired" => "; the account has to subscribe to it first".to_owned(),
        _ => String::new(),
    };
    Failure { what: format!("{what}{more}"), code, is_lost }
}

/// What an answer says.
fn read(answer: &Answer) -> Result<Element, Failure> {
    let is_good = answer.status == 200;
    let read = Element::parse(&answer.body[..]);
    if is_good && let Ok(element) = read {
        return Ok(element);
    }
    let error = read.as_ref().ok().and_then(error_of);
    let plain = |text: &str| -> String {
        let text = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        text.take(TOLD_MAX).collect()
    };
    let (code, message) = error.unwrap_or_default();
    let status = answer.status;
    let code = match code.as_str() {
        "" if status == 429 => "Throttling".to_owned(),
        "" if status >= 500 => "ServiceUnavailable".to_owned(),
        "" => format!("Http{status}"),
        _ => code,
    };
    let code: String = code.chars().filter(char::is_ascii_graphic).take(80).collect();
    // Who fails by itself does not say whether it was done.
    let is_lost = status >= 500 && !code.contains("Limit") && !code.contains("Throttl");
    Err(Failure { what: format!("{code}: {}", plain(&message)), code, is_lost })
}

/// Code and message of an error, wherever the answer has them.
fn error_of(element: &Element) -> Option<(String, String)> {
    if let (Some(code), Some(message)) = (element.get_child("Code"), element.get_child("Message")) {
        let text = |one: &Element| one.get_text().unwrap_or_default().into_owned();
        return Some((text(code), text(message)));
    }
    element.children.iter().filter_map(|node| node.as_element()).find_map(error_of)
}

fn body(action: &str, parameters: &[(String, String)]) -> String {
    let mut body = format!("Action={action}&Version={VERSION}");
    for (name, value) in parameters {
        body += &format!("&{}={}", escaped(name), escaped(value));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: &str, is_lost: bool) -> Failure {
        Failure { code: code.to_owned(), what: String::new(), is_lost }
    }

    #[test]
    fn si_08_a_failure_says_what_to_do_about_it() {
        for (code, mend) in [
            ("UnauthorizedOperation", "the right ec2:CreateVpc is missing"),
            ("SignatureDoesNotMatch", "the access key or its secret is wrong"),
            ("ExpiredToken", "the credentials ended"),
            ("RequestExpired", "or a clock is wrong"),
            ("OptInRequired", "has to subscribe"),
        ] {
            let told = told(failure(code, false), "CreateVpc");
            assert!(told.code == code && told.what.contains(mend), "{}", told.what);
        }
        assert_eq!(told(failure("InternalError", true), "CreateVpc").what, "");
    }

    #[test]
    fn si_07_what_may_have_been_done_is_not_sent_again_unless_twice_is_once() {
        let token = [("ClientToken".to_owned(), "x".to_owned())];
        let left = PATIENCE;
        for (action, parameters, expected) in [
            ("DescribeVpcs", &[][..], true),
            ("DeleteVpc", &[], true),
            ("CreateVpc", &[], false),
            ("AllocateAddress", &[], false),
            ("RunInstances", &[], false),
            ("RunInstances", &token[..], true),
            ("CreateRoute", &[], true),
        ] {
            let is_safe = is_safe(action, parameters);
            assert_eq!(is_safe, expected, "{action}");
            for lost in [failure("", true), failure("InternalError", true)] {
                assert_eq!(pause(0, left, is_safe, &lost, 0).is_some(), expected, "{action}");
            }
            // Who was throttled was not served, and who was not reached did not hear.
            for refused in [failure("RequestLimitExceeded", false), failure("", false)] {
                assert!(pause(0, left, is_safe, &refused, 0).is_some(), "{action}");
            }
            assert_eq!(pause(0, left, is_safe, &failure("InvalidVpcID.NotFound", false), 0), None);
        }
    }

    #[test]
    fn answers_are_read_and_errors_say_what_to_do() {
        let answer = |status, body: &str| Answer {
            status,
            fields: Vec::new(),
            body: body.as_bytes().to_vec(),
        };
        let error = |status, code: &str| {
            let body = format!(
                "<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code>\
                 <Message>no\u{85}way\n</Message></Error></Errors></Response>"
            );
            read(&answer(status, &body)).unwrap_err()
        };
        let denied = told(error(403, "UnauthorizedOperation"), "CreateVpc");
        assert!(denied.what.contains("ec2:CreateVpc is missing"), "{denied}");
        assert!(!error(403, "x").what.contains(char::is_control));
        assert!(error(500, "InternalError").is_lost);
        assert!(!error(503, "RequestLimitExceeded").is_lost);
        assert!(error(400, "InvalidVpcID.NotFound").is_absence());
        assert!(error(400, "DependencyViolation").is_in_use());
        assert!(error(400, "InvalidNetworkInterface.InUse").is_in_use());
        assert_eq!(read(&answer(502, "<html>")).unwrap_err().code, "ServiceUnavailable");
        assert_eq!(read(&answer(429, "")).unwrap_err().code, "Throttling");
        assert!(read(&answer(200, "<a><b>1</b></a>")).is_ok());
        assert!(read(&answer(200, "no XML")).is_err());
    }

    #[test]
    fn parameters_are_escaped_byte_by_byte() {
        let list = [("Filter.1.Name".to_owned(), "tag:warren:net é+ ~".to_owned())];
        assert_eq!(
            body("DescribeVpcs", &list),
            "Action=DescribeVpcs&Version=2016-11-15\
             &Filter.1.Name=tag%3Awarren%3Anet+%C3%A9%2B+~"
        );
    }
}
