//! Hosts made of network namespaces, under one prefix, removed whatever happens.
//!
//! A record of each namespace lies in `/run/warren-lab/<prefix>/hosts` from before it exists
//! until after it is gone, beside a lock that the living owner holds. A lab that finds records
//! without a holder of the lock clears up first.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lock::Lock;

use crate::process::Process;
use crate::sys;

mod etc;
mod remove;

pub(crate) use remove::record_pump;
pub use remove::remove_leftovers;

/// Where labs keep their records.
pub const STATE_ROOT: &str = "/run/warren-lab";
/// Longest interface name the kernel takes (IFNAMSIZ - 1).
pub const IFNAME_BYTES_MAX: usize = 15;
/// How long an interface may take until its carrier and its addresses are there.
const READY: Duration = Duration::from_secs(5);
/// Interface numbers of veth pairs, apart from those that the kernel counts up itself.
const FIRST_IFINDEX: u32 = 10_000;
static NEXT_IFINDEX: AtomicU32 = AtomicU32::new(0);

/// A set of namespaces with one prefix; all of it is removed on drop.
#[derive(Debug)]
pub struct Net {
    prefix: String,
    hosts: Vec<Host>,
    /// Held for as long as this value lives; the kernel releases it when the process dies.
    _lock: Lock,
    kept: bool,
    own_run: bool,
}

/// One host: a network namespace with its own `/etc` and host name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    namespace: String,
    dir: PathBuf,
    confinement: sys::Confinement,
    logs: AtomicU32,
}

impl Net {
    /// Takes `prefix`, after removing what a crashed run left under it.
    ///
    /// # Errors
    /// Returns an error when not run as root, when the prefix is malformed, or when another
    /// living process uses it.
    pub fn new(prefix: &str) -> Result<Self> {
        ensure!(sys::is_root(), "network namespaces need root: run this with sudo");
        check_name("prefix", prefix)?;
        let lock = take_lock(prefix)?;
        ensure!(
            !is_kept(prefix),
            "the lab {prefix} is up: use it, or take it down with `warren-lab down {prefix}`"
        );
        remove::clear(prefix)?;
        fs::create_dir_all(hosts_dir(prefix)).context("cannot make the lab's directory")?;
        Ok(Self {
            prefix: prefix.to_owned(),
            hosts: Vec::new(),
            _lock: lock,
            kept: false,
            own_run: false,
        })
    }

    /// Takes over the hosts of a lab that an earlier process made and [kept](Self::keep).
    ///
    /// # Errors
    /// Returns an error when no such lab is up.
    pub fn adopt(prefix: &str) -> Result<Self> {
        ensure!(sys::is_root(), "network namespaces need root: run this with sudo");
        check_name("prefix", prefix)?;
        ensure!(is_kept(prefix), "no lab {prefix} is up: start it with `warren-lab up FILE`");
        let lock = take_lock(prefix)?;
        let hosts = kept_hosts(prefix);
        Ok(Self { prefix: prefix.to_owned(), hosts, _lock: lock, kept: false, own_run: true })
    }

    /// From now on each new host gets its own `/run`, too, empty at first: sockets and other
    /// traces of its programs are then seen neither by the machine nor by other hosts.
    pub fn give_own_run(&mut self) {
        self.own_run = true;
    }

    /// Leaves everything standing when this value goes, to be adopted later.
    ///
    /// # Errors
    /// Returns an error when that cannot be recorded; then all is removed as usual.
    pub fn keep(mut self) -> Result<()> {
        fs::write(kept_file(&self.prefix), "").context("cannot record that the lab stays up")?;
        self.kept = true;
        Ok(())
    }

    /// Makes the host `name` in the namespace `<prefix>-<name>`: loopback up, IPv6 on without
    /// duplicate address detection, CUBIC, and its own `/etc`.
    ///
    /// # Errors
    /// Returns an error when the name is malformed or taken, or the kernel refuses.
    pub fn host(&mut self, name: &str) -> Result<Host> {
        check_name("host name", name)?;
        ensure!(self.hosts.iter().all(|h| h.name() != name), "there is already a host {name}");
        let record = hosts_dir(&self.prefix).join(name);
        fs::create_dir_all(&record).with_context(|| format!("cannot record host {name}"))?;
        if self.own_run {
            fs::create_dir_all(record.join("run"))?;
        }
        let host = Host::existing(&self.prefix, name);
        self.hosts.push(host.clone());
        ip(&["netns", "add", &host.inner.namespace])?;
        etc::make(&host.inner.dir, name).with_context(|| format!("no /etc for host {name}"))?;
        sys::in_netns(&host.path(), settle)
            .with_context(|| format!("cannot enter the namespace of {name}"))??;
        use_cubic(&host.path())?;
        host.ip_batch("link set lo up\n")?;
        Ok(host)
    }

    /// Joins two hosts by a veth pair: on each side an interface name and its addresses in CIDR
    /// notation. Both ends are up on return.
    ///
    /// # Errors
    /// Returns an error when a name is too long or taken, or an address is malformed.
    pub fn veth(&self, a: (&Host, &str, &[&str]), b: (&Host, &str, &[&str])) -> Result<()> {
        check_ifname(a.1)?;
        check_ifname(b.1)?;
        // The kernel tells of a carrier at once only where a device and its peer differ in
        // number, and up to a second later where they agree, as in two fresh namespaces.
        let [(host_a, index_a), (host_b, index_b)] = [a.0, b.0].map(|host| {
            let index = FIRST_IFINDEX + NEXT_IFINDEX.fetch_add(1, Ordering::Relaxed);
            (host.namespace(), index.to_string())
        });
        let one = ["link", "add", a.1, "index", &index_a, "netns", host_a, "type", "veth"];
        let two = ["peer", "name", b.1, "index", &index_b, "netns", host_b];
        ip(&[&one[..], &two].concat())?;
        for (host, ifname, addresses) in [a, b] {
            host.bring_up(ifname, addresses)?;
        }
        for (host, ifname, _) in [a, b] {
            host.wait_until_ready(ifname)?;
        }
        Ok(())
    }

    /// Removes everything, as a drop does, and tells what resists.
    ///
    /// # Errors
    /// Returns what could not be removed; it stays recorded, for the next start to try again.
    pub fn remove(mut self) -> Result<()> {
        remove::remove_recorded(&self.prefix)?;
        self.kept = true;
        Ok(())
    }

    /// The hosts made so far, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Where this lab keeps its records.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        state_dir(&self.prefix)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !self.kept {
            // What could not be removed stays recorded, for the next start to try again.
            let _ = remove::remove_recorded(&self.prefix);
        }
    }
}

impl Host {
    fn existing(prefix: &str, name: &str) -> Self {
        let namespace = namespace_of(prefix, name);
        let dir = hosts_dir(prefix).join(name);
        let confinement = sys::Confinement {
            netns: namespace_path(prefix, name),
            etc: dir.join("etc"),
            run: Some(dir.join("run")).filter(|run| run.exists()),
            hostname: name.to_owned(),
        };
        let name = name.to_owned();
        let inner = Inner { name, namespace, dir, confinement, logs: AtomicU32::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// The name given to [`Net::host`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The namespace's name, `<prefix>-<name>`, as `ip netns` shows it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The namespace's file, `/var/run/netns/<prefix>-<name>`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.confinement.netns.clone()
    }

    /// What is `/etc` inside the host, as seen from outside.
    #[must_use]
    pub fn etc(&self) -> PathBuf {
        self.inner.confinement.etc.clone()
    }

    /// What is `/run` inside the host, as seen from outside, where it has one of its own.
    #[must_use]
    pub fn own_run(&self) -> Option<&Path> {
        self.inner.confinement.run.as_deref()
    }

    /// A command that will run inside the host; add to it and start it as any other.
    ///
    /// # Panics
    /// Panics when `argv` is empty.
    #[must_use]
    pub fn command(&self, argv: &[&str]) -> Command {
        let (program, args) = argv.split_first().expect("a command has at least a program");
        let mut command = Command::new(program);
        command.args(args);
        sys::confine(&mut command, &self.inner.confinement)
            .expect("names were checked to hold no NUL when the host was made");
        command
    }

    /// Runs a command to its end and returns all of its outcome.
    ///
    /// # Errors
    /// Returns an error when it cannot be started.
    pub fn output(&self, argv: &[&str]) -> Result<Output> {
        let mut command = self.command(argv);
        let output = command.stdin(Stdio::null()).output();
        output.with_context(|| format!("cannot run {argv:?} in {}", self.name()))
    }

    /// Runs a command to its end and returns its standard output.
    ///
    /// # Errors
    /// Returns an error with both streams when it fails.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        let output = self.output(argv)?;
        checked(&format!("{argv:?} in {}", self.name()), &output)
    }

    /// Runs a shell script, with `-e`, and returns its standard output.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn sh(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-ec", script])
    }

    /// Starts a program that stays, for example a daemon; it ends when the value is dropped.
    ///
    /// # Errors
    /// Returns an error when it cannot be started.
    pub fn spawn(&self, argv: &[&str]) -> Result<Process> {
        self.spawn_command(self.command(argv))
    }

    /// Starts a command made by [`Self::command`], for example with an environment added.
    ///
    /// # Errors
    /// As [`Self::spawn`].
    pub fn spawn_command(&self, command: Command) -> Result<Process> {
        let number = self.inner.logs.fetch_add(1, Ordering::Relaxed);
        let log = self.inner.dir.join(format!("log-{}-{number}", std::process::id()));
        Process::start(command, &log)
    }

    /// Gives an interface addresses in CIDR notation and brings it up.
    ///
    /// # Errors
    /// Returns an error naming the refused line.
    pub fn bring_up(&self, ifname: &str, addresses: &[&str]) -> Result<()> {
        let mut batch = String::new();
        for address in addresses {
            batch += &format!("addr add {address} dev {ifname}\n");
        }
        batch += &format!("link set {ifname} up\n");
        self.ip_batch(&batch)
    }

    /// Waits until an interface that is up has its carrier and answers at its addresses; until
    /// then the first packets to it would be lost.
    ///
    /// # Errors
    /// Returns an error when that takes more than five seconds.
    pub fn wait_until_ready(&self, ifname: &str) -> Result<()> {
        let start = Instant::now();
        let namespace = self.namespace();
        loop {
            let link = ip(&["-n", namespace, "-o", "link", "show", "dev", ifname])?;
            let waiting =
                ip(&["-n", namespace, "-o", "-6", "addr", "show", "dev", ifname, "tentative"])?;
            if is_carried(&link) && waiting.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < READY, "{ifname} of {} does not come up", self.name());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs lines of `ip` commands inside the host's network, all or up to the first failure.
    ///
    /// # Errors
    /// Returns an error with what `ip` said.
    pub fn ip_batch(&self, lines: &str) -> Result<()> {
        let mut child = Command::new("ip")
            .args(["-n", &self.inner.namespace, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `ip`: install the package iproute2")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.as_bytes()).context("`ip -batch` stopped reading")?;
        }
        let output = child.wait_with_output().context("`ip` did not end")?;
        checked(&format!("ip in {}, given\n{lines}", self.name()), &output)?;
        Ok(())
    }
}

/// Settings of a fresh namespace, made from inside it. It forwards nothing, whatever the machine
/// does, whose setting it would have.
fn settle() -> Result<()> {
    fs::write("/proc/sys/net/ipv4/ip_forward", "0")?;
    let conf = Path::new("/proc/sys/net/ipv6/conf");
    if conf.exists() {
        for which in ["all", "default"] {
            fs::write(conf.join(which).join("disable_ipv6"), "0")?;
            // Addresses are usable at once: nobody else can have them here.
            fs::write(conf.join(which).join("accept_dad"), "0")?;
        }
    }
    Ok(())
}

/// Makes CUBIC the congestion control of a namespace.
fn use_cubic(netns: &Path) -> Result<()> {
    let set = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    if sys::in_netns(netns, set)?.is_ok() {
        return Ok(());
    }
    // Outside the first namespace only what the machine allows its unprivileged users can be
    // set, and this is checked when it is set. So it is allowed for that moment.
    let lock = File::open(STATE_ROOT)?;
    lock.lock()?;
    let allowed = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let before = fs::read_to_string(allowed)?;
    fs::write(allowed, format!("{} cubic", before.trim()))
        .context("the kernel has no CUBIC: load it with `modprobe tcp_cubic`")?;
    let done = sys::in_netns(netns, set);
    fs::write(allowed, before.trim())?;
    done?.context("cannot make CUBIC the congestion control of a namespace")
}

/// Whether `ip -o link` shows a carrier; a TAP device never tells more than that.
fn is_carried(link: &str) -> bool {
    link.contains("LOWER_UP") && (link.contains(" state UP") || link.contains(" state UNKNOWN"))
}

pub(crate) fn ip(args: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output();
    let output = output.context("cannot run `ip`: install the package iproute2")?;
    checked(&format!("ip {}", args.join(" ")), &output)
}

pub(crate) fn checked(what: &str, output: &Output) -> Result<String> {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    bail!("{what} failed with {}\n{}{}", output.status, err, out)
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        !name.is_empty() && name.len() <= 40 && name.chars().all(good) && !name.starts_with('-'),
        "the {what} {name:?} must be 1 to 40 letters, digits, '-' or '_', not starting with '-'"
    );
    Ok(())
}

pub(crate) fn check_ifname(name: &str) -> Result<()> {
    ensure!(
        !name.is_empty() && name.len() <= IFNAME_BYTES_MAX && !name.contains(['/', ' ', ':']),
        "the interface name {name:?} must be 1 to {IFNAME_BYTES_MAX} bytes without '/', ':', ' '"
    );
    Ok(())
}

/// The namespace of a host.
#[must_use]
pub fn namespace_of(prefix: &str, name: &str) -> String {
    format!("{prefix}-{name}")
}

/// The file of the namespace of a host.
#[must_use]
pub fn namespace_path(prefix: &str, name: &str) -> PathBuf {
    Path::new("/var/run/netns").join(namespace_of(prefix, name))
}

pub(crate) fn state_dir(prefix: &str) -> PathBuf {
    Path::new(STATE_ROOT).join(prefix)
}

fn hosts_dir(prefix: &str) -> PathBuf {
    state_dir(prefix).join("hosts")
}

fn kept_file(prefix: &str) -> PathBuf {
    state_dir(prefix).join("kept")
}

/// Whether a lab stands under `prefix` without a process that owns it.
#[must_use]
pub fn is_kept(prefix: &str) -> bool {
    kept_file(prefix).exists()
}

/// The hosts of a lab that was [kept](Net::keep), without taking it over.
#[must_use]
pub fn kept_hosts(prefix: &str) -> Vec<Host> {
    remove::recorded(prefix).iter().map(|name| Host::existing(prefix, name)).collect()
}

/// The prefixes of all labs that were [kept](Net::keep).
#[must_use]
pub fn kept_labs() -> Vec<String> {
    let Ok(entries) = fs::read_dir(STATE_ROOT) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_kept(name)).collect();
    names.sort();
    names
}

/// A lab of another program that runs has the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Which.
    pub prefix: String,
}

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "another running program uses the prefix {}: wait for its end", self.prefix)
    }
}

impl std::error::Error for InUse {}

fn take_lock(prefix: &str) -> Result<Lock> {
    let dir = state_dir(prefix);
    // Another lab that ends at this moment may remove the empty parent once in between.
    let made = fs::create_dir_all(&dir).or_else(|_| fs::create_dir_all(&dir));
    made.with_context(|| format!("cannot make {}", dir.display()))?;
    let lock = File::create(dir.join("lock")).context("cannot make the lab's lock")?;
    Lock::take(lock).map_err(|_| InUse { prefix: prefix.to_owned() }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_confuse_a_shell_or_a_path_are_refused() {
        for bad in ["", "-a", "a b", "a/b", "..", "a\0", &"x".repeat(41)] {
            assert!(check_name("name", bad).is_err(), "{bad:?}");
        }
        assert!(check_name("name", "wt-a_1").is_ok());
        assert!(check_ifname("sixteen-letters-").is_err());
        assert!(check_ifname("fifteen-letters").is_ok());
    }
}
