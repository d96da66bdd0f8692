//! Shared by the administrator's commands: which server, one call of its API, and how an answer is
//! shown.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use control::ServerUrl;
use dial::Admin;
use dial::proxy::Proxies;
use serde_json::Value;

use crate::client::say;

/// Where a server keeps its data unless told otherwise.
pub(crate) const DATA: &str = "/var/lib/warren";

/// Which server, and how to print.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The directory of the server on this machine
    #[arg(long, value_name = "DIR", default_value = DATA, env = "WARREN_DATA")]
    data: PathBuf,
    /// A server elsewhere [default: where the token says]
    #[arg(long, value_name = "URL", requires = "token")]
    server: Option<ServerUrl>,
    /// A token of `warren token create`, or file:PATH; the server elsewhere that it is for
    #[arg(long, value_name = "TOKEN", env = "WARREN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// As JSON, in a stable schema
    #[arg(long)]
    json: bool,
}

/// A server to be called.
pub(crate) struct Session {
    admin: Admin,
    json: bool,
}

impl Target {
    /// For commands that may be for a node as well.
    pub(crate) fn new(
        data: Option<PathBuf>,
        server: Option<ServerUrl>,
        token: Option<String>,
        json: bool,
    ) -> Self {
        // A directory that is named is what is meant, whatever the environment says.
        let token = token.filter(|_| data.is_none());
        Self { data: data.unwrap_or_else(|| DATA.into()), server, token, json }
    }

    pub(crate) fn open(self) -> Result<Session> {
        let json = self.json;
        Ok(Session { admin: self.caller()?.open()?, json })
    }

    /// Whether JSON is wanted.
    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    /// Who can call as often as there is need.
    pub(crate) fn caller(self) -> Result<Caller> {
        let Some(text) = self.token else { return Ok(Caller::Local(self.data)) };
        let text = match text.strip_prefix("file:") {
            None => text,
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the token from {path}"))?,
        };
        Ok(Caller::Remote(self.server, text, Proxies::from_environment()?))
    }
}

/// The way to a server.
pub(crate) enum Caller {
    /// Here, by the directory of its data.
    Local(PathBuf),
    /// Elsewhere: its URL unless the token's is meant, the token, the proxies between.
    Remote(Option<ServerUrl>, String, Proxies),
}

impl Caller {
    pub(crate) fn open(&self) -> Result<Admin> {
        Ok(match self {
            Self::Local(data) => Admin::local(data)?,
            Self::Remote(url, token, proxies) => {
                Admin::remote(url.clone(), token, proxies.clone())?
            }
        })
    }

    /// As whom it calls, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Local(_) => "this machine".to_owned(),
            Self::Remote(_, token, _) => {
                let token = control::Token::parse(token, control::Kind::Api);
                token.map_or_else(|_| "token".to_owned(), |t| format!("token {}", t.id.to_hex()))
            }
        }
    }
}

impl Session {
    /// One call: the answer, as text and as a value.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.admin.call(method, path, &body)?;
        let value: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        if reply.status < 400 {
            return Ok(value);
        }
        if let Some(found) = value["findings"].as_array() {
            let title = value["title"].as_str().unwrap_or("it is refused");
            bail!("{}{}", plain(title), found.iter().map(finding).collect::<String>());
        }
        match value["detail"].as_str() {
            Some(detail) => bail!("{}", plain(detail)),
            None => bail!("the server answered with status {}", reply.status),
        }
    }

    /// One call, whose answer is printed as `show` has it.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        show: impl FnOnce(&Value) -> String,
    ) -> Result<()> {
        let answer = self.call(method, path, body)?;
        self.print(&answer, show)
    }

    /// One call that yields nothing worth a table; what is so then, for people.
    pub(crate) fn done(&mut self, method: &str, path: &str, said: &str) -> Result<()> {
        let answer = self.call(method, path, &Value::Null)?;
        if !self.json {
            return say(&format!("{}\n", plain(said)));
        }
        self.print(&answer, |_| String::new())
    }

    /// What people want to know beside an answer that scripts read: on standard error.
    pub(crate) fn aside(&self, text: &str) {
        if !self.json {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), plain_lines(text).as_bytes());
        }
    }

    /// The number of a node that is named by its name or number.
    pub(crate) fn node(&mut self, named: &str) -> Result<u64> {
        let answer = self.call("GET", "/api/v1/nodes", &Value::Null)?;
        let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = chosen(nodes, named);
        found.with_context(|| format!("there is no node {named:?}; see `warren node list`"))
    }

    /// The number of a user who is named by name or number.
    pub(crate) fn user(&mut self, named: &str) -> Result<u64> {
        let answer = self.call("GET", "/api/v1/users", &Value::Null)?;
        let users = answer["users"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = chosen(users, named);
        found.with_context(|| format!("there is no user {named:?}; see `warren user list`"))
    }

    /// Prints an answer: as JSON if that is wanted, else as `show` has it.
    pub(crate) fn print(&self, answer: &Value, show: impl FnOnce(&Value) -> String) -> Result<()> {
        let text = match (self.json, answer.is_null()) {
            (true, true) => serde_json::json!({ "schema": 1 }).to_string() + "\n",
            (true, false) => answer.to_string() + "\n",
            (false, true) => String::new(),
            (false, false) => show(answer),
        };
        say(&text)
    }
}

/// The number of the node that is meant: a word of digits is a number and nothing else, whatever a
/// node may be called.
fn chosen(nodes: &[Value], named: &str) -> Option<u64> {
    let is_meant = |node: &&Value| match control::name::is_number(named) {
        true => node["id"].as_u64() == named.parse().ok() && node["id"].is_u64(),
        false => node["name"] == named,
    };
    nodes.iter().find(is_meant).and_then(|node| node["id"].as_u64())
}

/// The rows of a list under their titles; `columns` are titles and the fields of a row.
pub(crate) fn table(rows: &Value, columns: &[(&str, &str)]) -> String {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![titles];
    for row in rows {
        lines.push(columns.iter().map(|(_, field)| cell(&row[*field])).collect());
    }
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Fields of one thing, a line each: those of `order` first, then the others that are no groups of
/// fields themselves.
pub(crate) fn fields(thing: &Value, order: &[&str]) -> String {
    let known = order.iter().filter_map(|name| Some((*name, thing.get(*name)?)));
    let others = thing.as_object().into_iter().flatten();
    let others = others.map(|(name, value)| (name.as_str(), value));
    let others = others.filter(|(name, value)| !order.contains(name) && !value.is_object());
    known.chain(others).map(|(name, value)| format!("{name}: {}\n", cell(value))).collect()
}

/// Lines of ours with words of others in them.
fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}

pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        Value::String(text) => plain(text),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Number(_) | Value::Object(_) => plain(&value.to_string()),
    }
}

/// A mistake in a policy on a line of its own, after a line break: place, what, how to mend it.
pub(crate) fn finding(found: &Value) -> String {
    let [line, column] = ["line", "column"].map(|name| found[name].as_u64().unwrap_or(0));
    let [what, mend] = ["what", "mend"].map(|name| plain(found[name].as_str().unwrap_or("?")));
    format!("\n{line}:{column}: {what}: {mend}")
}

/// Text of others, without anything that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// "1 rule", "2 rules".
pub(crate) fn counted(number: &Value, what: &str) -> String {
    let more = if *number == 1 { "" } else { "s" };
    format!("{number} {what}{more}")
}

/// Seconds of `90s`, `30m`, `24h` or `7d`.
pub(crate) fn lifetime(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; write 90s, 30m, 24h or 7d");
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(lifetime(text), Ok(seconds));
        }
        for text in ["", "s", "0h", "-1h", "1", "1y", "1.5h", "99999999999999999999d", "é"] {
            assert!(lifetime(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_word_of_digits_is_a_number_whatever_a_node_is_called() {
        let nodes = [
            serde_json::json!({ "id": 7, "name": "12" }),
            serde_json::json!({ "id": 12, "name": "web" }),
        ];
        let chosen = |named| chosen(&nodes, named);
        assert_eq!((chosen("12"), chosen("web"), chosen("7")), (Some(12), Some(12), Some(7)));
        assert_eq!((chosen("99"), chosen(""), chosen("99999999999999999999")), (None, None, None));
    }

    #[test]
    fn ho_03_nothing_that_others_wrote_commands_the_terminal() {
        let rows = serde_json::json!([{ "name": "a\u{1b}[2J\nb", "tags": ["x", "y"] }]);
        let text = table(&rows, &[("NAME", "name"), ("TAGS", "tags"), ("NONE", "none")]);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\u{1b}') && text.contains("x,y") && text.ends_with("-\n"));
    }
}
