//! The socket of QUIC by ping: what the library takes for a UDP socket, with each datagram in an
//! echo of ICMP. An address is a requester's with its identifier in place of the port.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use carrier::icmp::ResponderCounters;
use ping::Answerer;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{Sleep, sleep_until};

use crate::held::held;
use crate::keys::SystemRandom;

/// A socket of pings for the library.
#[derive(Debug)]
pub(crate) struct PingSocket {
    /// A copy of its descriptor, for the runtime: the kind of socket is nothing to that.
    io: UdpSocket,
    answerer: Mutex<Answerer>,
    /// Until something is due of itself.
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl PingSocket {
    /// Opens it, inside a runtime; `name` is in the name of its table of nftables.
    ///
    /// # Errors
    /// What is missing, and how to mend it.
    pub(super) fn open(name: &str, at: IpAddr) -> io::Result<Arc<Self>> {
        let answerer = Answerer::open(name, at, &mut SystemRandom)?;
        let copy = std::net::UdpSocket::from(answerer.as_fd().try_clone_to_owned()?);
        let io = UdpSocket::from_std(copy)?;
        let answerer = Mutex::new(answerer);
        let sleep = Mutex::new(None);
        Ok(Arc::new(Self { io, answerer, sleep }))
    }

    /// Who asks from there has proved a key, and may be told more than it asked with.
    pub(crate) fn prove(&self, at: SocketAddr) {
        held(&self.answerer).prove(at, Instant::now());
    }

    pub(super) fn counters(&self) -> (ResponderCounters, u64) {
        let answerer = held(&self.answerer);
        let (counters, refused) = answerer.counters();
        (*counters, refused)
    }

    /// Does what is due, and wakes the task when the next is.
    fn poll_due(&self, context: &mut Context<'_>) {
        let mut sleep = held(&self.sleep);
        loop {
            let now = Instant::now();
            let mut answerer = held(&self.answerer);
            let Some(due) = answerer.poll_timeout() else { return };
            if due <= now {
                answerer.handle_timeout(now);
                if answerer.poll_timeout().is_some_and(|next| next <= due) {
                    return;
                }
                continue;
            }
            drop(answerer);
            let waits = sleep.get_or_insert_with(|| Box::pin(sleep_until(due.into())));
            waits.as_mut().reset(due.into());
            if waits.as_mut().poll(context).is_pending() {
                return;
            }
        }
    }
}

impl AsyncUdpSocket for PingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Ready)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let len = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        let mut answerer = held(&self.answerer);
        for datagram in transmit.contents.chunks(len) {
            answerer.send(transmit.destination, datagram, &mut SystemRandom, Instant::now());
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            self.poll_due(context);
            ready!(self.io.poll_recv_ready(context))?;
            let mut places = buffers.iter_mut().zip(metas.iter_mut());
            let most = places.len();
            let mut taken = 0;
            let read = self.io.try_io(Interest::READABLE, || {
                held(&self.answerer).read(most, Instant::now(), |came, datagram| {
                    let Some((buffer, meta)) = places.next() else { return };
                    // What is longer than all that was promised is none of QUIC's.
                    let Some(room) = buffer.get_mut(..datagram.len()) else { return };
                    room.copy_from_slice(datagram);
                    *meta = RecvMeta {
                        addr: came.from,
                        len: datagram.len(),
                        stride: datagram.len(),
                        ecn: None,
                        dst_ip: came.to,
                    };
                    taken += 1;
                })
            });
            match read {
                Ok(_) if taken > 0 => return Poll::Ready(Ok(taken)),
                // Requests that carry nothing.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::new(held(&self.answerer).at(), 0))
    }

    fn may_fragment(&self) -> bool {
        held(&self.answerer).may_fragment()
    }
}

/// What the kernel has no room for is lost, so nobody waits for room.
#[derive(Debug)]
struct Ready;

impl UdpPoller for Ready {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
