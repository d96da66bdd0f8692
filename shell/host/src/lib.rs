//! Everything of a node that touches Linux: the TUN device, the sockets, netlink, the control
//! socket, and the loop that drives a [`node::Node`]. The only crate of Warren with unsafe code.
//!
//! | room | what is in it |
//! |---|---|
//! | [`linux`] | what is asked of the kernel and of the system around it |
//! | [`sockets`] | what carries datagrams, and the batch in which they leave |
//! | [`driver`] | the loop |
//! | [`uapi`] | the control socket that `wg` speaks to |
//! | [`quick`], [`keyfile`] | wg-quick's files, and files of keys |
//! | [`names`] | the name server, and the machine's resolver |
//! | [`gateway`] | forwarding and filters of the kernel |
//! | [`socks`] | a door for browsers |
//!
//! The life of a turn of the loop ([`driver::Driver::run`]):
//!
//! 1. The loop sleeps in one epoll until a descriptor is ready or the node wants to be woken.
//!    The clock is read once.
//! 2. [`driver::engine::Engine::pump_out`]: [`linux::tun::Device::read`] takes packets and
//!    superpackets, the node seals them into [`sockets::batch::Batch`], and
//!    [`sockets::udp::Sockets::flush`] sends each run of equal datagrams as one unit. A full socket
//!    is waited for.
//! 3. [`driver::engine::Engine::pump_in`]: [`sockets::udp::Arena::receive`] takes coalesced
//!    datagrams, the node opens them where they lie, the coalescer joins what belongs together, and
//!    [`linux::tun::Device::write`] gathers each superpacket from where its pieces lie. What came
//!    by a stream of TLS to a relay ([`sockets::relay`]), in an echo of ICMP or in a packet of
//!    another protocol ([`sockets::carriers`]) is opened the same way.
//! 4. Handshakes get a few milliseconds at most, timers fire, and what peers want done is done.
//! 5. The rest: the control socket, signals ([`linux::signals`]), changes of links and routes
//!    ([`linux::monitor`]), and what other threads ask for ([`driver::mail`]).
//!
//! When the link carries less than the machine sends, the ring between device and loop would
//! overflow in silence; [`sockets::bucket`] makes the sending sockets wait instead.
//!
//! One thread does all of this, so nothing here is locked or shared, and a packet is copied once
//! between the two system calls that it costs. Closing the TUN's descriptor removes the interface
//! with its addresses and routes, whatever ended the process; the control socket's file is
//! removed by its owner, or by the next one.

pub mod driver;
pub mod gateway;
pub mod keyfile;
pub mod linux;
pub mod names;
pub mod quick;
pub mod sockets;
pub mod socks;
pub mod uapi;

/// The user at the other end of a local socket.
///
/// # Errors
/// What `getsockopt(2)` says.
pub fn user_of(stream: &std::os::unix::net::UnixStream) -> std::io::Result<u32> {
    linux::sys::peer_user(stream)
}

/// The user that this process acts as.
#[must_use]
pub fn own_user() -> u32 {
    linux::sys::own_user()
}

/// The number of a user of this machine, who is named by name or number; none if there is no such
/// name.
///
/// # Errors
/// What `getpwnam_r(3)` says.
pub fn user_number(named: &str) -> std::io::Result<Option<u32>> {
    named.parse().map_or_else(|_| linux::sys::user_number(named), |number| Ok(Some(number)))
}

/// What helps whom the system refuses something: a user may become root, and root is not told so.
pub(crate) fn advice(user: &'static str, root: &'static str) -> &'static str {
    if own_user() == 0 { root } else { user }
}

/// The kernel's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelRandom;

impl noise::Random for KernelRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        // Without randomness no key and no nonce is safe: to go on would be worse than to stop.
        linux::sys::random(bytes).expect("the kernel's random generator works");
    }
}
