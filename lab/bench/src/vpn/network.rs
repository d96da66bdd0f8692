//! A network of ours, as people run it: the first host has the server beside its node, and all join
//! with one token.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Address, Daemon, End, Member, Vpn, WARREN_NETWORK, first_line};

const IFNAME: &str = "wn0";
const PORT: u16 = 443;

/// Warren's own server, daemons and commands.
#[derive(Debug)]
pub struct Network {
    program: PathBuf,
    /// Whether the hosts cannot reach each other but by the server.
    relayed: bool,
    /// Relays beside the server's, on the hosts behind the first.
    relays: usize,
}

impl Network {
    /// Paths are direct before anything is measured.
    #[must_use]
    pub fn direct(program: &Path) -> Self {
        Self { program: program.to_owned(), relayed: false, relays: 0 }
    }

    /// For ground that lets no UDP pass.
    #[must_use]
    pub fn relayed(program: &Path) -> Self {
        Self { program: program.to_owned(), relayed: true, relays: 0 }
    }

    /// The same with so many relays beside the server's, on the hosts behind the first.
    #[must_use]
    pub fn with_relays(program: &Path, relays: usize) -> Self {
        Self { relays, ..Self::relayed(program) }
    }
}

impl Vpn for Network {
    fn name(&self) -> &str {
        WARREN_NETWORK
    }

    fn word(&self) -> &str {
        "warren-network"
    }

    fn version(&self) -> Result<String> {
        first_line(self.program.to_str().context("its path is not UTF-8")?, &["--version"])
    }

    fn install_hint(&self) -> &str {
        "make build"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP, with server, maps and paths; the server's processor time counts"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let warren = self.program.to_str().context("its path is not UTF-8")?;
        let outer = &ends[0].outer;
        let token = format!("{}/token", ends[0].shared.display());
        let token_of_relays = format!("{}/relay-token", ends[0].shared.display());
        let data = "/run/warren-server";
        let server = Daemon {
            ready: format!("{warren} key list --data {data} >/dev/null"),
            // A server that was started again has its key already.
            after: format!(
                "test -s {token} || {warren} key create --reusable --data {data} > {token}
                 {warren} token create --scope relay:serve --data {data} > {token_of_relays}"
            ),
            ..Daemon::new(&[
                warren,
                "serve",
                "--data",
                data,
                "--listen",
                &format!("{outer}:{PORT}"),
                "--url",
                &format!("https://{outer}"),
                "--stun",
                &format!("{outer}:3478"),
            ])
        };
        let ask = format!("{warren} --socket /run/warren.sock");
        let settled = if self.relays > 0 {
            let connected = r#"grep -o '"connected":true'"#;
            format!("test $({ask} netcheck --json | {connected} | wc -l) -gt {}", self.relays)
        } else if self.relayed {
            String::new()
        } else {
            let direct = r#"grep -o '"kind":"direct"'"#;
            format!("test $({ask} status --json | {direct} | wc -l) -ge {}", ends.len() - 1)
        };
        let member = |_: &End| Member {
            ifname: IFNAME.to_owned(),
            daemons: vec![Daemon {
                ready: format!("{ask} status --check live"),
                after: format!("{ask} up file:{token} --accept-dns=false --timeout 30s"),
                ..Daemon::new(&[
                    warren,
                    "daemon",
                    "--state",
                    "/run/warren-node",
                    "--socket",
                    "/run/warren.sock",
                    "--tun",
                    IFNAME,
                ])
            }],
            address: Address::Told(format!("{ask} ip -4")),
            settled: settled.clone(),
        };
        let mut members: Vec<Member> = ends.iter().map(member).collect();
        members[0].daemons.insert(0, server);
        for (end, member) in ends.iter().zip(&mut members).skip(1).take(self.relays) {
            member.daemons.insert(0, relay(warren, end));
        }
        Ok(members)
    }
}

/// A relay of its own on this host.
fn relay(warren: &str, end: &End) -> Daemon {
    let token = format!("file:{}/relay-token", end.shared.display());
    let listen = format!("{}:{PORT}", end.outer);
    let url = format!("https://{}", end.outer);
    let words = ["relay", "--data", "/run/warren-relay", "--token", &token, "--listen", &listen];
    Daemon {
        ready: format!("ss -Hltn 'sport = :{PORT}' | grep -q ."),
        ..Daemon::new(&[&[warren], &words[..], &["--url", &url]].concat())
    }
}
