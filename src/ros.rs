//! `warren ros`: the peers of this node, as the middlewares of robots want them listed.
//!
//! ROS 2 finds others by multicast, which no routed network carries. Each middleware takes a list
//! of addresses in its place; here it is written from the live map, and kept so.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::client::{Target, text, texts};

/// How often the map is asked for.
const EVERY: Duration = Duration::from_secs(2);
/// Participants on one machine that others look for: what the middlewares allow by default is less.
const PARTICIPANTS: u32 = 32;
/// Bytes of a message that fit the overlay in one packet, with headers of UDP and IP.
const MESSAGE_BYTES: u32 = 1372;

/// Write the list of peers for ROS 2, from the live map.
///
/// With `--watch` the file is written again whenever the map changes. A node of ROS reads it at its
/// start: who joins later finds those that are there, since they are in its own list.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  eval \"$(warren ros)\"\n  warren ros --format cyclone --out \
                        /etc/cyclonedds.xml --watch\n  export \
                        CYCLONEDDS_URI=file:///etc/cyclonedds.xml")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) target: Target,
    /// For which middleware
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "env")]
    format: Format,
    /// Only peers with this tag, as in tag:robot; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Write this file, whole or not at all, in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on, and write it again when the map changes
    #[arg(long, requires = "out")]
    watch: bool,
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// `export ROS_STATIC_PEERS=…` for any middleware of ROS 2, from Iron on.
    Env,
    /// A profile for Fast DDS: FASTDDS_DEFAULT_PROFILES_FILE.
    Fastdds,
    /// A configuration for Cyclone DDS: CYCLONEDDS_URI.
    Cyclone,
}

/// What the list is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Peers {
    interface: String,
    own: String,
    others: Vec<String>,
}

/// Writes it, and goes on if that is wanted.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut known = None;
    loop {
        match look(&args) {
            Ok(peers) if known.as_ref() != Some(&peers) => {
                put(&args, &peers)?;
                known = Some(peers);
            }
            Ok(_) => {}
            // What is there stays: the daemon may be started anew.
            Err(why) if known.is_some() => tracing::warn!("{why:#}"),
            Err(why) => return Err(why),
        }
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

fn look(args: &Args) -> Result<Peers> {
    let status = args.target.ask(&Request::Status)?;
    peers(&status, &args.tags)
}

/// Peers with an address of IPv4, in the order of their addresses: DDS takes one family.
fn peers(status: &Value, tags: &[String]) -> Result<Peers> {
    let v4 = |node: &Value| {
        texts(&node["addresses"]).find(|address| address.contains('.')).map(str::to_owned)
    };
    let Some(own) = v4(&status["self"]) else {
        bail!("this node has no address yet; `warren up` brings it up, `warren wait` waits");
    };
    let tagged = |tag: &String| match tag.starts_with("tag:") {
        true => tag.clone(),
        false => format!("tag:{tag}"),
    };
    let tags: Vec<String> = tags.iter().map(tagged).collect();
    let is_wanted = |peer: &&Value| {
        tags.is_empty() || texts(&peer["tags"]).any(|tag| tags.iter().any(|wanted| wanted == tag))
    };
    let peers = status["peers"].as_array().into_iter().flatten();
    let mut others: Vec<String> = peers.filter(is_wanted).filter_map(v4).collect();
    others.sort_by_key(|address| address.parse::<std::net::Ipv4Addr>().ok());
    Ok(Peers { interface: text(status, "interface").to_owned(), own, others })
}

fn put(args: &Args, peers: &Peers) -> Result<()> {
    let told = match args.format {
        Format::Env => env(peers),
        Format::Fastdds => fastdds(peers),
        Format::Cyclone => cyclone(peers),
    };
    if let Some(path) = &args.out {
        replace(path, &told).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let answer = json!({ "schema": 1, "interface": peers.interface, "address": peers.own,
                         "peers": peers.others, "file": told });
    let shown = if args.out.is_some() { String::new() } else { told };
    args.target.print(&answer, |_| shown)
}

/// Whole or not at all: a reader finds the list of before or this one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_added_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// A line for a shell.
fn env(peers: &Peers) -> String {
    format!("export ROS_STATIC_PEERS='{}'\n", peers.others.join(";"))
}

fn cyclone(peers: &Peers) -> String {
    let mut list = String::new();
    for address in [&peers.own].into_iter().chain(&peers.others) {
        let _ = writeln!(list, "        <Peer Address=\"{address}\"/>");
    }
    let interface = &peers.interface;
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- written by warren ros -->\n<CycloneDDS \
         xmlns=\"https://cdds.io/config\">\n  <Domain Id=\"any\">\n    <General>\n      \
         <Interfaces>\n        <NetworkInterface name=\"{interface}\" multicast=\"false\"/>\n      \
         </Interfaces>\n      <AllowMulticast>false</AllowMulticast>\n      \
         <MaxMessageSize>{MESSAGE_BYTES}B</MaxMessageSize>\n    </General>\n    <Discovery>\n      \
         <ParticipantIndex>auto</ParticipantIndex>\n      \
         <MaxAutoParticipantIndex>{PARTICIPANTS}</MaxAutoParticipantIndex>\n      <Peers>\n\
         {list}      </Peers>\n    </Discovery>\n  </Domain>\n</CycloneDDS>\n"
    )
}

fn fastdds(peers: &Peers) -> String {
    let mut list = String::new();
    for address in [&peers.own].into_iter().chain(&peers.others) {
        let _ = writeln!(
            list,
            "            <locator><udpv4><address>{address}</address></udpv4></locator>"
        );
    }
    let own = &peers.own;
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- written by warren ros -->\n<dds \
         xmlns=\"http://www.eprosima.com\">\n  <profiles>\n    <transport_descriptors>\n      \
         <transport_descriptor>\n        <transport_id>warren</transport_id>\n        \
         <type>UDPv4</type>\n        <interfaceWhiteList><address>{own}</address>\
         </interfaceWhiteList>\n        \
         <maxInitialPeersRange>{PARTICIPANTS}</maxInitialPeersRange>\n      \
         </transport_descriptor>\n    </transport_descriptors>\n    <participant \
         profile_name=\"warren\" is_default_profile=\"true\">\n      <rtps>\n        \
         <userTransports><transport_id>warren</transport_id></userTransports>\n        \
         <useBuiltinTransports>false</useBuiltinTransports>\n        <builtin>\n          \
         <initialPeersList>\n{list}          </initialPeersList>\n        </builtin>\n      \
         </rtps>\n    </participant>\n  </profiles>\n</dds>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        json!({
            "interface": "warren0",
            "self": { "addresses": ["100.64.0.1", "fd77::1"] },
            "peers": [
                { "addresses": ["100.64.0.10"], "tags": ["tag:robot"] },
                { "addresses": ["fd77::2"], "tags": ["tag:robot"] },
                { "addresses": ["100.64.0.9", "fd77::9"], "tags": [] },
            ],
        })
    }

    #[test]
    fn peers_are_those_of_ipv4_in_their_order_and_with_the_tag() {
        let all = peers(&status(), &[]).unwrap();
        assert_eq!(all.others, ["100.64.0.9", "100.64.0.10"]);
        assert_eq!(env(&all), "export ROS_STATIC_PEERS='100.64.0.9;100.64.0.10'\n");
        for tag in ["robot", "tag:robot"] {
            let robots = peers(&status(), &[tag.to_owned()]).unwrap();
            assert_eq!(robots.others, ["100.64.0.10"]);
        }
        let why = peers(&json!({ "self": { "addresses": [] } }), &[]).unwrap_err().to_string();
        assert!(why.contains("warren wait"), "{why}");
    }

    #[test]
    fn both_configurations_name_this_node_and_all_peers() {
        let all = peers(&status(), &[]).unwrap();
        for text in [cyclone(&all), fastdds(&all)] {
            let open = text.matches('<').count();
            assert_eq!(open, text.matches('>').count(), "{text}");
            for address in ["100.64.0.1", "100.64.0.9", "100.64.0.10"] {
                assert!(text.contains(address), "{text}");
            }
        }
        assert!(cyclone(&all).contains("name=\"warren0\" multicast=\"false\""));
    }
}
