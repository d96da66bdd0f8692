//! What finds and keeps paths: probes, their answers, and where else the sender may be reached.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{KIND_CANDIDATES, KIND_PROBE, KIND_PROBE_ANSWER, u16_at};
use crate::Malformed;

/// Asks whether datagrams pass on one path, of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The sender's number of the path, for whoever reads a trace.
    pub path: u16,
    /// 64 random bits; an answer repeats them.
    pub nonce: u64,
    /// Bytes of the whole frame; zeros fill it.
    pub len: u16,
}

/// The answer, which goes back to where the probe came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// The probe's.
    pub nonce: u64,
    /// Bytes of the probe that came.
    pub len: u16,
    /// Where the probe came from, as the answering end sees it; `None` through a relay.
    pub observed: Option<SocketAddr>,
}

/// Where the sender may be reached, now: "call me maybe".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates<'a> {
    /// The sender's translator maps by destination: ports said here are those of others.
    pub varies: bool,
    entries: &'a [u8],
}

impl Probe {
    /// Length of the shortest, in bytes: that of an answer.
    pub const LEN_MIN: usize = 32;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        if plain.len() < Self::LEN_MIN {
            return Err(Malformed::Truncated);
        }
        let len = u16::try_from(plain.len()).map_err(|_| Malformed::TotalLength)?;
        Ok(Self { path: u16_at(plain, 2), nonce: nonce(plain), len })
    }

    /// Fills `out`, which has the probe's length.
    ///
    /// # Panics
    /// When it is shorter than [`Probe::LEN_MIN`].
    pub fn write(&self, out: &mut [u8]) {
        out.fill(0);
        out[0] = KIND_PROBE;
        out[2..4].copy_from_slice(&self.path.to_le_bytes());
        out[4..12].copy_from_slice(&self.nonce.to_le_bytes());
    }
}

impl ProbeAnswer {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 32;

    pub(super) fn parse(plain: &[u8]) -> Result<Self, Malformed> {
        let fixed: &[u8; Self::LEN] = plain.first_chunk().ok_or(Malformed::Truncated)?;
        let observed = match fixed[1] {
            0 => None,
            _ => Some(read_address(fixed[1], u16_at(fixed, 2), &fixed[16..])?),
        };
        Ok(Self { nonce: nonce(fixed), len: u16_at(fixed, 12), observed })
    }

    /// The frame's bytes.
    #[must_use]
    pub fn build(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = KIND_PROBE_ANSWER;
        bytes[4..12].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.len.to_le_bytes());
        if let Some(observed) = self.observed {
            let (family, address) = written(observed);
            bytes[1] = family;
            bytes[2..4].copy_from_slice(&observed.port().to_le_bytes());
            bytes[16..].copy_from_slice(&address);
        }
        bytes
    }
}

impl<'a> Candidates<'a> {
    /// Entries, at most.
    pub const COUNT_MAX: usize = 32;
    /// Bytes in front of the entries.
    pub const FIXED_LEN: usize = 4;
    /// Bytes of an entry.
    pub const ENTRY_LEN: usize = 20;

    pub(super) fn parse(plain: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = plain.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
        let count = usize::from(fixed[1]);
        if count > Self::COUNT_MAX {
            return Err(Malformed::TotalLength);
        }
        let entries = rest.get(..count * Self::ENTRY_LEN).ok_or(Malformed::Truncated)?;
        Ok(Self { varies: fixed[2] & 1 == 1, entries })
    }

    /// What it names, without those of a family that is not known.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + use<'a> {
        let entries = self.entries.as_chunks::<20>().0;
        entries
            .iter()
            .filter_map(|entry| read_address(entry[0], u16_at(entry, 2), &entry[4..]).ok())
    }

    /// Length on the wire of so many, in bytes.
    #[must_use]
    pub const fn len_of(count: usize) -> usize {
        Self::FIXED_LEN + count * Self::ENTRY_LEN
    }

    /// Writes the frame that names the first of `addresses`, to [`Candidates::COUNT_MAX`], to the
    /// start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Candidates::len_of`] their number.
    pub fn write(addresses: &[SocketAddr], varies: bool, out: &mut [u8]) {
        let count = addresses.len().min(Self::COUNT_MAX);
        let (fixed, entries) = out[..Self::len_of(count)].split_at_mut(Self::FIXED_LEN);
        fixed.copy_from_slice(&[KIND_CANDIDATES, count as u8, u8::from(varies), 0]);
        for (entry, address) in entries.chunks_exact_mut(Self::ENTRY_LEN).zip(addresses) {
            let (family, bytes) = written(*address);
            entry[..2].copy_from_slice(&[family, 0]);
            entry[2..4].copy_from_slice(&address.port().to_le_bytes());
            entry[4..].copy_from_slice(&bytes);
        }
    }
}

fn nonce(bytes: &[u8]) -> u64 {
    bytes[4..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn read_address(family: u8, port: u16, bytes: &[u8]) -> Result<SocketAddr, Malformed> {
    let ip: IpAddr = match family {
        4 => Ipv4Addr::from(*bytes.first_chunk::<4>().ok_or(Malformed::Truncated)?).into(),
        6 => Ipv6Addr::from(*bytes.first_chunk::<16>().ok_or(Malformed::Truncated)?).into(),
        _ => return Err(Malformed::Version),
    };
    Ok(SocketAddr::new(ip, port))
}

fn written(address: SocketAddr) -> (u8, [u8; 16]) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            (4, bytes)
        }
        IpAddr::V6(ip) => (6, ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    #[test]
    fn a_probe_and_its_answer_are_what_the_page_says() {
        let probe = Probe { path: 0x0102, nonce: 0x0807_0605_0403_0201, len: 40 };
        let mut out = [0xee; 40];
        probe.write(&mut out);
        assert_eq!(out[..12], [0x88, 0, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(out[12..], [0; 28]);
        assert_eq!(parse(&out), Ok(Frame::Probe(probe)));
        assert!((1..Probe::LEN_MIN).all(|len| parse(&out[..len]).is_err()));
        for observed in [None, Some("192.0.2.1:258"), Some("[2001:db8::1]:258")] {
            let observed = observed.map(|text| text.parse().expect("an address"));
            let answer = ProbeAnswer { nonce: probe.nonce, len: 40, observed };
            let bytes = answer.build();
            assert_eq!(bytes[4..16], [1, 2, 3, 4, 5, 6, 7, 8, 40, 0, 0, 0]);
            assert_eq!(parse(&bytes), Ok(Frame::ProbeAnswer(answer)));
            assert!((1..bytes.len()).all(|len| parse(&bytes[..len]).is_err()));
        }
        let mut bytes = ProbeAnswer { nonce: 1, len: 40, observed: None }.build();
        bytes[1] = 5;
        assert_eq!(parse(&bytes), Err(Malformed::Version));
    }

    #[test]
    fn nt_05_candidates_are_what_the_page_says_and_no_more_than_32() {
        let named: Vec<SocketAddr> = ["192.0.2.1:258", "[2001:db8::1]:9", "[::ffff:10.0.0.1]:9"]
            .map(|text| text.parse().expect("an address"))
            .to_vec();
        let mut out = [0; 64];
        Candidates::write(&named, true, &mut out);
        assert_eq!(out[..12], [0x8a, 3, 1, 0, 4, 0, 2, 1, 192, 0, 2, 1]);
        let Ok(Frame::Candidates(candidates)) = parse(&out) else { panic!("it is one") };
        assert!(candidates.varies);
        let read: Vec<SocketAddr> = candidates.addresses().collect();
        assert_eq!(read[..2], named[..2]);
        assert_eq!(read[2], "10.0.0.1:9".parse().expect("an address"));
        assert!((1..64).all(|len| parse(&out[..len]).is_err()));
        out[4] = 7;
        let Ok(Frame::Candidates(candidates)) = parse(&out) else { panic!("it is one") };
        assert_eq!(candidates.addresses().count(), 2, "a family of a later version");
        let mut many = [0; Candidates::len_of(32) + 20];
        Candidates::write(&vec![named[0]; 40], false, &mut many);
        assert_eq!(many[1], 32);
        many[1] = 33;
        assert_eq!(parse(&many), Err(Malformed::TotalLength));
    }
}
