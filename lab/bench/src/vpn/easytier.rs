//! EasyTier over UDP: plain, and tuned, that is with its KCP proxy for TCP and several threads;
//! packets go directly.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    Address, Daemon, EASYTIER_KCP, End, Member, Vpn, find, first_line, has_address, inner, program,
};

const IFNAME: &str = "et0";
const LISTEN: &str = "udp://0.0.0.0:11010";

/// EasyTier.
#[derive(Debug)]
pub(super) struct EasyTier {
    program: Option<PathBuf>,
    kcp: bool,
}

impl EasyTier {
    pub(super) fn plain() -> Self {
        Self { program: find("easytier-core"), kcp: false }
    }

    pub(super) fn kcp() -> Self {
        Self { kcp: true, ..Self::plain() }
    }
}

impl Vpn for EasyTier {
    fn name(&self) -> &str {
        if self.kcp { EASYTIER_KCP } else { "EasyTier" }
    }

    fn word(&self) -> &str {
        if self.kcp { "easytier-kcp" } else { "easytier" }
    }

    fn version(&self) -> Result<String> {
        first_line(program(&self.program, "easytier-core")?, &["--version"])
    }

    fn install_hint(&self) -> &str {
        "put easytier-core of 2.6.4 or newer on PATH, or name it in WARREN_BENCH_EASYTIER_CORE, or \
         there lab/bench/rivals/easytier-core, which takes the engine out of the Python package \
         easytier-pyo3; the crate easytier is too old to stand for it"
    }

    fn remark(&self, _version: &str) -> &str {
        match self.kcp {
            true => {
                "over UDP; ends TCP locally and sends it nearly twice, with congestion control \
                     off; nothing but TCP gains; several threads"
            }
            false => "over UDP, one thread, AES-GCM",
        }
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let easytier = program(&self.program, "easytier-core")?;
        let peer = format!("udp://{}:11010", ends[0].outer);
        let member = |i: usize| {
            let address = inner(i);
            let mut argv = vec![
                easytier,
                "-i",
                &address,
                "--network-name",
                "bench",
                "--network-secret",
                "a secret of the bench",
                "--dev-name",
                IFNAME,
                "--hostname",
                ends[i].host.name(),
                "--rpc-portal",
                "127.0.0.1:15888",
                "-l",
                LISTEN,
            ];
            if i > 0 {
                argv.extend(["-p", &peer]);
            }
            if self.kcp {
                argv.extend(["--enable-kcp-proxy", "true", "--multi-thread", "true"]);
            }
            Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon {
                    ready: has_address(IFNAME, &address),
                    ..Daemon::new(&argv)
                }],
                address: Address::Known(address.clone()),
                settled: String::new(),
            }
        };
        Ok((0..ends.len()).map(member).collect())
    }
}
