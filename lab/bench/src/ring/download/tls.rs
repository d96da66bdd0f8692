//! The same over TLS, as a cache on an open network is asked. Who the server is nobody looks at:
//! what arrives is compared byte by byte with what this process itself offers.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lab::sys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::LIMIT;

/// A connection, plain or not.
pub(super) trait Channel: Read + Write + Send {}

impl<T: Read + Write + Send> Channel for T {}

/// Both ends' settings, with a certificate made for one download.
#[derive(Clone)]
pub(super) struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new() -> Result<Self> {
        let (server, client) = lab::tls::ends("cache")?;
        let name = ServerName::try_from("cache").context("our own name")?;
        Ok(Self { server, client, name })
    }

    /// The server's end of a connection; the handshake is made as bytes are asked for.
    pub(super) fn accept(&self, stream: TcpStream) -> Result<Box<dyn Channel>> {
        let session = ServerConnection::new(Arc::clone(&self.server))?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }

    /// The client's end, its handshake done: a write would not wait for what has to come first.
    pub(super) fn connect(
        &self,
        mut stream: TcpStream,
        deadline: Instant,
    ) -> Result<Box<dyn Channel>> {
        let mut session = ClientConnection::new(Arc::clone(&self.client), self.name.clone())?;
        while session.is_handshaking() {
            match session.complete_io(&mut stream) {
                Ok(_) => {}
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error).context("no TLS"),
            }
            sys::check_interrupted()?;
            ensure!(Instant::now() < deadline, "no TLS within {LIMIT:?}");
        }
        Ok(Box::new(StreamOwned::new(session, stream)))
    }
}

/// Whether an error says no more than that nothing came so far.
pub(super) fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// What the server reads of what `send` makes of a connection to it.
    fn heard(send: impl FnOnce(&Tls, TcpStream)) -> Option<[u8; 5]> {
        let tls = Tls::new().expect("settings");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let server = tls.clone();
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let mut channel = server.accept(stream).expect("a session");
            let mut bytes = [0; 5];
            channel.read_exact(&mut bytes).ok().map(|()| bytes)
        });
        send(&tls, TcpStream::connect(at).expect("the server"));
        serving.join().expect("no panic")
    }

    #[test]
    fn what_is_said_over_tls_is_heard_and_what_is_not_is_refused() {
        let hello = heard(|tls, stream| {
            // As short as one wait of a client may be: what came so far is not lost.
            stream.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be set");
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut channel = tls.connect(stream, deadline).expect("TLS");
            channel.write_all(b"hello").expect("sent");
        });
        assert_eq!(hello.as_ref().map(|bytes| &bytes[..]), Some(&b"hello"[..]));
        let bare = heard(|_, mut stream| stream.write_all(b"hello, hello").expect("sent"));
        assert_eq!(bare, None);
    }
}
