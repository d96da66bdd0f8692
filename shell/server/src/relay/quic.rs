//! One connection of QUIC: the proof of a key on its stream, then frames, each in a datagram of its
//! own where it fits, until one end is done.
//!
//! One task does all of it: it reads datagrams, reads the stream, and writes what the switch has,
//! whichever of the three can go on. Frames wait in the switch, where what is too old is dropped,
//! and not in the library: the next few are taken when those before them have left.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use carrier::ConnectionId;
use hyper::body::Bytes;
use noise::PublicKey;
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Incoming, RecvStream, SendDatagramError, SendStream};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use wire::relay::{Decoder, Frame, Notice, split_first, whole};

use super::connection::judge;
use super::place::Place;
use super::strangers::Stranger;
use super::way::{Pipe, Proof, Seen, Way};
use super::{Floor, Relay};
use crate::connection::unless_cut;
use crate::held::held;

/// The handshake and the proof of a key, together.
const PROVE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of frames that are taken from the switch at once.
const WRITE_LEN: usize = 16 * 1024;
/// Datagrams that are given to the switch under one lock.
const BATCH_LEN: usize = 64;
/// Bytes of the stream that are read at once.
const READ_LEN: usize = 64 * 1024;

/// How a connection ends: with a last word, if there is one.
type End = io::Result<Option<Notice>>;

/// Serves a connection until it ends.
pub(super) async fn serve(
    way: Way,
    incoming: Incoming,
    stranger: Stranger,
    cut: oneshot::Receiver<()>,
) {
    let entering = unless_cut(enter(&way, incoming, stranger), cut);
    let Ok(Some(Ok(Some(entered)))) = timeout(PROVE_WITHIN, entering).await else { return };
    let relay = Arc::clone(&way.relay);
    let seen = way.seen();
    let proof = way.proof(&entered.connection);
    seen.entered.fetch_add(1, Ordering::Relaxed);
    let Entered { connection, sending, receiving, decoder, key, id, taken } = entered;
    let place = Place::new(Arc::clone(&relay), id, key);
    let reading = connection.clone();
    let writing = connection.clone();
    let mut reader =
        Reader { way: way.clone(), connection: reading, receiving, decoder, place, taken };
    let mut writer = Writer { relay, id, connection: writing, sending, proof };
    let end = drive(&mut reader, &mut writer).await;
    seen.left.fetch_add(1, Ordering::Relaxed);
    // What is left in the library, or went there because it came faster than it was taken.
    let came = connection.stats().frame_rx.datagram;
    seen.overrun.fetch_add(came.saturating_sub(reader.taken), Ordering::Relaxed);
    match end {
        Ok(notice) => connection.close(quic::code_of(notice), b""),
        Err(error) => {
            connection.close(quic::code_of(None), b"");
            tracing::debug!(%error, "a relay's connection of QUIC ended");
        }
    }
}

/// A connection whose key was proven.
struct Entered {
    connection: Connection,
    sending: SendStream,
    receiving: RecvStream,
    /// What came behind the proof.
    decoder: Decoder,
    key: PublicKey,
    id: ConnectionId,
    /// Datagrams that were looked at.
    taken: u64,
}

/// Everything before the first datagram; `None` if the connection is none of ours.
async fn enter(way: &Way, incoming: Incoming, stranger: Stranger) -> io::Result<Option<Entered>> {
    let connection = incoming.accept()?.await?;
    if let (Some(pipes), true) = (&way.pipes, is_pipe(&connection)) {
        let (sending, receiving) = connection.accept_bi().await?;
        if let Some(proof) = way.proof(&connection) {
            pipes(Pipe { proof, sending, receiving, stranger });
        }
        return Ok(None);
    }
    let relay = &way.relay;
    let dropped = AtomicU64::new(0);
    let mut early = pin!(drop_datagrams(&connection, way.seen(), &dropped));
    let mut proof = pin!(prove(relay, &connection));
    // Nothing that comes before the proof is kept.
    let (sending, receiving, decoder, key) = poll_fn(|context| {
        if let Poll::Ready(error) = early.as_mut().poll(context) {
            return Poll::Ready(Err(error));
        }
        proof.as_mut().poll(context)
    })
    .await?;
    let taken = dropped.load(Ordering::Relaxed);
    match relay.admit(key) {
        Ok(id) => {
            let connection = connection.clone();
            Ok(Some(Entered { connection, sending, receiving, decoder, key, id, taken }))
        }
        Err(notice) => {
            connection.close(quic::code_of(Some(notice)), b"");
            Ok(None)
        }
    }
}

/// Whether a node wants to say what it says over HTTPS elsewhere.
fn is_pipe(connection: &Connection) -> bool {
    let said = connection.handshake_data().and_then(|said| said.downcast::<HandshakeData>().ok());
    said.is_some_and(|said| said.protocol.as_deref() == Some(quic::PIPE_ALPN))
}

async fn drop_datagrams(connection: &Connection, seen: &Seen, dropped: &AtomicU64) -> io::Error {
    loop {
        if let Err(error) = connection.read_datagram().await {
            return error.into();
        }
        dropped.fetch_add(1, Ordering::Relaxed);
        seen.early.fetch_add(1, Ordering::Relaxed);
    }
}

/// Has the node prove its key.
async fn prove(
    relay: &Arc<Relay>,
    connection: &Connection,
) -> io::Result<(SendStream, RecvStream, Decoder, PublicKey)> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut sending, mut receiving) = connection.accept_bi().await?;
    let mut decoder = Decoder::default();
    let message = next(&mut receiving, &mut decoder, |frame| match frame {
        Frame::Open(message) => Some(message.to_vec()),
        _ => None,
    });
    let message = message.await?.ok_or_else(broken)?;
    let judged = judge(relay, message).await?;
    let mut bytes = Vec::new();
    Frame::Answer(&judged.answer).write(&mut bytes);
    sending.write_all(&bytes).await?;
    // Who is no member reads so in the answer, and ends the connection.
    let confirm = next(&mut receiving, &mut decoder, |frame| match frame {
        Frame::Confirm(confirm) => Some(confirm.to_vec()),
        _ => None,
    });
    let confirm = confirm.await?.ok_or_else(broken)?;
    if !judged.is_member || !judged.is_confirmed(&confirm) {
        return Err(broken());
    }
    Ok((sending, receiving, decoder, judged.key))
}

/// What `wanted` makes of the next frame of the stream.
async fn next<T>(
    receiving: &mut RecvStream,
    decoder: &mut Decoder,
    wanted: impl Fn(&Frame<'_>) -> Option<T>,
) -> io::Result<Option<T>> {
    loop {
        if let Some(place) = decoder.poll_frame().map_err(io::Error::other)? {
            return Ok(wanted(&decoder.frame(&place)));
        }
        let chunk = receiving.read_chunk(READ_LEN, true).await.map_err(io::Error::from)?;
        decoder.push(&chunk.ok_or(io::ErrorKind::UnexpectedEof)?.bytes);
    }
}

/// Reads and writes until one of both is over, or the connection is to be cut.
async fn drive(reader: &mut Reader, writer: &mut Writer) -> End {
    let relay = Arc::clone(&writer.relay);
    let id = writer.id;
    // What came right behind the proof.
    reader.place.pass(&mut reader.decoder)?;
    let mut reading = pin!(reader.run());
    let mut writing = pin!(writer.run());
    poll_fn(|context| {
        if let Some(notice) = cut(&relay, id, context) {
            return Poll::Ready(Ok(notice));
        }
        if let Poll::Ready(end) = reading.as_mut().poll(context) {
            return Poll::Ready(end);
        }
        writing.as_mut().poll(context)
    })
    .await
}

/// Whether the connection is to be cut; from now on the switch wakes this task.
fn cut(relay: &Relay, id: ConnectionId, context: &Context<'_>) -> Option<Option<Notice>> {
    let mut floor = held(&relay.floor);
    let Some(port) = floor.ports.get_mut(&id) else { return Some(None) };
    if port.cut.is_none() && !port.waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
        port.waker = Some(context.waker().clone());
    }
    port.cut
}

struct Reader {
    way: Way,
    connection: Connection,
    receiving: RecvStream,
    decoder: Decoder,
    place: Place,
    taken: u64,
}

impl Reader {
    /// Gives the switch what comes.
    async fn run(&mut self) -> End {
        let Self { way, connection, receiving, decoder, place, taken } = self;
        let mut frames = Decoder::default();
        // One that is dropped while it waits is not woken.
        let mut datagrams = pin!(connection.read_datagram());
        loop {
            let came = poll_fn(|context| {
                let mut count = 0;
                while count < BATCH_LEN {
                    let datagram = match datagrams.as_mut().poll(context) {
                        Poll::Ready(Ok(datagram)) => datagram,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                        Poll::Pending => break,
                    };
                    datagrams.set(connection.read_datagram());
                    count += 1;
                    *taken += 1;
                    if whole(&datagram).is_some() {
                        frames.push(&datagram);
                    } else {
                        way.seen().malformed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let chunk = pin!(receiving.read_chunk(READ_LEN, true)).poll(context);
                match chunk {
                    Poll::Ready(Ok(Some(chunk))) => decoder.push(&chunk.bytes),
                    Poll::Ready(Ok(None)) => return Poll::Ready(Ok(false)),
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(io::Error::from(error)));
                    }
                    Poll::Pending if count == 0 => return Poll::Pending,
                    Poll::Pending => {}
                }
                Poll::Ready(Ok(true))
            });
            if !came.await? {
                return Ok(None);
            }
            let was_ping = place.pass(&mut frames)?;
            if place.pass(decoder)? || was_ping {
                frames.release();
                decoder.release();
            }
            // The other direction has its turn.
            yield_now().await;
        }
    }
}

struct Writer {
    relay: Arc<Relay>,
    id: ConnectionId,
    connection: Connection,
    sending: SendStream,
    /// By ping: what is told of whoever is at the other end's address.
    proof: Option<Proof>,
}

impl Writer {
    /// Says that the node was taken, and sends what the switch has.
    async fn run(&mut self) -> End {
        let mut known = None;
        let mut welcome = Vec::new();
        Frame::KeepAlive.write(&mut welcome);
        if let Some(proof) = &self.proof {
            proof.tell();
        }
        self.sending.write_all(&welcome).await?;
        loop {
            // A translator may give it another identifier meanwhile.
            let at = self.connection.remote_address();
            if let Some(proof) = self.proof.as_ref().filter(|_| known != Some(at)) {
                proof.tell();
                known = Some(at);
            }
            let frames = Bytes::from(poll_fn(|_| self.poll_frames()).await);
            let mut rest = &frames[..];
            while let Some((frame, behind)) = split_first(rest) {
                rest = behind;
                self.send(frames.slice_ref(frame)).await?;
            }
            yield_now().await;
        }
    }

    /// Frames of the switch; where there are none it wakes the task later.
    fn poll_frames(&self) -> Poll<Vec<u8>> {
        let mut plain = Vec::new();
        let now = self.relay.now();
        held(&self.relay.floor).switch.poll_frames(self.id, &mut plain, WRITE_LEN, now);
        if plain.is_empty() { Poll::Pending } else { Poll::Ready(plain) }
    }

    async fn send(&mut self, frame: Bytes) -> io::Result<()> {
        let fits = self.connection.max_datagram_size().is_some_and(|len| frame.len() <= len);
        let relay = &self.relay;
        let id = self.id;
        if fits {
            let sending = pin!(self.connection.send_datagram_wait(frame.clone()));
            match noting(relay, id, sending).await {
                Ok(()) => return Ok(()),
                // The path has just become narrower.
                Err(SendDatagramError::TooLarge) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let sending = pin!(self.sending.write_all(&frame));
        noting(relay, id, sending).await.map_err(io::Error::from)
    }
}

/// Notes for the sweep since when this waits.
async fn noting<F: Future>(relay: &Relay, id: ConnectionId, mut work: Pin<&mut F>) -> F::Output {
    let mut is_blocked = false;
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() != is_blocked {
            is_blocked = polled.is_pending();
            let since = is_blocked.then(|| relay.now());
            let mut floor = held(&relay.floor);
            let Floor { ports, .. } = &mut *floor;
            if let Some(port) = ports.get_mut(&id) {
                port.blocked = since;
            }
        }
        polled
    })
    .await
}
