//! Headscale with tailscaled: the first host also runs the control server and its relay. Public
//! relays are kept out; the test begins when every pair is direct, or, where the relay is what is
//! measured, when every pair goes by it.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, make, needs, place, program, run_dir,
    write,
};

const IFNAME: &str = "ts0";
const PORT: u16 = 443;

/// The server, the daemon and the program that drives it.
#[derive(Debug)]
pub(crate) struct Headscale {
    headscale: Option<PathBuf>,
    tailscaled: Option<PathBuf>,
    tailscale: Option<PathBuf>,
    way: Way,
}

/// How packets go from host to host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From one to the other.
    Direct,
    /// By the relay, for the ground lets no UDP pass.
    Relayed,
    /// By the relay, for the hosts themselves keep tailscaled's UDP from the ground.
    Forced,
}

impl Headscale {
    pub(super) fn find() -> Self {
        Self {
            headscale: find("headscale"),
            tailscaled: find("tailscaled"),
            tailscale: find("tailscale"),
            way: Way::Direct,
        }
    }

    /// For ground that lets no UDP pass.
    pub(crate) fn relayed() -> Self {
        Self { way: Way::Relayed, ..Self::find() }
    }

    /// By its relay on any ground, as a row of its own.
    pub(super) fn forced() -> Self {
        Self { way: Way::Forced, ..Self::find() }
    }
}

impl Vpn for Headscale {
    fn name(&self) -> &str {
        match self.way {
            Way::Direct | Way::Relayed => "Headscale",
            Way::Forced => "Headscale by its relay",
        }
    }

    fn word(&self) -> &str {
        match self.way {
            Way::Direct | Way::Relayed => "headscale",
            Way::Forced => "headscale-relay",
        }
    }

    fn version(&self) -> Result<String> {
        let server = first_line(program(&self.headscale, "headscale")?, &["version"])?;
        program(&self.tailscale, "tailscale")?;
        needs("openssl", "openssl")?;
        let daemon = first_line(program(&self.tailscaled, "tailscaled")?, &["--version"])?;
        Ok(format!("headscale {server}, tailscaled {daemon}"))
    }

    fn install_hint(&self) -> &str {
        "put headscale (0.29.2 or newer) on PATH, and go install \
         tailscale.com/cmd/tailscaled@v1.102.5, the same for cmd/tailscale"
    }

    fn remark(&self, _version: &str) -> &str {
        match self.way {
            Way::Direct | Way::Relayed => {
                "over UDP; the data path is tailscaled's, directly between hosts; \
                 the server's processor time counts"
            }
            Way::Forced => {
                "over DERP, which is TLS over TCP, on the first host: UDP between the hosts is \
                 dropped, as campuses do; the server's processor time counts"
            }
        }
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let [headscale, tailscaled, tailscale] = [
            program(&self.headscale, "headscale")?,
            program(&self.tailscaled, "tailscaled")?,
            program(&self.tailscale, "tailscale")?,
        ];
        let first = &ends[0];
        let shared = ends[0].shared.display().to_string();
        certificate(first)?;
        place(first, "headscale/config.yaml", &config(&first.outer))?;
        write(
            &first.shared.join("tls.crt"),
            &std::fs::read_to_string(run_dir(first)?.join("tls.crt"))?,
        )?;
        let server = Daemon {
            before: "mkdir -p /run/headscale".to_owned(),
            ready: "test -S /run/headscale/sock".to_owned(),
            after: login_key(headscale, &shared),
            ..Daemon::new(&[headscale, "serve", "-c", "/run/headscale/config.yaml"])
        };
        let trust = ("SSL_CERT_FILE".to_owned(), format!("{shared}/tls.crt"));
        let member = |end: &End| {
            let up = format!(
                "export SSL_CERT_FILE={shared}/tls.crt\n{tailscale} --socket=/run/ts.sock up \
                 --login-server=https://{}:{PORT} --authkey=$(cat {shared}/key) \
                 --hostname={} --accept-dns=false --timeout=60s",
                first.outer,
                end.host.name()
            );
            let daemon = Daemon {
                env: vec![trust.clone()],
                before: if self.way == Way::Forced { no_udp() } else { String::new() },
                ready: "test -S /run/ts.sock".to_owned(),
                after: up,
                ..Daemon::new(&[
                    tailscaled,
                    "--statedir=/run/ts",
                    "--socket=/run/ts.sock",
                    &format!("--tun={IFNAME}"),
                    "--port=41641",
                    "--no-logs-no-support",
                ])
            };
            Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![daemon],
                address: Address::Told(format!("{tailscale} --socket=/run/ts.sock ip -4")),
                settled: match self.way {
                    Way::Direct => every_peer(tailscale, "direct", ends.len() - 1),
                    Way::Forced => every_peer(tailscale, "relay", ends.len() - 1),
                    Way::Relayed => String::new(),
                },
            }
        };
        let mut members: Vec<Member> = ends.iter().map(member).collect();
        members[0].daemons.insert(0, server);
        Ok(members)
    }
}

/// Succeeds once so many peers are reached in a way that has this word.
fn every_peer(tailscale: &str, way: &str, count: usize) -> String {
    format!("test $({tailscale} --socket=/run/ts.sock status | grep -c {way}) -ge {count}")
}

/// Drops UDP that goes out to the ground or comes from there; what is inside the VPN passes. A host
/// that starts again has the rules already.
fn no_udp() -> String {
    let chain = |hook: &str, side: &str| {
        format!(
            "chain {hook} {{\n type filter hook {hook} priority -10\n \
             {side} \"{}\" meta l4proto udp drop\n}}\n",
            crate::ground::IFNAME
        )
    };
    let into = chain("input", "iifname");
    let out = chain("output", "oifname");
    format!(
        "nft list table inet no_udp >/dev/null 2>&1 ||\
         nft 'table inet no_udp {{\n{into}{out}}}'"
    )
}

fn certificate(end: &End) -> Result<()> {
    let name = format!("subjectAltName=IP:{}", end.outer);
    let words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                 -keyout tls.key -out tls.crt -subj /CN=bench -days 30 -addext";
    let mut argv: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    argv.push(&name);
    make(run_dir(end)?, &argv)?;
    Ok(())
}

/// Makes a user and a key that can be used again, once; a restarted server still has them.
fn login_key(headscale: &str, shared: &str) -> String {
    let run = format!("{headscale} -c /run/headscale/config.yaml");
    // What is printed is JSON over several lines; the first id and the first key are ours.
    let id = r#"grep -o '"id": *"\{0,1\}[0-9]*' | grep -o '[0-9]*$' | head -1"#;
    let key = r#"grep -o '"key": *"[^"]*' | sed 's/.*"//' | head -1"#;
    format!(
        "test -s {shared}/key && exit 0\n{run} users create bench >/dev/null\n\
         id=$({run} users list -o json | {id})\n\
         {run} preauthkeys create -u $id --reusable -e 24h -o json | {key} > {shared}/key\n\
         test -s {shared}/key"
    )
}

fn config(outer: &str) -> String {
    format!(
        "server_url: https://{outer}:{PORT}\nlisten_addr: {outer}:{PORT}\n\
         tls_cert_path: /run/tls.crt\ntls_key_path: /run/tls.key\n\
         metrics_listen_addr: 127.0.0.1:9090\ngrpc_listen_addr: 127.0.0.1:50443\n\
         noise: {{private_key_path: /run/headscale/noise.key}}\n\
         database: {{type: sqlite, sqlite: {{path: /run/headscale/db.sqlite}}}}\n\
         prefixes: {{v4: 100.64.0.0/10, v6: \"fd7a:115c:a1e0::/48\", allocation: sequential}}\n\
         derp:\n  server:\n    {{enabled: true, region_id: 999, region_code: bench, \
         region_name: bench, verify_clients: true, stun_listen_addr: \"0.0.0.0:3478\", \
         private_key_path: /run/headscale/derp.key, \
         automatically_add_embedded_derp_region: true, ipv4: {outer}}}\n  \
         urls: []\n  paths: []\n  auto_update_enabled: false\n\
         dns: {{magic_dns: false, base_domain: bench.test, override_local_dns: false, \
         nameservers: {{global: []}}}}\n\
         policy: {{mode: file, path: \"\"}}\nunix_socket: /run/headscale/sock\n\
         unix_socket_permission: \"0770\"\ndisable_check_updates: true\n\
         logtail: {{enabled: false}}\n"
    )
}
