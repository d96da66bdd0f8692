//! Source 004.5, statements 13 and 14: keys by a schedule, and files that are read again while a
//! connection runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use crate::link::Link;
use crate::support::pair::INNER_V4;
use crate::support::{
    KeyPair, Result, Scene, Sut, ensure, eventually, preload, preshared_key, scene, seconds,
    traffic,
};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");

/// Whether there is something to test.
fn applies() -> bool {
    let ours = Sut::under_test().is_warren();
    if !ours {
        eprintln!("skipped: others have no schedule of keys");
    }
    ours
}

/// A key file as Nest's manual makes it, but shorter.
fn key_file(scene: &Scene, blocks: usize) -> Result<PathBuf> {
    let path = scene.net.borrow().dir().join("key");
    let out = format!("of={}", path.display());
    let count = format!("count={blocks}");
    let dd = ["if=/dev/urandom", &out, "bs=64", &count, "status=none"];
    let done = std::process::Command::new("dd").args(dd).status()?;
    ensure!(done.success(), "dd: {done}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400))?;
    Ok(path)
}

/// Both ends with a schedule in place of the key that their files have.
fn scheduled<'a>(scene: &'a Scene, lines: &str) -> Result<(Link<'a>, PathBuf)> {
    let key = key_file(scene, 7300)?;
    let link = Link::new(scene, 1420, false)?;
    link.psk_lines.replace(Some(format!("PresharedKeyFile = {}\n{lines}", key.display())));
    Ok((link, key))
}

fn told(link: &Link<'_>, me: usize) -> Result<serde_json::Value> {
    let told = link.hosts[me].run(&[WARREN, "link", "status", "--json", &link.ifname(me)])?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    Ok(told["links"][0]["peers"][0].clone())
}

/// When the session in use was agreed.
fn handshake_s(link: &Link<'_>, me: usize) -> Result<u64> {
    Ok(told(link, me)?["last_handshake_unix_s"].as_u64().unwrap_or_default())
}

/// A period of six seconds, and clocks two seconds apart: four switches under traffic.
#[test]
fn source_004_13_keys_change_on_schedule_under_traffic_and_nothing_is_lost() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("k13", |scene| {
        let (link, _) = scheduled(scene, "PresharedKeySchedule = 6s\nPresharedKeyOverlap = 3s\n")?;
        let dir = scene.net.borrow().dir();
        let offset = dir.join("offset");
        std::fs::write(&offset, "2")?;
        link.env.borrow_mut().extend([
            ("LD_PRELOAD".to_owned(), preload::library("tests/interop/wallclock.rs", &dir)?),
            ("WALLCLOCK_FILE".to_owned(), offset.to_string_lossy().into_owned()),
        ]);
        link.start(0)?;
        link.env.borrow_mut().clear();
        link.start(1)?;
        link.settle()?;
        let [one, two] = &link.hosts;
        let out = traffic::Numbered::start(one, two, INNER_V4[1], Duration::from_millis(2))?;
        let back = traffic::Numbered::start(two, one, INNER_V4[0], Duration::from_millis(2))?;
        let (mut blocks, mut handshakes) = (Vec::new(), Vec::new());
        for _ in 0..25 {
            blocks.push(told(&link, 1)?["keys"]["block"].as_u64().unwrap_or_default());
            handshakes.push(handshake_s(&link, 1)?);
            sleep(seconds(1));
        }
        for stream in [out, back] {
            let (sent, lost) = stream.stop()?;
            eprintln!("{sent} datagrams, lost {}", lost.len());
            ensure!(sent > 5_000 && lost.is_empty(), "of {sent} these were lost: {lost:?}");
        }
        blocks.dedup();
        // A second more or less is that of a clock that was read at another time.
        let renewed = handshakes.windows(2).filter(|pair| pair[1] > pair[0] + 2).count();
        ensure!(blocks.len() >= 4, "the block changes each six seconds: {blocks:?}");
        ensure!(renewed >= 3, "each key gets its session: {handshakes:?}");
        for me in 0..2 {
            let keys = told(&link, me)?["keys"].clone();
            ensure!(keys["state"] == "good", "{keys}");
        }
        // A clock that is wrong by more than the overlap: who answers a handshake knows.
        std::fs::write(&offset, "60")?;
        let state = |me: usize| {
            told(&link, me).map_or_else(|_| String::new(), |peer| peer["keys"]["state"].to_string())
        };
        let apart = || (0..2).find(|me| state(*me).contains("clocks apart"));
        eventually("the clocks are told to be apart", seconds(20), || {
            let _ = link.ping(0);
            apart().is_some()
        })?;
        let me = apart().unwrap_or_default();
        let shown = link.hosts[me].run(&[WARREN, "link", "status", &link.ifname(me)])?;
        ensure!(shown.contains("this machine's, and keys overlap by 3 s"), "{shown}");
        eventually("the other end knows that something is wrong", seconds(20), || {
            let _ = link.ping(0);
            !state(1 - me).contains("good")
        })
        .map(drop)
    })
}

/// While one connection of TCP runs: a peer more, with its route, other keys, by command and by
/// signal; and what is wrong changes nothing.
#[test]
fn source_004_14_a_link_reads_peers_and_keys_again_while_tcp_runs() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("k14", |scene| {
        let link = Link::new(scene, 1420, false)?;
        let pid_file = scene.net.borrow().dir().join("pid");
        link.args.replace(vec!["--pid-file".to_owned(), pid_file.to_string_lossy().into_owned()]);
        link.start(0)?;
        link.args.borrow_mut().clear();
        link.start(1)?;
        link.settle()?;
        let [one, two] = &link.hosts;
        let pid = std::fs::read_to_string(&pid_file)?;
        ensure!(pid.trim() == link.daemon(0)?.process.pid().to_string(), "the pid file has {pid}");
        let server = traffic::iperf_server(two, INNER_V4[1])?;
        let argv = ["iperf3", "-J", "-c", INNER_V4[1], "-t", "8", "-b", "50M"];
        let client = one.spawn(&argv)?;
        sleep(seconds(1));
        let name = link.ifname(0);
        let reload = |me: usize| {
            link.write(me)?;
            link.hosts[me].run(&[WARREN, "link", "reload", &link.ifname(me)])
        };
        // A peer more, and its route.
        let third = KeyPair::new().public_text();
        let peer = format!("\n[Peer]\nPublicKey = {third}\nAllowedIPs = 10.70.1.0/24\n");
        link.more.borrow_mut()[0] = peer;
        let said = reload(0)?;
        ensure!(said == format!("{name}: read again; 1 change is in force\n"), "{said}");
        let routes = one.run(&["ip", "-4", "route"])?;
        ensure!(routes.contains("10.70.1.0/24 dev"), "{routes}");
        ensure!(reload(0)?.ends_with("nothing changed\n"), "the same file once again");
        // New preshared keys, one end after the other, and a handshake in between at each.
        for _ in 0..2 {
            link.psk.replace(preshared_key());
            for me in 0..2 {
                reload(me)?;
                sleep(Duration::from_millis(500));
            }
        }
        // Without it, by signal.
        link.more.borrow_mut()[0].clear();
        link.write(0)?;
        one.run(&["sh", "-c", &format!("kill -HUP $(cat {})", pid_file.display())])?;
        let gone = || one.run(&["ip", "-4", "route"]).is_ok_and(|text| !text.contains("10.70.1"));
        eventually("the route is gone with its peer", seconds(5), gone)?;
        // A file that became wrong, and key files that did.
        link.psk_lines.replace(Some("PresharedKeyFile = nowhere\n".to_owned()));
        link.write(0)?;
        let wrong = one.output(&[WARREN, "link", "reload", &name])?;
        let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
        ensure!(!wrong.status.success() && error.contains("No such file"), "{error}");
        ensure!(error.contains("nothing was changed"), "{error}");
        let absent = one.output(&[WARREN, "link", "reload", "wtnone"])?;
        ensure!(!absent.status.success(), "there is no such link");
        let status = client.wait(seconds(20))?;
        let log = client.log();
        ensure!(status.success(), "iperf3: {status}\n{log}");
        let report: serde_json::Value = serde_json::from_str(&log)?;
        let again = &report["end"]["sum_sent"]["retransmits"];
        let rate = traffic::received_bits_s(&report) / 1e6;
        eprintln!("one connection through 6 reloads: {rate:.1} Mbit/s, {again} retransmits");
        ensure!(rate > 30.0, "it stood still: {rate:.1} of 50 Mbit/s");
        drop(server);
        link.stop(0)?;
        ensure!(!pid_file.exists(), "the pid file goes with its process");
        Ok(())
    })
}

/// A key file that is changed in use goes on as it was read, which is told, until it is read again.
#[test]
fn source_004_14_a_key_file_that_changes_in_use_is_told_and_read_again_at_both_ends() -> Result<()>
{
    if !applies() {
        return Ok(());
    }
    scene("k15", |scene| {
        let (link, key) = scheduled(scene, "PresharedKeySchedule = 24h\n")?;
        link.start(0)?;
        link.start(1)?;
        link.settle()?;
        ensure!(told(&link, 0)?["key_file"]["changed"].is_null(), "nothing changed yet");
        std::fs::remove_file(&key)?;
        key_file(scene, 100)?;
        let shown = link.hosts[0].run(&[WARREN, "link", "status", &link.ifname(0)])?;
        ensure!(shown.contains("key changed; its keys are used as they were read"), "{shown}");
        link.ping(0)?;
        let stream = traffic::Numbered::start(
            &link.hosts[0],
            &link.hosts[1],
            INNER_V4[1],
            Duration::from_millis(2),
        )?;
        for me in 0..2 {
            link.hosts[me].run(&[WARREN, "link", "reload", &link.ifname(me)])?;
            sleep(seconds(1));
        }
        let (sent, lost) = stream.stop()?;
        ensure!(lost.is_empty(), "of {sent} datagrams these were lost: {lost:?}");
        let peer = told(&link, 0)?;
        ensure!(peer["keys"]["blocks"] == 100 && peer["key_file"]["changed"].is_null(), "{peer}");
        // A third file at one end alone: then nothing is agreed, which is told.
        std::fs::remove_file(&key)?;
        key_file(scene, 100)?;
        link.stop(0)?;
        link.start(0)?;
        eventually("the key is refused", seconds(20), || {
            let _ = link.ping(0);
            told(&link, 0).is_ok_and(|peer| peer["keys"]["state"] == "refused")
        })
        .map(drop)
    })
}
