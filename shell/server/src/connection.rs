//! A connection that speaks HTTP/1.1, whoever serves it: where it is taken, what its heads may
//! cost, and how it is cut.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

/// A TLS handshake, the head of a request and its body may each take so long.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Fields in the head of a request.
const FIELDS_MAX: usize = 64;
/// After an error of accept, which is mostly a lack of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted, if the kernel lets so many (`net.core.somaxconn`): who
/// finds no room asks again a second later.
const BACKLOG: u32 = 4096;

/// Takes connections at this address; to be called where the runtime is.
pub(crate) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // What a server before left in TIME_WAIT is no obstacle; another that listens still is.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Does the work unless its place is needed for others meanwhile.
pub(crate) async fn unless_cut<T>(
    work: impl Future<Output = T>,
    cut: oneshot::Receiver<()>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut cut = Some(cut);
    poll_fn(|context| {
        if let Some(told) = &mut cut
            && let Poll::Ready(told) = Pin::new(told).poll(context)
        {
            if told.is_ok() {
                return Poll::Ready(None);
            }
            // Its place was given back.
            cut = None;
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Reads requests, whose heads are bounded in bytes and time, until the connection ends.
pub(crate) async fn talk<I, S, B>(stream: I, service: S)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B, Error = Infallible>,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(READ_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(FIELDS_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a connection ended");
    }
}
