//! A library to preload: system calls that other kernels and cards refuse are refused here.
//! Compiled by the tests that use it, by [`super::preload`].
//!
//! `REFUSE` says what: `EIO` and `EINVAL` are the answers to units of datagrams (a card that
//! cannot make checksums for them; a kernel that cannot cut them); `old` is a kernel that knows no
//! units, neither of UDP nor in a TUN device, and `uso` one that knows those of TCP only and
//! refuses the others when they are written, as those before 6.2 do. While
//! the file that `RANDOM_FAILS` names is there, the kernel's random generator fails.

use std::ffi::{c_int, c_long, c_uint, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const WRITEV: i64 = 20;
    pub(super) const SENDMMSG: i64 = 307;
    pub(super) const GETSOCKOPT: i64 = 55;
    pub(super) const SETSOCKOPT: i64 = 54;
    pub(super) const IOCTL: i64 = 16;
    pub(super) const GETRANDOM: i64 = 318;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const WRITEV: i64 = 66;
    pub(super) const SENDMMSG: i64 = 269;
    pub(super) const GETSOCKOPT: i64 = 209;
    pub(super) const SETSOCKOPT: i64 = 208;
    pub(super) const IOCTL: i64 = 29;
    pub(super) const GETRANDOM: i64 = 278;
}

const EIO: c_int = 5;
const EINVAL: c_int = 22;
const ENOPROTOOPT: c_int = 92;
const SOL_UDP: c_int = 17;
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const TUNSETOFFLOAD: c_ulong = 0x4004_54d0;
/// TUN_F_USO4 and TUN_F_USO6.
const USO: usize = 0x60;
/// The length of the header in front of what is written to a TUN device, and its second byte where
/// what follows are datagrams of UDP.
const VIRTIO_LEN: usize = 10;
const GSO_UDP_L4: u8 = 5;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

/// The kernel's msghdr and mmsghdr on 64-bit machines, as far as we look.
#[repr(C)]
pub struct Message {
    before: [usize; 4],
    control: *const Control,
    control_len: usize,
    after: [usize; 2],
}

/// The head of control data; only the first one of a message is looked at.
#[repr(C)]
pub struct Control {
    len: usize,
    level: c_int,
    kind: c_int,
}

/// The kernel's iovec.
#[repr(C)]
pub struct Piece {
    base: *const u8,
    len: usize,
}

fn refuses(what: &str) -> bool {
    std::env::var("REFUSE").is_ok_and(|all| all == what)
}

fn refuse(errno: c_int, what: &str) -> c_int {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("preloaded: refused {what}");
    }
    // SAFETY: the C library gives each thread its own.
    unsafe { *__errno_location() = errno };
    -1
}

/// Stands before the C library's own.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut Message,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let errno = match () {
        () if refuses("EIO") => EIO,
        () if refuses("EINVAL") || refuses("old") => EINVAL,
        () => 0,
    };
    let mut fine = 0;
    // SAFETY: the caller's messages are `count`, and each one's control data is as long as it says.
    let is_unit = |i: c_uint| unsafe {
        let message = &*messages.add(i as usize);
        let has_control = message.control_len >= size_of::<Control>();
        let first = has_control.then(|| message.control.read_unaligned());
        first.is_some_and(|first| (first.level, first.kind) == (SOL_UDP, UDP_SEGMENT))
    };
    while fine < count && (errno == 0 || !is_unit(fine)) {
        fine += 1;
    }
    if fine == 0 && count > 0 {
        return refuse(errno, "a unit");
    }
    // SAFETY: the caller's pointer goes on to the kernel, which checks it.
    unsafe { syscall(number::SENDMMSG, c_long::from(fd), messages, fine, flags) as c_int }
}

/// As above.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_int,
    len: *mut c_uint,
) -> c_int {
    if refuses("old") && (level, name) == (SOL_UDP, UDP_SEGMENT) {
        return refuse(ENOPROTOOPT, "an option");
    }
    // SAFETY: as above.
    unsafe { syscall(number::GETSOCKOPT, c_long::from(fd), level, name, value, len) as c_int }
}

/// As above.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_int,
    len: c_uint,
) -> c_int {
    if refuses("old") && (level, name) == (SOL_UDP, UDP_GRO) {
        return refuse(ENOPROTOOPT, "an option");
    }
    // SAFETY: as above.
    unsafe { syscall(number::SETSOCKOPT, c_long::from(fd), level, name, value, len) as c_int }
}

/// As above; its third argument is a number or a pointer.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let of_udp = argument & USO != 0;
    let unknown = refuses("old") && argument != 0 || refuses("uso") && of_udp;
    if request == TUNSETOFFLOAD && unknown {
        return refuse(EINVAL, "an offload");
    }
    // SAFETY: as above.
    unsafe { syscall(number::IOCTL, c_long::from(fd), request, argument) as c_int }
}

/// As above.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const Piece, count: c_int) -> isize {
    // SAFETY: the caller's pieces are `count`, and each is as long as it says.
    let is_udp_unit = count > 1 && unsafe {
        let first = &*pieces;
        first.len == VIRTIO_LEN && *first.base.add(1) == GSO_UDP_L4
    };
    if is_udp_unit && (refuses("uso") || refuses("old")) {
        return refuse(EINVAL, "a unit of UDP") as isize;
    }
    // SAFETY: the caller's pointer goes on to the kernel, which checks it.
    unsafe { syscall(number::WRITEV, c_long::from(fd), pieces, count) as isize }
}

/// As above.
///
/// # Safety
/// As for the function it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut u8, len: usize, flags: c_uint) -> isize {
    let fails = std::env::var_os("RANDOM_FAILS");
    if fails.is_some_and(|path| std::path::Path::new(&path).exists()) {
        return refuse(EIO, "randomness") as isize;
    }
    // SAFETY: as above.
    unsafe { syscall(number::GETRANDOM, bytes, len, flags) as isize }
}
