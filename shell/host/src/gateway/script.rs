//! The nftables table as text: what passes through this machine, under which address, and what may
//! leave it beside an exit. Pure, so that every line can be read in a test.

use std::fmt::{Display, Write};
use std::net::IpAddr;

use node::Prefix;

use super::place::{Place, of};
use super::{NFT_TABLE, Setup};
use crate::linux::netlink::Family;
use crate::linux::room::{ROOM_ADDRESSES, ROOM_ADDRESSES_SIX, ROOMS};

/// Where an exit never leads: this network, private and link-local ones, machines' own addresses,
/// metadata services, groups, and blocks in which other addresses hide (threat GW-01; the blocks
/// of RFC 6890, without those for examples).
const CLOSED: [&str; 23] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];
/// The mark (SO_MARK) of outer packets, and of all else that must not go through an exit.
pub const MARK: u32 = 30561;
/// Private networks, which a node with an exit may still reach directly if that is wished.
pub(super) const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10"];
/// What every host needs on its own link, exit or not.
const GROUPS: [&str; 3] = ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8"];
/// Where packets for this machine itself may be addressed to beside its addresses.
const ON_LINK: [&str; 4] = ["224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Ports that translated traffic gets: above those that the kernel gives to programs of this
/// machine, and where nobody listens (threat GW-03).
const NAT_PORTS: &str = "61000-65535";
/// Mail is not relayed by default: what comes out of an exit is charged to its owner.
const MAIL_PORT: u16 = 25;

/// The script that takes the table away, whether it is there or not.
pub(super) fn removal() -> String {
    format!("add table inet {NFT_TABLE}\ndelete table inet {NFT_TABLE}\n")
}

/// The whole table, in place of an earlier one.
pub(super) fn script(setup: &Setup, place: &Place) -> String {
    let mut table = Table { setup, place, text: String::new() };
    table.own();
    table.circuits();
    table.forward();
    if setup.is_gateway() {
        table.translate();
    }
    if !setup.carries.is_empty() {
        table.redirects();
    }
    if setup.exit {
        table.exit();
    }
    format!("{}table inet {NFT_TABLE} {{\n{}}}\n", removal(), table.text)
}

struct Table<'s> {
    setup: &'s Setup,
    place: &'s Place,
    text: String,
}

/// `{ a, b }`; `None` if there is nothing in it.
fn set<T: Display>(list: impl IntoIterator<Item = T>) -> Option<String> {
    let list: Vec<String> = list.into_iter().map(|item| item.to_string()).collect();
    (!list.is_empty()).then(|| format!("{{ {} }}", list.join(", ")))
}

fn words(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "ipv4"),
        Family::V6 => ("ip6", "ipv6"),
    }
}

/// The names of interfaces as a set has them.
fn names<'n>(list: impl IntoIterator<Item = &'n str>) -> Option<String> {
    set(list.into_iter().map(|name| format!("\"{name}\"")))
}

fn constant(family: Family, list: &[&str]) -> Vec<Prefix> {
    let read: Vec<Prefix> = list.iter().filter_map(|text| text.parse().ok()).collect();
    of(family, &[&read])
}

impl Table<'_> {
    fn line(&mut self, line: impl Display) {
        writeln!(self.text, "\t\t{line}").expect("writing to a string cannot fail");
    }

    fn open(&mut self, name: &str, hook: Option<&str>) {
        writeln!(self.text, "\tchain {name} {{").expect("writing to a string cannot fail");
        if let Some(hook) = hook {
            self.line(format_args!("type {hook}; policy accept;"));
        }
    }

    fn close(&mut self) {
        self.text += "\t}\n";
    }

    /// Our own addresses are reached through our link or from this machine and its containers only
    /// and nobody else sends by them (GW-10); through our link this machine is reached at them and
    /// at what it serves only (GW-01).
    fn own(&mut self) {
        let setup = self.setup;
        let place = self.place;
        if setup.own.is_empty() {
            return;
        }
        let link = &setup.link;
        let own = |family| setup.own.iter().filter(move |a| Family::of(**a) == family);
        let near = names([&link[..], "lo"].into_iter().chain(place.inside.iter().map(|n| &n[..])));
        let near = near.unwrap_or_default();
        self.open("raw", Some("filter hook prerouting priority raw"));
        for family in FAMILIES {
            if let Some(list) = set(own(family)) {
                let ip = words(family).0;
                self.line(format_args!("iifname != \"lo\" {ip} saddr {list} drop"));
                self.line(format_args!("iifname != {near} {ip} daddr {list} drop"));
            }
        }
        self.close();
        self.open("input", Some("filter hook input priority filter"));
        for family in FAMILIES {
            let hosts: Vec<Prefix> = own(family).map(|a: &IpAddr| Prefix::host(*a)).collect();
            let on_link = constant(family, &ON_LINK);
            let doors = if setup.doors {
                constant(family, &[ROOM_ADDRESSES, ROOM_ADDRESSES_SIX])
            } else {
                Vec::new()
            };
            let list = of(family, &[&hosts, &on_link, &setup.serves, &doors]);
            if let Some(list) = set(list) {
                let ip = words(family).0;
                self.line(format_args!("iifname \"{link}\" {ip} daddr != {list} drop"));
            }
        }
        self.close();
    }

    /// Out of a circuit comes in only what answers this machine, and what leads into one leaves by
    /// no other way, also while our link is away (CI-12).
    fn circuits(&mut self) {
        let setup = self.setup;
        if setup.led.is_empty() && !setup.doors {
            return;
        }
        let link = &setup.link;
        let answers = "ct state != { established, related } drop";
        self.open("from_circuits", Some("filter hook input priority filter"));
        for (family, rooms) in FAMILIES.into_iter().zip([ROOM_ADDRESSES, ROOM_ADDRESSES_SIX]) {
            let (ip, nfproto) = words(family);
            if setup.doors {
                self.line(format_args!("iifname \"{link}\" {ip} daddr {rooms} {answers}"));
            }
            let led = of(family, &[&setup.led]);
            let network = set(of(family, &[&setup.overlay]));
            let inside = network.map_or_else(String::new, |list| format!("{ip} saddr != {list} "));
            let from = match set(&led) {
                _ if led.iter().any(Prefix::is_default) => format!("meta nfproto {nfproto}"),
                Some(list) => format!("{ip} saddr {list}"),
                None => continue,
            };
            self.line(format_args!("iifname \"{link}\" {from} {inside}{answers}"));
        }
        self.close();
        let led = FAMILIES.map(|family| (words(family).0, of(family, &[&setup.led])));
        // With all of a family nothing of it leaves beside the link anyway.
        let some = led.into_iter().filter(|(_, led)| !led.iter().any(Prefix::is_default));
        let rules = some.filter_map(|(ip, led)| {
            let list = set(led)?;
            let beside = format!("oifname != {{ \"{link}\", \"lo\" }}");
            let why = "reject with icmpx type admin-prohibited";
            Some(format!("{beside} {ip} daddr {list} meta mark != {MARK} {why}"))
        });
        let rules: Vec<String> = rules.collect();
        if rules.is_empty() {
            return;
        }
        self.open("into_circuits", Some("filter hook output priority filter"));
        rules.iter().for_each(|rule| self.line(rule));
        self.close();
    }

    /// What passes between peers and what is behind this machine: nothing, but what is served and
    /// what containers of this machine begin (PF-02, GW-02).
    fn forward(&mut self) {
        let link = self.setup.link.clone();
        self.open("forward", Some("filter hook forward priority filter"));
        self.line(format_args!(
            "oifname \"{link}\" tcp flags syn tcp option maxseg size set rt mtu"
        ));
        self.line(format_args!("iifname \"{link}\" goto from_peers"));
        self.line(format_args!("oifname \"{link}\" goto to_peers"));
        self.close();
        self.arriving(&link);
        self.leaving();
    }

    fn arriving(&mut self, link: &str) {
        let setup = self.setup;
        let place = self.place;
        self.open("from_peers", None);
        for family in FAMILIES {
            let ip = words(family).0;
            if let Some(list) = set(of(family, &[&setup.carries])) {
                self.line(format_args!("oifname \"{link}\" {ip} saddr {list} accept"));
                self.line(format_args!("oifname \"{link}\" {ip} daddr {list} accept"));
            }
        }
        // peers reach each other by themselves
        self.line(format_args!("oifname \"{link}\" drop"));
        // a room's own table says which of it (`crate::linux::room`)
        if !setup.own.is_empty() {
            self.line(format_args!("oifname \"{ROOMS}\" ip daddr {ROOM_ADDRESSES} accept"));
            self.line(format_args!("oifname \"{ROOMS}\" ip6 daddr {ROOM_ADDRESSES_SIX} accept"));
        }
        if let Some(inside) = names(place.inside.iter().map(|n| &n[..])) {
            self.line(format_args!(
                "oifname {inside} ct direction reply ct state established,related accept"
            ));
        }
        // what was sent to ourselves, and this machine's own rules lead elsewhere
        if self.publishes() {
            for family in FAMILIES {
                let own = setup.own.iter().filter(|a| Family::of(**a) == family);
                if let Some(list) = set(own) {
                    let ip = words(family).0;
                    self.line(format_args!("ct original {ip} daddr {list} ct status dnat accept"));
                }
            }
        }
        if setup.is_gateway() {
            self.write_served();
        } else {
            self.line("drop");
        }
        self.close();
    }

    /// Who sends to a carried peer goes through us on purpose, and is told of no shorter way.
    fn redirects(&mut self) {
        let link = self.setup.link.clone();
        self.open("redirects", Some("filter hook output priority filter"));
        self.line(format_args!("oifname \"{link}\" icmp type redirect drop"));
        self.line(format_args!("oifname \"{link}\" icmpv6 type nd-redirect drop"));
        self.close();
    }

    /// Whether services of containers may have been published at our addresses. Elsewhere
    /// connections are not followed for it.
    fn publishes(&self) -> bool {
        let place = self.place;
        self.setup.is_gateway() || place.forwards || !place.inside.is_empty()
    }

    /// What peers send to what is served.
    fn write_served(&mut self) {
        let setup = self.setup;
        self.line("ct state invalid drop");
        for family in FAMILIES {
            let (ip, nfproto) = words(family);
            match set(of(family, &[&setup.overlay, &setup.sites])) {
                Some(list) => self.line(format_args!("{ip} saddr != {list} drop")),
                None => self.line(format_args!("meta nfproto {nfproto} drop")),
            }
        }
        self.line("ct direction reply ct state established,related accept");
        self.line("ct state related accept");
        for family in FAMILIES {
            if let Some(list) = set(of(family, &[&setup.serves])) {
                self.line(format_args!("{} daddr {list} accept", words(family).0));
            }
        }
        if setup.serves_exit {
            self.line(format_args!("tcp dport {MAIL_PORT} reject with tcp reset"));
            for family in FAMILIES {
                let (ip, _) = words(family);
                let closed = constant(family, &CLOSED);
                if let Some(list) = set(of(family, &[&closed, &setup.overlay, &self.place.near])) {
                    let why = "reject with icmpx type admin-prohibited";
                    self.line(format_args!("{ip} daddr {list} {why}"));
                }
            }
            self.line("fib daddr type unicast accept");
        }
        self.line("reject with icmpx type admin-prohibited");
    }

    fn leaving(&mut self) {
        let setup = self.setup;
        let place = self.place;
        self.open("to_peers", None);
        if !setup.own.is_empty() {
            self.line(format_args!("iifname \"{ROOMS}\" ip saddr {ROOM_ADDRESSES} accept"));
            self.line(format_args!("iifname \"{ROOMS}\" ip6 saddr {ROOM_ADDRESSES_SIX} accept"));
        }
        // under which address they go on is for this machine's own rules: with another than ours
        // they do not leave
        if let Some(inside) = names(place.inside.iter().map(|n| &n[..])) {
            self.line(format_args!("iifname {inside} accept"));
        }
        if setup.is_gateway() || self.publishes() {
            self.line("ct direction reply ct state established,related accept");
        }
        if setup.is_gateway() {
            self.line("ct state related accept");
        }
        for family in FAMILIES {
            let (ip, _) = words(family);
            let from = set(of(family, &[&setup.begins]));
            let to = set(of(family, &[&setup.overlay, &setup.sites]));
            if let (Some(from), Some(to)) = (from, to) {
                self.line(format_args!("{ip} saddr {from} {ip} daddr {to} accept"));
            }
        }
        self.line("drop");
        self.close();
    }

    /// Under which address peers' traffic goes on. What was begun here keeps its own.
    fn translate(&mut self) {
        let setup = self.setup;
        let link = &setup.link;
        self.open("translate", Some("nat hook postrouting priority srcnat"));
        for family in FAMILIES {
            let (ip, _) = words(family);
            let from = of(family, &[&setup.overlay, &setup.sites]);
            let served = of(family, &[&setup.serves]);
            let to = match (setup.source_nat, setup.serves_exit) {
                (true, true) => Some(String::new()),
                (true, false) => set(served).map(|list| format!("{ip} daddr {list} ")),
                (false, true) => Some(
                    set(served).map_or_else(String::new, |list| format!("{ip} daddr != {list} ")),
                ),
                (false, false) => None,
            };
            let (Some(from), Some(to)) = (set(from), to) else { continue };
            let which = format!(
                "oifname != {{ \"{link}\", \"lo\" }} {ip} saddr {from} {to}fib saddr type != local"
            );
            self.line(format_args!(
                "{which} meta l4proto {{ tcp, udp }} masquerade to :{NAT_PORTS} fully-random"
            ));
            self.line(format_args!("{which} masquerade"));
        }
        self.close();
    }

    /// With an exit nothing leaves beside it but our own outer packets, which are known by their
    /// mark, answers, and what the local link needs (GW-09, GW-11). The mark of what was sent comes
    /// back on what is received for it, so that strict reverse-path filters take it; so does what
    /// somebody outside began with this machine.
    fn exit(&mut self) {
        let setup = self.setup;
        let link = &setup.link;
        let beside = format!("iifname != {{ \"{link}\", \"lo\" }}");
        self.open("mark_out", Some("filter hook postrouting priority mangle"));
        self.line(format_args!("meta mark {MARK} ct mark set meta mark"));
        self.close();
        self.open("mark_in", Some("filter hook prerouting priority mangle"));
        self.line(format_args!(
            "{beside} ct direction original fib daddr type local meta mark set {MARK}"
        ));
        // a container's answers, where the machine publishes its service
        self.line(format_args!("{beside} ct direction reply ct status dnat meta mark set {MARK}"));
        self.line(format_args!("ct mark {MARK} meta mark set ct mark"));
        self.close();
        self.answers();
        self.open("output", Some("filter hook output priority filter"));
        let near = [&link[..], "lo"].into_iter().chain(self.place.inside.iter().map(|n| &n[..]));
        self.line(format_args!("oifname {} accept", names(near).unwrap_or_default()));
        self.line(format_args!("meta mark {MARK} accept"));
        self.line("udp sport 68 udp dport 67 accept");
        self.line("udp sport 546 udp dport 547 accept");
        // neighbours, and no resolver among them: a name asked there would leave beside the exit
        self.line("ip6 daddr fe80::/10 meta l4proto ipv6-icmp accept");
        for family in FAMILIES {
            let (ip, _) = words(family);
            let lan = if setup.exit_lan { constant(family, &PRIVATE) } else { Vec::new() };
            if let Some(list) = set(of(family, &[&constant(family, &GROUPS), &lan])) {
                self.line(format_args!("{ip} daddr {list} accept"));
            }
        }
        self.line("reject with icmpx type admin-prohibited");
        self.close();
    }

    /// What is answered where it came from, beside an exit: connections of TCP that somebody
    /// outside began and this machine took, and echoes. Who forges a beginning opens no way: a
    /// connection that this machine begins is never an answer. So UDP is none.
    fn answers(&mut self) {
        let setup = self.setup;
        self.open("answers", Some("route hook output priority mangle"));
        for family in FAMILIES {
            let (ip, _) = words(family);
            let icmp = if family == Family::V4 { "icmp" } else { "icmpv6" };
            let own = setup.own.iter().filter(|a| Family::of(**a) == family);
            let from = set(own).map_or_else(String::new, |own| format!("{ip} saddr != {own} "));
            let inside = set(of(family, &[&setup.overlay, &setup.uses]));
            let to = inside.map_or_else(String::new, |list| format!("{ip} daddr != {list} "));
            let which = match from.is_empty() && to.is_empty() {
                true => format!("meta nfproto {} ct direction reply", words(family).1),
                false => format!("{from}{to}ct direction reply"),
            };
            for kind in [
                "meta l4proto tcp ct status assured",
                "tcp flags & (syn | ack) == syn | ack",
                "tcp flags rst",
                &format!("{icmp} type echo-reply"),
            ] {
                self.line(format_args!("{which} {kind} meta mark set {MARK}"));
            }
        }
        self.close();
    }
}
