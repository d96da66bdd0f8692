//! A line whose other end is nobody, or nobody's relay.

use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::version::TLS13;

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::{ALPN, FRAME_LEN_MAX};

fn line(to: SocketAddr) -> Line {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    Line::open(socket, Arc::new(tls), "relay.example").unwrap()
}

#[test]
fn a_line_to_a_port_that_nobody_has_ends_at_once() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut line = line(gone);
    let begin = Instant::now();
    while line.wait(begin + Duration::from_secs(5)).is_ok() {}
    assert!(matches!(line.end(), Some(LineEnd::Lost(_))), "{:?}", line.end());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn rl_15_what_is_none_of_quic_is_not_heard_and_makes_nothing_ready() {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut line = line(other.local_addr().unwrap());
    line.flush(Instant::now());
    let mut first = [0; 1500];
    let (len, from) = other.recv_from(&mut first).unwrap();
    assert!((1200..=1452).contains(&len), "a first datagram of {len} bytes");
    let echo = first[..len].to_vec();
    for junk in [&[][..], &[0xff; 1200], &[0x40; 40], &echo] {
        other.send_to(junk, from).unwrap();
    }
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        line.wait(until).unwrap();
    }
    assert_eq!((line.heard(), line.room(), line.is_ready()), (0, 0, false));
    assert_eq!(line.end(), None);
    let mut decoder = Decoder::default();
    assert!(!line.poll_into(&mut decoder, FRAME_LEN_MAX) && decoder.is_empty());
}
