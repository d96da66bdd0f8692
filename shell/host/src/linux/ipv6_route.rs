//! Whether the machine has a way out for packets of IPv6, by the kernel's own list of routes.

/// Bytes of a line before the name of its interface are in columns: destination, length of the
/// prefix, source, length of its prefix, next hop, metric, two counters, flags, interface.
const COLUMNS: usize = 10;
/// RTF_REJECT: the route says that there is none.
const REJECT: u32 = 0x0200;

/// Whether a default route of IPv6 leads out by another interface than `own_link`.
#[must_use]
pub fn leads_six(own_link: &str) -> bool {
    let routes = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    routes.lines().any(|line| is_way_out(line, own_link))
}

fn is_way_out(line: &str, own_link: &str) -> bool {
    let columns: Vec<&str> = line.split_whitespace().collect();
    if columns.len() != COLUMNS {
        return false;
    }
    let is_default = columns[1] == "00" && columns[3] == "00";
    let flags = u32::from_str_radix(columns[8], 16).unwrap_or(REJECT);
    is_default && flags & REJECT == 0 && ![own_link, "lo"].contains(&columns[9])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_that_refuses_or_is_our_own_is_no_way_out() {
        let none = "00000000000000000000000000000000";
        let line = |to: &str, bits: &str, flags: &str, link: &str| {
            let by = "fd000000000000000000000000000001";
            format!("{to} {bits} {none} 00 {by} 00000400 00000002 00000000 {flags}     {link}")
        };
        assert!(is_way_out(&line(none, "00", "00000003", "eth0"), "warren0"));
        assert!(!is_way_out(&line(none, "00", "00000003", "warren0"), "warren0"));
        assert!(!is_way_out(&line(none, "00", "00200200", "lo"), "warren0"));
        assert!(!is_way_out(&line(none, "00", "00200200", "eth0"), "warren0"));
        let network = "20010db8000000000000000000000000";
        assert!(!is_way_out(&line(network, "20", "00000001", "eth0"), "warren0"));
        assert!(!is_way_out("", "warren0"));
    }
}
