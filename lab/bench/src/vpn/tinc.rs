//! tinc in router mode: the first host is the one that the others connect to.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, has_address, inner, place, program,
    run_dir,
};

const IFNAME: &str = "tinc0";

/// tinc, by its daemon.
#[derive(Debug)]
pub(super) struct Tinc(Option<PathBuf>);

impl Tinc {
    pub(super) fn find() -> Self {
        Self(find("tincd"))
    }
}

impl Vpn for Tinc {
    fn name(&self) -> &str {
        "tinc"
    }

    fn word(&self) -> &str {
        "tinc"
    }

    fn version(&self) -> Result<String> {
        first_line(program(&self.0, "tincd")?, &["--version"])
    }

    fn install_hint(&self) -> &str {
        "install the package tinc; WARREN_BENCH_TINCD names a daemon that is not on PATH"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP; defaults: AES-256-CBC with SHA-256, replay window of 256 packets"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let tincd = program(&self.0, "tincd")?;
        for (i, end) in ends.iter().enumerate() {
            let name = end.host.name();
            let connect = if i == 0 { "" } else { "ConnectTo = a\n" };
            let config = format!(
                "Name = {name}\nInterface = {IFNAME}\nMode = router\n\
                 AddressFamily = ipv4\n{connect}"
            );
            place(end, "tinc/tinc.conf", &config)?;
            let card = format!("Address = {}\nSubnet = {}/32\n", end.outer, inner(i));
            place(end, &format!("tinc/hosts/{name}"), &card)?;
            let up = format!(
                "#!/bin/sh\nip addr add {}/24 dev $INTERFACE\nip link set $INTERFACE up\n",
                inner(i)
            );
            place(end, "tinc/tinc-up", &up)?;
            end.host.sh("chmod 700 /run/tinc/tinc-up")?;
            end.host.run(&[tincd, "-c", "/run/tinc", "-K2048"])?;
        }
        // Now each card holds a public key; everybody gets everybody's.
        for from in ends {
            let card = format!("tinc/hosts/{}", from.host.name());
            let text = std::fs::read_to_string(run_dir(from)?.join(&card))?;
            for to in ends {
                place(to, &card, &text)?;
            }
        }
        let member = |i: usize| Member {
            ifname: IFNAME.to_owned(),
            daemons: vec![Daemon {
                ready: has_address(IFNAME, &inner(i)),
                ..Daemon::new(&[tincd, "-c", "/run/tinc", "-D", "-d1", "--pidfile=/run/tinc.pid"])
            }],
            address: Address::Known(inner(i)),
            settled: String::new(),
        };
        Ok((0..ends.len()).map(member).collect())
    }
}
