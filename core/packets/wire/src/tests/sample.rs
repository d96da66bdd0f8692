//! Packets for tests, built the slow and obvious way, and naive models of checksum and cutting.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::tcp::Flags;
use crate::virtio;

/// The checksum as RFC 1071 §1 describes it: one 16-bit word after the other.
pub(crate) fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// All that a test varies in a packet.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) v4: bool,
    pub(crate) tcp: bool,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) hosts: (u8, u8),
    pub(crate) ports: (u16, u16),
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Sample {
    pub(crate) fn tcp(v4: bool, payload: Vec<u8>) -> Self {
        Self {
            v4,
            tcp: true,
            traffic_class: 0,
            flow_label: 0x1_2345,
            hop_limit: 64,
            id: 7,
            dont_fragment: true,
            hosts: (1, 2),
            ports: (40_000, 5201),
            sequence: 1000,
            acknowledgement: 2000,
            flags: Flags::ACK,
            window: 500,
            options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            payload,
        }
    }

    pub(crate) fn udp(v4: bool, payload: Vec<u8>) -> Self {
        Self { tcp: false, options: Vec::new(), ..Self::tcp(v4, payload) }
    }

    pub(crate) fn ip_len(&self) -> usize {
        if self.v4 { 20 } else { 40 }
    }

    pub(crate) fn header_len(&self) -> usize {
        self.ip_len() + if self.tcp { 20 + self.options.len() } else { 8 }
    }

    pub(crate) fn len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// The whole packet with right checksums.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut upper = self.upper();
        let at = if self.tcp { 16 } else { 6 };
        let mut sum = !naive_sum(&[self.pseudo(upper.len()), upper.clone()].concat());
        if !self.tcp && sum == 0 {
            sum = 0xffff;
        }
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        [self.ip_header(upper.len()), upper].concat()
    }

    /// The packet as a kernel hands it over to be cut: a partial checksum.
    pub(crate) fn build_super(&self, size: u16) -> (virtio::Header, Vec<u8>) {
        let mut upper = self.upper();
        let at = if self.tcp { 16 } else { 6 };
        let sum = naive_sum(&self.pseudo(upper.len()));
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut gso_type = match (self.tcp, self.v4) {
            (true, true) => virtio::GSO_TCPV4,
            (true, false) => virtio::GSO_TCPV6,
            (false, _) => virtio::GSO_UDP_L4,
        };
        if self.tcp && self.flags.any(Flags::CWR) {
            gso_type |= virtio::GSO_ECN;
        }
        let header = virtio::Header {
            flags: virtio::FLAG_NEEDS_CSUM,
            gso_type,
            hdr_len: self.header_len() as u16,
            gso_size: size,
            csum_start: self.ip_len() as u16,
            csum_offset: at as u16,
        };
        (header, [self.ip_header(upper.len()), upper].concat())
    }

    /// What segmentation must make of it.
    pub(crate) fn cut(&self, size: usize) -> Vec<Self> {
        let pieces: Vec<&[u8]> = self.payload.chunks(size).collect();
        let last = pieces.len() - 1;
        let part = |(index, piece): (usize, &&[u8])| {
            let mut flags = self.flags;
            if index != 0 {
                flags = flags.without(Flags::CWR);
            }
            if index != last {
                flags = flags.without(Flags::FIN.with(Flags::PSH));
            }
            Self {
                id: self.id.wrapping_add(index as u16),
                sequence: self.sequence.wrapping_add((index * size) as u32),
                flags,
                payload: piece.to_vec(),
                ..self.clone()
            }
        };
        pieces.iter().enumerate().map(part).collect()
    }

    fn addresses(&self) -> Vec<u8> {
        if self.v4 {
            return vec![10, 0, 0, self.hosts.0, 10, 0, 0, self.hosts.1];
        }
        let address = |host| [0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
        [address(self.hosts.0), address(self.hosts.1)].concat()
    }

    fn pseudo(&self, len: usize) -> Vec<u8> {
        let mut pseudo = self.addresses();
        pseudo.extend((len as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, if self.tcp { 6 } else { 17 }]);
        pseudo
    }

    fn ip_header(&self, upper_len: usize) -> Vec<u8> {
        let protocol = if self.tcp { 6 } else { 17 };
        let mut header = Vec::new();
        if !self.v4 {
            let class = u32::from(self.traffic_class) << 20;
            header.extend((6 << 28 | class | self.flow_label & 0xf_ffff).to_be_bytes());
            header.extend((upper_len as u16).to_be_bytes());
            header.extend([protocol, self.hop_limit]);
            header.extend(self.addresses());
            return header;
        }
        header.extend([0x45, self.traffic_class]);
        header.extend(((20 + upper_len) as u16).to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend([if self.dont_fragment { 0x40 } else { 0 }, 0, self.hop_limit, protocol]);
        header.extend([0, 0]);
        header.extend(self.addresses());
        let sum = !naive_sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn upper(&self) -> Vec<u8> {
        let mut upper = Vec::new();
        upper.extend(self.ports.0.to_be_bytes());
        upper.extend(self.ports.1.to_be_bytes());
        if self.tcp {
            upper.extend(self.sequence.to_be_bytes());
            upper.extend(self.acknowledgement.to_be_bytes());
            upper.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags.0]);
            upper.extend(self.window.to_be_bytes());
            upper.extend([0, 0, 0, 0]);
            upper.extend(&self.options);
        } else {
            upper.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            upper.extend([0, 0]);
        }
        upper.extend(&self.payload);
        upper
    }
}

/// Any packet that may be cut and merged, and the size to cut at.
pub(crate) fn any_sample() -> impl Strategy<Value = (Sample, usize)> {
    let flags = prop::sample::select(vec![0u8, 0x01, 0x08, 0x09, 0x40, 0x80, 0x88, 0xc9]);
    let fields = (any::<[bool; 3]>(), any::<(u8, u8)>(), any::<(u16, u16)>(), any::<(u32, u32)>());
    let rest = (flags, any::<u16>(), vec(any::<u8>(), 0..=10usize), any::<(u8, u8)>());
    let sizes = (vec(any::<u8>(), 1..6000), 100usize..1500);
    (fields, rest, sizes).prop_map(|(fields, (flags, window, words, hosts), (payload, size))| {
        let ([v4, tcp, dont_fragment], (traffic_class, hop_limit), ports, numbers) = fields;
        let sample = Sample {
            v4,
            tcp,
            traffic_class,
            flow_label: numbers.0 ^ numbers.1,
            hop_limit,
            id: window.wrapping_mul(31),
            dont_fragment,
            hosts,
            ports,
            sequence: numbers.0,
            acknowledgement: numbers.1,
            flags: Flags::ACK.with(Flags(flags)),
            window,
            options: words.iter().flat_map(|&word| [1, word, 3, word]).collect(),
            payload,
        };
        (if tcp { sample } else { Sample { options: Vec::new(), ..sample } }, size)
    })
}
