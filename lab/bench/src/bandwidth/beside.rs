//! What others send: datagrams that a thread sends evenly, by chance, in bursts, or as fast as it
//! goes.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use lab::sys;
use sim::cross::{self, Cross};
use sim::rng::Rng;

/// Bytes of an IP packet. Those of a flood are as long: a small bucket loses the more to late
/// timers, the less room it has beside one packet.
const PACKET_LEN: usize = 1_200;
/// Of IPv4 and UDP.
const HEADERS_LEN: usize = 20 + 8;
/// Packets that leave at one wake-up. A sleep takes some 60 µs, in which a line of 1 Gbit/s
/// carries six of them.
const AT_ONCE_MAX: usize = 8;
/// What is later than this is not made up for: it would be a burst that nobody asked for.
const LATE_NS_MAX: f64 = 2e6;
/// A sleep is so long at least, so that this thread leaves the processor to others.
const SLEEP_NS_MIN: f64 = 20_000.0;

/// How packets of others come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// All gaps are the same.
    Even,
    /// As a Poisson process.
    Chance,
    /// 10 to 100 packets at the line's own rate, and a pause.
    Bursts,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Even, Self::Chance, Self::Bursts];
    /// Those that a run has by itself.
    pub const USUAL: [Self; 2] = [Self::Even, Self::Chance];

    /// Its word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Chance => "chance",
            Self::Bursts => "bursts",
        }
    }

    /// The one of this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|traffic| traffic.word() == word)
    }
}

/// Between the beginnings of two packets, as a seed determines them.
#[derive(Debug)]
pub(super) struct Gaps {
    cross: cross::Gaps,
    rng: Rng,
}

impl Gaps {
    /// For so many bits of IP packets a second on a line of so many.
    pub(super) fn new(traffic: Traffic, rate_bps: f64, line_bps: f64, seed: u64) -> Self {
        let cross = match traffic {
            Traffic::Even => Cross::Even,
            Traffic::Chance => Cross::Chance,
            Traffic::Bursts => Cross::Bursts,
        };
        let cross = cross::Gaps::new(cross, PACKET_LEN, rate_bps, line_bps);
        Self { cross, rng: Rng::new(seed) }
    }

    fn next_ns(&mut self) -> f64 {
        self.cross.next_ns(&mut self.rng)
    }
}

/// When packets leave.
#[derive(Debug)]
pub(super) enum Pace {
    /// Each as soon as the one before has left.
    Flood,
    /// Each when it is due.
    Gaps(Gaps),
}

/// A thread that sends until this is dropped.
#[derive(Debug)]
pub(super) struct Sender {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Sends to what the socket is connected with.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(socket: UdpSocket, pace: Pace) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let work = move || match pace {
            Pace::Flood => flood(&socket, &told),
            Pace::Gaps(gaps) => paced(&socket, gaps, &told),
        };
        let thread = std::thread::Builder::new().name("warren-beside".to_owned()).spawn(work);
        let thread = thread.context("no thread for what others send")?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It sends and sleeps, and has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// What cannot be sent is not counted either: the line counts what came to it.
fn flood(socket: &UdpSocket, is_over: &AtomicBool) {
    let datagram = [0; PACKET_LEN - HEADERS_LEN];
    while !is_over.load(Ordering::Relaxed) {
        let _ = socket.send(&datagram);
    }
}

fn paced(socket: &UdpSocket, mut gaps: Gaps, is_over: &AtomicBool) {
    sys::prefer_this_thread();
    let datagram = [0; PACKET_LEN - HEADERS_LEN];
    let mut due_ns = sys::now_ns() as f64;
    while !is_over.load(Ordering::Relaxed) {
        let now_ns = sys::now_ns() as f64;
        due_ns = due_ns.max(now_ns - LATE_NS_MAX);
        for _ in 0..AT_ONCE_MAX {
            if due_ns > now_ns {
                break;
            }
            let _ = socket.send(&datagram);
            due_ns += gaps.next_ns();
        }
        let left_ns = due_ns - sys::now_ns() as f64;
        sys::sleep_ns(left_ns.max(SLEEP_NS_MIN) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn gaps_by_chance_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut gaps = Gaps::new(Traffic::Chance, 70e6, 100e6, 7);
        let mean_ns = 1_200.0 * 8.0 / 70e6 * 1e9;
        let all: Vec<f64> = (0..100_000).map(|_| gaps.next_ns() / mean_ns).collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        // Those of an exponential distribution: its deviation is its mean.
        let variance = all.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        let long = all.iter().filter(|gap| **gap > 1.0).count() as f64 / count;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        assert!((long - (-1.0_f64).exp()).abs() < 0.01, "{long}");
        let mut again = Gaps::new(Traffic::Chance, 70e6, 100e6, 7);
        assert_eq!(again.next_ns() / mean_ns, all[0], "a seed says all of them");
    }

    #[test]
    fn gaps_without_chance_are_all_the_same() {
        let mut gaps = Gaps::new(Traffic::Even, 4e6, 10e6, 7);
        assert_eq!([(); 3].map(|()| gaps.next_ns()), [2_400_000.0; 3]);
    }

    #[test]
    fn bursts_have_the_mean_of_their_rate_and_ten_to_a_hundred_packets_at_the_lines() {
        let mut gaps = Gaps::new(Traffic::Bursts, 40e6, 100e6, 7);
        let line_ns = 1_200.0 * 8.0 / 100e6 * 1e9;
        let all: Vec<f64> = (0..1_000_000).map(|_| gaps.next_ns()).collect();
        let mean_ns = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean_ns / line_ns * 0.4 - 1.0).abs() < 0.03, "{mean_ns}");
        // The first and the last one are no whole bursts.
        let bursts: Vec<usize> =
            all.split(|gap| *gap > line_ns).map(|gaps| gaps.len() + 1).collect();
        let whole = &bursts[1..bursts.len() - 1];
        assert_eq!((whole.iter().min(), whole.iter().max()), (Some(&10), Some(&100)));
        let long = whole.iter().filter(|packets| **packets >= 40).count() as f64;
        // A quarter of the length to the power of 1.5 is an eighth.
        assert!((long / whole.len() as f64 - 0.125).abs() < 0.01, "{long} of {}", whole.len());
    }

    #[test]
    fn a_sender_keeps_its_rate_and_ends_when_it_is_dropped() {
        let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sink.set_read_timeout(Some(Duration::from_secs(5))).expect("it can be set");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(sink.local_addr().expect("an address")).expect("it can be reached");
        // One packet each 2 ms: a busy machine keeps that, too.
        let gaps = Gaps::new(Traffic::Even, (PACKET_LEN * 8) as f64 * 500.0, 1e9, 7);
        let begin = Instant::now();
        let sender = Sender::start(socket, Pace::Gaps(gaps)).expect("a thread");
        let mut datagram = [0; 2_000];
        // A signal may come between: other tests of this program make processes.
        let mut receive = || loop {
            match sink.recv(&mut datagram) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => return received,
            }
        };
        for _ in 0..100 {
            assert_eq!(receive().expect("a datagram"), PACKET_LEN - HEADERS_LEN);
        }
        assert!(begin.elapsed() >= Duration::from_millis(190), "not before they are due");
        drop(sender);
        sink.set_nonblocking(true).expect("it can be set");
        while receive().is_ok() {}
        std::thread::sleep(Duration::from_millis(20));
        assert!(receive().is_err(), "nothing comes after its end");
    }
}
