//! Sites to try without a cloud: what plays a provider, its fabric, and machines behind `ssh`.
//!
//! A provider here is a program with a memory. It answers as the real one's API does, and refuses
//! as that does: `arm.py` plays Azure, `cloud.py` AWS (by moto, with its checks of signatures and
//! rights), `stack.py` OpenStack. What it believes becomes routes and rules of a host of its own,
//! its [`fabric`]: a router through which every packet of the site passes. So real packets decide
//! whether a route, a group or an address is right. A machine that the provider runs starts in a
//! host that waits for it, where its user data does what it says: [`boots`], [`start`].
//!
//! [`three`] is three sites of two application machines each, for who shows or measures them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::netns::{Host, Net, checked};
use crate::process::Process;

pub mod three;

/// What plays AWS, and what is asked of it as its administrator.
const AWS: [(&str, &str); 3] = [
    ("cloud.py", include_str!("../sites/cloud.py")),
    ("faults.py", include_str!("../sites/faults.py")),
    ("asked.py", include_str!("../sites/asked.py")),
];
/// What plays Azure, and what reads user data.
const AZURE: [(&str, &str); 3] = [
    ("arm.py", include_str!("../sites/arm.py")),
    ("faults.py", include_str!("../sites/faults.py")),
    ("asked.py", include_str!("../sites/asked.py")),
];

/// What an `apply` says that finds everything as it must be.
pub const NOTHING: &str = "nothing is to be done";

/// The words of an `apply` that asks nothing.
pub const APPLY: &str = "apply --yes";

/// A command of `warren sites` in the server's folder, with the operator's accounts.
#[must_use]
pub fn command(words: &str) -> String {
    format!(". ./accounts && warren sites {words} sites.toml --data .")
}

/// The server at which gateways find each other, in its folder; `address` is its own.
#[must_use]
pub fn serve(address: &str) -> String {
    let at = format!("{address}:8443");
    format!("warren serve --data . --listen {at} --url https://{at} --stun {address}:3478")
}

/// What is needed beside Debian's usual programs, where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tools {
    /// The server of OpenSSH.
    pub sshd: Option<PathBuf>,
    /// A Python that has moto, which plays AWS.
    pub moto: Option<PathBuf>,
    /// A Python that reads YAML, as cloud-init does.
    pub yaml: Option<PathBuf>,
}

impl Tools {
    /// Looks in `folder`, where `make setup` puts them, and where packages do.
    #[must_use]
    pub fn find(folder: &Path) -> Self {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let first = |places: [PathBuf; 2]| places.into_iter().find(|place| place.exists());
        let sshd = first(["/usr/sbin/sshd".into(), folder.join("sshd/usr/sbin/sshd")]);
        let moto = ["/usr/local/bin/moto_server".into(), folder.join("moto/bin/moto_server")];
        let moto = moto.iter().find_map(|place| place.canonicalize().ok());
        let moto = moto.map(|real| real.with_file_name("python3")).filter(|path| path.exists());
        let yaml = moto.clone().or_else(|| {
            let mut asked = Command::new("python3");
            asked.args(["-c", "import yaml"]).stdin(Stdio::null()).stderr(Stdio::null());
            asked.status().is_ok_and(|status| status.success()).then(|| "python3".into())
        });
        Self { sshd, moto, yaml }
    }
}

/// Starts a server of OpenSSH in each host. `folder` gets its files, the key that all of them take
/// (`key`), and `known_hosts`, in which each is known by its name.
///
/// # Errors
/// If a key cannot be made, or a server does not start.
pub fn start_sshds(folder: &Path, sshd: &Path, hosts: &[&Host]) -> Result<Vec<Process>> {
    let key = |name: &str| -> Result<String> {
        let path = folder.join(name);
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).stdin(Stdio::null());
        let made = keygen.output().context("cannot run ssh-keygen: install openssh-client")?;
        checked("ssh-keygen", &made)?;
        Ok(fs::read_to_string(path.with_extension("pub"))?)
    };
    fs::write(folder.join("authorized"), key("key")?)?;
    let mut known = String::new();
    let mut running = Vec::new();
    for host in hosts {
        let name = host.name();
        known += &format!("{name} {}", key(&format!("host-{name}"))?);
        let config = folder.join(format!("sshd-{name}"));
        let place = folder.display();
        let text = format!(
            "Port 22\nHostKey {place}/host-{name}\nAuthorizedKeysFile {place}/authorized\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nStrictModes no\nPidFile none\nPrintLastLog no\n\
             LogLevel VERBOSE\n\
             SetEnv PATH=/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        );
        fs::write(&config, text)?;
        let passwd = host.etc().join("passwd");
        fs::write(&passwd, users(&fs::read_to_string(&passwd)?))?;
        host.sh("mkdir -p /run/sshd && chmod 755 /run/sshd")?;
        let program = sshd.display().to_string();
        let mut command =
            host.command(&[&program, "-D", "-e", "-f", &config.display().to_string()]);
        // Unpacked, it has its libraries beside it.
        if let Some(root) = sshd.ancestors().nth(3) {
            let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
            command.env("LD_LIBRARY_PATH", root.join(libraries));
        }
        let process = host.spawn_command(command)?;
        process.wait_for(|log| log.contains("Server listening"))?;
        running.push(process);
    }
    fs::write(folder.join("known_hosts"), known)?;
    Ok(running)
}

/// A machine's users: one for the server of OpenSSH, and root with a shell that reads no file of
/// its own before each command. What such a file does, and how long that takes, is the machine's
/// on which this runs.
fn users(passwd: &str) -> String {
    let user = |line: &str| match line.strip_prefix("root:").and_then(|_| line.rsplit_once(':')) {
        Some((root, _)) => format!("{root}:/bin/sh\n"),
        None => format!("{line}\n"),
    };
    let others = passwd.lines().filter(|line| !line.starts_with("sshd:"));
    let all: String = others.map(user).collect();
    all + "sshd:x:199:65534::/run/sshd:/usr/sbin/nologin\n"
}

/// A machine of a cloud: its host, its port at the fabric, and the last part of its address.
#[derive(Debug, Clone, Copy)]
pub struct Port<'h> {
    /// The machine.
    pub host: &'h Host,
    /// What the fabric calls its side: `gw0` for a gateway, `app0` and so on for others.
    pub name: &'h str,
    /// The last part of its address.
    pub last: u8,
}

/// Makes `fabric` the router of a cloud's network, with a port for each machine. What it lets pass
/// is in its hands alone. `site` is the network without its last part.
///
/// # Errors
/// If a link, an address or a setting is refused.
pub fn fabric(net: &Net, fabric: &Host, site: &str, ports: &[Port<'_>]) -> Result<()> {
    for port in ports {
        let Port { host, name, last } = port;
        let address = format!("{site}.{last}");
        net.veth((fabric, name, &[]), (host, "ens5", &[&format!("{address}/24")]))?;
        // The fabric answers for everybody, so that every packet passes through it.
        fabric.sh(&format!(
            "ip addr add {site}.1/32 dev {name}; ip route add {address}/32 dev {name}
             sysctl -qw net.ipv4.conf.{name}.proxy_arp=1
             sysctl -qw net.ipv4.conf.{name}.send_redirects=0 net.ipv4.conf.all.send_redirects=0"
        ))?;
        host.sh(&format!("ip route add default via {site}.1"))?;
    }
    fabric.sh("sysctl -qw net.ipv4.ip_forward=1").map(drop)
}

/// Puts the program into a machine, as the image that a cloud starts from has it.
///
/// # Errors
/// If it cannot be copied.
pub fn give_image(machine: &Host, program: &Path) -> Result<()> {
    let program = program.display();
    machine.sh(&format!("mkdir -p /run/warren-bin; cp {program} /run/warren-bin/warren")).map(drop)
}

/// User data in a cloud's folder, of machines that were run and have not started.
///
/// # Errors
/// If the folder cannot be read.
pub fn boots(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("boot-") && !name.ends_with(".new") {
            found.push(path);
        }
    }
    Ok(found)
}

/// A machine's first start: what was there before is gone with all that it had, and its user data
/// does what it says, as long as the process runs. `asked` is where `asked.py` lies.
///
/// # Errors
/// If its user data is none that cloud-init would take.
pub fn start(machine: &Host, python: &Path, asked: &Path, boot: &Path) -> Result<Process> {
    machine.sh("[ ! -e /run/warren-site.pid ] || kill -9 $(cat /run/warren-site.pid) || true
         [ ! -e /run/warren-tunnels.pid ] || kill -9 -$(cat /run/warren-tunnels.pid) || true
         sleep 0.2; rm -rf /run/warren-state /run/warren /run/warren-site* /etc/warren-site*
         rm -rf /run/warren-tunnels* /run/charon.* /etc/openvpn/warren-*
         ip link del warren0 2>/dev/null || true")?;
    let words = [python, asked, Path::new("-"), Path::new("script"), boot];
    let words = words.map(|word| word.display().to_string());
    let script = machine.run(&words.each_ref().map(String::as_str))?;
    let name = boot.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::rename(boot, boot.with_file_name(format!("done-{name}")))?;
    // Its own programs first, as for those that `ssh` starts.
    machine.spawn(&["sh", "-ec", &format!("PATH=/run/bin:$PATH\n{script}")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_were_run_are_found_once_they_are_whole() {
        let folder = std::env::temp_dir().join(format!("warren-boots-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["boot-1", "boot-2.new", "done-boot-3", "keys.json"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(boots(&folder).unwrap(), [folder.join("boot-1")]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn root_has_a_plain_shell_and_sshd_a_user() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nrooty:x:1:1::/:/bin/bash\n";
        let plain = "root:x:0:0:root:/root:/bin/sh\nrooty:x:1:1::/:/bin/bash\n\
                     sshd:x:199:65534::/run/sshd:/usr/sbin/nologin\n";
        assert_eq!(users(passwd), plain);
        assert_eq!(users(plain), plain);
    }

    #[test]
    fn tools_that_are_nowhere_are_none() {
        let found = Tools::find(Path::new("/nowhere"));
        assert_eq!(found.sshd.is_some(), Path::new("/usr/sbin/sshd").exists());
        assert_eq!(found.moto.is_some(), Path::new("/usr/local/bin/moto_server").exists());
    }
}
