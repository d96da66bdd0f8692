//! The stock wg-quick with our program behind it, in the way its users know.

use std::process::Command;

use crate::support::{
    Context as _, Host, Outer, Pair, Plan, Result, Sut, ensure, eventually, scene, seconds,
    snapshot, uapi,
};

/// `wg-quick VERB FILE` in `host`, with `warren-wg` on PATH.
fn wg_quick(host: &Host, dir: &std::path::Path, verb: &str, path: &str) -> Command {
    let mut command = host.command(&["wg-quick", verb, path]);
    let usual = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{}:{usual}:/usr/sbin:/sbin", dir.display()))
        .env("WG_QUICK_USERSPACE_IMPLEMENTATION", "warren-wg");
    command
}

#[test]
fn wg_quick_brings_a_default_route_up_and_down_with_warren_wg() -> Result<()> {
    let kernel = std::path::Path::new("/sys/module/wireguard").exists();
    if !Sut::under_test().is_warren() || kernel {
        eprintln!("skipped: wg-quick would take the kernel's WireGuard, or others are tested");
        return Ok(());
    }
    scene("q1", |scene| {
        let pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        let (one, two) = (&pair.one, &pair.two);
        one.daemon.process.stop()?;
        scene.forget(&one.daemon);
        let (dir, ifname) = (scene.net.borrow().dir(), one.daemon.ifname.as_str());
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_warren"), dir.join("warren-wg"))?;
        let config = one
            .config(two, pair.psk.as_deref(), Some(&two.endpoint_v4()))
            .replace("[Interface]\n", "[Interface]\nAddress = 10.77.0.1/24, fd77::1/64\n")
            .replace("AllowedIPs = ", "AllowedIPs = 0.0.0.0/0, ::/0, ");
        let path = dir.join(format!("{ifname}.conf"));
        std::fs::write(&path, config)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let path = path.to_string_lossy().into_owned();
        let before = snapshot(&one.host)?;
        // Twice: what the first run leaves would be in the way of the second.
        for _ in 0..2 {
            let up = one.host.spawn_command(wg_quick(&one.host, &dir, "up", &path))?;
            let status = up.wait(seconds(10)).with_context(|| up.log())?;
            ensure!(status.success(), "wg-quick up: {status}\n{}", up.log());
            ensure!(up.log().contains("warren-wg"), "it took another one:\n{}", up.log());
            let reached = || one.ping_once(two.v4).is_ok() && one.ping_once(two.v6).is_ok();
            eventually("a ping is answered", seconds(12), reached)?;
            for family in ["-4", "-6"] {
                let rules = one.host.run(&["ip", family, "rule"])?;
                ensure!(rules.contains("suppress_prefixlength 0"), "{rules}");
            }
            let down = one.host.spawn_command(wg_quick(&one.host, &dir, "down", &path))?;
            let status = down.wait(seconds(10)).with_context(|| down.log())?;
            ensure!(status.success(), "wg-quick down: {status}\n{}", down.log());
            let gone = || !uapi::path(ifname).exists();
            eventually("the control socket is gone", seconds(3), gone)?;
            let same = || snapshot(&one.host).is_ok_and(|after| after == before);
            eventually("all is as before", seconds(3), same).with_context(|| {
                format!("before:\n{before}\nafter:\n{}", snapshot(&one.host).unwrap_or_default())
            })?;
        }
        Ok(())
    })
}
