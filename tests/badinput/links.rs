//! `warren link up FILE` with files that are wrong, and its end by any signal.

use crate::support::pair::INNER_V4;
use crate::support::{
    Host, KeyPair, Result, Scene, Sut, ensure, eventually, preload, scene, seconds, snapshot, uapi,
};

use super::refusals::refused;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");

/// Whether these tests have something to test.
fn applies() -> bool {
    let ours = Sut::under_test().is_warren();
    if !ours {
        eprintln!("skipped: `link up` is a command of our own");
    }
    ours
}

/// Writes a file for `ifname`, 0600, and returns its path.
fn file(scene: &Scene, ifname: &str, text: &str) -> Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = scene.net.borrow().dir().join(format!("{ifname}.conf"));
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path.to_string_lossy().into_owned())
}

fn interface(rest: &str) -> String {
    format!("[Interface]\nPrivateKey = {}\n{rest}", KeyPair::new().private_text())
}

fn peer(rest: &str) -> String {
    format!("\n[Peer]\nPublicKey = {}\n{rest}", KeyPair::new().public_text())
}

#[test]
fn a_malformed_file_is_told_with_its_line() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b40", |scene| {
        let host = scene.host("one")?;
        let before = snapshot(&host)?;
        let good = interface("Address = 10.77.0.1/24\n");
        let cases = [
            ("[Interface]\nPrivateKey = short\n".to_owned(), 2, "PrivateKey"),
            (interface("Adress = 10.0.0.1/24\n"), 3, "Adress"),
            (interface("Address = 10.0.0.1/33\n"), 3, "10.0.0.1/33"),
            (interface("ListenPort = 70000\n"), 3, "70000"),
            (interface("MTU = 67\n"), 3, "MTU"),
            (interface("MTU = 70000\n"), 3, "MTU"),
            (interface("Table = maybe\n"), 3, "maybe"),
            (interface("FwMark = much\n"), 3, "much"),
            (format!("{good}[Pear]\n"), 4, "Pear"),
            (format!("{good}no equals sign\n"), 4, "no equals sign"),
            (format!("Address = 10.0.0.1/24\n{good}"), 1, "Address"),
            (format!("{good}{}", peer("AllowedIPs = 10.0.0.0/8, ten\n")), 7, "ten"),
            (format!("{good}{}", peer("Endpoint = 192.0.2.1\n")), 7, "192.0.2.1"),
            (format!("{good}{}", peer("PersistentKeepalive = 65536\n")), 7, "65536"),
            (format!("{good}{}", peer("PresharedKey = x\n")), 7, "PresharedKey"),
            (format!("{good}\n[Peer]\nAllowedIPs = 10.0.0.0/8\n"), 5, "PublicKey"),
        ];
        for (text, line, named) in cases {
            let path = file(scene, &scene.ifname("a"), &text)?;
            let said = refused(&host, &format!("exec {WARREN} link up {path}"), &[named])?;
            let place =
                said.contains(&format!(":{line}:")) || said.contains(&format!("line {line}"));
            ensure!(place, "line {line} is not named:\n{said}\nof:\n{text}");
            ensure!(snapshot(&host)? == before, "something was left by:\n{text}");
        }
        Ok(())
    })
}

#[test]
fn a_file_that_others_may_read_or_that_is_missing_is_told() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b41", |scene| {
        let host = scene.host("one")?;
        let missing = "/nonexistent/wtb41.conf";
        refused(&host, &format!("exec {WARREN} link up {missing}"), &[missing])?;
        let path = file(scene, &scene.ifname("a"), &interface("Address = 10.77.0.1/24\n"))?;
        let script = format!("chmod 0644 {path}; exec timeout -s INT 2 {WARREN} link up {path}");
        let process = host.spawn(&["sh", "-c", &script])?;
        process.wait(seconds(4))?;
        let log = process.log();
        ensure!(log.contains(&path), "a key that everybody can read is not told:\n{log}");
        Ok(())
    })
}

#[test]
fn a_port_in_use_is_told_and_nothing_is_left() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b42", |scene| {
        let host = scene.host("one")?;
        let taken = crate::support::inside::inside(&host, || {
            Ok(std::net::UdpSocket::bind("0.0.0.0:4444")?)
        })?;
        let before = snapshot(&host)?;
        let text = interface("Address = 10.77.0.1/24\nListenPort = 4444\n");
        let path = file(scene, &scene.ifname("a"), &text)?;
        refused(&host, &format!("exec {WARREN} link up {path}"), &["4444", "in use"])?;
        ensure!(snapshot(&host)? == before, "something was left");
        drop(taken);
        Ok(())
    })
}

/// Brings a link with default routes up and ends it by `signal`.
fn ended(scene: &Scene, host: &Host, path: &str, signal: i32) -> Result<()> {
    let ifname = scene.ifname("a");
    let process = host.spawn(&[WARREN, "link", "up", path])?;
    let up = || {
        let rules = host.run(&["ip", "rule"]).unwrap_or_default();
        let has = host.run(&["ip", "-br", "addr", "show", &ifname]);
        has.is_ok_and(|text| text.contains(INNER_V4[0])) && rules.contains("suppress_prefixlength")
    };
    eventually("the link is up with its rules", seconds(5), up)
        .map_err(|error| error.context(process.log()))?;
    process.signal(signal)?;
    process.wait(seconds(3))?;
    Ok(())
}

#[test]
fn a_link_with_default_routes_leaves_nothing_after_any_signal() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b43", |scene| {
        let host = scene.host("one")?;
        let before = snapshot(&host)?;
        let text = interface("Address = 10.77.0.1/24, fd77::1/64\nMTU = 1380\n")
            + &peer("AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 127.0.0.1:9\n");
        let path = file(scene, &scene.ifname("a"), &text)?;
        for signal in [libc::SIGTERM, libc::SIGINT] {
            ended(scene, &host, &path, signal)?;
            let after = snapshot(&host)?;
            ensure!(after == before, "signal {signal}, before:\n{before}\nafter:\n{after}");
        }
        // Nobody can clear up after a kill but the next start.
        ended(scene, &host, &path, libc::SIGKILL)?;
        ended(scene, &host, &path, libc::SIGTERM)?;
        let after = snapshot(&host)?;
        ensure!(after == before, "after a kill and a restart, before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

#[test]
fn lc_16_a_link_that_panics_takes_its_routes_and_rules_with_it() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b45", |scene| {
        let host = scene.host("one")?;
        let before = snapshot(&host)?;
        let text = interface("Address = 10.77.0.1/24, fd77::1/64\nMTU = 1380\n")
            + &peer("AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 127.0.0.1:9\n");
        let ifname = scene.ifname("a");
        let path = file(scene, &ifname, &text)?;
        let dir = scene.net.borrow().dir();
        let fails = dir.join("random-fails");
        let mut command = host.command(&[WARREN, "link", "up", &path]);
        command
            .env("LD_PRELOAD", preload::library(preload::REFUSING, &dir)?)
            .env("RANDOM_FAILS", &fails);
        let process = host.spawn_command(command)?;
        let rules = || host.run(&["ip", "-6", "rule"]).unwrap_or_default();
        eventually("the link is up", seconds(5), || rules().contains("suppress_prefixlength"))
            .map_err(|error| error.context(process.log()))?;
        ensure!(snapshot(&host)? != before, "the link left no trace while it was up");
        std::fs::write(&fails, "")?;
        // The first packet wants a handshake, which wants randomness.
        let _lost = host.run(&["ping", "-n", "-c", "1", "-W", "1", "10.77.0.9"]);
        let status = process.wait(seconds(5))?;
        let log = process.log();
        ensure!(log.contains("panicked"), "it did not panic: {status}\n{log}");
        ensure!(!status.success(), "a panic is no success");
        let after = snapshot(&host)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}\nlog:\n{log}");
        ensure!(!uapi::path(&ifname).exists(), "its control socket stayed");
        Ok(())
    })
}

/// The words of a log line for each step of a default route name table and family as people do.
#[test]
fn the_rules_of_a_default_route_are_logged_as_people_call_them() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b46", |scene| {
        let host = scene.host("one")?;
        let text = interface("Address = 10.77.0.1/24, fd77::1/64\n")
            + &peer("AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 127.0.0.1:9\n");
        let path = file(scene, &scene.ifname("a"), &text)?;
        let script = format!("exec timeout -s INT 2 {WARREN} link up {path}");
        let process = host.spawn(&["sh", "-c", &script])?;
        process.wait(seconds(4))?;
        let log = process.log();
        for family in ["IPv4", "IPv6"] {
            let spared = format!("{family} rule: table main, but for its default route");
            ensure!(log.matches(&spared).count() == 1, "{spared:?} is not there once:\n{log}");
            ensure!(log.contains(&format!("{family} rule: what has no mark 51820")), "{log}");
        }
        Ok(())
    })
}

#[test]
fn scripts_in_a_file_run_only_when_they_are_allowed() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("b44", |scene| {
        let host = scene.host("one")?;
        let dir = scene.net.borrow().dir();
        let mark = dir.join("mark");
        let text =
            interface(&format!("Address = 10.77.0.1/24\nPostUp = touch {}\n", mark.display()));
        let path = file(scene, &scene.ifname("a"), &text)?;
        for (flag, ran) in [("", false), ("--allow-scripts", true)] {
            let script = format!("exec timeout -s INT 2 {WARREN} link up {flag} {path}");
            host.spawn(&["sh", "-c", &script])?.wait(seconds(4))?;
            ensure!(mark.exists() == ran, "with {flag:?} the script ran: {}", mark.exists());
        }
        Ok(())
    })
}
