//! HTTP/1.1 as a client, as far as a server of ours is asked: one request, one answer with a length
//! or in chunks (RFC 9112), over TLS, or over a local socket.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::ServerUrl;
use quic::{Cut, Pipe};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::families::{self, Trying};
use crate::proxy::{Proxies, Proxy};
use crate::{pings, tls};

mod stream;

use stream::Stream;

/// A connection has so long to be made, through a proxy or not.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The fields of its head, names in small letters.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a field, by its name in small letters.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Ends the waits of a connection, from another thread.
pub(crate) enum Cutter {
    Tcp(TcpStream),
    Pipe(Cut),
}

impl Cutter {
    pub(crate) fn cut(self) {
        match self {
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::Pipe(cut) => cut.cut(),
        }
    }
}

/// An open connection, to be used again until it breaks.
pub struct Connection {
    stream: BufReader<Stream>,
    host: String,
    is_usable: bool,
    /// Whether an answer may go on to the end of the connection.
    takes_end: bool,
    said: Said,
}

/// Fields of an answer beside its body.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// `Sec-WebSocket-Accept`.
    pub(crate) accept: String,
    /// `Server`: what a proxy in front calls itself.
    pub(crate) server: String,
}

impl Connection {
    /// Connects to a server, through the proxy that `proxies` names for it.
    ///
    /// # Errors
    /// Whatever keeps the connection from being made, with the place.
    pub fn open(url: &ServerUrl, proxies: &Proxies) -> io::Result<Self> {
        Self::open_telling(url, proxies, &Trying::default())
    }

    /// The same, for who wants to know meanwhile what is tried.
    ///
    /// # Errors
    /// Those of [`Connection::open`].
    pub fn open_telling(url: &ServerUrl, proxies: &Proxies, trying: &Trying) -> io::Result<Self> {
        Self::open_with(url, proxies, trying, tls::config())
    }

    /// The same, for who trusts the certificate and nothing else.
    ///
    /// # Errors
    /// Those of [`Connection::open`], and that the certificate is not one that is trusted here.
    pub fn open_verified(
        url: &ServerUrl,
        proxies: &Proxies,
        ca_file: Option<&Path>,
    ) -> io::Result<Self> {
        let config = tls::verified_config(ca_file)?;
        let mut connection = Self::open_with(url, proxies, &Trying::default(), config)?;
        if let Some(host) = connection.host.strip_suffix(":443") {
            // Others' services may look at it, so it is as their own clients write it.
            connection.host = host.to_owned();
        }
        Ok(connection)
    }

    fn open_with(
        url: &ServerUrl,
        proxies: &Proxies,
        trying: &Trying,
        config: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + CONNECT_WITHIN;
        let way = Way { mark: proxies.mark(), deadline, trying };
        let tcp = match proxies.proxy(url.host()) {
            Some(proxy) => through(proxy, url, &way)?,
            None => way.connect(url.host(), url.port())?,
        };
        let name = ServerName::try_from(url.host().to_owned()).map_err(io::Error::other)?;
        let client = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let stream = Stream::Tls(Box::new(StreamOwned::new(client, tcp)));
        Ok(Self::on(stream, url.authority()))
    }

    /// Connects without TLS: to a service of the machine's own host, which speaks nothing else.
    ///
    /// # Errors
    /// Those of the socket, with the place.
    pub fn open_plain(host: &str, port: u16, within: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + within;
        let way = Way { mark: None, deadline, trying: &Trying::default() };
        let stream = Stream::Plain(way.connect(host, port)?);
        let host =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self::on(stream, host))
    }

    /// Connects to the server on this machine.
    ///
    /// # Errors
    /// Those of the socket, with its path.
    pub fn open_local(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", socket.display()))
        })?;
        Ok(Self::on(Stream::Local(stream), "localhost".to_owned()))
    }

    /// Connects to a server by ping, unless `is_over` meanwhile. What is said is not in TLS once
    /// more: QUIC has it.
    pub(crate) fn open_by_ping(
        url: &ServerUrl,
        mark: Option<u32>,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + CONNECT_WITHIN;
        let asker = pings::ask(url.host(), mark, deadline, is_over)?;
        let host = url.host().trim_matches(['[', ']']);
        let pipe = Pipe::open(asker, tls::pipe_config(), host, deadline, is_over)?;
        Ok(Self::on(Stream::Pipe(Box::new(pipe)), url.authority()))
    }

    /// Whether it is one by ping.
    pub(crate) fn is_by_ping(&self) -> bool {
        matches!(self.stream.get_ref(), Stream::Pipe(_))
    }

    fn on(stream: Stream, host: String) -> Self {
        let stream = BufReader::new(stream);
        Self { stream, host, is_usable: true, takes_end: false, said: Said::default() }
    }

    /// What the latest answer said beside its body.
    pub(crate) const fn said(&self) -> &Said {
        &self.said
    }

    /// That by which another thread can end a wait.
    pub(crate) fn cutter(&self) -> Option<Cutter> {
        match self.stream.get_ref() {
            Stream::Tls(stream) => stream.sock.try_clone().ok().map(Cutter::Tcp),
            Stream::Pipe(pipe) => Some(Cutter::Pipe(pipe.cutter())),
            Stream::Plain(_) | Stream::Local(_) => None,
        }
    }

    /// What the connection is made of, after a request was answered 101: the socket, TLS, and
    /// bytes of the new protocol that were read already.
    ///
    /// # Errors
    /// If it is a local one, which has no TLS.
    pub fn into_parts(self) -> io::Result<(TcpStream, ClientConnection, Vec<u8>)> {
        let early = self.stream.buffer().to_vec();
        match self.stream.into_inner() {
            Stream::Tls(stream) => {
                let StreamOwned { conn, sock } = *stream;
                Ok((sock, conn, early))
            }
            Stream::Plain(_) | Stream::Local(_) | Stream::Pipe(_) => {
                Err(broken("the connection has no TLS"))
            }
        }
    }

    /// What requests name as their host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether another request may be made.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Whether the other end closed it since the last answer, or said what nobody asked for. A
    /// server may close without a word, and what is sent then has no answer.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.stream.get_ref().has_news()
    }

    /// From now on an answer may have no length: it goes on to the end of the connection. Who reads
    /// it must be able to tell whether it is whole.
    #[must_use]
    pub fn until_end(self) -> Self {
        Self { takes_end: true, ..self }
    }

    /// Makes one request and reads its answer, of at most `len_max` bytes, `within` a time.
    /// After an error the connection is of no use. `fields` are the caller's, without line ends.
    ///
    /// # Errors
    /// If the connection breaks, the time is over, or the answer is none or too long.
    pub fn request(
        &mut self,
        target: (&str, &str),
        fields: &[(&str, &str)],
        body: &[u8],
        len_max: usize,
        within: Duration,
    ) -> io::Result<Answer> {
        let (method, path) = target;
        self.is_usable = false;
        let deadline = Instant::now() + within;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        // A GET has no content, and some proxies stop an upgrade that speaks of one.
        if method != "GET" || !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        let stream = self.stream.get_mut();
        stream.limit(deadline)?;
        // In one piece, so that head and body share a packet.
        let sent = stream.write_all(&[head.as_bytes(), body].concat());
        sent.and_then(|()| stream.flush()).map_err(gone)?;
        let takes_end = self.takes_end;
        let mut reader = Reader { stream: &mut self.stream, deadline, takes_end, has_ended: false };
        let head = reader.head()?;
        let (status, body) = reader.body(&head, method, len_max)?;
        self.is_usable = !head.closes && !reader.has_ended && status != 101;
        self.said = head.said;
        Ok(Answer { status, fields: head.fields, body })
    }
}

/// The head of an answer, as far as it matters.
struct Head {
    status: u16,
    len: Option<usize>,
    is_chunked: bool,
    closes: bool,
    said: Said,
    fields: Vec<(String, String)>,
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A server that went away is no reader of our output that went away, which a command forgives.
fn gone(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            io::Error::new(io::ErrorKind::ConnectionReset, "the connection ended before an answer")
        }
        _ => error,
    }
}

struct Reader<'a> {
    stream: &'a mut BufReader<Stream>,
    deadline: Instant,
    takes_end: bool,
    has_ended: bool,
}

impl Reader<'_> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.exact(&mut byte)?;
        Ok(byte[0])
    }

    fn exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            if self.stream.buffer().is_empty() {
                self.stream.get_mut().limit(self.deadline)?;
            }
            match self.stream.read(&mut bytes[done..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => done += len,
            }
        }
        Ok(())
    }

    /// All that comes before the end of the connection (RFC 9112, section 6.3).
    fn rest(&mut self, len_max: usize) -> io::Result<Vec<u8>> {
        self.has_ended = true;
        let mut body = Vec::new();
        let mut part = [0; 4096];
        loop {
            self.stream.get_mut().limit(self.deadline)?;
            match self.stream.read(&mut part)? {
                0 => return Ok(body),
                len if body.len() + len > len_max => return Err(broken("the answer is too long")),
                len => body.extend_from_slice(&part[..len]),
            }
        }
    }

    fn line(&mut self, len_max: usize) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => break,
                _ if line.len() >= len_max => return Err(broken("a line is too long")),
                byte => line.push(byte),
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| broken("a line is no text"))
    }

    fn head(&mut self) -> io::Result<Head> {
        loop {
            let head = self.one_head()?;
            // An interim answer is followed by another (RFC 9110, section 15.2).
            if head.status / 100 != 1 || head.status == 101 {
                return Ok(head);
            }
        }
    }

    fn one_head(&mut self) -> io::Result<Head> {
        let mut left = HEAD_BYTES_MAX;
        let first = self.line(left)?;
        let rest = first.strip_prefix("HTTP/1.").ok_or_else(|| broken("this is no HTTP/1.1"))?;
        let status = rest.get(2..5).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| broken("the answer has no status"))?;
        let closes = rest.starts_with('0');
        let said = Said::default();
        let fields = Vec::new();
        let mut head = Head { status, len: None, is_chunked: false, closes, said, fields };
        loop {
            let line = self.line(left)?;
            left = left.saturating_sub(line.len() + 2);
            if line.is_empty() {
                return Ok(head);
            }
            let (name, value) = line.split_once(':').ok_or_else(|| broken("a field is none"))?;
            let value = value.trim();
            let name = name.to_ascii_lowercase();
            head.fields.push((name.clone(), value.to_owned()));
            match name.as_str() {
                "content-length" => {
                    let len = value.parse().map_err(|_| broken("the length is no number"))?;
                    head.len = Some(len);
                }
                "transfer-encoding" => head.is_chunked = value.eq_ignore_ascii_case("chunked"),
                "sec-websocket-accept" => head.said.accept = value.to_owned(),
                "server" => head.said.server = value.to_owned(),
                "connection" => head.closes |= value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
    }

    fn body(&mut self, head: &Head, method: &str, len_max: usize) -> io::Result<(u16, Vec<u8>)> {
        let too_long = || broken("the answer is too long");
        let mut body = Vec::new();
        if method == "HEAD" || method == "CONNECT" || matches!(head.status, 101 | 204 | 304) {
            return Ok((head.status, body));
        }
        if head.is_chunked {
            loop {
                let line = self.line(256)?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size =
                    usize::from_str_radix(size, 16).map_err(|_| broken("a chunk is none"))?;
                if size > len_max.saturating_sub(body.len()) {
                    return Err(too_long());
                }
                let at = body.len();
                body.resize(at + size, 0);
                self.exact(&mut body[at..])?;
                if size > 0 {
                    self.line(2)?;
                    continue;
                }
                let mut left = HEAD_BYTES_MAX;
                loop {
                    let line = self.line(left)?;
                    left = left.saturating_sub(line.len() + 2);
                    if line.is_empty() {
                        return Ok((head.status, body));
                    }
                }
            }
        }
        if head.len.is_none() && self.takes_end {
            return Ok((head.status, self.rest(len_max)?));
        }
        let len = head.len.ok_or_else(|| broken("the answer has no length"))?;
        if len > len_max {
            return Err(too_long());
        }
        body.resize(len, 0);
        self.exact(&mut body)?;
        Ok((head.status, body))
    }
}

/// How a connection is made.
struct Way<'a> {
    mark: Option<u32>,
    deadline: Instant,
    trying: &'a Trying,
}

impl Way<'_> {
    fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let told =
            |error: io::Error| io::Error::new(error.kind(), format!("{host}:{port}: {error}"));
        let addresses = families::resolve(host.trim_matches(['[', ']']), port).map_err(told)?;
        let stream = families::connect(&addresses, self.mark, self.deadline, self.trying);
        let stream = stream.map_err(told)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT_WITHIN))?;
        stream.set_write_timeout(Some(CONNECT_WITHIN))?;
        Ok(stream)
    }
}

/// Has a proxy connect for us (RFC 9110, section 9.3.6).
fn through(proxy: &Proxy, url: &ServerUrl, way: &Way<'_>) -> io::Result<TcpStream> {
    let mut stream = way.connect(&proxy.host, proxy.port)?;
    let authority = url.authority();
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(value) = &proxy.authorization {
        head += &format!("Proxy-Authorization: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    // Byte by byte, so that nothing of what follows the head is taken.
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= HEAD_BYTES_MAX || Instant::now() >= way.deadline {
            return Err(broken("the proxy's answer is too long or took too long"));
        }
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    match status.filter(|_| answer.starts_with(b"HTTP/1.")) {
        Some(status) if status.starts_with('2') => Ok(stream),
        Some("407") => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the proxy wants a user and password: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
        )),
        Some(status) => {
            let status = status.escape_default();
            Err(io::Error::other(format!("the proxy refused {authority} with status {status}")))
        }
        None => Err(broken("this is no HTTP proxy")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server that says this is taken for.
    fn said(answer: &'static [u8], len_max: usize) -> io::Result<Answer> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        let mut connection = Connection::on(Stream::Local(ours), "x".to_owned());
        let wait = Duration::from_millis(200);
        connection.request(("GET", "/"), &[], b"", len_max, wait)
    }

    #[test]
    fn a_server_that_is_gone_is_no_broken_pipe() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut connection = Connection::on(Stream::Local(ours), "x".to_owned());
        let wait = Duration::from_millis(200);
        let error = connection.request(("POST", "/"), &[], b"{}", 100, wait).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }

    #[test]
    fn an_answer_without_a_length_is_read_to_the_end_where_that_was_said() {
        for (len_max, is_taken) in [(5, true), (4, false)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            let mut connection = Connection::on(Stream::Local(ours), "x".to_owned()).until_end();
            let wait = Duration::from_millis(200);
            let answer = connection.request(("GET", "/"), &[], b"", len_max, wait);
            assert_eq!(answer.ok().map(|answer| answer.body), is_taken.then(|| b"hello".to_vec()));
            assert!(!connection.is_usable());
        }
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let whole = |body: &[u8]| (200, body.to_vec());
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\ncontent-length:5\n\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        ] {
            let read = said(answer, 5).unwrap();
            assert!(read.field("content-length") == Some("5") || read.fields.len() == 1);
            assert_eq!((read.status, read.body), whole(b"hello"));
            assert!(said(answer, 4).is_err(), "longer than it may be");
        }
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nhello",
            b"SSH-2.0-OpenSSH\r\n",
            b"\xff\xff\n",
        ] {
            assert!(said(answer, 100).is_err(), "{:?}", String::from_utf8_lossy(answer));
        }
    }
}
