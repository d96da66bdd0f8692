//! A TAP device: whole Ethernet frames, one a call; superpackets only where they are asked for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use super::check;

/// Frames that wait for a pump that is late, before the sender's device drops them.
const QUEUE_FRAMES: i32 = 4_000;

/// Bytes of the header in front of each frame of a device that takes superpackets
/// (`struct virtio_net_hdr`, linux/virtio_net.h).
pub const VNET_HEADER_BYTES: usize = 10;
/// Checksums and segments of TCP are left to the device; of UDP, too, where the kernel can
/// (linux/if_tun.h: CSUM, TSO4, TSO6, USO4, USO6).
const OFFLOADS: [libc::c_ulong; 2] = [0x67, 0x07];

/// A TAP device without offloads and without packet information; it vanishes on drop.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Makes the device in the namespace of the calling thread and brings it up.
    ///
    /// # Errors
    /// Returns the kernel's refusal: `EBUSY` when the name is taken, `ENOENT` without
    /// `/dev/net/tun`, `EPERM` without CAP_NET_ADMIN.
    pub fn new(ifname: &str, mtu: usize) -> io::Result<Self> {
        Self::make(ifname, mtu, libc::IFF_TAP | libc::IFF_NO_PI, &[0])
    }

    /// The same with offloads: a superpacket is one frame, and in front of each frame stand
    /// [`VNET_HEADER_BYTES`] that say how it is to be cut.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_superpackets(ifname: &str, mtu: usize) -> io::Result<Self> {
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        Self::make(ifname, mtu, flags, &OFFLOADS)
    }

    /// Takes the first set of offloads that the kernel knows.
    fn make(ifname: &str, mtu: usize, flags: i32, offloads: &[libc::c_ulong]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/net/tun")?;
        let mut request = named(ifname)?;
        request.ifr_ifru.ifru_flags = flags as i16;
        ioctl(&file, libc::TUNSETIFF, &mut request)?;
        let mut set = Ok(0);
        for wanted in offloads {
            // SAFETY: no memory is involved; zero switches every offload off.
            set = check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, *wanted) });
            if set.is_ok() {
                break;
            }
        }
        set?;
        // SAFETY: no memory is involved.
        let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
        let flags = flags | libc::O_NONBLOCK;
        // SAFETY: no memory is involved.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) })?;
        bring_up(ifname, mtu)?;
        Ok(Self { file })
    }

    /// Takes the next frame that the namespace sent; `WouldBlock` when there is none. A frame
    /// longer than `memory` is cut to it.
    ///
    /// # Errors
    /// Returns `EBADFD` when the device was deleted.
    pub fn read(&self, memory: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(memory)
    }

    /// Gives a frame to the namespace.
    ///
    /// # Errors
    /// Returns the kernel's refusal, for example when the device is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<usize> {
        (&self.file).write(frame)
    }

    /// The descriptor, for polling.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn bring_up(ifname: &str, mtu: usize) -> io::Result<()> {
    // Any socket of the namespace takes requests about its devices.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut request = named(ifname)?;
    request.ifr_ifru.ifru_mtu = mtu as i32;
    ioctl(&socket, libc::SIOCSIFMTU, &mut request)?;
    request.ifr_ifru.ifru_metric = QUEUE_FRAMES;
    ioctl(&socket, libc::SIOCSIFTXQLEN, &mut request)?;
    ioctl(&socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the request just made has written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    ioctl(&socket, libc::SIOCSIFFLAGS, &mut request)
}

fn named(ifname: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq of zeros is a valid one: an empty name and no value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if ifname.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(ifname.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(file: &impl AsRawFd, code: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every code used here takes a pointer to an ifreq, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), code as _, std::ptr::from_mut(request)) })?;
    Ok(())
}
