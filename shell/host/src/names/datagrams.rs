//! The thread of all datagrams: queries in, answers out, and a socket of its own for each question
//! that is handed on, so that the kernel draws its port and drops what comes from elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dns::{Ask, DropReason, Outcome, Pending, QUERY_LEN_MAX, Transport, Verdict};
use noise::Instant;

use super::local::Local;
use super::{Count, Shared, stream};
use crate::KernelRandom;
use crate::linux::sys::{Interest, Poll, boottime_ns};

/// Datagrams taken from one socket before others have their turn.
const TURN_MAX: usize = 32;
/// Bytes of an answer from a resolver, at most.
const ANSWER_LEN_MAX: usize = 65_535;

/// What the thread owns.
struct Turner {
    shared: Arc<Shared>,
    poll: Poll,
    sockets: Vec<(UdpSocket, TcpListener)>,
    end: io::PipeReader,
    local: Local,
    /// Which of `sockets` a question came in by is what an answer needs to know.
    pending: Pending<usize>,
    /// The sockets of questions that were handed on, by descriptor and by number.
    asked: BTreeMap<RawFd, (u64, UdpSocket)>,
    numbers: BTreeMap<u64, RawFd>,
    buffer: Vec<u8>,
}

/// Starts the thread; it ends when the other end of `end` is closed.
pub(super) fn start(
    shared: Arc<Shared>,
    sockets: Vec<(UdpSocket, TcpListener)>,
    end: io::PipeReader,
) -> io::Result<JoinHandle<()>> {
    let poll = Poll::new()?;
    for (udp, tcp) in &sockets {
        poll.watch(udp.as_raw_fd(), Interest::READ)?;
        poll.watch(tcp.as_raw_fd(), Interest::READ)?;
    }
    poll.watch(end.as_raw_fd(), Interest::READ)?;
    let mut turner = Turner {
        shared,
        poll,
        sockets,
        end,
        local: Local::default(),
        pending: Pending::default(),
        asked: BTreeMap::new(),
        numbers: BTreeMap::new(),
        buffer: vec![0; ANSWER_LEN_MAX],
    };
    std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        crate::linux::signals::block_all();
        if let Err(e) = turner.run() {
            tracing::error!("the name server ended: {e}; names are not answered any more");
        }
    })
}

fn now() -> Instant {
    Instant(boottime_ns())
}

impl Turner {
    fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            let left = self.pending.poll_timeout().map(|at| at.since(now()));
            self.poll.wait(left.map(|l| l + Duration::from_millis(1)), &mut ready)?;
            for event in &ready {
                if event.fd == self.end.as_raw_fd() {
                    return Ok(());
                }
                if let Some(i) = self.sockets.iter().position(|s| s.0.as_raw_fd() == event.fd) {
                    self.handle_queries(i);
                } else if let Some(i) =
                    self.sockets.iter().position(|s| s.1.as_raw_fd() == event.fd)
                {
                    self.handle_streams(i);
                } else {
                    self.handle_answer(event.fd);
                }
            }
            while let Some((number, outcome)) = self.pending.poll_late(now(), &mut KernelRandom) {
                self.act(number, outcome);
            }
        }
    }

    fn handle_queries(&mut self, i: usize) {
        for _ in 0..TURN_MAX {
            // a byte more than a query may have shows that it is too long
            let Ok((len, client)) = self.sockets[i].0.recv_from(&mut self.buffer) else { return };
            if !self.local.admits(client.ip(), &self.shared.also) || client.port() == 0 {
                self.shared.count(Count::ForeignSource);
                continue;
            }
            let bytes = self.buffer[..len.min(QUERY_LEN_MAX + 1)].to_vec();
            self.handle_query(i, client, &bytes);
        }
    }

    fn handle_query(&mut self, i: usize, client: SocketAddr, bytes: &[u8]) {
        let names = self.shared.names();
        match names.judge(bytes, Transport::Udp) {
            Verdict::Drop(DropReason::Answer | DropReason::Length) => {
                self.shared.count(Count::NoQuery);
            }
            Verdict::Reply(reply) => {
                self.shared.count(Count::Queries);
                self.reply(i, client, &reply);
            }
            Verdict::Forward(forward) => {
                self.shared.count(Count::Queries);
                self.shared.count(Count::Forwarded);
                let question = (forward.query, bytes);
                let (outcome, evicted) =
                    self.pending.begin((client, i), question, forward.to, now(), &mut KernelRandom);
                if let Some((number, outcome)) = evicted {
                    self.shared.count(Count::Evicted);
                    self.act(number, outcome);
                }
                let number = if let Outcome::Ask(ask) = &outcome { ask.number } else { u64::MAX };
                self.act(number, outcome);
            }
        }
    }

    fn handle_streams(&mut self, i: usize) {
        for _ in 0..TURN_MAX {
            let Ok((stream, client)) = self.sockets[i].1.accept() else { return };
            if !self.local.admits(client.ip(), &self.shared.also) {
                self.shared.count(Count::ForeignSource);
                continue;
            }
            stream::serve(&self.shared, stream);
        }
    }

    /// Takes what came on the socket of a question, or why nothing will come.
    fn handle_answer(&mut self, fd: RawFd) {
        for _ in 0..TURN_MAX {
            let Some((number, socket)) = self.asked.get(&fd) else { return };
            let number = *number;
            let outcome = match socket.recv(&mut self.buffer) {
                Ok(len) => {
                    let answer = &mut self.buffer[..len];
                    if let Ok(from) = socket.peer_addr() {
                        self.shared.names().rename(from.ip(), answer);
                    }
                    self.pending.handle_answer(number, answer, now(), &mut KernelRandom)
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pending.handle_failure(number, now(), &mut KernelRandom),
            };
            self.act(number, outcome);
        }
    }

    /// Does what question `number` asks for now.
    fn act(&mut self, number: u64, mut outcome: Outcome<usize>) {
        loop {
            match outcome {
                Outcome::Wait(_) => return self.shared.count(Count::ForeignAnswer),
                Outcome::Reply { client, came, bytes } => {
                    self.close(number);
                    return self.reply(came, client, &bytes);
                }
                Outcome::Ask(ask) => {
                    self.close(number);
                    match self.ask(&ask) {
                        Ok(()) => return,
                        Err(e) => {
                            tracing::debug!("names: resolver {} is out of reach: {e}", ask.to);
                            let random = &mut KernelRandom;
                            outcome = self.pending.handle_failure(number, now(), random);
                        }
                    }
                }
            }
        }
    }

    fn ask(&mut self, ask: &Ask) -> io::Result<()> {
        let any: IpAddr = match ask.to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        socket.connect(self.shared.resolver(ask.to))?;
        socket.send(&ask.bytes)?;
        let fd = socket.as_raw_fd();
        self.poll.watch(fd, Interest::READ)?;
        self.asked.insert(fd, (ask.number, socket));
        self.numbers.insert(ask.number, fd);
        Ok(())
    }

    fn close(&mut self, number: u64) {
        if let Some(fd) = self.numbers.remove(&number) {
            self.poll.forget(fd);
            self.asked.remove(&fd);
        }
    }

    fn reply(&self, i: usize, client: SocketAddr, bytes: &[u8]) {
        // a client that is gone, or whose socket is full, asks again
        let _ = self.sockets[i].0.send_to(bytes, client);
    }
}
