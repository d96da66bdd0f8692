//! VpnCloud: the others know the first host's address; packets go directly.

use std::path::PathBuf;

use anyhow::Result;

use super::{Address, Daemon, End, Member, Vpn, find, first_line, has_address, inner, program};
use crate::ground;

const IFNAME: &str = "vc0";

/// VpnCloud.
#[derive(Debug)]
pub(super) struct VpnCloud(Option<PathBuf>);

impl VpnCloud {
    pub(super) fn find() -> Self {
        Self(find("vpncloud"))
    }
}

impl Vpn for VpnCloud {
    fn name(&self) -> &str {
        "VpnCloud"
    }

    fn word(&self) -> &str {
        "vpncloud"
    }

    fn version(&self) -> Result<String> {
        first_line(program(&self.0, "vpncloud")?, &["--version"])
    }

    fn install_hint(&self) -> &str {
        "cargo install vpncloud --version 2.3.0 --locked; WARREN_BENCH_VPNCLOUD names one that \
         is not on PATH"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let vpncloud = program(&self.0, "vpncloud")?;
        let connect = format!("{}:3210", ends[0].outer);
        let member = |i: usize| {
            let address = inner(i);
            let claim = format!("{address}/32");
            let up = format!("ip addr add {address}/24 dev {IFNAME} && ip link set {IFNAME} up");
            let mut argv = vec![
                vpncloud,
                "-p",
                "a secret of the bench",
                "--device",
                IFNAME,
                "--ifup",
                &up,
                "--no-auto-claim",
                "--claim",
                &claim,
                "-l",
                "3210",
                "--no-port-forwarding",
            ];
            if i > 0 {
                argv.extend(["-c", &connect]);
            }
            // It ends where there is no default route; this one leads nowhere.
            let before = format!(
                "ip route | grep -q ^default || ip route add default dev {}",
                ground::IFNAME
            );
            let ready = has_address(IFNAME, &address);
            Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon { before, ready, ..Daemon::new(&argv) }],
                address: Address::Known(address.clone()),
                settled: String::new(),
            }
        };
        Ok((0..ends.len()).map(member).collect())
    }
}
