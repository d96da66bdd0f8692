//! The socket server: one descriptor for the owner's loop, behind it the listener, the watch on the
//! socket's file and at most [`CLIENTS_MAX`] clients. Nothing here blocks.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::{Client, Fate};
use super::socket::Listener;
use super::{CLIENTS_MAX, DIRECTORY, Reply, Request};
use crate::linux::sys::{Interest, Poll};

/// The configuration socket of one interface.
///
/// Watch [`Server::fd`] for reading in any epoll (it is one itself), and call
/// [`Server::handle_ready`] when it is ready.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listener: Listener,
    clients: Vec<Client>,
    turn: u64,
}

/// What a turn of the server found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// All is well.
    Serving,
    /// Somebody removed the socket, which is how an interface is told to go away.
    SocketGone,
}

/// Why a server could not be made.
#[derive(Debug)]
pub enum BindError {
    /// Not a name an interface can have.
    Name(String),
    /// A living program serves this name.
    Taken(PathBuf),
    /// The system refused.
    Io(PathBuf, io::Error),
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "cannot use {name:?} as an interface name: it must be 1 to 15 characters of \
                 a-z A-Z 0-9 _ = + . -; choose another"
            ),
            Self::Taken(path) => write!(
                f,
                "cannot listen at {}: the name is taken by a running program; stop that or choose \
                 another name",
                path.display()
            ),
            Self::Io(path, e) => {
                write!(f, "cannot listen at {}: {e}", path.display())?;
                match e.kind() {
                    io::ErrorKind::PermissionDenied => write!(
                        f,
                        "; {}make {} a folder of this user's, with mode 0700",
                        crate::advice("run as root, or ", ""),
                        path.parent().unwrap_or(path).display()
                    ),
                    io::ErrorKind::AddrInUse => {
                        f.write_str("; something that is not a socket is there: remove it")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for BindError {}

impl Server {
    /// Serves the interface `name` at the usual place.
    ///
    /// # Errors
    /// [`BindError`]: a bad name, a name in use, or no permission.
    pub fn bind(name: &str) -> Result<Self, BindError> {
        Self::bind_in(Path::new(DIRECTORY), name)
    }

    /// As [`Server::bind`], in another directory, which is made if it is missing.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_in(directory: &Path, name: &str) -> Result<Self, BindError> {
        if !is_interface_name(name) {
            return Err(BindError::Name(name.to_owned()));
        }
        let path = directory.join(format!("{name}.sock"));
        let serve = || {
            let listener = Listener::bind(&path)?;
            let poll = Poll::new()?;
            poll.watch(listener.as_raw_fd(), Interest::READ)?;
            poll.watch(listener.watch_fd(), Interest::READ)?;
            Ok(Self { poll, listener, clients: Vec::new(), turn: 0 })
        };
        serve().map_err(|e: io::Error| {
            let is_socket = std::os::unix::net::UnixStream::connect(&path).is_ok();
            if e.kind() == io::ErrorKind::AddrInUse && is_socket {
                BindError::Taken(path.clone())
            } else {
                BindError::Io(path.clone(), e)
            }
        })
    }

    /// The descriptor to watch for reading.
    pub fn fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Does what can be done without waiting; `handler` answers each request that is whole. What is
    /// left over keeps [`Server::fd`] readable.
    ///
    /// # Errors
    /// What the system says of the server's own descriptors; a client's failure only ends that
    /// client.
    pub fn handle_ready(&mut self, handler: &mut dyn FnMut(Request) -> Reply) -> io::Result<Turn> {
        self.turn += 1;
        let mut ready = Vec::new();
        self.poll.wait(Some(Duration::ZERO), &mut ready)?;
        let mut state = Turn::Serving;
        for event in ready {
            if event.fd == self.listener.as_raw_fd() {
                self.accept()?;
            } else if event.fd == self.listener.watch_fd() {
                if self.listener.is_gone() {
                    state = Turn::SocketGone;
                }
            } else {
                self.handle_client(event.fd, handler);
            }
        }
        Ok(state)
    }

    fn accept(&mut self) -> io::Result<()> {
        let stream = match self.listener.accept() {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(()),
            // no descriptors left: make room, and try again when the loop comes round
            Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                if self.clients.is_empty() {
                    return Err(e);
                }
                self.dismiss_most_silent();
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        if self.clients.len() >= CLIENTS_MAX {
            self.dismiss_most_silent();
        }
        self.poll.watch(stream.as_raw_fd(), Interest::READ)?;
        self.clients.push(Client::new(stream, self.turn));
        Ok(())
    }

    fn dismiss_most_silent(&mut self) {
        let silent = self.clients.iter().enumerate().min_by_key(|(_, c)| c.active_turn);
        if let Some((place, _)) = silent {
            self.dismiss(place);
        }
    }

    fn dismiss(&mut self, place: usize) {
        let client = self.clients.swap_remove(place);
        self.poll.forget(client.stream.as_raw_fd());
    }

    fn handle_client(&mut self, fd: RawFd, handler: &mut dyn FnMut(Request) -> Reply) {
        let place = self.clients.iter().position(|c| c.stream.as_raw_fd() == fd);
        let Some(place) = place else { return }; // dismissed earlier in this turn
        let client = &mut self.clients[place];
        client.active_turn = self.turn;
        let stays = match client.handle_ready(handler) {
            Fate::Stays(interest) => self.poll.watch(fd, interest).is_ok(),
            Fate::Goes => false,
        };
        if !stays {
            self.dismiss(place);
        }
    }
}

/// What `wg-quick` and the kernel take as a name.
pub(crate) fn is_interface_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_=+.-".contains(&b);
    (1..=15).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}
