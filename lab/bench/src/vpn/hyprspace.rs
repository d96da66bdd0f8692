//! Hyprspace over QUIC: every host is told of the others, and the first is where all begin. The
//! public nodes of its network are out of reach.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Address, Daemon, End, Member, Vpn, find, first_line, make, place, program, run_dir};

const IFNAME: &str = "hs0";
const PORT: u16 = 8_001;

/// Hyprspace.
#[derive(Debug)]
pub(super) struct Hyprspace(Option<PathBuf>);

impl Hyprspace {
    pub(super) fn find() -> Self {
        Self(find("hyprspace"))
    }
}

impl Vpn for Hyprspace {
    fn name(&self) -> &str {
        "Hyprspace"
    }

    fn word(&self) -> &str {
        "hyprspace"
    }

    fn version(&self) -> Result<String> {
        first_line(program(&self.0, "hyprspace")?, &["version"])
    }

    fn install_hint(&self) -> &str {
        "put hyprspace (0.15.0 or newer) on PATH, or name it in WARREN_BENCH_HYPRSPACE; no \
         registry of packages has it"
    }

    fn remark(&self, _version: &str) -> &str {
        "over QUIC streams, which repeat and keep in order what is lost; directly between hosts"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let hyprspace = program(&self.0, "hyprspace")?;
        let mut nodes = Vec::new();
        for end in ends {
            nodes.push(identity(end, hyprspace)?);
        }
        let others = |own: usize| (0..ends.len()).filter(move |i| *i != own);
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let at = |j: usize| {
                let End { outer, .. } = &ends[j];
                format!("/ip4/{outer}/udp/{PORT}/quic-v1/p2p/{}", nodes[j].0)
            };
            let peer = |j: usize| json!({"id": nodes[j].0, "name": ends[j].host.name()});
            let config = json!({
                "privateKey": nodes[i].1,
                "listenAddresses": [format!("/ip4/0.0.0.0/udp/{PORT}/quic-v1")],
                "bootstrapPeers": others(i).map(at).collect::<Vec<_>>(),
                "peers": others(i).map(peer).collect::<Vec<_>>(),
            });
            place(end, "hyprspace.json", &config.to_string())?;
            let own = format!("ip -o -4 addr show dev {IFNAME} up | grep -o 'inet 100[^ /]*'");
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon {
                    ready: own.clone(),
                    ..Daemon::new(&[hyprspace, "up", "-c", "/run/hyprspace.json", "-i", IFNAME])
                }],
                address: Address::Told(format!("{own} | cut -d ' ' -f 2")),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}

/// Makes the keys of a host: the name that others know it by, and the private key.
fn identity(end: &End, hyprspace: &str) -> Result<(String, String)> {
    let path = run_dir(end)?.join("hyprspace-keys.json");
    let file = path.to_str().context("the path of a host's files is not UTF-8")?;
    let words = [hyprspace, "init", "-c", file, "-i", IFNAME, "--name", end.host.name()];
    let said = make(run_dir(end)?, &words)?;
    let id = said.split("\"id\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let id = id.context("hyprspace init told no id")?.to_owned();
    let made: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let key = made["privateKey"].as_str().context("hyprspace init made no key")?;
    Ok((id, key.to_owned()))
}
