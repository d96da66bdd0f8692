//! A pair of gateways at a cloud: one dies, and the other one sets the provider's routes itself,
//! with the role of its machine and nothing else.

use std::time::Duration;

use lab::process::Process;
use serde_json::{Value, json};

use crate::aws::{self, Cloud, REMOTE, moto};
use crate::azure::{self, Azure};
use crate::pair::gap;
use crate::ssh::{self, World};
use crate::support::*;

const METADATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab/sites/metadata.py");
/// Where machines at AWS ask who they are.
const METADATA_AT: &str = "169.254.169.254";
/// Whom a machine trusts, where Debian keeps it.
const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";
const DAEMON: &str = "exec /run/warren-bin/warren daemon --state /run/warren-state";

/// A pair at a cloud, whose fabric follows what the cloud believes without being asked to.
struct Pair<'c> {
    gateways: [&'c Host; 2],
    /// A machine there, with its address, and one elsewhere.
    ends: [(&'c Host, &'static str); 2],
    /// `warren sites` with the operator's credentials.
    sites: &'c dyn Fn(&[&str]) -> Result<String>,
    _follows: Process,
}

impl<'c> Pair<'c> {
    /// `ca` is what the cloud's API is certified by, which the gateways' image trusts.
    fn new(
        world: &'c World,
        fabric: &Host,
        gateways: [&'c Host; 2],
        machine: (&'c Host, &'static str),
        sites: &'c dyn Fn(&[&str]) -> Result<String>,
        ca: &str,
    ) -> Result<Self> {
        let moved = world.path("moved");
        std::fs::write(&moved, "")?;
        let follow = format!("tail -n 0 -f {} | sh", moved.display());
        let follows = fabric.spawn(&["sh", "-c", &follow])?;
        let ca = world.path(ca).display().to_string();
        for gateway in gateways {
            gateway.sh(&format!("mkdir -p /etc/ssl/certs; cat {ca} >> {TRUSTED}"))?;
        }
        let ends = [machine, (&world.apps[0], REMOTE)];
        Ok(Self { gateways, ends, sites, _follows: follows })
    }

    fn kill(&self, at: usize) -> Result<()> {
        self.gateways[at].sh("kill -9 $(cat /run/warren-site.pid)").map(drop)
    }

    fn start(&self, at: usize) -> Result<()> {
        let script = format!(
            "setsid -f sh -c 'echo $$ > /run/warren-site.pid; {DAEMON}' </dev/null \
             >/run/warren-state/daemon.log 2>&1"
        );
        self.gateways[at].sh(&script).map(drop)
    }

    fn status(&self, at: usize) -> Result<Value> {
        let told = self.gateways[at].sh("/run/warren-bin/warren status --json")?;
        Ok(serde_json::from_str(&told)?)
    }

    /// Whether a gateway leads, by its own word: it holds the routes and has set them.
    fn leads(&self, at: usize) -> bool {
        std::thread::sleep(Duration::from_millis(100));
        self.status(at).is_ok_and(|told| told["shared"]["leads"] == true)
    }

    fn joined(&self) -> Result<()> {
        let reaches = |from: &Host, to: &str| from.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        let [(here, own), (there, other)] = self.ends;
        eventually("machines reach each other", seconds(20), || {
            reaches(here, other) && reaches(there, own)
        })
        .map(drop)
    }

    /// Waits until this gateway leads, the other does not, and machines reach each other.
    fn is_led_by(&self, at: usize) -> Result<()> {
        let led = eventually("it leads", seconds(40), || self.leads(at) && !self.leads(1 - at));
        led.with_context(|| format!("{:?}", [0, 1].map(|at| self.status(at))))?;
        self.joined()?;
        let told: Value = serde_json::from_str(&(self.sites)(&["status", "--json"])?)?;
        let leads = [0, 1].map(|gateway| &told["gateways"][1 + gateway]["leads"]);
        ensure!(*leads[at] == json!(true) && *leads[1 - at] == json!(false), "{told}");
        Ok(())
    }

    /// The one that leads is killed, and comes back; nobody says a word to the cloud but the other.
    fn survives(&self, what: &str) -> Result<()> {
        self.is_led_by(0)?;
        let again = || (self.sites)(&["apply", "--yes"]);
        ensure!(again()?.contains("nothing is to be done"));
        let [(here, own), (there, other)] = self.ends;
        gap(what, [(here, other), (there, own)], || self.kill(0))?;
        self.is_led_by(1)?;
        ensure!(again()?.contains("nothing is to be done"), "the cloud's word stays");
        self.start(0)?;
        std::thread::sleep(seconds(4));
        self.is_led_by(1).context("nobody goes back")
    }

    /// A role that lacks a right is told by the right's name, and used as soon as it has it.
    fn names_what_is_missing(
        &self,
        right: &str,
        role: impl Fn(&[&str]) -> Result<String>,
    ) -> Result<()> {
        role(&["role", right])?;
        self.kill(1)?;
        let health = || self.status(0).map(|told| told["health"].to_string());
        eventually("the right is named", seconds(20), || {
            health().is_ok_and(|health| health.contains(right))
        })
        .with_context(|| format!("{:?}", health()))?;
        let log = self.gateways[0].sh("cat /run/warren-state/daemon.log")?;
        ensure!(log.contains(right), "{log}");
        ensure!(!self.leads(0), "it could not set them");
        role(&["role"])?;
        self.is_led_by(0)
    }
}

#[test]
fn source_001_14_at_aws_the_standby_sets_the_routes_itself_with_its_role() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites34", |scene| {
        let world = World::new(scene, "sites34", &sshd)?;
        let more = "gateways = 2\nrole = \"gateways\"\n";
        let cloud = Cloud::open_with(scene, &world, &python, more)?;
        let metadata = metadata(&world, &cloud.fabric)?;
        let second = cloud.second.as_ref().context("a second gateway")?;
        let machine = (&cloud.machine, aws::MACHINE);
        let sites = |words: &[&str]| cloud.sites(words);
        let gateways = [&cloud.gateway, second];
        let pair = Pair::new(&world, &cloud.fabric, gateways, machine, &sites, "ca.pem")?;
        let before = cloud.census()?;
        cloud.booting(&["apply", "--yes"])?;
        cloud.joined()?;
        pair.survives("at AWS a daemon is killed")?;
        pair.names_what_is_missing("ec2:ReplaceRoute", |words| cloud.asked(words))?;

        // An operator's word at the cloud counts.
        pair.start(1)?;
        cloud.sites(&["failover", "cloud"])?;
        pair.is_led_by(1)?;

        // Keys were given for a word of the conversation only.
        let log = metadata.log();
        ensure!(log.contains("security-credentials/gateways 200"), "{log}");
        ensure!(log.contains("PUT /latest/api/token 200") && !log.contains(" 401"), "{log}");
        cloud.sites(&["destroy", "--yes"])?;
        ensure!(cloud.census()? == before, "what is left: {}", cloud.census()?);
        Ok(())
    })
}

/// Who tells machines at AWS their role, and refuses who asks as old programs do.
fn metadata(world: &World, fabric: &Host) -> Result<Process> {
    fabric.sh(&format!("ip addr add {METADATA_AT}/32 dev lo"))?;
    let folder = world.path("").display().to_string();
    let serving = fabric.spawn(&["python3", METADATA, &folder, METADATA_AT, "80"])?;
    serving.wait_for(|log| log.contains("metadata is told"))?;
    Ok(serving)
}

#[test]
fn source_001_14_at_azure_the_standby_sets_the_routes_itself_with_its_role() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites35", |scene| {
        let world = World::new(scene, "sites35", &sshd)?;
        let own = format!("/subscriptions/{}/resourceGroups/mine", azure::SUBSCRIPTION);
        let kind = "Microsoft.ManagedIdentity/userAssignedIdentities";
        let more = format!("gateways = 2\nrole = \"{own}/providers/{kind}/gateways\"\n");
        let cloud = Azure::open_with(scene, &world, &python, &more)?;
        let second = cloud.second.as_ref().context("a second gateway")?;
        let machine = (&cloud.machine, azure::MACHINE);
        let sites = |words: &[&str]| cloud.sites(words);
        let gateways = [&cloud.gateway, second];
        let pair = Pair::new(&world, &cloud.fabric, gateways, machine, &sites, "arm-ca.pem")?;
        let before = cloud.census()?;
        cloud.booting(&["apply", "--yes"])?;
        cloud.joined()?;
        pair.survives("at Azure a daemon is killed")?;
        let right = "microsoft.network/routetables/routes/write";
        pair.names_what_is_missing(right, |words| cloud.asked(words))?;
        cloud.sites(&["destroy", "--yes"])?;
        ensure!(cloud.census()? == before, "what is left: {}", cloud.census()?);
        cloud.is_as_specified()
    })
}
