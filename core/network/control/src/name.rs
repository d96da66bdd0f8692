//! Names of nodes: DNS labels (RFC 1035, section 2.3.1), made from what a machine calls itself, and
//! unique in the network by a suffix: `robot`, `robot-1`, `robot-2`.

use crate::limits::{DOMAIN_LEN_MAX, LABEL_LEN_MAX, TAG_LEN_MAX};

/// What a machine is called whose hostname has no usable character.
const NAMELESS: &str = "node";
/// Labels that programs look for in any domain, or take for the machine itself: a node gets none of
/// them, and `core/network/dns` answers for none (threat DN-03).
const RESERVED: [&str; 6] =
    ["localhost", "local", "wpad", "isatap", "broadcasthost", "autodiscover"];
/// What a tag begins with.
pub const TAG_PREFIX: &str = "tag:";
/// The tag that `warren sites` gives every gateway; another one names its site.
pub const SITES_TAG: &str = "tag:warren-sites";

/// Whether `label` is a lower-case DNS label: 1 to 63 letters, digits and hyphens, none at either
/// end.
#[must_use]
pub fn is_label(label: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=LABEL_LEN_MAX).contains(&label.len())
        && label.bytes().all(plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether `label` is digits and nothing else: nodes have numbers, and what names one is not what
/// another has (threat CO-19).
#[must_use]
pub fn is_number(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit())
}

/// Whether programs look for `label` in any domain, or take it for the machine itself: neither a
/// node nor anything else has such a name.
#[must_use]
pub fn is_reserved(label: &str) -> bool {
    RESERVED.contains(&label)
}

/// Whether `domain` is labels with dots between them, 253 characters at most.
#[must_use]
pub fn is_domain(domain: &str) -> bool {
    domain.len() <= DOMAIN_LEN_MAX && domain.split('.').all(is_label)
}

/// Domains of one label that are nobody's in the world's names.
const PRIVATE: [&str; 9] =
    ["internal", "lan", "home", "corp", "private", "intranet", "test", "alt", "mesh"];
/// Labels before one of a country with which that country's names begin, as in `co.uk`.
const BEFORE_COUNTRY: [&str; 8] = ["ac", "co", "com", "edu", "gov", "net", "org", "ne"];

/// Why nodes do not get their names below a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadDomain {
    /// It is none.
    Form,
    /// Names of the whole world are below it.
    World,
    /// This host, by whose name nodes find their server, is below it.
    Server(String),
}

/// Whether nodes may have their names below `domain`: they answer for all of it, so it must take
/// away neither the world's names nor those of the server, whose `hosts` these are.
///
/// # Errors
/// [`BadDomain`].
pub fn check_domain<'a>(
    domain: &str,
    hosts: impl IntoIterator<Item = &'a str>,
) -> Result<(), BadDomain> {
    if !is_domain(domain) {
        return Err(BadDomain::Form);
    }
    let labels: Vec<&str> = domain.split('.').collect();
    let is_world = match labels[..] {
        [one] => !PRIVATE.contains(&one),
        [first, country] => country.len() == 2 && BEFORE_COUNTRY.contains(&first),
        _ => false,
    };
    if is_world || ["in-addr.arpa", "ip6.arpa"].contains(&domain) {
        return Err(BadDomain::World);
    }
    for host in hosts {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let is_below =
            name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if is_below {
            return Err(BadDomain::Server(host.to_owned()));
        }
    }
    Ok(())
}

impl core::fmt::Display for BadDomain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Form => f.write_str("it is no domain; give lower-case labels with dots"),
            Self::World => {
                f.write_str("names of the whole world are below it, and no node would find them")
            }
            Self::Server(host) => write!(
                f,
                "the server's own name {host} is below it, and no node would find the server"
            ),
        }
    }
}

/// Whether `tag` is `tag:` and a label.
#[must_use]
pub fn is_tag(tag: &str) -> bool {
    tag.len() <= TAG_LEN_MAX && tag.strip_prefix(TAG_PREFIX).is_some_and(is_label)
}

/// The label that a machine's own hostname becomes: its first part in lower case, everything that
/// a label cannot have made a hyphen, never two in a row, and `node-` before one that is a number
/// (threat CO-19).
#[must_use]
pub fn label_of(hostname: &str) -> String {
    let first = hostname.split('.').next().unwrap_or_default();
    let mut label = String::new();
    for c in first.chars() {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            label.push(c);
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
        if label.len() == LABEL_LEN_MAX {
            break;
        }
    }
    let label = label.trim_end_matches('-');
    if is_number(label) {
        let digits = &label[..label.len().min(LABEL_LEN_MAX - NAMELESS.len() - 1)];
        return format!("{NAMELESS}-{digits}");
    }
    if label.is_empty() { NAMELESS.to_owned() } else { label.to_owned() }
}

/// Whether [`unique`] may have made `name` of this label.
#[must_use]
pub fn is_made_of(name: &str, label: &str) -> bool {
    name == label
        || name.rsplit_once('-').is_some_and(|(stem, number)| {
            let most = LABEL_LEN_MAX.saturating_sub(number.len() + 1);
            let cut = label[..label.len().min(most)].trim_end_matches('-');
            is_number(number) && !number.starts_with('0') && stem == cut
        })
}

/// `label` if it is free and no reserved one, else with the first of `-1`, `-2` … that is free; the
/// label is shortened where it would be longer than 63 characters with its suffix. `taken` is
/// asked once for each candidate, so at most once more than there are nodes.
#[must_use]
pub fn unique(label: &str, mut taken: impl FnMut(&str) -> bool) -> String {
    if !is_reserved(label) && !taken(label) {
        return label.to_owned();
    }
    let mut number = 1_u64;
    loop {
        let suffix = format!("-{number}");
        let stem = &label[..label.len().min(LABEL_LEN_MAX - suffix.len())];
        let name = stem.trim_end_matches('-').to_owned() + &suffix;
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_19_whatever_a_machine_calls_itself_becomes_a_label() {
        for (hostname, label) in [
            ("dev-1", "dev-1"),
            ("Anna's MacBook Pro", "anna-s-macbook-pro"),
            ("host.example.org", "host"),
            ("<script>alert(1)</script>", "script-alert-1-script"),
            ("../../etc/passwd", "node"),
            ("--", "node"),
            ("", "node"),
            ("名前", "node"),
            ("a\u{0}\u{1b}[31mb", "a-31mb"),
            ("12", "node-12"),
            ("007.example.org", "node-007"),
            ("12-", "node-12"),
            ("1-2", "1-2"),
        ] {
            assert_eq!(label_of(hostname), label, "{hostname:?}");
            assert!(is_label(&label_of(hostname)));
        }
        assert_eq!(label_of(&"a".repeat(10_000)).len(), LABEL_LEN_MAX);
        assert_eq!(label_of(&"1".repeat(10_000)).len(), LABEL_LEN_MAX);
    }

    #[test]
    fn the_second_of_a_name_gets_a_suffix_and_a_long_one_is_shortened() {
        let mut names = std::collections::BTreeSet::new();
        for expected in ["dev", "dev-1", "dev-2"] {
            let name = unique("dev", |name| names.contains(name));
            assert_eq!(name, expected);
            names.insert(name);
        }
        let long = "a".repeat(LABEL_LEN_MAX);
        for number in 0..120 {
            let name = unique(&long, |name| names.contains(name));
            assert!(is_label(&name), "{number}: {name}");
            assert!(names.insert(name));
        }
    }

    #[test]
    fn a_name_is_known_for_one_that_was_made_of_a_label() {
        let long = "a".repeat(LABEL_LEN_MAX);
        for label in ["dev", "dev-1", &long] {
            for count in [0, 1, 12] {
                let mut left = count;
                let name = unique(label, |_| {
                    left -= 1;
                    left >= 0
                });
                assert!(is_made_of(&name, label), "{name} of {label}");
                assert!(!is_made_of(&name, "other"));
            }
        }
        for other in ["boss", "dev-", "dev-x", "dev-01", "devil", "-1", "de-1", "1"] {
            assert!(!is_made_of(other, "dev"), "{other}");
        }
    }

    #[test]
    fn dn_03_labels_that_programs_look_for_get_a_suffix() {
        for label in RESERVED {
            assert_eq!(unique(&label_of(&label.to_uppercase()), |_| false), format!("{label}-1"));
        }
    }

    #[test]
    fn dn_09_a_domain_takes_neither_the_worlds_names_nor_the_servers() {
        let hosts = ["vpn.example.com", "192.0.2.1", "[2001:db8::1]"];
        for (domain, is) in [
            ("warren.internal", Ok(())),
            ("internal", Ok(())),
            ("net.example.com", Ok(())),
            ("pn.example.com", Ok(())),
            ("com", Err(BadDomain::World)),
            ("de", Err(BadDomain::World)),
            ("co.uk", Err(BadDomain::World)),
            ("ip6.arpa", Err(BadDomain::World)),
            ("home.arpa", Ok(())),
            ("a..b", Err(BadDomain::Form)),
            ("", Err(BadDomain::Form)),
            ("example.com", Err(BadDomain::Server("vpn.example.com".to_owned()))),
            ("vpn.example.com", Err(BadDomain::Server("vpn.example.com".to_owned()))),
        ] {
            assert_eq!(check_domain(domain, hosts), is, "{domain}");
        }
        assert!(check_domain("example.com", ["VPN.Example.com."]).is_err());
    }

    #[test]
    fn tags_and_domains_are_labels_too() {
        assert!(is_tag("tag:robot") && is_tag(SITES_TAG));
        assert!(!is_tag("robot") && !is_tag("tag:") && !is_tag("tag:A"));
        assert!(is_domain("warren.internal") && !is_domain("a..b") && !is_domain(""));
        assert!(!is_domain(&vec!["a".repeat(60); 5].join(".")));
    }
}
