//! Everything of a node that touches Linux: the TUN device, the sockets, netlink, the control
//! socket, and the loop that drives a [`node::Node`]. The only crate of Warren with unsafe code.
//!
//! The life of a turn of the loop ([`driver::Driver::run`]):
//!
//! 1. The loop sleeps in one epoll until a descriptor is ready or the node wants to be woken.
//!    The clock is read once.
//! 2. [`engine::Engine::pump_out`]: [`tun::Device::read`] takes packets and superpackets, the
//!    node seals them into [`batch::Batch`], [`udp::Sockets::flush`] sends each run of equal
//!    datagrams as one unit. A full socket is waited for.
//! 3. [`engine::Engine::pump_in`]: [`udp::Arena::receive`] takes coalesced datagrams, the node
//!    opens them where they lie, the coalescer joins what belongs together, and
//!    [`tun::Device::write`] gathers each superpacket from where its pieces lie.
//!    What came by a stream of TLS to a relay ([`relay`]), in an echo of ICMP or in a packet of
//!    another protocol ([`carriers`]) is opened the same way.
//! 4. Handshakes get a few milliseconds at most, timers fire, and what peers want done is done.
//! 5. The rest: the control socket ([`uapi`]), signals ([`signals`]), changes of links and routes
//!    ([`monitor`]), and what other threads ask for ([`driver::mail`]).
//!
//! When the link carries less than the machine sends, the ring between device and loop would
//! overflow in silence; [`pressure`] makes the sending sockets wait instead.
//!
//! One thread does all of this, so nothing here is locked or shared, and a packet is copied once
//! between the two system calls that it costs. Closing the TUN's descriptor removes the interface
//! with its addresses and routes, whatever ended the process; the control socket's file is
//! removed by its owner, or by the next one.
//!
//! [`netlink`] and [`quick`] are what `warren link` needs besides: interfaces, addresses, routes
//! and rules, and wg-quick's files.

pub mod affinity;
pub mod batch;
pub mod carriers;
pub mod daemon;
pub mod driver;
pub mod echo;
pub mod engine;
pub mod gateway;
mod hooks;
pub mod keyfile;
mod moderation;
pub mod monitor;
pub mod names;
pub mod netlink;
pub mod outgoing;
pub mod pressure;
mod processor;
mod program;
pub mod quick;
pub mod relay;
pub mod resolver;
pub mod room;
pub mod signals;
mod sys;
pub mod systemd;
pub mod terminal;
pub mod tun;
pub mod uapi;
pub mod udp;
pub mod weather;

/// The user at the other end of a local socket.
///
/// # Errors
/// What `getsockopt(2)` says.
pub fn user_of(stream: &std::os::unix::net::UnixStream) -> std::io::Result<u32> {
    sys::peer_user(stream)
}

/// The user that this process acts as.
#[must_use]
pub fn own_user() -> u32 {
    sys::own_user()
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
        sys::random(bytes).expect("the kernel's random generator works");
    }
}
