//! A port of a gateway at a real OpenStack that somebody deleted: it is made again, and the machine
//! that runs gets it.

use crate::openstack_real::{Cloud, ours};
use crate::support::*;

const GATEWAY: &str = "acme-vienna-gw1";

/// First the one that leads out, with the floating address, then the one of the site, with the
/// machines' route. Each takes three steps: the port, what hung on it, the machine.
pub(crate) fn deleted_ports_are_given_to_the_machine_again(
    cloud: &Cloud<'_>,
    app: &str,
) -> Result<()> {
    let number = cloud.machine(GATEWAY)?;
    let outer = format!("{GATEWAY}-outside");
    for (role, ifname) in [(outer.as_str(), "ens3"), (GATEWAY, "ens4")] {
        let before = ours(&cloud.asked(&["seen"])?, "ports", role)?;
        cloud.asked(&["unplug", role])?;
        cloud.mends(3)?;
        let port = ours(&cloud.asked(&["seen"])?, "ports", role)?;
        ensure!(port["id"] != before["id"], "it is another one: {port}");
        ensure!(port["device_id"] == number.as_str(), "the machine has it: {port}");
        // Nova's driver only says that it is there.
        cloud.plug(&cloud.gateways[0], ifname, &port)?;
        cloud.joined(app)?;
    }
    ensure!(cloud.machine(GATEWAY)? == number, "the machine is the same");
    cloud.rests()
}
