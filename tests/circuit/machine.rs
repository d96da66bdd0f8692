//! What the machine itself sends by circuit, and its SOCKS door.

use serde_json::Value;

use crate::support::capture::Capture;
use crate::support::{Result, ensure, eventually, scene, seconds};
use crate::world::{WEB, World, said};

#[test]
fn what_the_machine_sends_and_socks_clients_go_by_circuit_or_not_at_all() -> Result<()> {
    scene("circ6", |scene| {
        let mut world = World::new(scene, "6")?;
        world.join()?;
        let (first, _) = world.open(&[])?;
        world.node(0, &["circuit", "close", &first])?;
        // A way beside the circuit, which nothing may take.
        world.hosts[0].sh("ip route add default via 10.8.0.254 dev eth0")?;
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        let (page, named) = (format!("http://{WEB}/1000"), "http://page.example/1000");
        let fetch = |words: &[&str]| {
            let all = [&["curl", "-sS", "--max-time", "3"], words].concat();
            said(world.hosts[0].command(&all[..1]).args(&all[1..]))
        };
        world.node(0, &["set", "--circuit-for", "203.0.113.0/24"])?;
        let served = || fetch(&[&page]).is_ok_and(|page| page.len() == 1000);
        eventually("a page comes by circuit", seconds(20), served)?;
        let status: Value = serde_json::from_str(&world.node(0, &["status", "--json"])?)?;
        let own = &status["circuits"]["own"][0];
        ensure!(own["use"] == "circuit-for" && own["state"] == "open", "{status}");
        ensure!(own["hops"].as_array().is_some_and(|hops| hops.len() == 3), "{own}");

        // A server at the client is not reached out of the circuit by who did not ask.
        world.node(0, &["set", "--socks", "127.0.0.1:1080"])?;
        let by = |user: &str, url: &str| {
            fetch(&["--proxy", &format!("socks5h://{user}:x@127.0.0.1:1080"), url])
        };
        let served = || by("anna", named).is_ok_and(|page| page.len() == 1000);
        eventually("a page comes through the door", seconds(20), served)?;
        ensure!(by("anna", named)?.len() == 1000 && by("otto", &page)?.len() == 1000);
        let near = by("anna", "http://127.0.0.1:1080/");
        ensure!(near.is_err(), "this machine is reached: {near:?}");
        let list: Value = serde_json::from_str(&world.node(0, &["circuit", "list", "--json"])?)?;
        let socks = list["circuits"].as_array().into_iter().flatten();
        let socks = socks.filter(|circuit| circuit["use"] == "socks").count();
        ensure!(socks == 2, "a circuit for each user name: {list}");

        // With everything by circuit names go there too, and the rest goes nowhere else.
        world.node(0, &["set", "--circuit-for", "default"])?;
        let served = || fetch(&[&page]).is_ok_and(|page| page.len() == 1000);
        eventually("a page comes by circuit", seconds(20), served)?;
        let elsewhere = fetch(&["http://192.0.2.1/"]);
        ensure!(elsewhere.is_err(), "{elsewhere:?}");
        world.node(0, &["set", "--circuit-for", "203.0.113.0/24"])?;
        eventually("a page comes by circuit", seconds(20), served)?;
        world.node(0, &["set", "--socks", ""])?;
        ensure!(by("anna", &page).is_err(), "the door is closed");

        // The daemon is killed: what was led into a circuit leaves by no other way.
        world.daemons[0] = None;
        let tried = fetch(&[&page]);
        ensure!(tried.is_err(), "{tried:?}");
        let packets = capture.stop()?;
        ensure!(packets.len() > 100, "the control: the wire is seen");
        for packet in packets.iter().filter(|packet| packet[0] >> 4 == 4) {
            let to = &packet[16..20];
            ensure!(to != [203, 0, 113, 9] && to != [192, 0, 2, 1], "beside the circuit");
            let is_name = packet[9] == 17 && packet[22..24] == [0, 53];
            ensure!(!is_name, "a name is asked beside the circuit");
        }
        for line in world.log("web").lines() {
            ensure!(line.ends_with(" 203.0.113.1"), "{line}");
        }
        Ok(())
    })
}
