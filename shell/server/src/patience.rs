//! A stream whose reader has to read: what is written must go on, or the connection ends.
//!
//! An answer is made whole before it is sent, so a reader that reads nothing holds as much memory
//! as it asked for (threat CO-11). Readers on slow lines are no such: some progress is enough.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Within this time a reader has to take [`BYTES_MIN`], or all that there is.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes a time: the speed of a modem.
const BYTES_MIN: usize = 32 * 1024;

/// A stream that ends when its reader does not read.
pub(crate) struct Patience<S> {
    stream: S,
    /// Since a write had to wait: until when, and what went meanwhile.
    wait: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S: Unpin> Patience<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, wait: None }
    }

    /// The stream, for who has patience of its own.
    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    /// What a write came to, seen over time.
    fn judge(
        &mut self,
        wrote: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(len)) => {
                if let Some((_, went)) = &mut self.wait {
                    *went += len;
                    if *went >= BYTES_MIN {
                        self.wait = None;
                    }
                }
                wrote
            }
            Poll::Ready(Err(_)) => wrote,
            Poll::Pending => {
                let (until, _) =
                    self.wait.get_or_insert_with(|| (Box::pin(sleep(WRITE_WITHIN)), 0));
                ready!(until.as_mut().poll(context));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(wrote, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(wrote, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            // Who is asked to flush has nothing left to write.
            self.wait = None;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
