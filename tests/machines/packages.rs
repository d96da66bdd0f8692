//! What `make packages` made, in machines: installed, joined, upgraded, killed half-way, removed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::machine::Machine;

use crate::support::scene::scene;
use crate::support::*;
use crate::{boot, can_boot, property, start_server, token};

/// Where `make packages` puts them; a file whose name ends so.
pub(crate) fn package(end: &str) -> Result<PathBuf> {
    let folder = target().join("packages/x86_64");
    let files = std::fs::read_dir(&folder).context("there are no packages: make packages")?;
    let files = files.flatten().map(|entry| entry.path());
    let found = files.filter(|path| path.to_string_lossy().ends_with(end)).max();
    found.with_context(|| format!("no *{end} in {}: make packages", folder.display()))
}

/// Puts a file into the lab's folder of a machine.
pub(crate) fn bring(machine: &Machine, file: &Path) -> Result<String> {
    let name = file.file_name().context("a file")?.to_string_lossy().into_owned();
    std::fs::copy(file, machine.root().join("srv/lab").join(&name))?;
    Ok(format!("/srv/lab/{name}"))
}

/// The same package, as the next version.
fn next_version(machine: &Machine, deb: &str) -> Result<String> {
    machine.sh(&format!(
        "dpkg-deb -R {deb} /srv/lab/next
         sed -i 's/^Version: .*/Version: 0.9.0-1/' /srv/lab/next/DEBIAN/control
         dpkg-deb -Zgzip -z1 --root-owner-group -b /srv/lab/next /srv/lab/next.deb
         rm -r /srv/lab/next"
    ))?;
    Ok("/srv/lab/next.deb".to_owned())
}

/// Files whose names say that they are Warren's; systemd's own records of units and the journal are
/// not.
fn leftovers(machine: &Machine) -> Result<String> {
    let others = ["/var/log/*", "/run/log/*", "/run/credentials/*", "/usr/src/*", "/var/tmp/*"];
    let others: Vec<String> = others.iter().map(|path| format!("-not -path '{path}'")).collect();
    let find = "find /etc /usr /var /run -xdev -name '*warren*'";
    machine.sh(&format!("{find} {} | sort", others.join(" ")))
}

fn status(node: &Machine) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&node.run(&["warren", "status", "--json"])?)?)
}

#[test]
#[ignore = "needs the packages: make test-packages"]
fn a_package_is_installed_joined_by_two_commands_upgraded_and_purged() -> Result<()> {
    if !can_boot() {
        return Ok(());
    }
    let file = package(".deb")?;
    scene("deb", |scene| {
        let machines = boot(scene, &["server", "node"])?;
        let [server, node] = &machines[..] else { bail!("two") };
        let found = [leftovers(server)?, leftovers(node)?];
        let deb = bring(server, &file)?;
        server.run(&["dpkg", "-i", &deb])?;
        starts_nothing(server)?;
        start_server(server)?;
        let token = token(server)?;
        let before = snapshot(node.host())?;

        let deb = bring(node, &file)?;
        let begin = Instant::now();
        node.run(&["dpkg", "-i", &deb])?;
        let installed = begin.elapsed();
        node.run(&["warren", "up", &token])?;
        let joined = begin.elapsed();
        eprintln!(
            "installed after {:.2} s, joined after {:.2} s",
            installed.as_secs_f64(),
            joined.as_secs_f64()
        );
        // A machine that is busy with other tests takes longer than one that only does this.
        ensure!(joined < seconds(60), "{joined:?} to a node that has joined");
        ensure!(
            node.run(&["systemctl", "is-enabled", "warren"]).is_ok(),
            "it is back after a boot"
        );

        upgrades(server, node, &deb)?;
        node.run(&["dpkg", "-r", "warren"])?;
        let after = snapshot(node.host())?;
        ensure!(before == after, "left behind:\n{before}\n{after}");
        ensure!(node.run(&["test", "-e", "/var/lib/warren-node"]).is_ok(), "state stays");
        comes_back(server, node, &deb)?;
        for (machine, found) in [(node, &found[1]), (server, &found[0])] {
            machine.run(&["dpkg", "--purge", "warren"])?;
            let left = leftovers(machine)?;
            ensure!(left == *found, "a purge left:\n{left}");
        }
        Ok(())
    })
}

/// A first installation starts nothing and enables nothing.
fn starts_nothing(machine: &Machine) -> Result<()> {
    for unit in ["warren", "warren-server", "warren-relay"] {
        ensure!(property(machine, unit, "LoadState")? == "loaded", "{unit} is there");
        ensure!(property(machine, unit, "ActiveState")? == "inactive", "{unit} was started");
        ensure!(property(machine, unit, "UnitFileState")? == "disabled", "{unit} was enabled");
    }
    Ok(())
}

/// Upgrades keep state, also those that were killed or found no room.
fn upgrades(server: &Machine, node: &Machine, deb: &str) -> Result<()> {
    let id = status(node)?["self"]["id"].clone();
    let same = |what: &str| -> Result<()> {
        node.run(&["warren", "up", "--timeout", "20s"]).context(what.to_owned())?;
        ensure!(status(node)?["self"]["id"] == id, "{what}: another node");
        Ok(())
    };
    let next = next_version(node, deb)?;
    // No room: dpkg gives back what was there, and the daemon does not notice.
    let pid = property(node, "warren", "MainPID")?;
    node.run(&["mount", "-t", "tmpfs", "-o", "size=64k", "full", "/usr/share/doc/warren"])?;
    ensure!(node.run(&["dpkg", "-i", &next]).is_err(), "there is no room");
    ensure!(property(node, "warren", "MainPID")? == pid, "the daemon was touched");
    node.run(&["umount", "/usr/share/doc/warren"])?;
    same("after a disk that was full")?;
    // Killed in the midst of it, at several moments.
    for wait in ["0.05", "0.3", "0.8"] {
        let killed = format!("dpkg -i {next} & sleep {wait}; kill -9 $!; wait || true");
        node.sh(&killed)?;
        node.run(&["warren", "--version"]).context("it can be run at any moment")?;
        node.run(&["systemctl", "restart", "warren"]).context("a restart in between")?;
    }
    node.run(&["dpkg", "-i", &next])?;
    same("after an upgrade that was killed")?;
    ensure!(node.run(&["dpkg", "-s", "warren"])?.contains("Version: 0.9.0-1"), "it is the new one");
    // The server, while the node is there.
    let bytes = std::fs::read(node.root().join("srv/lab/next.deb"))?;
    std::fs::write(server.root().join("srv/lab/next.deb"), bytes)?;
    server.sh("echo '# mine' >> /etc/default/warren-server")?;
    let pid = property(server, "warren-server", "MainPID")?;
    server.run(&["dpkg", "-i", &next])?;
    ensure!(property(server, "warren-server", "MainPID")? != pid, "the new one runs");
    ensure!(property(server, "warren-server", "ActiveState")? == "active", "the server is down");
    let kept = server.run(&["cat", "/etc/default/warren-server"])?;
    ensure!(kept.contains("WARREN_URL=https") && kept.contains("# mine"), "settings: {kept}");
    ensure!(server.run(&["warren", "node", "list"])?.contains("node"), "the books are kept");
    let in_touch = || status(node).is_ok_and(|status| status["server"]["in_touch"] == true);
    eventually("the node is in touch again", seconds(20), in_touch)?;
    Ok(())
}

/// After a removal the same package finds its state: the same node, without a token.
fn comes_back(server: &Machine, node: &Machine, deb: &str) -> Result<()> {
    // Beside one from sources, the package says who comes first.
    node.sh("printf '#!/bin/sh\\n' > /usr/local/bin/warren; chmod +x /usr/local/bin/warren")?;
    let said = node.output(&["dpkg", "-i", deb])?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.contains("/usr/local/bin/warren comes first"), "{said}");
    node.run(&["rm", "/usr/local/bin/warren"])?;
    node.run(&["warren", "up", "--timeout", "20s"])?;
    let list = server.run(&["warren", "node", "list", "--json"])?;
    let list: serde_json::Value = serde_json::from_str(&list)?;
    ensure!(list["nodes"].as_array().is_some_and(|nodes| nodes.len() == 1), "{list}");
    Ok(())
}

#[test]
#[ignore = "needs the packages: make test-packages"]
fn an_rpm_and_a_tarball_do_the_same() -> Result<()> {
    if !can_boot() {
        return Ok(());
    }
    let (rpm, tarball) = (package(".rpm")?, package(".tar.xz")?);
    scene("rpm", |scene| {
        let machines = boot(scene, &["server"])?;
        let [machine] = &machines[..] else { bail!("one") };
        let found = leftovers(machine)?;
        if machine.run(&["sh", "-c", "command -v rpm"]).is_ok() {
            let file = bring(machine, &rpm)?;
            let base = ["rpm", "--dbpath", "/srv/lab/rpms", "--nodeps"];
            machine.run(&[&base[..], &["-i", &file]].concat())?;
            starts_nothing(machine)?;
            start_server(machine)?;
            machine.run(&["warren", "up", &token(machine)?])?;
            machine.run(&[&base[..], &["-e", "warren"]].concat())?;
            for unit in ["warren", "warren-server"] {
                ensure!(property(machine, unit, "ActiveState")? == "inactive", "{unit} runs");
            }
            machine
                .sh("rm -rf /var/lib/warren* /var/lib/private /etc/default/warren* /srv/lab/*")?;
            ensure!(leftovers(machine)? == found, "{}", leftovers(machine)?);
        } else {
            eprintln!("\n*** SKIPPED: there is no rpm ***\n");
        }
        let file = bring(machine, &tarball)?;
        machine.sh(&format!("cd /srv/lab && tar xf {file} && rm {file}"))?;
        machine.sh("/srv/lab/warren-*/install.sh")?;
        starts_nothing(machine)?;
        start_server(machine)?;
        machine.run(&["warren", "up", &token(machine)?])?;
        machine.sh("/srv/lab/warren-*/install.sh")?;
        machine.run(&["warren", "up", "--timeout", "20s"])?;
        machine.sh("/srv/lab/warren-*/install.sh --remove")?;
        machine.sh("rm -rf /var/lib/warren* /var/lib/private /etc/default/warren* /srv/lab/*")?;
        ensure!(leftovers(machine)? == found, "{}", leftovers(machine)?);
        Ok(())
    })
}
