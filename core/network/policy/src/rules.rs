//! What one node enforces: plain data that the coordination server sends and the filter evaluates.

use core::fmt;
use core::net::IpAddr;

use wire::ip::protocol;

use crate::judged::Direction;
use crate::place::quoted;
use crate::ranges::{Ranges, number};

/// A protocol, and ports where it has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// The IP protocol number, `None` for all of them.
    pub protocol: Option<u8>,
    /// The lowest destination port.
    pub first: u16,
    /// The highest destination port.
    pub last: u16,
}

/// Names of protocols and their numbers. `icmp` is both kinds of ICMP, so that a rule means the
/// same in both families.
const NAMES: [(&str, &[u8]); 13] = [
    ("tcp", &[protocol::TCP]),
    ("udp", &[protocol::UDP]),
    ("icmp", &[protocol::ICMP, protocol::ICMPV6]),
    ("sctp", &[protocol::SCTP]),
    ("gre", &[47]),
    ("esp", &[protocol::ESP]),
    ("ah", &[protocol::AUTHENTICATION]),
    ("igmp", &[2]),
    ("ipv4", &[4]),
    ("ip-in-ip", &[4]),
    ("egp", &[8]),
    ("igp", &[9]),
    ("ipv6-icmp", &[protocol::ICMPV6]),
];

impl Service {
    /// Every protocol and port.
    pub const ANY: Self = Self { protocol: None, first: 0, last: u16::MAX };

    /// Whether a packet of `protocol` to `port` is of this service. Ports of protocols without
    /// ports are not looked at; ICMP is of the service wherever one of its ports is.
    #[inline]
    #[must_use]
    pub fn matches(&self, protocol: u8, port: u16) -> bool {
        match self.protocol {
            None => true,
            Some(own) => {
                own == protocol && (!has_ports(own) || (self.first..=self.last).contains(&port))
            }
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(number) = self.protocol else { return f.write_str("*") };
        match NAMES.iter().find(|(_, numbers)| *numbers == [number]) {
            Some((name, _)) => write!(f, "{name}")?,
            None if number == protocol::ICMP => write!(f, "icmp")?,
            None => write!(f, "{number}")?,
        }
        match (self.first, self.last) {
            (0, u16::MAX) => write!(f, ":*"),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

/// Whether a protocol's packets begin with a source and a destination port.
#[inline]
pub(crate) const fn has_ports(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP | protocol::SCTP)
}

/// The numbers that a protocol's name or decimal number stands for.
pub(crate) fn protocols(text: &str) -> Result<Vec<u8>, (String, String)> {
    if let Some((_, numbers)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(numbers.to_vec());
    }
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(1) if digits => Ok(vec![protocol::ICMP, protocol::ICMPV6]),
        Ok(number @ 2..=254) if digits => Ok(vec![number]),
        _ => {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            let mend = format!("known are {}, and numbers from 1 to 254", names.join(", "));
            Err((format!("{} is no protocol", quoted(text)), mend))
        }
    }
}

/// One rule as one node enforces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Who may begin.
    pub sources: Ranges,
    /// Where to.
    pub destinations: Ranges,
    /// With what.
    pub services: Vec<Service>,
    /// The line of the policy file that says so; 0 where there is no policy.
    pub line: u32,
    /// What it allows may be compressed on the way.
    pub compress: bool,
}

impl Rule {
    /// Whether it allows a first packet from `source` to `destination`.
    #[inline]
    #[must_use]
    pub fn allows(&self, source: IpAddr, destination: IpAddr, protocol: u8, port: u16) -> bool {
        self.allows_numbers(number(source), number(destination), protocol, port)
    }

    #[inline]
    pub(crate) fn allows_numbers(
        &self,
        source: u128,
        destination: u128,
        protocol: u8,
        port: u16,
    ) -> bool {
        self.services.iter().any(|service| service.matches(protocol, port))
            && self.destinations.has(destination)
            && self.sources.has(source)
    }
}

/// One rule of multicast as one node enforces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// `Out` where the node sends, `In` where it gets copies.
    pub direction: Direction,
    /// The line of the policy file that says so.
    pub line: u32,
    /// The groups.
    pub groups: Ranges,
    /// Which of their ports.
    pub services: Vec<Service>,
    /// Who sends.
    pub sources: Ranges,
    /// Who gets copies.
    pub receivers: Ranges,
    /// What each sender may send, in bytes of packets a second, before it is copied.
    pub rate_bytes_s: u64,
}

/// All that one node enforces. Without rules nothing passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What others may begin toward it and the networks behind it.
    pub inward: Vec<Rule>,
    /// What it and the networks behind it may begin.
    pub outward: Vec<Rule>,
    /// Which packets to groups pass, and who gets copies.
    pub multicast: Vec<Multicast>,
}

impl Rules {
    /// Rules without multicast.
    #[must_use]
    pub fn new(inward: Vec<Rule>, outward: Vec<Rule>) -> Self {
        Self { inward, outward, multicast: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_name_and_number() {
        for (text, numbers) in [
            ("tcp", &[6u8][..]),
            ("UDP", &[17]),
            ("icmp", &[1, 58]),
            ("1", &[1, 58]),
            ("58", &[58]),
            ("132", &[132]),
            ("254", &[254]),
        ] {
            assert_eq!(protocols(text).as_deref(), Ok(numbers), "{text}");
        }
        for text in ["", "tpc", "0", "255", "256", "+6", "0006", "*"] {
            assert!(protocols(text).is_err(), "{text}");
        }
    }

    #[test]
    fn services_look_at_ports_only_where_there_are_any() {
        let web = Service { protocol: Some(6), first: 80, last: 81 };
        let icmp = Service { protocol: Some(1), first: 443, last: 443 };
        assert!(web.matches(6, 80) && web.matches(6, 81));
        assert!(!web.matches(6, 79) && !web.matches(6, 82) && !web.matches(17, 80));
        assert!(icmp.matches(1, 0) && !icmp.matches(58, 0));
        assert!(Service::ANY.matches(253, 9));
        assert_eq!(web.to_string(), "tcp:80-81");
        assert_eq!(icmp.to_string(), "icmp:443");
        assert_eq!(Service::ANY.to_string(), "*");
    }
}
