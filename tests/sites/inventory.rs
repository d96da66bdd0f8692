//! Ansible, which is given what `warren sites inventory` prints and reaches every machine by `ssh`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::proofs::status;
use crate::ssh::{SITES, World, said, sshd};
use crate::support::*;

/// A site that nobody can log in at.
const CLOUD: &str =
    "[[site]]\nname = \"frankfurt\"\nprovider = \"aws\"\nregion = \"eu-central-1\"\n";

/// The folder of Ansible's programs, of the tools or of the machine; says so if there is none.
fn ansible() -> Option<PathBuf> {
    let places = [target().join("tools/ansible/bin"), "/usr/local/bin".into(), "/usr/bin".into()];
    let found = places.into_iter().find(|place| place.join("ansible-playbook").exists());
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no Ansible; `make setup` fetches one ***\n");
    }
    found
}

/// Ansible on the server's machine, with all as it is by itself but for where it writes.
struct Operator<'w> {
    world: &'w World,
    bin: PathBuf,
}

impl Operator<'_> {
    fn command(&self, name: &str, words: &[&str]) -> Command {
        let program = self.bin.join(name);
        let mut command = self.world.server.command(&[&program.display().to_string()]);
        command.arg("-i").arg(self.world.path("inventory.yml")).args(words);
        let settings = [
            ("ANSIBLE_NOCOLOR", "1"),
            ("ANSIBLE_REMOTE_TMP", "/run/ansible"),
            ("LC_ALL", "C.UTF-8"),
        ];
        command.env("HOME", self.world.path("home")).envs(settings);
        command
    }

    /// Runs the playbook.
    fn play(&self) -> Result<Output> {
        let mut command = self.command("ansible-playbook", &[]);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/ansible");
        Ok(command.arg("sites.yml").current_dir(folder).output()?)
    }

    /// Runs it, which must go well on every host; those on which something changed.
    fn changed(&self) -> Result<Vec<String>> {
        let output = self.play()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{text}\n{why}");
        let rows = recap(&output);
        ensure!(rows.len() == SITES.len() * 2, "every host: {text}");
        let mut changed = Vec::new();
        for (name, counts) in rows {
            let has = |word: &str| counts.iter().any(|count| count == word);
            ensure!(!has("ok=0") && has("failed=0") && has("unreachable=0"), "{name}: {text}");
            if !has("changed=0") {
                changed.push(name);
            }
        }
        Ok(changed)
    }

    /// Runs it, which must end at gateways; those that it names.
    fn failed(&self) -> Result<Vec<String>> {
        let output = self.play()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = recap(&output);
        ensure!(!output.status.success(), "nothing was wrong: {text}");
        ensure!(rows.iter().all(|(name, _)| name.contains("-gw")), "machines were tried: {text}");
        let failed = rows.into_iter().filter(|(_, counts)| counts.iter().any(|c| c == "failed=1"));
        Ok(failed.map(|(name, _)| name).collect())
    }
}

/// What a run of a playbook says of each host at its end: its name, and counts as `changed=0`.
fn recap(output: &Output) -> Vec<(String, Vec<String>)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().skip_while(|line| !line.starts_with("PLAY RECAP")).skip(1);
    let rows = lines.filter_map(|line| line.split_once(':'));
    let words = |rest: &str| rest.split_whitespace().map(str::to_owned).collect();
    rows.map(|(name, rest)| (name.trim().to_owned(), words(rest))).collect()
}

/// Prints the inventory of a site file, and of a site at a cloud beside it.
fn write_inventory(world: &World, file: &str) -> Result<()> {
    let path = world.path("more.toml");
    std::fs::write(&path, format!("{file}{CLOUD}"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_warren"));
    let told = said(command.args(["sites", "inventory"]).arg(path))?;
    Ok(std::fs::write(world.path("inventory.yml"), told)?)
}

/// What Ansible itself reads out of it.
fn is_read(operator: &Operator<'_>) -> Result<()> {
    let told = said(&mut operator.command("ansible-inventory", &["--list"]))?;
    let all: Value = serde_json::from_str(&told)?;
    let hosts = all["_meta"]["hostvars"].as_object().context("hosts")?;
    let names: Vec<&str> = hosts.keys().map(String::as_str).collect();
    let listed = ["lyon-1", "lyon-gw1", "nice-1", "nice-gw1", "paris-1", "paris-gw1"];
    ensure!(names == listed, "hosts are {names:?}");
    for (group, host) in [("lyon_gateways", "lyon-gw1"), ("lyon_machines", "lyon-1")] {
        ensure!(all[group]["hosts"] == json!([host]), "{group}: {told}");
    }
    for (group, suffix) in [("warren_gateways", "_gateways"), ("warren_acme", "")] {
        let members = all[group]["children"].as_array().context(group)?;
        for site in SITES {
            ensure!(members.contains(&json!(format!("{site}{suffix}"))), "{group}: {told}");
        }
    }
    let lyon = &hosts["lyon-gw1"];
    ensure!(lyon["warren_inside"] == "192.168.1.254", "{lyon}");
    ensure!(lyon["warren_address"] == "10.4.1.254", "{lyon}");
    ensure!(hosts["nice-gw1"]["warren_address"] == "10.4.2.254", "{told}");
    Ok(())
}

/// A machine whose key is not known is not talked to, whatever the operator's settings say.
fn is_strict(operator: &Operator<'_>) -> Result<()> {
    let path = operator.world.path("known_hosts");
    let known = std::fs::read_to_string(&path)?;
    let others: Vec<&str> = known.lines().filter(|line| !line.starts_with("gw-nice ")).collect();
    std::fs::write(&path, others.join("\n") + "\n")?;
    let mut command = operator.command("ansible", &["nice-gw1", "-m", "ping"]);
    let output = command.env("ANSIBLE_HOST_KEY_CHECKING", "False").output()?;
    std::fs::write(&path, known)?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success() && text.contains("UNREACHABLE"), "{text}");
    ensure!(text.contains("Host key verification failed"), "{text}");
    Ok(())
}

#[test]
fn ansible_acts_on_all_that_the_inventory_lists_and_a_second_run_changes_nothing() -> Result<()> {
    let (Some(sshd), Some(bin)) = (sshd(), ansible()) else { return Ok(()) };
    scene("sites51", |scene| {
        // Two sites have the same addresses: whoever goes by addresses alone ends at the wrong one.
        let world = World::with(scene, "sites51", &sshd, false, true)?;
        let operator = Operator { world: &world, bin };
        let file = std::fs::read_to_string(world.path("sites.toml"))?;
        write_inventory(&world, &file)?;
        is_read(&operator)?;
        is_strict(&operator)?;

        let failed = operator.failed()?;
        ensure!(failed == ["lyon-gw1", "nice-gw1", "paris-gw1"], "nothing is joined: {failed:?}");

        world.sites(&["apply", "--yes"])?;
        let changed = [operator.changed()?, operator.changed()?];
        ensure!(changed[0] == ["lyon-1", "nice-1", "paris-1"], "the first run: {changed:?}");
        ensure!(changed[1].is_empty(), "the second run: {changed:?}");
        for (at, site) in SITES.iter().enumerate() {
            for other in SITES {
                let reached = || world.apps[at].sh(&format!("ping -c 1 -W 1 {other}-gw1")).is_ok();
                eventually(&format!("{site} reaches {other}-gw1 by name"), seconds(20), reached)?;
            }
        }

        // A gateway that does not reach the server is told, and no machine is changed after that.
        let is_online =
            |wanted: bool| status(&world, 2).is_ok_and(|told| told["self"]["online"] == wanted);
        world.gateways[2].sh("nft add table inet cut
             nft 'add chain inet cut out { type filter hook output priority 0; }'
             nft add rule inet cut out meta l4proto { tcp, udp } th dport 8443 reject")?;
        println!("out of touch: {:?}", eventually("cut", seconds(60), || is_online(false))?);
        let failed = operator.failed()?;
        ensure!(failed == ["nice-gw1"], "one is out of touch: {failed:?}");
        world.gateways[2].sh("nft delete table inet cut")?;
        println!("in touch: {:?}", eventually("joined", seconds(60), || is_online(true))?);
        ensure!(operator.changed()?.is_empty(), "all is as it was");
        // Without its first site the file has other numbers than the gateways.
        let others: Vec<&str> = file.split("[[site]]").collect();
        write_inventory(&world, &[&others[..1], &others[2..]].concat().join("[[site]]"))?;
        let failed = operator.failed()?;
        ensure!(failed == ["lyon-gw1", "nice-gw1"], "others' numbers: {failed:?}");
        Ok(())
    })
}

#[test]
fn a_name_that_would_put_machines_into_the_group_of_others_is_refused() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("warren-inventory-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("sites.toml");
    for (network, site, group) in [
        ("acme", "lyon-gateways", "lyon_gateways"),
        ("acme", "warren-machines", "warren_machines"),
        ("acme", "warren-acme", "warren_acme"),
        ("gateways", "paris", "warren_gateways"),
        ("acme", "all", "all"),
    ] {
        let sites = ["lyon", site].map(|name| {
            format!("[[site]]\nname = \"{name}\"\nprovider = \"ssh\"\nhosts = [\"{name}\"]\n")
        });
        std::fs::write(&file, format!("network = \"{network}\"\n{}", sites.concat()))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_warren"));
        let output = command.args(["sites", "inventory"]).arg(&file).output()?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && why.contains(&format!("a second {group}; ")), "{why}");
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
