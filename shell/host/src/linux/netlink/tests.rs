//! Every call here against a real kernel, in a network namespace of its own; `ip` is the judge.

use std::process::Command;

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::LinkMessage;

use super::*;

impl Netlink {
    /// Deletes the link and all that hangs on it.
    fn delete_link(&mut self, link: &Link) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        self.change(|| format!("delete {}", link.name), Message::DelLink(message))
    }
}

impl Rule {
    /// Whether both say the same, whatever their priorities and makers.
    fn same_meaning(&self, other: &Self) -> bool {
        let bare = |rule: &Self| Self { priority: None, protocol: 0, ..*rule };
        bare(self) == bare(other)
    }
}

/// Runs `body` on a thread in a fresh network namespace, which dies with the thread.
pub(crate) fn in_fresh_namespace(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: unshare takes no memory; it moves this thread alone to a new namespace.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "these tests need root: {}", io::Error::last_os_error());
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Repeats `attempt` until it succeeds, for five seconds at most: a process that another test
/// starts holds copies of what is closed here until it is its own program.
pub(crate) fn soon<T, E>(
    mut attempt: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    for _ in 0..500 {
        match attempt() {
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            done => return done,
        }
    }
    attempt()
}

pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn links_go_up_and_down_and_change_their_mtu() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.link("nonesuch").unwrap(), None);
        assert_eq!(netlink.link("a-name-longer-than-it-may-be").unwrap(), None);
        assert_eq!(netlink.link_at(4242).unwrap(), None);
        let link = netlink.link("wt0").unwrap().unwrap();
        assert!(!link.up);
        netlink.set_up(&link, true).unwrap();
        netlink.set_mtu(&link, 1337).unwrap();
        netlink.set_queue_len(&link, 777).unwrap();
        let link = netlink.link_at(link.index).unwrap().unwrap();
        assert_eq!((link.up, link.mtu, link.queue_len), (true, 1337, 777));
        let json = ip("-j link show wt0");
        assert!(json.contains(r#""mtu":1337"#) && json.contains(r#""txqlen":777"#), "{json}");
        assert!(json.contains(r#""UP""#), "{json}");
        netlink.set_up(&link, false).unwrap();
        assert!(!ip("-j link show wt0").contains(r#""UP""#));
        let names: Vec<_> = netlink.links().unwrap().into_iter().map(|l| l.name).collect();
        assert_eq!(names, ["lo", "wt1", "wt0"]);
        let e = netlink.set_mtu(&link, 5).unwrap_err();
        assert!(e.to_string().starts_with("cannot set the MTU of wt0 to 5: "), "{e}");
        netlink.delete_link(&link).unwrap();
        assert_eq!(netlink.link("wt0").unwrap(), None);
        let e = netlink.set_up(&link, true).unwrap_err();
        assert!(e.to_string().contains("the interface is gone"), "{e}");
    });
}

#[test]
fn addresses_come_and_go() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link("wt0").unwrap().unwrap();
        let addresses = [("10.7.0.1", 24), ("fd07::1", 64), ("192.0.2.9", 32)];
        for (address, bits) in addresses {
            netlink.add_address(&link, address.parse().unwrap(), bits).unwrap();
        }
        let json = ip("-j address show wt0");
        for (address, bits) in addresses {
            let wanted = format!(r#""local":"{address}","prefixlen":{bits}"#);
            assert!(json.contains(&wanted), "{wanted} in {json}");
            let address = Address { link: link.index, address: address.parse().unwrap(), bits };
            assert!(netlink.addresses().unwrap().contains(&address));
        }
        let e = netlink.add_address(&link, "10.7.0.1".parse().unwrap(), 24).unwrap_err();
        assert_eq!(e.errno(), Some(libc::EEXIST));
        for (address, bits) in addresses {
            netlink.remove_address(&link, address.parse().unwrap(), bits).unwrap();
        }
        assert!(!ip("-j address show wt0").contains("prefixlen"));
    });
}

#[test]
fn routes_come_and_go_and_are_followed() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        ip("link set wt0 up mtu 1400");
        ip("address add 10.7.0.1/24 dev wt0");
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link("wt0").unwrap().unwrap();
        let route = |text: &str, table, metric| Route {
            destination: text.parse().unwrap(),
            link: link.index,
            gateway: None,
            table,
            metric,
            mtu: None,
        };
        let routes = [
            route("10.9.0.0/16", MAIN_TABLE, None),
            route("0.0.0.0/0", 51820, None),
            route("fd09::/32", MAIN_TABLE, Some(77)),
            route("::/0", 51820, Some(1024)),
        ];
        for r in &routes {
            netlink.add_route(r).unwrap();
            let listed = netlink.routes().unwrap();
            assert!(listed.contains(r), "{r:?} in {listed:?}");
        }
        assert!(ip("route show").contains("10.9.0.0/16 dev wt0 scope link"));
        assert!(ip("route show table 51820").contains("default dev wt0 scope link"));
        assert!(ip("-6 route show").contains("fd09::/32 dev wt0 metric 77"));
        assert!(ip("-6 route show table 51820").contains("default dev wt0 metric 1024"));
        let way = netlink.way_to("10.9.1.1".parse().unwrap(), 0).unwrap().unwrap();
        assert_eq!(way, Way { link: link.index, mtu: None });
        assert_eq!(netlink.way_to("10.10.1.1".parse().unwrap(), 0).unwrap(), None);
        ip("route add 10.10.0.0/16 dev wt0 mtu 1300");
        let way = netlink.way_to("10.10.1.1".parse().unwrap(), 0).unwrap().unwrap();
        assert_eq!(way.mtu, Some(1300));
        for r in &routes {
            netlink.remove_route(r).unwrap();
            assert!(!netlink.routes().unwrap().contains(r));
        }
        let e = netlink.remove_route(&routes[0]).unwrap_err();
        assert_eq!(e.errno(), Some(libc::ESRCH), "{e}");
    });
}

#[test]
fn rules_come_and_go_and_steer() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        ip("link set wt0 up");
        ip("route add default dev wt0 table 51820");
        let mut netlink = Netlink::open().unwrap();
        for family in [Family::V4, Family::V6] {
            let before = netlink.rules(family).unwrap();
            let not_marked = Rule::unless_marked(family, 51820, 51820);
            let but_default = Rule::but_default(family, MAIN_TABLE);
            netlink.add_rule(&not_marked).unwrap();
            netlink.add_rule(&but_default).unwrap();
            let listed = netlink.rules(family).unwrap();
            let place = |rule: &Rule| listed.iter().position(|r| r.same_meaning(rule)).unwrap();
            assert!(place(&but_default) < place(&not_marked));
            let shown = ip(if family == Family::V4 { "-4 rule" } else { "-6 rule" });
            assert!(shown.contains("not from all fwmark 0xca6c lookup 51820"), "{shown}");
            assert!(shown.contains("from all lookup main suppress_prefixlength 0"), "{shown}");
            if family == Family::V4 {
                let far = "203.0.113.1".parse().unwrap();
                assert!(netlink.way_to(far, 0).unwrap().is_some());
                assert_eq!(netlink.way_to(far, 51820).unwrap(), None, "marked packets go around");
            }
            netlink.remove_rule(&not_marked).unwrap();
            netlink.remove_rule(&but_default).unwrap();
            assert_eq!(netlink.rules(family).unwrap(), before);
        }
    });
}

#[test]
fn rules_may_be_for_a_destination_and_a_table_may_end_in_nothing() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        ip("link set wt0 up");
        ip("route add default dev wt0");
        let mut netlink = Netlink::open().unwrap();
        for (family, to) in [(Family::V4, "192.168.0.0/16"), (Family::V6, "fc00::/7")] {
            let spared = Rule {
                to: Some(to.parse().unwrap()),
                priority: Some(5110),
                protocol: 121,
                ..Rule::but_default(family, MAIN_TABLE)
            };
            netlink.add_rule(&spared).unwrap();
            assert!(netlink.rules(family).unwrap().contains(&spared));
            let shown = ip(if family == Family::V4 { "-4 rule" } else { "-6 rule" });
            assert!(shown.contains(&format!("to {to} lookup main suppress_prefix")), "{shown}");
            netlink.remove_rule(&spared).unwrap();
            assert!(!netlink.rules(family).unwrap().contains(&spared));
            netlink.add_unreachable(family, 30561).unwrap();
            let flag = if family == Family::V4 { "-4" } else { "-6" };
            let shown = ip(&format!("{flag} route show table 30561"));
            assert!(shown.contains("unreachable default"), "{shown}");
            netlink.remove_unreachable(family, 30561).unwrap();
            let e = netlink.remove_unreachable(family, 30561).unwrap_err();
            assert_eq!(e.errno(), Some(libc::ESRCH));
        }
    });
}

#[test]
fn without_the_capability_the_error_says_how_to_mend_it() {
    in_fresh_namespace(|| {
        ip("link add wt0 type veth peer name wt1");
        // SAFETY: the raw system call changes the user of this thread alone; it dies right after.
        let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(rc, 0);
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link("wt0").unwrap().unwrap();
        let e = netlink.set_up(&link, true).unwrap_err().to_string();
        assert!(e.starts_with("cannot set wt0 up: ") && e.contains("CAP_NET_ADMIN"), "{e}");
    });
}

#[test]
fn nobody_who_is_root_is_told_to_become_root() {
    for errno in [libc::EPERM, libc::EACCES] {
        let told = Error::new("do it", io::Error::from_raw_os_error(errno)).to_string();
        assert!(told.contains("; ") && !told.contains("run as root"), "{told}");
    }
    assert_eq!(crate::advice("run as root", "as root"), "as root");
}
