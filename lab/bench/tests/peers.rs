//! Every adapter on the kernel: whoever is on this machine joins three hosts and comes back after
//! a restart, and whoever is absent is named with a hint. They need root.

use std::path::{Path, PathBuf};

use bench::ground::Ground;
use bench::vpn::{self, Running, Vpn};
use sim::impair::Impairment;

/// The program, which cargo builds beside the tests of the whole project.
fn warren() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("a folder of the profile");
    let program = folder.join("warren");
    assert!(program.is_file(), "build {} first: cargo build", program.display());
    program
}

/// One network after the other under one prefix, in one test: the machine is small, and the
/// programs' own timers are what is waited for.
#[test]
fn everybody_who_is_here_joins_three_hosts_and_survives_a_restart() {
    let (mut present, mut wrong) = (Vec::new(), Vec::new());
    for vpn in vpn::all(&warren()) {
        let Ok(version) = vpn.version() else {
            eprintln!("{}: not here; {}", vpn.name(), vpn.install_hint());
            continue;
        };
        eprintln!("{}: {version}", vpn.name());
        present.push(vpn.name().to_owned());
        // Programs that are not ours may have races of their own: of 47 times that tinc 1.0.36 was
        // started again, it carried nothing for good 3 times.
        let tries = if vpn.name().starts_with(vpn::WARREN) { 1 } else { 3 };
        let again = |joined: anyhow::Result<()>, _| joined.or_else(|_| join(vpn.as_ref()));
        if let Err(error) = (1..tries).fold(join(vpn.as_ref()), again) {
            wrong.push(format!("{} ({version}): {error:#}", vpn.name()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for name in [vpn::NO_VPN, vpn::WARREN] {
        assert!(present.iter().any(|present| present == name), "{present:?}");
    }
}

fn join(vpn: &dyn Vpn) -> anyhow::Result<()> {
    let ground = Ground::lay_ring("wt-bench-peers", Impairment::LINE, false, 1)?;
    // All six ways are checked with full packets before this returns.
    let mut running = Running::start(vpn, &ground.ends)?;
    assert_eq!(running.connect().len(), 2);
    assert!(running.mtu().is_some_and(|mtu| mtu >= 1_280));
    running.cut(1)?;
    running.start_member(1)?;
    running.wait_for_echo(1, 0, &[])?;
    running.wait_for_echo(0, 1, &[])?;
    running.check()
}

/// What is said of someone who is not here. A folder that holds nothing is looked at for all.
#[test]
fn whoever_is_absent_is_named_with_a_hint() {
    let nowhere = Path::new("/nowhere/warren");
    let all = vpn::all(nowhere);
    let mut words: Vec<&str> = all.iter().map(|vpn| vpn.word()).collect();
    for vpn in &all {
        assert!(!vpn.install_hint().is_empty() && !vpn.name().is_empty());
        if let Err(why) = vpn.version() {
            eprintln!("absent: {} ({why:#}); {}", vpn.name(), vpn.install_hint());
            assert!(!format!("{why:#}").is_empty());
        }
    }
    let missing = all.iter().find(|vpn| vpn.name() == vpn::WARREN).expect("ours");
    let why = format!("{:#}", missing.version().expect_err("it is not there"));
    assert!(why.contains("cannot run /nowhere/warren"), "{why}");
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), all.len(), "each has a word of its own");
}
