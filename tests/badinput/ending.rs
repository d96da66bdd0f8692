//! The end of the program by any signal leaves the host as it was.

use crate::support::{
    Daemon, KeyPair, Pair, Result, Sut, ensure, eventually, preload, scene, seconds, snapshot, uapi,
};

/// Ends a configured, carrying program by `signal`; returns what is different afterwards.
fn ended_by(id: &str, signal: i32, polite: bool) -> Result<()> {
    scene(id, |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        one.daemon.process.stop()?;
        scene.forget(&one.daemon);
        let name = &one.daemon.ifname;
        let before = snapshot(&one.host)?;
        let round = |end: bool| -> Result<()> {
            let daemon = scene.daemon(&Sut::under_test(), &one.host, name)?;
            daemon.set_config(&one.config(two, pair.psk.as_deref(), Some(&two.endpoint_v4())))?;
            one.host.bring_up(name, &["10.77.0.1/24", "fd77::1/64"])?;
            one.host.sh(&format!(
                "ip route add 192.0.2.0/24 dev {name}; ip route add default dev {name} table 77"
            ))?;
            eventually("a ping is answered", seconds(8), || one.ping_once(two.v4).is_ok())?;
            if !end {
                return Ok(());
            }
            daemon.process.signal(signal)?;
            let status = daemon.process.wait(seconds(3))?;
            ensure!(status.success() == polite, "it ended with {status}");
            let after = snapshot(&one.host)?;
            ensure!(before == after, "before:\n{before}\nafter:\n{after}");
            ensure!(uapi::path(name).exists() != polite, "its control socket");
            scene.forget(&daemon);
            Ok(())
        };
        round(true)?;
        // A stale socket, if there is one, keeps nobody from starting.
        round(false)
    })
}

#[test]
fn sigterm_leaves_nothing() -> Result<()> {
    ended_by("b30", libc::SIGTERM, true)
}

#[test]
fn sigint_leaves_nothing() -> Result<()> {
    ended_by("b31", libc::SIGINT, true)
}

#[test]
fn after_sigkill_only_the_socket_is_left_and_a_restart_takes_it_over() -> Result<()> {
    ended_by("b32", libc::SIGKILL, false)
}

#[test]
fn lc_16_a_panic_leaves_nothing() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: what makes us panic may not make others");
        return Ok(());
    }
    scene("b35", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        one.daemon.process.stop()?;
        scene.forget(&one.daemon);
        let name = &one.daemon.ifname;
        let before = snapshot(&one.host)?;
        // The random generator fails in the middle of a run, and that is no reason to go on.
        let dir = scene.net.borrow().dir();
        let fails = dir.join("random-fails");
        let mut command = Sut::under_test().command(&one.host, name);
        command
            .env("LD_PRELOAD", preload::library(preload::REFUSING, &dir)?)
            .env("RANDOM_FAILS", &fails);
        let daemon = Daemon::start_command(command, &one.host, name)?;
        scene.watch(&daemon);
        daemon.set_config(&one.config(two, pair.psk.as_deref(), Some(&two.endpoint_v4())))?;
        one.host.bring_up(name, &["10.77.0.1/24", "fd77::1/64"])?;
        one.host.sh(&format!("ip route add 192.0.2.0/24 dev {name}"))?;
        eventually("a ping is answered", seconds(8), || one.ping_once(two.v4).is_ok())?;
        std::fs::write(&fails, "")?;
        // A new key needs a new handshake, which needs randomness; wg sees the end of it.
        let _ended = daemon.set_secret("private-key /dev/stdin", &KeyPair::new().private_text());
        let _lost = one.ping_once(two.v4);
        let status = daemon.process.wait(seconds(3))?;
        let log = daemon.process.log();
        ensure!(log.contains("panicked"), "it did not panic: {status}\n{log}");
        ensure!(!status.success(), "a panic is no success");
        let after = snapshot(&one.host)?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        ensure!(!uapi::path(name).exists(), "its control socket stayed");
        Ok(())
    })
}

#[test]
fn lc_14_removing_the_interface_ends_the_program() -> Result<()> {
    scene("b33", |scene| {
        let host = scene.host("one")?;
        let before = snapshot(&host)?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        host.run(&["ip", "link", "del", &daemon.ifname])?;
        daemon.process.wait(seconds(3))?;
        ensure!(!uapi::path(&daemon.ifname).exists(), "its control socket stayed");
        ensure!(snapshot(&host)? == before, "something stayed");
        Ok(())
    })
}

#[test]
fn removing_the_control_socket_ends_the_program_as_wg_quick_down_expects() -> Result<()> {
    scene("b34", |scene| {
        let host = scene.host("one")?;
        let before = snapshot(&host)?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        std::fs::remove_file(uapi::path(&daemon.ifname))?;
        daemon.process.wait(seconds(3))?;
        ensure!(snapshot(&host)? == before, "something stayed");
        Ok(())
    })
}
