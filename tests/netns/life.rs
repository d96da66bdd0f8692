//! Cases 29 and 30: nothing outlives the namespaces it belonged to.

use std::os::unix::fs::MetadataExt as _;

use crate::support::{Node, Outer, Pair, Plan, Result, ensure, eventually, scene, seconds, uapi};

#[test]
fn case_29_a_daemon_ends_when_its_interface_goes_with_a_namespace() -> Result<()> {
    scene("n29", |scene| {
        let pair = Pair::new(scene)?;
        pair.settle()?;
        let (one, two) = (&pair.one, &pair.two);
        // `two` holds nothing but the moved interface, so the namespace goes with its name.
        let namespace = two.host.namespace().to_owned();
        lab_ip(&["netns", "delete", &namespace])?;
        let ended = || !two.daemon.process.is_running();
        eventually("the daemon without an interface ends", seconds(5), ended)?;
        ensure!(!uapi::path(&two.daemon.ifname).exists(), "its control socket stayed");
        ensure!(one.daemon.process.is_running(), "the other daemon ended as well");
        ensure!(one.ping_once(two.v4).is_err(), "a peer that is gone answered");
        Ok(())
    })
}

fn lab_ip(words: &[&str]) -> Result<()> {
    let status = std::process::Command::new("ip").args(words).status()?;
    ensure!(status.success(), "ip {words:?}: {status}");
    Ok(())
}

/// Whether any process still holds the network namespace with this inode.
fn held(inode: u64) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let link = format!("net:[{inode}]");
    let of = |path: std::path::PathBuf| std::fs::read_link(path.join("ns/net"));
    processes.flatten().any(|p| of(p.path()).is_ok_and(|l| l.to_string_lossy() == link))
}

#[test]
fn case_30_interfaces_in_each_others_namespaces_are_all_removed() -> Result<()> {
    scene("n30", |scene| {
        let plan = Plan { outer: Outer::Veth, ..Plan::default() };
        let pair = Pair::with(scene, plan)?;
        let (one, two) = (&pair.one, &pair.two);
        pair.settle()?;
        let swap = |node: &Node, target: &Node| -> Result<()> {
            node.daemon.move_to(&target.host)?;
            let addresses = [format!("{}/24", node.v4)];
            target.host.bring_up(&node.daemon.ifname, &[&addresses[0]])
        };
        swap(one, two)?;
        swap(two, one)?;
        two.host.run(&["ping", "-n", "-c", "1", "-W", "2", two.v4])?;
        let inodes = [one, two].map(|node| std::fs::metadata(node.host.path()).map(|m| m.ino()));
        for node in [one, two] {
            lab_ip(&["netns", "delete", node.host.namespace()])?;
        }
        ensure!(one.daemon.process.is_running(), "a namespace with a process in it stays");
        for node in [one, two] {
            node.daemon.process.stop()?;
            ensure!(!uapi::path(&node.daemon.ifname).exists(), "a control socket stayed");
        }
        for inode in inodes {
            let inode = inode?;
            eventually("the namespace is gone", seconds(3), || !held(inode))?;
        }
        Ok(())
    })
}
