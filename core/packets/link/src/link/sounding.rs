//! Soundings: what measures a path goes inside the session, and beside repair, order and pacing,
//! as it is. The peer is told which numbers these had, and judges the weather without them.

use wire::frame::Features;

use super::*;

/// Why a path is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsounded {
    /// There is no session yet, or nobody knows where the peer is.
    NoSession,
    /// The peer does not know soundings, as far as it has said.
    Unable,
    /// The way to it is none of UDP: what a relay or another carrier queues is not the path's.
    NotDirect,
    /// It does not fit.
    NoRoom,
}

impl Link {
    /// Sends so many frames of `len` bytes each, which `write` fills by their places. If there is
    /// no session one is asked for.
    ///
    /// # Errors
    /// Why nothing was sent, or not all.
    pub fn send_soundings<O: Outbox>(
        &mut self,
        count: u16,
        len: usize,
        now: Instant,
        out: &mut O,
        mut write: impl FnMut(u16, &mut [u8]),
    ) -> Result<(), Unsounded> {
        if let Some(paths) = &mut self.paths {
            paths.note_data(now);
        }
        if len > self.room {
            return Err(Unsounded::NoRoom);
        }
        let (Some(session), Some(to)) = (self.peer.sealer(now), self.endpoint) else {
            self.want_path();
            return Err(Unsounded::NoSession);
        };
        let index = session.index();
        let frames = self.frames.as_mut().ok_or(Unsounded::Unable)?;
        let hello = frames.hello(index).ok_or(Unsounded::Unable)?;
        if !hello.features.has(Features::SOUNDINGS) {
            return Err(Unsounded::Unable);
        }
        let mut way = Way::new(session, to, out);
        let mut sealed = Ok(());
        for place in 0..count {
            sealed = way.seal(len, |plain| write(place, plain));
            if sealed.is_err() {
                break;
            }
            frames.note_stray_out((index, way.last), true, now);
        }
        let datagrams = way.datagrams;
        let bytes = way.bytes;
        self.tx_bytes += bytes;
        self.peer.data_sent(now, datagrams, 0);
        sealed.map_err(|_| Unsounded::NoRoom)
    }

    /// Notes a sounding that came in `datagram` on the session `index`. `false` where we speak no
    /// frames.
    pub fn note_sounding(&mut self, index: Index, datagram: &[u8], now: Instant) -> bool {
        self.peer.data_received(now, 1, 0);
        let counter = wireguard::counter(datagram);
        self.note_received(false, (index, counter), now);
        self.frames.as_mut().map(|frames| frames.note_stray_in(index, counter)).is_some()
    }
}
