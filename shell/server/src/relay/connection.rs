//! One connection of the relay: the proof of a key, then frames until one end is done.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use carrier::ConnectionId;
use control::channel::Channel;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use noise::PublicKey;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use wire::relay::{Frame, Notice};

use super::place::Place;
use super::strangers::Stranger;
use super::stream::{Came, Stream};
use super::{Floor, Relay};
use crate::connection::unless_cut;
use crate::held::held;
use crate::keys::SystemRandom;
use crate::patience::Patience;
use crate::waits::unproven;

/// What an HTTP connection is made of; without it an upgrade comes to nothing.
type Tls = TlsStream<Patience<TcpStream>>;

/// The answer to the upgrade, and the proof of a key, together (threat RL-05).
const PROVE_WITHIN: Duration = Duration::from_secs(10);
/// A last word may take so long.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of frames that are sealed at once: four records of TLS.
const WRITE_LEN: usize = 64 * 1024;
/// Reads and writes before other tasks have their turn.
const TURNS: usize = 8;

/// Serves a connection that was upgraded, until it ends.
pub(super) async fn serve(relay: Arc<Relay>, upgraded: OnUpgrade, is_websocket: bool) {
    let entered = timeout(PROVE_WITHIN, enter(&relay, upgraded, is_websocket)).await;
    let Ok(Some((stream, key, id))) = entered else {
        return;
    };
    let place = Place::new(relay, id, key);
    let mut connection = Connection { place, stream, plain: Vec::new(), is_blocked: false };
    // What came right behind the proof waits in the decoder, and no further byte may come.
    let end = match connection.pass() {
        Ok(()) => poll_fn(|context| connection.poll(context)).await,
        Err(error) => Err(error),
    };
    match end {
        Ok(Some(notice)) => {
            let last_word = say_and_close(&mut connection.stream, notice);
            let _ = timeout(CLOSE_WITHIN, last_word).await;
        }
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "a relay's connection ended"),
    }
}

/// Everything before the first datagram; `None` if the connection is none of ours.
async fn enter(
    relay: &Arc<Relay>,
    upgraded: OnUpgrade,
    is_websocket: bool,
) -> Option<(Stream, PublicKey, ConnectionId)> {
    let parts = upgraded.await.ok()?.downcast::<TokioIo<Tls>>().ok()?;
    let (tcp, tls) = parts.io.into_inner().into_inner();
    let tcp = tcp.into_inner();
    let (place, cut) = relay.strangers.enter(tcp.peer_addr().ok()?.ip());
    let mut stream = Stream::new(tcp, tls, &parts.read_buf, is_websocket).ok()?;
    let key = unless_cut(prove(relay, &mut stream, place), cut).await?.ok()??;
    match relay.admit(key) {
        Ok(id) => Some((stream, key, id)),
        Err(notice) => {
            let _ = timeout(CLOSE_WITHIN, say_and_close(&mut stream, notice)).await;
            None
        }
    }
}

/// Has the node prove its key: `None` if it was refused.
async fn prove(
    relay: &Arc<Relay>,
    stream: &mut Stream,
    _place: Stranger,
) -> io::Result<Option<PublicKey>> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let message = next(stream, |frame| match frame {
        Frame::Open(message) => Some(message.to_vec()),
        _ => None,
    });
    let message = message.await?.ok_or_else(broken)?;
    let judged = judge(relay, message).await?;
    say(stream, &Frame::Answer(&judged.answer)).await?;
    if !judged.is_member {
        return Ok(None);
    }
    let confirm = next(stream, |frame| match frame {
        Frame::Confirm(confirm) => Some(confirm.to_vec()),
        _ => None,
    });
    let confirm = confirm.await?.ok_or_else(broken)?;
    Ok(judged.is_confirmed(&confirm).then_some(judged.key))
}

/// What a node's first message is answered.
pub(super) struct Judged {
    pub(super) key: PublicKey,
    pub(super) is_member: bool,
    pub(super) answer: Vec<u8>,
    channel: Channel,
}

impl Judged {
    pub(super) fn is_confirmed(&self, confirm: &[u8]) -> bool {
        control::relay::is_confirmed(&self.channel, confirm)
    }
}

/// Reads whose key a first message shows, and says whether it is a member's.
pub(super) async fn judge(relay: &Arc<Relay>, message: Vec<u8>) -> io::Result<Judged> {
    let ours = Arc::clone(relay);
    let judged = unproven(&relay.proofs, move || {
        let initiation = control::relay::read(&ours.key, &message).map_err(io::Error::other)?;
        let key = initiation.key();
        let is_member = ours.members.is_member(&key);
        let verdict = (!is_member).then_some(Notice::NotMember);
        let answer = control::relay::answer(initiation, verdict, &mut SystemRandom);
        let (answer, channel) = answer.map_err(io::Error::other)?;
        Ok(Judged { key, is_member, answer, channel })
    });
    judged.await.map_err(|_| io::Error::other("no thread for a proof"))?
}

/// What `wanted` makes of the next frame.
async fn next<T>(
    stream: &mut Stream,
    wanted: impl Fn(&Frame<'_>) -> Option<T>,
) -> io::Result<Option<T>> {
    loop {
        if let Some(place) = stream.decoder.poll_frame().map_err(io::Error::other)? {
            return Ok(wanted(&stream.decoder.frame(&place)));
        }
        let came = poll_fn(|context| {
            // What TLS has to say goes first.
            let (_, sent) = stream.poll_flush(context);
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(Err(error));
            }
            stream.poll_read(context)
        });
        if came.await? == Came::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn say(stream: &mut Stream, frame: &Frame<'_>) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    stream.write(&bytes)?;
    poll_fn(|context| stream.poll_flush(context).1).await
}

async fn say_and_close(stream: &mut Stream, notice: Notice) -> io::Result<()> {
    say(stream, &Frame::Notice(notice)).await?;
    stream.close();
    poll_fn(|context| stream.poll_flush(context).1).await
}

/// A connection with a proven key.
struct Connection {
    place: Place,
    stream: Stream,
    /// Frames that were taken from the switch and are about to be sealed.
    plain: Vec<u8>,
    is_blocked: bool,
}

impl Connection {
    /// Works as long as there is work. Ends with a last word, if there is one.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Notice>>> {
        for _ in 0..TURNS {
            let (cut, wrote) = self.poll_write(context)?;
            if let Some(notice) = cut {
                return Poll::Ready(Ok(notice));
            }
            match self.stream.poll_read(context)? {
                Poll::Ready(Came::End) => return Poll::Ready(Ok(None)),
                Poll::Ready(Came::Bytes) => self.pass()?,
                Poll::Pending if !wrote => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what waits, as far as the socket takes it: whether the connection is to be cut, and
    /// whether there may be more.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
    ) -> io::Result<(Option<Option<Notice>>, bool)> {
        let (moved, sent) = self.stream.poll_flush(context);
        if let Poll::Ready(Err(error)) = sent {
            return Err(error);
        }
        let is_blocked = sent.is_pending();
        let relay = &self.place.relay;
        let id = self.place.id;
        let now = relay.now();
        let mut floor = held(&relay.floor);
        let Floor { switch, ports } = &mut *floor;
        let Some(port) = ports.get_mut(&id) else { return Ok((Some(None), false)) };
        if let Some(notice) = port.cut {
            return Ok((Some(notice), false));
        }
        if is_blocked != self.is_blocked || moved {
            port.blocked = is_blocked.then_some(now);
            self.is_blocked = is_blocked;
        }
        if !port.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            port.waker = Some(context.waker().clone());
        }
        if is_blocked {
            return Ok((None, false));
        }
        switch.poll_frames(id, &mut self.plain, WRITE_LEN, now);
        drop(floor);
        if self.plain.is_empty() {
            return Ok((None, false));
        }
        self.stream.write(&self.plain)?;
        self.plain.clear();
        Ok((None, true))
    }

    /// Gives the switch all frames that were read.
    fn pass(&mut self) -> io::Result<()> {
        if self.place.pass(&mut self.stream.decoder)? {
            // Now and then, when there is little to do, memory is given back.
            self.stream.decoder.release();
            self.plain.shrink_to(WRITE_LEN / 16);
        }
        Ok(())
    }
}
