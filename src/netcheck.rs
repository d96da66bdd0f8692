//! `warren netcheck`: what the network around this machine lets through.

use std::fmt::Write as _;

use ::daemon::protocol::Request;
use anyhow::Result;
use serde_json::Value;

use crate::admin::plain;
use crate::client::{Target, texts};

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren netcheck           what UDP does here, which relays answer, and what follows
  warren netcheck --json    the same for programs";

/// Show what the network around this machine lets through, and what follows from it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
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
        let address = word(&server["address"]);
        let rtt = ms(&server["rtt_ms"]);
        let _ = writeln!(out, "{:<10} {address} answers in {rtt}", "");
    }
    out += &relays(check);
    out + &format!("\n{}\n", verdict(check))
}

/// What comes of all that, in one sentence; before it, whether the server is reached.
fn verdict(check: &Value) -> String {
    let connected = |relay: &&Value| relay["connected"] == true;
    let relays = || check["relays"].as_array().into_iter().flatten();
    let has_relay = relays().filter(connected).count() > 0;
    let is_open = !check["port_mapping"]["external"].is_null();
    let server =
        if check["server"]["in_touch"] == true { "" } else { "The server is not reached. " };
    let paths = match (check["udp"].as_bool(), check["mapping_varies"].as_bool()) {
        (Some(false), _) => "No UDP leaves this network",
        (Some(true), _) if is_open => "Direct paths are likely, for the gateway opened a port",
        (Some(true), Some(true)) => {
            "Direct paths are rare, for the NAT maps each destination to another port"
        }
        (Some(true), _) => "Direct paths are likely",
        (None, _) => "Whether there are direct paths is not known yet",
    };
    let relay = match (check["udp"].as_bool(), has_relay) {
        (Some(false), true) => "so everything goes by a relay",
        (Some(false), false) => "and no relay is connected, so no peer beyond it is reached",
        (_, true) => "and a relay carries the rest",
        (_, false) => "but no relay is connected for the rest",
    };
    format!("{server}{paths}, {relay}.")
}

fn server(server: &Value) -> String {
    match (server["in_touch"] == true, server["trouble"].as_str()) {
        (true, _) if server["carrier"] == "icmp" => {
            "in touch by ping: nothing else reaches it".to_owned()
        }
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
        Some(true) => "maps each destination to another port: few direct paths",
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
            (true, _) => {
                let by = relay["carrier"].as_str().map(|by| format!(" by {}", plain(by)));
                format!("answers in {}{}{home}", ms(&relay["rtt_ms"]), by.unwrap_or_default())
            }
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
                { "id": 1, "url": "https://r", "connected": true, "rtt_ms": 9.04,
                  "carrier": "icmp" },
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
           1 https://r answers in 9.0 ms by icmp, home

The server is not reached. Direct paths are likely, for the gateway opened a port, and a relay \
carries the rest.
";
        assert_eq!(text(&check), expected);
    }

    #[test]
    fn what_is_not_known_is_said_too() {
        let said = text(&json!({ "port": 1 }));
        assert!(said.contains("UDP        not known yet") && said.contains("gateway    -\n"));
        assert!(!said.contains("relays") && !said.contains('{'), "{said}");
        let verdict = |udp: Value, varies: Value, relay: bool| {
            verdict(&json!({ "server": { "in_touch": true }, "udp": udp, "mapping_varies": varies,
                             "relays": [{ "connected": relay }] }))
        };
        let told = "No UDP leaves this network, so everything goes by a relay.";
        assert_eq!(verdict(json!(false), Value::Null, true), told);
        let told = verdict(json!(false), Value::Null, false);
        assert!(told.contains("no relay is connected, so no peer"), "{told}");
        assert!(!told.contains(';'), "{told}");
        let told = verdict(json!(true), json!(true), false);
        assert!(told.starts_with("Direct paths are rare") && told.contains("no relay"), "{told}");
        let told = verdict(json!(true), json!(false), true);
        assert!(told.starts_with("Direct paths are likely, and a relay"), "{told}");
    }
}
