//! Yggdrasil over TCP: the others peer with the first host, and their packets cross it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Address, Daemon, End, Member, Vpn, find, make, place, program};

const IFNAME: &str = "ygg0";
const PORT: u16 = 9_001;

/// Yggdrasil.
#[derive(Debug)]
pub(super) struct Yggdrasil(Option<PathBuf>);

impl Yggdrasil {
    pub(super) fn find() -> Self {
        Self(find("yggdrasil"))
    }
}

impl Vpn for Yggdrasil {
    fn name(&self) -> &str {
        "Yggdrasil"
    }

    fn word(&self) -> &str {
        "yggdrasil"
    }

    fn version(&self) -> Result<String> {
        let program = program(&self.0, "yggdrasil")?;
        let said = make(std::path::Path::new("/"), &[program, "-version"])?;
        let line = said.lines().find_map(|line| line.strip_prefix("Build version: "));
        match line.filter(|version| *version != "unknown") {
            Some(version) => Ok(version.to_owned()),
            // Debian's build does not know its version; its package does.
            None => {
                let words = ["dpkg-query", "-W", "-f", "${Version}", "yggdrasil"];
                let known = make(std::path::Path::new("/"), &words);
                Ok(known.map_or_else(|_| "unknown".to_owned(), |v| format!("package {v}")))
            }
        }
    }

    fn install_hint(&self) -> &str {
        "put a binary of 0.5.14 or newer on PATH, or name it in WARREN_BENCH_YGGDRASIL; the \
         package yggdrasil of Debian 12 (0.4.7) is too old to stand for it"
    }

    fn remark(&self, _version: &str) -> &str {
        "over TCP; between the second and the third host packets cross the first; its MTU of \
         65535 flatters it in TCP tests"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let yggdrasil = program(&self.0, "yggdrasil")?;
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let text = make(std::path::Path::new("/"), &[yggdrasil, "-genconf", "-json"])?;
            let mut config: Value =
                serde_json::from_str(&text).context("yggdrasil -genconf printed no JSON")?;
            config["Listen"] = json!([]);
            config["Peers"] = json!([]);
            match i {
                0 => config["Listen"] = json!([format!("tcp://0.0.0.0:{PORT}")]),
                _ => config["Peers"] = json!([format!("tcp://{}:{PORT}", ends[0].outer)]),
            }
            config["MulticastInterfaces"] = json!([]);
            config["AdminListen"] = json!("none");
            config["IfName"] = json!(IFNAME);
            place(end, "ygg.conf", &config.to_string())?;
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon {
                    ready: format!("ip -o -6 addr show dev {IFNAME} up | grep -q 'inet6 [23]'"),
                    ..Daemon::new(&[yggdrasil, "-useconffile", "/run/ygg.conf"])
                }],
                address: Address::Told(format!(
                    "ip -o -6 addr show dev {IFNAME} | sed -n 's/.*inet6 \\([23][^/]*\\).*/\\1/p'"
                )),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}
