//! The way by QUIC: a UDP socket, the handshake, and the proof of the node's key on the
//! connection's stream.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use control::Relay;
use control::relay::{Caller, Refused};
use noise::PrivateKey;
use quic::{Line, LineEnd};
use socket2::{Domain, Socket, Type};
use wire::relay::{Decoder, Frame};

use super::{Claim, Failed};
use crate::SystemRandom;
use crate::families::{self, HEAD_START};
use crate::pings;
use crate::tls::quic_config;

/// From the first datagram to the relay's welcome.
const WITHIN: Duration = Duration::from_secs(5);
/// The same by ping, where filters may let few of them pass.
const WITHIN_BY_PING: Duration = Duration::from_secs(10);
/// How soon it is noticed that another way was quicker.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the kernel holds of what came, in bytes: 30 ms at 1 Gbit/s.
const RECEIVE_LEN: usize = 4 * 1024 * 1024;
/// Bytes of frames that are looked at in one go.
const FRAMES_LEN: usize = 64 * 1024;

/// A relay that took us by QUIC. Both ends speak frames from now on.
pub struct Answered {
    /// The connection.
    pub line: Line,
    /// What was read already.
    pub decoder: Decoder,
}

/// Connects by QUIC under `mark`, and proves that this node holds `node`.
///
/// # Errors
/// [`Failed`].
pub fn connect_quic(
    relay: &Relay,
    node: &PrivateKey,
    mark: Option<u32>,
) -> Result<Answered, Failed> {
    connect_if(relay, node, mark, &Claim::default())
}

/// The same, unless another way was quicker.
pub(crate) fn connect_if(
    relay: &Relay,
    node: &PrivateKey,
    mark: Option<u32>,
    claim: &Claim,
) -> Result<Answered, Failed> {
    let deadline = Instant::now() + WITHIN;
    let host = relay.url.host().trim_matches(['[', ']']);
    let port = relay.url.port();
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("{host}:{port} by QUIC: {error}"));
    let addresses = families::resolve(host, port).map_err(told)?;
    let line = begin(&addresses, mark, host, deadline, claim).map_err(|why| why.named(told))?;
    let mut this = Answered { line, decoder: Decoder::default() };
    this.prove(relay, node, deadline, claim).map_err(|why| why.named(told))?;
    Ok(this)
}

/// The same by ping: to a responder at the address of the relay's URL.
pub(super) fn connect_by_ping(
    relay: &Relay,
    node: &PrivateKey,
    mark: Option<u32>,
    claim: &Claim,
) -> Result<Answered, Failed> {
    let deadline = Instant::now() + WITHIN_BY_PING;
    let host = relay.url.host().trim_matches(['[', ']']);
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{host} by ping: {error}"));
    let asker = pings::ask(host, mark, deadline, &|| claim.is_taken())?;
    let mut line = Line::open_by_ping(asker, quic_config(), host).map_err(told)?;
    while !line.is_ready() {
        step(&mut line, deadline, claim).map_err(|why| why.named(told))?;
    }
    let mut this = Answered { line, decoder: Decoder::default() };
    this.prove(relay, node, deadline, claim).map_err(|why| why.named(told))?;
    Ok(this)
}

/// The handshake with the first of these addresses that answers; as by TCP, each begins a little
/// after the one before (RFC 8305).
fn begin(
    addresses: &[SocketAddr],
    mark: Option<u32>,
    host: &str,
    deadline: Instant,
    claim: &Claim,
) -> Result<Line, Failed> {
    let mut ahead = addresses.iter();
    let mut lines: Vec<Line> = Vec::new();
    let mut next_at = Instant::now();
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    loop {
        let now = Instant::now();
        if claim.is_taken() {
            return Err(Failed::Late);
        }
        if now >= deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        if lines.is_empty() || now >= next_at {
            let begun = ahead.next().map(|to| Line::open(open(*to, mark)?, quic_config(), host));
            match begun {
                Some(Ok(line)) => lines.push(line),
                Some(Err(error)) => {
                    last = error;
                    continue;
                }
                None if lines.is_empty() => return Err(last.into()),
                None => {}
            }
            next_at = now + HEAD_START;
        }
        let turn = LOOK_EVERY / lines.len() as u32;
        for number in (0..lines.len()).rev() {
            let waited = lines[number].wait(deadline.min(Instant::now() + turn));
            if lines[number].is_ready() {
                return Ok(lines.swap_remove(number));
            }
            if let Err(error) = waited {
                last = error;
                lines.swap_remove(number);
            }
        }
    }
}

fn open(to: SocketAddr, mark: Option<u32>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    // The kernel may give less, or less than that to who is not root.
    let _ = socket.set_recv_buffer_size(RECEIVE_LEN);
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    socket.bind(&any.into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Waits for a moment.
fn step(line: &mut Line, until: Instant, claim: &Claim) -> Result<(), Failed> {
    let now = Instant::now();
    if claim.is_taken() {
        return Err(Failed::Late);
    }
    if now >= until {
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    }
    Ok(line.wait(until.min(now + LOOK_EVERY))?)
}

impl Answered {
    fn prove(
        &mut self,
        relay: &Relay,
        node: &PrivateKey,
        deadline: Instant,
        claim: &Claim,
    ) -> Result<(), Failed> {
        let (message, caller) = Caller::new(node, &relay.key, &mut SystemRandom)
            .map_err(|why| Failed::Refused(Refused::Channel(why)))?;
        self.say(&Frame::Open(&message));
        let answer = self.wait_if(deadline, claim, |frame| match frame {
            Frame::Answer(bytes) => Some(bytes.to_vec()),
            _ => None,
        })?;
        let confirm = caller.finish(&answer).map_err(Failed::Refused)?;
        if !claim.take() {
            return Err(Failed::Late);
        }
        self.say(&Frame::Confirm(&confirm));
        // Datagrams that overtook the proof would be dropped.
        self.wait(deadline, |frame| matches!(frame, Frame::KeepAlive).then_some(()))
    }

    /// Says a frame on the stream; it leaves with the next wait.
    pub fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.line.say(&bytes);
    }

    /// Sends a frame in a datagram if it fits one, or else on the stream.
    pub fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.line.send(bytes);
        self.line.flush(Instant::now());
    }

    /// Waits for frames until `take` makes something of one.
    ///
    /// # Errors
    /// If the connection ends or the time is over.
    pub fn wait<T>(
        &mut self,
        deadline: Instant,
        take: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Result<T, Failed> {
        self.wait_if(deadline, &Claim::default(), take)
    }

    fn wait_if<T>(
        &mut self,
        deadline: Instant,
        claim: &Claim,
        mut take: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Result<T, Failed> {
        loop {
            self.line.poll_into(&mut self.decoder, FRAMES_LEN);
            while let Some(place) = self.decoder.poll_frame().map_err(io::Error::other)? {
                if let Some(taken) = take(&self.decoder.frame(&place)) {
                    return Ok(taken);
                }
            }
            if let Some(LineEnd::Closed(notice @ Some(_))) = self.line.end() {
                return Err(Failed::Refused(Refused::Verdict(*notice)));
            }
            step(&mut self.line, deadline, claim)?;
        }
    }
}

impl Failed {
    /// With the place in what it says of the network.
    fn named(self, told: impl FnOnce(io::Error) -> io::Error) -> Self {
        match self {
            Self::Unreachable(error) => Self::Unreachable(told(error)),
            other => other,
        }
    }
}

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered").field("line", &self.line).finish_non_exhaustive()
    }
}
