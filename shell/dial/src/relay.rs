//! A connection to a relay: through proxies, TLS, the upgrade, and the proof of the node's key, all
//! of it blocking; then it is handed over to who drives it without blocking. Where UDP passes the
//! same is said by QUIC ([`connect_quic`]); [`race()`] finds out which of the two it is to be.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::Relay;
use control::relay::{Caller, Refused};
use noise::{PrivateKey, Random};
use rustls::ClientConnection;
use socket2::SockRef;
use wire::relay::{Decoder, Frame, Notice};
use wire::websocket::{Head, Kind, MASK_LEN, Reader, Side, mask};

use crate::SystemRandom;
use crate::http::Connection;
use crate::proxy::Proxies;

mod ask;
mod quic;
mod race;

pub use self::ask::{NoUpgrade, Way};
pub(crate) use self::quic::connect_if as connect_quic_if;
pub use self::quic::{Answered, connect_quic};
pub(crate) use self::race::race_if;
pub use self::race::{HEAD_START, Ways, race, race_by};

/// From the connection to the relay's welcome.
const WITHIN: Duration = Duration::from_secs(10);
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
    /// What reads the relay's frames of WebSocket, if the stream rides in one.
    pub websocket: Option<Box<Reader>>,
}

/// Which of two attempts may be the one: a relay keeps one connection of a key, so only one may
/// prove the key. Who no longer wants any of them takes it as well.
#[derive(Debug, Default)]
pub(crate) struct Claim(AtomicBool);

impl Claim {
    /// Whether the caller is the first one who wants it.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Failed {
    /// The network, or a proxy on this side.
    Unreachable(io::Error),
    /// What answers there upgrades nothing: it is no relay, or a proxy in front of one.
    NoUpgrade(NoUpgrade),
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
    /// By QUIC in pings.
    Icmp(Box<Answered>),
}

/// Connects by HTTPS, and proves that this node holds `node`. `first` is tried first, and the other
/// way where something in between does not let it pass.
///
/// # Errors
/// [`Failed`].
pub fn connect(
    relay: &Relay,
    node: &PrivateKey,
    proxies: &Proxies,
    first: Way,
) -> Result<Connected, Failed> {
    connect_if(relay, node, (proxies, first), &Claim::default())
}

/// The same, unless another way was quicker.
fn connect_if(
    relay: &Relay,
    node: &PrivateKey,
    mark: (&Proxies, Way),
    claim: &Claim,
) -> Result<Connected, Failed> {
    let (proxies, first) = mark;
    let mut failed = None;
    for way in [first, first.other()] {
        let connection = Connection::open(&relay.url, proxies)?;
        let deadline = Instant::now() + WITHIN;
        match ask::ask(connection, &relay.url, way).and_then(|it| it.offer(relay, node, deadline)) {
            Ok((mut this, confirm)) => {
                if !claim.take() {
                    return Err(Failed::Late);
                }
                this.say(&Frame::Confirm(&confirm), deadline)?;
                carry_by(&SockRef::from(&this.socket), UNSENT_LEN);
                return Ok(this);
            }
            Err(refused @ Failed::Refused(_)) => return Err(refused),
            Err(why) => failed = Some(plainer(failed, why)),
        }
        if claim.is_taken() {
            return Err(Failed::Late);
        }
    }
    Err(failed.unwrap_or(Failed::Late))
}

/// Which of two failures says more: that of the first way, unless the second shows a proxy.
fn plainer(first: Option<Failed>, second: Failed) -> Failed {
    let shows = |failed: &Failed| matches!(failed, Failed::NoUpgrade(it) if it.is_by_a_proxy());
    match first {
        Some(first) if shows(&first) || !shows(&second) => first,
        _ => second,
    }
}

/// Makes a TCP connection one that carries packets: BBR, for which a loss is no sign of a queue,
/// and at most `unsent_len` bytes in the kernel, since what is in it can no longer be dropped. A
/// kernel that has them not still carries everything, only not as well on lossy paths.
pub fn carry_by(socket: &SockRef<'_>, unsent_len: u32) {
    let _ = socket.set_tcp_congestion(b"bbr");
    let _ = socket.set_tcp_notsent_lowat(unsent_len);
}

impl Connected {
    /// A stream that was upgraded, of which `early` was read already.
    fn new(
        opened: (TcpStream, ClientConnection),
        mut early: Vec<u8>,
        way: Way,
    ) -> io::Result<Self> {
        let (socket, tls) = opened;
        let websocket = (way == Way::WebSocket).then(|| Box::new(Reader::new(Side::Server)));
        let mut this = Self { socket, tls, decoder: Decoder::default(), websocket };
        let len = payload(&mut this.websocket, &mut early)?;
        this.decoder.push(&early[..len]);
        Ok(this)
    }

    /// Calls the relay: its answer, and what will prove that it is this node.
    fn offer(
        mut self,
        relay: &Relay,
        node: &PrivateKey,
        deadline: Instant,
    ) -> Result<(Self, Vec<u8>), Failed> {
        let (message, caller) = Caller::new(node, &relay.key, &mut SystemRandom)
            .map_err(|why| Failed::Refused(Refused::Channel(why)))?;
        self.say(&Frame::Open(&message), deadline)?;
        let answer = self.answer(deadline)?;
        let confirm = caller.finish(&answer).map_err(Failed::Refused)?;
        Ok((self, confirm))
    }

    /// How the stream was asked for.
    #[must_use]
    pub const fn way(&self) -> Way {
        if self.websocket.is_some() { Way::WebSocket } else { Way::Own }
    }

    /// Sends a frame and waits until the kernel has it.
    ///
    /// # Errors
    /// If the connection breaks or the time is over.
    pub fn say(&mut self, frame: &Frame<'_>, deadline: Instant) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        if self.websocket.is_some() {
            let mut key = [0; MASK_LEN];
            SystemRandom.fill(&mut key);
            mask(&mut bytes, key, 0);
            let head = Head::new(Kind::Binary, bytes.len(), Some(key));
            bytes.splice(..0, head.bytes().iter().copied());
        }
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
            let room = self.decoder.room();
            let len = stream.read(room)?;
            let is_closed = self.websocket.as_ref().is_some_and(|reader| reader.is_closed());
            if len == 0 || is_closed {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = payload(&mut self.websocket, &mut room[..len])?;
            self.decoder.fill(len);
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

/// Bytes of what was read that are a relay's frames, which stand in front then.
fn payload(websocket: &mut Option<Box<Reader>>, bytes: &mut [u8]) -> io::Result<usize> {
    let Some(reader) = websocket else { return Ok(bytes.len()) };
    reader.open(bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
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
            Self::NoUpgrade(why) => write!(f, "{why}"),
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
