//! Source 004.5, statement 13: keys change while both ends go on.
//!
//! What holds with WireGuard's own means, and is tested here:
//!
//! - A **preshared key** takes part in handshakes only. A session that is under way stays valid
//!   for 180 s, so the two ends may switch up to a minute apart and nothing is lost: that is the
//!   overlap. Handshakes that fall between the two switches fail and are repeated every 5 s.
//! - A **private key** cannot overlap at the end that changes it: its sessions end at once. The
//!   other end can know the old and the new public key at the same time, as two peers, but an
//!   address belongs to one of them. So what is sent between the switch of one end and the
//!   hand-over of the addresses at the other is lost; nothing else is, and it takes one handshake
//!   from then on. The test measures this gap.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{
    KeyPair, Pair, Result, Scene, ensure, eventually, preshared_key, scene, seconds, traffic,
};

/// Changes the preshared key of one end and, `apart` later, of the other, under a stream.
fn rotate_preshared(pair: &Pair, apart: Duration) -> Result<()> {
    let (one, two) = (&pair.one, &pair.two);
    let psk = preshared_key();
    for (me, peer) in [(one, two), (two, one)] {
        let words = format!("peer {} preshared-key /dev/stdin", peer.keys.public_text());
        me.daemon.set_secret(&words, &psk)?;
        sleep(apart);
    }
    Ok(())
}

fn nothing_is_lost(scene: &Scene, work: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    let pair = Pair::over_veth(scene)?;
    pair.settle()?;
    let (one, two) = (&pair.one, &pair.two);
    let pace = Duration::from_millis(2);
    let up = traffic::Numbered::start(&one.host, &two.host, two.v4, pace)?;
    let down = traffic::Numbered::start(&two.host, &one.host, one.v6, pace)?;
    work(&pair)?;
    for stream in [up, down] {
        let (sent, lost) = stream.stop()?;
        ensure!(lost.is_empty(), "of {sent} datagrams these were lost: {lost:?}");
    }
    Ok(())
}

#[test]
fn source_004_13_preshared_keys_rotate_without_a_loss() -> Result<()> {
    scene("k01", |scene| {
        nothing_is_lost(scene, |pair| {
            rotate_preshared(pair, seconds(2))?;
            rotate_preshared(pair, Duration::from_millis(100))
        })
    })
}

#[test]
#[ignore = "soak: 170 s"]
fn source_004_13_preshared_keys_rotate_30_s_apart_across_a_new_session() -> Result<()> {
    scene("k02", |scene| {
        nothing_is_lost(scene, |pair| {
            let key = pair.two.keys.public_text();
            let first_s = pair.one.daemon.handshake_s(&key)?;
            // The session is renewed at 120 s, between the two switches.
            sleep(seconds(105));
            rotate_preshared(pair, seconds(30))?;
            let renewed_s = pair.one.daemon.handshake_s(&key)?;
            ensure!(renewed_s > first_s + 120, "no session with the new key");
            Ok(())
        })
    })
}

#[test]
fn source_004_13_a_private_key_rotates_with_a_gap_of_one_handshake() -> Result<()> {
    scene("k03", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        let (new, psk) = (KeyPair::new(), pair.psk.clone().unwrap_or_default());
        // The overlap begins: `two` knows both keys, the new one without addresses.
        let words = format!("peer {} preshared-key /dev/stdin", new.public_text());
        two.daemon.set_secret(&words, &psk)?;
        one.ping_once(two.v4)?;
        let pace = Duration::from_millis(2);
        let stream = traffic::Numbered::start(&one.host, &two.host, two.v4, pace)?;
        sleep(Duration::from_millis(500));
        let start = Instant::now();
        one.daemon.set_secret("private-key /dev/stdin", &new.private_text())?;
        let words = format!("peer {} allowed-ips {}/32,{}/128", new.public_text(), one.v4, one.v6);
        two.daemon.set(&words)?;
        eventually("the new key carries", seconds(6), || two.ping_once(one.v4).is_ok())?;
        let gap = start.elapsed();
        sleep(Duration::from_millis(500));
        let (sent, lost) = stream.stop()?;
        let lost_ms = lost.len() as u128 * 2;
        eprintln!("a new private key: {gap:?} until a ping, {} of {sent} lost", lost.len());
        ensure!(lost_ms < 1000, "{lost_ms} ms were lost, more than one handshake takes");
        let contiguous = lost.windows(2).all(|pair| pair[1] - pair[0] < 100);
        ensure!(contiguous, "something was lost apart from the switch: {lost:?}");
        two.daemon.set(&format!("peer {} remove", one.keys.public_text()))?;
        one.ping_once(two.v4).map(drop)
    })
}
