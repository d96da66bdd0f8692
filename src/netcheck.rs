//! `warren netcheck`: what the network around this machine lets through.

use std::fmt::Write as _;

use ::daemon::protocol::Request;
use anyhow::Result;
use serde_json::Value;

use crate::admin::plain;
use crate::client::{Target, texts};

/// Show what the network around this machine lets through.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Shows it.
pub(crate) fn run(args: Args) -> Result<()> {
    let answer = args.target.ask(&Request::Netcheck)?;
    args.target.print(&answer, text)
}

fn text(check: &Value) -> String {
    let lines = [
        ("server", server(&check["server"])),
        ("UDP", udp(&check["udp"]).to_owned()),
        ("seen as", list(&check["mapped"])),
        ("NAT", mapping(&check["mapping_varies"]).to_owned()),
        ("port", check["port"].to_string()),
        ("addresses", list(&check["local"])),
        ("published", list(&check["endpoints"])),
        ("gateway", gateway(&check["port_mapping"])),
        ("STUN", list(&check["stun"])),
    ];
    let mut out = String::new();
    for (name, value) in lines {
        let _ = writeln!(out, "{name:<10} {value}");
    }
    for server in check["stun_servers"].as_array().into_iter().flatten() {
        let (address, rtt) = (word(&server["address"]), ms(&server["rtt_ms"]));
        let _ = writeln!(out, "{:<10} {address} answers in {rtt}", "");
    }
    out + &relays(check)
}

fn server(server: &Value) -> String {
    match (server["in_touch"] == true, server["trouble"].as_str()) {
        (true, _) => "in touch".to_owned(),
        (false, Some(trouble)) => format!("not in touch: {}", plain(trouble)),
        (false, None) => "not in touch".to_owned(),
    }
}

fn udp(works: &Value) -> &'static str {
    match works.as_bool() {
        Some(true) => "passes",
        Some(false) => "does not pass: no STUN server answers",
        None => "not known yet: no STUN server was asked",
    }
}

fn mapping(varies: &Value) -> &'static str {
    match varies.as_bool() {
        Some(true) => "maps every destination anew: few direct paths",
        Some(false) => "maps all destinations alike, or there is none",
        None => "not known: two STUN servers have to answer",
    }
}

fn gateway(mapping: &Value) -> String {
    if mapping.is_null() {
        return "-".to_owned();
    }
    let gateway = word(&mapping["gateway"]);
    match mapping["external"].as_str() {
        Some(external) => {
            let protocol = word(&mapping["protocol"]);
            format!("{gateway} opened {} by {protocol}", plain(external))
        }
        None => format!("{gateway} opens no port: {}", word(&mapping["trouble"])),
    }
}

fn relays(check: &Value) -> String {
    let mut out = String::new();
    for (n, relay) in check["relays"].as_array().into_iter().flatten().enumerate() {
        let name = if n == 0 { "relays" } else { "" };
        let home = if relay["id"] == check["home_relay"] { ", home" } else { "" };
        let state = match (relay["connected"] == true, relay["trouble"].as_str()) {
            (true, _) => format!("answers in {}{home}", ms(&relay["rtt_ms"])),
            (false, Some(trouble)) => format!("not connected: {}", plain(trouble)),
            (false, None) => "not connected".to_owned(),
        };
        let _ = writeln!(out, "{name:<10} {} {} {state}", relay["id"], word(&relay["url"]));
    }
    out
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), plain)
}

fn list(values: &Value) -> String {
    let values: Vec<String> = texts(values).map(plain).collect();
    if values.is_empty() { "-".to_owned() } else { values.join(", ") }
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_said_in_words() {
        let check = json!({
            "port": 41641, "local": ["192.168.1.5", "fd00::5"], "udp": true,
            "mapped": ["203.0.113.7:1"], "mapping_varies": false, "endpoints": [],
            "server": { "in_touch": false, "trouble": "refused\u{1b}[31m" },
            "port_mapping": {
                "gateway": "192.168.1.1", "protocol": "pcp", "external": "203.0.113.7:2",
            },
            "stun": ["h:3478"],
            "stun_servers": [{ "address": "203.0.113.9:3478", "rtt_ms": 4.25 }],
            "home_relay": 1,
            "relays": [
                { "id": 0, "url": "https://h", "connected": false, "trouble": "no" },
                { "id": 1, "url": "https://r", "connected": true, "rtt_ms": 9.04 },
            ],
        });
        let expected = "\
server     not in touch: refused\u{fffd}[31m
UDP        passes
seen as    203.0.113.7:1
NAT        maps all destinations alike, or there is none
port       41641
addresses  192.168.1.5, fd00::5
published  -
gateway    192.168.1.1 opened 203.0.113.7:2 by pcp
STUN       h:3478
           203.0.113.9:3478 answers in 4.2 ms
relays     0 https://h not connected: no
           1 https://r answers in 9.0 ms, home
";
        assert_eq!(text(&check), expected);
    }

    #[test]
    fn what_is_not_known_is_said_too() {
        let said = text(&json!({ "port": 1 }));
        assert!(said.contains("UDP        not known yet") && said.contains("gateway    -\n"));
        assert!(!said.contains("relays") && !said.contains('{'), "{said}");
    }
}
