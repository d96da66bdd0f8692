//! Gateways that run strongSwan or OpenVPN instead of Warren, out of the same file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::aws::{Cloud, PUBLIC, moto, nothing_else_is_open};
use crate::proofs::applies_again;
use crate::ssh::{SITES, World, sshd};
use crate::support::*;

/// What a host of a test has beside what is installed, found first by programs that `ssh` starts.
const OWN_BIN: &str = "/run/bin";

/// The `charon` of strongSwan, installed or unpacked by `make setup`.
fn charon() -> Option<PathBuf> {
    let places = ["/usr".into(), target().join("tools/charon/usr")];
    places.map(|at| at.join("lib/ipsec/charon")).into_iter().find(|path| path.exists())
}

fn give_charon(gateway: &Host, charon: &Path) -> Result<()> {
    // Kernels without ESP have it done by a library.
    let script = format!(
        "mkdir -p {OWN_BIN} && ln -s {} {OWN_BIN}/charon
         sed -i 's/load = no/load = yes/' /etc/strongswan.d/charon/kernel-libipsec.conf",
        charon.display()
    );
    gateway.sh(&script).map(drop)
}

fn is_here(program: &str) -> bool {
    let is_here = std::process::Command::new(program).arg("--version").output().is_ok();
    if !is_here {
        eprintln!("\n*** SKIPPED: there is no {program}; `make setup` installs it ***\n");
    }
    is_here
}

/// All sites of the file with this backend.
fn use_backend(world: &World, word: &str) -> Result<()> {
    let path = world.path("sites.toml");
    let text = std::fs::read_to_string(&path)?;
    let own = format!("provider = \"ssh\"\nbackend = \"{word}\"");
    Ok(std::fs::write(path, text.replace("provider = \"ssh\"", &own))?)
}

fn all_reach(world: &World, within: Duration) -> Result<()> {
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let what = format!("{} reaches {}", SITES[from], SITES[to]);
        eventually(&what, within, || world.reaches(from, to))?;
    }
    Ok(())
}

/// Joined, watched when what carries dies, and taken away without a trace.
fn lives(world: &World, word: &str, carrier: &str) -> Result<()> {
    let before = world.settled()?;
    use_backend(world, word)?;
    eprintln!("apply: {}", world.sites(&["apply", "--yes"])?.trim());
    all_reach(world, seconds(30))?;
    let seen = world.seen(0, 2)?;
    ensure!(seen == "10.4.0.1", "the source is {seen}");
    ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "they are no nodes");
    applies_again(|| world.sites(&["apply", "--yes"]))?;
    let ends = |state: &Value| state["paths"].as_array().map_or(0, Vec::len);
    let status =
        || -> Result<Value> { Ok(serde_json::from_str(&world.sites(&["status", "--json"])?)?) };
    let is_told = || {
        let told = status().unwrap_or_default();
        let gateways = told["gateways"].as_array().map_or(&[][..], Vec::as_slice);
        gateways.len() == 3 && gateways.iter().all(|g| g["state"] == "running" && ends(g) == 2)
    };
    eventually("status tells of all tunnels", seconds(20), is_told)?;

    // What carries dies, and is started again by what watches it.
    let kill = format!("kill -9 $(pgrep -x -n {carrier} --ns $$ --nslist net)");
    world.gateways[0].sh(&kill)?;
    all_reach(world, seconds(30))?;

    // A change by hand is changed back.
    world.gateways[1].sh("echo 0 > /proc/sys/net/ipv4/ip_forward")?;
    ensure!(!world.reaches(0, 1), "the control: it passes nothing on");
    world.sites(&["apply", "--yes"])?;
    all_reach(world, seconds(30))?;

    eprintln!("destroy: {}", world.sites(&["destroy", "--yes"])?.trim());
    ensure!(!world.reaches(0, 1), "nothing joins them any more");
    ensure!(world.settled()? == before, "what is left:\n{}", world.machines()?);
    ensure!(world.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
    Ok(())
}

#[test]
fn source_001_gateways_run_strongswan_where_the_file_says_so() -> Result<()> {
    let [Some(sshd), Some(charon)] = [sshd(), charon()] else {
        eprintln!("\n*** SKIPPED: there is no charon; `make setup` unpacks one ***\n");
        return Ok(());
    };
    if !is_here("swanctl") {
        return Ok(());
    }
    scene("sites30", |scene| {
        let world = World::new(scene, "sites30", &sshd)?;
        world.gateways.iter().try_for_each(|gateway| give_charon(gateway, &charon))?;
        lives(&world, "ipsec", "charon")
    })
}

#[test]
fn source_001_gateways_run_openvpn_where_the_file_says_so() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    if !is_here("openvpn") {
        return Ok(());
    }
    scene("sites31", |scene| {
        let world = World::new(scene, "sites31", &sshd)?;
        lives(&world, "openvpn", "openvpn")
    })
}

/// A site at AWS and one by `ssh`, whose gateways run another program: what the one at AWS begins
/// with is all that it ever learns.
fn lives_at_aws(id: &str, word: &str, charon: Option<&Path>) -> Result<()> {
    let (Some(sshd), Some(python)) = (sshd(), moto()) else { return Ok(()) };
    scene(id, |scene| {
        let world = World::new(scene, id, &sshd)?;
        std::fs::write(world.path("public"), PUBLIC)?;
        let cloud = Cloud::open(scene, &world, &python)?;
        for gateway in [&world.gateways[0], &cloud.gateway] {
            charon.map_or(Ok(()), |charon| give_charon(gateway, charon))?;
        }
        let path = world.path("sites.toml");
        let text = std::fs::read_to_string(&path)?;
        let own = format!("backend = \"{word}\"\nprovider =");
        std::fs::write(&path, text.replace("provider =", &own))?;
        let before = cloud.census()?;
        eprintln!("apply: {}", cloud.booting(&["apply", "--yes"])?.trim());
        cloud.joined()?;
        ensure!(cloud.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "they are no nodes");
        nothing_else_is_open(&world, PUBLIC)?;
        let is_told = || {
            let told = cloud.sites(&["status", "--json"]).unwrap_or_default();
            let told: Value = serde_json::from_str(&told).unwrap_or_default();
            let gateways = told["gateways"].as_array().map_or(&[][..], Vec::as_slice);
            let is_up = |gateway: &Value| {
                gateway["online"] == true
                    && gateway["paths"].as_array().is_some_and(|p| !p.is_empty())
            };
            gateways.len() == 2 && gateways.iter().all(is_up)
        };
        eventually("status tells of the tunnel at both ends", seconds(20), is_told)?;

        // With another authority both get another certificate; the machine is made again for it.
        // The way there is the same whatever runs: one of both programs is enough.
        if charon.is_none() {
            return away(&world, &cloud, &before);
        }
        std::fs::remove_file(world.path("acme-authority.pem"))?;
        let told: Value = serde_json::from_str(&cloud.booting(&["apply", "--yes", "--json"])?)?;
        let kinds = told["steps"].as_array().into_iter().flatten().map(|step| &step["kind"]);
        ensure!(kinds.eq(["machine", "tunnels"]), "{told}");
        cloud.joined()?;
        away(&world, &cloud, &before)
    })
}

/// Everything is taken away.
fn away(world: &World, cloud: &Cloud<'_>, before: &Value) -> Result<()> {
    cloud.sites(&["destroy", "--yes"])?;
    ensure!(cloud.census()? == *before, "what is left: {}", cloud.census()?);
    let left = world.gateways[0].sh("ls /etc/swanctl/conf.d /etc/openvpn 2>/dev/null || true")?;
    ensure!(!left.contains("warren"), "what is left: {left}");
    Ok(())
}

#[test]
fn source_001_a_gateway_at_aws_runs_strongswan() -> Result<()> {
    let Some(charon) = charon() else {
        eprintln!("\n*** SKIPPED: there is no charon; `make setup` unpacks one ***\n");
        return Ok(());
    };
    if is_here("swanctl") { lives_at_aws("sites41", "ipsec", Some(&charon)) } else { Ok(()) }
}

#[test]
fn source_001_a_gateway_at_aws_runs_openvpn() -> Result<()> {
    if is_here("openvpn") { lives_at_aws("sites42", "openvpn", None) } else { Ok(()) }
}

#[test]
fn another_backend_that_cannot_be_is_told_before_anything_is_done() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites32", |scene| {
        let world = World::new(scene, "sites32", &sshd)?;
        let path = world.path("sites.toml");
        let text = std::fs::read_to_string(&path)?;
        let text =
            text.replacen("provider = \"ssh\"", "provider = \"ssh\"\nbackend = \"ipsec\"", 1);
        std::fs::write(&path, text)?;
        let told = format!("{:#}", world.sites(&["apply", "--yes"]).expect_err("it is refused"));
        ensure!(told.contains("paris has ipsec and lyon has warren"), "{told}");
        Ok(())
    })
}
