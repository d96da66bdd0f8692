//! What a relay alone passes on: one sender, one receiver, datagrams of 1,400 bytes, all in this
//! process over the loopback interface. Prints megabits a second and processor time per gigabyte.
//!
//! `cargo run --release -p warren-server --example relay -- [SECONDS] [PAIRS]`

#![expect(clippy::print_stdout, reason = "a measurement prints its result")]
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use control::Relay;
use dial::SystemRandom;
use dial::proxy::Proxies;
use dial::relay::{Connected, Way, connect};
use noise::PrivateKey;
use server::{RelayConfig, RelayServer};
use wire::relay::Frame;

const DATAGRAM_LEN: usize = 1400;

/// Processor time of a thread or of this process, in seconds.
fn cpu_s(path: &str) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |at: usize| fields.split(' ').nth(at).and_then(|t| t.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// Processor time of the relay's own threads.
fn relay_cpu_s() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_ours = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.contains("warren-relay"))
    };
    let ours = tasks.map(|task| task.path()).filter(|path| is_ours(path));
    ours.map(|path| cpu_s(&path.join("stat").to_string_lossy())).sum()
}

fn send(mut from: Connected, to: [u8; 32], end: Instant) {
    let mut bytes = Vec::new();
    for _ in 0..44 {
        Frame::Send { to: &to, datagram: &[4; DATAGRAM_LEN] }.write(&mut bytes);
    }
    let mut stream = rustls::Stream::new(&mut from.tls, &mut from.socket);
    while Instant::now() < end && stream.write_all(&bytes).is_ok() {}
    // What is on its way arrives before the connection ends.
    std::thread::sleep(Duration::from_millis(300));
}

fn receive(mut at: Connected, end: Instant) -> u64 {
    let (mut count, mut room) = (0, vec![0; 128 * 1024]);
    at.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut stream = rustls::Stream::new(&mut at.tls, &mut at.socket);
    while Instant::now() < end {
        count += stream.read(&mut room).unwrap_or(0) as u64;
    }
    count
}

fn main() {
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let seconds = words.next().unwrap_or(5);
    let pairs = words.next().unwrap_or(1);
    let data = std::env::temp_dir().join(format!("warren-relay-{}", std::process::id()));
    let config = RelayConfig {
        data: data.clone(),
        listen: ([127, 0, 0, 1], 0).into(),
        quic: true,
        icmp: None,
        url: "https://127.0.0.1".parse().unwrap(),
        stun: Vec::new(),
        tls: None,
        acme: None,
    };
    let server = RelayServer::start(&config).unwrap();
    let url = format!("https://{}", server.address()).parse().unwrap();
    let relay =
        Relay { id: 1, url, key: server.public_key(), stun: Vec::new(), quic: false, icmp: false };
    let keys: Vec<PrivateKey> =
        (0..pairs * 2).map(|_| PrivateKey::generate(&mut SystemRandom)).collect();
    let members: BTreeSet<_> = keys.iter().map(PrivateKey::public).collect();
    server.set_members(members, Duration::from_secs(3600));
    let open = |key| connect(&relay, key, &Proxies::default(), Way::Own).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    let before = relay_cpu_s();
    let mut threads = Vec::new();
    for pair in keys.chunks(2) {
        let (from, at, to) = (open(&pair[0]), open(&pair[1]), pair[1].public().0);
        std::thread::spawn(move || send(from, to, end));
        threads.push(std::thread::spawn(move || receive(at, end)));
    }
    let bytes: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let cpu = relay_cpu_s() - before;
    let (mbit_s, gigabytes) = (bytes as f64 * 8e-6 / seconds as f64, bytes as f64 / 1e9);
    println!(
        "{pairs} pairs: {mbit_s:.0} Mbit/s, the relay {:.2} s of processor per GB",
        cpu / gigabytes
    );
    drop(server);
    let _ = std::fs::remove_dir_all(data);
}
