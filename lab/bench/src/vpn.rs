//! The contestants: how each is found, and what it needs in each host.
//!
//! To add one, implement [`Vpn`] and put it into [`all`]. It does not run anything itself: it says
//! in [`Member`]s what is to be run in which host, and [`Running`] does it, twice where a test
//! restarts a host. What a contestant needs in files goes into its host's own `/run`, or, where
//! hosts must share it, into the folder of the lab; both vanish with the lab.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

mod easytier;
mod headscale;
mod hyprspace;
mod mycelium;
mod nebula;
mod netbird;
mod network;
pub(crate) mod openvpn;
mod running;
mod tinc;
mod vpncloud;
mod wireguard;
mod yggdrasil;
mod zerotier;

pub use crate::end::End;
pub(crate) use headscale::Headscale;
pub use network::Network;
pub use running::{ECHO_MAX, READY_MAX, Running};
pub use wireguard::WireGuard;

/// Our own name among the contestants.
pub const WARREN: &str = "Warren";
/// Ours with repair and all other frames switched off.
pub const WARREN_PLAIN: &str = "Warren without repair";
/// A whole network of ours, with its server.
pub const WARREN_NETWORK: &str = "Warren, network";
/// The rival's.
pub const WIREGUARD_GO: &str = "wireguard-go";
/// The rival to beat in bad weather.
pub const EASYTIER_KCP: &str = "EasyTier with KCP proxy";
/// The bare network's.
pub const NO_VPN: &str = "no VPN";

/// Something that joins hosts, or leaves them as they are.
pub trait Vpn: std::fmt::Debug {
    /// Its name in every table.
    fn name(&self) -> &str;

    /// The word for it on the command line.
    fn word(&self) -> &str;

    /// What it says its version is.
    ///
    /// # Errors
    /// Returns an error when it is not on this machine.
    fn version(&self) -> Result<String>;

    /// What someone who lacks it can do.
    fn install_hint(&self) -> &str;

    /// What a reader of the figures of this `version` must know: its carrier, its hub, what
    /// flatters it.
    fn remark(&self, _version: &str) -> &str {
        ""
    }

    /// Makes its keys and files; says what is to be run, one member for each host. The members
    /// are started in this order.
    ///
    /// # Errors
    /// Returns an error when keys or files cannot be made.
    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>>;
}

/// What a VPN is in one host.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its interface there.
    pub ifname: String,
    /// What runs there, in the order of starting.
    pub daemons: Vec<Daemon>,
    /// Where the host is reached through it.
    pub address: Address,
    /// Asked, while echoes go, until it succeeds: that the path is the one to be measured.
    pub settled: String,
}

/// A program in a host, and the shell scripts around its start.
#[derive(Debug, Clone, Default)]
pub struct Daemon {
    /// Run before it, `sh -e`.
    pub before: String,
    /// The program, in the foreground; empty where there is none.
    pub argv: Vec<String>,
    /// Added to its environment.
    pub env: Vec<(String, String)>,
    /// Asked until it succeeds; empty where there is nothing to wait for.
    pub ready: String,
    /// Run after that.
    pub after: String,
}

/// Where a host is reached.
#[derive(Debug, Clone)]
pub enum Address {
    /// Chosen by us.
    Known(String),
    /// Printed by this script once the daemons are ready.
    Told(String),
}

impl Daemon {
    /// A program with its words.
    #[must_use]
    pub fn new(argv: &[&str]) -> Self {
        Self { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Self::default() }
    }
}

/// No VPN: the ground itself.
#[derive(Debug)]
pub struct NoVpn;

impl Vpn for NoVpn {
    fn name(&self) -> &str {
        NO_VPN
    }

    fn word(&self) -> &str {
        "none"
    }

    fn version(&self) -> Result<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Ok(format!("Linux {}", release.context("cannot read the kernel's release")?.trim()))
    }

    fn install_hint(&self) -> &str {
        "it is always there"
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let member = |end: &End| Member {
            ifname: crate::ground::IFNAME.to_owned(),
            daemons: Vec::new(),
            address: Address::Known(end.outer.clone()),
            settled: String::new(),
        };
        Ok(ends.iter().map(member).collect())
    }
}

/// What a link is compared with; `warren` is the program of ours to be measured.
#[must_use]
pub fn contestants(warren: &Path, frames: bool) -> Vec<Box<dyn Vpn>> {
    let ours = WireGuard::warren(warren);
    let ours = if frames { ours } else { ours.frames_off() };
    vec![Box::new(ours), Box::new(WireGuard::wireguard_go()), Box::new(NoVpn)]
}

/// Everybody that we know how to run.
#[must_use]
pub fn all(warren: &Path) -> Vec<Box<dyn Vpn>> {
    vec![
        Box::new(NoVpn),
        Box::new(WireGuard::warren(warren)),
        Box::new(WireGuard::warren_plain(warren)),
        Box::new(Network::direct(warren)),
        Box::new(WireGuard::wireguard_go()),
        Box::new(WireGuard::kernel()),
        Box::new(tinc::Tinc::find()),
        Box::new(openvpn::OpenVpn::find()),
        Box::new(nebula::Nebula::find()),
        Box::new(Headscale::find()),
        Box::new(Headscale::forced()),
        Box::new(netbird::NetBird::find()),
        Box::new(zerotier::ZeroTier::find()),
        Box::new(hyprspace::Hyprspace::find()),
        Box::new(mycelium::Mycelium::find()),
        Box::new(yggdrasil::Yggdrasil::find()),
        Box::new(vpncloud::VpnCloud::find()),
        Box::new(easytier::EasyTier::plain()),
        Box::new(easytier::EasyTier::kcp()),
    ]
}

/// The program that `WARREN_BENCH_NAME` names, if it does.
fn named(name: &str) -> Option<PathBuf> {
    let variable = format!("WARREN_BENCH_{}", name.to_uppercase().replace('-', "_"));
    let named = std::env::var_os(variable).filter(|named| !named.is_empty());
    named.map(PathBuf::from)
}

/// Where `name` lies: what the environment names, or on PATH, or where Go and cargo install.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    if let Some(named) = named(name) {
        return Some(named);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin".into(), "/usr/local/sbin".into(), home.join("go/bin")];
    let places = std::env::split_paths(&path).chain(more).chain([home.join(".cargo/bin")]);
    places.map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// The path as text for a command line, or why there is none.
fn program<'a>(found: &'a Option<PathBuf>, name: &str) -> Result<&'a str> {
    let path = found.as_deref().with_context(|| format!("no {name} on PATH"))?;
    path.to_str().with_context(|| format!("the path of {name} is not UTF-8"))
}

/// That a program is there with which keys are made: without it no host of that peer would start.
fn needs(name: &str, package: &str) -> Result<()> {
    let found = find(name);
    program(&found, name).with_context(|| format!("install the package {package}")).map(drop)
}

/// The first line that a program prints about itself, on either stream.
fn first_line(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(str::to_owned)
        .with_context(|| format!("{program} {} printed nothing", words.join(" ")))
}

/// Writes a file into the own `/run` of a host, for its owner alone.
fn place(end: &End, name: &str, text: &str) -> Result<()> {
    write(&run_dir(end)?.join(name), text)
}

fn run_dir(end: &End) -> Result<&Path> {
    end.host.own_run().context("a host of this lab has no /run of its own")
}

/// Writes a file for its owner alone: most hold a key.
fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.write_all(text.as_bytes())?)
}

/// Runs a command outside of any host, in a folder; for keys and certificates.
fn make(dir: &Path, argv: &[&str]) -> Result<String> {
    let output = Command::new(argv[0])
        .args(&argv[1..])
        .current_dir(dir)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`", argv[0]))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed: {}", argv.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The address that most contestants are given in this host, without a mask.
fn inner(index: usize) -> String {
    format!("10.10.0.{}", index + 1)
}

/// Succeeds once an interface has that address.
fn has_address(ifname: &str, address: &str) -> String {
    format!("ip -o addr show dev {ifname} | grep -qF ' {address}'")
}
