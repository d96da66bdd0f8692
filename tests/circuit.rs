//! Circuits end to end: what real programs get through them, what the wires show, and what happens
//! when a hop dies.

mod support;

#[path = "circuit/machine.rs"]
mod machine;
#[path = "circuit/operators.rs"]
mod operators;
#[path = "circuit/programs.rs"]
mod programs;
#[path = "circuit/rebuilt.rs"]
mod rebuilt;
#[path = "circuit/six.rs"]
mod six;
#[path = "circuit/transcript.rs"]
mod transcript;
#[path = "circuit/world.rs"]
mod world;

use std::process::Stdio;
use std::time::Instant;

use support::capture::Capture;
use support::{Result, bail, ensure, eventually, scene, seconds};
use world::{MARKER, NAMES, POLICY, Running, WARREN, WEB, World, has};

#[test]
fn real_programs_go_through_three_hops_and_no_wire_shows_who_talks_to_whom() -> Result<()> {
    scene("circ1", |scene| {
        let mut world = World::new(scene, "1")?;
        world.join()?;
        let (id, took) = world.open(&["--via", "h1,h2,h3"])?;
        let shown = world.show(&id)?;
        ensure!(shown["state"] == "open" && shown["hops"][2]["name"] == "h3", "{shown}");
        println!("built in {} ms, the command took {took:?}", shown["built_ms"]);
        world.node(0, &["circuit", "close", &id])?;

        let wires =
            [("client", 0, "eth0"), ("h1", 1, "eth0"), ("h2", 2, "eth0"), ("h3", 3, "eth0")];
        let captures = wires
            .iter()
            .map(|(_, i, ifname)| Capture::start(&world.hosts[*i], ifname))
            .collect::<Result<Vec<_>>>()?;
        let beyond = Capture::start(&world.hosts[3], "out0")?;
        // By name, so that the exit's name server is asked.
        let page = world.run(&["curl", "-sS", "--max-time", "20", "http://page.example/200000"])?;
        ensure!(page.len() == 200_000 && has(page.as_bytes(), MARKER), "{} bytes", page.len());
        let ping = world.run(&["ping", "-n", "-c", "3", "-i", "0.2", "-W", "3", WEB])?;
        ensure!(ping.contains("3 received"), "{ping}");
        let dig = world.run(&["dig", "+short", "+time=3", "any.example"])?;
        ensure!(dig.trim() == WEB, "{dig}");
        println!("{}", ping.lines().last().unwrap_or_default());

        let perf = ["iperf3", "-c", WEB, "-t", "2", "-P", "2", "-f", "m"];
        for words in [&[][..], &["-R"], &["-u", "-b", "5M", "-l", "1200"]] {
            let said = world.run(&[&perf[..], words].concat())?;
            println!("iperf3 {words:?}: {}", said.lines().rev().nth(2).unwrap_or_default().trim());
        }

        // What is behind the client and the exit is closed, and so is the client's own machine.
        for to in ["10.8.0.254", "10.13.0.1", "10.9.0.1", "198.18.255.254", "100.64.0.1"] {
            let tried = world.run(&["curl", "-sS", "--max-time", "1", &format!("http://{to}/")]);
            ensure!(tried.is_err(), "{to} is reached: {tried:?}");
        }
        let seen = beyond.stop()?;
        let from_client =
            |packet: &&Vec<u8>| packet[0] >> 4 == 4 && packet[12..16] == [10, 9, 0, 1];
        ensure!(
            seen.iter().any(|packet| has(packet, MARKER)),
            "the control: the page passed there"
        );
        ensure!(!seen.iter().any(|packet| from_client(&packet)), "the client's address beyond");
        for who in [world.log("web"), world.log("names")] {
            let lines: Vec<&str> = who.lines().collect();
            ensure!(
                !lines.is_empty() && lines.iter().all(|l| l.ends_with(" 203.0.113.1")),
                "{who}"
            );
        }
        for ((name, ..), capture) in wires.iter().zip(captures) {
            let packets = capture.stop()?;
            ensure!(packets.len() > 100, "{name}: {} packets", packets.len());
            for packet in &packets {
                ensure!(!has(packet, MARKER), "{name}: the page in clear");
                let ends = [12, 16].map(|at| packet.get(at..at + 4));
                let there = Some(&[203, 0, 113, 9][..]);
                ensure!(packet[0] >> 4 != 4 || !ends.contains(&there), "{name}: who is talked to");
                // Nothing of the circuit leaves but in datagrams between nodes: no name, no TCP.
                let is_udp = packet[0] >> 4 == 4 && packet[9] == 17;
                ensure!(!is_udp || packet[22..24] != [0, 53], "{name}: a name is asked");
            }
        }
        // Nor do the logs of hops tell: names, addresses of circuits.
        for name in &NAMES[1..4] {
            let log = world.log(name);
            ensure!(log.contains("daemon at"), "the control: {name} logs");
            for what in ["page.example", "any.example", "198.19."] {
                ensure!(!log.contains(what), "{name} logs {what}: {log}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_killed_hop_is_told_within_three_seconds_and_nothing_leaks_meanwhile() -> Result<()> {
    scene("circ2", |scene| {
        let mut world = World::new(scene, "2")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        let mut running = world.command(
            0,
            &[
                "circuit",
                "run",
                "--via",
                "h1,h2,h3",
                "--",
                "sh",
                "-c",
                // The command around it is killed; it ends with this scene's folder.
                &format!(
                    "while [ -d {} ]; do curl -s --max-time 1 http://{WEB}/10 >/dev/null; done",
                    world.path("")
                ),
            ],
        );
        let said = std::fs::File::create(world.path("run.log"))?;
        let running = Running(running.stdout(Stdio::null()).stderr(said).spawn()?);
        let served = || world.log("web").lines().count() > 3;
        if eventually("pages are served", seconds(20), served).is_err() {
            bail!("no page is served:\n{}", world.log("run"));
        }
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        world.daemons[2] = None;
        let killed = Instant::now();
        let is_dead = || world.show(&id).is_ok_and(|shown| shown["state"] == "closed");
        eventually("the circuit is told dead", seconds(10), is_dead)?;
        let took = killed.elapsed();
        println!("told dead {took:?} after the hop was killed");
        ensure!(took < seconds(3), "told dead after {took:?}");
        std::thread::sleep(seconds(2));
        let packets = capture.stop()?;
        let leaks = |p: &&Vec<u8>| p[0] >> 4 == 4 && p[16..20] == [203, 0, 113, 9];
        ensure!(packets.iter().filter(leaks).count() == 0, "packets beside the circuit");
        // Another one, over the hops that are left.
        let (again, _) = world.open(&["--via", "h1,h3"])?;
        ensure!(world.show(&again)?["state"] == "open");
        // A command that was killed leaves its room, which cleanup takes away.
        let room = format!("-{}", running.0.id());
        drop(running);
        world.daemons[0] = None;
        let left = "ip netns list; ip rule; nft list tables";
        ensure!(world.hosts[0].sh(left)?.contains(&room), "the control: a room is left");
        // A daemon of another namespace has one of the same number, whose command still runs.
        let other = format!("warren-c2-{}", std::process::id());
        world.hosts[0].run(&["ip", "netns", "add", &other])?;
        let state = world.path(NAMES[0]);
        let cleaned = world.hosts[0].run(&[WARREN, "cleanup", "--state", &state]);
        let left = world.hosts[0].sh("ip netns list; ip rule; ip link; nft list tables");
        world.hosts[0].run(&["ip", "netns", "del", &other])?;
        let left = cleaned.and(left)?;
        for what in [room.as_str(), "30562", "warren-circuit-", " wc2"] {
            ensure!(!left.contains(what), "{what} is left: {left}");
        }
        ensure!(left.contains(&other), "who is not ours lost its room: {left}");
        Ok(())
    })
}

#[test]
fn who_is_in_no_list_may_nothing() -> Result<()> {
    scene("circ3", |scene| {
        let mut world = World::new(scene, "3")?;
        world.join()?;
        let (id, _) = world.open(&["--via", "h1,h2,h3"])?;
        // The same network, without the client's name in the list.
        let policy = world.path("policy");
        std::fs::write(&policy, POLICY.replace(r#""use": ["tag:staff"]"#, r#""use": []"#))?;
        world.admin(&["policy", "set", &policy])?;
        eventually("the circuit is ended", seconds(20), || {
            world.show(&id).is_ok_and(|shown| shown["state"] == "closed")
        })?;
        let refused = world.node(0, &["circuit", "open", "--via", "h1,h2,h3"]);
        ensure!(refused.is_err(), "{refused:?}");
        Ok(())
    })
}
