//! A connection to a relay: through proxies, TLS, the upgrade, and the proof of the node's key, all
//! of it blocking; then it is handed over to who drives it without blocking. Where UDP passes the
//! same is said by QUIC ([`connect_quic`]); [`race()`] finds out which of the two it is to be.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::Relay;
use control::relay::{Caller, PATH, PROTOCOL, Refused};
use noise::PrivateKey;
use rustls::ClientConnection;
use socket2::SockRef;
use wire::relay::{Decoder, Frame, Notice};

use crate::SystemRandom;
use crate::http::Connection;
use crate::proxy::Proxies;

mod quic;
mod race;

pub use self::quic::{Answered, connect_quic};
pub use self::race::{HEAD_START, race};

/// From the connection to the relay's welcome.
const WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a body that says why not.
const BODY_LEN_MAX: usize = 4096;
/// What the kernel may hold unsent, in bytes: 0.5 ms at 1 Gbit/s, 50 ms at 10 Mbit/s. What is in
/// it can no longer be dropped.
const UNSENT_LEN: u32 = 64 * 1024;

/// A relay that took us. Both ends speak frames ([`wire::relay`]) from now on.
pub struct Connected {
    /// The socket, still blocking.
    pub socket: TcpStream,
    /// TLS on it.
    pub tls: ClientConnection,
    /// What was read already.
    pub decoder: Decoder,
}

/// Which of two attempts may be the one: a relay keeps one connection of a key, so only one may
/// prove the key.
#[derive(Debug, Default)]
struct Claim(AtomicBool);

impl Claim {
    /// Whether the caller is the first one who wants it.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Failed {
    /// The network, a proxy, or what answers there is no relay.
    Unreachable(io::Error),
    /// The relay does not take us, or is another one.
    Refused(Refused),
    /// Another way was quicker, and this one was given up.
    Late,
}

/// A relay that took us, by one way or the other.
#[derive(Debug)]
pub enum Admitted {
    /// By HTTPS.
    Https(Box<Connected>),
    /// By QUIC.
    Quic(Box<Answered>),
}

/// Connects by HTTPS, and proves that this node holds `node`.
///
/// # Errors
/// [`Failed`].
pub fn connect(relay: &Relay, node: &PrivateKey, proxies: &Proxies) -> Result<Connected, Failed> {
    connect_if(relay, node, proxies, &Claim::default())
}

/// The same, unless another way was quicker.
fn connect_if(
    relay: &Relay,
    node: &PrivateKey,
    proxies: &Proxies,
    claim: &Claim,
) -> Result<Connected, Failed> {
    let deadline = Instant::now() + WITHIN;
    let mut connection = Connection::open(&relay.url, proxies)?;
    let fields = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL)];
    let answer = connection.request(("GET", PATH), &fields, &[], BODY_LEN_MAX, WITHIN)?;
    if answer.status != 101 {
        let url = &relay.url;
        let why = format!("{url} is no relay: it answers with status {}", answer.status);
        return Err(io::Error::other(why).into());
    }
    let (socket, tls, early) = connection.into_parts()?;
    let mut this = Connected { socket, tls, decoder: Decoder::default() };
    this.decoder.push(&early);
    let (message, caller) = Caller::new(node, &relay.key, &mut SystemRandom)
        .map_err(|why| Failed::Refused(Refused::Channel(why)))?;
    this.say(&Frame::Open(&message), deadline)?;
    let answer = this.answer(deadline)?;
    let confirm = caller.finish(&answer).map_err(Failed::Refused)?;
    if !claim.take() {
        return Err(Failed::Late);
    }
    this.say(&Frame::Confirm(&confirm), deadline)?;
    carry_by(&SockRef::from(&this.socket), UNSENT_LEN);
    Ok(this)
}

/// Makes a TCP connection one that carries packets: BBR, for which a loss is no sign of a queue,
/// and at most `unsent_len` bytes in the kernel, since what is in it can no longer be dropped. A
/// kernel that has them not still carries everything, only not as well on lossy paths.
pub fn carry_by(socket: &SockRef<'_>, unsent_len: u32) {
    let _ = socket.set_tcp_congestion(b"bbr");
    let _ = socket.set_tcp_notsent_lowat(unsent_len);
}

impl Connected {
    /// Sends a frame and waits until the kernel has it.
    ///
    /// # Errors
    /// If the connection breaks or the time is over.
    pub fn say(&mut self, frame: &Frame<'_>, deadline: Instant) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.limit(deadline)?;
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        stream.write_all(&bytes)?;
        stream.flush()
    }

    /// Waits for frames until `take` makes something of one.
    ///
    /// # Errors
    /// If the connection breaks or the time is over.
    pub fn wait<T>(
        &mut self,
        deadline: Instant,
        mut take: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> io::Result<T> {
        loop {
            while let Some(place) = self.decoder.poll_frame().map_err(io::Error::other)? {
                if let Some(taken) = take(&self.decoder.frame(&place)) {
                    return Ok(taken);
                }
            }
            self.limit(deadline)?;
            let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
            match stream.read(self.decoder.room())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.decoder.fill(len),
            }
        }
    }

    fn answer(&mut self, deadline: Instant) -> Result<Vec<u8>, Failed> {
        self.wait(deadline, |frame| match frame {
            Frame::Answer(bytes) => Some(Ok(bytes.to_vec())),
            Frame::Notice(notice) => Some(Err(*notice)),
            _ => None,
        })?
        .map_err(|notice| Failed::Refused(Refused::Verdict(Some(notice))))
    }

    fn limit(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "{error}"),
            Self::Late => f.write_str("another way was quicker"),
            Self::Refused(Refused::Channel(why)) => {
                write!(f, "this is not the relay that the map names: {why}")
            }
            Self::Refused(Refused::Verdict(why)) => f.write_str(match why {
                Some(Notice::NotMember) => "the relay does not know this node as a member",
                Some(Notice::Quarantined) => {
                    "the relay refuses this node for a minute: another machine uses its key"
                }
                Some(Notice::Full) => "the relay has no room",
                Some(Notice::Version) => "the relay speaks another version",
                _ => "the relay refuses this node",
            }),
        }
    }
}

impl std::error::Error for Failed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_that_a_stream_is_bbrs_and_holds_little_unsent() {
        let offered =
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let has_bbr = offered.unwrap().split_whitespace().any(|name| name == "bbr");
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        carry_by(&SockRef::from(&socket), UNSENT_LEN);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), UNSENT_LEN);
        assert_eq!(socket.tcp_congestion().unwrap().starts_with(b"bbr"), has_bbr);
    }
}
