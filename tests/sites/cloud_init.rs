//! A gateway at AWS whose user data cloud-init itself runs, as Debian has it. The machine on which
//! this runs is read-only to it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use lab::sites::boots;
use serde_json::{Value, json};

use crate::aws::{Cloud, REMOTE, booting, moto};
use crate::proofs::applies_again;
use crate::ssh::{self, World};
use crate::support::*;

/// Debian's own, which its modules are made for.
const PYTHON: &str = "/usr/bin/python3";
/// A gateway's own `/var`, as it is seen inside.
const VAR: &str = "/run/own-var";
const KEY: &str = "/run/warren-site.key";
const SCRIPT: &str = "/run/warren-site-join";
/// What cloud-init's units run at every boot, in this order; runcmd's script is run by the last.
const STAGES: [&[&str]; 4] =
    [&["init", "--local"], &["init"], &["modules", "--mode=config"], &["modules", "--mode=final"]];
/// Of the modules of Debian's `cloud.cfg` those that a gateway of ours needs. Left out is what is
/// the image's and the provider's: users, keys of SSH, names, network, disks, clock, language.
/// Left out are also packages: this gateway wants none, and apt would install into this machine.
const CONFIG: &str = "
datasource_list: [NoCloud]
# No disk of this machine is looked at.
datasource: {NoCloud: {fs_label: null}}
network: {config: disabled}
preserve_hostname: true
cloud_init_modules: [write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user]
system_info:
  distro: debian
  paths: {cloud_dir: /var/lib/cloud/, templates_dir: /etc/cloud/templates/}
";
/// What cloud-init would change where it is not kept from that.
const MACHINES_OWN: [&str; 6] = [
    "/etc/cloud",
    "/etc/hostname",
    "/run/cloud-init",
    "/var/lib/cloud",
    "/var/log/cloud-init.log",
    "/var/log/cloud-init-output.log",
];

/// cloud-init, which `make setup` unpacks; says so if it is not there.
fn unpacked() -> Option<PathBuf> {
    let folder = std::path::absolute(target().join("tools/cloud-init")).ok();
    let found = folder.filter(|folder| folder.join("usr/bin/cloud-init").exists());
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no cloud-init; `make setup` unpacks it ***\n");
    }
    found
}

/// A machine of a cloud whose image has cloud-init.
struct Machine<'h> {
    host: &'h Host,
    folder: PathBuf,
}

impl<'h> Machine<'h> {
    fn new(host: &'h Host, folder: PathBuf) -> Result<Self> {
        host.sh(&format!(
            "rm -rf /etc/cloud; mkdir -p /etc/cloud/cloud.cfg.d
             cp {}/etc/cloud/cloud.cfg.d/05_logging.cfg /etc/cloud/cloud.cfg.d
             mkdir -p {VAR}/lib/cloud/seed/nocloud {VAR}/log {VAR}/tmp; ln -s /run {VAR}/run",
            folder.display()
        ))?;
        std::fs::write(host.etc().join("cloud/cloud.cfg"), CONFIG)?;
        Ok(Self { host, folder })
    }

    /// What is in its `/var`, as seen from outside.
    fn var(&self, name: &str) -> Result<PathBuf> {
        let run = self.host.own_run().context("it has its own /run")?;
        Ok(run.join(VAR.trim_start_matches("/run/")).join(name))
    }

    /// Runs cloud-init with a `/var` of its own, and nothing else that it could write to but the
    /// host's `/etc` and `/run`. Its environment is as empty as at a boot.
    fn cloud_init(&self, words: &[&str]) -> Result<String> {
        let usr = self.folder.join("usr").display().to_string();
        let script = format!(
            "mount --bind {VAR} /var
             mount -o remount,bind,ro /
             exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBUG_PROC_CMDLINE= \
             PYTHONPATH={usr}/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1 \
             {PYTHON} {usr}/bin/cloud-init \"$@\" 2>&1"
        );
        self.host.run(&[&["sh", "-ec", &script, "sh"], words].concat())
    }

    /// User data is what cloud-init knows, without a word on what is old or odd in it.
    fn takes(&self, user_data: &Path) -> Result<()> {
        let path = user_data.display().to_string();
        let told = self.cloud_init(&["schema", "--config-file", &path])?;
        ensure!(told.starts_with("Valid ") && told.lines().count() == 1, "{told}");
        Ok(())
    }

    /// Nothing failed, and nothing was worth a warning.
    fn complains_of_nothing(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.var("log/cloud-init.log")?)?;
        let is_loud = |line: &&str| {
            ["[WARNING]", "[ERROR]", "[CRITICAL]", "[DEPRECATED]"]
                .iter()
                .any(|at| line.contains(at))
        };
        let loud: Vec<&str> = log.lines().filter(is_loud).collect();
        ensure!(loud.is_empty(), "{loud:#?}");
        let result = std::fs::read(self.var("lib/cloud/data/result.json")?)?;
        let result: Value = serde_json::from_slice(&result)?;
        ensure!(result["v1"]["errors"] == json!([]), "{result}");
        Ok(())
    }

    /// An instance's first boot, with the modes of its files looked at before its script runs.
    fn boots_first(&self, user_data: &Path) -> Result<()> {
        self.takes(user_data)?;
        std::fs::copy(user_data, self.var("lib/cloud/seed/nocloud/user-data")?)?;
        let meta = self.var("lib/cloud/seed/nocloud/meta-data")?;
        std::fs::write(meta, "instance-id: i-50\nlocal-hostname: cloudgw\n")?;
        let [first @ .., last] = STAGES;
        for stage in first {
            self.cloud_init(stage)?;
        }
        let text = std::fs::read_to_string(user_data)?;
        let files = files(&text);
        ensure!(files.len() == 3 && files.contains(&(KEY, "600")), "{files:?}");
        for (path, mode) in files {
            let is = self.host.sh(&format!("stat -c %a:%u:%g {path}"))?;
            ensure!(is.trim() == format!("{mode}:0:0"), "{path}: {mode} and not {is}");
        }
        let key = self.host.sh(&format!("cat {KEY}"))?;
        ensure!(key.starts_with("warren-join-"), "the control: it is there");
        self.cloud_init(last)?;
        self.complains_of_nothing()?;
        ensure!(self.host.sh(&format!("[ ! -e {KEY} ]")).is_ok(), "the key is still there");
        // cloud-init keeps user data for as long as the machine lives; root alone may read that.
        let kept = self.host.sh(&format!(
            "grep -rlsF -D skip --exclude-dir=seed '{}' /run /etc/cloud | xargs stat -c '%a %n'",
            key.trim()
        ))?;
        eprintln!("cloud-init keeps the key, which was used, in\n{kept}");
        let is_roots = |line: &str| line.starts_with("600 ") || line.starts_with("400 ");
        ensure!(kept.lines().all(is_roots), "{kept}");
        Ok(())
    }

    /// The same instance starts again: what was in memory is gone, and systemd runs the daemon.
    fn boots_again(&self) -> Result<lab::process::Process> {
        let daemon = ["/run/warren-bin/warren", "daemon", "--state", "/run/warren-state"];
        let daemon = self.host.spawn(&daemon)?;
        for stage in STAGES {
            self.cloud_init(stage)?;
        }
        // Its script was to be run and is not there: a second run would have failed.
        self.complains_of_nothing()?;
        let left = self.host.sh(&format!("ls {KEY} {SCRIPT} 2>/dev/null || true"))?;
        ensure!(left.is_empty(), "written again: {left}");
        Ok(daemon)
    }

    fn loses_power(&self) -> Result<()> {
        self.host
            .sh("kill -9 $(cat /run/warren-site.pid)
             rm -rf /run/cloud-init /run/warren /run/warren-site*")
            .map(drop)
    }
}

/// The files of user data, with their modes.
fn files(user_data: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = user_data.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mode = lines.get(at + 1).and_then(|next| next.strip_prefix("  permissions: '0"));
        if let (Some(path), Some(mode)) = (line.strip_prefix("- path: "), mode) {
            found.push((path, mode.trim_end_matches('\'')));
        }
    }
    found
}

/// When each of this machine's own was changed last, where it is there.
fn machines_own() -> Vec<Option<SystemTime>> {
    let changed = |path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    MACHINES_OWN.map(changed).to_vec()
}

/// A gateway of another backend begins with packages beside; this one is looked at and not begun.
fn another_backend_is_taken(world: &World, cloud: &Cloud<'_>, machine: &Machine<'_>) -> Result<()> {
    if Command::new("openvpn").arg("--version").output().is_err() {
        eprintln!("\n*** SKIPPED: there is no openvpn; `make setup` installs it ***\n");
        return Ok(());
    }
    let path = world.path("sites.toml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text.replace("provider =", "backend = \"openvpn\"\nprovider ="))?;
    let look = || {
        let Some(boot) = boots(&world.path(""))?.pop() else { return Ok(()) };
        ensure!(std::fs::read_to_string(&boot)?.contains("\npackages: [openvpn]\n"));
        machine.takes(&boot)?;
        bail!("it was looked at")
    };
    let ended = booting(world, cloud.command(&["apply", "--yes"]), &look);
    let why = format!("{:#}", ended.err().context("it is never looked at")?);
    ensure!(why.contains("it was looked at"), "{why}");
    Ok(())
}

#[test]
fn cloud_init_itself_makes_a_gateway_and_makes_it_once() -> Result<()> {
    let (Some(sshd), Some(python), Some(folder)) = (ssh::sshd(), moto(), unpacked()) else {
        return Ok(());
    };
    let before = machines_own();
    scene("sites50", |scene| {
        let world = World::new(scene, "sites50", &sshd)?;
        let cloud = Cloud::open(scene, &world, &python)?;
        let machine = Machine::new(&cloud.gateway, folder)?;
        let boot = || {
            for boot in boots(&world.path(""))? {
                cloud.materialise()?;
                machine.boots_first(&boot)?;
                std::fs::rename(&boot, world.path("done"))?;
            }
            Ok(())
        };
        booting(&world, cloud.command(&["apply", "--yes"]), &boot)?;
        cloud.joined()?;
        applies_again(|| cloud.sites(&["apply", "--yes"]))?;

        machine.loses_power()?;
        let reaches = || cloud.machine.sh(&format!("ping -c 1 -W 0.5 {REMOTE}")).is_ok();
        ensure!(!reaches(), "the control: it is gone");
        let _daemon = machine.boots_again()?;
        cloud.joined()?;
        ensure!(world.admin(&["node", "list"])?.lines().count() == 3, "it is the same node");
        ensure!(cloud.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        cloud.sites(&["destroy", "--yes"])?;
        another_backend_is_taken(&world, &cloud, &machine)
    })?;
    ensure!(machines_own() == before, "this machine's own was changed");
    Ok(())
}
