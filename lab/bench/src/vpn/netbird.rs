//! NetBird, self-hosted: the first host also runs its server, which is management, signal, relay
//! and STUN in one program. The test begins when every pair is direct.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, make, needs, place, program, run_dir,
};

const IFNAME: &str = "nb0";
const PORT: u16 = 8_080;

/// The server, and the client that is also the daemon.
#[derive(Debug)]
pub(super) struct NetBird {
    server: Option<PathBuf>,
    client: Option<PathBuf>,
}

impl NetBird {
    pub(super) fn find() -> Self {
        Self { server: find("netbird-server"), client: find("netbird") }
    }
}

impl Vpn for NetBird {
    fn name(&self) -> &str {
        "NetBird"
    }

    fn word(&self) -> &str {
        "netbird"
    }

    fn version(&self) -> Result<String> {
        program(&self.server, "netbird-server")?;
        needs("curl", "curl")?;
        let client = first_line(program(&self.client, "netbird")?, &["version"])?;
        Ok(format!("netbird {client}"))
    }

    fn install_hint(&self) -> &str {
        "put netbird and netbird-server (its server in one program, 0.77 or newer) on PATH, or \
         name them in WARREN_BENCH_NETBIRD and WARREN_BENCH_NETBIRD_SERVER; no registry of \
         packages has them"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP, directly between hosts, WireGuard in user space; the server's processor time \
         counts"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let server = program(&self.server, "netbird-server")?;
        let client = program(&self.client, "netbird")?;
        let first = &ends[0];
        let key = format!("{}/netbird-key", first.shared.display());
        let at = format!("http://{}:{PORT}", first.outer);
        let random = ["sh", "-c", "head -c 32 /dev/urandom | base64"];
        let store_key = make(run_dir(first)?, &random)?;
        place(first, "netbird-server.yaml", &config(&at, store_key.trim()))?;
        let serve = Daemon {
            env: vec![
                ("NB_SETUP_PAT_ENABLED".to_owned(), "true".to_owned()),
                ("NB_DISABLE_GEOLOCATION".to_owned(), "true".to_owned()),
            ],
            before: "mkdir -p /run/netbird-server".to_owned(),
            ready: format!("curl -fsS -o /dev/null {at}/api/instance"),
            after: login_key(&at, &key),
            ..Daemon::new(&[server, "--config", "/run/netbird-server.yaml"])
        };
        let ask = format!("{client} --daemon-addr unix:///run/netbird.sock");
        let direct = r#"grep -o '"connectionType":"P2P"' | wc -l"#;
        let own = format!("ip -o -4 addr show dev {IFNAME} | grep -o 'inet 100[^ /]*'");
        let member = |end: &End| Member {
            ifname: IFNAME.to_owned(),
            daemons: vec![Daemon {
                env: vec![
                    ("NB_STATE_DIR".to_owned(), "/run/netbird".to_owned()),
                    // So it is the same program wherever it is measured.
                    ("NB_WG_KERNEL_DISABLED".to_owned(), "true".to_owned()),
                ],
                ready: "test -S /run/netbird.sock".to_owned(),
                after: format!(
                    "{ask} up --management-url {at} --setup-key-file {key} \
                     --interface-name {IFNAME} --hostname {} >/dev/null\n\
                     until {own} >/dev/null; do sleep 0.05; done",
                    end.host.name()
                ),
                ..Daemon::new(&[
                    client,
                    "service",
                    "run",
                    "--daemon-addr",
                    "unix:///run/netbird.sock",
                    "--log-file",
                    "console",
                ])
            }],
            address: Address::Told(format!("{own} | cut -d ' ' -f 2")),
            settled: format!("test $({ask} status --json | {direct}) -ge {}", ends.len() - 1),
        };
        let mut members: Vec<Member> = ends.iter().map(member).collect();
        members[0].daemons.insert(0, serve);
        Ok(members)
    }
}

fn config(at: &str, store_key: &str) -> String {
    format!(
        "server:\n  listenAddress: \":{PORT}\"\n  exposedAddress: \"{at}\"\n  \
         healthcheckAddress: \"127.0.0.1:9000\"\n  metricsPort: 9090\n  logLevel: warn\n  \
         logFile: console\n  authSecret: a secret of the bench\n  dataDir: /run/netbird-server\n  \
         disableAnonymousMetrics: true\n  disableGeoliteUpdate: true\n  \
         auth:\n    issuer: \"{at}/oauth2\"\n  store:\n    engine: sqlite\n    \
         encryptionKey: \"{store_key}\"\n"
    )
}

/// Makes an owner and a key that can be used again, once; a restarted server still has them.
fn login_key(at: &str, key: &str) -> String {
    let owner = r#"{"email":"bench@bench.test","password":"A-passw0rd-of-the-bench",
        "name":"bench","create_pat":true,"pat_expire_in":1}"#;
    let about = r#"{"name":"bench","type":"reusable","expires_in":86400,"auto_groups":[],
        "usage_limit":0}"#;
    let tell = "curl -fsS -H 'Content-Type: application/json'";
    format!(
        "test -s {key} && exit 0\n\
         pat=$({tell} -d '{owner}' {at}/api/setup | \
         sed 's/.*\"personal_access_token\": *\"//; s/\".*//')\n\
         {tell} -H \"Authorization: Token $pat\" -d '{about}' {at}/api/setup-keys | \
         sed 's/.*\"key\": *\"//; s/\".*//' > {key}\ntest -s {key}"
    )
}
