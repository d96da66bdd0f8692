//! A server behind a reverse proxy: one that passes WebSocket and no other upgrade, one that passes
//! none, and nginx with the lines that a node tells of.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use lab::process::Process;

use super::daemons::{INSIDE, NOTHING, Network};
use crate::support::{Scene, eventually, scene, seconds, target, traffic};

const PROXY: &str = include_str!("proxy.py");
/// Where the server is, for the proxy alone.
const SERVER_PORT: &str = "8443";

/// What stands in front of the server.
#[derive(Clone, Copy)]
enum Front<'a> {
    /// The test's own proxy, and which upgrade it passes.
    Own(&'static str),
    /// nginx: the program, and the lines in its `location`.
    Nginx(&'a Path, &'static str),
}

const NGINX_OF_OLD: &str = "";
const NGINX_AS_TOLD: &str = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                             proxy_set_header Connection \"upgrade\";";
/// As cloud services do: an upgrade that is none of WebSocket's does not reach the server.
const NGINX_WEBSOCKET: &str = "proxy_http_version 1.1; proxy_set_header Upgrade $passed; \
                               proxy_set_header Connection $hop;";

impl Front<'_> {
    fn start(&self, network: &Network) -> Result<Process> {
        let server = &network.server;
        let [key, cert, file] = ["key.pem", "cert.pem", "proxy"].map(|name| network.path(name));
        server.sh(&format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -subj /CN=proxy -keyout {key} -out {cert} 2>/dev/null"
        ))?;
        let process = match self {
            Self::Own(passes) => {
                std::fs::write(&file, PROXY)?;
                let words = ["python3", &file, &cert, &key, "443", SERVER_PORT, passes];
                let process = server.spawn(&words)?;
                process.wait_for(|log| log.contains("proxy listens"))?;
                return Ok(process);
            }
            Self::Nginx(program, lines) => {
                std::fs::write(&file, configuration(network, lines))?;
                let program = program.to_string_lossy();
                server.spawn(&[&program, "-c", &file, "-p", &network.path("")])?
            }
        };
        let is_open = || server.sh("curl -sk -o /dev/null --max-time 1 https://127.0.0.1").is_ok();
        eventually("the proxy listens", seconds(10), is_open)?;
        Ok(process)
    }
}

fn configuration(network: &Network, lines: &str) -> String {
    let [key, cert, temporary] = ["key.pem", "cert.pem", "temporary"].map(|it| network.path(it));
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String =
        kinds.iter().map(|kind| format!("{kind}_temp_path {temporary}-{kind}; ")).collect();
    format!(
        "daemon off; worker_processes 1; user root; error_log stderr info; pid {temporary}.pid;
         events {{ }}
         http {{
           access_log off; {paths}
           map $http_upgrade $passed {{ default \"\"; websocket websocket; }}
           map $http_upgrade $hop {{ default close; websocket upgrade; }}
           server {{
             listen 443 ssl; ssl_certificate {cert}; ssl_certificate_key {key};
             location / {{ proxy_pass https://127.0.0.1:{SERVER_PORT}; {lines} }}
           }}
         }}"
    )
}

fn nginx() -> Option<std::path::PathBuf> {
    let places = ["/usr/sbin/nginx".into(), target().join("tools/nginx/usr/sbin/nginx")];
    let found = places.into_iter().find(|place| place.exists());
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no nginx; `make setup` unpacks one ***\n");
    }
    found
}

/// Both nodes are carried by the relay with this carrier, and a file crosses each way.
fn carries(network: &Network, carrier: &str) -> Result<()> {
    network.reaches(0)?;
    network.reaches(1)?;
    for number in 0..2 {
        let way = network.way(number)?;
        ensure!(way["kind"] == "relay" && way["carrier"] == carrier, "{way}");
        let status = network.node(number, &["status", "--json"])?;
        ensure!(!status.contains("WebSocket on"), "nothing is wrong: {status}");
    }
    let [a, b] = &network.hosts;
    traffic::exact_stream(a, b, INSIDE[1], 5_000_000)?;
    traffic::exact_stream(b, a, INSIDE[0], 5_000_000)?;
    Ok(())
}

/// A node that is in touch with the server says what keeps the relay from it.
fn tells(network: &Network, lines: &str) -> Result<()> {
    let told = || {
        let status = network.node(0, &["status", "--json"]).unwrap_or_default();
        let is_told = status.contains("a proxy in front of https://192.0.2.1 passes no WebSocket");
        is_told && status.contains(lines) && status.contains("\"in_touch\":true")
    };
    let took = eventually("the node tells of the proxy", seconds(30), told);
    if took.is_err() {
        bail!("{}", network.node(0, &["status", "--json"])?);
    }
    let report = network.node(0, &["status"])?;
    ensure!(report.contains(lines.get(..20).unwrap_or(lines)), "{report}");
    let check = network.node(0, &["netcheck"])?;
    ensure!(check.contains("passes no WebSocket on"), "{check}");
    Ok(())
}

fn behind(scene: &Scene, front: Front<'_>) -> Result<Network> {
    Network::behind(scene, NOTHING, |network| front.start(network))
}

#[test]
fn source_000_5_1_a_proxy_that_passes_websocket_alone_carries_the_relay() -> Result<()> {
    scene("rlws", |scene| {
        let network = behind(scene, Front::Own("websocket"))?;
        carries(&network, "websocket")?;
        ensure!(network.front_log().contains("passed a WebSocket"), "{}", network.front_log());
        Ok(())
    })
}

#[test]
fn a_proxy_that_passes_no_upgrade_is_told_with_the_lines_to_add() -> Result<()> {
    scene("rlno", |scene| {
        let network = behind(scene, Front::Own("nothing"))?;
        // It does not say what it is, so the lines of all are told.
        tells(&network, "in nginx: proxy_http_version 1.1")
    })
}

#[test]
fn nginx_as_it_is_is_told_and_carries_the_relay_with_the_lines_that_are_told() -> Result<()> {
    let Some(nginx) = nginx() else { return Ok(()) };
    scene("rlnx", |scene| {
        let mut network = behind(scene, Front::Nginx(&nginx, NGINX_OF_OLD))?;
        tells(&network, "proxy_set_header Upgrade $http_upgrade;")?;
        network.set_front(|network| Front::Nginx(&nginx, NGINX_AS_TOLD).start(network))?;
        carries(&network, "https")
    })
}

#[test]
fn nginx_that_passes_websocket_alone_carries_the_relay() -> Result<()> {
    let Some(nginx) = nginx() else { return Ok(()) };
    scene("rlnw", |scene| {
        let network = behind(scene, Front::Nginx(&nginx, NGINX_WEBSOCKET))?;
        carries(&network, "websocket")
    })
}
