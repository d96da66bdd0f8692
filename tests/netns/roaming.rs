//! Cases 7 to 10: endpoints and sources are what was authenticated, keys change at once.

use crate::support::{
    KeyPair, Pair, Result, ensure, eventually, scene, seconds, traffic::udp_arrives,
};
use std::time::Duration;

#[test]
fn case_07_roaming_ipv4_endpoint_is_learned() -> Result<()> {
    scene("n07", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        pair.outer.sh("ip addr del 127.0.0.1/8 dev lo; ip addr add 127.212.121.99/8 dev lo")?;
        pair.one.daemon.set("listen-port 9999")?;
        pair.one.daemon.wait_bound(9999)?;
        pair.one.point_at(&pair.two, "127.0.0.1:10002")?;
        pair.one.ping_once(pair.two.v6)?;
        let learned = pair.two.daemon.endpoint(&pair.one.keys.public_text())?;
        ensure!(learned == "127.212.121.99:9999", "learned {learned}");
        // The way back uses what was learned.
        pair.two.ping_once(pair.one.v4)?;
        Ok(())
    })
}

#[test]
fn case_08_roaming_to_ipv6_endpoint_is_learned() -> Result<()> {
    scene("n08", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        pair.one.daemon.set("listen-port 9998")?;
        pair.one.daemon.wait_bound(9998)?;
        pair.one.point_at(&pair.two, "[::1]:10002")?;
        pair.one.ping_once(pair.two.v4)?;
        let learned = pair.two.daemon.endpoint(&pair.one.keys.public_text())?;
        ensure!(learned == "[::1]:9998", "learned {learned}");
        pair.two.ping_once(pair.one.v6)?;
        Ok(())
    })
}

#[test]
fn case_09_a_more_specific_allowed_ip_takes_the_source_but_the_endpoint_follows() -> Result<()> {
    scene("n09", |scene| {
        let pair = Pair::new(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let peer = two.keys.public_text();
        one.daemon.set(&format!("peer {peer} allowed-ips 10.77.0.0/24"))?;
        pair.settle()?;
        let patience = Duration::from_millis(1000);
        ensure!(udp_arrives(&two.host, &one.host, one.v4, patience)?, "refused too early");
        let other = KeyPair::new().public_text();
        one.daemon.set(&format!("peer {other} allowed-ips {}/32", two.v4))?;
        two.daemon.set("listen-port 9997")?;
        two.daemon.wait_bound(9997)?;
        ensure!(!udp_arrives(&two.host, &one.host, one.v4, patience)?, "a foreign source passed");
        let learned = one.daemon.endpoint(&peer)?;
        ensure!(learned == "127.0.0.1:9997", "it was authentic, so the endpoint moves: {learned}");
        // And given back, it passes again.
        one.daemon.set(&format!("peer {other} remove"))?;
        ensure!(udp_arrives(&two.host, &one.host, one.v4, patience)?, "refused for good");
        Ok(())
    })
}

#[test]
fn case_10_a_new_private_key_shakes_hands_at_once() -> Result<()> {
    scene("n10", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        let new = KeyPair::new();
        let old = pair.one.keys.public_text();
        let psk = pair.psk.clone().unwrap_or_default();
        pair.one.daemon.set_secret("private-key /dev/stdin", &new.private_text())?;
        let words = format!(
            "peer {} preshared-key /dev/stdin allowed-ips {}/32,{}/128",
            new.public_text(),
            pair.one.v4,
            pair.one.v6
        );
        pair.two.daemon.set_secret(&words, &psk)?;
        pair.two.daemon.set(&format!("peer {old} remove"))?;
        pair.one.ping_once(pair.two.v4)?;
        pair.two.ping_once(pair.one.v4)?;
        let shaken = || pair.two.daemon.handshake_s(&new.public_text()).is_ok_and(|at| at > 0);
        eventually("the new key's handshake shows", seconds(1), shaken)?;
        ensure!(!pair.two.daemon.show("peers")?.contains(&old), "the old key is still a peer");
        Ok(())
    })
}
