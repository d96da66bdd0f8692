//! ARP for IPv4 on Ethernet (RFC 826): who has an address, and who says so.

use core::net::Ipv4Addr;

/// Bytes of a message.
pub const LEN: usize = 28;
/// An address of Ethernet.
pub type Mac = [u8; 6];
/// Everybody on the link.
pub const EVERYBODY: Mac = [0xff; 6];
/// Ethernet and IPv4, with the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// It says who has an address; else it asks.
    pub is_reply: bool,
    /// Who sends it.
    pub sender_mac: Mac,
    /// The address that the sender has.
    pub sender: Ipv4Addr,
    /// To whom a reply is.
    pub target_mac: Mac,
    /// The address that is asked for, or that the one has to whom a reply is.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Reads a message; what follows it is padding. None if it is no such message.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let message = bytes.first_chunk::<LEN>()?;
        let is_reply = match u16::from_be_bytes([message[6], message[7]]) {
            REQUEST => false,
            REPLY => true,
            _ => return None,
        };
        let mac = |at: usize| core::array::from_fn(|index| message[at + index]);
        let address = |at: usize| {
            Ipv4Addr::from([message[at], message[at + 1], message[at + 2], message[at + 3]])
        };
        (message[..6] == KIND).then(|| Self {
            is_reply,
            sender_mac: mac(8),
            sender: address(14),
            target_mac: mac(18),
            target: address(24),
        })
    }

    /// Writes the message.
    #[must_use]
    pub fn write(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let operation = if self.is_reply { REPLY } else { REQUEST };
        bytes[..6].copy_from_slice(&KIND);
        bytes[6..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac);
        bytes[24..].copy_from_slice(&self.target.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_others_are_none() {
        let arp = Arp {
            is_reply: true,
            sender_mac: [2, 0, 0, 0, 0, 9],
            sender: Ipv4Addr::new(10, 4, 0, 252),
            target_mac: EVERYBODY,
            target: Ipv4Addr::new(10, 4, 0, 1),
        };
        let bytes = arp.write();
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(Arp::parse(&bytes), Some(arp));
        let padded = [&bytes[..], &[0; 18]].concat();
        assert_eq!(Arp::parse(&padded), Some(arp), "Ethernet has no shorter frames");
        assert_eq!(Arp::parse(&bytes[..LEN - 1]), None);
        for at in [0, 1, 2, 3, 4, 5, 6, 7] {
            let mut bytes = bytes;
            bytes[at] ^= 0x10;
            assert_eq!(Arp::parse(&bytes), None, "{at}");
        }
    }
}
