//! Streams whose other end is silent, ends, or speaks no TLS.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use noise::PublicKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

const T0: Instant = Instant(1_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

/// A stream to `relay` whose TLS waits for an answer, its other end, and where its end is told.
fn stream(relay: u32) -> (NewStream, TcpStream, Receiver<StreamEnd>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("relay.example").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let (told, ends) = sync_channel(4);
    let on_end = Box::new(move |end| told.send(end).unwrap());
    let carrier = Carrier::Https(socket, Box::new(tls), None);
    (NewStream { relay, carrier, decoder: Decoder::default(), on_end }, other, ends)
}

/// A turn of the loop in which nothing came.
fn turn(streams: &mut Streams, now: Instant) {
    streams.tick(now);
    streams.handle_timeout();
    streams.flush();
}

#[test]
fn a_stream_that_never_answers_is_dead_after_5_s_and_told_once() {
    let mut streams = Streams::default();
    let (new, _other, ends) = stream(3);
    streams.tick(T0);
    streams.set(new).unwrap();
    assert!(streams.poll_interest().is_some() && streams.poll_interest().is_none());
    turn(&mut streams, T0.after(SECOND * 4));
    assert_eq!(streams.status().next().unwrap().rtt_us, None);
    assert!(ends.try_recv().is_err());
    turn(&mut streams, T0.after(SECOND * 5));
    assert_eq!(ends.try_recv(), Ok(StreamEnd::Silent));
    let (new, _other, soon) = stream(3);
    streams.set(new).unwrap();
    streams.check(3);
    turn(&mut streams, T0.after(SECOND * 7));
    assert_eq!(soon.try_recv(), Ok(StreamEnd::Silent), "sooner after a change of the network");
    assert!(ends.try_recv().is_err() && streams.status().next().is_none());
}

#[test]
fn the_end_of_a_connection_and_what_is_no_tls_end_a_stream() {
    for says in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let mut streams = Streams::default();
        let (new, mut other, ends) = stream(3);
        let fd = new.carrier.as_raw_fd();
        streams.set(new).unwrap();
        other.write_all(says).unwrap();
        drop(other);
        for _ in 0..100 {
            if let Some(arrived) = streams.read(fd) {
                streams.give_back(arrived, 0, false);
            }
            streams.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ends.try_recv(), Ok(StreamEnd::Broken), "{says:?}");
        assert!(!streams.has(fd) && streams.read(fd).is_none());
    }
}

#[test]
fn one_stream_a_relay_and_a_bound_on_all() {
    let mut streams = Streams::default();
    let (first, _a, ends) = stream(0);
    streams.set(first).unwrap();
    let mut kept = Vec::new();
    for relay in 0..STREAMS_MAX as u32 {
        let (new, other, ends) = stream(relay);
        streams.set(new).unwrap();
        kept.push((other, ends));
    }
    assert_eq!(ends.try_recv(), Ok(StreamEnd::Removed), "another to the same relay came");
    assert!(streams.set(stream(99).0).is_err());
    streams.remove(1);
    assert_eq!(kept[1].1.try_recv(), Ok(StreamEnd::Removed));
    assert!(streams.set(stream(99).0).is_ok());
}

#[test]
fn what_waits_for_a_stream_that_is_stuck_is_bounded_and_counted() {
    let mut streams = Streams::default();
    let (new, _other, _ends) = stream(7);
    streams.tick(T0);
    streams.set(new).unwrap();
    let to = Relayed { relay: 7, peer: PublicKey([1; 32]) };
    for ms in 0..1000 {
        streams.tick(T0.after(Duration::from_millis(ms)));
        for _ in 0..20 {
            streams.push(&to, &[4; 1400]);
        }
    }
    assert_eq!(streams.pushed(), 20 * 1400, "of the last turn");
    let status = streams.status().next().unwrap();
    assert!(status.queued * 1400 <= ::carrier::stream::STREAM_LEN_MAX as u64);
    let counters = status.counters;
    assert_eq!(counters.taken, 20_000);
    assert_eq!(counters.taken, status.queued + counters.overflow + counters.stale);
    streams.push(&Relayed { relay: 8, ..to }, &[4; 100]);
    assert_eq!(streams.unrelayed, 1, "there is no stream to that relay");
}
