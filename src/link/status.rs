//! `warren link status`: how the links are that no daemon of a network serves.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ::daemon::metrics::{link_text, server};
use ::daemon::protocol::SCHEMA;
use anyhow::{Context, Result, bail, ensure};
use host::uapi::DIRECTORY;
use serde_json::{Value, json};

use crate::admin::table;
use crate::client::{print, say, text, texts};
use crate::listen::place;
use crate::weather::links;

/// Whoever does not answer within so long is stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the longest answer that is read.
const ANSWER_LEN_MAX: u64 = 16 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// Print JSON, in the form that docs/commands.md describes
    #[arg(long)]
    json: bool,
    /// What is lost, too, what is done about it, and why a link tells nothing
    #[arg(long)]
    links: bool,
    /// Interfaces [default: all that are served here]
    names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Metrics {
    /// Serve them at GET /metrics there over HTTP until a signal, and print nothing
    #[arg(long, value_name = "ADDR:PORT", value_parser = place)]
    listen: Option<SocketAddr>,
    /// Interfaces [default: all that are served here]
    names: Vec<String>,
}

/// Asks and prints.
pub(super) fn run(args: &Status) -> Result<()> {
    print(args.json, &told(&args.names)?, |told| show(told, args.links))
}

/// Asks and prints metrics, or does so whenever it is asked.
pub(super) fn metrics(args: &Metrics) -> Result<()> {
    let make = || told(&args.names).map(|told| link_text(&told));
    match args.listen {
        None => say(&make()?),
        Some(address) => {
            let serve = server(address, || make().map_err(|error| format!("{error:#}")))?;
            serve();
            Ok(())
        }
    }
}

/// What is told of the interfaces called so, or of all.
fn told(names: &[String]) -> Result<Value> {
    let directory = Path::new(DIRECTORY);
    let names = if names.is_empty() { served(directory)? } else { names.to_vec() };
    ensure!(
        !names.is_empty(),
        "no link is served here; bring one up with `warren link up FILE` or `warren wg NAME`"
    );
    let mut known = Vec::new();
    let mut others = Vec::new();
    for name in names {
        let Some(mut link) = ask(directory, &name, "weather")? else {
            others.push(name);
            continue;
        };
        link["interface"] = json!(name);
        known.push(link);
    }
    Ok(json!({ "schema": SCHEMA, "links": known, "others": others }))
}

/// The interfaces that have a control socket.
fn served(directory: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error)
                .context(format!("cannot look into {}; try as root", directory.display()));
        }
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".sock")?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// What the program answers that serves the link `name`.
pub(super) fn request(name: &str, what: &str) -> Result<Option<Value>> {
    ask(Path::new(DIRECTORY), name, what)
}

/// What the program tells that serves `name`; nothing if it is not Warren, or lives no more.
fn ask(directory: &Path, name: &str, what: &str) -> Result<Option<Value>> {
    let path = directory.join(format!("{name}.sock"));
    let at = || path.display().to_string();
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("no link {name} is served here: there is no {}", at())
        }
        Err(error) => return Err(error).context(format!("cannot ask {}; try as root", at())),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{what}=1\n\n").as_bytes()).with_context(at)?;
    for line in BufReader::new(stream.take(ANSWER_LEN_MAX)).lines() {
        let line = line.with_context(|| format!("{} does not answer", at()))?;
        let told = line.strip_prefix(what).and_then(|line| line.strip_prefix('='));
        if let Some(told) = told {
            return serde_json::from_str(told).with_context(at).map(Some);
        }
        if line.is_empty() {
            break;
        }
    }
    Ok(None)
}

/// Letters of a key that tell it from others.
const KEY_SHOWN: usize = 16;

fn row(peer: &Value) -> Value {
    let is_of_now = peer["link"]["out"]["age_s"].as_f64().is_some_and(|age_s| age_s <= 15.0);
    let rtt = peer["link"]["rtt_ms"].as_f64().filter(|_| is_of_now);
    json!({
        "key": text(peer, "name").chars().take(KEY_SHOWN).collect::<String>(),
        "endpoint": peer["endpoint"],
        "rtt": rtt.map(|ms| format!("{ms:.1} ms")),
        "state": peer["link_state"],
        "quality": peer["quality"],
    })
}

fn show(told: &Value, with_links: bool) -> String {
    let mut out = String::new();
    for link in told["links"].as_array().into_iter().flatten() {
        if !out.is_empty() {
            out += "\n";
        }
        out += &format!("{}, port {}\n", text(link, "interface"), link["port"]);
        let peers = link["peers"].as_array().into_iter().flatten();
        let rows: Vec<Value> = peers.clone().map(row).collect();
        if !rows.is_empty() {
            let columns = [("PEER", "key"), ("ENDPOINT", "endpoint"), ("RTT", "rtt")];
            let columns = [&columns[..], &[("LINK", "state"), ("QUALITY", "quality")]].concat();
            out += &table(&Value::Array(rows), &columns);
        }
        for peer in peers.clone() {
            out.extend(notes(peer));
        }
        if with_links {
            out += &links(link);
            for peer in peers {
                if let Some(why) = peer["link_why"].as_str() {
                    out += &format!("{}: {why}\n", text(peer, "name"));
                }
            }
        }
    }
    let others: Vec<&str> = texts(&told["others"]).collect();
    if !others.is_empty() {
        out += &format!("not Warren's, or gone: {}\n", others.join(", "));
    }
    out
}

/// What somebody should see to: clocks, and key files.
fn notes(peer: &Value) -> impl Iterator<Item = String> {
    let key = text(peer, "name").chars().take(KEY_SHOWN).collect::<String>();
    let is_good = peer["keys"]["state"] == "good";
    let keys = peer["keys"]["why"].as_str().filter(|_| !is_good);
    let file = peer["key_file"]["changed"].as_str();
    let notes: Vec<String> = [keys, file].into_iter().flatten().map(str::to_owned).collect();
    notes.into_iter().map(move |note| format!("{key}: {note}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_peers_without_weather_and_strangers_are_told_apart() {
        let key = "mXU2Wd3kQ1lLhLx9Fh0m0d2bCe4f5g6h7i8j9k0l1m2=";
        let told = json!({
            "links": [
                { "interface": "wg0", "port": 51820, "peers": [
                    { "name": key, "endpoint": "[2001:db8:1234:5678:9abc:def0:1234:5678]:51820",
                      "link": null, "link_state": "none", "quality": "none",
                      "link_why": "no session stood yet" },
                ] },
            ],
            "others": ["wg1"],
        });
        assert_eq!(
            show(&told, false),
            "wg0, port 51820\n\
PEER              ENDPOINT                                        RTT  LINK  QUALITY\n\
mXU2Wd3kQ1lLhLx9  [2001:db8:1234:5678:9abc:def0:1234:5678]:51820  -    none  none\n\
not Warren's, or gone: wg1\n"
        );
        let shown = show(&told, true);
        assert!(shown.contains(&format!("{key}: no session stood yet\n")), "{shown}");
    }
}
