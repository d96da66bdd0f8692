//! OpenVPN over TCP from A to B: TCP in TCP, the control that must fail.

use std::time::Duration;

use anyhow::Result;

use super::chain::{Chain, SERVER, word};
use super::running::{Inside, Running, program, until};
use crate::vpn;

const PORT: u16 = 1_194;

pub(super) fn start(chain: &Chain) -> Result<Running> {
    let openvpn = program("openvpn")?;
    let dir = chain.file("pki");
    std::fs::create_dir_all(&dir)?;
    vpn::openvpn::authority(&dir)?;
    let mut running = Running::new(Inside::Client);
    for (i, name, role, addresses) in [
        (
            1,
            "a",
            format!("proto tcp4-server\ntls-server\ndh none\nlport {PORT}"),
            "10.60.0.1 10.60.0.2",
        ),
        (
            2,
            "b",
            format!("proto tcp4-client\ntls-client\nremote 10.10.2.1 {PORT}\nnobind"),
            "10.60.0.2 10.60.0.1",
        ),
    ] {
        vpn::openvpn::certificate(&dir, name)?;
        let conf = format!(
            "{role}\ndev ovt0\ndev-type tun\nifconfig {addresses}\nca ca.crt\ncert {name}.crt\n\
             key {name}.key\ndata-ciphers AES-256-GCM\ndisable-dco\nkeepalive 10 60\nverb 2\n"
        );
        std::fs::write(dir.join(format!("{name}.conf")), conf)?;
        let words = [&openvpn[..], "--cd", &word(&dir), "--config", &format!("{name}.conf")];
        running.roles[i].push(chain.hosts[i].spawn(&words)?);
    }
    let a = &chain.hosts[1];
    until("OpenVPN carries", Duration::from_secs(30), || {
        Ok(a.sh("ping -n -q -c 1 -W 1 10.60.0.2").is_ok())
    })?;
    a.sh("ip route replace 203.0.113.0/24 via 10.60.0.2")?;
    chain.hosts[2].sh("ip route replace 10.10.1.0/24 via 10.60.0.1")?;
    chain.client().sh(&format!("ping -n -q -c 1 -W 2 {SERVER}"))?;
    Ok(running)
}
