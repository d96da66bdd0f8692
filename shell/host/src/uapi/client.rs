//! One client: bytes in until a request is whole, bytes out until the reply is gone. It never
//! waits.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use zeroing::Wiped;

use super::{Errno, LINE_LEN_MAX, REQUEST_LEN_MAX, Reply, Request, text};
use crate::linux::sys::Interest;

/// Bytes read at a time.
const CHUNK_LEN: usize = 8 << 10;
/// Reads and answers in one turn: one client may not keep the loop from the others.
const STEPS_MAX: usize = 8;

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    /// When it last did something, in turns of the server.
    pub(super) active_turn: u64,
    input: Wiped,
    /// Everything before this offset has been searched for the end of the request.
    line_start: usize,
    searched: usize,
    output: Wiped,
    written: usize,
    /// No more requests; goes when the output is gone.
    closing: bool,
}

/// What is to become of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays, and waits for this.
    Stays(Interest),
    /// It goes.
    Goes,
}

impl Client {
    pub(super) fn new(stream: UnixStream, active_turn: u64) -> Self {
        Self {
            stream,
            active_turn,
            input: Wiped::default(),
            line_start: 0,
            searched: 0,
            output: Wiped::default(),
            written: 0,
            closing: false,
        }
    }

    /// Writes, reads and answers as far as it goes without waiting.
    pub(super) fn handle_ready(&mut self, handler: &mut dyn FnMut(Request) -> Reply) -> Fate {
        match self.turn(handler) {
            Ok(()) if self.written < self.output.0.len() => {
                Fate::Stays(Interest { readable: false, writable: true })
            }
            Ok(()) if self.closing => Fate::Goes,
            // requests that came together are answered over several turns: ask for another
            Ok(()) if self.searched < self.input.0.len() => Fate::Stays(Interest::BOTH),
            Ok(()) => Fate::Stays(Interest::READ),
            Err(_) => Fate::Goes,
        }
    }

    fn turn(&mut self, handler: &mut dyn FnMut(Request) -> Reply) -> io::Result<()> {
        for _ in 0..STEPS_MAX {
            self.flush()?;
            if self.written < self.output.0.len() || self.closing {
                return Ok(()); // a client that does not read its reply is not read either
            }
            if let Some(end) = self.end_of_request() {
                self.answer(end, handler);
            } else if !self.closing && !self.fill()? {
                return Ok(());
            }
        }
        self.flush()
    }

    /// Reads once; `false` if there is nothing to read now.
    fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK_LEN];
        match self.stream.read(&mut chunk) {
            Ok(0) => {
                // what is left is not a whole request, so that nothing of it takes effect
                if !self.input.0.is_empty() {
                    self.refuse(Errno::PROTOCOL);
                }
                self.closing = true;
                Ok(true)
            }
            Ok(len) => {
                self.input.append(&chunk[..len]);
                Wiped::wipe(&mut chunk[..len]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Where the request that is first in the input ends, its empty line included.
    fn end_of_request(&mut self) -> Option<usize> {
        let input = &self.input.0;
        while let Some(at) = input[self.searched..].iter().position(|b| *b == b'\n') {
            let newline = self.searched + at;
            let line = &input[self.line_start..newline];
            let is_first = self.line_start == 0;
            self.searched = newline + 1;
            self.line_start = newline + 1;
            let empty = line.is_empty() || line == b"\r";
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let known = matches!(line, b"get=1" | b"set=1" | b"weather=1" | b"reload=1");
            if is_first && !known {
                self.refuse(Errno::PROTOCOL); // it speaks something else
                return None;
            }
            if empty {
                return Some(newline + 1);
            }
        }
        self.searched = input.len();
        let long_line = input.len() - self.line_start > LINE_LEN_MAX;
        if long_line || input.len() > REQUEST_LEN_MAX {
            self.refuse(Errno::IO);
        }
        None
    }

    fn answer(&mut self, end: usize, handler: &mut dyn FnMut(Request) -> Reply) {
        let reply = match text::parse(&self.input.0[..end]) {
            Ok(request) => handler(request),
            Err(errno) => Reply::Refused(errno),
        };
        match reply {
            Reply::Status(status) => {
                let mut reply = text::format(&status).into_bytes();
                self.output.append(&reply);
                Wiped::wipe(&mut reply);
            }
            Reply::Weather(json) => self.output.append(text::format_weather(&json).as_bytes()),
            Reply::Reloaded(result) => {
                self.output.append(text::format_reload(&result).as_bytes());
            }
            Reply::Done => self.output.append(text::format_errno(0).as_bytes()),
            Reply::Refused(errno) => self.output.append(text::format_errno(errno.0).as_bytes()),
        }
        self.input.consume(end);
        self.line_start = 0;
        self.searched = 0;
    }

    fn refuse(&mut self, errno: Errno) {
        self.output.append(text::format_errno(errno.0).as_bytes());
        self.closing = true;
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.0.len() {
            match self.stream.write(&self.output.0[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.written += len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let all = self.output.0.len();
        self.output.consume(all);
        self.written = 0;
        Ok(())
    }
}

/// Bytes that may hold keys: overwritten before their memory is given back.
mod zeroing {
    /// A buffer that forgets.
    #[derive(Debug, Default)]
    pub(super) struct Wiped(pub(super) Vec<u8>);

    impl Wiped {
        pub(super) fn append(&mut self, bytes: &[u8]) {
            if self.0.capacity() - self.0.len() < bytes.len() {
                let capacity = (self.0.len() + bytes.len()).next_power_of_two();
                let mut larger = Vec::with_capacity(capacity);
                larger.extend_from_slice(&self.0);
                Self::wipe(&mut self.0);
                self.0 = larger;
            }
            self.0.extend_from_slice(bytes);
        }

        /// Drops the first `len` bytes; an empty buffer gives its memory back.
        pub(super) fn consume(&mut self, len: usize) {
            let left = self.0.len() - len;
            self.0.copy_within(len.., 0);
            Self::wipe(&mut self.0[left..]);
            self.0.truncate(left);
            if left == 0 {
                self.0 = Vec::new();
            }
        }

        pub(super) fn wipe(bytes: &mut [u8]) {
            bytes.fill(0);
            std::hint::black_box(bytes);
        }
    }

    impl Drop for Wiped {
        fn drop(&mut self) {
            Self::wipe(&mut self.0);
        }
    }
}
