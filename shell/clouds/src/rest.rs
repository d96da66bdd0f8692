//! JSON over HTTP, as clouds other than AWS speak it: one call, sent again where that is safe.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::ServerUrl;
use dial::http::{Answer, Connection};
use dial::proxy::Proxies;
use serde_json::Value;

use crate::retry::{Failure, PATIENCE, PAUSE_MAX, Patience, SHORT_PATIENCE, chance, pause};

/// One request and its answer.
const WITHIN: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Connections that are kept; each service of a cloud is one.
const CONNECTIONS_MAX: usize = 16;
/// Letters of an answer that are told.
const TOLD_MAX: usize = 400;

/// One call.
pub(crate) struct Call<'c> {
    pub(crate) method: &'c str,
    /// The whole address.
    pub(crate) url: &'c str,
    /// Fields beside those of the body.
    pub(crate) fields: &'c [(&'c str, &'c str)],
    pub(crate) body: Body<'c>,
}

/// What is sent.
#[derive(Clone, Copy)]
pub(crate) enum Body<'c> {
    /// Nothing is sent if it is null.
    Json(&'c Value),
    /// Fields of a form, escaped.
    Form(&'c str),
}

/// What was answered.
pub(crate) struct Reply {
    pub(crate) value: Value,
    answer: Answer,
}

impl Reply {
    /// A field of the answer's head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.answer.field(name)
    }

    pub(crate) fn status(&self) -> u16 {
        self.answer.status
    }

    /// So long the cloud wants to be left alone, if it says so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.answer)
    }
}

/// Connections to the services of a cloud.
pub(crate) struct Rest {
    proxies: Proxies,
    ca_file: Option<PathBuf>,
    patience: Patience,
    open: BTreeMap<String, Connection>,
}

impl Rest {
    /// Trusts what is in a file, or else what this machine trusts.
    pub(crate) fn new(ca_file: Option<PathBuf>) -> Result<Self, String> {
        let proxies = Proxies::from_environment().map_err(|why| why.to_string())?;
        Ok(Self { proxies, ca_file, patience: Patience::new(PATIENCE), open: BTreeMap::new() })
    }

    /// The same for a machine's own program: patient for a moment only, and under a mark for the
    /// machine's rules of routing.
    pub(crate) fn of_machine(self, mark: u32) -> Self {
        Self {
            patience: Patience::new(SHORT_PATIENCE),
            proxies: self.proxies.with_mark(mark),
            ..self
        }
    }

    /// Makes a call, again if it was not done or may be done twice.
    ///
    /// # Errors
    /// What was said; its code is the status.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Result<Reply, Failure> {
        let begin = Instant::now();
        let is_safe = call.method != "POST";
        let patience = self.patience.whole();
        let mut tries = 0;
        loop {
            let answer = self.once(call);
            let asked = answer.as_ref().ok().and_then(retry_after).unwrap_or_default();
            let failure = match answer.and_then(read) {
                Ok(reply) => {
                    self.patience.hear();
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            let left = patience.saturating_sub(begin.elapsed());
            let wait = pause(tries, left, is_safe, &failure, chance());
            self.patience.note(&failure, left);
            let Some(wait) = wait else { return Err(failure) };
            tries += 1;
            std::thread::sleep(wait.max(asked));
        }
    }

    fn once(&mut self, call: &Call<'_>) -> Result<Answer, Failure> {
        let url = call.url;
        let (place, path) = split(url).ok_or_else(|| {
            Failure::new("Address", format!("{url:?} is no address of a service"))
        })?;
        // A server may be about to close what it kept, and a POST cannot be sent a second time.
        let may =
            |kept: &Connection| call.method != "POST" && kept.is_usable() && !kept.is_closed();
        let kept = self.open.remove(&place).filter(may);
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                self.connect(&place).map_err(|why| Failure::new("", format!("{place}: {why}")))?
            }
        };
        let (form, body) = match call.body {
            Body::Json(Value::Null) => ("application/json", String::new()),
            Body::Json(body) => ("application/json", body.to_string()),
            Body::Form(body) => ("application/x-www-form-urlencoded", body.to_owned()),
        };
        let mut fields = vec![("Accept", "application/json")];
        if !body.is_empty() {
            fields.push(("Content-Type", form));
        }
        fields.extend(call.fields);
        let request = (call.method, path.as_str());
        let answer =
            connection.request(request, &fields, body.as_bytes(), ANSWER_BYTES_MAX, WITHIN);
        let answer =
            answer.map_err(|why| Failure::lost(call.method, &format!("{place}: {why}")))?;
        if self.open.len() < CONNECTIONS_MAX {
            self.open.insert(place, connection);
        }
        Ok(answer)
    }

    fn connect(&self, place: &str) -> std::io::Result<Connection> {
        if let Some(rest) = place.strip_prefix("http://") {
            let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
            let port = port.parse().map_err(std::io::Error::other)?;
            return Connection::open_plain(host, port, WITHIN).map(Connection::until_end);
        }
        let url: ServerUrl = place.parse().map_err(std::io::Error::other)?;
        let ca_file = self.ca_file.as_deref();
        Connection::open_verified(&url, &self.proxies, ca_file).map(Connection::until_end)
    }
}

/// Scheme with host and port, and the path behind.
fn split(url: &str) -> Option<(String, String)> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| url.starts_with(scheme))?;
    let rest = url.get(scheme.len()..)?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || authority.contains('@') || !is_plain(url) {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path };
    Some((format!("{scheme}{authority}"), path.to_owned()))
}

/// As forms are written, and as providers' own tools write them: a space is a plus.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            b' ' => escaped.push('+'),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// `Retry-After` in seconds, at most as long as a call is patient.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds: u64 = answer.field("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// What an answer says.
fn read(answer: Answer) -> Result<Reply, Failure> {
    let status = answer.status;
    let parsed = serde_json::from_slice(&answer.body);
    if (200..300).contains(&status) {
        // One without a length may be cut off, and half of a JSON text is none.
        if parsed.is_err() && !answer.body.is_empty() {
            return Err(Failure::lost("reading", "it is no JSON, or cut off"));
        }
        return Ok(Reply { value: parsed.unwrap_or_default(), answer });
    }
    let value: Value = parsed.unwrap_or_default();
    let code = match status {
        429 => "Throttling".to_owned(),
        503 => "ServiceUnavailable".to_owned(),
        status if status >= 500 => "InternalError".to_owned(),
        status => status.to_string(),
    };
    let mut told = message(&value).unwrap_or_default();
    if let Some(word) = value["error"]["code"].as_str() {
        told = format!("{word}: {told}");
    }
    let plain = told.chars().map(|c| if c.is_control() { ' ' } else { c });
    let told: String = plain.take(TOLD_MAX).collect();
    // Who fails by itself does not say whether it was done.
    Err(Failure { code, what: format!("{status}: {told}"), is_lost: status >= 500 })
}

/// The first text that is called a message, wherever it is.
fn message(value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => {
            let own = map.get("message").and_then(Value::as_str).map(str::to_owned);
            own.or_else(|| map.values().find_map(message))
        }
        Value::Array(list) => list.iter().find_map(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn addresses_of_services_are_split_and_strange_ones_are_none() {
        let told = |url: &str| split(url).map(|(place, path)| format!("{place} {path}"));
        assert_eq!(
            told("https://h:9696/v2.0/networks?a=b").unwrap(),
            "https://h:9696 /v2.0/networks?a=b"
        );
        assert_eq!(told("http://h").unwrap(), "http://h /");
        for bad in ["", "ftp://h", "https://", "https://u@h/", "https://h/a b", "https://h/\n"] {
            assert_eq!(told(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_server_that_closes_without_a_word_gets_each_call_once() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listening.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let serve = |_| {
                let (mut theirs, _) = listening.accept().unwrap();
                let mut head = [0; 1024];
                let len = theirs.read(&mut head).unwrap();
                theirs.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
                let text = String::from_utf8_lossy(&head[..len]);
                text.split(' ').next().map(str::to_owned)
            };
            (0..3).filter_map(serve).collect::<Vec<String>>()
        });
        let mut rest = Rest::new(None).unwrap();
        let methods = ["GET", "POST", "GET"];
        for method in methods {
            let call = Call { method, url: &url, fields: &[], body: Body::Json(&Value::Null) };
            assert!(rest.call(&call).is_ok(), "{method}");
        }
        assert_eq!(serving.join().unwrap(), methods);
    }

    #[test]
    fn refusals_are_told_with_their_message_and_others_failures_are_lost() {
        let answer = |status, body: &str| Answer {
            status,
            fields: Vec::new(),
            body: body.as_bytes().to_vec(),
        };
        let failed = |status, body: &str| read(answer(status, body)).err().unwrap();
        let refused =
            failed(409, "{\"NeutronError\": {\"type\": \"X\", \"message\": \"in\\u001b use\"}}");
        assert_eq!((refused.code.as_str(), refused.what.as_str()), ("409", "409: in  use"));
        assert!(failed(500, "<html>").is_lost && !refused.is_lost);
        assert_eq!(failed(429, "{}").code, "Throttling");
        assert!(read(answer(204, "")).is_ok());
        assert!(read(answer(200, "{\"servers\": [")).is_err_and(|cut| cut.is_lost));
    }
}
