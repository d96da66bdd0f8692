//! `--exit-node auto`: the nearest of two exits, and what follows when they die.

use serde_json::Value;
use sim::impair::Impairment;

use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{NET, Teller, World, asks};

/// Who answers at an address of the Internet.
fn out(world: &World, to: &str) -> String {
    asks(&world.a, to, 80).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}

/// Until both families lead out there.
fn leads(world: &World, to: &str) -> Result<()> {
    let took = eventually(&format!("out by {to:?}"), seconds(20), || {
        NET.iter().all(|at| out(world, at) == to)
    })?;
    eprintln!("out by {to:?} after {took:?}");
    Ok(())
}

/// Packets toward the Internet that came out of `a` beside the exit.
fn leaked(world: &World) -> Result<u64> {
    let listed = world.isp.run(&["nft", "list", "table", "inet", "leak"])?;
    let count = |line: &str| line.split_whitespace().nth_back(2)?.parse::<u64>().ok();
    Ok(listed.lines().filter(|l| l.contains("packets")).filter_map(count).sum())
}

fn exit(world: &World) -> Result<Value> {
    let status: Value = serde_json::from_str(&world.node(0, &["status", "--json"])?)?;
    Ok(status["exit"].clone())
}

#[test]
fn with_auto_the_nearest_exit_is_used_then_the_other_one_and_nothing_leaves_beside_them()
-> Result<()> {
    scene("gate40", |scene| {
        let mut world = World::new(scene, "40")?;
        // The exit with the lower number is far: 40 ms there and back.
        world.server.sh("ip link del p2")?;
        let weather = Impairment { delay_us: 20_000, ..Impairment::LINE };
        let ends: [(_, _, &[&str]); 2] =
            [(&world.server, "p2", &[]), (&world.b, "eth0", &["10.9.0.2/24"])];
        scene.impaired(ends, weather)?;
        world.server.sh("ip link set p2 master br0")?;
        let net = scene.host("net2")?;
        scene.veth(
            (&world.c, "out0", &["203.0.113.1/32", "2001:db8:9::1/128"]),
            (&net, "eth0", &["203.0.113.9/32", "2001:db8:9::9/128"]),
        )?;
        world.c.sh("ip route add default via 203.0.113.9 dev out0 onlink
             ip -6 route add 2001:db8:9::9 dev out0; ip -6 route add default via 2001:db8:9::9
             ip -6 route del 2001:db8:9::9 dev out0")?;
        net.sh("ip route add 203.0.113.1 dev eth0; ip -6 route add 2001:db8:9::1 dev eth0")?;
        let _tellers =
            [Teller::start(&net, "0.0.0.0", 80, "net2")?, Teller::start(&net, "::", 80, "net2")?];
        world.isp.sh("nft add table inet leak
             nft 'add chain inet leak in { type filter hook prerouting priority 0; }'
             nft 'add rule inet leak in ip daddr 203.0.113.9 counter'
             nft 'add rule inet leak in ip6 daddr 2001:db8:9::9 counter'")?;
        world.join("", &["--advertise-exit-node"], &[])?;
        let token = world.admin(&["key", "create", "--reusable"])?;
        world.daemon(2)?;
        let words = ["up", token.trim(), "--timeout", "20s", "--hostname", "c"];
        world.node(2, &[&words[..], &["--advertise-exit-node"]].concat())?;
        world.admin(&["route", "approve", "c", "0.0.0.0/0", "::/0"])?;
        eventually("both are exits", seconds(10), || {
            let listed = world.node(0, &["exit-node", "list"]).unwrap_or_default();
            listed.contains("\nb ") && listed.contains("\nc ")
        })?;
        leads(&world, "isp")?;
        let control = leaked(&world)?;
        ensure!(control > 0, "the control: what leaves by the other way is counted");

        let told = world.node(0, &["set", "--exit-node", "auto:any"])?;
        ensure!(told.contains("all traffic goes through c now"), "{told}");
        leads(&world, "net2")?;
        let shown = world.node(0, &["status"])?;
        ensure!(shown.contains("exit          auto, through c (direct, "), "{shown}");
        let way = exit(&world)?;
        ensure!(way["wanted"] == "auto" && way["through_v6"] == "c", "{way}");
        let before = leaked(&world)?;

        // The near one is killed, then the far one.
        world.daemons[2] = None;
        leads(&world, "net")?;
        ensure!(exit(&world)?["through"] == "b");
        world.daemons[1] = None;
        eventually("no exit answers", seconds(20), || {
            exit(&world).is_ok_and(|way| way["closed"] == true)
                && NET.iter().all(|at| asks(&world.a, at, 80).is_err())
        })?;
        let shown = world.node(0, &["status"])?;
        ensure!(shown.contains("auto, nothing leaves to the Internet"), "{shown}");
        for at in NET {
            let _ = world.a.run(&["ping", "-n", "-c", "2", "-i", "0.1", "-W", "1", at]);
            let _ = world.a.run(&["ping", "-n", "-c", "1", "-W", "1", "-I", "isp0", at]);
        }
        let beside = leaked(&world)? - before;
        ensure!(beside == 0, "{beside} packets left beside the exits");

        // One that is named is used, near or far.
        world.daemon(1)?;
        world.daemon(2)?;
        let told = world.node(0, &["set", "--exit-node", "b"])?;
        ensure!(told.contains("all traffic goes through b now"), "{told}");
        leads(&world, "net")?;
        world.node(0, &["set", "--exit-node", "auto"])?;
        leads(&world, "net2")?;
        world.node(0, &["set", "--exit-node="])?;
        leads(&world, "isp")
    })
}
