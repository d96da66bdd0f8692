//! The local socket: who asks, and the way to the daemon's loop and back. A thread for each client;
//! what they ask goes into the loop's one queue, so nothing is shared.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit::{Crowd, Number};
use lock::SocketFile;
use serde_json::Value;

use crate::protocol::{REQUEST_BYTES_MAX, Request, refused};

/// The socket when none is named.
pub const SOCKET: &str = "/run/warren/warren.sock";
/// Clients at a time of those who may do everything, and as many of all others; for one more, who
/// has most of them loses the oldest.
const CLIENTS_MAX: usize = 16;
/// How long a client may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long the daemon's own answer may take: a logout waits for the server.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    /// The user who asks, unless it is one who may do everything.
    pub(crate) stranger: Option<u32>,
    pub(crate) answer: SyncSender<Value>,
}

/// What carries requests to the loop; `false` once it has ended.
pub(crate) type Carry = Arc<dyn Fn(Asked) -> bool + Send + Sync>;

/// The listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    _file: SocketFile,
}

/// Listens at `path`, for everybody: what they may ask is decided by who they are.
///
/// # Errors
/// What is there already, or what the system refused.
pub(crate) fn listen(path: &Path, carry: Carry) -> io::Result<Listener> {
    let named = |what: &str, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
    };
    if let Some(directory) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(directory).map_err(|error| named("make the directory of", error))?;
    }
    if UnixStream::connect(path).is_ok() {
        let text = format!(
            "a daemon answers at {} already; stop it, or give this one another --socket",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    let bound = SocketFile::bind(path, 0o666).map_err(|error| named("listen at", error))?;
    let (listener, file) = bound;
    let run = move || {
        let places = Arc::new(Places::default());
        for stream in listener.incoming().flatten() {
            let (Ok(user), Ok(end)) = (host::user_of(&stream), stream.try_clone()) else {
                continue;
            };
            let place = places.enter(user, end);
            let carry = Arc::clone(&carry);
            let work = move || {
                serve(&stream, (!place.is_owner).then_some(user), &*carry);
                drop(place);
            };
            // A client that finds no thread sees its connection end.
            let _ = std::thread::Builder::new().name("warren-client".to_owned()).spawn(work);
        }
    };
    std::thread::Builder::new().name("warren-socket".to_owned()).spawn(run)?;
    Ok(Listener { _file: file })
}

/// Who talks to the daemon, by user: root and the daemon's own apart, so that no other keeps them
/// out (threat HO-11).
struct Places {
    owners: Mutex<Crowd<u32, (), UnixStream>>,
    others: Mutex<Crowd<u32, (), UnixStream>>,
}

/// A place; given back when it is dropped.
struct Place {
    places: Arc<Places>,
    is_owner: bool,
    number: Number,
}

impl Default for Places {
    fn default() -> Self {
        let [owners, others] = [(); 2].map(|()| Mutex::new(Crowd::new(CLIENTS_MAX)));
        Self { owners, others }
    }
}

impl Places {
    /// A place for a client of this user; `end` is its stream, to be closed if it loses the place.
    fn enter(self: &Arc<Self>, user: u32, end: UnixStream) -> Place {
        let is_owner = user == 0 || user == host::own_user();
        let (number, lost) = self.of(is_owner).enter(user, (), end);
        if let Some(end) = lost {
            let _ = end.shutdown(Shutdown::Both);
        }
        Place { places: Arc::clone(self), is_owner, number }
    }

    fn of(&self, is_owner: bool) -> MutexGuard<'_, Crowd<u32, (), UnixStream>> {
        let crowd = if is_owner { &self.owners } else { &self.others };
        crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.of(self.is_owner).leave(self.number);
    }
}

fn serve(
    stream: &UnixStream,
    stranger: Option<u32>,
    carry: &(dyn Fn(Asked) -> bool + Send + Sync),
) {
    let limits = stream
        .set_read_timeout(Some(SILENCE_MAX))
        .and_then(|()| stream.set_write_timeout(Some(SILENCE_MAX)));
    if limits.is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let limit = REQUEST_BYTES_MAX as u64;
        match (&mut reader).take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() >= REQUEST_BYTES_MAX => {
                say(stream, &refused("the request is too long"));
                return;
            }
            Ok(_) => {}
        }
        let reply = match serde_json::from_slice::<Request>(&line) {
            Err(error) => refused(format_args!("the request cannot be understood: {error}")),
            Ok(request) => ask(request, stranger, carry),
        };
        if !say(stream, &reply) {
            return;
        }
    }
}

/// Asks the loop on behalf of a user, who may be one of those who may do everything.
pub(crate) fn ask(
    request: Request,
    stranger: Option<u32>,
    carry: &(dyn Fn(Asked) -> bool + Send + Sync),
) -> Value {
    let (answer, answered) = sync_channel(1);
    if !carry(Asked { request, stranger, answer }) {
        return refused("the daemon is about to end");
    }
    let waited = answered.recv_timeout(ANSWER_WITHIN);
    waited.unwrap_or_else(|_| refused("the daemon does not answer; its log says why"))
}

fn say(mut stream: &UnixStream, reply: &Value) -> bool {
    let mut line = reply.to_string();
    line.push('\n');
    stream.write_all(line.as_bytes()).is_ok()
}

/// A command's connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// No daemon answers there; how to start one.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let text = format!(
                "no daemon answers at {}: {error}; start it with `systemctl start warren` or \
                 `warren daemon`",
                path.display()
            );
            io::Error::new(error.kind(), text)
        })?;
        stream.set_read_timeout(Some(ANSWER_WITHIN + Duration::from_secs(5)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and gives the answer.
    ///
    /// # Errors
    /// The daemon ended, or it refused: what it says.
    pub fn ask(&mut self, request: &Request) -> io::Result<Value> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        // Whatever the kernel calls it: to the program a broken pipe is that of its own output.
        let ended = |_| io::Error::other("the daemon ended before it answered");
        self.stream.get_mut().write_all(line.as_bytes()).map_err(ended)?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(io::Error::other("the daemon ended before it answered"));
        }
        let reply: Value = serde_json::from_str(&reply)?;
        match reply["error"].as_str() {
            Some(why) => Err(io::Error::other(why.to_owned())),
            None => Ok(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ho_11_no_user_keeps_another_or_root_out_of_the_socket() {
        let places = Arc::new(Places::default());
        let others = [1, 2].map(|n| host::own_user() + n);
        let enter = |user| {
            let (here, there) = UnixStream::pair().unwrap();
            there.set_nonblocking(true).unwrap();
            (places.enter(user, here), there)
        };
        let is_open = |mut there: &UnixStream| there.read(&mut [0]).is_err();
        let root = enter(host::own_user());
        let quiet = enter(others[0]);
        let greedy: Vec<_> = (0..40).map(|_| enter(others[1])).collect();
        assert!(is_open(&root.1) && is_open(&quiet.1), "they have one each");
        let open = greedy.iter().filter(|(_, there)| is_open(there)).count();
        assert_eq!(open, CLIENTS_MAX - 1, "its own oldest made room");
        assert!(is_open(&greedy[39].1) && !is_open(&greedy[0].1));
        drop(greedy);
        assert_eq!(places.of(false).len(), 1);
    }

    #[test]
    fn lc_01_a_daemon_that_is_gone_is_told_and_never_taken_for_a_yes() {
        let name = format!("warren-gone-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        for has_accepted in [true, false] {
            let mut client = Client::connect(&path).unwrap();
            let accepted = has_accepted.then(|| listener.accept().unwrap());
            drop(accepted);
            if !has_accepted {
                client.stream.get_mut().shutdown(Shutdown::Both).unwrap();
            }
            let error = client.ask(&Request::Status).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "no broken pipe of ours: {error}");
            assert!(error.to_string().contains("ended before it answered"), "{error}");
        }
        let _ = fs::remove_file(&path);
    }
}
