//! A download in the shape of a binary cache: many small files and some large ones over HTTP/1.1,
//! or over HTTPS.
//!
//! For each of [`FILES`] files a client asks for its description (1 KiB) and then for itself, as a
//! package fetcher does, on [`CONNECTIONS`] connections that stay open. Sizes follow from the
//! seed: most are a few KiB, the largest several MiB. What arrives is compared byte by byte.
//! Server and client are threads of this process with sockets in the hosts.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::netns::Host;
use lab::sys;
use sim::rng::Rng;

mod tls;

use tls::{Channel, Tls};

/// Files of a download.
pub const FILES: usize = 120;
/// Connections of the client.
pub const CONNECTIONS: usize = 16;
/// Longest download, the same for everybody.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Length of a description.
const ABOUT_BYTES: usize = 1_024;
/// What all files together come to, about: as much as a line of 1 Gbit/s takes in a quarter of a
/// second.
pub const BYTES: f64 = 32e6;
/// The same where that would be a beginning and no download: 3 s of such a line.
pub const BYTES_LONG: f64 = 320e6;
/// Content repeats after this; it cannot be compressed within it.
const PATTERN_BYTES: usize = 1 << 16;
const PORT: u16 = 8_080;

/// What is offered.
#[derive(Debug)]
struct Cache {
    sizes: Vec<usize>,
    pattern: Vec<u8>,
}

/// Downloads files of `total` bytes together from one host to another, over TLS with `https`;
/// returns the time in seconds and the bytes of HTTP.
///
/// # Errors
/// Returns an error when a file is cut or wrong, a connection breaks, it takes longer than
/// [`LIMIT`], or a signal asks this process to end.
pub(super) fn run(
    hosts: (&Host, &Host),
    address: &str,
    what: (f64, u64),
    https: bool,
) -> Result<(f64, u64)> {
    let (server, client) = hosts;
    let (total, seed) = what;
    let cache = Arc::new(Cache::new(total, seed));
    let tls = if https { Some(Tls::new()?) } else { None };
    let at: SocketAddr = SocketAddr::new(address.parse().context("no address")?, PORT);
    // A socket belongs to the namespace that it was made in, whichever thread uses it.
    let listener = sys::in_netns(&server.path(), || listen(at))?
        .with_context(|| format!("cannot listen at {at}"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let serving = {
        let cache = Arc::clone(&cache);
        let tls = tls.clone();
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || serve(&listener, &cache, tls.as_ref(), &stop))
    };
    client.run(&["ip", "tcp_metrics", "flush"])?;
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let fetched = std::thread::scope(|scope| {
        let fetch = || {
            let channel = connect(client, at, tls.as_ref(), begin + LIMIT)?;
            fetch_all(channel, &cache, &next, begin + LIMIT)
        };
        let all: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(fetch)).collect();
        let join = |one: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            one.join().unwrap_or_else(|_| bail!("a client panicked"))
        };
        all.into_iter().map(join).collect::<Vec<_>>()
    });
    let seconds = begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let _ = serving.join();
    sys::check_interrupted()?;
    let bytes = fetched.into_iter().sum::<Result<u64>>()?;
    Ok((seconds, bytes))
}

impl Cache {
    fn new(total: f64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let pattern = (0..PATTERN_BYTES).map(|_| rng.below(256) as u8).collect();
        // Sizes spread over 2^13: most files are small, most bytes are in large ones.
        let weights: Vec<f64> = (0..FILES).map(|_| 2f64.powf(rng.unit() * 13.0)).collect();
        let sum: f64 = weights.iter().sum();
        let sizes = weights.iter().map(|w| (w / sum * total) as usize + 1_024);
        Self { sizes: sizes.collect(), pattern }
    }

    /// Length of what a path names.
    fn size(&self, path: &str) -> Option<usize> {
        let (number, kind) = path.strip_prefix('/')?.split_once('.')?;
        let size = *self.sizes.get(number.parse::<usize>().ok()?)?;
        match kind {
            "about" => Some(ABOUT_BYTES),
            "file" => Some(size),
            _ => None,
        }
    }
}

/// Listens there, where another download may just have ended: its socket can live on for a moment,
/// in a process that was forked meanwhile and has not begun its program.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpListener::bind(at) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

fn serve(listener: &TcpListener, cache: &Arc<Cache>, tls: Option<&Tls>, stop: &Arc<AtomicBool>) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let cache = Arc::clone(cache);
                let tls = tls.cloned();
                // A client that goes away ends its thread; the client side tells of the failure.
                std::thread::spawn(move || answer(stream, &cache, tls.as_ref()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn answer(stream: TcpStream, cache: &Cache, tls: Option<&Tls>) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let channel: Box<dyn Channel> = match tls {
        Some(tls) => tls.accept(stream)?,
        None => Box::new(stream),
    };
    let mut reader = BufReader::new(channel);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let stream = reader.get_mut();
        let Some(size) = cache.size(path) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut left = size;
        while left > 0 {
            let part = left.min(PATTERN_BYTES);
            stream.write_all(&cache.pattern[..part])?;
            left -= part;
        }
    }
}

fn connect(
    client: &Host,
    at: SocketAddr,
    tls: Option<&Tls>,
    deadline: Instant,
) -> Result<Box<dyn Channel>> {
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let connect = || TcpStream::connect_timeout(&at, left());
    let stream = sys::in_netns(&client.path(), connect)?.context("cannot connect")?;
    stream.set_nodelay(true)?;
    // Short, so that an interrupt and the deadline are seen while nothing arrives.
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    match tls {
        Some(tls) => tls.connect(stream, deadline),
        None => Ok(Box::new(stream)),
    }
}

/// One connection: takes the next file until there is none.
fn fetch_all(
    channel: Box<dyn Channel>,
    cache: &Cache,
    next: &AtomicUsize,
    deadline: Instant,
) -> Result<u64> {
    let mut reader = BufReader::with_capacity(PATTERN_BYTES, channel);
    let mut bytes = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= cache.sizes.len() {
            return Ok(bytes);
        }
        for kind in ["about", "file"] {
            let path = format!("/{number}.{kind}");
            let request = format!("GET {path} HTTP/1.1\r\nHost: cache\r\n\r\n");
            reader.get_mut().write_all(request.as_bytes()).context("cannot ask")?;
            let expected = cache.size(&path).context("no such file")?;
            bytes += fetch(&mut reader, cache, expected, deadline)
                .with_context(|| format!("{path} of {expected} bytes"))?;
        }
    }
}

/// Reads one answer and compares it.
fn fetch(
    reader: &mut BufReader<Box<dyn Channel>>,
    cache: &Cache,
    expected: usize,
    deadline: Instant,
) -> Result<u64> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {expected}\r\n\r\n");
    let mut memory = vec![0; PATTERN_BYTES];
    read_whole(reader, &mut memory[..head.len()], deadline)?;
    ensure!(memory.starts_with(head.as_bytes()), "the server did not offer it");
    let mut left = expected;
    while left > 0 {
        let part = left.min(PATTERN_BYTES);
        read_whole(reader, &mut memory[..part], deadline)?;
        ensure!(memory[..part] == cache.pattern[..part], "what arrived is not what was sent");
        left -= part;
    }
    Ok((head.len() + expected) as u64)
}

fn read_whole(
    reader: &mut BufReader<Box<dyn Channel>>,
    memory: &mut [u8],
    deadline: Instant,
) -> Result<()> {
    let mut at = 0;
    while at < memory.len() {
        match reader.read(&mut memory[at..]) {
            Ok(0) => bail!("the connection ended after {at} of {} bytes", memory.len()),
            Ok(n) => at += n,
            Err(error) if tls::is_passing(error.kind()) => {}
            Err(error) => return Err(error).context("the connection broke"),
        }
        sys::check_interrupted()?;
        ensure!(Instant::now() < deadline, "not finished within {LIMIT:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_many_small_and_some_large_and_the_same_for_a_seed() {
        let cache = Cache::new(BYTES, 7);
        let total: usize = cache.sizes.iter().sum();
        assert!((31_000_000..34_000_000).contains(&total), "{total}");
        let small = cache.sizes.iter().filter(|size| **size < 100_000).count();
        let large = cache.sizes.iter().filter(|size| **size > 1_000_000).count();
        assert!(small > FILES / 2 && large >= 5, "{small} small, {large} large");
        assert_eq!(cache.sizes, Cache::new(BYTES, 7).sizes);
        assert_ne!(cache.sizes, Cache::new(BYTES, 8).sizes);
    }

    #[test]
    fn only_what_there_is_has_a_size() {
        let cache = Cache::new(BYTES, 1);
        assert_eq!(cache.size("/0.about"), Some(ABOUT_BYTES));
        assert_eq!(cache.size("/119.file"), Some(cache.sizes[119]));
        for path in ["", "/", "0.file", "/120.file", "/-1.file", "/1.other", "/x.file", "/1"] {
            assert_eq!(cache.size(path), None, "{path:?}");
        }
    }
}
