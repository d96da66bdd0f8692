//! What can be measured in a ring: each test's word, its name, and how long it takes.

use super::SHARED_TIMES;

/// Something to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// Time from the start to the first echo.
    Connect,
    /// Round trips on an idle link.
    Ping,
    /// One TCP stream forth, then one back.
    Tcp,
    /// Six TCP streams forth, then six back.
    Six,
    /// One TCP stream each way at once.
    Both,
    /// One TCP stream each way on all three links at once.
    Parallel,
    /// UDP offered without limit, each direction alone.
    Udp,
    /// Pings of 1,200 bytes, many under way.
    Flood,
    /// Eight QUIC connections forth, then eight back, then eight forth over IPv6.
    Quic,
    /// A video over RIST.
    Video,
    /// Many small and some large files over HTTP or HTTPS.
    Download,
    /// Time from a restart to echoes both ways.
    Reconnect,
    /// One flow inside and one outside over one narrow queue.
    Shared,
    /// One TCP stream forth over delays, losses and rates.
    Grid,
}

impl Test {
    /// All that can be named, in the order in which they are measured; the grid is an option.
    pub const ALL: [Self; 13] = [
        Self::Connect,
        Self::Ping,
        Self::Tcp,
        Self::Six,
        Self::Both,
        Self::Parallel,
        Self::Udp,
        Self::Flood,
        Self::Quic,
        Self::Video,
        Self::Download,
        Self::Reconnect,
        Self::Shared,
    ];

    /// The word for it on the command line and in the results.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Ping => "ping",
            Self::Tcp => "tcp",
            Self::Six => "tcp6",
            Self::Both => "bidir",
            Self::Parallel => "parallel",
            Self::Udp => "udp",
            Self::Flood => "flood",
            Self::Quic => "quic",
            Self::Video => "video",
            Self::Download => "download",
            Self::Reconnect => "reconnect",
            Self::Shared => "shared",
            Self::Grid => "grid",
        }
    }

    /// What it is, for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Connect => "First connection",
            Self::Ping => "Ping on an idle link",
            Self::Tcp => "One TCP stream, each direction alone",
            Self::Six => "Six TCP streams, each direction alone",
            Self::Both => "One TCP stream each way at once",
            Self::Parallel => "One TCP stream each way on all three links at once",
            Self::Udp => "UDP offered without limit, each direction alone",
            Self::Flood => "Pings of 1,200 bytes, a hundred under way",
            Self::Quic => "Eight QUIC connections, each direction alone",
            Self::Video => "A video of 3 Mbit/s over RIST, up",
            Self::Download => "Download of many small and some large files",
            Self::Reconnect => "Reconnect after a restart",
            Self::Shared => "Two flows, inside and outside, over one queue of 100 Mbit/s",
            Self::Grid => "One TCP stream over delay, loss and rate",
        }
    }

    /// The one called so, the grid included.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Grid]).find(|test| test.word() == word)
    }

    pub(crate) fn needs_whole_ring(self) -> bool {
        matches!(self, Self::Connect | Self::Parallel | Self::Reconnect)
    }

    /// Whether it is measured once a round, and not on each link.
    pub(crate) fn is_once(self) -> bool {
        self.needs_whole_ring() || matches!(self, Self::Shared | Self::Grid)
    }

    /// How long one takes, about, without the lab.
    pub(super) fn expected_s(self, seconds: u32) -> f64 {
        let s = f64::from(seconds);
        match self {
            Self::Connect => 0.0,
            Self::Ping => 20.0,
            Self::Tcp | Self::Six | Self::Parallel | Self::Udp => 2.0 * s,
            Self::Shared => 2.0 * f64::from(SHARED_TIMES) * s,
            Self::Both | Self::Flood | Self::Grid => s,
            Self::Quic => 3.0 * s,
            Self::Video => s + 8.0,
            Self::Download => 10.0,
            Self::Reconnect => 3.0,
        }
    }
}
