//! Selectors: the names by which a policy means users, nodes and ports.

use core::net::IpAddr;
use std::collections::BTreeMap;

use wire::ip::protocol;
use wire::prefix::Prefix;

use crate::place::quoted;
use crate::ranges::Ranges;
use crate::rules::{Service, has_ports, protocols};

/// Bytes of a name, at most.
pub const NAME_MAX: usize = 255;
/// Ports and protocols of one entry, at most.
pub const PORTS_MAX: usize = 256;

/// Somebody or something, by the name that a policy gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// `*`: as a source every node's addresses; as a destination also the networks behind nodes,
    /// but not the Internet (PF-15).
    Any,
    /// `autogroup:danger-all`: any source whatever.
    DangerAll,
    /// `autogroup:internet`: public addresses, reached through an exit.
    Internet,
    /// `autogroup:self`: nodes of the same user as the source's.
    OwnUser,
    /// `autogroup:member`: nodes that act for a user.
    Member,
    /// `autogroup:tagged`: nodes with tags.
    Tagged,
    /// `autogroup:nonroot`: a word of `ssh`; nobody here.
    Nobody,
    /// `autogroup:admin` and other roles, without the `autogroup:`.
    Role(String),
    /// A user: `alice@example.com`, or `alice@` by name alone.
    User(String),
    /// `user:*@example.com`: everybody of a mail domain.
    Domain(String),
    /// A group, with its `group:`.
    Group(String),
    /// A tag, with its `tag:`.
    Tag(String),
    /// An address, a prefix, or a name of `hosts`.
    Prefix(Prefix),
    /// A set of addresses by its name in `ipsets`.
    Set(Ranges),
}

/// What is wrong with a text, and how to mend it.
pub(crate) type Refused = (String, String);

const ROLES: [&str; 6] =
    ["owner", "admin", "it-admin", "network-admin", "billing-admin", "auditor"];

impl Selector {
    /// Reads a name; `hosts` is what the file calls addresses.
    pub(crate) fn parse(text: &str, hosts: &BTreeMap<String, Prefix>) -> Result<Self, Refused> {
        if text.is_empty() || text.len() > NAME_MAX {
            let what = format!("a name of {} bytes", text.len());
            return Err((what, format!("names have 1 to {NAME_MAX}")));
        }
        let by_case = || hosts.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if let Some(prefix) = hosts.get(text).or_else(|| by_case().map(|(_, prefix)| prefix)) {
            return Ok(Self::Prefix(*prefix));
        }
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some((kind, name)) = text.split_once(':')
            && let Some(selector) = Self::of_kind(kind, name, text)
        {
            return selector;
        }
        if text.contains('@') && !text.contains(char::is_whitespace) {
            return Ok(Self::User(text.to_ascii_lowercase()));
        }
        prefix(text).map(Self::Prefix).map_err(|(what, mend)| {
            if text.contains(['/', ':']) || text.starts_with(|c: char| c.is_ascii_digit()) {
                return (what, mend);
            }
            let what = format!("{} is not in hosts", quoted(text));
            (what, format!("add it there, or write {} for a user", quoted(&format!("{text}@"))))
        })
    }

    fn of_kind(kind: &str, name: &str, text: &str) -> Option<Result<Self, Refused>> {
        Some(match kind {
            "autogroup" => Self::autogroup(name),
            "group" | "tag" if !is_name(name) => {
                Err((format!("{} is no name", quoted(text)), name_rule()))
            }
            "group" => Ok(Self::Group(text.to_owned())),
            "tag" => Ok(Self::Tag(text.to_owned())),
            "user" => match name.strip_prefix("*@") {
                Some(domain) if !domain.is_empty() => Ok(Self::Domain(domain.to_owned())),
                _ => Err((
                    format!("{} is not understood", quoted(text)),
                    "write user:*@example.com, or a user without user:".into(),
                )),
            },
            "svc" | "host" => Err((
                format!("{} is not supported", quoted(text)),
                "write addresses, prefixes or names of hosts".into(),
            )),
            _ => return None,
        })
    }

    fn autogroup(name: &str) -> Result<Self, Refused> {
        Ok(match name {
            "member" | "members" => Self::Member,
            "tagged" => Self::Tagged,
            "self" => Self::OwnUser,
            "internet" => Self::Internet,
            "danger-all" => Self::DangerAll,
            "nonroot" => Self::Nobody,
            role if ROLES.contains(&role) => Self::Role(role.to_owned()),
            _ => {
                let known = "member, tagged, self, internet, danger-all";
                let what = format!("{} is not known", quoted(&format!("autogroup:{name}")));
                return Err((what, format!("known are {known}, {}", ROLES.join(", "))));
            }
        })
    }
}

/// Whether `autogroup:` and this is known here.
pub(crate) fn is_autogroup(name: &str) -> bool {
    Selector::autogroup(name).is_ok()
}

fn name_rule() -> String {
    "letters, digits, -, _ and . follow the colon".into()
}

/// Whether what follows `group:` or `tag:` is a name.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
    !name.is_empty() && name.chars().all(fits)
}

/// An address or prefix; an IPv4-mapped IPv6 address means the IPv4 address (PF-06).
pub(crate) fn prefix(text: &str) -> Result<Prefix, Refused> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed: Prefix = bare.parse().map_err(|error| {
        let mend = "write 10.0.0.0/8, 10.1.2.3, fd00::/64 or fd00::1".to_owned();
        (format!("{}: {error}", quoted(text)), mend)
    })?;
    let IpAddr::V6(address) = parsed.address() else { return Ok(parsed) };
    let mapped = address.to_ipv4_mapped().filter(|_| parsed.bits() >= 96);
    let v4 = mapped.and_then(|v4| Prefix::new(v4.into(), parsed.bits() - 96));
    Ok(v4.unwrap_or(parsed))
}

/// Whether bits behind the prefix are set, so that it means more than its address says.
pub(crate) fn has_host_bits(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse()) else {
            return false;
        };
        Prefix::new(address, bits).is_some_and(|prefix| prefix.address() != address)
    })
}

/// Ports as `*`, `22`, `1000-2000`, or several with commas between.
pub(crate) fn ports(text: &str) -> Result<Vec<(u16, u16)>, Refused> {
    let refused = |what: String| {
        (what, "ports are *, 22, 1000-2000, or several with commas between".to_owned())
    };
    if text == "*" {
        return Ok(vec![(0, u16::MAX)]);
    }
    if text.split(',').count() > PORTS_MAX {
        return Err(refused(format!("more than {PORTS_MAX} ports")));
    }
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| digits)
    };
    let one = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = port(first.trim()).zip(port(last.trim()));
        range.filter(|(first, last)| first <= last).ok_or_else(|| {
            refused(format!("{} is no port from 0 to 65535 and no range", quoted(text)))
        })
    };
    text.split(',').map(|text| one(text.trim())).collect()
}

/// The services of `ports` with `protocols`; none given stands for TCP, UDP and ICMP.
pub(crate) fn services(
    protocols: Option<&[u8]>,
    ports: &[(u16, u16)],
) -> Result<Vec<Service>, Refused> {
    const USUAL: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::ICMPV6];
    let all_ports = ports == [(0, u16::MAX)];
    if let Some(bare) = protocols.and_then(|list| list.iter().find(|number| !has_ports(**number)))
        && !all_ports
    {
        let what = format!("protocol {bare} has no ports");
        return Err((what, "write * for the port".into()));
    }
    let of = |number: u8| {
        let service = move |&(first, last)| Service { protocol: Some(number), first, last };
        let all = Service { protocol: Some(number), first: 0, last: u16::MAX };
        match has_ports(number) {
            true => ports.iter().map(service).collect(),
            false => vec![all],
        }
    };
    Ok(protocols.unwrap_or(&USUAL).iter().flat_map(|number| of(*number)).collect())
}

/// One entry of a grant's `ip`: `*`, `443`, `tcp:443`, `udp:*`, `icmp:*`.
pub(crate) fn capability(text: &str) -> Result<Vec<Service>, Refused> {
    if text == "*" {
        return Ok(vec![Service::ANY]);
    }
    match text.split_once(':') {
        Some(("*", "*")) => Ok(vec![Service::ANY]),
        Some((name, list)) => services(Some(&protocols(name)?), &ports(list)?),
        None => match protocols(text) {
            Ok(numbers) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                services(Some(&numbers), &[(0, u16::MAX)])
            }
            _ => services(None, &ports(text)?),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Selector, String> {
        let hosts = BTreeMap::from([("db".to_owned(), "10.0.0.5".parse().unwrap())]);
        Selector::parse(text, &hosts).map_err(|(what, _)| what)
    }

    #[test]
    fn names_are_told_apart() {
        let prefix = |text: &str| Ok(Selector::Prefix(text.parse().unwrap()));
        for (text, selector) in [
            ("*", Ok(Selector::Any)),
            ("db", prefix("10.0.0.5/32")),
            ("DB", prefix("10.0.0.5/32")),
            ("10.0.0.0/8", prefix("10.0.0.0/8")),
            ("fd7a::1", prefix("fd7a::1/128")),
            ("[fd7a::1]", prefix("fd7a::1/128")),
            ("::ffff:10.0.0.1", prefix("10.0.0.1/32")),
            ("::ffff:10.0.0.0/104", prefix("10.0.0.0/8")),
            ("alice@", Ok(Selector::User("alice@".into()))),
            ("Alice@Example.com", Ok(Selector::User("alice@example.com".into()))),
            ("user:*@example.com", Ok(Selector::Domain("example.com".into()))),
            ("group:dev", Ok(Selector::Group("group:dev".into()))),
            ("tag:web", Ok(Selector::Tag("tag:web".into()))),
            ("autogroup:members", Ok(Selector::Member)),
            ("autogroup:network-admin", Ok(Selector::Role("network-admin".into()))),
            ("autogroup:danger-all", Ok(Selector::DangerAll)),
        ] {
            assert_eq!(parse(text), selector, "{text}");
        }
        for text in [
            "",
            "web",
            "tag:",
            "tag:a b",
            "group:*",
            "autogroup:everybody",
            "user:alice",
            "svc:x",
            "10.0.0.0/33",
            "10.0.0",
            "a b@c",
            &"x".repeat(256),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("web"), Err("\"web\" is not in hosts".into()));
    }

    #[test]
    fn ports_and_capabilities_are_read() {
        assert_eq!(ports("*"), Ok(vec![(0, 65535)]));
        assert_eq!(ports("22, 80-90"), Ok(vec![(22, 22), (80, 90)]));
        for text in ["", "a", "65536", "9-1", "-1", "1-", "+1", "1,,2", "1-2-3"] {
            assert!(ports(text).is_err(), "{text}");
        }
        let shown = |text: &str| {
            let list = capability(text).map_err(|(what, _)| what)?;
            Ok(list.iter().map(Service::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, services) in [
            ("*", "*"),
            ("*:*", "*"),
            ("tcp:443", "tcp:443"),
            ("udp:53,123", "udp:53 udp:123"),
            ("443", "tcp:443 udp:443 icmp:* ipv6-icmp:*"),
            ("icmp:*", "icmp:* ipv6-icmp:*"),
            ("icmp", "icmp:* ipv6-icmp:*"),
            ("47:*", "gre:*"),
        ] {
            assert_eq!(shown(text), Ok::<_, String>(services.to_owned()), "{text}");
        }
        for text in ["icmp:8", "gre:1", "tcp", "xyz", "tcp:", "*:443", "tcp:1:2"] {
            assert_eq!(shown(text).is_err(), text != "tcp", "{text}");
        }
    }

    #[test]
    fn set_bits_behind_a_prefix_are_noticed() {
        assert!(has_host_bits("10.1.2.3/8") && has_host_bits("fd00::1/64"));
        assert!(
            !has_host_bits("10.0.0.0/8") && !has_host_bits("10.1.2.3") && !has_host_bits("a/b")
        );
    }
}
