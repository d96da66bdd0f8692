//! A pair of gateways at a real OpenStack: they share an address of the site, for which one of them
//! answers. When that one dies the other one does, and nobody tells the cloud.

use std::process::Stdio;

use serde_json::Value;

use crate::openstack_real::{Cloud, REMOTE, alone, installed, ours, text};
use crate::pair::gap;
use crate::ssh::{self, World};
use crate::support::*;

/// To what machines send.
const SHARED: &str = "10.3.0.252";
const NAMES: [&str; 2] = ["acme-vienna-gw1", "acme-vienna-gw2"];

impl Cloud<'_> {
    /// Whether a gateway of the pair holds what they share, by its own word.
    fn leads(&self, at: usize) -> bool {
        let told = self.gateways[at].sh("/run/warren-bin/warren status --json");
        let told = told.ok().and_then(|told| serde_json::from_str::<Value>(&told).ok());
        told.is_some_and(|told| told["shared"]["holds"] == true)
    }

    /// Whether `warren sites status` says that this one leads, and the other one does not.
    fn is_said_to_lead(&self, at: usize) -> bool {
        let told = self.told(&["status", "--json"]).unwrap_or_default();
        let rows = told["gateways"].as_array().cloned().unwrap_or_default();
        let says = |name: &str, leads: bool| {
            rows.iter().any(|row| row["gateway"] == name && row["leads"] == leads)
        };
        says(NAMES[at], true) && says(NAMES[1 - at], false)
    }

    /// Which one leads, once it is one, machines reach each other, and the server knows it.
    fn leader(&self, app: &str) -> Result<usize> {
        eventually("one of both leads", seconds(30), || self.leads(0) != self.leads(1))?;
        self.joined(app)?;
        let at = usize::from(self.leads(1));
        // One that died counts as online until the server missed it for a while.
        let took = eventually("status says who leads", seconds(90), || self.is_said_to_lead(at))?;
        eprintln!("status says who leads: {took:?}");
        Ok(at)
    }

    /// `failover` moves nothing here, and says whose machine an operator restarts.
    fn failover_is_left_to_the_operator(&self, at: usize) -> Result<()> {
        let why = self.sites(&["failover", "vienna"]).err().context("it is refused")?.to_string();
        ensure!(why.contains(&format!("{} leads", NAMES[at])), "{why}");
        let command = format!("openstack server reboot {}", self.machine(NAMES[at])?);
        ensure!(why.contains(&command), "{command}: {why}");
        ensure!(self.leads(at) && !self.leads(1 - at), "nothing was moved");
        Ok(())
    }

    /// [`gap`] between the machine there and the one elsewhere.
    fn survives(&self, what: &str, app: &str, fault: impl FnOnce() -> Result<()>) -> Result<()> {
        gap(what, [(&self.app, REMOTE), (&self.world.apps[0], app)], fault)
    }

    /// Pulls a machine's cables, as its end does.
    fn unplug(&self, at: usize) -> Result<()> {
        self.gateways[at].sh("ip link del ens3; ip link del ens4").map(drop)
    }

    /// Ends a gateway's machine at the cloud and has it made again; it stands by.
    fn is_made_again(&self, at: usize, app: &str) -> Result<()> {
        self.asked(&["end", &self.machine(NAMES[at])?])?;
        self.booting(&["apply", "--yes"])?;
        std::thread::sleep(seconds(4));
        ensure!(self.leader(app)? == 1 - at, "nobody goes back");
        self.rests()
    }
}

/// Both gateways may send as the shared address, and the machines' route leads there.
fn made_as_a_pair(cloud: &Cloud<'_>) -> Result<()> {
    let seen = cloud.asked(&["seen"])?;
    let mut public = Vec::new();
    for (name, address) in NAMES.iter().zip(["10.3.0.254", "10.3.0.253"]) {
        let inner = ours(&seen, "ports", name)?;
        ensure!(inner["fixed_ips"][0]["ip_address"] == address, "{inner}");
        ensure!(inner["port_security_enabled"] == true, "{inner}");
        ensure!(inner["allowed_address_pairs"][0]["ip_address"] == "10.0.0.0/8", "{inner}");
        let outer = ours(&seen, "ports", &format!("{name}-outside"))?;
        let floating = ours(&seen, "floatingips", name)?;
        ensure!(floating["port_id"] == outer["id"], "{floating}");
        public.push(text(&floating["floating_ip_address"]));
    }
    ensure!(public[0] != public[1], "{public:?}");
    let subnet = ours(&seen, "subnets", "inside")?;
    ensure!(subnet["host_routes"][0]["nexthop"] == SHARED, "{subnet}");
    ensure!(subnet["allocation_pools"][0]["end"] == "10.3.0.251", "{subnet}");
    Ok(())
}

/// An `apply` that is killed while it makes interfaces; it holds the site's lock.
fn killed_in_the_middle(cloud: &Cloud<'_>) -> Result<()> {
    let log = cloud.world.path("killed.log");
    let mut command = cloud.command(&["apply", "--yes"], "secret");
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
    let mut child = command.spawn()?;
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let begun = || text().contains("create vienna interface");
    let reached = eventually("it is half done", seconds(90), begun);
    child.kill()?;
    child.wait()?;
    reached.with_context(text).map(drop)
}

#[test]
#[ignore = "openstack"]
fn a_real_openstack_has_a_pair_and_machines_go_on_when_a_gateway_dies() -> Result<()> {
    let (Some(sshd), Some(folder)) = (ssh::sshd(), installed()) else { return Ok(()) };
    let _alone = alone();
    scene("sites51", |scene| {
        let world = World::new(scene, "sites51", &sshd)?;
        let cloud = Cloud::open(scene, &world, &folder, "gateways = 2\n")?;
        cloud.asked(&["foreign"])?;
        let before = cloud.settled()?;
        let foreign = cloud.asked(&["foreign"])?;
        killed_in_the_middle(&cloud)?;
        cloud.booting(&["apply", "--yes"])?;
        made_as_a_pair(&cloud)?;
        let [number, app] = cloud.start_app(SHARED)?;
        let first = cloud.leader(&app)?;
        cloud.rests()?;

        let kill = || {
            let killed = cloud.gateways[first].sh("kill -9 $(cat /run/warren-site.pid)");
            killed.map(drop)
        };
        cloud.survives("at a real OpenStack a daemon is killed", &app, kill)?;
        ensure!(cloud.leader(&app)? == 1 - first, "the other one leads");
        cloud.unplug(first)?;
        cloud.is_made_again(first, &app)?;

        let vanish = || cloud.unplug(1 - first);
        cloud.survives("at a real OpenStack a gateway vanishes", &app, vanish)?;
        cloud.is_made_again(1 - first, &app)?;

        cloud.failover_is_left_to_the_operator(first)?;
        cloud.asked(&["end", &number])?;
        cloud.vanishes(&before, &foreign)
    })
}
