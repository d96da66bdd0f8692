//! The impaired wire where something takes its processor away. A program of its own, for what runs
//! beside it would be late.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::netns::{Host, Net};
use lab::sys;
use lab::wire::{Config, Wire};
use sim::impair::Impairment;

const ADDRESSES: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
const DELAY_US: u64 = 5_000;

/// The least delay of a path tells its queues, so one frame that comes before it can misleads for
/// as long as it is remembered. Here a sender takes the wire's processor away from it again and
/// again while it works.
#[test]
fn no_frame_is_early_though_the_wire_waits_for_a_processor() {
    let mut net = Net::new("wt-wire-early").expect("run the tests as root");
    let hosts = ["a", "b"].map(|name| net.host(name).expect("host"));
    let weather = Impairment { delay_us: DELAY_US, ..Impairment::LINE };
    let config = Config::between((&hosts[0], "eth0"), (&hosts[1], "eth0"), weather);
    // The wire's thread stays where the one that starts it is.
    let start = std::thread::spawn(move || {
        pin();
        Wire::start(config).expect("wire")
    });
    let wire = start.join().expect("wire");
    for (host, address) in hosts.iter().zip(ADDRESSES) {
        host.bring_up("eth0", &[&format!("{address}/24")]).expect("up");
    }
    // The way that is looked at second is the one that waits for the other's frames to be read.
    let [to, sender, busy] = [(0, 7), (1, 0), (0, 0)].map(|(i, port)| socket(&hosts, i, port));
    let receiver = receive(to);
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    busy.send_to(&[0; 1_000], (ADDRESSES[1], 7)).expect("sent");
                }
                sys::sleep_ns(50_000);
            }
        });
        let bursts = scope.spawn(|| send_bursts(&sender));
        let sent = bursts.join();
        is_over.store(true, Ordering::Relaxed);
        sent.expect("sender")
    });
    let took_ns = receiver.join().expect("receiver");
    drop(wire);
    assert!(took_ns.len() > sent / 2, "{} of {sent} came", took_ns.len());
    let least_us = took_ns.iter().min().expect("some came") / 1_000;
    assert!(least_us >= DELAY_US, "one took {least_us} us");
}

fn socket(hosts: &[Host; 2], i: usize, port: u16) -> UdpSocket {
    let bind = || UdpSocket::bind((ADDRESSES[i], port));
    sys::in_netns(&hosts[i].path(), bind).expect("namespace").expect("socket")
}

/// Notes how long packets took that say when they were sent, until none comes any more.
fn receive(to: UdpSocket) -> JoinHandle<Vec<u64>> {
    to.set_read_timeout(Some(Duration::from_millis(500))).expect("timeout");
    std::thread::spawn(move || {
        let (mut took_ns, mut packet) = (Vec::new(), [0; 8]);
        while to.recv(&mut packet).is_ok() {
            took_ns.push(sys::now_ns().saturating_sub(u64::from_le_bytes(packet)));
        }
        took_ns
    })
}

/// Keeps the processor for 2 ms of every 5, and sends meanwhile; returns how many it sent.
fn send_bursts(sender: &UdpSocket) -> usize {
    pin();
    // Where nobody may have real time, the wire has none either, and waits all the same.
    schedule("chrt", &["--fifo", "--pid", "2"]);
    let mut sent = 0;
    for _ in 0..150 {
        let begin = sys::now_ns();
        while sys::now_ns() < begin + 2_000_000 {
            sender.send_to(&sys::now_ns().to_le_bytes(), (ADDRESSES[0], 7)).expect("sent");
            sent += 1;
            let next = sys::now_ns() + 50_000;
            while sys::now_ns() < next {
                std::hint::spin_loop();
            }
        }
        sys::sleep_ns(3_000_000);
    }
    sent
}

/// Keeps the calling thread, and what it starts, on the first processor that it may use.
fn pin() {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let list = status.split_once("Cpus_allowed_list:").expect("a list").1.trim_start();
    let first: String = list.chars().take_while(char::is_ascii_digit).collect();
    assert!(schedule("taskset", &["--cpu-list", "--pid", &first]), "taskset");
}

/// Runs `program` of util-linux with `options` on the calling thread; says whether it could.
fn schedule(program: &str, options: &[&str]) -> bool {
    let task = std::fs::read_link("/proc/thread-self").expect("proc");
    let thread = task.file_name().expect("a number");
    let status = Command::new(program).args(options).arg(thread).stdout(Stdio::null()).status();
    status.expect("util-linux").success()
}
