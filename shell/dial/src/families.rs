//! The addresses of one name, tried as RFC 8305 has it: the families by turns, each a quarter of a
//! second after the one before, or at once when that one has failed. The first that answers is
//! taken. So a family that is announced and dead costs that quarter of a second, not a minute.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// How long an address is alone (RFC 8305, section 5).
pub(crate) const HEAD_START: Duration = Duration::from_millis(250);
/// One address has so long to answer a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// The shortest wait that a socket can be given; zero would mean for ever.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// What was tried since something answered last, for who waits and wonders.
#[derive(Clone, Debug, Default)]
pub struct Trying(Arc<Mutex<Vec<SocketAddr>>>);

impl Trying {
    /// The addresses, the first tried first.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().clone()
    }

    fn note(&self, address: SocketAddr) {
        let mut tried = self.lock();
        if tried.len() < ADDRESSES_MAX && !tried.contains(&address) {
            tried.push(address);
        }
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The addresses of a name, in the order in which they are tried.
///
/// # Errors
/// The resolver's, or that there are none.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = by_turns((host, port).to_socket_addrs()?);
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// The families by turns, that of the first address first (RFC 8305, section 4).
fn by_turns(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let found: Vec<SocketAddr> = found.into_iter().collect();
    let is_first = |at: &&SocketAddr| at.is_ipv4() == found[0].is_ipv4();
    let mut one = found.iter().filter(is_first);
    let mut other = found.iter().filter(|at| !is_first(at));
    let mut turns = Vec::with_capacity(found.len().min(ADDRESSES_MAX));
    while turns.len() < ADDRESSES_MAX {
        let pair = [one.next(), other.next()];
        if pair == [None, None] {
            break;
        }
        turns.extend(pair.into_iter().flatten());
    }
    turns.truncate(ADDRESSES_MAX);
    turns
}

/// The first address of each family: where each is asked at once, more of one say nothing new.
pub fn one_of_each(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut two = by_turns(found);
    let is_first = two.first().map(SocketAddr::is_ipv4);
    let other = two.iter().copied().find(|at| Some(at.is_ipv4()) != is_first);
    two.truncate(1);
    two.extend(other);
    two
}

/// Connects under `mark` to the first of these addresses that answers, before `deadline`.
///
/// # Errors
/// What the last one failed with.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    mark: Option<u32>,
    deadline: Instant,
    trying: &Trying,
) -> io::Result<TcpStream> {
    let (tell, told) = sync_channel(addresses.len().max(1));
    let mut ahead = addresses.iter().copied();
    let mut open = 0;
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let next = if left.is_zero() { None } else { ahead.next() };
        if let Some(address) = next {
            trying.note(address);
            let tell = tell.clone();
            let wait = left.min(CONNECT_WITHIN);
            // Who comes later finds nobody who listens, and closes.
            let run = move || drop(tell.send(attempt(address, mark, wait)));
            match thread::Builder::new().name("warren-dial".to_owned()).spawn(run) {
                Ok(_) => open += 1,
                Err(error) => last = error,
            }
        }
        if open == 0 {
            match next {
                Some(_) => continue,
                None => return Err(last),
            }
        }
        let wait = if ahead.len() > 0 { left.min(HEAD_START) } else { left };
        match told.recv_timeout(wait) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => {
                open -= 1;
                last = error;
            }
            Err(RecvTimeoutError::Timeout) if next.is_some() || ahead.len() > 0 => {}
            Err(_) => return Err(last),
        }
    }
}

fn attempt(to: SocketAddr, mark: Option<u32>, wait: Duration) -> io::Result<TcpStream> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{to}: {error}"));
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        socket.connect_timeout(&to.into(), wait.max(WAIT_MIN))?;
        Ok(TcpStream::from(socket))
    };
    connect().map_err(named)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn families_take_turns() {
        let found = ["[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1", "10.0.0.2:1"].map(at);
        let turns = ["[::1]:1", "10.0.0.1:1", "[::2]:1", "10.0.0.2:1", "[::3]:1"].map(at);
        assert_eq!(by_turns(found), turns);
        assert_eq!((by_turns([]), one_of_each([])), (vec![], vec![]));
        assert_eq!(one_of_each(found), turns[..2]);
        assert_eq!(one_of_each(found[3..].iter().copied()), [found[3]]);
        let many = (0..50).map(|n| SocketAddr::from(([10, 0, 0, n], 1)));
        assert_eq!(by_turns(many.chain([at("[::1]:1")]))[1], at("[::1]:1"));
    }

    /// A listener whose queue is full answers no SYN: as dead as an address can be.
    fn dead() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        socket.bind(&at("[::1]:0").into()).unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let soon = Duration::from_millis(50);
        let fill = std::iter::from_fn(|| TcpStream::connect_timeout(&address, soon).ok());
        (listener, fill.take(8).collect(), address)
    }

    #[test]
    fn a_dead_family_costs_a_quarter_of_a_second_and_a_refusal_nothing() {
        let lives = TcpListener::bind("127.0.0.1:0").unwrap();
        let living = lives.local_addr().unwrap();
        let (_listener, _filled, silent) = dead();
        let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let run = |addresses: &[SocketAddr]| {
            let (begin, trying) = (Instant::now(), Trying::default());
            let deadline = begin + Duration::from_secs(3);
            let stream = connect(addresses, None, deadline, &trying);
            (stream.and_then(|s| s.peer_addr()), begin.elapsed(), trying.addresses())
        };
        let (reached, took, tried) = run(&[silent, living]);
        assert_eq!((reached.unwrap(), tried), (living, vec![silent, living]));
        assert!(took >= HEAD_START && took < HEAD_START * 4, "{took:?}");
        let (reached, took, _) = run(&[refusing, living]);
        assert_eq!(reached.unwrap(), living);
        assert!(took < HEAD_START, "{took:?}");
        let (reached, _, tried) = run(&[living, silent]);
        assert_eq!((reached.unwrap(), tried), (living, vec![living]));
        let (failed, took, _) = run(&[refusing]);
        assert!(failed.unwrap_err().to_string().contains(&refusing.to_string()));
        assert!(took < HEAD_START, "{took:?}");
        let (failed, took, _) = run(&[silent]);
        assert!(failed.is_err() && took < Duration::from_secs(4), "{took:?}");
        assert!(run(&[]).0.is_err());
    }
}
