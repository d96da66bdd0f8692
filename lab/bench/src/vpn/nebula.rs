//! Nebula: the first host is the lighthouse; packets go directly.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, has_address, inner, make, place, program,
    run_dir,
};

const IFNAME: &str = "neb0";

/// Nebula, and the program that makes its certificates.
#[derive(Debug)]
pub(super) struct Nebula {
    nebula: Option<PathBuf>,
    cert: Option<PathBuf>,
}

impl Nebula {
    pub(super) fn find() -> Self {
        Self { nebula: find("nebula"), cert: find("nebula-cert") }
    }
}

impl Vpn for Nebula {
    fn name(&self) -> &str {
        "Nebula"
    }

    fn word(&self) -> &str {
        "nebula"
    }

    fn version(&self) -> Result<String> {
        program(&self.cert, "nebula-cert")?;
        first_line(program(&self.nebula, "nebula")?, &["-version"])
    }

    fn install_hint(&self) -> &str {
        "go install github.com/slackhq/nebula/cmd/nebula@v1.11.1, the same for cmd/nebula-cert; \
         the package nebula of Debian 12 (1.6.1) is too old to stand for it"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP, AES"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let nebula = program(&self.nebula, "nebula")?;
        let cert = program(&self.cert, "nebula-cert")?;
        let dir = run_dir(&ends[0])?.join("pki");
        std::fs::create_dir_all(&dir)?;
        make(&dir, &[cert, "ca", "-name", "bench", "-out-crt", "ca.crt", "-out-key", "ca.key"])?;
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let name = end.host.name();
            let crt = format!("{name}.crt");
            let key = format!("{name}.key");
            let cidr = format!("{}/24", inner(i));
            let sign = [cert, "sign", "-ca-crt", "ca.crt", "-ca-key", "ca.key", "-name", name];
            make(&dir, &[&sign[..], &["-ip", &cidr, "-out-crt", &crt, "-out-key", &key]].concat())?;
            for (from, to) in [("ca.crt", "ca.crt"), (&crt, "crt"), (&key, "key")] {
                let text = std::fs::read_to_string(dir.join(from))?;
                place(end, &format!("nebula/{to}"), &text)?;
            }
            place(end, "nebula/config.yml", &config(i, &ends[0].outer))?;
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon {
                    ready: has_address(IFNAME, &inner(i)),
                    ..Daemon::new(&[nebula, "-config", "/run/nebula/config.yml"])
                }],
                address: Address::Known(inner(i)),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}

fn config(index: usize, lighthouse: &str) -> String {
    let role = match index {
        0 => "lighthouse: {am_lighthouse: true}\nstatic_host_map: {}\n".to_owned(),
        _ => format!(
            "lighthouse: {{am_lighthouse: false, hosts: [\"{}\"]}}\n\
             static_host_map: {{\"{}\": [\"{lighthouse}:4242\"]}}\n",
            inner(0),
            inner(0)
        ),
    };
    format!(
        "pki: {{ca: /run/nebula/ca.crt, cert: /run/nebula/crt, key: /run/nebula/key}}\n{role}\
         listen: {{host: 0.0.0.0, port: 4242}}\ncipher: aes\ntun: {{dev: {IFNAME}}}\n\
         punchy: {{punch: true}}\nfirewall:\n  outbound: [{{port: any, proto: any, host: any}}]\n  \
         inbound: [{{port: any, proto: any, host: any}}]\n"
    )
}
