//! A browser as far as the server sees it: it keeps cookies, says its origin, and follows nothing
//! by itself.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Duration;

use dial::http::Connection;
use dial::proxy::Proxies;
use rustls::StreamOwned;
use serde_json::{Value, json};

use crate::stage::Stage;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    /// Fields in lower case; of several with one name the last.
    pub(crate) fields: BTreeMap<String, String>,
    /// What it is to keep: one answer may take a cookie away and bring another.
    pub(crate) cookies: Vec<String>,
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }
}

/// A browser with its cookies.
#[derive(Clone, Default)]
pub(crate) struct Browser {
    pub(crate) cookies: BTreeMap<String, String>,
    /// What the page of ours says with changes.
    pub(crate) csrf: Option<String>,
    /// Where the page is from; ours if it is not said.
    pub(crate) origin: Option<String>,
}

impl Browser {
    /// One request: `body` with its type, unless it is empty.
    pub(crate) fn ask(
        &mut self,
        stage: &Stage,
        (method, path): (&str, &str),
        (kind, body): (&str, &str),
    ) -> Page {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", stage.address);
        if !self.cookies.is_empty() {
            let pairs: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            head += &format!("Cookie: {}\r\n", pairs.join("; "));
        }
        if method != "GET" {
            let ours = format!("https://{}", stage.address);
            head += &format!("Origin: {}\r\n", self.origin.as_ref().unwrap_or(&ours));
        }
        if let Some(csrf) = &self.csrf {
            head += &format!("X-Warren-Csrf: {csrf}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Type: {kind}\r\n");
        }
        head += &format!("Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let page = raw(stage, &head);
        for cookie in &page.cookies {
            let (name, rest) = cookie.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            match value {
                "" => self.cookies.remove(name),
                _ => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        page
    }

    /// A call of the API.
    pub(crate) fn call(&mut self, stage: &Stage, method: &str, path: &str, body: &Value) -> Page {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(stage, (method, path), ("application/json", &body))
    }

    /// Signs in, and keeps what the page has to say.
    pub(crate) fn sign_in(&mut self, stage: &Stage, user: &str, password: &str) -> Page {
        let body = json!({ "user": user, "password": password });
        let page = self.call(stage, "POST", "/api/v1/session", &body);
        if page.status == 200 {
            self.csrf = page.json()["csrf"].as_str().map(str::to_owned);
        }
        page
    }

    pub(crate) fn cookie(&self) -> Option<&String> {
        self.cookies.get("warren_session")
    }
}

/// Sends this and reads until the server closes.
pub(crate) fn raw(stage: &Stage, request: &str) -> Page {
    let connection = Connection::open(&stage.url(), &Proxies::default()).unwrap();
    let (sock, tls, _) = connection.into_parts().unwrap();
    sock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(tls, sock);
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    // Who closes without a word of TLS has said all that it had.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields: Vec<(String, String)> =
        fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let cookies = fields.iter().filter(|field| field.0 == "set-cookie");
    let cookies = cookies.map(|field| field.1.clone()).collect();
    Page { status, cookies, fields: fields.into_iter().collect(), body: body.to_owned() }
}
