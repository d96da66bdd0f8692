//! OpenVPN over UDP: the first host is the server, and the others' packets cross it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{
    Address, Daemon, End, Member, Vpn, find, first_line, has_address, inner, make, needs, place,
    program, run_dir,
};

const IFNAME: &str = "ovpn0";
const PORT: u16 = 1_194;

/// OpenVPN.
#[derive(Debug)]
pub(super) struct OpenVpn(Option<PathBuf>);

impl OpenVpn {
    pub(super) fn find() -> Self {
        Self(find("openvpn"))
    }
}

impl Vpn for OpenVpn {
    fn name(&self) -> &str {
        "OpenVPN"
    }

    fn word(&self) -> &str {
        "openvpn"
    }

    fn version(&self) -> Result<String> {
        needs("openssl", "openssl")?;
        let said = first_line(program(&self.0, "openvpn")?, &["--version"])?;
        Ok(said.split(" [").next().unwrap_or(&said).to_owned())
    }

    fn install_hint(&self) -> &str {
        "install the package openvpn (and openssl, for its keys); \
         WARREN_BENCH_OPENVPN names one that is not on PATH"
    }

    fn remark(&self, _version: &str) -> &str {
        "over UDP, AES-256-GCM, without DCO; between the second and the third host packets cross \
         the first"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let openvpn = program(&self.0, "openvpn")?;
        let dir = run_dir(&ends[0])?.join("pki");
        std::fs::create_dir_all(&dir)?;
        authority(&dir)?;
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let name = end.host.name();
            certificate(&dir, name)?;
            for (file, from) in [("ca.crt", "ca.crt".to_owned()), ("key", format!("{name}.key"))] {
                place(end, &format!("ovpn/{file}"), &std::fs::read_to_string(dir.join(from))?)?;
            }
            let own = std::fs::read_to_string(dir.join(format!("{name}.crt")))?;
            place(end, "ovpn/crt", &own)?;
            if i > 0 {
                let push = format!("ifconfig-push {} 255.255.255.0\n", inner(i));
                place(&ends[0], &format!("ovpn/ccd/{name}"), &push)?;
            }
            place(end, "ovpn/conf", &config(i, &ends[0].outer))?;
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![Daemon {
                    ready: has_address(IFNAME, &inner(i)),
                    ..Daemon::new(&[openvpn, "--cd", "/run/ovpn", "--config", "conf"])
                }],
                address: Address::Known(inner(i)),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}

fn config(index: usize, server: &str) -> String {
    let role = match index {
        0 => format!(
            "port {PORT}\nserver 10.10.0.0 255.255.255.0\nclient-to-client\ndh none\n\
             client-config-dir ccd\nproto udp4\n"
        ),
        _ => format!("client\nnobind\nremote {server} {PORT}\nproto udp4\nconnect-retry 1\n"),
    };
    format!(
        "{role}dev {IFNAME}\ndev-type tun\ntopology subnet\nca ca.crt\ncert crt\nkey key\n\
         data-ciphers AES-256-GCM\nkeepalive 10 60\ndisable-dco\nverb 2\n"
    )
}

pub(crate) fn authority(dir: &Path) -> Result<()> {
    let words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                 -keyout ca.key -out ca.crt -subj /CN=bench -days 30";
    make(dir, &words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())?;
    Ok(())
}

pub(crate) fn certificate(dir: &Path, name: &str) -> Result<()> {
    let request = format!(
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
         -keyout {name}.key -out {name}.csr -subj /CN={name}"
    );
    let sign = format!(
        "openssl x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
         -out {name}.crt -days 30"
    );
    for words in [request, sign] {
        make(dir, &words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())?;
    }
    Ok(())
}
