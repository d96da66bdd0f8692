//! What changes, and where it is told; and bodies of answers that are told bit by bit.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{broadcast, mpsc};

/// Events that wait for one listener.
const WAITING_MAX: usize = 1024;

/// Something changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// `node`, `policy`, `route`, `key`, `user`.
    pub(crate) kind: &'static str,
    /// The number of what changed; 0 where there is one only.
    pub(crate) id: u64,
}

/// Where events are told.
pub(crate) struct Events(broadcast::Sender<Event>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(WAITING_MAX).0)
    }

    /// All that is told from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    pub(crate) fn tell(&self, kind: &'static str, id: u64) {
        // Nobody may listen.
        let _ = self.0.send(Event { kind, id });
    }
}

/// A body: known as a whole, or told bit by bit.
pub(crate) enum Sending {
    Whole(Full<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Default for Sending {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl<T: Into<Bytes>> From<T> for Sending {
    fn from(bytes: T) -> Self {
        Self::Whole(Full::new(bytes.into()))
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(context),
            Self::Stream(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}
