//! Machines whose resolv.conf has an owner: the real systemd-resolved and the real openresolv. They
//! are told of our names, other names stay theirs, and they are as before when we are gone.

use std::fs;

use lab::process::Process;

use super::dns::resolver;
use super::*;

/// The resolver of the machine's own network, on the server's host.
const OWN: &str = "10.9.0.53";
/// A bus without a policy: nobody else is in the namespace.
const BUS: &str = "<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket\
    </listen><auth>EXTERNAL</auth><policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/>\
    <allow send_type=\"method_call\"/><allow send_type=\"signal\"/><allow \
    send_requested_reply=\"true\"/><allow receive_type=\"method_call\"/><allow \
    receive_type=\"method_return\"/><allow receive_type=\"error\"/><allow \
    receive_type=\"signal\"/></policy></busconfig>";

/// What `make setup` unpacked.
fn unpacked(which: &str) -> Result<PathBuf> {
    let path = tools().join("resolvers").join(which);
    ensure!(path.is_dir(), "there is no {}: run `make setup`", path.display());
    Ok(path)
}

/// Two nodes with a `/run` of their own, and a resolver that knows `www.lan.test` alone.
fn owned(id: &str, body: impl FnOnce(&mut Lan) -> Result<()>) -> Result<()> {
    scene(id, |scene| {
        scene.net.borrow_mut().give_own_run();
        let mut lan = Lan::new(scene, id, 2)?;
        let _own = resolver(&lan.server, OWN, "lan.test", "198.51.100.7")?;
        let result = body(&mut lan);
        lan.told(result)
    })
}

/// Programs that node 0's daemon finds first.
fn env(lan: &mut Lan, programs: &str, libraries: &str) {
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    // The test's few strings live as long as it.
    let leaked = |text: String| -> &'static str { String::leak(text) };
    lan.nodes[0].env =
        vec![("PATH", leaked(path)), ("LD_LIBRARY_PATH", leaked(libraries.to_owned()))];
}

/// What programs of node 0 find by name, as the machine resolves it.
fn finds(lan: &Lan, name: &str) -> String {
    let found = lan.nodes[0].host.run(&["getent", "ahostsv4", name]).unwrap_or_default();
    found.split_whitespace().next().unwrap_or_default().to_owned()
}

/// The network's names and the machine's own, long and short.
fn all_found(lan: &Lan) -> bool {
    let all = [
        ("b.warren.internal", "100.64.0.2"),
        ("b", "100.64.0.2"),
        ("www.lan.test", "198.51.100.7"),
        ("www", "198.51.100.7"),
    ];
    all.iter().all(|(name, address)| finds(lan, name) == *address)
}

fn only_own_found(lan: &Lan) -> bool {
    finds(lan, "www") == "198.51.100.7" && finds(lan, "b.warren.internal").is_empty()
}

/// In force, off and on, down and up, killed and ended: each as `all_found` and `only_own_found`
/// say, and at the end the machine as `state` said it was.
fn comes_and_goes(lan: &mut Lan, state: impl Fn(&Lan) -> Result<String>) -> Result<()> {
    let patience = seconds(PATIENCE);
    eventually("the machine's own names", patience, || only_own_found(lan))?;
    let before = state(lan)?;
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    eventually("all names", patience, || all_found(lan)).with_context(|| {
        let found = ["b.warren.internal", "b", "www.lan.test", "www"].map(|name| finds(lan, name));
        format!("found {found:?}\n{}", state(lan).unwrap_or_default())
    })?;
    ensure!(state(lan)? != before, "what is compared at the end tells the difference");
    let back = lan.nodes[0].host.run(&["getent", "hosts", "100.64.0.2"])?;
    ensure!(back.contains("b.warren.internal"), "{back}");

    for (less, more) in [
        (&["set", "--accept-dns=false"][..], &["set", "--accept-dns"][..]),
        (&["down"], &["up", "--timeout", "20s"]),
    ] {
        lan.node(0, less)?;
        eventually(&format!("{less:?}"), patience, || only_own_found(lan))?;
        let after = state(lan)?;
        ensure!(after == before, "{less:?}: before:\n{before}\nafter:\n{after}");
        lan.node(0, more)?;
        eventually(&format!("{more:?}"), patience, || all_found(lan))?;
    }
    // Killed, which the machine's own names survive, and started again.
    lan.nodes[0].daemon = None;
    lan.daemon(0)?;
    eventually("all names after a kill", patience, || all_found(lan))?;
    // Killed, and cleaned up by hand.
    lan.nodes[0].daemon = None;
    let state_of = lan.folder.path("a");
    let Node { host, env, .. } = &lan.nodes[0];
    let mut cleanup = host.command(&[WARREN, "cleanup", "--state", &state_of]);
    said(cleanup.envs(env.iter().copied()))?;
    eventually("the machine's own names alone", patience, || only_own_found(lan))?;
    let after = state(lan)?;
    ensure!(after == before, "cleanup: before:\n{before}\nafter:\n{after}");
    Ok(())
}

/// The bus and systemd-resolved, which has the machine's own resolver on its first link.
struct Resolved {
    resolved: Option<Process>,
    _bus: Process,
    folder: PathBuf,
}

impl Resolved {
    fn libraries(&self) -> String {
        self.folder.join("usr/lib/x86_64-linux-gnu/systemd").display().to_string()
    }

    fn start(lan: &Lan) -> Result<Self> {
        let (host, folder) = (&lan.nodes[0].host, unpacked("resolved")?);
        host.sh("mkdir -p /run/dbus /run/systemd/resolve; rm -f /etc/resolv.conf
             grep -q systemd-resolve /etc/passwd \
             || echo 'systemd-resolve:x:989:989::/:/usr/sbin/nologin' >> /etc/passwd
             grep -q systemd-resolve /etc/group || echo 'systemd-resolve:x:989:' >> /etc/group
             chown systemd-resolve:systemd-resolve /run/systemd/resolve
             ln -s /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf")?;
        let config = lan.folder.0.join("bus.conf");
        fs::write(&config, BUS)?;
        let config = format!("--config-file={}", config.display());
        let bus = host.spawn(&["dbus-daemon", &config, "--nofork", "--nopidfile"])?;
        eventually("a bus", seconds(PATIENCE), || {
            host.sh("test -S /run/dbus/system_bus_socket").is_ok()
        })?;
        let mut resolved = Self { resolved: None, _bus: bus, folder };
        resolved.run(lan)?;
        Ok(resolved)
    }

    /// Starts it, and tells it what a network's configuration would.
    fn run(&mut self, lan: &Lan) -> Result<()> {
        let host = &lan.nodes[0].host;
        let program = self.folder.join("lib/systemd/systemd-resolved").display().to_string();
        let mut command = host.command(&[&program]);
        command.env("LD_LIBRARY_PATH", self.libraries());
        self.resolved = Some(host.spawn_command(command)?);
        eventually("systemd-resolved", seconds(PATIENCE), || self.ctl(lan, &["status"]).is_ok())?;
        self.ctl(lan, &["dns", "eth0", OWN])?;
        self.ctl(lan, &["domain", "eth0", "lan.test"])?;
        Ok(())
    }

    fn ctl(&self, lan: &Lan, words: &[&str]) -> Result<String> {
        let program = self.folder.join("usr/bin/resolvectl").display().to_string();
        let mut command = lan.nodes[0].host.command(&[&program, "--no-pager"]);
        said(command.args(words).env("LD_LIBRARY_PATH", self.libraries()))
    }
}

#[test]
fn dn_07_systemd_resolved_is_told_of_our_names_and_keeps_its_own() -> Result<()> {
    owned("resd", |lan| {
        let mut resolved = Resolved::start(lan)?;
        let programs = resolved.folder.join("usr/bin").display().to_string();
        env(lan, &programs, &resolved.libraries());
        let link = |lan: &Lan, resolved: &Resolved| -> Result<String> {
            // Down, the interface may be there or not; what it is told is what counts.
            let ours = resolved.ctl(lan, &["dns", "warren0"]).unwrap_or_default();
            let ours = ours.split_once("): ").map_or("", |(_, servers)| servers.trim());
            Ok(format!("{ours}\n{}", lan.nodes[0].host.sh("cat /etc/resolv.conf")?))
        };
        comes_and_goes(lan, |lan| link(lan, &resolved))?;

        // It forgets our link when it is started anew, and is told again.
        lan.daemon(0)?;
        eventually("all names", seconds(PATIENCE), || all_found(lan))?;
        resolved.resolved = None;
        let begin = Instant::now();
        resolved.run(lan)?;
        eventually("all names, told again", seconds(PATIENCE), || all_found(lan))?;
        println!("a new systemd-resolved knows our names after {:?}", begin.elapsed());
        Ok(())
    })
}

#[test]
fn dn_07_openresolv_is_told_of_our_names_and_puts_its_own_back() -> Result<()> {
    owned("opre", |lan| {
        let from = unpacked("openresolv")?;
        let (programs, parts) =
            (lan.folder.path("openresolv"), lan.folder.path("openresolv/parts"));
        let host = lan.nodes[0].host.clone();
        host.sh(&format!(
            "mkdir -p /run/resolvconf {programs}; cp -r {}/lib/resolvconf {parts}
             cp {}/sbin/resolvconf {programs}/resolvconf
             sed -i 's|/lib/resolvconf|{parts}|' {programs}/resolvconf {parts}/libc
             rm -f /etc/resolv.conf
             printf 'nameserver {OWN}\\nsearch lan.test\\n' | {programs}/resolvconf -a eth0",
            from.display(),
            from.display(),
        ))?;
        ensure!(host.sh("cat /etc/resolv.conf")?.contains("Generated by resolvconf"));
        env(lan, &programs, "");
        comes_and_goes(lan, |lan| {
            lan.nodes[0].host.sh("cat /etc/resolv.conf; find /run/resolvconf -type f")
        })
    })
}
