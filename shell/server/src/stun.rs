//! The STUN responder (RFC 8489): whoever asks is told the address that the request came from.
//!
//! Only binding requests are answered, never with more bytes than they have, so that clients fill
//! theirs up, and only to where they came from, if that is no port of a service; anything else is
//! silence (threat NT-01).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control::ServerUrl;
use tokio::net::UdpSocket;

use crate::place;

const MAGIC: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const HEADER_LEN: usize = 20;
/// Longer requests are not STUN as clients send it.
const REQUEST_LEN_MAX: usize = 548;
const BINDING_REQUEST: [u8; 2] = [0x00, 0x01];
const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];
const XOR_MAPPED_ADDRESS: [u8; 2] = [0x00, 0x20];
/// Who asks with a port below this one is no client, but somebody's victim.
const CLIENT_PORT_MIN: u16 = 1024;

/// The ports that nobody has to name: STUN's own, and another one, since two show whether a NAT
/// maps every destination anew.
const PORTS: [u16; 2] = [3478, 3479];

/// Where a server answers.
#[derive(Clone, Debug)]
pub enum Stun {
    /// There, or it does not start.
    At(Vec<SocketAddr>),
    /// At UDP ports 3478 and 3479 of its address, as far as they are free.
    Usual,
}

impl Stun {
    /// Sockets at which to answer, of a server that listens at `address`.
    ///
    /// # Errors
    /// One that was named cannot be had.
    pub(crate) fn bind(&self, address: IpAddr) -> io::Result<Vec<std::net::UdpSocket>> {
        match self {
            Self::At(places) => places.iter().copied().map(bind).collect(),
            Self::Usual => Ok(free(&PORTS.map(|port| SocketAddr::new(address, port)))),
        }
    }
}

/// Sockets at those of `places` that can be had; of the others is told.
fn free(places: &[SocketAddr]) -> Vec<std::net::UdpSocket> {
    let had = places.iter().filter_map(|at| {
        bind(*at)
            .inspect_err(|error| {
                tracing::error!("{error}; STUN is not answered there");
            })
            .ok()
    });
    had.collect()
}

/// A socket at which to answer.
pub(crate) fn bind(at: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(at).map_err(place::refused("--stun", at))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// How nodes reach STUN: by the host that they reach us by, at the port where it is bound.
pub(crate) fn name(url: Option<&ServerUrl>, at: SocketAddr) -> String {
    let host = url.map_or_else(|| at.ip().to_string(), |url| url.host().to_owned());
    if host.contains(':') {
        format!("[{host}]:{}", at.port())
    } else {
        format!("{host}:{}", at.port())
    }
}

/// Answers until the task is dropped.
pub(crate) async fn serve(socket: UdpSocket) {
    let mut request = [0; REQUEST_LEN_MAX + 1];
    loop {
        match socket.recv_from(&mut request).await {
            Ok((len, from)) => {
                if let Some(answer) = answer(&request[..len], from) {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
            // As after an ICMP error to an answer of ours.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// The answer to a binding request, if it is one.
fn answer(request: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
    let (header, attributes) = request.split_at_checked(HEADER_LEN)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_request = header[..2] == BINDING_REQUEST && header[4..8] == MAGIC;
    if !is_request || len != attributes.len() || len % 4 != 0 || request.len() > REQUEST_LEN_MAX {
        return None;
    }
    if from.port() < CLIENT_PORT_MIN {
        return None;
    }
    // The address is covered with the magic and, for IPv6, the transaction (section 14.2).
    let mask = &header[4..];
    let (family, address) = match from.ip().to_canonical() {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let port = from.port().to_be_bytes();
    let mut value = vec![0, family, port[0] ^ mask[0], port[1] ^ mask[1]];
    value.extend(address.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    let mut answer = BINDING_SUCCESS.to_vec();
    answer.extend((value.len() as u16 + 4).to_be_bytes());
    answer.extend(mask);
    answer.extend(XOR_MAPPED_ADDRESS);
    answer.extend((value.len() as u16).to_be_bytes());
    answer.extend(value);
    (answer.len() <= request.len()).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ports_that_nobody_named_those_that_are_free_are_taken() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let holder = std::net::UdpSocket::bind((loopback, 0)).unwrap();
        let taken = holder.local_addr().unwrap();
        let any = SocketAddr::new(loopback, 0);
        assert_eq!(free(&[taken, any]).len(), 1);
        let named = Stun::At(vec![any, taken]).bind(loopback).unwrap_err().to_string();
        assert!(named.contains(&format!("--stun {taken}")), "{named}");
        assert!(Stun::At(Vec::new()).bind(loopback).unwrap().is_empty());
    }

    /// RFC 5769, section 2: the transaction and mapped addresses of its sample responses.
    #[test]
    fn answers_are_those_of_the_published_vectors() {
        let transaction = [0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae];
        // An attribute that nobody needs to know (0x8022, SOFTWARE) makes room for the answer.
        let software = [&[0x80, 0x22, 0, 20][..], &[0x20; 20]].concat();
        let request = [&[0, 1, 0, 24], &MAGIC[..], &transaction, &software].concat();
        let v4 = answer(&request, "192.0.2.1:32853".parse().unwrap()).unwrap();
        let mapped = [0, 0x20, 0, 8, 0, 1, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43];
        assert_eq!(v4, [&[1, 1, 0, 12], &MAGIC[..], &transaction, &mapped].concat());
        let from = "[2001:db8:1234:5678:11:2233:4455:6677]:32853".parse().unwrap();
        let v6 = answer(&request, from).unwrap();
        let mapped = [
            0, 0x20, 0, 0x14, 0, 2, 0xa1, 0x47, 0x01, 0x13, 0xa9, 0xfa, 0xa5, 0xd3, 0xf1, 0x79,
            0xbc, 0x25, 0xf4, 0xb5, 0xbe, 0xd2, 0xb9, 0xd9,
        ];
        assert_eq!(v6[HEADER_LEN..], mapped);
        for broken in [&request[..19], &[&request[..], &[0]].concat(), &[1; 20], &v4, &[]] {
            assert_eq!(answer(broken, "192.0.2.1:4000".parse().unwrap()), None);
        }
    }

    #[test]
    fn nt_01_no_answer_is_longer_than_its_request_or_goes_to_a_port_of_a_service() {
        let ask = |fill: usize, from: &str| {
            let head = [0, 1, 0, fill as u8];
            let request = [&head[..], &MAGIC, &[7; 12], &vec![0x20; fill]].concat();
            answer(&request, from.parse().unwrap()).map(|answer| (answer.len(), request.len()))
        };
        for from in ["192.0.2.1:4000", "[2001:db8::1]:4000"] {
            for fill in (0..60).step_by(4) {
                let Some((answer, request)) = ask(fill, from) else { continue };
                assert!(answer <= request, "{answer} bytes for {request}");
            }
            assert!(ask(24, from).is_some(), "as our own clients ask");
            assert_eq!(ask(8, "[2001:db8::1]:4000"), None, "44 bytes for 28");
        }
        for port in [0, 1, 53, 1023] {
            assert_eq!(ask(24, &format!("192.0.2.1:{port}")), None, "port {port}");
        }
    }
}
