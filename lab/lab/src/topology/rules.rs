//! The nftables rules of a node: what is blocked, and how addresses are translated.
//!
//! Linux keeps the inside's port where it is free, which makes a plain masquerade map
//! endpoint-independently and filter by address and port. The cones let more in: they remember
//! which inside a port belongs to, and send on to it what comes for that port. With two insides
//! on one port the last to send has it. "Symmetric" draws a random port for each destination.
//! What comes uninvited is dropped, not answered: an answer would tell the sender to stop, and
//! a packet that is accepted would take the port from the inside's next packet.

/// What can be blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// All of UDP.
    Udp,
    /// All of TCP.
    Tcp,
    /// ICMP of version 4, and echo of version 6, which needs the rest to find neighbours.
    Icmp,
    /// All but TCP to and from port 443.
    AllBut443,
}

/// How a router translates version 4 addresses, by the names that people know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// Mapping and filtering independent of the other end (UDP).
    FullCone,
    /// Mapping independent, filtering by the other end's address (UDP).
    AddressRestricted,
    /// Mapping independent, filtering by the other end's address and port.
    PortRestricted,
    /// Both depend on the other end's address and port; ports are random.
    Symmetric,
}

impl Block {
    const WORDS: [(&str, Self); 4] = [
        ("udp", Self::Udp),
        ("tcp", Self::Tcp),
        ("icmp", Self::Icmp),
        ("all-but-443", Self::AllBut443),
    ];

    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, block)| *block)
    }

    pub(super) fn known(word: &str) -> String {
        let known = Self::WORDS.map(|(word, _)| word).join(", ");
        format!("{word:?} cannot be blocked: use one of {known}")
    }
}

impl NatKind {
    const WORDS: [(&str, Self); 4] = [
        ("full-cone", Self::FullCone),
        ("address-restricted", Self::AddressRestricted),
        ("port-restricted", Self::PortRestricted),
        ("symmetric", Self::Symmetric),
    ];

    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    }

    pub(super) fn known(word: &str) -> String {
        let known = Self::WORDS.map(|(word, _)| word).join(", ");
        format!("unknown kind of NAT {word:?}: use one of {known}")
    }
}

/// The rules of a node in nft's language; empty if it needs none.
pub(super) fn of(blocked: &[Block], nat: Option<&(NatKind, Vec<String>)>) -> String {
    let mut text = blocking(blocked);
    if let Some((kind, outside)) = nat {
        text += &translating(*kind, outside);
    }
    text
}

fn blocking(blocked: &[Block]) -> String {
    if blocked.is_empty() {
        return String::new();
    }
    let mut rules = String::new();
    for block in blocked {
        rules += match block {
            Block::Udp => "    meta l4proto udp drop\n",
            Block::Tcp => "    meta l4proto tcp drop\n",
            Block::Icmp => {
                "    meta l4proto icmp drop\n    icmpv6 type { echo-request, echo-reply } drop\n"
            }
            Block::AllBut443 => {
                "    tcp dport 443 accept\n    tcp sport 443 accept\n    \
                 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n    drop\n"
            }
        };
    }
    let mut text = String::from("table inet lab_blocked {\n  chain judge {\n");
    text += "    iifname \"lo\" accept\n    oifname \"lo\" accept\n";
    text += &rules;
    text += "  }\n";
    for hook in ["input", "output", "forward"] {
        text += &format!("  chain {hook} {{\n    type filter hook {hook} priority -10\n");
        text += "    jump judge\n  }\n";
    }
    text + "}\n"
}

fn translating(kind: NatKind, outside: &[String]) -> String {
    let names = outside.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let memory = "flags dynamic, timeout; timeout 2m; size 65535";
    let mut text = String::from("table ip lab_nat {\n");
    let owner = "update @owners { udp sport : ip saddr }";
    let heard = "update @heard { udp sport . ip daddr }";
    let masquerade = match kind {
        NatKind::Symmetric => "masquerade random,fully-random",
        _ => "masquerade",
    };
    // What is noted of a packet that leaves, and what one that arrives must match.
    let cone = match kind {
        NatKind::FullCone => Some((owner.to_owned(), "")),
        NatKind::AddressRestricted => {
            Some((format!("{owner} {heard}"), "udp dport . ip saddr @heard"))
        }
        NatKind::PortRestricted | NatKind::Symmetric => None,
    };
    if let Some((noted, sent_on)) = cone {
        text += &format!("  map owners {{ type inet_service : ipv4_addr; {memory}; }}\n");
        text += &format!("  set heard {{ type inet_service . ipv4_addr; {memory}; }}\n");
        text += "  chain arriving {\n    type nat hook prerouting priority -100\n";
        text += &format!(
            "    iifname {{ {names} }} meta l4proto udp {sent_on} dnat to udp dport map @owners\n"
        );
        text += "  }\n  chain noted {\n    type filter hook postrouting priority 90\n";
        text += &format!("    oifname {{ {names} }} meta l4proto udp {noted}\n  }}\n");
    }
    text += "  chain leaving {\n    type nat hook postrouting priority 100\n";
    text += &format!("    oifname {{ {names} }} {masquerade}\n  }}\n");
    text += "  chain uninvited {\n    type filter hook input priority 0\n";
    text += &format!("    iifname {{ {names} }} ct state new meta l4proto != icmp drop\n  }}\n");
    text += "  chain inwards {\n    type filter hook forward priority 0\n";
    text += &format!("    iifname {{ {names} }} ct state new ct status dnat accept\n");
    text += &format!("    iifname {{ {names} }} oifname != {{ {names} }} ct state new drop\n");
    text + "  }\n}\n"
}
