//! A flood of datagrams with invented sources, at a fixed number a second.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::netns::Host;

use super::inside;

/// How many are handed to the kernel at once.
const BATCH: usize = 64;
const IP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
/// Sources are the addresses above the first in this prefix, /17.
pub const SOURCES: &str = "10.66.128.0/17";
const FIRST_SOURCE: u32 = u32::from_be_bytes([10, 66, 128, 1]);
const SOURCE_MASK: u32 = 0x7fff;

/// A flood in progress.
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<f64>>,
}

impl Flood {
    /// Sends `payloads` in turn from `host` to `target`, `rate` datagrams a second.
    pub fn start(
        host: &Host,
        target: (Ipv4Addr, u16),
        rate: f64,
        payloads: Arc<Vec<Vec<u8>>>,
    ) -> Result<Self> {
        let (address, port) = target;
        let all = payloads.iter().map(|payload| packet(address, port, payload)).collect();
        Self::of(host, address, rate, all)
    }

    /// The same with messages of ICMP.
    pub fn start_icmp(
        host: &Host,
        target: Ipv4Addr,
        rate: f64,
        messages: &[Vec<u8>],
    ) -> Result<Self> {
        let all = messages.iter().map(|message| icmp_packet(target, message)).collect();
        Self::of(host, target, rate, all)
    }

    fn of(host: &Host, target: Ipv4Addr, rate: f64, all: Vec<Vec<u8>>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = inside::start(host, move || {
            let socket = raw_socket()?;
            let mut packets = Packets::new(target, all);
            let start = Instant::now();
            let mut sent = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                while sent < due && !stopped.load(Ordering::Relaxed) {
                    sent += packets.send_batch(&socket)? as u64;
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(sent as f64 / start.elapsed().as_secs_f64())
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it; returns how many a second there really were.
    pub fn stop(self) -> Result<f64> {
        self.stop.store(true, Ordering::Relaxed);
        inside::join(self.thread)
    }
}

/// IP packets ready to be sent, each time with another source.
struct Packets {
    all: Vec<Vec<u8>>,
    target: libc::sockaddr_in,
    next: usize,
    source: u32,
}

impl Packets {
    fn new(address: Ipv4Addr, all: Vec<Vec<u8>>) -> Self {
        let target = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
            sin_zero: [0; 8],
        };
        Self { all, target, next: 0, source: 0 }
    }

    /// Sends the next [`BATCH`]; a full queue counts as sent.
    fn send_batch(&mut self, socket: &OwnedFd) -> Result<usize> {
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        // A batch must not hold one packet twice, since its source is written into it.
        let batch = BATCH.min(self.all.len());
        for vector in vectors.iter_mut().take(batch) {
            self.source = self.source.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let source = FIRST_SOURCE + ((self.source >> 12) & SOURCE_MASK) % (SOURCE_MASK - 1);
            let packet = &mut self.all[self.next];
            packet[12..16].copy_from_slice(&source.to_be_bytes());
            *vector = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
            self.next = (self.next + 1) % self.all.len();
        }
        // SAFETY: an all-zero mmsghdr is valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (message, vector) in messages.iter_mut().zip(&mut vectors).take(batch) {
            message.msg_hdr.msg_name = (&raw mut self.target).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: headers, vectors and packets are alive during the call.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), batch as u32, 0) };
        if sent < 0 {
            let error = std::io::Error::last_os_error();
            ensure!(error.raw_os_error() == Some(libc::ENOBUFS), "the flood stopped: {error}");
        }
        Ok(batch)
    }
}

fn raw_socket() -> Result<OwnedFd> {
    // SAFETY: no pointers; the new descriptor is owned from here on. IPPROTO_RAW means that the
    // IP header is ours (raw(7)).
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW);
        ensure!(fd >= 0, "no raw socket: {}", std::io::Error::last_os_error());
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// An IPv4 packet with a message of ICMP, whose own checksum does not know of addresses.
fn icmp_packet(target: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IP_HEADER_BYTES];
    (packet[0], packet[8], packet[9]) = (0x45, 64, libc::IPPROTO_ICMP as u8);
    packet[16..20].copy_from_slice(&target.octets());
    packet.extend(message);
    packet
}

/// An IPv4 packet with a UDP datagram; the kernel fills in length, id and header checksum, and
/// UDP over IPv4 needs none (RFC 768).
fn packet(target: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IP_HEADER_BYTES];
    (packet[0], packet[8], packet[9]) = (0x45, 64, libc::IPPROTO_UDP as u8);
    packet[16..20].copy_from_slice(&target.octets());
    packet.extend(40_000_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(((UDP_HEADER_BYTES + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}
