//! What a node can be told and what it says of itself: the configuration language that the control
//! socket, the reader of wg-quick files and the tests share. Values only; nothing here acts.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use noise::{PresharedKey, PrivateKey, PublicKey};

/// One step of configuration. Steps are applied in order, each complete in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Our static key; `None` takes it away, and with it every session.
    PrivateKey(Option<PrivateKey>),
    /// The UDP port to listen on; 0 lets the system choose.
    ListenPort(u16),
    /// The mark on every datagram that leaves; 0 for none.
    Fwmark(u32),
    /// Forget every peer.
    ReplacePeers,
    /// Make, change or remove one peer.
    Peer(PeerChange),
}

/// What is to change on one peer; a field that is `None` or empty stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerChange {
    /// The peer's static key, its only name.
    pub key: PublicKey,
    /// Do nothing if the peer is not known yet.
    pub update_only: bool,
    /// Forget the peer; everything else in this change is void.
    pub remove: bool,
    /// A new pre-shared key; all zero takes it away.
    pub preshared_key: Option<PresharedKey>,
    /// Where to send until the peer is heard from elsewhere.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between persistent keepalives, 0 for none.
    pub keepalive_s: Option<u16>,
    /// Take away all prefixes the peer has before `allowed_ips` is applied.
    pub replace_allowed_ips: bool,
    /// Prefixes to give to the peer or to take from it, in order.
    pub allowed_ips: Vec<AllowedIp>,
}

impl PeerChange {
    /// A change that makes the peer known and alters nothing else.
    pub fn new(key: PublicKey) -> Self {
        Self {
            key,
            update_only: false,
            remove: false,
            preshared_key: None,
            endpoint: None,
            keepalive_s: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}

/// One prefix in a [`PeerChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllowedIp {
    /// The prefix.
    pub prefix: Prefix,
    /// Take it from the peer, if the peer has it, instead of giving it.
    pub remove: bool,
}

impl AllowedIp {
    /// Give `prefix` to the peer.
    pub fn give(prefix: Prefix) -> Self {
        Self { prefix, remove: false }
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Our static key, if one is set.
    pub private_key: Option<PrivateKey>,
    /// The UDP port in use; 0 while no socket is open.
    pub listen_port: u16,
    /// The mark on what leaves; 0 for none.
    pub fwmark: u32,
    /// Every peer.
    pub peers: Vec<PeerStatus>,
}

/// What a node says of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's static key.
    pub key: PublicKey,
    /// The pre-shared key; all zero if there is none.
    pub preshared_key: PresharedKey,
    /// Where the peer was last heard from, or was said to be.
    pub endpoint: Option<SocketAddr>,
    /// When the newest handshake was completed, since the Unix epoch.
    pub last_handshake: Option<Duration>,
    /// Bytes received from the peer, as they came off the wire.
    pub rx_bytes: u64,
    /// Bytes sent to the peer, as they went onto the wire.
    pub tx_bytes: u64,
    /// Seconds between persistent keepalives, 0 for none.
    pub keepalive_s: u16,
    /// The prefixes the peer has.
    pub allowed_ips: Vec<Prefix>,
}

/// A network: an address whose host bits are zero and the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The network of `bits` leading bits that `address` is in; `None` if there are more `bits`
    /// than the family has (32 or 128).
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(a) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Self { address, bits })
    }

    /// The network that holds this one address and no other.
    pub fn host(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The lowest address of the network.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether this is the whole family, `0.0.0.0/0` or `::/0`.
    pub fn is_default(&self) -> bool {
        self.bits == 0
    }

    /// Whether `address` is in the network. Families never match each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.bits).is_some_and(|p| p.address == self.address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Why a text is not a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPrefix {
    /// What stands before the `/` is not an IPv4 or IPv6 address.
    Address,
    /// What stands after the `/` is not a decimal number up to 32 or 128.
    Bits,
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an IPv4 or IPv6 address",
            Self::Bits => "the number after '/' must be 0 to 32 for IPv4, 0 to 128 for IPv6",
        })
    }
}

impl core::error::Error for BadPrefix {}

impl FromStr for Prefix {
    type Err = BadPrefix;

    /// Reads `ADDRESS` or `ADDRESS/BITS`; host bits are cleared.
    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadPrefix::Address)?;
        let Some(bits) = bits else { return Ok(Self::host(address)) };
        if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadPrefix::Bits);
        }
        let bits = bits.parse().map_err(|_| BadPrefix::Bits)?;
        Self::new(address, bits).ok_or(BadPrefix::Bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_clears_host_bits_and_prints_itself() {
        for (text, printed) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("255.255.255.255/0", "0.0.0.0/0"),
            ("fd00:1:2::9/32", "fd00:1::/32"),
            ("::1", "::1/128"),
            ("ffff::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, why) in [
            ("", BadPrefix::Address),
            ("10.0.0/8", BadPrefix::Address),
            ("10.0.0.0/", BadPrefix::Bits),
            ("10.0.0.0/33", BadPrefix::Bits),
            ("10.0.0.0/+8", BadPrefix::Bits),
            ("::/129", BadPrefix::Bits),
            ("::/0008", BadPrefix::Bits),
            ("::/256", BadPrefix::Bits),
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(why), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bits in 0u8..=128, a: u128) {
            let p = Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(a)), bits).unwrap();
            prop_assert_eq!(p.to_string().parse::<Prefix>(), Ok(p));
            prop_assert!(p.contains(IpAddr::V6(Ipv6Addr::from_bits(a))));
            prop_assert!(!p.contains(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        }
    }
}
