//! The TUN device: where the machine's own packets leave and enter.
//!
//! Stages, in the order in which they appear below: [`Device::create`] opens the interface with
//! virtio headers and asks the kernel for every offload it has; [`Device::read`] takes one packet
//! or superpacket out; [`Device::write`] puts one in, gathered from several places in memory.
//! Closing the descriptor removes the interface: nothing is left behind, even after `kill -9`.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::linux::netlink::Netlink;
use crate::linux::sys::{self, check, check_len};

/// Bytes in front of every packet: a virtio network header without a buffer count.
pub const HEADER_LEN: usize = wire::virtio::LEN;
/// The largest unit that [`Device::read`] returns: header and the largest IP packet.
pub const UNIT_LEN_MAX: usize = HEADER_LEN + 65_535;
/// Packets that the kernel holds for us before it drops: 10 ms of small ones, which is as long as
/// it takes to make their senders wait.
const QUEUE_PACKETS: u32 = 4096;
/// The MTU of a new interface, as every WireGuard has it: it fits an IPv6 path of 1500 bytes.
pub const MTU: u32 = 1420;
/// How long a name that is taken may need to become free, and the time between two looks.
const BUSY_WAIT: Duration = Duration::from_secs(1);
const BUSY_POLL: Duration = Duration::from_millis(10);
/// Pieces of memory that one write may gather.
pub const GATHER_MAX: usize = wire::coalesce::GATHER_MAX;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETVNETLE: libc::c_ulong = 0x4004_54dc;
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// Which offloads the kernel granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// TCP superpackets, both families.
    pub tcp: bool,
    /// UDP superpackets, both families (kernel 6.2 or later).
    pub udp: bool,
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.tcp, self.udp) {
            (true, true) => "superpackets of TCP and UDP",
            (true, false) => "superpackets of TCP",
            (false, true) => "superpackets of UDP",
            (false, false) => "no superpackets",
        })
    }
}

/// A TUN interface, open until dropped.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    /// The same device again: an event loop can wait for "came up" (writable) apart from data.
    up_fd: OwnedFd,
    name: String,
    /// The kernel's number for it, which a new name does not change; 0 if it could not be asked.
    index: u32,
    offloads: Offloads,
}

/// Whether `name` can be an interface's name: 1 to 15 bytes of `[A-Za-z0-9_=+.-]`, neither `.` nor
/// `..` (threat HO-07: nothing that a shell or a path would read otherwise).
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_=+.-".contains(&byte);
    !name.is_empty() && name.len() <= 15 && name.bytes().all(plain) && name != "." && name != ".."
}

impl Device {
    /// Creates the interface `name`, not yet up, with the offloads this kernel has.
    ///
    /// # Errors
    /// Says what is missing and how to mend it: no `/dev/net/tun`, no capability, name taken.
    pub fn create(name: &str) -> io::Result<Self> {
        if !is_name(name) {
            return Err(explain(
                io::ErrorKind::InvalidInput,
                &format!(
                    "'{name}' cannot be an interface name; use 1 to 15 of the characters \
                     a-z A-Z 0-9 _ = + . -"
                ),
            ));
        }
        let path = c"/dev/net/tun";
        let fd = sys::open(path, libc::O_RDWR | libc::O_NONBLOCK)
            .map_err(|error| open_failed(path, &error))?;
        attach_soon(&fd, name).map_err(|error| attach_failed(name, &error))?;
        let size = libc::c_int::try_from(HEADER_LEN).unwrap_or(10);
        // SAFETY: the ioctl reads one int.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const size) })?;
        let little: libc::c_int = 1;
        // SAFETY: the ioctl reads one int. Headers are little endian whatever the machine is.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETLE as _, &raw const little) })?;
        let offloads = offload(&fd);
        let up_fd = fd.try_clone()?;
        let mut device = Self { fd, up_fd, name: name.to_owned(), index: 0, offloads };
        device.settle();
        Ok(device)
    }

    /// The interface's name at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel granted.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// For an event loop.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// For an event loop: becomes writable when the interface comes up, in whatever namespace.
    #[must_use]
    pub fn up_fd(&self) -> RawFd {
        self.up_fd.as_raw_fd()
    }

    /// Reads one unit, header and packet, into `unit` (at least [`UNIT_LEN_MAX`] bytes long).
    /// Returns its length, or `None` where nothing waits.
    ///
    /// # Errors
    /// `EBADFD` (raw 77) once the interface is gone; `EIO` while it is down is given as `None`.
    #[inline]
    pub fn read(&self, unit: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: pointer and length describe `unit`.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), unit.as_mut_ptr().cast(), unit.len()) };
        match check_len(got) {
            Ok(len) => Ok(Some(len)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::EIO) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Writes one unit, gathered from `header` and the pieces of `packet`.
    ///
    /// # Errors
    /// `EIO` where the interface is down, `EINVAL` where the header lies, `ENOBUFS`.
    #[inline]
    pub fn write(&self, header: &[u8; HEADER_LEN], packet: &[&[u8]]) -> io::Result<()> {
        let mut places = [const { MaybeUninit::<libc::iovec>::uninit() }; GATHER_MAX + 1];
        if packet.len() > GATHER_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let sources = std::iter::once(&header[..]).chain(packet.iter().copied());
        for (place, source) in places.iter_mut().zip(sources) {
            place.write(libc::iovec {
                iov_base: source.as_ptr().cast_mut().cast(),
                iov_len: source.len(),
            });
        }
        let count = libc::c_int::try_from(packet.len() + 1).unwrap_or(1);
        // SAFETY: the first `count` places were written above; each points into memory that is
        // borrowed for the whole call, and the kernel only reads it.
        check_len(unsafe { libc::writev(self.fd.as_raw_fd(), places.as_ptr().cast(), count) })
            .map(drop)
    }

    /// Whether the interface is up, also after it was moved to another namespace, where no
    /// netlink message reaches us: the kernel calls a TUN writable only while it is up. `None`
    /// once the interface is gone.
    #[must_use]
    pub fn is_up(&self) -> Option<bool> {
        let mut ask = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd, which outlives the call.
        unsafe { libc::poll(&raw mut ask, 1, 0) };
        if ask.revents & (libc::POLLERR | libc::POLLNVAL) != 0 {
            return None;
        }
        Some(ask.revents & libc::POLLOUT != 0)
    }

    /// The interface's MTU in bytes, whatever it is called by now; `None` once it was moved to
    /// another namespace, where another one of its name tells nothing of it.
    #[must_use]
    pub fn mtu(&self) -> Option<usize> {
        let link = Netlink::open().ok()?.link_at(self.index).ok()??;
        usize::try_from(link.mtu).ok()
    }

    /// The default MTU of 1500 would have every full datagram fragmented. The default queue of 500
    /// packets overflows within a millisecond of UDP load. And a link-local address that nobody
    /// asked for would have no peer, as the kernel's WireGuard knows, too. A kernel that refuses
    /// leaves its defaults.
    fn settle(&mut self) {
        let settled = Netlink::open().and_then(|mut netlink| {
            let Some(link) = netlink.link(&self.name)? else { return Ok(()) };
            self.index = link.index;
            netlink.set_mtu(&link, MTU)?;
            netlink.set_queue_len(&link, QUEUE_PACKETS)?;
            netlink.set_no_own_address(&link)
        });
        if let Err(error) = settled {
            tracing::debug!(%error, "the kernel's defaults for the interface stay");
        }
    }
}

/// A program that was killed while it started another one leaves copies of its descriptors there
/// until that one is under way (`lc_01`): who takes its place waits for that moment.
fn attach_soon(fd: &OwnedFd, name: &str) -> io::Result<()> {
    let until = Instant::now() + BUSY_WAIT;
    loop {
        match attach(fd, name) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(BUSY_POLL);
            }
            attached => return attached,
        }
    }
}

fn attach(fd: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: a zeroed ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    // SAFETY: `request` is a whole ifreq and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF as _, &raw mut request) }).map(drop)
}

/// Asks for the most first; an older kernel refuses unknown bits with EINVAL.
fn offload(fd: &OwnedFd) -> Offloads {
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    let ask = |bits: libc::c_ulong| {
        // SAFETY: the ioctl takes the bits by value.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD as _, bits) }).is_ok()
    };
    if ask(tcp | TUN_F_USO4 | TUN_F_USO6) {
        Offloads { tcp: true, udp: true }
    } else if ask(tcp) {
        Offloads { tcp: true, udp: false }
    } else {
        ask(0);
        Offloads { tcp: false, udp: false }
    }
}

fn explain(kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, text.to_owned())
}

fn open_failed(path: &CStr, error: &io::Error) -> io::Error {
    let path = path.to_string_lossy();
    let mend = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            "the kernel's TUN driver is missing; run 'modprobe tun', or give the container \
             --device=/dev/net/tun"
        }
        Some(libc::EACCES | libc::EPERM) => crate::advice(
            "run as root, or allow this user to open it",
            "give the container --device=/dev/net/tun",
        ),
        _ => "see 'man 4 tun'",
    };
    explain(error.kind(), &format!("{path}: {error}; {mend}"))
}

fn attach_failed(name: &str, error: &io::Error) -> io::Error {
    let mend = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => crate::advice(
            "creating an interface needs CAP_NET_ADMIN: run as root, or give the program that \
             capability",
            "creating an interface needs CAP_NET_ADMIN, which this root lacks: give it to the \
             container (docker run --cap-add NET_ADMIN)",
        ),
        Some(libc::EBUSY) => "the name is taken: another process has this TUN open",
        Some(libc::EINVAL | libc::EEXIST) => "the name is taken by an interface of another kind",
        _ => "see 'ip link show'",
    };
    explain(error.kind(), &format!("interface {name}: {error}; {mend}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::netlink::tests::{in_fresh_namespace, ip};

    #[test]
    fn ho_07_names_are_what_the_kernel_and_a_path_can_bear() {
        for name in ["wg0", "a", "wg-quick.15chars", "x=y+z_1"] {
            assert_eq!(is_name(name), name.len() <= 15, "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "sixteen-bytes-xx", "wg\n0", "wg;rm", "é"] {
            assert!(!is_name(name), "{name}");
        }
    }

    /// Threat LC-01: a daemon that was killed is followed by the next one at once.
    #[test]
    fn lc_01_a_name_whose_owner_just_ends_is_waited_for() {
        in_fresh_namespace(|| {
            let first = Device::create("wt0").unwrap();
            let refused = Device::create("wt0").unwrap_err().to_string();
            assert!(refused.contains("the name is taken: another process"), "{refused}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(BUSY_WAIT / 5);
                    drop(first);
                });
                assert_eq!(Device::create("wt0").unwrap().name(), "wt0");
            });
        });
    }

    #[test]
    fn the_mtu_is_that_of_this_device_whatever_it_and_others_are_called() {
        in_fresh_namespace(|| {
            let device = Device::create("wt0").unwrap();
            assert_eq!(device.mtu(), Some(1420), "as other WireGuards have it");
            ip("link set wt0 mtu 1337");
            assert_eq!(device.mtu(), Some(1337));
            ip("link set wt0 name wt1");
            ip("link set wt1 mtu 1338");
            ip("link add wt0 type veth peer name wt2");
            assert_eq!(device.mtu(), Some(1338));
            let name = format!("wt-tun-{}", std::process::id());
            ip(&format!("netns add {name}"));
            ip(&format!("link set wt1 netns {name}"));
            let moved = device.mtu();
            ip(&format!("netns del {name}"));
            assert_eq!(moved, None, "what is called wt0 here is another one");
        });
    }
}
