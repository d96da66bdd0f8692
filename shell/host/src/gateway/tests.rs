//! The script against `nft`, the routes against `ip`, and the machine before and after.

use std::process::Command;

use super::*;
use crate::linux::netlink::tests::{in_fresh_namespace, ip, soon};

mod forwarding;

pub(super) fn prefixes(list: &[&str]) -> Vec<Prefix> {
    list.iter().map(|p| p.parse().unwrap()).collect()
}

pub(super) fn setup() -> Setup {
    Setup {
        link: "wt0".to_owned(),
        own: vec!["100.64.0.1".parse().unwrap(), "fd77::1".parse().unwrap()],
        overlay: prefixes(&["100.64.0.0/10", "fd77::/48"]),
        source_nat: true,
        ..Setup::default()
    }
}

pub(super) fn gateway() -> Setup {
    Setup { serves: prefixes(&["192.168.5.0/24", "fd05::/64"]), ..setup() }
}

fn exit() -> Setup {
    Setup { exit: true, exit_lan: true, uses: prefixes(&["10.20.0.0/16"]), ..setup() }
}

/// A state directory, removed on drop.
pub(super) struct State(pub(super) PathBuf);

impl State {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("warren-gw-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A network namespace with a link `wt0`, a LAN on `lan0` and a way out on `out0`, and with a
/// `/proc/sys` that is its own. It forwards nothing, whatever the machine does that the tests run
/// on.
pub(super) fn in_world(body: impl FnOnce() + Send + 'static) {
    in_fresh_namespace(|| {
        set_forwarding("0");
        for end in ["wt", "lan", "out"] {
            ip(&format!("link add {end}0 type veth peer name {end}1"));
            ip(&format!("link set {end}0 addrgenmode none"));
            ip(&format!("link set {end}1 addrgenmode none"));
        }
        for line in [
            "link set lo up",
            "link set wt0 up",
            "link set wt1 up",
            "link set lan0 up",
            "link set lan1 up",
            "link set out0 up",
            "link set out1 up",
            "address add 100.64.0.1/10 dev wt0",
            "address add fd77::1/48 dev wt0 nodad",
            "address add 192.168.5.1/24 dev lan0",
            "address add fd05::1/64 dev lan0 nodad",
            "address add 198.51.100.1/24 dev out0",
            "route add default via 198.51.100.2",
        ] {
            ip(line);
        }
        settle();
        body();
    });
}

/// Waits until the kernel has taken in our addresses of IPv6, which it does when it has time.
fn settle() {
    let is_there = || {
        let shown = ip("-6 route show table local");
        ["local fd05::1", "local fd77::1"].iter().all(|local| shown.contains(local))
    };
    soon(|| if is_there() { Ok(()) } else { Err("the addresses are not there") }).unwrap();
}

/// Has the machine forward everything, or nothing.
pub(super) fn set_forwarding(value: &str) {
    for path in ["ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
    }
}

/// Everything that a gateway changes.
fn machine() -> String {
    let shell = "ip rule; ip -6 rule; ip route show table all | sort
         ip -6 route show table all | sed 's/expires.*//' | sort; nft list ruleset
         cd /proc/sys/net; grep -H . ipv4/ip_forward ipv4/conf/*/forwarding \
         ipv4/conf/all/src_valid_mark ipv6/conf/*/forwarding ipv6/conf/*/accept_ra";
    let output = Command::new("sh").args(["-ec", shell]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn nft(script: &str) {
    feed("nft", &["-f", "-"], script).unwrap();
}

#[test]
fn lc_12_every_setup_is_taken_and_leaves_the_machine_as_it_was() {
    for forwards in ["0", "1"] {
        every_setup_leaves_the_machine_as_it_was(forwards);
    }
}

/// On a machine that forwards everything, or nothing.
fn every_setup_leaves_the_machine_as_it_was(forwards: &'static str) {
    in_world(move || {
        set_forwarding(forwards);
        // a router's advertisements are listened to, one interface forwards already
        std::fs::write("/proc/sys/net/ipv6/conf/lan0/forwarding", "1").unwrap();
        let before = machine();
        let state = State::new("setups");
        let setups = [
            setup(),
            gateway(),
            Setup { source_nat: false, ..gateway() },
            Setup { serves_exit: true, ..setup() },
            Setup {
                serves_exit: true,
                source_nat: false,
                begins: prefixes(&["192.168.5.0/24"]),
                sites: prefixes(&["10.20.0.0/16"]),
                ..gateway()
            },
            Setup { uses: prefixes(&["10.20.0.0/16", "fd20::/64"]), ..setup() },
            exit(),
            Setup { exit_lan: false, ..exit() },
            Setup { led: prefixes(&["0.0.0.0/0"]), doors: true, ..exit() },
            Setup {
                led: prefixes(&["203.0.113.0/24", "203.0.113.64/26"]),
                uses: prefixes(&["203.0.113.0/24"]),
                ..setup()
            },
            Setup {
                own: prefixes(&["100.64.0.1/32"]).iter().map(Prefix::address).collect(),
                ..exit()
            },
            Setup { overlay: prefixes(&["100.64.0.0/10"]), ..gateway() },
            Setup { hands_off: true, serves: prefixes(&["192.168.5.0/24"]), ..exit() },
            Setup { exit: true, serves_exit: true, ..gateway() },
        ];
        let mut gateway = Gateway::new(&state.0).unwrap();
        for (i, from) in setups.iter().enumerate() {
            for to in [&setups[(i + 1) % setups.len()], &setups[(i + 5) % setups.len()]] {
                gateway.set(from).unwrap_or_else(|e| panic!("{i}: {e}"));
                let first = machine();
                gateway.set(from).unwrap();
                assert_eq!(machine(), first, "the same again changes nothing: {i}");
                gateway.set(to).unwrap_or_else(|e| panic!("{i}: {e}"));
            }
            gateway.set(from).unwrap();
        }
        drop(gateway);
        assert_eq!(machine(), before);
        for setup in &setups {
            let mut gateway = Gateway::new(&state.0).unwrap();
            gateway.set(setup).unwrap();
            assert_ne!(machine(), before);
            std::mem::forget(gateway);
            clear_leftovers(&state.0).unwrap();
            assert_eq!(machine(), before, "{setup:?}");
            assert!(
                std::fs::read_dir(&state.0).is_ok_and(|mut d| d.next().is_none())
                    || !state.0.exists()
            );
        }
    });
}

#[test]
fn settings_are_changed_where_they_are_needed_and_given_back_only_if_still_ours() {
    in_world(|| {
        let state = State::new("settings");
        let read = |path: &str| std::fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap();
        let write =
            |path: &str, v: &str| std::fs::write(format!("/proc/sys/net/{path}"), v).unwrap();
        let is = |path: &str| read(path).trim().to_owned();
        let mut ours = Gateway::new(&state.0).unwrap();
        ours.set(&Setup { serves: prefixes(&["192.168.5.0/24"]), ..setup() }).unwrap();
        let on = |name: &str| is(&format!("ipv4/conf/{name}/forwarding"));
        assert_eq!([on("wt0"), on("lan0"), on("out0")], ["1", "1", "0"]);
        assert_eq!([is("ipv4/ip_forward"), is("ipv6/conf/all/forwarding")], ["0", "0"]);
        ours.set(&Setup { serves_exit: true, ..setup() }).unwrap();
        assert_eq!([on("lan0"), on("out0")], ["1", "1"], "an exit's answers come in anywhere");
        assert_eq!([is("ipv6/conf/all/forwarding"), is("ipv6/conf/out0/accept_ra")], ["1", "2"]);
        ours.set(&gateway()).unwrap();
        assert_eq!(on("out0"), "0");
        // Docker comes
        write("ipv4/ip_forward", "1");
        drop(ours);
        assert_eq!([on("lan0"), on("out0"), is("ipv6/conf/all/forwarding")], ["1", "1", "0"]);
        assert_eq!(is("ipv6/conf/out0/accept_ra"), "1");
        write("ipv4/ip_forward", "0");
        // somebody takes another value while we are up
        let mut ours = Gateway::new(&state.0).unwrap();
        ours.set(&gateway()).unwrap();
        write("ipv6/conf/lan0/accept_ra", "0");
        drop(ours);
        assert_eq!(is("ipv6/conf/lan0/accept_ra"), "0", "theirs stays");
        // a record that says more than it may
        std::fs::create_dir_all(&state.0).unwrap();
        let evil = "ipv4/conf/../../../kernel/panic 7 0 0\nipv4/ip_forward 1 0 0\nnonsense\n";
        std::fs::write(state.0.join("gateway"), evil).unwrap();
        let panic = std::fs::read_to_string("/proc/sys/kernel/panic").unwrap();
        clear_leftovers(&state.0).unwrap();
        assert_eq!(std::fs::read_to_string("/proc/sys/kernel/panic").unwrap(), panic);
        assert_eq!(is("ipv4/ip_forward"), "0");
    });
}

#[test]
fn others_tables_are_told_of_and_stay() {
    in_world(|| {
        let docker = "table ip filter {\n chain DOCKER-USER { return; }\n chain FORWARD {\n \
                      type filter hook forward priority filter; policy drop;\n \
                      jump DOCKER-USER\n }\n}\n";
        let firewalld = "table inet firewalld {\n chain filter_FORWARD {\n type filter hook \
                         forward priority filter + 10; policy accept;\n ct state established \
                         accept\n reject with icmpx admin-prohibited\n }\n}\n";
        let harmless = "table inet mine {\n chain f {\n type filter hook forward priority 0; \
                        policy accept;\n ip daddr 192.0.2.1 drop\n }\n}\n";
        let strict = "table ip mine {\n chain INPUT {\n type filter hook input priority 0; \
                      policy drop;\n tcp dport 22 accept\n }\n}\n";
        nft(docker);
        nft(firewalld);
        nft(harmless);
        let before = feed("nft", &["list", "ruleset"], "").unwrap();
        let state = State::new("others");
        let mut ours = Gateway::new(&state.0).unwrap();
        assert_eq!(ours.set(&setup()).unwrap(), [""; 0], "no gateway, no matter");
        let warnings = ours.set(&gateway()).unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:#?}");
        assert!(warnings[0].contains("iptables -I DOCKER-USER -i wt0 -j ACCEPT"));
        assert!(warnings[1].contains("firewall-cmd --permanent --zone=trusted"));
        assert!(feed("nft", &["list", "ruleset"], "").unwrap().starts_with(&before));
        // as advised
        nft("add rule ip filter DOCKER-USER iifname wt0 accept");
        assert_eq!(ours.set(&gateway()).unwrap().len(), 2, "half of it");
        nft("add rule ip filter DOCKER-USER oifname wt0 accept");
        assert_eq!(ours.set(&gateway()).unwrap().len(), 1);
        nft("flush chain ip filter DOCKER-USER");
        nft("add rule ip filter DOCKER-USER return");
        // what comes in matters to everybody
        nft(strict);
        let warnings = ours.set(&setup()).unwrap();
        assert!(warnings[0].contains("iptables -I INPUT -i wt0 -j ACCEPT"), "{warnings:#?}");
        nft("add rule ip mine INPUT iifname wt0 accept");
        assert_eq!(ours.set(&setup()).unwrap(), [""; 0]);
        nft("delete table ip mine");
        let before = feed("nft", &["list", "ruleset"], "")
            .unwrap()
            .split("table inet warren")
            .next()
            .unwrap()
            .to_owned();
        drop(ours);
        assert_eq!(feed("nft", &["list", "ruleset"], "").unwrap(), before);
    });
}

/// Threat GW-13: what somebody takes away is put back, and it is told what that was.
#[test]
fn gw_13_what_others_take_away_is_put_back_and_told() {
    in_world(|| {
        let state = State::new("taken");
        let both = Setup { exit: true, uses: prefixes(&["10.20.0.0/16"]), ..gateway() };
        let mut ours = Gateway::new(&state.0).unwrap();
        ours.set(&both).unwrap();
        ours.set(&both).unwrap();
        assert_eq!(ours.put_back(), [""; 0], "nothing was away");
        let whole = machine();
        let write = |path: &str, v: &str| {
            std::fs::write(format!("/proc/sys/net/{path}"), v).unwrap();
        };
        let takes: [(&str, &dyn Fn()); 8] = [
            ("packet filter", &|| nft("flush ruleset")),
            ("packet filter", &|| nft("flush chain inet warren from_peers")),
            ("packet filter", &|| nft("insert rule inet warren from_peers accept")),
            ("rules", &|| drop(ip("rule del pref 5111"))),
            ("rules", &|| drop(ip("-6 rule del pref 5111"))),
            ("rules", &|| drop(ip("route flush table 30561"))),
            ("forwarding", &|| {
                write("ipv4/ip_forward", "1");
                write("ipv4/ip_forward", "0");
            }),
            ("forwarding", &|| write("ipv6/conf/all/forwarding", "0")),
        ];
        for (what, take) in takes {
            take();
            assert_ne!(machine(), whole, "{what}");
            ours.set(&both).unwrap();
            assert_eq!(machine(), whole, "{what}");
            let told = ours.put_back();
            assert!(told.len() == 1 && told[0].contains(what), "{what}: {told:?}");
        }
    });
}

#[test]
fn one_family_or_setting_that_is_refused_does_not_stop_the_others() {
    in_world(|| {
        let state = State::new("refused");
        let mut ours = Gateway::new(&state.0).unwrap();
        // as a container is told to with --sysctl, and cannot change itself
        set_forwarding("1");
        let before = machine();
        let exit = Setup { serves_exit: true, ..gateway() };
        assert_eq!(ours.set(&exit).unwrap(), [""; 0]);
        let forwarding = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains("forwarding:")).map(str::to_owned).collect()
        };
        assert_eq!(forwarding(&machine()), forwarding(&before));
        assert!(!state.0.join("gateway").exists(), "nothing was written, so nothing is to undo");
        drop(ours);
        // a kernel that has IPv6 switched off for our interface
        std::fs::write("/proc/sys/net/ipv6/conf/wt0/disable_ipv6", "1").unwrap();
        let mut ours = Gateway::new(&state.0).unwrap();
        let uses = prefixes(&["10.20.0.0/16", "fd20::/64"]);
        let warnings = ours.set(&Setup { uses, ..setup() }).unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("IPv6"), "{warnings:?}");
        assert!(ip("route get 10.20.0.1").contains("dev wt0"), "IPv4 is led all the same");
    });
}

#[test]
fn gw_09_an_exit_is_asked_by_rule_and_stays_closed_when_the_link_goes() {
    in_world(|| {
        let state = State::new("exit");
        let mut ours = Gateway::new(&state.0).unwrap();
        let way = |to: &str, mark: &str| {
            let words = format!("route get {to}{mark}");
            let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
            String::from_utf8(output.stdout)
                .unwrap()
                .split_whitespace()
                .skip_while(|w| *w != "dev")
                .nth(1)
                .unwrap_or("nowhere")
                .to_owned()
        };
        let marked = format!(" mark {MARK}");
        // a rogue DHCP server's routes are more special than any default
        ip("route add 0.0.0.0/1 dev out0");
        ip("route add 192.168.7.0/24 dev out0");
        ours.set(&exit()).unwrap();
        assert_eq!(way("1.1.1.1", ""), "wt0");
        assert_eq!(way("1.1.1.1", &marked), "out0");
        assert_eq!(way("192.168.5.9", ""), "lan0", "the local network");
        assert_eq!(way("10.20.1.1", ""), "wt0");
        assert_eq!(way("2001:db8::1", ""), "wt0");
        ours.set(&Setup { exit_lan: false, ..exit() }).unwrap();
        assert_eq!([way("192.168.5.9", ""), way("192.168.7.9", "")], ["wt0", "wt0"]);
        assert_eq!(way("192.168.5.1", ""), "lo", "but ourselves");
        // gw_11: no address of a family, no way for it
        let v4 = vec!["100.64.0.1".parse().unwrap()];
        ours.set(&Setup { own: v4, ..exit() }).unwrap();
        assert_eq!([way("2001:db8::1", ""), way("1.1.1.1", "")], ["nowhere", "wt0"]);
        ours.set(&exit()).unwrap();
        std::mem::forget(ours);
        ip("link delete wt0");
        assert_eq!([way("1.1.1.1", ""), way("2001:db8::1", "")], ["nowhere", "nowhere"]);
        clear_leftovers(&state.0).unwrap();
        assert_eq!(way("1.1.1.1", ""), "out0");
    });
}

#[test]
fn gw_11_a_start_after_a_crash_takes_over_without_a_gap() {
    in_world(|| {
        let before = machine();
        let state = State::new("crash");
        for (left, next) in [(exit(), exit()), (gateway(), exit()), (exit(), gateway())] {
            let mut ours = Gateway::new(&state.0).unwrap();
            ours.set(&left).unwrap();
            std::mem::forget(ours);
            ip("link delete wt0");
            let route = |family: &str, to: &str| {
                let words = [family, "route", "get", to];
                let output = Command::new("ip").args(words).output().unwrap();
                String::from_utf8(output.stdout).unwrap()
            };
            let mut ours = Gateway::new(&state.0).unwrap();
            let shut = !route("-4", "1.1.1.1").contains("dev");
            assert_eq!(shut, left.exit, "still as it was left");
            for line in [
                "link add wt0 type veth peer name wt1",
                "link set wt0 addrgenmode none",
                "link set wt1 addrgenmode none",
                "link set wt0 up",
                "link set wt1 up",
                "address add 100.64.0.1/10 dev wt0",
                "address add fd77::1/48 dev wt0 nodad",
            ] {
                ip(line);
            }
            settle();
            ours.set(&next).unwrap();
            let fresh = machine();
            drop(ours);
            assert_eq!(machine(), before);
            let mut ours = Gateway::new(&state.0).unwrap();
            ours.set(&next).unwrap();
            assert_eq!(machine(), fresh, "the same as from nothing");
            drop(ours);
            assert_eq!(machine(), before);
        }
    });
}

#[test]
fn subnets_lose_against_local_networks() {
    in_world(|| {
        let state = State::new("uses");
        let mut ours = Gateway::new(&state.0).unwrap();
        let uses = prefixes(&["192.168.5.0/25", "192.168.0.0/16", "fd20::/64"]);
        ours.set(&Setup { uses, ..setup() }).unwrap();
        let shown = |to: &str| ip(&format!("route get {to}"));
        assert!(shown("192.168.5.9").contains("dev lan0"), "although ours is more special");
        assert!(shown("192.168.6.9").contains("dev wt0"));
        assert!(shown("fd20::9").contains("dev wt0"));
        assert!(shown("1.1.1.1").contains("dev out0"));
        assert!(shown(&format!("192.168.6.9 mark {MARK}")).contains("dev out0"), "no circle");
    });
}

#[test]
fn what_is_missing_is_told() {
    in_fresh_namespace(|| {
        let state = State::new("missing");
        let mut ours = Gateway::new(&state.0).unwrap();
        let error = ours.set(&setup()).unwrap_err().to_string();
        assert!(error.contains("there is no interface wt0"), "{error}");
    });
}

#[test]
fn the_table_of_a_gateway_with_everything_reads_as_it_should() {
    let all = Setup {
        serves_exit: true,
        sites: prefixes(&["10.20.0.0/16"]),
        begins: prefixes(&["192.168.5.0/24"]),
        ..gateway()
    };
    let place = Place {
        near: prefixes(&["198.51.100.0/24"]),
        inside: vec!["docker0".to_owned()],
        inner: prefixes(&["172.17.0.0/16"]),
        forwards: false,
    };
    let text = script::script(&all, &place);
    let expected = include_str!("gateway.nft");
    assert_eq!(text, expected, "if this is meant, replace shell/host/src/gateway/gateway.nft");
    let first = Setup { link: "wt0".to_owned(), ..Setup::default() };
    let text = script::script(&first, &Place::default());
    assert_eq!(text, include_str!("closed.nft"), "of a machine of which nothing is known yet");
}

#[test]
fn a_chain_is_there_only_where_it_has_a_rule() {
    let text = |setup: &Setup| script::script(setup, &Place::default());
    let first = Setup { link: "wt0".to_owned(), ..Setup::default() };
    let doors = text(&Setup { doors: true, ..first.clone() });
    assert!(doors.contains("from_circuits") && !doors.contains("into_circuits"), "{doors}");
    let led = |list: &[&str]| text(&Setup { led: prefixes(list), ..first.clone() });
    let some = led(&["203.0.113.0/24", "::/0"]);
    assert!(some.contains("ip daddr { 203.0.113.0/24 } meta mark"), "{some}");
    assert!(!some.contains("ip6 daddr"), "all of IPv6 leaves by the link anyway: {some}");
    assert!(!led(&["0.0.0.0/0"]).contains("into_circuits"));
}
