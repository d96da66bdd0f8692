//! Starts that must fail, and one with the least privilege that must not.

use std::process::Command;

use crate::support::{
    Context as _, Daemon, Host, Pair, Result, Scene, Sut, ensure, eventually, scene, seconds,
    snapshot, uapi,
};

/// Runs a script in `host` that must end by itself, soon and with a failure; what it printed.
pub fn refused(host: &Host, script: &str, names: &[&str]) -> Result<String> {
    let process = host.spawn(&["sh", "-c", script])?;
    let status = process.wait(seconds(4)).with_context(|| process.log());
    let (status, log) = (status?, process.log());
    ensure!(!status.success(), "it was not refused:\n{log}");
    ensure!(status.code().is_some(), "it was killed by a signal: {status}\n{log}");
    ensure!(!log.contains("panicked"), "it panicked:\n{log}");
    if Sut::under_test().is_warren() {
        for name in names {
            ensure!(log.contains(name), "{name:?} does not occur in what it printed:\n{log}");
        }
    }
    Ok(log)
}

fn nothing_left(host: &Host, ifname: &str) -> Result<()> {
    let links = host.run(&["ip", "-br", "link"])?;
    ensure!(!links.contains(ifname), "an interface was left:\n{links}");
    ensure!(!uapi::path(ifname).exists(), "a control socket was left");
    Ok(())
}

#[test]
fn no_tun_device_is_told() -> Result<()> {
    scene("b01", |scene| {
        let (host, name) = (scene.host("one")?, scene.ifname("a"));
        let start = Sut::under_test().shell(&name);
        let script = format!("exec unshare -m sh -c 'mount -t tmpfs x /dev/net; exec {start}'");
        refused(&host, &script, &["/dev/net/tun"])?;
        nothing_left(&host, &name)
    })
}

#[test]
fn no_capability_is_told() -> Result<()> {
    scene("b02", |scene| {
        let (host, name) = (scene.host("one")?, scene.ifname("a"));
        let start = Sut::under_test().shell(&name);
        let script =
            format!("exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin {start}");
        refused(&host, &script, &["CAP_NET_ADMIN"])?;
        nothing_left(&host, &name)
    })
}

/// A start as user 65534 with one capability and no right to write anywhere else than in its
/// own /var/run/wireguard. Its /dev/net/tun is for everybody, as Debian has it, but not every
/// machine.
fn least_privilege(host: &Host, scene: &Scene, argv: &[String]) -> Result<Command> {
    let dir = scene.net.borrow().dir();
    // The user may not reach the place where the program was built.
    let program = dir.join("program");
    std::fs::copy(&argv[0], &program)?;
    let script = format!(
        "mount -t tmpfs -o mode=0700,uid=65534,gid=65534 x /run/wireguard; \
         mount -t tmpfs x /dev/net; mknod -m 666 /dev/net/tun c 10 200; \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all,+net_admin \
         --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin --no-new-privs {} {}",
        program.display(),
        argv[1..].join(" ")
    );
    std::fs::create_dir_all("/run/wireguard")?;
    Ok(host.command(&["unshare", "-m", "sh", "-ec", &script]))
}

#[test]
fn cap_net_admin_alone_is_enough() -> Result<()> {
    scene("b03", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let ifname = &one.daemon.ifname;
        one.daemon.process.stop()?;
        let process = one.host.spawn_command(least_privilege(
            &one.host,
            scene,
            &Sut::under_test().argv(ifname),
        )?)?;
        let pid = process.pid().to_string();
        // Its control socket is in its own mount namespace, so `wg` goes there too.
        let config = scene.net.borrow().dir().join("config");
        std::fs::write(&config, one.config(two, pair.psk.as_deref(), Some(&two.endpoint_v4())))?;
        let inside = |script: &str| -> Result<String> {
            let script = format!("exec nsenter -t {pid} -m sh -ec '{script}'");
            one.host.run(&["sh", "-ec", &script])
        };
        let set = format!("wg setconf {ifname} {} && wg set {ifname} fwmark 7", config.display());
        eventually("it can be configured", seconds(5), || inside(&set).is_ok())
            .with_context(|| format!("its log:\n{}", process.log()))?;
        has_least_privilege(&pid)?;
        one.host.bring_up(ifname, &["10.77.0.1/24", "fd77::1/64"])?;
        two.point_at(one, &one.endpoint_v4())?;
        eventually("it carries a ping", seconds(8), || one.ping_once(two.v4).is_ok())
            .with_context(|| format!("its log:\n{}", process.log()))?;
        one.ping_once(two.v6)?;
        process.stop()?;
        nothing_left(&one.host, ifname)
    })
}

/// Fails unless this process is that user and has that capability alone.
fn has_least_privilege(pid: &str) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    ensure!(line("Uid:").contains("65534"), "it runs as {}", line("Uid:"));
    ensure!(line("CapEff:").ends_with("0000000000001000"), "it has {}", line("CapEff:"));
    Ok(())
}

#[test]
fn cap_net_admin_alone_is_enough_for_a_link_with_default_routes() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: `link up` is a command of our own");
        return Ok(());
    }
    scene("b08", |scene| {
        let pair = Pair::over_veth(scene)?;
        let (one, two) = (&pair.one, &pair.two);
        let ifname = &one.daemon.ifname;
        one.daemon.process.stop()?;
        scene.forget(&one.daemon);
        let before = snapshot(&one.host)?;
        let config = one
            .config(two, pair.psk.as_deref(), Some(&two.endpoint_v4()))
            .replace("[Interface]\n", "[Interface]\nAddress = 10.77.0.1/24, fd77::1/64\n")
            .replace("AllowedIPs = ", "AllowedIPs = 0.0.0.0/0, ::/0, ");
        let path = scene.net.borrow().dir().join(format!("{ifname}.conf"));
        std::fs::write(&path, config)?;
        std::os::unix::fs::chown(&path, Some(65534), Some(65534))?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let path = path.to_string_lossy().into_owned();
        let argv = [env!("CARGO_BIN_EXE_warren"), "link", "up", &path].map(str::to_owned);
        let process = one.host.spawn_command(least_privilege(&one.host, scene, &argv)?)?;
        process
            .wait_for(|log| log.contains("is up; end it with"))
            .with_context(|| process.log())?;
        has_least_privilege(&process.pid().to_string())?;
        two.point_at(one, &one.endpoint_v4())?;
        eventually("it carries a ping", seconds(8), || one.ping_once(two.v4).is_ok())
            .with_context(|| process.log())?;
        one.ping_once(two.v6)?;
        let log = process.log();
        ensure!(!log.contains("ERROR") && !log.contains("WARN"), "it complains:\n{log}");
        process.stop()?;
        let after = snapshot(&one.host)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}\nlog:\n{log}");
        nothing_left(&one.host, ifname)
    })
}

#[test]
fn a_folder_for_control_sockets_that_is_not_ours_is_told() -> Result<()> {
    scene("b09", |scene| {
        let (host, name) = (scene.host("one")?, scene.ifname("a"));
        let command = least_privilege(&host, scene, &Sut::under_test().argv(&name))?;
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let script = words.last().context("the script")?.replace("uid=65534,gid=65534", "uid=0");
        let script = format!("exec unshare -m sh -ec '{script}'");
        refused(&host, &script, &["/var/run/wireguard", "a folder of this user's"])?;
        nothing_left(&host, &name)
    })
}

#[test]
fn a_name_that_is_taken_is_told() -> Result<()> {
    scene("b04", |scene| {
        let (host, name) = (scene.host("one")?, scene.ifname("a"));
        let sut = Sut::under_test();
        let first = scene.daemon(&sut, &host, &name)?;
        refused(&host, &format!("exec {}", sut.shell(&name)), &[&name])?;
        ensure!(uapi::answers(&name), "the first one's control socket is gone");
        first.process.stop()?;
        nothing_left(&host, &name)?;
        host.run(&["ip", "link", "add", &name, "type", "bridge"])?;
        refused(&host, &format!("exec {}", sut.shell(&name)), &[&name])?;
        ensure!(host.run(&["ip", "link", "show", &name]).is_ok(), "another's interface is gone");
        ensure!(!uapi::path(&name).exists(), "a control socket was left");
        Ok(())
    })
}

#[test]
fn names_that_cannot_be_are_told() -> Result<()> {
    scene("b05", |scene| {
        let host = scene.host("one")?;
        let sut = Sut::under_test();
        let before = host.run(&["ip", "-br", "link"])?;
        let long = "wtsixteenletters";
        for name in [long, "wt/b05", "..", "''", "'wt b05'", "wt%d"] {
            // wireguard-go takes what the kernel makes of it.
            if !sut.is_warren() && ["''", "wt%d", "..", "wt/b05"].contains(&name) {
                continue;
            }
            refused(&host, &format!("exec {}", sut.shell(name)), &[name.trim_matches('\'')])?;
            ensure!(host.run(&["ip", "-br", "link"])? == before, "{name} left an interface");
        }
        ensure!(!uapi::path(long).exists(), "a control socket was left");
        Ok(())
    })
}

#[test]
fn a_port_that_is_taken_is_told_and_the_old_one_stays() -> Result<()> {
    scene("b06", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        for address in ["0.0.0.0:4444", "[::]:4445"] {
            let taken = crate::support::inside::inside(&one.host, || {
                Ok(std::net::UdpSocket::bind(address)?)
            })?;
            let port = taken.local_addr()?.port();
            let error = one.daemon.set(&format!("listen-port {port}")).err();
            let error = error.with_context(|| format!("port {port} was not refused"))?;
            let text = error.to_string();
            ensure!(text.contains("Address already in use"), "{text}");
        }
        if Sut::under_test().is_warren() {
            ensure!(one.daemon.show("listen-port")? == "10001", "the port moved");
            one.ping_once(two.v4)?;
        }
        one.daemon.set("listen-port 4446")?;
        one.ping_once(two.v4)?;
        ensure!(two.daemon.endpoint(&one.keys.public_text())?.ends_with(":4446"), "not followed");
        Ok(())
    })
}

#[test]
fn a_port_that_is_taken_when_the_interface_comes_up_is_told_once_and_tried_again() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others take the interface down, or say nothing");
        return Ok(());
    }
    scene("b61", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        one.host.run(&["ip", "link", "set", &one.daemon.ifname, "down"])?;
        let port = one.port;
        // Until it has noticed that it is down, the port is its own. The first socket that gets
        // it keeps it: a program that another test starts holds copies of all sockets until it
        // has begun, so that a port let go of isn't free at once.
        let taken_by = std::cell::RefCell::new(None);
        let is_taken = || {
            let bind = || Ok(std::net::UdpSocket::bind(("0.0.0.0", port))?);
            *taken_by.borrow_mut() = crate::support::inside::inside(&one.host, bind).ok();
            taken_by.borrow().is_some()
        };
        eventually("the port is free", seconds(3), is_taken)?;
        one.host.run(&["ip", "link", "set", &one.daemon.ifname, "up"])?;
        // Many packets: each would be a reason to try, and to complain.
        let _lost = one
            .host
            .output(&["ping", "-n", "-q", "-W", "1", "-i", "0.002", "-c", "500", two.v4])?;
        let log = one.daemon.process.log();
        let complaints = log.matches("is in use").count();
        ensure!(complaints == 1, "it complained {complaints} times:\n{log}");
        drop(taken_by);
        eventually("it listens by itself", seconds(4), || one.ping_once(two.v4).is_ok())?;
        Ok(())
    })
}

#[test]
fn a_tiny_mtu_carries_what_fits_and_hurts_nothing() -> Result<()> {
    scene("b07", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let (one, two): (_, _) = (&pair.one, &pair.two);
        for mtu in [68, 100, 576, 1279] {
            pair.set_mtu(mtu)?;
            one.ping_sized(two.v4, mtu as usize - 28)?;
            two.ping_sized(one.v4, mtu as usize - 28)?;
            ensure!(one.ping_sized(two.v4, mtu as usize - 27).is_err(), "MTU {mtu} has no effect");
        }
        pair.set_mtu(1420)?;
        one.ping_sized(two.v4, 1392)?;
        alive(&[&one.daemon, &two.daemon])
    })
}

/// Fails if one of these has ended.
pub fn alive(daemons: &[&Daemon]) -> Result<()> {
    for daemon in daemons {
        ensure!(daemon.process.is_running(), "{} has ended", daemon.ifname);
        ensure!(!daemon.process.log().contains("panicked"), "{} panicked", daemon.ifname);
        ensure!(uapi::answers(&daemon.ifname), "{} does not answer", daemon.ifname);
    }
    Ok(())
}
