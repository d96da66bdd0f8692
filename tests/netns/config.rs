//! Cases 22 to 28: configuration by the stock `wg`, in small and in bulk.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use crate::support::daemon::wg;
use crate::support::keys::{decode, hex};
use crate::support::{
    KeyPair, Outer, Pair, Plan, Result, Sut, ensure, eventually, preshared_key, scene, seconds,
    uapi,
};

#[test]
fn case_22_persistent_keepalive_is_sent_when_the_interface_comes_up() -> Result<()> {
    scene("n22", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [true, false], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        let (one, two) = (&pair.one, &pair.two);
        let (key_one, key_two) = (one.keys.public_text(), two.keys.public_text());
        one.host.sh(&format!("ip link set {} down", one.daemon.ifname))?;
        sleep(Duration::from_millis(300));
        one.daemon.set(&format!("peer {key_two} persistent-keepalive 1"))?;
        sleep(Duration::from_millis(1500));
        ensure!(two.daemon.transfer(&key_one)?.0 == 0, "sent although the interface is down");
        one.host.sh(&format!("ip link set {} up", one.daemon.ifname))?;
        let came = || two.daemon.handshake_s(&key_one).is_ok_and(|at| at > 0);
        eventually("a handshake after `up`", seconds(3), came)?;
        let before = two.daemon.transfer(&key_one)?.0;
        sleep(Duration::from_millis(2500));
        let kept = two.daemon.transfer(&key_one)?.0 - before;
        ensure!((32..=4 * 32).contains(&kept), "in 2.5 s {kept} bytes of keepalives came");
        Ok(())
    })
}

#[test]
fn case_22_persistent_keepalive_is_sent_when_the_private_key_comes_later() -> Result<()> {
    scene("n22k", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [false, false], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        let (one, two) = (&pair.one, &pair.two);
        let (key_one, key_two) = (one.keys.public_text(), two.keys.public_text());
        one.daemon.set("private-key /dev/null")?;
        let endpoint = two.endpoint_v4();
        one.daemon.set(&format!("peer {key_two} endpoint {endpoint} persistent-keepalive 1"))?;
        sleep(Duration::from_millis(1500));
        ensure!(one.daemon.transfer(&key_two)?.1 == 0, "sent without a private key");
        one.daemon.set_secret("private-key /dev/stdin", &one.keys.private_text())?;
        let came = || two.daemon.handshake_s(&key_one).is_ok_and(|at| at > 0);
        eventually("a handshake once there is a private key", seconds(3), came).map(drop)
    })
}

/// The allowed addresses of all peers, as `wg` lists them.
fn allowed(daemon: &crate::support::Daemon) -> Result<BTreeSet<String>> {
    let text = daemon.show("allowed-ips")?;
    let words = text.split_whitespace().filter(|word| word.contains(['.', ':']));
    Ok(words.map(str::to_owned).collect())
}

#[test]
fn case_23_configurations_of_any_volume_come_back_as_they_went_in() -> Result<()> {
    scene("n23", |scene| {
        let host = scene.host("one")?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        let peer = || KeyPair::new().public_text();
        let v4 = (0..255).flat_map(|a| (0..256).map(move |b| format!("10.{a}.{b}.0/24")));
        let v6 =
            (0..255).flat_map(|a| (0..256).map(move |b| format!("fd{a:02x}:{:x}::/32", b + 1)));
        let huge: BTreeSet<String> = v4.chain(v6).collect();
        let list = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(",");
        daemon.set_config(&format!(
            "[Peer]\nPublicKey={}\nAllowedIPs={}\n",
            peer(),
            list(&huge)
        ))?;
        let back = allowed(&daemon)?;
        ensure!(back.len() == 255 * 256 * 2, "{} of {} came back", back.len(), huge.len());
        for (peers, each) in [(40_u32, 52_u32), (30, 1), (1, 197), (500, 1)] {
            let mut text = String::new();
            let mut expected = BTreeSet::new();
            for a in 0..peers {
                let mine: BTreeSet<String> =
                    (0..each).map(|b| format!("fd01:{:x}:{:x}::ab/128", a + 1, b + 1)).collect();
                text += &format!("[Peer]\nPublicKey={}\nAllowedIPs={}\n", peer(), list(&mine));
                expected.extend(mine);
            }
            daemon.set_config(&text)?;
            ensure!(allowed(&daemon)? == expected, "{peers} peers with {each} each");
            ensure!(daemon.show("peers")?.lines().count() == peers as usize, "{peers} peers");
        }
        Ok(())
    })
}

#[test]
fn case_24_single_allowed_ips_are_removed() -> Result<()> {
    scene("n24", |scene| {
        let host = scene.host("one")?;
        let name = scene.ifname("a");
        let daemon = scene.daemon(&Sut::under_test(), &host, &name)?;
        let keys = KeyPair::new();
        let v4: Vec<String> = (0..197).map(|n| format!("192.168.4.{n}/32")).collect();
        let v6: Vec<String> = (0..197).map(|n| format!("fd04::{n:x}/128")).collect();
        let mut all: BTreeSet<String> = v4.iter().chain(&v6).cloned().collect();
        let list = all.iter().cloned().collect::<Vec<_>>().join(",");
        daemon.set(&format!("peer {} allowed-ips {list}", keys.public_text()))?;
        ensure!(allowed(&daemon)?.len() == 394, "394 were set");
        let gone = [&v4[0], &v4[1], &v4[196], &v6[0], &v6[100], &v6[196]];
        let mut request = format!("set=1\npublic_key={}\nupdate_only=true\n", hex(&keys.public));
        for prefix in gone {
            request += &format!("allowed_ip=-{prefix}\n");
            all.remove(prefix);
        }
        let reply = uapi::ask(&name, &format!("{request}\n"))?;
        if uapi::errno(&reply) != Some(0) && !Sut::under_test().is_warren() {
            eprintln!("skipped: this program is older than the removal of single allowed IPs");
            return Ok(());
        }
        ensure!(uapi::errno(&reply) == Some(0), "the removal was refused: {reply}");
        let left = allowed(&daemon)?;
        ensure!(left == all && left.len() == 388, "{} are left of 388", left.len());
        // What is not there, and what another peer has, stays as it is.
        let other = KeyPair::new();
        daemon.set(&format!("peer {} allowed-ips 192.168.5.1/32", other.public_text()))?;
        let request = format!(
            "set=1\npublic_key={}\nallowed_ip=-192.168.5.1/32\nallowed_ip=-192.168.9.9/32\n\n",
            hex(&keys.public)
        );
        ensure!(uapi::errno(&uapi::ask(&name, &request)?) == Some(0), "refused");
        ensure!(allowed(&daemon)?.len() == 389, "another peer's address was taken");
        Ok(())
    })
}

#[test]
fn case_25_showing_what_does_not_exist_fails() -> Result<()> {
    let output = wg(&["show", "wtnosuch"], "")?;
    ensure!(!output.status.success(), "`wg show` of no interface succeeded");
    Ok(())
}

#[test]
fn case_26_keys_are_set_read_back_and_cleared() -> Result<()> {
    scene("n26", |scene| {
        let host = scene.host("one")?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        let (own, peer) = (KeyPair::new(), KeyPair::new().public_text());
        // Bits that X25519 ignores are set wrongly on purpose.
        let mut unclamped = own.secret;
        unclamped[0] |= 7;
        unclamped[31] |= 0x80;
        let text = KeyPair::from_secret(unclamped).private_text();
        daemon.set_secret("private-key /dev/stdin", &text)?;
        let back = decode(&daemon.show("private-key")?);
        let mut clamped = unclamped;
        clamped[0] &= 0xf8;
        clamped[31] = (clamped[31] & 0x7f) | 0x40;
        ensure!(back == clamped, "the private key did not come back clamped");
        let public = KeyPair::from_secret(clamped).public_text();
        ensure!(daemon.show("public-key")? == public, "the public key is another's");
        let psk = preshared_key();
        daemon.set_secret(&format!("peer {peer} preshared-key /dev/stdin"), &psk)?;
        ensure!(daemon.show_peer("preshared-keys", &peer)? == psk, "the psk did not come back");
        daemon.set(&format!("peer {peer} preshared-key /dev/null"))?;
        ensure!(daemon.show_peer("preshared-keys", &peer)? == "(none)", "the psk stayed");
        daemon.set("private-key /dev/null")?;
        ensure!(daemon.show("private-key")? == "(none)", "the private key stayed");
        // Our own public key is no peer: neither set after the private key nor before it.
        daemon.set_secret("private-key /dev/stdin", &text)?;
        let own_peer = format!("peer {public} allowed-ips 10.1.1.1/32");
        let _refused_or_ignored = daemon.set(&own_peer);
        ensure!(!daemon.show("peers")?.contains(&public), "we became our own peer");
        daemon.set("private-key /dev/null")?;
        daemon.set(&own_peer)?;
        ensure!(daemon.show("peers")?.contains(&public), "without a key it is anybody's");
        daemon.set_secret("private-key /dev/stdin", &text)?;
        ensure!(!daemon.show("peers")?.contains(&public), "we stayed our own peer");
        ensure!(daemon.show("peers")? == peer, "the other peer is gone");
        Ok(())
    })
}

#[test]
fn case_27_overlapping_prefixes_go_to_their_last_owner() -> Result<()> {
    scene("n27", |scene| {
        let host = scene.host("one")?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        let [a, b, c] = [(); 3].map(|()| KeyPair::new().public_text());
        let give = |peer: &str, list: &str| daemon.set(&format!("peer {peer} allowed-ips {list}"));
        let has = |peer: &str| -> Result<BTreeSet<String>> {
            let line = daemon.show_peer("allowed-ips", peer)?;
            Ok(line.split_whitespace().map(str::to_owned).collect())
        };
        let set = |list: &[&str]| -> BTreeSet<String> {
            list.iter().map(|&prefix| prefix.to_owned()).collect()
        };
        give(&a, "10.0.0.0/8,fd00::/8")?;
        give(&b, "10.1.0.0/16,10.1.2.0/24,fd00:1::/32")?;
        give(&c, "0.0.0.0/0,::/0,10.1.2.3/32,fd00:1::1/128")?;
        ensure!(has(&a)? == set(&["10.0.0.0/8", "fd00::/8"]), "supernets kept");
        ensure!(has(&b)? == set(&["10.1.0.0/16", "10.1.2.0/24", "fd00:1::/32"]), "subnets kept");
        // The same prefix has one owner, the last, however its host bits were written.
        give(&a, "10.1.77.88/16,fd00:1:ffff::/32")?;
        ensure!(has(&a)? == set(&["10.1.0.0/16", "fd00:1::/32"]), "host bits: {:?}", has(&a)?);
        ensure!(has(&b)? == set(&["10.1.2.0/24"]), "taken over: {:?}", has(&b)?);
        give(&b, "0.0.0.0/0")?;
        ensure!(has(&c)? == set(&["::/0", "10.1.2.3/32", "fd00:1::1/128"]), "{:?}", has(&c)?);
        daemon.set(&format!("peer {a} remove"))?;
        give(&c, "10.1.0.0/16,10.0.0.0/8")?;
        ensure!(has(&c)? == set(&["10.1.0.0/16", "10.0.0.0/8"]), "{:?}", has(&c)?);
        ensure!(has(&b)? == set(&["0.0.0.0/0"]), "{:?}", has(&b)?);
        Ok(())
    })
}

/// Points of low order on Curve25519 and its twist, and their aliases above 2^255 - 19: 0, 1,
/// the two of order eight, p - 1, p, p + 1 (RFC 7748 section 6.1 asks to reject their products).
fn low_order_points() -> [[u8; 32]; 7] {
    let small = |n: u8| {
        let mut point = [0; 32];
        point[0] = n;
        point
    };
    let near_p = |low: u8| {
        let mut point = [0xff; 32];
        (point[0], point[31]) = (low, 0x7f);
        point
    };
    let order_eight = [
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ]
    .map(|text| {
        let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex");
        std::array::from_fn(byte)
    });
    let [a, b] = order_eight;
    [small(0), small(1), a, b, near_p(0xec), near_p(0xed), near_p(0xee)]
}

#[test]
fn case_28_low_order_keys_are_accepted_and_nothing_is_sent() -> Result<()> {
    scene("n28", |scene| {
        let plan = Plan { outer: Outer::Veth, endpoints: [false, false], ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        let capture = crate::support::capture::Capture::start(&pair.two.host, "vb")?;
        for (i, point) in low_order_points().iter().enumerate() {
            let request = format!(
                "set=1\npublic_key={}\nendpoint=10.9.0.2:{}\npersistent_keepalive_interval=1\n\
                 allowed_ip=10.80.0.{i}/32\n\n",
                hex(point),
                1111 + i
            );
            let reply = uapi::ask(&pair.one.daemon.ifname, &request)?;
            ensure!(uapi::errno(&reply) == Some(0), "point {i} was refused: {reply}");
        }
        pair.one.host.sh(&format!("ip route add 10.80.0.0/24 dev {}", pair.one.daemon.ifname))?;
        for i in 0..7 {
            let address = format!("10.80.0.{i}");
            pair.one.host.output(&["ping", "-n", "-c", "1", "-W", "0.2", &address])?;
        }
        sleep(seconds(2));
        let packets = capture.stop()?;
        let sent = packets.iter().filter_map(|packet| crate::support::capture::udp_payload(packet));
        let sent = sent.filter(|(_, port, _)| (1111..1118).contains(port)).count();
        ensure!(sent == 0, "{sent} datagrams went to peers with low-order keys");
        for line in pair.one.daemon.show("transfer")?.lines() {
            let counts: Vec<&str> = line.split_whitespace().skip(1).collect();
            ensure!(counts == ["0", "0"], "counted as sent: {line}");
        }
        Ok(())
    })
}
