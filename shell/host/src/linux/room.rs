//! A room: a network namespace whose only way out is a circuit, for one command.
//!
//! One pair of interfaces joins it to the machine. What comes from the room has the circuit's own
//! address as its source, and a rule leads that into our link and nowhere else: behind the route
//! into the link stands one that is unreachable, so nothing goes astray while the link is away. A
//! table of the firewall drops the rest, what is for this machine itself included. Names are asked
//! at the address that circuits have for that. Where the exit has IPv6, so has the room, if the
//! kernel forwards that for two interfaces alone (Linux 6.17) or does so for all; else packets of
//! IPv6 have no way out, and programs are told so at once. `ip` (iproute2) and `nft` do the work,
//! and both undo it. A namespace has a name for the whole machine, where two daemons may have a
//! circuit 2 each: so the process that made it is in its name. What a killed command left is known
//! by that, and is taken away by the next of its number, or by [`clear_leftovers`].

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command};

use node::circuit::six;

use crate::linux::program::{feed, find};

/// The routing table of all rooms.
const TABLE: &str = "30562";
/// Its rules stand before those of gateways.
const PRIORITY: &str = "5100";
/// The links of rooms, as a filter names them, and the addresses of circuits that they are for.
pub(crate) const ROOMS: &str = "wc*";
pub(crate) const ROOM_ADDRESSES: &str = "198.18.0.0/16";
/// The same of IPv6.
pub(crate) const ROOM_ADDRESSES_SIX: &str = "fd63:6972:6375::c612:0/112";
/// The address that the machine has in every room.
const GATE: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
/// What has no other way goes nowhere.
const NOWHERE: &str = "unreachable default metric 4294967295";
/// Where `ip netns exec` looks for files that take the place of those in /etc.
const ETC: &str = "/etc/netns";
/// Where `ip netns` keeps namespaces by name.
const NAMED: &str = "/run/netns";
const NAME: &str = "warren-c";
const LINK: &str = "wc";
const FIREWALL: &str = "warren-circuit-";

/// What a room is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// The circuit's number.
    pub id: u16,
    /// The address that it is used by.
    pub address: Ipv4Addr,
    /// Our link, which leads into it.
    pub link: String,
    /// Bytes of the largest packet.
    pub mtu: usize,
    /// Whom to ask for names.
    pub names: Ipv4Addr,
    /// Whether packets of IPv6 leave at the exit.
    pub leads_six: bool,
}

/// A room that is there; dropping it takes it away.
#[derive(Debug)]
pub struct Room(Door);

impl Door {
    fn room(&self) -> String {
        room_name(self.id, std::process::id())
    }

    fn outside(&self) -> String {
        format!("{LINK}{}", self.id)
    }

    fn etc(&self) -> PathBuf {
        PathBuf::from(ETC).join(self.room())
    }

    /// The arguments of every call of `ip` that makes it, in order.
    fn steps(&self) -> Vec<String> {
        let room = self.room();
        let outside = self.outside();
        let Self { address, link, mtu, .. } = self;
        vec![
            format!("netns add {room}"),
            format!("link add {outside} mtu {mtu} type veth peer name eth0 netns {room}"),
            format!("addr add {GATE}/32 dev {outside}"),
            format!("-n {room} link set lo up"),
            format!("-n {room} link set eth0 mtu {mtu} up"),
            format!("link set {outside} up"),
            format!("-n {room} addr add {address}/32 dev eth0"),
            format!("-n {room} route add {GATE}/32 dev eth0"),
            format!("-n {room} route add default via {GATE}"),
            format!("route replace {NOWHERE} table {TABLE}"),
            format!("route replace default dev {link} table {TABLE}"),
            format!("route replace {address}/32 dev {outside}"),
            format!("rule add from {address}/32 lookup {TABLE} priority {PRIORITY}"),
        ]
    }

    /// And for IPv6.
    fn steps_six(&self) -> Vec<String> {
        let room = self.room();
        let outside = self.outside();
        let link = &self.link;
        let address = six(self.address);
        let gate = six(GATE);
        vec![
            format!("-6 addr add {gate}/128 dev {outside} nodad"),
            format!("-n {room} -6 addr add {address}/128 dev eth0 nodad"),
            format!("-n {room} -6 route add {gate}/128 dev eth0"),
            format!("-n {room} -6 route add default via {gate} dev eth0"),
            format!("-6 route replace {NOWHERE} table {TABLE}"),
            format!("-6 route replace default dev {link} table {TABLE}"),
            format!("-6 route replace {address}/128 dev {outside}"),
            format!("-6 rule add from {address}/128 lookup {TABLE} priority {PRIORITY}"),
        ]
    }

    /// What only goes between the room and our link.
    fn firewall(&self) -> String {
        let table = self.table();
        let outside = self.outside();
        let link = &self.link;
        format!(
            "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\
             \tchain input {{ type filter hook input priority filter; policy accept; \
             iifname \"{outside}\" icmpv6 type {{ {neighbours} }} accept; \
             iifname \"{outside}\" drop; }}\n\
             \tchain output {{ type filter hook output priority filter; policy accept; \
             oifname \"{outside}\" icmp type {{ destination-unreachable, time-exceeded }} accept; \
             oifname \"{outside}\" icmpv6 type {{ destination-unreachable, packet-too-big, \
             time-exceeded, {neighbours} }} accept; \
             oifname \"{outside}\" drop; }}\n\
             \tchain forward {{ type filter hook forward priority filter; policy accept; \
             iifname \"{outside}\" oifname != \"{link}\" drop; \
             iifname \"{outside}\" ip saddr != {address} drop; \
             iifname \"{outside}\" ip6 saddr != {address_six} drop; \
             oifname \"{outside}\" iifname != \"{link}\" drop; }}\n}}\n",
            address = self.address,
            address_six = six(self.address),
            neighbours = "nd-neighbor-solicit, nd-neighbor-advert",
        )
    }

    fn table(&self) -> String {
        format!("{FIREWALL}{}", self.id)
    }

    fn clear(&self) {
        let room = self.room();
        let outside = self.outside();
        let table = self.table();
        let address = self.address;
        let mut steps = vec![
            format!("rule del from {address}/32 lookup {TABLE} priority {PRIORITY}"),
            format!("-6 rule del from {}/128 lookup {TABLE} priority {PRIORITY}", six(address)),
            format!("link del {outside}"),
            format!("netns del {room}"),
        ];
        // What is not there need not go.
        steps.drain(..).for_each(|step| drop(ip(&step)));
        let gone = format!("add table inet {table}\ndelete table inet {table}\n");
        let _ = feed("nft", &["-f", "-"], &gone);
        let _ = fs::remove_dir_all(self.etc());
    }

    /// Takes away what a killed command of the same number left.
    fn clear_left(&self) {
        for (name, id, process) in rooms() {
            if id == self.id && !is_alive(process) {
                remove(&name);
            }
        }
        self.clear();
    }
}

fn room_name(id: u16, process: u32) -> String {
    format!("{NAME}{id}-{process}")
}

/// The circuit and the process that a room's name tells.
fn read_name(name: &str) -> Option<(u16, u32)> {
    let (id, process) = name.strip_prefix(NAME)?.split_once('-')?;
    Some((id.parse().ok()?, process.parse().ok()?))
}

/// All rooms of this machine.
fn rooms() -> Vec<(String, u16, u32)> {
    let entries = fs::read_dir(NAMED).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| read_name(&name).map(|(id, process)| (name, id, process))).collect()
}

fn is_alive(process: u32) -> bool {
    fs::exists(format!("/proc/{process}")).unwrap_or(true)
}

fn remove(name: &str) {
    let _ = ip(&format!("netns del {name}"));
    let _ = fs::remove_dir_all(PathBuf::from(ETC).join(name));
}

/// Leads whatever speaks as a circuit on this machine into `link`, and nowhere while that is away.
///
/// # Errors
/// For people: what `ip` refused.
pub fn lead(link: &str) -> Result<(), String> {
    unlead();
    for step in [
        format!("route replace {NOWHERE} table {TABLE}"),
        format!("route replace default dev {link} table {TABLE}"),
        format!("rule add from {ROOM_ADDRESSES} lookup {TABLE} priority {PRIORITY}"),
    ] {
        ip(&step)?;
    }
    // Where the machine has no IPv6, nothing speaks it.
    let _ = [
        format!("-6 route replace {NOWHERE} table {TABLE}"),
        format!("-6 route replace default dev {link} table {TABLE}"),
        format!("-6 rule add from {ROOM_ADDRESSES_SIX} lookup {TABLE} priority {PRIORITY}"),
    ]
    .iter()
    .try_for_each(|step| ip(step).map(drop));
    Ok(())
}

/// Undoes that.
pub fn unlead() {
    // One that is not there need not go.
    for (family, from) in [("-4", ROOM_ADDRESSES), ("-6", ROOM_ADDRESSES_SIX)] {
        drop(ip(&format!("{family} rule del from {from} lookup {TABLE} priority {PRIORITY}")));
    }
}

/// Sockets of this machine may speak IPv6 as the circuit of `address` on `link`, where the machine
/// has IPv6. The address is for who asks for it alone: nothing else chooses it as its source.
pub fn speak_six(link: &str, address: Ipv4Addr) {
    let own = six(address);
    drop(ip(&format!("-6 addr replace {own}/128 dev {link} nodad preferred_lft 0")));
}

/// And no more.
pub fn leave_six(link: &str, address: Ipv4Addr) {
    drop(ip(&format!("-6 addr del {}/128 dev {link}", six(address))));
}

/// The number that ends `text` behind `mark`: of a namespace, as this one counts them.
fn number_behind<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let rest = text.split_once(mark)?.1;
    let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(&rest[..len]).filter(|number| !number.is_empty())
}

/// Whether the room is at the other end of our link of its number. Names of namespaces are the
/// machine's; a daemon in another namespace may have a room of the same number.
fn is_ours(name: &str, id: u16) -> bool {
    let told = |words: &[&str]| feed("ip", words, "").unwrap_or_default();
    let names = told(&["netns", "list"]);
    let named = names.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let link = told(&["-o", "link", "show", &format!("{LINK}{id}")]);
    let number = named.and_then(|line| number_behind(line, "id: "));
    number.is_some() && number == number_behind(&link, "link-netnsid ")
}

/// Our links of rooms.
fn links() -> Vec<String> {
    let shown = feed("ip", &["-o", "link", "show", "type", "veth"], "").unwrap_or_default();
    let names = shown.lines().filter_map(|line| line.split([' ', '@']).nth(1));
    let is_of_room =
        |name: &&str| name.strip_prefix(LINK).is_some_and(|id| id.parse::<u16>().is_ok());
    names.filter(is_of_room).map(str::to_owned).collect()
}

/// Takes away what killed commands left: their rooms, links, rules, routes and tables of the
/// firewall. Where a command still runs these stay, since they keep it in. What such a command
/// began may live on: its link goes first, and it has no way out.
pub fn clear_leftovers() {
    let (alive, dead): (Vec<_>, Vec<_>) = rooms().into_iter().partition(|room| is_alive(room.2));
    dead.iter().for_each(|(name, ..)| remove(name));
    if alive.iter().any(|(name, id, _)| is_ours(name, *id)) {
        return;
    }
    links().iter().for_each(|link| drop(ip(&format!("link del {link}"))));
    for family in ["-4", "-6"] {
        // One rule goes with each call, and there are no more of them than circuits.
        let mut left = usize::from(u16::MAX);
        let rule = format!("{family} rule del lookup {TABLE} priority {PRIORITY}");
        while left > 0 && ip(&rule).is_ok() {
            left -= 1;
        }
        let _ = ip(&format!("{family} route flush table {TABLE}"));
    }
    let tables = feed("nft", &["list", "tables", "inet"], "").unwrap_or_default();
    for table in tables.lines().filter_map(|line| line.strip_prefix("table inet ")) {
        if table.starts_with(FIREWALL) {
            let _ = feed("nft", &["delete", "table", "inet", table], "");
        }
    }
}

impl Room {
    /// Makes it.
    ///
    /// # Errors
    /// For people: what is missing, or what was refused.
    pub fn new(door: Door) -> Result<Self, String> {
        for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            if !find(program) {
                return Err(format!("`{program}` is not there; install {package}"));
            }
        }
        door.clear_left();
        let room = Self(door);
        room.make().map_err(|why| format!("no room for the command can be made: {why}"))?;
        Ok(room)
    }

    fn make(&self) -> Result<(), String> {
        let door = &self.0;
        let written = |result: io::Result<()>, what: &str| {
            result.map_err(|error| format!("{what}: {error}; is this root?"))
        };
        // Closed before anything can come out of it.
        feed("nft", &["-f", "-"], &door.firewall())?;
        written(fs::create_dir_all(door.etc()), ETC)?;
        let names = format!("nameserver {}\n", door.names);
        written(fs::write(door.etc().join("resolv.conf"), names), ETC)?;
        let outside = door.outside();
        for step in door.steps() {
            ip(&step)?;
            if step.starts_with("link add") {
                set(&format!("ipv6/conf/{outside}/disable_ipv6"), "1");
                set(&format!("ipv6/conf/{outside}/addr_gen_mode"), "1");
                set(&format!("ipv4/conf/{outside}/forwarding"), "1");
                set(&format!("ipv4/conf/{}/forwarding", door.link), "1");
            }
        }
        // Only what was given is an address of the room, and where none was there is no IPv6.
        if !(door.leads_six && self.make_six()) {
            set(&format!("ipv6/conf/{outside}/disable_ipv6"), "1");
            self.set_inside("ipv6/conf/all/disable_ipv6", "1");
        }
        Ok(())
    }

    /// A way for packets of IPv6 as well. `false` if the machine has none to give.
    fn make_six(&self) -> bool {
        let door = &self.0;
        let outside = door.outside();
        let forwards = |name: &str| {
            set(&format!("ipv6/conf/{name}/force_forwarding"), "1");
            let is_on = |path: &str| {
                fs::read_to_string(format!("/proc/sys/net/{path}")).is_ok_and(|on| on.trim() == "1")
            };
            is_on(&format!("ipv6/conf/{name}/force_forwarding"))
                || is_on("ipv6/conf/all/forwarding")
        };
        if !forwards(&outside) || !forwards(&door.link) {
            return false;
        }
        self.set_inside("ipv6/conf/eth0/addr_gen_mode", "1");
        self.set_inside("ipv6/conf/eth0/accept_ra", "0");
        self.set_inside("ipv6/conf/eth0/disable_ipv6", "0");
        set(&format!("ipv6/conf/{outside}/disable_ipv6"), "0");
        let failed = door.steps_six().iter().find_map(|step| ip(step).err());
        failed.is_none()
    }

    fn set_inside(&self, path: &str, value: &str) {
        let line = format!("echo {value} > /proc/sys/net/{path}");
        let _ = feed("ip", &["netns", "exec", &self.0.room(), "sh", "-c", &line], "");
    }

    /// Begins a command in it.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn spawn(&self, command: &[std::ffi::OsString]) -> io::Result<Child> {
        let room = self.0.room();
        Command::new("ip").args(["netns", "exec", &room]).args(command).spawn()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// A setting that may not be there.
fn set(path: &str, value: &str) {
    let _ = fs::write(format!("/proc/sys/net/{path}"), value);
}

fn ip(step: &str) -> Result<(), String> {
    let words: Vec<&str> = step.split(' ').collect();
    feed("ip", &words, "").map(drop).map_err(|why| format!("ip {step}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_tells_whose_it_is_by_its_name() {
        assert_eq!(read_name(&room_name(2, 31_007)), Some((2, 31_007)));
        for other in ["warren-c2", "warren-c", "warren-c2-", "warren-cx-1", "warren-lab-2", "wc2"] {
            assert_eq!(read_name(other), None, "{other}");
        }
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
        assert_eq!(
            number_behind("wc2@if2: <UP> link-netnsid 13 \\ qlen", "link-netnsid "),
            Some("13")
        );
        assert_eq!(number_behind("(id: 4)", "id: "), Some("4"));
        assert_eq!(number_behind("(id: )", "id: "), None);
    }

    #[test]
    fn ci_12_nothing_passes_but_between_the_room_and_the_link() {
        let door = Door {
            id: 7,
            address: Ipv4Addr::new(198, 18, 0, 7),
            link: "warren0".to_owned(),
            mtu: 1376,
            names: Ipv4Addr::new(198, 18, 255, 53),
            leads_six: true,
        };
        let firewall = door.firewall();
        for line in [
            "iifname \"wc7\" drop",
            "iifname \"wc7\" oifname != \"warren0\" drop",
            "iifname \"wc7\" ip saddr != 198.18.0.7 drop",
            "iifname \"wc7\" ip6 saddr != fd63:6972:6375::c612:7 drop",
            "oifname \"wc7\" iifname != \"warren0\" drop",
        ] {
            assert!(firewall.contains(line), "{firewall}");
        }
        let rules = ["rule add from 198.18.0.7/32", "rule add from fd63:6972:6375::c612:7/128"];
        for (steps, rule) in [door.steps(), door.steps_six()].into_iter().zip(rules) {
            let at = |what: &str| steps.iter().position(|step| step.contains(what)).expect(what);
            assert!(at("unreachable default") < at("default dev warren0"));
            assert!(at("default dev warren0") < at(rule));
        }
        let of_rooms: node::Prefix = ROOM_ADDRESSES_SIX.parse().expect("a prefix");
        assert!(of_rooms.contains(six(door.address).into()) && of_rooms.contains(six(GATE).into()));
    }
}
