//! What really went over a wire: a packet socket on an interface of a host.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use lab::netns::Host;

use super::inside;

/// A capture in progress.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Vec<u8>>>>,
}

impl Capture {
    /// Captures every IP packet in or out of `ifname` in `host`, from its IP header on.
    pub fn start(host: &Host, ifname: &str) -> Result<Self> {
        let name = ifname.to_owned();
        let socket = inside::inside(host, move || packet_socket(&name))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = inside::start(host, move || {
            let mut packets = Vec::new();
            let mut buffer = vec![0; 1 << 17];
            loop {
                // At its end it takes what is there and waits for no more: some never fall silent.
                let is_over = stopped.load(Ordering::Relaxed);
                let flags = if is_over { libc::MSG_DONTWAIT } else { 0 };
                let at = buffer.as_mut_ptr().cast();
                // SAFETY: the buffer is alive and as long as is said.
                let n = unsafe { libc::recv(socket.as_raw_fd(), at, buffer.len(), flags) };
                if n > 0 {
                    packets.push(buffer[..n as usize].to_vec());
                } else if is_over {
                    return Ok(packets);
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it and returns the packets in order.
    pub fn stop(self) -> Result<Vec<Vec<u8>>> {
        std::thread::sleep(std::time::Duration::from_millis(150));
        self.stop.store(true, Ordering::Relaxed);
        inside::join(self.thread)
    }
}

/// An open packet socket (packet(7)), without link-layer headers, on one interface.
fn packet_socket(ifname: &str) -> Result<OwnedFd> {
    let text = std::ffi::CString::new(ifname)?;
    // SAFETY: a NUL-terminated name goes in, a number comes out.
    let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
    ensure!(index != 0, "there is no interface {ifname}");
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: no pointers; the new descriptor is owned from here on.
    let fd = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from(protocol));
        ensure!(fd >= 0, "no packet socket: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: an all-zero sockaddr_ll is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as u32;
    // SAFETY: the address is alive and as long as is said.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    ensure!(bound == 0, "cannot bind a packet socket: {}", std::io::Error::last_os_error());
    inside::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64_i32 << 20)
        .context("receive buffer")?;
    let patience = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    inside::set(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, patience).context("receive time-out")?;
    Ok(fd)
}

/// The UDP payload of a captured packet, with its ports, if it is a whole UDP datagram.
pub fn udp_payload(packet: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (protocol, start) = match packet.first()? >> 4 {
        // A later fragment has no ports.
        4 if packet[6] & 0x1f != 0 || packet[7] != 0 => return None,
        4 => (packet[9], usize::from(packet[0] & 15) * 4),
        6 => (packet[6], 40),
        _ => return None,
    };
    let udp = packet.get(start..)?;
    if protocol != 17 || udp.len() < 8 {
        return None;
    }
    let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let length = usize::from(word(4)).clamp(8, udp.len());
    Some((word(0), word(2), &udp[8..length]))
}
