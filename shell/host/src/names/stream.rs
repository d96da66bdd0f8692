//! Queries over TCP (RFC 7766): a thread for each connection, few of them, none for long. What is
//! not ours is asked over TCP too, since it is here because a datagram was too small for it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dns::{Forward, QUERY_LEN_MAX, Rcode, TIMEOUT, Transport, Verdict, failure, is_answer};
use noise::Random;

use super::{Count, Shared};
use crate::KernelRandom;

/// Connections at once.
const STREAMS_MAX: usize = 16;
/// Queries on one connection.
const QUERIES_MAX: usize = 64;
/// How long a connection may say nothing, or not read.
const IDLE: Duration = Duration::from_secs(5);
/// Resolvers that are tried for one question.
const TRIES_MAX: usize = 3;

/// One of the places for connections, given back when dropped.
struct Seat(Arc<Shared>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves `stream` on a thread of its own; closes it at once when there are too many.
pub(super) fn serve(shared: &Arc<Shared>, stream: TcpStream) {
    let before = shared.streams.fetch_add(1, Ordering::AcqRel);
    let seat = Seat(shared.clone());
    if before >= STREAMS_MAX {
        return shared.count(Count::StreamsRefused);
    }
    let thread = std::thread::Builder::new().name("names-tcp".to_owned());
    let started = thread.spawn(move || {
        crate::linux::signals::block_all();
        // a client that goes away in the middle is its own business
        let _ = talk(&seat.0, stream);
    });
    if started.is_err() {
        shared.count(Count::StreamsRefused);
    }
}

fn talk(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    for _ in 0..QUERIES_MAX {
        if shared.ended.load(Ordering::Relaxed) {
            break;
        }
        let query = read_message(&mut stream, QUERY_LEN_MAX)?;
        let names = shared.names();
        let reply = match names.judge(&query, Transport::Tcp) {
            Verdict::Drop(_) => {
                shared.count(Count::NoQuery);
                return Ok(());
            }
            Verdict::Reply(reply) => {
                shared.count(Count::Queries);
                reply
            }
            Verdict::Forward(forward) => {
                shared.count(Count::Queries);
                shared.count(Count::Forwarded);
                ask_others(shared, &forward, &query)
            }
        };
        write_message(&mut stream, &reply)?;
    }
    Ok(())
}

/// What the first resolver that answers says, under the client's number.
fn ask_others(shared: &Shared, forward: &Forward<'_>, query: &[u8]) -> Vec<u8> {
    let mut sent = query.to_vec();
    for to in forward.to.iter().take(TRIES_MAX) {
        KernelRandom.fill(&mut sent[..2]);
        match ask(shared.resolver(*to), &sent) {
            Ok(mut answer) if is_answer(&forward.query, &sent, &answer) => {
                answer[..2].copy_from_slice(&query[..2]);
                shared.names().rename(*to, &mut answer);
                return answer;
            }
            Ok(_) => shared.count(Count::ForeignAnswer),
            Err(e) => tracing::debug!("names: resolver {to} over TCP: {e}"),
        }
    }
    failure(&forward.query, Rcode::ServFail)
}

fn ask(to: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    ask_whole(&mut TcpStream::connect_timeout(&to, TIMEOUT)?, query)
}

/// What whoever is at the other end answers.
pub(crate) fn ask_whole(stream: &mut TcpStream, query: &[u8]) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write_message(stream, query)?;
    read_message(stream, usize::from(u16::MAX))
}

/// Two bytes of length, then a message of at most `max` bytes.
fn read_message(stream: &mut TcpStream, max: usize) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_be_bytes(len));
    if len > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut message = vec![0; len];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let len = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes(), message].concat())
}
