//! Reverse names: `4.3.2.1.in-addr.arpa` (RFC 1035, section 3.5) and nibbles below `ip6.arpa`
//! (RFC 3596, section 2.5).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::prefix::Prefix;

use crate::name::Name;

/// The network that a reverse name stands for: a whole address, or the part of one that the labels
/// give. `None` for names elsewhere and for labels that nobody would write so.
pub(crate) fn network(name: &Name) -> Option<Prefix> {
    let labels = name.labels();
    let (rest, top) = labels.split_at(labels.len().checked_sub(2)?);
    if !top[1].eq_ignore_ascii_case(b"arpa") {
        return None;
    }
    if top[0].eq_ignore_ascii_case(b"in-addr") && rest.len() <= 4 {
        let mut octets = [0; 4];
        for (octet, label) in octets.iter_mut().zip(rest.iter().rev()) {
            *octet = decimal(label)?;
        }
        let bits = u8::try_from(8 * rest.len()).ok()?;
        return Prefix::new(IpAddr::V4(Ipv4Addr::from(octets)), bits);
    }
    if top[0].eq_ignore_ascii_case(b"ip6") && rest.len() <= 32 {
        let mut address = 0_u128;
        for (i, label) in rest.iter().rev().enumerate() {
            let [digit] = label[..] else { return None };
            let digit = char::from(digit).to_digit(16)?;
            address |= u128::from(digit) << (124 - 4 * i);
        }
        let bits = u8::try_from(4 * rest.len()).ok()?;
        return Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(address)), bits);
    }
    None
}

/// The reverse zones that make up `range`, as a resolver is told of them: 128 at most, since a
/// label is 8 bits (IPv4) or 4 (IPv6). None for a whole family.
#[must_use]
pub fn reverse_zones(range: &Prefix) -> Vec<String> {
    let (step, whole) = if range.address().is_ipv4() { (8, 32) } else { (4, 128) };
    let labels = u32::from(range.bits()).div_ceil(step);
    let bits = labels * step;
    let free = labels * step - u32::from(range.bits());
    if range.is_default() {
        return Vec::new();
    }
    let first = match range.address() {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    };
    let zone = |n: u128| {
        let address = first | n.checked_shl(whole - bits).unwrap_or(0);
        let label = |i: u32| {
            let value = (address >> (whole - step * (i + 1))) & ((1 << step) - 1);
            if step == 8 { value.to_string() } else { format!("{value:x}") }
        };
        let labels: Vec<String> = (0..labels).rev().map(label).collect();
        let top = if step == 8 { "in-addr" } else { "ip6" };
        format!("{}.{top}.arpa", labels.join("."))
    };
    (0..1_u128 << free).map(zone).collect()
}

/// How many labels a name has at least to be inside of `range` for certain.
pub(crate) fn labels_of(range: &Prefix) -> usize {
    let step = if range.address().is_ipv4() { 8 } else { 4 };
    usize::from(range.bits()).div_ceil(step) + 2
}

fn decimal(label: &[u8]) -> Option<u8> {
    let plain = !label.is_empty() && label.iter().all(u8::is_ascii_digit);
    let no_zero = label.len() == 1 || !label.starts_with(b"0");
    core::str::from_utf8(label).ok().filter(|_| plain && no_zero)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_made_of_zones() {
        let zones = |text: &str| reverse_zones(&text.parse().unwrap());
        let cgn = zones("100.64.0.0/10");
        assert_eq!((cgn.len(), cgn[0].as_str()), (64, "64.100.in-addr.arpa"));
        assert_eq!(cgn[63], "127.100.in-addr.arpa");
        assert_eq!(zones("10.0.0.0/8"), ["10.in-addr.arpa"]);
        assert_eq!(zones("192.168.5.0/24"), ["5.168.192.in-addr.arpa"]);
        assert_eq!(zones("192.168.5.7/32"), ["7.5.168.192.in-addr.arpa"]);
        assert_eq!(zones("fd77::/16"), ["7.7.d.f.ip6.arpa"]);
        assert_eq!(zones("fc00::/7"), ["c.f.ip6.arpa", "d.f.ip6.arpa"]);
        assert_eq!(zones("0.0.0.0/0").len(), 0);
        for range in ["100.64.0.0/10", "fd77:1::/45", "10.0.0.0/9"] {
            let range: Prefix = range.parse().unwrap();
            for zone in reverse_zones(&range) {
                let network = network(&Name::from_text(&zone).unwrap()).unwrap();
                assert!(range.contains(network.address()) && network.bits() >= range.bits());
            }
        }
    }

    #[test]
    fn reverse_names_are_networks() {
        let nibbles = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.7.7.d.F.IP6.arpa";
        for (text, expected) in [
            ("4.3.2.1.in-addr.arpa", Some("1.2.3.4/32")),
            ("0.64.100.IN-ADDR.ARPA", Some("100.64.0.0/24")),
            ("in-addr.arpa", Some("0.0.0.0/0")),
            ("5.4.3.2.1.in-addr.arpa", None),
            ("256.3.2.1.in-addr.arpa", None),
            ("04.3.2.1.in-addr.arpa", None),
            ("+4.3.2.1.in-addr.arpa", None),
            (nibbles, Some("fd77::1/128")),
            ("7.7.d.f.ip6.arpa", Some("fd77::/16")),
            ("77.d.f.ip6.arpa", None),
            ("g.d.f.ip6.arpa", None),
            ("arpa", None),
            ("in-addr.example", None),
        ] {
            let network = network(&Name::from_text(text).unwrap());
            assert_eq!(network, expected.map(|e| e.parse().unwrap()), "{text}");
        }
        assert_eq!(labels_of(&"100.64.0.0/10".parse().unwrap()), 4);
        assert_eq!(labels_of(&"fd77::/48".parse().unwrap()), 14);
    }
}
