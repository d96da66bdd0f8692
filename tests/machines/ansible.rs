//! The Ansible role, over ssh, against machines that have nothing of Warren.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use lab::machine::Machine;
use serde_json::json;

use crate::packages::package;
use crate::support::scene::scene;
use crate::support::*;
use crate::{boot, can_boot, property};

/// A server, a relay, and so many nodes, of which the last is a gateway; `WARREN_MACHINES` says
/// another number.
const NODES: usize = 18;

fn nodes_wanted() -> usize {
    std::env::var("WARREN_MACHINES").ok().and_then(|text| text.parse().ok()).unwrap_or(NODES)
}

const SSH: &str = "-o ControlMaster=auto -o ControlPersist=120s -o UserKnownHostsFile=/dev/null";
const CONTROLLER: &str = "198.51.100.250/24";

pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// A program of the tools, or of the machine; says so if there is none.
fn tool(name: &str, places: &[&str]) -> Option<PathBuf> {
    let places = places.iter().map(|place| match place.strip_prefix('/') {
        Some(_) => PathBuf::from(place),
        None => tools().join(place),
    });
    let found = places.into_iter().find(|place| place.exists());
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no {name}: make setup ***\n");
    }
    found
}

/// The machine that runs Ansible, and its files.
struct Controller {
    host: Host,
    folder: PathBuf,
    playbook: PathBuf,
}

impl Controller {
    fn new(scene: &Scene, playbook: PathBuf) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("warren-ansible-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let host = scene.host("control")?;
        let switch = scene.net.borrow().hosts()[0].clone();
        scene.veth((&switch, "pc", &[]), (&host, "eth0", &[CONTROLLER]))?;
        switch.sh("ip link set pc master br0")?;
        let keygen = ["-q", "-t", "ed25519", "-N", "", "-f"];
        let made = Command::new("ssh-keygen").args(keygen).arg(folder.join("key")).status()?;
        ensure!(made.success(), "no key");
        Ok(Self { host, folder, playbook })
    }

    fn write_inventory(&self, machines: &[Machine]) -> Result<()> {
        let deb = package(".deb")?;
        let mut text = format!(
            "[all:vars]\nansible_user=root\nansible_ssh_private_key_file={}\n\
             ansible_python_interpreter=/usr/bin/python3\nwarren_package_file={}\n\
             [warren_server]\nserver ansible_host=198.51.100.1 warren_url=https://198.51.100.1\n\
             [warren_relay]\nrelay ansible_host=198.51.100.2 warren_url=https://198.51.100.2\n\
             [warren_node]\n",
            self.folder.join("key").display(),
            deb.display()
        );
        for (at, machine) in machines.iter().enumerate().skip(2) {
            let more = match at + 1 == machines.len() {
                true => "warren_settings=\"{'advertise_routes': ['10.7.0.0/16']}\"",
                false => "warren_tags=\"['tag:robot']\"",
            };
            let name = machine.host().name();
            text += &format!("{name} ansible_host=198.51.100.{} {more}\n", at + 1);
        }
        std::fs::write(self.folder.join("inventory.ini"), text)?;
        Ok(())
    }

    /// Runs the playbook; what it printed.
    fn play(&self, words: &[&str]) -> Result<String> {
        let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/ansible");
        let mut command = self.host.command(&[&self.playbook.display().to_string()]);
        command.arg("-i").arg(self.folder.join("inventory.ini")).args(words).arg("site.yml");
        let settings = [
            ("ANSIBLE_HOST_KEY_CHECKING", "False"),
            ("ANSIBLE_FORKS", "20"),
            ("ANSIBLE_PIPELINING", "True"),
            ("ANSIBLE_NOCOLOR", "1"),
            ("ANSIBLE_SSH_ARGS", SSH),
            ("LC_ALL", "C.UTF-8"),
        ];
        command.current_dir(role).env("HOME", &self.folder).envs(settings).stdin(Stdio::null());
        let out = command.output().context("cannot run ansible-playbook")?;
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let why = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "{said}\n{why}");
        Ok(said)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Lets the controller in by ssh.
fn serve_ssh(machine: &Machine, sshd: &Path, key: &str) -> Result<()> {
    let root = machine.root().join("srv/lab");
    let folder = root.join("sshd");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(sshd, folder.join("sshd"))?;
    if let Some(unpacked) = sshd.ancestors().nth(3) {
        let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        for file in std::fs::read_dir(unpacked.join(libraries)).into_iter().flatten().flatten() {
            if file.path().is_file() {
                std::fs::copy(file.path(), folder.join(file.file_name()))?;
            }
        }
    }
    std::fs::write(folder.join("authorized"), key)?;
    std::fs::write(
        folder.join("config"),
        "HostKey /srv/lab/sshd/host\nAuthorizedKeysFile /srv/lab/sshd/authorized\nUsePAM no\n\
         PasswordAuthentication no\nPermitRootLogin prohibit-password\nStrictModes no\n\
         PidFile none\nMaxStartups 100\nUseDNS no\n",
    )?;
    machine.sh("ssh-keygen -q -t ed25519 -N '' -f /srv/lab/sshd/host
         user=sshd:x:199:65534::/run/sshd:/usr/sbin/nologin
         grep -q ^sshd: /etc/passwd || echo $user >> /etc/passwd
         mkdir -p /run/sshd
         systemd-run -q --unit lab-sshd -E LD_LIBRARY_PATH=/srv/lab/sshd \
           /srv/lab/sshd/sshd -D -f /srv/lab/sshd/config")?;
    Ok(())
}

/// Hosts that something changed on, as the last lines of a run say.
fn changed(said: &str) -> Vec<&str> {
    let lines = said.lines().skip_while(|line| !line.starts_with("PLAY RECAP"));
    lines.filter(|line| line.contains("changed=") && !line.contains("changed=0 ")).collect()
}

#[test]
#[ignore = "needs the packages: make test-packages"]
fn source_000_5_13_an_inventory_is_joined_by_one_playbook_and_a_second_run_changes_nothing()
-> Result<()> {
    let playbook = tool("ansible-playbook", &["ansible/bin/ansible-playbook"]);
    let sshd = tool("sshd", &["/usr/sbin/sshd", "sshd/usr/sbin/sshd"]);
    let (true, Some(playbook), Some(sshd)) = (can_boot(), playbook, sshd) else { return Ok(()) };
    scene("ansible", |scene| {
        let nodes: Vec<String> = (1..=nodes_wanted()).map(|at| format!("node-{at}")).collect();
        let mut names = vec!["server", "relay"];
        names.extend(nodes.iter().map(String::as_str));
        let machines = boot(scene, &names)?;
        let controller = Controller::new(scene, playbook)?;
        let key = std::fs::read_to_string(controller.folder.join("key.pub"))?;
        for machine in &machines {
            serve_ssh(machine, &sshd, &key)?;
        }
        controller.write_inventory(&machines)?;

        controller.play(&["--check"])?;
        let untouched = |machine: &Machine| !machine.root().join("usr/bin/warren").exists();
        ensure!(machines.iter().all(untouched), "a check installed something");

        let load = figures::load()?;
        let begin = Instant::now();
        controller.play(&[])?;
        let joined = begin.elapsed().as_secs_f64();
        eprintln!("{} machines: installed and joined in {joined:.0} s", machines.len());
        is_as_asked(&machines)?;

        let begin = Instant::now();
        let said = controller.play(&[])?;
        let again = begin.elapsed().as_secs_f64();
        ensure!(changed(&said).is_empty(), "a second run changed something:\n{said}");
        let found = json!({
            "machines": machines.len(), "nodes": nodes_wanted(), "joined_s": joined.round(),
            "second_run_s": again.round(), "load_before": load,
        });
        figures::keep("ansible", &found)?;
        let said = controller.play(&["--check"])?;
        ensure!(changed(&said).is_empty(), "a check finds something to change:\n{said}");
        Ok(())
    })
}

fn is_as_asked(machines: &[Machine]) -> Result<()> {
    let (server, last) = (&machines[0], &machines[machines.len() - 1]);
    let list = server.run(&["warren", "node", "list", "--json"])?;
    let list: serde_json::Value = serde_json::from_str(&list)?;
    let nodes = list["nodes"].as_array().context("nodes")?;
    let wanted = nodes_wanted();
    ensure!(nodes.len() == wanted, "{} of {wanted} nodes joined", nodes.len());
    let robots = nodes.iter().filter(|node| node["tags"][0] == "tag:robot").count();
    ensure!(robots == wanted - 1, "{robots} robots");
    let name = last.host().name();
    let gateway = nodes.iter().find(|node| node["name"] == name).context("the gateway")?;
    ensure!(gateway["routes"]["approved"][0] == "10.7.0.0/16", "{gateway}");
    ensure!(property(&machines[1], "warren-relay", "ActiveState")? == "active", "the relay");
    let relays = || {
        let said = machines[2].run(&["warren", "netcheck"]).unwrap_or_default();
        said.contains("198.51.100.2")
    };
    eventually("the relay is in the map", seconds(20), relays)?;
    Ok(())
}

#[test]
fn the_role_and_the_playbooks_are_fit_for_production() -> Result<()> {
    let Some(lint) = tool("ansible-lint", &["ansible/bin/ansible-lint"]) else { return Ok(()) };
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/ansible");
    let bin = lint.parent().context("a folder")?.to_path_buf();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(lint);
    command.args(["--offline", "--profile", "production", "--nocolor", "-q"]);
    command.args(["site.yml", "sites.yml", "roles"]);
    let out = command.current_dir(role).env("PATH", path).env("LC_ALL", "C.UTF-8").output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}
