//! Mycelium over TCP, each with the first host as its only peer: packets between the others cross
//! it. Nodes of the public network are out of reach.

use std::path::PathBuf;

use anyhow::Result;

use super::{Address, Daemon, End, Member, Vpn, find, first_line, program};

const IFNAME: &str = "myc0";
const PORT: u16 = 9_651;

/// Mycelium.
#[derive(Debug)]
pub(super) struct Mycelium(Option<PathBuf>);

impl Mycelium {
    pub(super) fn find() -> Self {
        Self(find("mycelium"))
    }
}

impl Vpn for Mycelium {
    fn name(&self) -> &str {
        "Mycelium"
    }

    fn word(&self) -> &str {
        "mycelium"
    }

    fn version(&self) -> Result<String> {
        first_line(program(&self.0, "mycelium")?, &["--version"])
    }

    fn install_hint(&self) -> &str {
        "put mycelium (0.7.10 or newer) on PATH, or name it in WARREN_BENCH_MYCELIUM; the crate of \
         that name is another program"
    }

    fn remark(&self, _version: &str) -> &str {
        "over TCP; between the second and the third host packets cross the first; over QUIC it \
         carried echoes and no TCP when it was tried"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let mycelium = program(&self.0, "mycelium")?;
        let peer = format!("tcp://{}:{PORT}", ends[0].outer);
        // An address of its own range, which nothing else here has.
        let own = format!("ip -o -6 addr show dev {IFNAME} | grep -o 'inet6 [45][^ /]*'");
        let member = |i: usize| {
            let mut argv = vec![
                mycelium,
                "--key-file",
                "/run/mycelium.key",
                "--tun-name",
                IFNAME,
                "--disable-peer-discovery",
            ];
            if i > 0 {
                argv.extend(["--peers", &peer]);
            }
            Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon { ready: own.clone(), ..Daemon::new(&argv) }],
                address: Address::Told(format!("{own} | cut -d ' ' -f 2")),
                settled: String::new(),
            }
        };
        Ok((0..ends.len()).map(member).collect())
    }
}
