//! What source 000 lived with: a server behind a port forward, the same private addresses in
//! several places, a robot that walks, teams that must not meet, a relay that must not read.
//! `campus.toml` says what is where.

use std::time::Duration;

use lab::process::Process;

use super::*;

const TOPOLOGY: &str = include_str!("campus.toml");
const TALK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/talk.py");
/// Nodes by their places in `Lan::nodes`; the network gives them 100.64.0.1, .2 and .3.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const INSIDE: [&str; 3] = ["100.64.0.1", "100.64.0.2", "100.64.0.3"];

/// The campus with its server; no daemon yet.
fn campus(id: &str, body: impl FnOnce(&mut Lan, &Lab) -> Result<()>) -> Result<()> {
    let _turn = turn::shared();
    let lab = lab_of(id, TOPOLOGY, "campus.toml")?;
    lab.host("a")?.sh("ip link set eth1 down; ip route replace default via 10.0.2.1 dev eth0")?;
    lab.host("dmz")?.sh("nft add table ip forward
        nft 'add chain ip forward in { type nat hook prerouting priority -100; }'
        nft add rule ip forward in iifname eth1 tcp dport 9443 dnat to 10.0.3.15:443
        nft add rule ip forward in iifname eth1 udp dport 3478 dnat to 10.0.3.15:3478")?;
    let place = ["0.0.0.0:443", "https://198.51.100.1:9443", "0.0.0.0:3478"];
    let mut lan = Lan::in_lab(id, &lab, &["a", "b", "c"], place)?;
    let result = body(&mut lan, &lab);
    lan.told(result)
}

/// Has every UDP datagram that would leave the yard dropped, or passed again.
fn block_udp(lab: &Lab, is_blocked: bool) -> Result<()> {
    let gateway = lab.host("gw-yard")?;
    if is_blocked {
        gateway.sh("nft add table ip block
            nft 'add chain ip block every { type filter hook forward priority -10; }'
            nft add rule ip block every meta l4proto udp drop")?;
    } else {
        gateway.sh("nft delete table ip block")?;
    }
    Ok(())
}

fn kind_is(lan: &Lan, from: usize, peer: &str, kind: &str) -> Result<Duration> {
    eventually(&format!("{kind} to {peer}"), seconds(PATIENCE), || {
        // Idle peers are not probed.
        let _ = lan.nodes[from].host.sh(&format!("ping -c 1 -W 0.2 {peer}"));
        path(lan, from, peer).is_ok_and(|path| path["kind"] == kind)
    })
}

fn path(lan: &Lan, from: usize, address: &str) -> Result<Value> {
    let status = lan.status(from)?;
    let mut peers = status["peers"].as_array().into_iter().flatten();
    let is_it = |peer: &&Value| peer["addresses"][0] == address;
    Ok(peers.find(is_it).context("the peer is in the status")?["path"].clone())
}

/// A TCP connection between two nodes, used every 20 ms.
struct Talk {
    _answering: Process,
    asking: Process,
    end: PathBuf,
}

impl Talk {
    fn start(lan: &Lan, from: usize, to: usize) -> Result<Self> {
        let end = lan.folder.0.join("end");
        let answering =
            lan.nodes[to].host.spawn(&["python3", TALK, "answer", INSIDE[to], "7000"])?;
        answering.wait_for(|log| log.contains("ready"))?;
        let until = end.display().to_string();
        let words = ["python3", TALK, "ask", INSIDE[to], "7000", &until];
        let asking = lan.nodes[from].host.spawn(&words)?;
        asking.wait_for(|log| log.contains("ready"))?;
        Ok(Self { _answering: answering, asking, end })
    }

    /// Ends it: the longest wait for an answer. The same connection must have lived all the time.
    fn stop(self) -> Result<String> {
        std::fs::write(&self.end, "")?;
        self.asking.wait_for(|log| log.contains(" end"))?;
        Ok(self.asking.log().lines().last().unwrap_or_default().to_owned())
    }
}

#[test]
fn source_000_7_000_8_002_15_a_port_forward_equal_addresses_names_and_the_lan_path() -> Result<()> {
    campus("campus1", |lan, _| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        for (index, inside) in INSIDE.iter().enumerate() {
            ensure!(lan.node(index, &["ip", "-4"])?.trim() == *inside, "one each, in sequence");
            let v6 = lan.node(index, &["ip", "-6"])?;
            ensure!(v6.starts_with("fd"), "a unique local address: {v6}");
            for (name, address) in ["a", "b", "c"].iter().zip(INSIDE) {
                let ask = format!("dig +short +tries=1 @{inside} {name}.warren.internal A");
                eventually(&format!("{name} is known to {inside}"), seconds(PATIENCE), || {
                    lan.nodes[index].host.sh(&ask).is_ok_and(|told| told.trim() == address)
                })?;
            }
        }
        // Two with one private address meet through their NATs, neighbours on their own LAN.
        kind_is(lan, A, INSIDE[B], "direct")?;
        kind_is(lan, A, INSIDE[C], "direct")?;
        eventually("the LAN's path", seconds(PATIENCE), || {
            let _ = lan.nodes[A].host.sh(&format!("ping -c 1 -W 0.2 {}", INSIDE[C]));
            path(lan, A, INSIDE[C]).is_ok_and(|path| {
                path["endpoint"].as_str().is_some_and(|at| at.starts_with("10.0.2.16:"))
            })
        })?;
        // Addresses are kept over a restart.
        lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
        lan.daemon(B)?;
        lan.node(B, &["wait", "--timeout", "20s"])?;
        ensure!(lan.node(B, &["ip", "-4"])?.trim() == INSIDE[B]);
        Ok(())
    })
}

#[test]
fn source_000_11_a_robot_that_walks_to_another_segment_keeps_its_connection() -> Result<()> {
    campus("campus2", |lan, _| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        kind_is(lan, A, INSIDE[C], "direct")?;
        let talk = Talk::start(lan, A, C)?;
        std::thread::sleep(seconds(1));
        lan.nodes[A].host.sh("ip link set eth0 down; ip addr flush dev eth0
             ip link set eth1 up; ip route replace default via 10.0.2.1 dev eth1")?;
        std::thread::sleep(seconds(3));
        println!("while the robot walked: {}", talk.stop()?);
        let path = path(lan, C, INSIDE[A])?;
        ensure!(path["kind"] != "none", "{path}");
        Ok(())
    })
}

#[test]
fn source_000_3_a_path_changes_to_the_relay_and_back_under_a_connection() -> Result<()> {
    campus("campus3", |lan, lab| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        kind_is(lan, A, INSIDE[B], "direct")?;
        let talk = Talk::start(lan, A, B)?;
        block_udp(lab, true)?;
        println!("by the relay after {:?}", kind_is(lan, A, INSIDE[B], "relay")?);
        let why = path(lan, B, INSIDE[A])?["why"].clone();
        ensure!(why.is_string(), "status says why: {why}");
        block_udp(lab, false)?;
        println!("direct again after {:?}", kind_is(lan, A, INSIDE[B], "direct")?);
        println!("meanwhile: {}", talk.stop()?);
        Ok(())
    })
}

#[test]
fn source_000_10_a_capture_at_the_relay_holds_nothing_that_the_receiver_reads() -> Result<()> {
    const MARK: &str = "what-the-robot-saw-0123456789";
    campus("campus4", |lan, lab| {
        let token = lan.token(&["--reusable"])?;
        block_udp(lab, true)?;
        lan.all_up(&token)?;
        kind_is(lan, A, INSIDE[B], "relay")?;
        let capture = |host: &Host, interface: &str| -> Result<Process> {
            let taking = host.spawn(&["tcpdump", "-i", interface, "-U", "-s", "0", "-A", "-n"])?;
            taking.wait_for(|log| log.contains("listening on"))?;
            Ok(taking)
        };
        let (at_relay, at_receiver) =
            (capture(&lan.server, "any")?, capture(&lan.nodes[B].host, "warren0")?);
        let take = "import socket
listening = socket.create_server(('100.64.0.2', 7001))
print('ready', flush=True)
connection, _ = listening.accept()
while connection.recv(65536): pass";
        let receiver = lan.nodes[B].host.spawn(&["python3", "-c", take])?;
        receiver.wait_for(|log| log.contains("ready"))?;
        let give = format!(
            "import socket
socket.create_connection(('100.64.0.2', 7001)).sendall(b'{MARK}' * 7000)"
        );
        lan.nodes[A].host.run(&["python3", "-c", &give])?;
        receiver.wait(seconds(PATIENCE))?;
        at_receiver.wait_for(|log| log.matches(MARK).count() > 5000)?;
        let seen = at_relay.log();
        ensure!(seen.lines().count() > 100, "the relay's capture saw the transfer");
        ensure!(!seen.contains(MARK), "the relay carried it in clear");
        Ok(())
    })
}

/// Marks of teams: who has which, by the tag of the key that it joined with.
const TEAMS: &str = r#"{
  "tagOwners": { "tag:red": [], "tag:blue": [], "tag:research": [] },
  "acls": [
    { "action": "accept", "src": ["tag:red"], "dst": ["tag:red:*"] },
    { "action": "accept", "src": ["tag:blue"], "dst": ["tag:blue:*"] },
    { "action": "accept", "src": ["tag:research"], "dst": ["tag:red:*", "tag:blue:*"] },
  ],
}"#;

#[test]
fn source_000_12_two_teams_do_not_meet_and_researchers_reach_both() -> Result<()> {
    campus("campus5", |lan, _| {
        let file = lan.folder.path("teams.hujson");
        std::fs::write(&file, TEAMS)?;
        lan.admin(&["policy", "set", &file])?;
        for (index, tag) in [(A, "red"), (B, "blue"), (C, "research")] {
            let token = lan.token(&["--tag", &format!("tag:{tag}")])?;
            lan.up(index, &token, &[])?;
        }
        println!("a researcher reaches red {:?}", lan.reaches(C, INSIDE[A])?);
        println!("a researcher reaches blue {:?}", lan.reaches(C, INSIDE[B])?);
        for (from, to) in [(A, B), (B, A), (A, C), (B, C)] {
            let once = format!("ping -c 2 -i 0.2 -W 0.3 {}", INSIDE[to]);
            ensure!(lan.nodes[from].host.sh(&once).is_err(), "{from} reaches {to}");
        }
        ensure!(names(&lan.status(A)?) == ["c"], "the teams do not even know of each other");
        Ok(())
    })
}

#[test]
fn source_002_9_002_10_full_quic_datagrams_and_fragments_pass_the_filter() -> Result<()> {
    campus("campus6", |lan, _| {
        let file = lan.folder.path("policy.hujson");
        let policy = r#"{ "acls": [{ "action": "accept", "src": ["*"], "dst": ["*:*"] }] }"#;
        std::fs::write(&file, policy)?;
        lan.admin(&["policy", "set", &file])?;
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        kind_is(lan, A, INSIDE[B], "direct")?;
        let mtu = path(lan, A, INSIDE[B])?["mtu"].as_u64().context("an MTU")?;
        ensure!(mtu >= 1328, "1280 bytes of QUIC, UDP and IPv6 headers fit: {mtu}");
        let v6 = lan.node(B, &["ip", "-6"])?.trim().to_owned();
        let (a, b) = (&lan.nodes[A].host, &lan.nodes[B].host);
        // 1280 bytes in UDP are 1328 of IPv6: not to be fragmented, in either direction.
        for size in [1272, 1280 - 8 + mtu as usize - 1328] {
            a.run(&["ping", "-6", "-c", "2", "-M", "do", "-s", &size.to_string(), &v6])?;
        }
        for to in [INSIDE[B], &v6] {
            a.run(&["ping", "-c", "3", "-i", "0.2", "-W", "1", "-s", "4000", to])?;
        }
        let options = ["-u", "-b", "10M", "-l", "1340", "-t", "2"];
        let report = traffic::iperf(a, b, INSIDE[B], &options)?;
        ensure!(report["end"]["sum"]["lost_packets"] == 0, "{}", report["end"]["sum"]);
        Ok(())
    })
}
