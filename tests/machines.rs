//! The units under a real systemd: each machine here is a guest that boots one (`lab::machine`).
//!
//! What packages do with them is in `machines/packages.rs`, and takes a release build:
//! `make test-packages`.

#[path = "machines/ansible.rs"]
mod ansible;
#[path = "machines/home.rs"]
mod home;
#[path = "machines/made.rs"]
mod made;
#[path = "machines/packages.rs"]
mod packages;
mod support;

use std::path::{Path, PathBuf};

use lab::machine::{self, Machine};
use support::scene::scene;
use support::*;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const SERVER: &str = "198.51.100.1";
const BEFORE: &str = "nameserver 192.0.2.53\n";

/// Whether machines can be had; says so where they cannot.
fn can_boot() -> bool {
    let lacks = machine::lacks();
    if let Some(what) = lacks {
        eprintln!("\n*** SKIPPED: a machine in the lab needs {what} ***\n");
    }
    lacks.is_none()
}

/// Machines in one network, the first at [`SERVER`].
fn boot(scene: &Scene, names: &[&str]) -> Result<Vec<Machine>> {
    let switch = scene.host("switch")?;
    switch.sh("ip link add br0 type bridge && ip link set br0 up")?;
    let mut hosts = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let host = scene.host(name)?;
        let address = format!("198.51.100.{}/24", at + 1);
        let port = format!("p{at}");
        scene.veth((&switch, &port, &[]), (&host, "eth0", &[&address]))?;
        switch.sh(&format!("ip link set {port} master br0"))?;
        hosts.push(host);
    }
    std::thread::scope(|threads| {
        let boots: Vec<_> =
            hosts.iter().map(|host| threads.spawn(|| Machine::boot(host))).collect();
        boots.into_iter().map(|boot| boot.join().expect("it does not panic")).collect()
    })
}

/// What `make install PREFIX=/usr` puts there of the program and its units.
fn install(machine: &Machine) -> Result<()> {
    let root = machine.root();
    std::fs::copy(WARREN, root.join("usr/bin/warren"))?;
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    for unit in ["warren", "warren-server", "warren-relay"] {
        let name = format!("{unit}.service");
        let text = std::fs::read_to_string(packaging.join(&name))?;
        let text = text.replace("/usr/local/bin", "/usr/bin");
        std::fs::write(root.join("usr/lib/systemd/system").join(name), text)?;
    }
    machine.run(&["systemctl", "daemon-reload"])?;
    Ok(())
}

/// A property of a unit, as `systemctl show` has it.
fn property(machine: &Machine, unit: &str, name: &str) -> Result<String> {
    Ok(machine.run(&["systemctl", "show", "--value", "-p", name, unit])?.trim().to_owned())
}

fn resolv_conf(machine: &Machine) -> PathBuf {
    machine.root().join("etc/resolv.conf")
}

fn start_server(machine: &Machine) -> Result<()> {
    let words = format!("WARREN_URL=https://{SERVER}\n");
    std::fs::write(machine.root().join("etc/default/warren-server"), words)?;
    machine.run(&["systemctl", "start", "warren-server"])?;
    Ok(())
}

fn token(server: &Machine) -> Result<String> {
    let words = ["warren", "key", "create", "--reusable"];
    let said = server.run(&words)?;
    let token = said.split_whitespace().find(|word| word.starts_with("warren-join-"));
    Ok(token.context(said.clone())?.to_owned())
}

#[test]
fn ho_05_ho_09_ho_10_both_units_start_names_work_and_a_crash_is_undone() -> Result<()> {
    if !can_boot() {
        return Ok(());
    }
    scene("units", |scene| {
        let machines = boot(scene, &["server", "node"])?;
        for machine in &machines {
            install(machine)?;
        }
        let [server, node] = &machines[..] else { bail!("two") };
        says_what_is_missing(server)?;
        start_server(server)?;
        let before = snapshot(node.host())?;
        node.run(&["systemctl", "start", "warren"])?;
        node.run(&["warren", "up", &token(server)?])?;
        has_names(node)?;
        a_crash_is_undone(node)?;
        let units =
            [(server, "warren-server", 2.0), (server, "warren-relay", 2.0), (node, "warren", 3.0)];
        for (machine, unit, most) in units {
            let exposure = exposure(machine, unit)?;
            eprintln!("{unit}: exposure {exposure}");
            ensure!(exposure <= most, "{unit}: exposure {exposure}");
        }
        keeps_little(server, node)?;
        node.run(&["systemctl", "stop", "warren"])?;
        ensure!(std::fs::read_to_string(resolv_conf(node))? == BEFORE, "it is given back");
        let after = snapshot(node.host())?;
        ensure!(before == after, "left behind:\n{before}\n{after}");
        ensure!(property(server, "warren-server", "NRestarts")? == "0", "the server was restarted");
        may_run_first(node)
    })
}

/// A server that was told no URL says so once, and is not started again.
fn says_what_is_missing(server: &Machine) -> Result<()> {
    ensure!(server.run(&["systemctl", "start", "warren-server"]).is_err(), "it has no URL");
    ensure!(property(server, "warren-server", "ActiveState")? == "failed", "it is tried again");
    let log = server.run(&["journalctl", "-u", "warren-server", "--no-pager"])?;
    ensure!(log.contains("WARREN_URL"), "{log}");
    Ok(())
}

/// The machine's own resolver finds names of the network, through a plain resolv.conf.
fn has_names(node: &Machine) -> Result<()> {
    let found = || node.run(&["getent", "hosts", "node.warren.internal"]).is_ok();
    let health = || node.run(&["warren", "status"]).unwrap_or_else(|error| error.to_string());
    eventually("names", seconds(20), found).with_context(health)?;
    let conf = std::fs::read_to_string(resolv_conf(node))?;
    ensure!(conf.contains("Made by Warren"), "{conf}");
    Ok(())
}

fn a_crash_is_undone(node: &Machine) -> Result<()> {
    let pid = property(node, "warren", "MainPID")?;
    node.run(&["kill", "-KILL", &pid])?;
    let is_back = || {
        property(node, "warren", "NRestarts").is_ok_and(|times| times == "1")
            && property(node, "warren", "ActiveState").is_ok_and(|state| state == "active")
    };
    let took = eventually("it is started again", seconds(20), is_back)?;
    eprintln!("started again {:.1} s after SIGKILL", took.as_secs_f64());
    node.run(&["warren", "up", "--timeout", "20s"])?;
    has_names(node)
}

/// What `systemd-analyze security` says of a unit's exposure, from 0 to 10.
fn exposure(machine: &Machine, unit: &str) -> Result<f64> {
    let said = machine.run(&["systemd-analyze", "security", "--no-pager", unit])?;
    let line = said.lines().find(|line| line.contains("Overall exposure")).context("no score")?;
    let number = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(number.context(line.to_owned())?.parse()?)
}

/// The kernel's own word of what both processes may: the server is nobody in particular and has one
/// capability, the node has four, and neither gets more.
fn keeps_little(server: &Machine, node: &Machine) -> Result<()> {
    let word = |machine: &Machine, unit: &str, name: &str| -> Result<String> {
        let pid = property(machine, unit, "MainPID")?;
        let status = machine.run(&["cat", &format!("/proc/{pid}/status")])?;
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        Ok(line.context("a line")?.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let bit = |bits: &[u32]| format!("{:016x}", bits.iter().fold(0_u64, |all, bit| all | 1 << bit));
    // capabilities(7): DAC_OVERRIDE, NET_BIND_SERVICE, NET_ADMIN, NET_RAW
    let all = [(server, "warren-server", bit(&[10])), (node, "warren", bit(&[1, 10, 12, 13]))];
    for (machine, unit, kept) in all {
        ensure!(word(machine, unit, "CapBnd")? == kept, "{unit} may have more");
        ensure!(word(machine, unit, "CapEff")? == kept, "{unit} has more");
        ensure!(word(machine, unit, "NoNewPrivs")? == "1", "{unit} may get more");
        ensure!(word(machine, unit, "Seccomp")? == "2", "{unit} calls whatever it likes");
    }
    ensure!(word(server, "warren-server", "Uid")? != "0", "the server is root");
    Ok(())
}

/// The unit lets the daemon run before others, as who measures a path does for a moment. What is
/// started before the daemon is in its sandbox.
fn may_run_first(node: &Machine) -> Result<()> {
    ensure!(property(node, "warren", "RestrictRealtime")? == "no", "the unit forbids it");
    ensure!(property(node, "warren", "LimitRTPRIO")? == "1", "the unit has no priority");
    let folder = node.root().join("etc/systemd/system/warren.service.d");
    std::fs::create_dir_all(&folder)?;
    let starts = |setting: &str| -> Result<bool> {
        let tries = "ExecStartPre=/usr/bin/chrt --fifo 1 /bin/true";
        let words = format!("[Service]\n{setting}\n{tries}\n");
        std::fs::write(folder.join("first.conf"), words)?;
        node.run(&["systemctl", "daemon-reload"])?;
        // One that is not loaded has nothing to forget.
        let _ = node.run(&["systemctl", "reset-failed", "warren"]);
        Ok(node.run(&["systemctl", "restart", "warren"]).is_ok())
    };
    for forbids in ["RestrictRealtime=yes", "LimitRTPRIO=0"] {
        ensure!(!starts(forbids)?, "the control: {forbids} forbids it");
    }
    // A kernel with RT_GROUP_SCHED gives no service any time for it, whatever its unit says, and
    // where root lacks CAP_SYS_RESOURCE systemd cannot raise the limit.
    let limits = ["-p", "LimitRTPRIO=1", "-p", "CapabilityBoundingSet=~CAP_SYS_NICE"];
    let tries = ["/usr/bin/chrt", "--fifo", "1", "/bin/true"];
    let words = [&["systemd-run", "--wait", "--quiet"], &limits[..], &tries].concat();
    match node.run(&words) {
        Ok(_) => ensure!(starts("")?, "the unit forbids it"),
        Err(why) => eprintln!("not tried: no service may run first here: {why}"),
    }
    node.run(&["systemctl", "stop", "warren"]).map(drop)
}
