//! The cross-platform configuration protocol of WireGuard: what `wg` and `wg-quick` say to a
//! userspace implementation over `/var/run/wireguard/NAME.sock`.
//!
//! A request is lines of `key=value` and ends with an empty line. `get=1` asks for everything;
//! `set=1` is followed by changes. The reply ends with `errno=N` and an empty line; N is 0 or a
//! negative errno, as wireguard-go writes it. [`text`] turns requests into [`node::Change`]s and
//! [`node::Status`] into replies; [`Server`] is the socket, driven by whoever owns the loop.
//!
//! A request takes effect as a whole or not at all: a bad value in its last line leaves the
//! configuration as it was, and so does a client that goes away in the middle.
//!
//! `weather=1` is ours: how the links to peers that speak frames are, as one line of JSON. Others
//! refuse it, as the protocol has them refuse what they do not know. So is `reload=1`: read the
//! file again from which the link came. The reply has `reload=` and a line of JSON, how many
//! settings changed or why none did.

mod client;
mod server;
mod socket;
#[cfg(test)]
mod tests;
pub mod text;

use node::{Change, Status};

pub(crate) use server::is_interface_name;
pub use server::{BindError, Server, Turn};

/// Where the sockets are.
pub const DIRECTORY: &str = "/var/run/wireguard";

/// The longest request, in bytes.
pub const REQUEST_LEN_MAX: usize = 16 << 20;

/// The longest line of a request, in bytes.
pub const LINE_LEN_MAX: usize = 64 << 10;

/// How many clients are served at a time; one more, and who was silent longest is dismissed.
pub const CLIENTS_MAX: usize = 16;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Everything there is to know.
    Get,
    /// How the links are.
    Weather,
    /// Read the configuration's file again.
    Reload,
    /// These changes, in order.
    Set(Vec<Change>),
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// All of it, to [`Request::Get`].
    Status(Status),
    /// One line of JSON, to [`Request::Weather`].
    Weather(String),
    /// To [`Request::Reload`]: how many settings changed, or why none did.
    Reloaded(Result<usize, String>),
    /// The changes are in force.
    Done,
    /// The changes are not in force.
    Refused(Errno),
}

/// Why a request failed, as the protocol says it: a negative errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// A key that is not known or a value that is not valid.
    pub const INVALID: Self = Self(-libc::EINVAL);
    /// Not `key=value`, or not ended by an empty line.
    pub const PROTOCOL: Self = Self(-libc::EPROTO);
    /// The request could not be read: a line or the whole is too long.
    pub const IO: Self = Self(-libc::EIO);
    /// The port is taken by another socket.
    pub const PORT_IN_USE: Self = Self(-libc::EADDRINUSE);
    /// Anything else.
    pub const UNKNOWN: Self = Self(-libc::ENOANO);
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(-self.0))
    }
}
