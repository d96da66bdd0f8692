//! Hosts on a real kernel: joined, isolated, and gone afterwards.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use lab::netns::{self, Net};

fn shown(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("the program is installed");
    String::from_utf8(output.stdout).expect("text")
}

/// Everything of ours that the machine shows.
fn traces(prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    for text in [shown("ip", &["netns"]), shown("ip", &["-o", "link"]), mounts] {
        found.extend(text.lines().filter(|l| l.contains(prefix)).map(str::to_owned));
    }
    if netns::is_kept(prefix) || std::path::Path::new(netns::STATE_ROOT).join(prefix).exists() {
        found.insert(format!("{}/{prefix}", netns::STATE_ROOT));
    }
    found
}

#[test]
fn two_hosts_reach_each_other_over_v4_and_v6_and_leave_nothing() {
    let prefix = "wt-lab-pair";
    {
        let mut net = Net::new(prefix).expect("run the tests as root");
        let (a, b) = (net.host("a").expect("host"), net.host("b").expect("host"));
        net.veth(
            (&a, "eth0", &["10.9.0.1/24", "fd09::1/64"]),
            (&b, "eth0", &["10.9.0.2/24", "fd09::2/64"]),
        )
        .expect("veth");
        a.run(&["ping", "-c", "1", "-W", "2", "10.9.0.2"]).expect("v4");
        a.run(&["ping", "-c", "1", "-W", "2", "fd09::2"]).expect("v6");
        let control = a.run(&["sysctl", "-n", "net.ipv4.tcp_congestion_control"]).expect("sysctl");
        assert_eq!(control.trim(), "cubic");
        assert_eq!(a.run(&["hostname"]).expect("hostname").trim(), "a");
        assert!(a.sh("ls /sys/class/net").expect("sysfs").contains("eth0"));
        assert!(!traces(prefix).is_empty(), "the check for traces sees a living lab");
    }
    assert_eq!(traces(prefix), BTreeSet::new());
}

#[test]
fn what_a_host_writes_to_etc_stays_in_the_host() {
    let files = ["/etc/resolv.conf", "/etc/hosts", "/etc/machine-id", "/etc/hostname"];
    let read = || files.map(|file| std::fs::read(file).ok());
    let before = read();
    let mut net = Net::new("wt-lab-etc").expect("net");
    let (a, b) = (net.host("a").expect("host"), net.host("b").expect("host"));
    a.sh("echo nameserver 192.0.2.53 > /etc/resolv.conf").expect("written in place");
    a.sh("echo other > /etc/hosts.new && mv /etc/hosts.new /etc/hosts").expect("replaced");
    a.sh("mkdir /etc/wt-lab-probe && echo x > /etc/wt-lab-probe/x").expect("made");
    let again =
        a.run(&["cat", "/etc/resolv.conf", "/etc/hosts"]).expect("seen by the next program");
    assert_eq!(again, "nameserver 192.0.2.53\nother\n");
    assert!(!b.run(&["cat", "/etc/resolv.conf"]).expect("b").contains("192.0.2.53"));
    assert!(!b.output(&["test", "-e", "/etc/wt-lab-probe"]).expect("b").status.success());
    let ids = [&a, &b].map(|h| h.run(&["cat", "/etc/machine-id"]).expect("id"));
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0].trim().len(), 32);
    assert!(!std::path::Path::new("/etc/wt-lab-probe").exists());
    assert_eq!(read(), before);
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_and_nothing_else_is() {
    let mut bystander = Net::new("wt-lab-crash-not").expect("net");
    let spared = bystander.host("a").expect("host");
    let living = spared.spawn(&["sleep", "60"]).expect("sleep");

    let mut crashed = Net::new("wt-lab-crash").expect("net");
    let host = crashed.host("a").expect("host");
    let left = host.command(&["sleep", "60"]).spawn().expect("sleep").id();
    // A killed process drops nothing; it only loses its lock.
    crashed.keep().expect("kept");
    std::fs::remove_file("/run/warren-lab/wt-lab-crash/kept").expect("as if never recorded");

    let next = Net::new("wt-lab-crash").expect("cleared");
    assert!(next.hosts().is_empty());
    let stat = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the left process was ended: {stat}");
    assert!(!shown("ip", &["netns"]).contains("wt-lab-crash-a"));
    assert!(living.is_running(), "only what is ours is ended");
    spared.run(&["true"]).expect("the other lab still stands");
}

#[test]
fn a_prefix_in_use_is_refused() {
    let _net = Net::new("wt-lab-twice").expect("net");
    let refused = Net::new("wt-lab-twice").expect_err("in use").to_string();
    assert!(refused.contains("wt-lab-twice"), "{refused}");
}

#[test]
fn a_process_is_followed_and_ended() {
    let mut net = Net::new("wt-lab-proc").expect("net");
    let host = net.host("a").expect("host");
    let script = "echo up; trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done";
    let process = host.spawn(&["sh", "-c", script]).expect("sh");
    process.wait_for(|log| log.contains("up")).expect("ready");
    assert!(process.rss_kib() > 0);
    assert_eq!(process.stop().expect("stopped").code(), Some(3));
    assert!(process.log().contains("bye"));

    let stubborn = host.spawn(&["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]);
    let stubborn = stubborn.expect("sh");
    stubborn.wait_for(|log| log.contains("up")).expect("ready");
    let pid = stubborn.pid();
    drop(stubborn);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());

    let brief = host.spawn(&["sh", "-c", "echo no such thing >&2; exit 1"]).expect("sh");
    let error = brief.wait_for_within(Duration::from_secs(5), |log| log.contains("up"));
    assert!(error.expect_err("ended").to_string().contains("no such thing"));
}
