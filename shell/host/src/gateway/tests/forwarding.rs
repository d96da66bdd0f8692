//! What the kernel of a machine that forwards lets through, packet by packet.

use std::process::Command;

use crate::gateway::tests::{State, gateway, in_world, nft, prefixes, set_forwarding, setup};
use crate::gateway::*;
use crate::linux::netlink::tests::ip;

/// Puts a datagram of UDP on the far end of a link, addressed to the near one: a row of device,
/// near end's address, source and destination each.
const SEND: &str = r#"
import socket, struct, sys
def total(data):
    data += b"\0" * (len(data) % 2)
    sum_ = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while sum_ >> 16: sum_ = (sum_ & 0xffff) + (sum_ >> 16)
    return ~sum_ & 0xffff
device, near, source, to = sys.argv[1:5]
v6 = ":" in source
family = socket.AF_INET6 if v6 else socket.AF_INET
ends = socket.inet_pton(family, source) + socket.inet_pton(family, to)
udp = struct.pack("!4H", 7777, 7777, 9, 0) + b"x"
pseudo = ends + struct.pack("!2I", len(udp), 17)
udp = udp[:6] + struct.pack("!H", total(pseudo + udp)) + udp[8:]
if v6:
    head = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + ends
else:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + ends
    head = head[:10] + struct.pack("!H", total(head)) + head[12:]
out = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
kind = 0x86dd if v6 else 0x0800
out.sendto(head + udp, (device, kind, 0, 0, bytes.fromhex(near.replace(":", ""))))
"#;

/// The machine forwards; what goes out by each interface is counted, and so is what comes in.
fn prepare() {
    set_forwarding("1");
    for (device, hosts) in [
        ("wt0", ["100.64.0.5", "fd77::5"]),
        ("lan0", ["192.168.5.9", "fd05::9"]),
        ("out0", ["198.51.100.2", "fd99::2"]),
    ] {
        for host in hosts {
            ip(&format!("neigh replace {host} lladdr 02:00:00:00:00:09 dev {device}"));
        }
    }
    ip("address add fd99::1/64 dev out0 nodad");
    ip("-6 route add default via fd99::2");
    nft(SEEN);
}

/// Counts what goes out by each interface, and what comes in for a program of the machine.
const SEEN: &str = "table inet seen {
    counter wt0 { }
    counter lan0 { }
    counter out0 { }
    counter br0 { }
    counter own { }
    chain out {
        type filter hook postrouting priority 400;
        udp dport 7777 counter name oifname map {
            \"wt0\": \"wt0\", \"lan0\": \"lan0\", \"out0\": \"out0\", \"br0\": \"br0\" }
    }
    chain in {
        type filter hook input priority 400;
        udp dport 7777 counter name own
    }
}";

/// As Docker publishes a container's port.
const PUBLISHED: &str = "table ip published {
    chain pre {
        type nat hook prerouting priority dstnat;
        iifname wt0 ip daddr 100.64.0.1 udp dport 7777 dnat to 172.17.0.9
    }
}";

/// How many packets a counter has counted.
fn counted(name: &str) -> u64 {
    let text = feed("nft", &["list", "counter", "inet", "seen", name], "").unwrap();
    let count = text.split("packets ").nth(1).unwrap().split(' ').next().unwrap();
    count.parse().unwrap()
}

/// Whether a datagram that comes in by `device` passes: leaves by `out`, or comes to a program of
/// the machine (`own`).
fn passes(device: &str, source: &str, to: &str, out: &str) -> bool {
    let before = counted(out);
    let shown = ip(&format!("-o link show {device}0"));
    let near = shown.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let far = format!("{device}1");
    let words = ["-c", SEND, &far, near, source, to];
    let output = Command::new("python3").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // A veth hands over at once; the counter is read by another program.
    counted(out) > before
}

#[test]
fn pf_02_a_machine_that_forwards_leads_nobody_anywhere_until_it_is_a_gateway() {
    in_world(|| {
        prepare();
        let ways = [("100.64.0.5", "192.168.5.9"), ("fd77::5", "fd05::9")];
        for (peer, host) in ways {
            assert!(passes("wt", peer, host, "lan0"), "the control: it forwards");
            assert!(passes("lan", host, peer, "wt0"), "the control");
        }
        let state = State::new("forwarding");
        let mut ours = Gateway::new(&state.0).unwrap();
        let link_only = Setup { link: "wt0".to_owned(), ..Setup::default() };
        let exit = Setup { exit: true, ..setup() };
        for closed in [link_only, setup(), exit] {
            ours.set(&closed).unwrap();
            for (peer, host) in ways {
                assert!(!passes("wt", peer, host, "lan0"), "{peer} to {host}: {closed:?}");
                assert!(!passes("lan", host, peer, "wt0"), "{host} to {peer}: {closed:?}");
                assert!(!passes("wt", peer, peer, "wt0"), "from peer to peer");
            }
            let way = passes("lan", "192.168.5.9", "198.51.100.2", "out0");
            assert!(way || closed.exit, "others' ways are theirs");
        }
        for (setup, v4, v6) in [
            (gateway(), true, true),
            (Setup { serves: prefixes(&["fd05::/64"]), ..setup() }, false, true),
        ] {
            ours.set(&setup).unwrap();
            assert_eq!(passes("wt", ways[0].0, ways[0].1, "lan0"), v4);
            assert_eq!(passes("wt", ways[1].0, ways[1].1, "lan0"), v6);
            assert!(!passes("wt", "192.168.5.77", "192.168.5.9", "lan0"), "in a host's name");
            for (peer, host) in ways {
                assert!(!passes("lan", host, &peer.replace('5', "6"), "wt0"), "it begins nothing");
            }
        }
    });
}

#[test]
fn gw_01_an_exit_leads_to_none_of_the_machines_own_networks_as_they_come_and_go() {
    in_world(|| {
        prepare();
        for line in [
            "address add 203.0.114.1/24 dev lan0",
            "address add 2001:db8:5::1/64 dev lan0 nodad",
            "neigh replace 203.0.114.9 lladdr 02:00:00:00:00:09 dev lan0",
            "neigh replace 2001:db8:5::9 lladdr 02:00:00:00:00:09 dev lan0",
            // Another VPN's, behind a router of its own.
            "route add 203.0.115.0/24 via 192.168.5.9",
        ] {
            ip(line);
        }
        let state = State::new("near");
        let mut ours = Gateway::new(&state.0).unwrap();
        let exit = Setup { serves_exit: true, ..setup() };
        ours.set(&exit).unwrap();
        let (v4, v6) = ("100.64.0.5", "fd77::5");
        assert!(passes("wt", v4, "1.1.1.1", "out0") && passes("wt", v6, "2606:4700::1", "out0"));
        for (peer, near, by) in [
            (v4, "203.0.114.9", "lan0"),
            (v6, "2001:db8:5::9", "lan0"),
            (v4, "203.0.115.9", "lan0"),
            (v4, "198.51.100.2", "out0"),
            (v6, "fd99::2", "out0"),
        ] {
            assert!(!passes("wt", peer, near, by), "{near} is reached through the exit");
        }
        // Another network comes, and one goes.
        for line in [
            "address add 203.0.116.1/24 dev lan0",
            "neigh replace 203.0.116.9 lladdr 02:00:00:00:00:09 dev lan0",
            "address del 203.0.114.1/24 dev lan0",
        ] {
            ip(line);
        }
        ours.set(&exit).unwrap();
        assert!(!passes("wt", v4, "203.0.116.9", "lan0"));
        assert!(passes("wt", v4, "203.0.114.9", "out0"), "it is the Internet's now");
        // What is served is served.
        ours.set(&Setup { serves: prefixes(&["203.0.116.0/24"]), ..exit }).unwrap();
        assert!(passes("wt", v4, "203.0.116.9", "lan0"));
    });
}

#[test]
fn gw_10_nobody_beside_the_network_reaches_us_there_or_speaks_as_us() {
    in_world(|| {
        prepare();
        let state = State::new("own");
        let mut ours = Gateway::new(&state.0).unwrap();
        for setup in [setup(), gateway(), Setup { exit: true, ..setup() }] {
            ours.set(&setup).unwrap();
            for (own, host) in [("100.64.0.1", "192.168.5.9"), ("fd77::1", "fd05::9")] {
                assert!(!passes("lan", host, own, "own"), "{host} to {own}");
                assert!(!passes("lan", own, own, "own"), "{own} in its own name from the LAN");
                assert!(!passes("wt", own, own, "own"), "and from a peer");
            }
            assert!(passes("wt", "100.64.0.5", "100.64.0.1", "own"), "the control");
            assert!(passes("wt", "fd77::5", "fd77::1", "own"), "the control");
        }
    });
}

#[test]
fn containers_of_this_machine_begin_and_are_not_begun_with() {
    in_world(|| {
        prepare();
        for line in [
            "link add br0 type bridge",
            "address add 172.17.0.1/16 dev br0",
            "link add in0 type veth peer name in1",
            "link set in0 master br0",
            "link set br0 up",
            "link set in0 up",
            "link set in1 up",
            "neigh replace 172.17.0.9 lladdr 02:00:00:00:00:09 dev br0",
        ] {
            ip(line);
        }
        let state = State::new("containers");
        let mut ours = Gateway::new(&state.0).unwrap();
        // The bridge's own address is what a container sends to.
        let near = ip("-o link show br0");
        let near = near.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let begins = |to: &str, out: &str| {
            let before = counted(out);
            let words = ["-c", SEND, "in1", &near, "172.17.0.9", to];
            assert!(Command::new("python3").args(words).output().unwrap().status.success());
            counted(out) > before
        };
        for setup in [setup(), gateway()] {
            ours.set(&setup).unwrap();
            assert!(begins("100.64.0.5", "wt0"), "a container asks a peer");
            assert!(begins("100.64.0.1", "own"), "and this machine");
            assert!(!passes("wt", "100.64.0.6", "172.17.0.9", "br0"), "a peer asks a container");
        }
        // A service that the machine publishes for a container is its own.
        nft(PUBLISHED);
        for setup in [setup(), gateway()] {
            ours.set(&setup).unwrap();
            assert!(passes("wt", "100.64.0.6", "100.64.0.1", "br0"), "as published: {setup:?}");
            assert!(!passes("wt", "100.64.0.6", "172.17.0.9", "br0"), "not beside it");
        }
        // A bridge with a way to elsewhere is a LAN.
        ip("link add link out0 name eth7 type macvlan");
        ip("link set eth7 master br0");
        ours.set(&setup()).unwrap();
        assert!(!begins("100.64.0.5", "wt0") && !begins("100.64.0.1", "own"));
    });
}

/// As `/proc/sys` is in a container: nothing in it can be written.
fn close_settings() {
    // SAFETY: unshare takes no memory; it moves this thread alone to a new namespace.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) };
    assert_eq!(rc, 0, "these tests need root");
    for words in [
        "--make-rprivate /",
        "--bind /proc/sys /proc/sys",
        "-o remount,bind,ro /proc/sys /proc/sys",
    ] {
        assert!(Command::new("mount").args(words.split(' ')).status().unwrap().success());
    }
    let error = std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS), "the control");
}

fn set(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

#[test]
fn with_settings_that_cannot_be_written_what_is_right_works_and_the_rest_is_told() {
    let ways = [("100.64.0.5", "192.168.5.9"), ("fd77::5", "fd05::9")];
    // as `docker run --sysctl` sets both, or IPv4 alone
    for forwards_v6 in [true, false] {
        in_world(move || {
            prepare();
            if !forwards_v6 {
                set("ipv6/conf/all/forwarding", "0");
            }
            close_settings();
            let state = State::new("readonly");
            let mut ours = Gateway::new(&state.0).unwrap();
            let warnings = ours.set(&Setup { serves_exit: true, ..gateway() }).unwrap();
            let of_v4 = |text: &&String| text.contains("ipv4");
            assert_eq!(warnings.iter().filter(of_v4).count(), 0, "{warnings:?}");
            assert_eq!(warnings.is_empty(), forwards_v6, "{warnings:?}");
            if !forwards_v6 {
                assert!(warnings[0].contains("docker run --sysctl net.ipv6."), "{warnings:?}");
            }
            assert!(passes("wt", ways[0].0, ways[0].1, "lan0"), "IPv4 is led");
            assert_eq!(passes("wt", ways[1].0, ways[1].1, "lan0"), forwards_v6);
            assert!(passes("wt", ways[0].0, "1.1.1.1", "out0"), "and the exit's");
            let table = feed("nft", &["list", "table", "inet", "warren"], "").unwrap();
            assert!(table.contains("masquerade"), "{table}");
        });
    }
}

#[test]
fn an_exit_is_used_where_the_mark_of_sources_cannot_be_set_and_told_only_where_it_matters() {
    for is_strict in [false, true] {
        in_world(move || {
            for link in ["all", "wt0", "lan0", "out0", "lo", "wt1", "lan1", "out1"] {
                set(&format!("ipv4/conf/{link}/rp_filter"), if is_strict { "1" } else { "0" });
            }
            set("ipv4/conf/all/src_valid_mark", "0");
            close_settings();
            let state = State::new("mark");
            let mut ours = Gateway::new(&state.0).unwrap();
            let warnings = ours.set(&Setup { exit: true, ..setup() }).unwrap();
            assert_eq!(warnings.len(), usize::from(is_strict), "{warnings:?}");
            assert!(warnings.iter().all(|text| text.contains("net.ipv4.conf.all.src_valid_mark")));
            assert!(ip("route get 1.1.1.1").contains("dev wt0"), "everything goes through it");
            assert!(ip("route get 1.1.1.1 mark 30561").contains("dev out0"), "but our own");
        });
    }
}
