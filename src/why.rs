//! `warren why`: what stands between two ends, in one answer.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::admin::{self, plain};
use crate::client::{self, text};
use crate::status::path;
use crate::weather;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren why db:5432           from this node to port 5432 of db
  warren why laptop db:5432    from one node to another";

/// Tell whether a packet gets from one node to another, and why.
///
/// By which rule, route and path, and what happens to it on the way. A node answers about itself; a
/// server, about the policy of any two.
#[derive(Debug, clap::Args)]
#[command(override_usage = "warren why [OPTIONS] [SRC] DST[:PORT]")]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: client::Target,
    /// Ask the server on this machine, by its directory; that of WARREN_DATA where no daemon is
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    data: Option<PathBuf>,
    /// Ask a server elsewhere [default: where the token says]
    #[arg(long, value_name = "URL", requires = "token")]
    server: Option<control::ServerUrl>,
    /// A token of `warren token create`, or file:PATH
    #[arg(long, value_name = "TOKEN", env = "WARREN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The protocol, by name or number [default: tcp with a port, icmp without]
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    protocol: Option<u8>,
    /// Who sends (this node unless said) and who receives: names or addresses
    #[arg(required = true, num_args = 1..=2, value_name = "SRC DST[:PORT]")]
    ends: Vec<String>,
}

fn protocol(name: &str) -> Result<u8, String> {
    match name.to_ascii_lowercase().as_str() {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "sctp" => Ok(132),
        other => other.parse().map_err(|_| "write tcp, udp, icmp, sctp, or a number".to_owned()),
    }
}

/// Asks and shows.
pub(crate) fn run(args: Args) -> Result<()> {
    let (destination, port) = split(args.ends.last().context("a destination is missing")?)?;
    let source = (args.ends.len() == 2).then(|| args.ends[0].clone());
    let protocol = args.protocol.unwrap_or_else(|| if port.is_some() { 6 } else { 1 });
    let port = port.unwrap_or(0);
    // A machine that has the server's directory and no daemon asks its server.
    let has_token = args.token.is_some();
    let named = std::env::var_os("WARREN_DATA").map(PathBuf::from);
    let data = args.data.or_else(|| named.filter(|_| !has_token && args.target.connect().is_err()));
    if data.is_none() && !has_token {
        let request = Request::Why { source, destination, protocol, port };
        let answer = args.target.ask(&request)?;
        return args.target.print(&answer, show);
    }
    let Some(source) = source else {
        bail!("a server is no end of the way; say who sends and who receives")
    };
    ensure!(data.is_none() || args.server.is_none(), "--data and --server are two servers");
    let server = admin::Target::new(data, args.server, args.token, args.target.json());
    let body = json!({ "source": source, "destination": destination,
                       "protocol": protocol, "port": port });
    server.open()?.ask("POST", "/api/v1/policy/explain", &body, |answer| {
        let is = if answer["policy"]["allowed"] == true { "allowed" } else { "denied" };
        format!("policy: {is}: {}\n", plain(text(&answer["policy"], "why")))
    })
}

/// A destination and its port: `name`, `name:80`, `100.64.0.1:80`, `fd7a::1`, `[fd7a::1]:80`.
fn split(end: &str) -> Result<(String, Option<u16>)> {
    if end.parse::<Ipv6Addr>().is_ok() {
        return Ok((end.to_owned(), None));
    }
    let (name, port) = match end.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, rest)) => (name, Some(rest.strip_prefix(':').unwrap_or("no port"))),
        None => end.split_once(':').map_or((end, None), |(name, port)| (name, Some(port))),
    };
    let wrong = || format!("{end:?} is no destination; write NAME, NAME:PORT or [IPV6]:PORT");
    let port = port.map(str::parse).transpose().with_context(wrong)?;
    Ok((name.to_owned(), port))
}

/// What comes of a packet first, and then what that follows from, each on a line of its own.
fn show(answer: &Value) -> String {
    let end = |end: &Value| format!("{} ({})", plain(text(end, "node")), text(end, "address"));
    let mut verdict = plain(text(answer, "verdict"));
    if let Some(first) = verdict.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let mut out = format!("{verdict}.\n\n");
    out += &format!("{} -> {}\n", end(&answer["source"]), end(&answer["destination"]));
    let mut line = |name: &str, value: String| out += &format!("{name:<8}{value}\n");
    let is = if answer["policy"]["allowed"] == true { "allowed" } else { "denied" };
    line("policy", format!("{is}: {}", plain(text(&answer["policy"], "why"))));
    let peer = plain(text(&answer["route"], "peer"));
    match answer["route"]["prefix"].as_str() {
        Some(prefix) => line("route", format!("{prefix} through {peer}")),
        None => line("route", format!("{peer} itself")),
    }
    let why = plain(text(&answer["path"], "why"));
    line("path", format!("{}: {why}", path(answer)));
    if let Some(mtu) = answer["path"]["mtu"].as_u64() {
        line("mtu", format!("{mtu} bytes"));
    }
    if let Some(ms) = answer["rtt_ms"].as_f64() {
        line("rtt", format!("{ms:.1} ms{}", weather::ago(&answer["rtt_age_s"])));
    }
    if let Some(why) = answer["link_why"].as_str() {
        line("link", plain(why));
    }
    if answer["link"].is_object() {
        link(&answer["link"], &mut line);
    }
    if answer["policy"]["compress"] == true {
        let compression = &answer["link"]["compression"];
        let bytes = |when: &str| compression[when].as_u64().unwrap_or_default();
        let before = bytes("bytes_before");
        let after = bytes("bytes_after");
        line("", format!("wherever it helps: {after} bytes for {before} on this link so far"));
    }
    out
}

/// How the link is, what is done about it, and why.
fn link(link: &Value, line: &mut impl FnMut(&str, String)) {
    for way in ["out", "in"] {
        let share = |field: &str| link[way][field].as_f64().map(|share| share * 100.0);
        if let (Some(before), Some(after)) = (share("loss_before"), share("loss_after")) {
            let burst = link[way]["burst_datagrams"].as_f64();
            let burst = burst.map_or_else(String::new, |mean| format!(", {mean:.1} in a row"));
            let ago = weather::ago(&link[way]["age_s"]);
            line(way, format!("{before:.2} % lost before repair{burst}, {after:.3} % after{ago}"));
        }
    }
    let told = |of: &Value| format!("{}: {}", plain(text(of, "state")), plain(text(of, "why")));
    let ratio = link["repair"]["ratio"].as_f64().unwrap_or_default() * 100.0;
    line("repair", format!("{} ({ratio:.1} % more bytes)", told(&link["repair"])));
    let [cipher, why] = ["cipher", "cipher_why"].map(|field| plain(text(link, field)));
    line("cipher", format!("{cipher}: {why}"));
    if let Some(bytes) = link["chunk_bytes"].as_u64().filter(|bytes| *bytes > 0) {
        line("chunk", format!("{bytes} bytes"));
    }
    let ms = link["in"]["reorder_ms"].as_f64().unwrap_or_default();
    let waited = weather::waited(&link["in"]).unwrap_or_default();
    let given_up = link["in"]["order_given_up"].as_u64().unwrap_or(0);
    line("order", told(&link["order"]));
    line("", format!("{ms:.1} ms of disorder; waited: {waited}; in vain: {given_up}"));
    let gap = link["pacing"]["gap_ms"].as_f64().filter(|ms| *ms > 0.0);
    let gap = gap.map_or_else(String::new, |ms| format!(" ({ms:.2} ms between datagrams)"));
    line("pacing", told(&link["pacing"]) + &gap);
    line("packed", told(&link["compression"]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_have_ports_where_they_are_said() {
        for (end, name, port) in [
            ("lab-2", "lab-2", None),
            ("lab-2:22", "lab-2", Some(22)),
            ("100.64.0.7:65535", "100.64.0.7", Some(65535)),
            ("fd7a::1", "fd7a::1", None),
            ("[fd7a::1]", "fd7a::1", None),
            ("[fd7a::1]:80", "fd7a::1", Some(80)),
        ] {
            assert_eq!(split(end).ok(), Some((name.to_owned(), port)), "{end}");
        }
        for end in ["lab-2:", "lab-2:x", "lab-2:65536", "[fd7a::1]80", "a:1:2"] {
            assert!(split(end).is_err(), "{end}");
        }
    }

    #[test]
    fn what_comes_of_a_packet_is_said_first() {
        let answer = json!({
            "source": { "node": "a", "address": "100.64.0.1" },
            "destination": { "node": "b", "address": "100.64.0.2" },
            "policy": { "allowed": true, "why": "line 2 of the policy allows it" },
            "route": { "peer": "b", "prefix": null },
            "path": { "kind": "none", "was": "relay", "why": "nothing was sent lately" },
            "link": null, "link_state": "idle", "link_why": "no session stands",
            "verdict": "packets may reach b",
        });
        let shown = show(&answer);
        assert!(shown.starts_with("Packets may reach b.\n\na (100.64.0.1) -> b"), "{shown}");
        assert!(shown.contains("link    no session stands\n"), "{shown}");
    }
}
