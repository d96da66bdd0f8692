//! A node on a whole ARM machine, which qemu emulates.
//!
//! The static program for aarch64, as `make static ARCH=aarch64` has it, joins a network whose
//! server and other node run here. Its machine has Debian's kernel and programs for ARM: it makes
//! an interface, routes, rules and tables there, carries data both ways, leads to what is behind
//! it, and leaves nothing when it is ended. What cannot be seen so is its speed.
//!
//! The same on a machine like this one is the control: what fails there too is the case's fault.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::guest::{Guest, Nic, Options, Processor};
use lab::netns::{Host, Net};
use lab::process::Process;
use serde_json::Value;

use super::kernel_cache;
use super::link::{self, Directory, eventually, tempdir};
use super::power::{strip, within};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
/// How long an emulated machine may take for what a real one does at once.
const PATIENCE: Duration = Duration::from_secs(120);
const BOOT_LIMIT: Duration = Duration::from_secs(300);
const BYTES: usize = 4 << 20;
/// The server's place, which both nodes reach and which forwards between their networks.
const SERVER: &str = "10.9.0.254";
/// A network behind the guest, and who answers there.
const BEHIND: &str = "10.88.0.0/24";
const ANSWERS: &str = "10.88.0.2";
const RESOLVER: &str = "nameserver 192.0.2.53\n";
/// What the kernel of a usual machine loads by itself when `nft` asks for it.
const MODULES: [&str; 11] = [
    "crc32c_generic",
    "tun",
    "nf_tables",
    "nft_ct",
    "nft_nat",
    "nft_masq",
    "nft_chain_nat",
    "nft_fib_inet",
    "nft_reject_inet",
    "nft_limit",
    "nft_log",
];
/// All of the guest's network that a program could leave something in.
const SNAPSHOT: &str = "ip -br link | sort; ip -o address | awk '{print $2, $3, $4}' | sort
    ip rule; ip -6 rule; nft list ruleset
    ip route show table all | sort; ip -6 route show table all | sed 's/expires.*//' | sort
    netstat -lun | awk '{print $4}' | sort; cat /etc/resolv.conf";

/// The guest, which goes before what it hangs on, and the rest of its network.
struct World {
    guest: Guest,
    near: Host,
    far: Host,
    server: Process,
    node: Process,
    folder: Directory,
    _net: Net,
}

impl World {
    fn new(name: &str, processor: Processor, program: &Path) -> Result<Self> {
        let mut net = Net::new(&format!("wt-guest-{name}"))?;
        let (near, far) = (net.host("near")?, net.host("far")?);
        near.sh("sysctl -qw net.ipv4.ip_forward=1")?;
        net.veth((&near, "far", &["10.9.1.254/24"]), (&far, "eth0", &["10.9.1.2/24"]))?;
        far.sh("ip route add default via 10.9.1.254")?;
        let nic = Nic {
            tap: link::TAP.to_owned(),
            host_addresses: vec![format!("{SERVER}/24")],
            guest_addresses: vec!["10.9.0.2/24".to_owned()],
        };
        let options = Options {
            processor,
            programs: vec!["nft".to_owned(), program.display().to_string()],
            modules: MODULES.map(str::to_owned).to_vec(),
            memory_mib: 512,
            boot_limit: BOOT_LIMIT,
            ..Options::new(nic, kernel_cache())
        };
        let begin = Instant::now();
        let guest = Guest::start(&near, &options)?;
        eprintln!("Linux {} answers after {:.1?}", guest.kernel_version(), begin.elapsed());
        let folder = tempdir(name)?;
        let place = format!("--listen {SERVER}:8443 --url https://{SERVER}:8443");
        let serve = format!("serve --data {}/server {place} --stun {SERVER}:3478", folder.0);
        let server = spawned(&near, &serve, "serving on")?;
        let daemon = format!("daemon --state {0}/far --socket {0}/far.sock", folder.0);
        let node = spawned(&far, &daemon, "daemon at")?;
        Ok(Self { guest, near, far, server, node, folder, _net: net })
    }

    /// What an administrator says at the server.
    fn admin(&self, words: &str) -> Result<String> {
        self.near.sh(&format!("{WARREN} {words} --data {}/server", self.folder.0))
    }

    /// A command of the node here.
    fn far(&self, words: &str) -> Result<String> {
        self.far.sh(&format!("{WARREN} --socket {}/far.sock {words}", self.folder.0))
    }

    fn guest(&self, script: &str) -> Result<String> {
        within(&self.guest, script, PATIENCE)
    }

    fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.guest("warren status --json")?)?)
    }

    /// A network behind the guest, and everything there as it is before the node begins.
    fn prepare(&self) -> Result<String> {
        self.guest(&format!(
            "printf '{RESOLVER}' > /etc/resolv.conf
             ip route add default via {SERVER}
             ip netns add behind
             ip link add lan0 type veth peer name eth0 netns behind
             ip link set lan0 addrgenmode none; ip -n behind link set eth0 addrgenmode none
             ip address add 10.88.0.1/24 dev lan0; ip link set lan0 up
             ip -n behind address add {ANSWERS}/24 dev eth0; ip -n behind link set eth0 up
             ip -n behind route add default via 10.88.0.1"
        ))?;
        self.guest(SNAPSHOT)
    }

    /// Starts the daemon with what is usual, and joins.
    fn join(&self) -> Result<()> {
        let token = self.admin("key create --reusable")?;
        let token = token.trim();
        self.far(&format!("up {token} --hostname far --timeout 20s --accept-routes"))?;
        let begin = Instant::now();
        self.guest(
            "(warren daemon & echo $! > /run/pid; wait $!; echo $? > /run/ended) \
             > /run/daemon.log 2>&1 &",
        )?;
        eventually("the daemon answers", PATIENCE, || {
            Ok(self.guest.run("grep 'daemon at' /run/daemon.log").is_ok())
        })?;
        self.guest(&format!("warren up {token} --hostname arm --timeout 90s"))?;
        let status = self.status()?;
        ensure!(status["schema"] == 1 && status["state"] == "running", "{status}");
        ensure!(status["peers"][0]["name"] == "far", "{status}");
        eprintln!("joined {:.1?} after the daemon was started", begin.elapsed());
        Ok(())
    }

    /// Echoes both ways, on a direct path.
    fn echoes(&self) -> Result<()> {
        let [near, far] = self.addresses()?;
        let ping = "ping -n -q -c 5 -i 0.2 -W 5";
        eventually("an echo", PATIENCE, || {
            Ok(self.guest.run(&format!("ping -c 1 -W 1 {far}")).is_ok())
        })?;
        eventually("a direct path", PATIENCE, || {
            Ok(self.status()?["peers"][0]["path"]["kind"] == "direct")
        })?;
        let from_guest = self.guest(&format!("{ping} {far}"))?;
        let from_here = self.far.sh(&format!("{ping} {near}"))?;
        for said in [&from_guest, &from_here] {
            ensure!(said.contains(" 0% packet loss"), "{said}");
        }
        let path = self.status()?["peers"][0]["path"].clone();
        eprintln!("path {path}, to the guest: {}", from_here.lines().last().unwrap_or_default());
        Ok(())
    }

    /// The guest's address and the other node's, inside the network.
    fn addresses(&self) -> Result<[String; 2]> {
        let own = self.guest("warren ip -4")?;
        Ok([own.trim().to_owned(), self.far("ip -4")?.trim().to_owned()])
    }

    /// A file each way, over TCP through the network.
    fn files(&self) -> Result<()> {
        let [near, _] = self.addresses()?;
        let served = self.guest(&format!(
            "mkdir -p /tmp/www/cgi-bin; cd /tmp/www
             head -c {BYTES} /dev/urandom > file
             printf '#!/usr/bin/sh\\necho; head -c $CONTENT_LENGTH | sha256sum' > cgi-bin/sum
             chmod +x cgi-bin/sum; httpd -p 80; sha256sum < file"
        ))?;
        let curl = format!("curl -sSf --max-time {}", PATIENCE.as_secs());
        let begin = Instant::now();
        let got = self.far.sh(&format!("{curl} http://{near}/file | sha256sum"))?;
        ensure!(got == served, "from the guest: {served} became {got}");
        let out = begin.elapsed();
        let path = format!("{}/file", self.folder.0);
        let sent =
            self.far.sh(&format!("head -c {BYTES} /dev/urandom | tee {path} | sha256sum"))?;
        let begin = Instant::now();
        let sum = format!("{curl} --data-binary @{path} http://{near}/cgi-bin/sum");
        let got = self.far.sh(&sum)?;
        ensure!(got == sent, "to the guest: {sent} became {got}");
        eprintln!("{BYTES} bytes from the guest in {out:.1?}, to it in {:.1?}", begin.elapsed());
        self.guest("kill $(pidof httpd)").map(drop)
    }

    /// The guest is the gateway of what is behind it: its tables forward and translate.
    fn leads_behind(&self) -> Result<()> {
        self.guest(&format!("warren set --advertise-routes {BEHIND}"))?;
        eventually("an offer to approve", PATIENCE, || {
            Ok(self.admin(&format!("route approve arm {BEHIND}")).is_ok())
        })?;
        eventually("an answer from behind", PATIENCE, || {
            Ok(self.far.sh(&format!("ping -c 1 -W 1 {ANSWERS}")).is_ok())
        })?;
        let tables = self.guest("nft list ruleset")?;
        ensure!(tables.contains("table inet warren"), "{tables}");
        Ok(())
    }

    /// Nothing is broken in the eyes of `warren doctor`.
    fn is_well(&self) -> Result<()> {
        let said = self.guest("warren doctor")?;
        eprint!("{said}");
        let well = |check: &str| {
            let found = |line: &str| line.split_whitespace().take(2).eq(["ok", check]);
            said.lines().any(found)
        };
        for check in ["daemon", "https", "quic", "stun", "names", "tun"] {
            ensure!(well(check), "{check} is not well");
        }
        Ok(())
    }

    /// Ends the daemon as systemd would; the guest is as it was `before`.
    fn leaves_nothing(&self, before: &str) -> Result<()> {
        self.guest("kill $(cat /run/pid)")?;
        eventually("the daemon ends", PATIENCE, || Ok(self.guest.run("cat /run/ended").is_ok()))?;
        let ended = self.guest("cat /run/ended")?;
        ensure!(ended == "0\n", "it ended with {ended}");
        let after = self.guest(SNAPSHOT)?;
        ensure!(before == after, "it was\n{before}\nand is\n{after}");
        Ok(())
    }

    /// What the three programs logged, for a test that failed.
    fn logs(&self) -> String {
        let guest = self.guest("tail -n 40 /run/daemon.log").unwrap_or_else(|why| why.to_string());
        format!("guest:\n{guest}\nserver:\n{}\nfar:\n{}", self.server.log(), self.node.log())
    }
}

/// Starts our program and waits until it says that it is ready.
fn spawned(host: &Host, words: &str, ready: &str) -> Result<Process> {
    let argv: Vec<&str> = std::iter::once(WARREN).chain(words.split(' ')).collect();
    let process = host.spawn(&argv)?;
    process.wait_for_within(PATIENCE, |log| log.contains(ready))?;
    Ok(process)
}

/// Where `make` puts what it builds and fetches.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from)
}

/// The life of a node, from its first start to its end, on a machine whose `uname -m` is `is`.
fn lives(name: &str, processor: Processor, program: &Path, is: &str) -> Result<()> {
    let world = World::new(name, processor, program)?;
    let machine = world.guest("uname -m; warren version")?;
    ensure!(machine.lines().next() == Some(is), "{machine}");
    let life = || -> Result<()> {
        let before = world.prepare()?;
        world.join()?;
        world.echoes()?;
        world.files()?;
        world.leads_behind()?;
        world.is_well()?;
        world.leaves_nothing(&before)
    };
    life().with_context(|| world.logs())
}

#[test]
#[ignore = "needs a program for aarch64 and Debian's packages for it: make test-arm"]
fn a_node_lives_on_a_whole_arm_machine() {
    let target = target();
    let [program, root] = ["packages/aarch64/warren", "tools/arm"].map(|part| target.join(part));
    if !program.exists() || !root.exists() {
        eprintln!(
            "\n*** SKIPPED: a node on ARM needs what `make test-arm` builds and fetches ***\n"
        );
        return;
    }
    lives("arm", Processor::Arm(root), &program, "aarch64").expect("a node on ARM");
}

#[test]
#[ignore = "the control of the one on ARM"]
fn a_node_lives_on_a_machine_like_this_one() {
    let folder = tempdir("arm-control").expect("a folder");
    let program = Path::new(&folder.0).join("warren");
    strip(Path::new(WARREN), &program).expect("a program without symbols");
    lives("arm-own", Processor::Own, &program, "x86_64").expect("a node here");
}
