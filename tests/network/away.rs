//! A server that is away for a while, and what does not wait for it: nodes are in touch again, its
//! relay carries, a removal cuts, and who starts again in that time finds its peers.

use std::time::Duration;

use super::*;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

fn is_in_touch(lan: &Lan, index: usize) -> bool {
    lan.status(index).is_ok_and(|status| status["server"]["in_touch"] == true)
}

#[test]
fn a_node_is_in_touch_again_after_its_tcp_was_cut() -> Result<()> {
    network("aw1", 1, |lan| {
        let token = lan.token(&[])?;
        lan.up(A, &token, &[])?;
        eventually("it is in touch", seconds(PATIENCE), || is_in_touch(lan, A))?;
        let host = &lan.nodes[A].host;
        host.sh("nft add table ip x
             nft 'add chain ip x o { type filter hook output priority 0; }'
             nft add rule ip x o tcp dport 8443 reject with tcp reset")?;
        lan.node(A, &["set", "--hostname", "z"])?;
        eventually("it is told", seconds(PATIENCE), || !is_in_touch(lan, A))?;
        host.sh("nft delete table ip x")?;
        let begin = Instant::now();
        eventually("it is in touch again", seconds(PATIENCE), || is_in_touch(lan, A))?;
        println!("in touch {:?} after TCP was no longer cut", begin.elapsed());
        ensure!(begin.elapsed() < seconds(5), "{:?}", begin.elapsed());
        let status = lan.status(A)?;
        ensure!(status["health"] == serde_json::json!([]), "{status}");
        ensure!(lan.node(A, &["metrics"])?.contains("warren_server_in_touch 1"));
        Ok(())
    })
}

/// Nodes whose only way to each other is the server's relay, by HTTPS.
#[test]
fn co_10_a_server_that_was_away_carries_and_cuts_again_within_seconds() -> Result<()> {
    network("aw2", 3, |lan| {
        for node in &lan.nodes {
            node.host.sh("nft add table inet x
                 nft 'add chain inet x o { type filter hook output priority 0; }'
                 nft add rule inet x o oifname eth0 meta l4proto udp drop")?;
        }
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, "100.64.0.2")?;
        lan.serve.as_mut().context("it runs")?.kill()?;
        std::thread::sleep(seconds(25));
        lan.serve(&[])?;
        let begin = Instant::now();
        lan.admin(&["node", "remove", "c"])?;
        eventually("c is cut", seconds(PATIENCE), || {
            lan.status(A).is_ok_and(|status| !names(&status).contains(&"c"))
        })?;
        let cut = begin.elapsed();
        lan.reaches(A, "100.64.0.2")?;
        let carried = begin.elapsed();
        println!("after the server was back a removal cut within {cut:?}, relayed {carried:?}");
        // At most 3 s and 5 s where nothing else is at work.
        ensure!(cut < seconds(5) && carried < seconds(6), "{cut:?}, {carried:?}");
        eventually("c is told", seconds(PATIENCE), || {
            lan.status(C).is_ok_and(|status| status["state"] == "refused")
        })?;
        Ok(())
    })
}

/// A node on the server's LAN, and one behind a router that gives each conversation a port of its
/// own, so that no map names the one toward the first.
fn masqueraded(scene: &Scene) -> Result<Lan> {
    let [server, a, router, b] =
        [scene.host("server")?, scene.host("a")?, scene.host("r")?, scene.host("b")?];
    server.sh(&format!(
        "ip link add br0 type bridge && ip link set br0 up && ip addr add {SERVER}/24 dev br0"
    ))?;
    for (number, host) in [(1, &a), (2, &router)] {
        let (port, address) = (format!("p{number}"), format!("10.9.0.{number}/24"));
        scene.veth((&server, &port, &[]), (host, "eth0", &[&address]))?;
        server.sh(&format!("ip link set {port} master br0"))?;
    }
    scene.veth((&router, "eth1", &["192.168.5.1/24"]), (&b, "eth0", &["192.168.5.2/24"]))?;
    b.sh("ip route add default via 192.168.5.1")?;
    router.sh("sysctl -qw net.ipv4.ip_forward=1
         nft add table ip n
         nft 'add chain ip n post { type nat hook postrouting priority 100; }'
         nft add rule ip n post oifname eth0 meta l4proto udp masquerade to :20000-60000 random
         nft add rule ip n post oifname eth0 masquerade")?;
    let place = Place([
        format!("{SERVER}:8443"),
        format!("https://{SERVER}:8443"),
        format!("{SERVER}:3478"),
    ]);
    Lan::on("aw3", server, place, vec![Node::new("a", &a), Node::new("b", &b)])
}

#[test]
fn nt_12_a_node_that_restarts_without_a_server_finds_a_peer_behind_a_masquerade() -> Result<()> {
    scene("aw3", |scene| {
        let mut lan = masqueraded(scene)?;
        let result = without_server(&mut lan);
        lan.told(result)
    })
}

fn without_server(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    lan.reaches(A, "100.64.0.2")?;
    lan.direct(A)?;
    let seen = PathBuf::from(lan.folder.path("a")).join("seen.json");
    eventually("where b is reached is kept", seconds(PATIENCE), || {
        std::fs::read_to_string(&seen).is_ok_and(|text| text.contains("10.9.0.2:"))
    })?;
    lan.serve.as_mut().context("it runs")?.kill()?;
    let mut worst = Duration::ZERO;
    for _ in 0..3 {
        lan.nodes[A].daemon.as_mut().context("it runs")?.kill()?;
        lan.daemon(A)?;
        let begin = Instant::now();
        lan.reaches(A, "100.64.0.2")?;
        worst = worst.max(begin.elapsed());
    }
    eprintln!("a, started anew three times without a server, reached b after {worst:?} at most");
    ensure!(worst < Duration::from_millis(1_500), "{worst:?}");
    ensure!(lan.status(B)?["server"]["in_touch"] == false);
    Ok(())
}

#[test]
fn a_resolv_conf_that_another_program_writes_leads_back_to_the_node() -> Result<()> {
    network("aw4", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        let finds = |lan: &Lan| lan.nodes[A].host.sh("getent ahostsv4 b").unwrap_or_default();
        eventually("b is found", seconds(PATIENCE), || finds(lan).contains("100.64.0.2"))?;
        lan.nodes[A].host.sh("printf 'nameserver 10.9.0.53\\n' > /etc/resolv.conf")?;
        eventually("it leads to the node again", seconds(5), || {
            let text = lan.nodes[A].host.sh("cat /etc/resolv.conf").unwrap_or_default();
            text.contains("nameserver 100.64.0.1")
        })?;
        eventually("b is found again", seconds(PATIENCE), || finds(lan).contains("100.64.0.2"))?;
        lan.node(A, &["down"])?;
        let after = lan.nodes[A].host.sh("cat /etc/resolv.conf")?;
        ensure!(after == "nameserver 10.9.0.53\n", "what the other wrote is put back: {after}");
        Ok(())
    })
}

#[test]
fn without_ipv6_names_and_addresses_of_ipv4_work_and_nothing_wrong_is_advised() -> Result<()> {
    network("aw5", 2, |lan| {
        let off =
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        lan.nodes[A].host.sh(off)?;
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, "100.64.0.2")?;
        eventually("b is found", seconds(PATIENCE), || {
            let found = lan.nodes[A].host.sh("getent ahostsv4 b").unwrap_or_default();
            found.contains("100.64.0.2")
        })?;
        let status = lan.status(A)?;
        ensure!(!status["health"].to_string().contains("root"), "{status}");
        ensure!(!status["health"].to_string().contains("names at"), "{status}");
        Ok(())
    })
}

/// A server gets another address: who is in touch learns it, and who was not is told by a token.
#[test]
fn members_follow_a_server_that_moves_by_its_word_or_by_a_new_token() -> Result<()> {
    network("aw6", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, "100.64.0.2")?;
        lan.nodes[B].daemon.as_mut().context("it runs")?.kill()?;
        let new = "https://10.9.0.253:8443";
        let old = format!("https://{SERVER}:8443");
        // for a while it is at both
        lan.serve.as_mut().context("it runs")?.kill()?;
        lan.server.sh("ip addr add 10.9.0.253/24 dev br0")?;
        lan.place.0[0] = "0.0.0.0:8443".to_owned();
        lan.place.0[1] = new.to_owned();
        lan.serve(&["--url", &old])?;
        eventually("a learns where it is", seconds(PATIENCE), || {
            lan.status(A).is_ok_and(|status| status["server"]["urls"][0] == new)
        })?;
        // then only at the new one
        lan.serve.as_mut().context("it runs")?.kill()?;
        lan.server.sh(&format!(
            "ip addr del {SERVER}/24 dev br0
             ip addr show dev br0 | grep -q 10.9.0.253 || ip addr add 10.9.0.253/24 dev br0"
        ))?;
        lan.place.0[2] = "10.9.0.253:3478".to_owned();
        lan.serve(&[])?;
        eventually("a is in touch", seconds(PATIENCE), || is_in_touch(lan, A))?;
        lan.daemon(B)?;
        std::thread::sleep(seconds(3));
        ensure!(!is_in_touch(lan, B), "the control: it knows the old place only");
        let newer = lan.token(&["--reusable"])?;
        lan.up(B, &newer, &[])?;
        eventually("b is in touch", seconds(PATIENCE), || is_in_touch(lan, B))?;
        let status = lan.status(B)?;
        ensure!(status["self"]["name"] == "b" && status["server"]["urls"][0] == new, "{status}");
        ensure!(status["self"]["addresses"][0] == "100.64.0.2", "the same node: {status}");
        lan.reaches(A, "100.64.0.2")?;
        Ok(())
    })
}
