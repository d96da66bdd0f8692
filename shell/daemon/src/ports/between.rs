//! Stands between the library of UPnP and the gateway. The library fetches from whoever answers its
//! question, before it says who that was (threat NT-09). So it asks us, on the loopback. The
//! question goes to the gateway alone, on a connected socket, on which the kernel hears nobody
//! else. An answer goes back only if it leads to the gateway's own address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long each of the two sockets is waited for in turn.
const TURN: Duration = Duration::from_millis(10);
/// Bytes of a question or an answer, at most: one datagram.
const LEN_MAX: usize = 1500;

/// Passes on while it lives, and no longer than it was told to.
#[derive(Debug)]
pub(super) struct Between {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Between {
    /// Passes on to `port` of the gateway for `within`, at most.
    ///
    /// # Errors
    /// The system gives no socket or thread.
    pub(super) fn start(gateway: Ipv4Addr, port: u16, within: Duration) -> io::Result<Self> {
        let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let theirs = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        theirs.connect((gateway, port))?;
        ours.set_read_timeout(Some(TURN))?;
        theirs.set_read_timeout(Some(TURN))?;
        let address = ours.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let until = Instant::now() + within;
        let run = move || {
            let mut asker = None;
            while !ends.load(Ordering::Relaxed) && Instant::now() < until {
                let mut bytes = [0; LEN_MAX];
                if let Ok((len, from)) = ours.recv_from(&mut bytes) {
                    asker = Some(from);
                    let asked = String::from_utf8_lossy(&bytes[..len]);
                    let to = format!("{gateway}:{port}");
                    let _ = theirs.send(asked.replace(&address.to_string(), &to).as_bytes());
                }
                if let (Ok(len), Some(asker)) = (theirs.recv(&mut bytes), asker)
                    && leads_to(gateway, &bytes[..len])
                {
                    let _ = ours.send_to(&bytes[..len], asker);
                }
            }
        };
        std::thread::Builder::new().name("warren-upnp".to_owned()).spawn(run)?;
        Ok(Self { address, is_over })
    }

    /// Whom the library is to ask.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Whether an answer names one place, and that is at the gateway.
fn leads_to(gateway: Ipv4Addr, answer: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(answer) else { return false };
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut places = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("location"));
    let (Some((_, place)), None) = (places.next(), places.next()) else { return false };
    let host = place.trim().strip_prefix("http://").and_then(|rest| rest.split(['/', ':']).next());
    host.and_then(|host| host.parse().ok()) == Some(IpAddr::V4(gateway))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    #[test]
    fn nt_09_only_an_answer_that_names_one_place_at_the_gateway_is_one() {
        let yes = [
            "HTTP/1.1 200 OK\r\nLOCATION: http://127.0.0.2:5000/rootDesc.xml\r\n\r\n",
            "HTTP/1.1 200 OK\r\nst: x\r\nlocation:http://127.0.0.2/x\r\n\r\n",
        ];
        let no = [
            "HTTP/1.1 200 OK\r\n\r\n",
            "LOCATION: http://127.0.0.20/x\r\n",
            "LOCATION: http://169.254.169.254/latest\r\n",
            "LOCATION: http://127.0.0.2@192.0.2.1/x\r\n",
            "LOCATION: https://127.0.0.2/x\r\n",
            "LOCATION: http://127.0.0.2/x\r\nLocation: http://127.0.0.1/x\r\n",
        ];
        assert!(yes.iter().all(|text| leads_to(GATEWAY, text.as_bytes())));
        for text in no {
            assert!(!leads_to(GATEWAY, text.as_bytes()), "{text}");
        }
        assert!(!leads_to(GATEWAY, b"LOCATION: http://127.0.0.2/\xff"));
    }

    #[test]
    fn nt_09_the_gateway_alone_is_asked_and_heard() {
        let gateway = UdpSocket::bind((GATEWAY, 0)).unwrap();
        let port = gateway.local_addr().unwrap().port();
        let between = Between::start(GATEWAY, port, Duration::from_secs(5)).unwrap();
        let library = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let soon = Some(Duration::from_millis(300));
        library.set_read_timeout(soon).unwrap();
        let question = format!("M-SEARCH * HTTP/1.1\r\nHost: {}\r\n\r\n", between.address());
        library.send_to(question.as_bytes(), between.address()).unwrap();
        let mut bytes = [0; LEN_MAX];
        let (len, from) = gateway.recv_from(&mut bytes).unwrap();
        let asked = String::from_utf8_lossy(&bytes[..len]).into_owned();
        assert!(asked.contains(&format!("Host: {GATEWAY}:{port}")), "{asked}");
        let answer = b"HTTP/1.1 200 OK\r\nLOCATION: http://127.0.0.2:1/x\r\n\r\n";
        let evil = UdpSocket::bind(("127.0.0.3", port)).unwrap();
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, from.port()));
        for _ in 0..20 {
            let _ = evil.send_to(answer, there);
        }
        assert!(library.recv(&mut bytes).is_err(), "another's answer is not heard");
        gateway.send_to(b"LOCATION: http://127.0.0.3/x\r\n", from).unwrap();
        assert!(library.recv(&mut bytes).is_err(), "nor one that leads elsewhere");
        gateway.send_to(answer, from).unwrap();
        assert_eq!(library.recv(&mut bytes).unwrap(), answer.len());
    }
}
