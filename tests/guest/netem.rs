//! The impaired wire of `sim` against netem, the same packets at the same times.
//!
//! In the guest two namespaces are joined by a veth pair and netem works on one end. This very
//! test program, copied into the guest, sends numbered datagrams from there at a steady pace,
//! and receives them at the other end; both take the time from the one clock of the guest. The
//! model is then offered packets at the times they were sent, under many seeds: their mean is
//! what the model expects, their spread is the tolerance for a sample of this size.

use std::fmt::Write as _;
use std::fs::File;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use lab::guest::{Guest, Nic, Options};
use lab::netns::Net;
use sim::impair::{Impairment, Pipe, Verdict};
use sim::profile;

use super::kernel_cache;

/// Datagrams per weather, and the time between two.
const PROBES: usize = 12_000;
const INTERVAL: Duration = Duration::from_millis(2);

/// Where the receiver in the guest listens, and what tells the sender that it does.
const RECEIVER: &str = "10.1.0.2:9";
const READY: &str = "/run/ready";

/// How long the receiver waits for one more.
const SILENCE: Duration = Duration::from_secs(2);

/// Runs of the model per profile.
const SEEDS: u64 = 200;

/// Netem is one sample; the model's spread over seeds says how far one may lie.
const SIGMAS: f64 = 4.0;

/// Below this a packet counts as not delayed.
const AT_ONCE_MS: f64 = 0.5;

/// Bytes of one probe on the wire; nothing here depends on it, the rate being off.
const PROBE_BYTES: usize = 98;

/// What is compared, and what the instrument (timers and system calls under emulation) may add.
const METRICS: [(&str, f64); 7] = [
    ("lost %", 0.0),
    ("late %", 0.5),
    ("at once %", 1.0),
    ("mean ms", 0.5),
    ("p10 ms", 0.5),
    ("p50 ms", 0.5),
    ("p90 ms", 0.5),
];

type Metrics = [f64; METRICS.len()];

/// What was sent, and what came of it.
struct Sample {
    /// When each probe was sent.
    sent_ns: Vec<u64>,
    /// Index and delay in ms of what arrived, in the order of arrival.
    arrived: Vec<(usize, f64)>,
}

#[test]
#[ignore = "three minutes, and a real-time priority: it compares times"]
fn netem_and_the_impaired_wire_agree() {
    compare().expect("the model does as netem does");
}

fn compare() -> Result<()> {
    let mut net = Net::new("wt-guest-netem")?;
    let host = net.host("quiet")?;
    let nic =
        Nic { tap: "tap0".to_owned(), host_addresses: Vec::new(), guest_addresses: Vec::new() };
    let mut options = Options::new(nic, kernel_cache());
    options.programs.push(std::env::current_exe()?.display().to_string());
    let guest = Guest::start(&host, &options)?;
    before_other_programs(&guest)?;
    guest.run(
        "ip netns add a; ip netns add b
         ip link add a0 netns a type veth peer name b0 netns b
         ip -n a address add 10.1.0.1/24 dev a0; ip -n b address add 10.1.0.2/24 dev b0
         ip -n a link set a0 up; ip -n b link set b0 up",
    )?;
    let bare = delays(&probe(&guest, 2_000)?);
    let base_ms = quantile(&bare, 0.5);
    let noise_ms = quantile(&bare, 0.99) - base_ms;
    // A packet that netem holds is also late by what its timer is late; one sent at once is not.
    set_netem(&guest, &Impairment { delay_us: 5_000, ..Impairment::NONE })?;
    let lateness_ms = quantile(&delays(&probe(&guest, 2_000)?), 0.5) - base_ms - 5.0;
    eprintln!(
        "without netem {base_ms:.3} ms (99 of 100 within {noise_ms:.3} ms of it); \
         its timer is {lateness_ms:.3} ms late\n"
    );
    eprintln!("| weather | value | netem | model | spread | tolerance | difference |");
    eprintln!("|---|---|---:|---:|---:|---:|---:|");
    let mut apart = Vec::new();
    for (name, impairment) in weathers() {
        set_netem(&guest, &impairment)?;
        let mut sample = probe(&guest, PROBES)?;
        for (_, delay_ms) in &mut sample.arrived {
            *delay_ms -= base_ms;
        }
        let netem = metrics(&sample, AT_ONCE_MS + lateness_ms);
        let (model, spread) = expectation(&impairment, &sample.sent_ns)?;
        for (index, (metric, instrument)) in METRICS.iter().enumerate() {
            let tolerance = SIGMAS * spread[index] + instrument;
            let difference = netem[index] - model[index];
            eprintln!(
                "| {name} | {metric} | {:.3} | {:.3} | {:.3} | {tolerance:.3} | {difference:+.3} |",
                netem[index], model[index], spread[index]
            );
            if difference.abs() > tolerance {
                apart.push(format!("{name}: {metric} by {difference:+.3}"));
            }
        }
    }
    ensure!(apart.is_empty(), "apart beyond tolerance: {apart:?}");
    Ok(())
}

/// The profiles without their line rate, and three in which one thing stands out.
fn weathers() -> Vec<(String, Impairment)> {
    let no_rate = |impairment| Impairment { rate_bps: 0, ..impairment };
    let mut weathers: Vec<(String, Impairment)> = ["low", "medium", "high"]
        .iter()
        .map(|name| ((*name).to_owned(), no_rate(profile::named(name).expect("a profile"))))
        .collect();
    let delay = Impairment { delay_us: 5_000, ..Impairment::NONE };
    let reorder = Impairment { reorder: 0.25, ..delay };
    let correlated = Impairment { reorder_correlation: 0.5, ..reorder };
    weathers.push(("loss 10 %".to_owned(), Impairment { loss: 0.1, ..delay }));
    weathers.push(("reorder 25 %".to_owned(), reorder));
    weathers.push(("reorder 25 % 50 %".to_owned(), correlated));
    weathers
}

/// The words of netem for it.
pub(super) fn words(impairment: &Impairment) -> String {
    let Impairment { delay_us, jitter_us, loss, reorder, reorder_correlation, .. } = *impairment;
    let mut words = format!("delay {delay_us}us");
    if jitter_us > 0 {
        words += &format!(" {jitter_us}us");
    }
    if loss > 0.0 {
        words += &format!(" loss {}%", loss * 100.0);
    }
    if reorder > 0.0 {
        words += &format!(" reorder {}% {}%", reorder * 100.0, reorder_correlation * 100.0);
    }
    words
}

fn set_netem(guest: &Guest, impairment: &Impairment) -> Result<()> {
    let command = format!("tc -n a qdisc replace dev a0 root netem {}", words(impairment));
    let shown = guest
        .run(&format!("tc -n a qdisc del dev a0 root 2> /dev/null; {command}; tc -n a qdisc"))?;
    ensure!(shown.contains("netem"), "no netem: {shown}");
    Ok(())
}

/// Gives qemu the processor first, so that what else runs here does not enter the times.
fn before_other_programs(guest: &Guest) -> Result<()> {
    let pid = guest.pid().to_string();
    let status = Command::new("chrt").args(["--all-tasks", "--rr", "--pid", "10", &pid]).status();
    ensure!(status.context("running chrt")?.success(), "chrt refused a real-time priority");
    Ok(())
}

/// Sends `count` datagrams through the guest's veth pair.
fn probe(guest: &Guest, count: usize) -> Result<Sample> {
    let program = std::env::current_exe()?;
    let program = program.file_name().context("a test program has a name")?.to_string_lossy();
    let script = format!(
        "export COUNT={count}; rm -f {READY}
         inside() {{ ip netns exec $1 {program} --ignored --exact netem::$2 --nocapture; }}
         inside b receives_in_the_guest > /run/received &
         while [ ! -e {READY} ]; do sleep 0.1; done
         inside a sends_in_the_guest > /run/sent
         wait; cat /run/sent /run/received"
    );
    let output = guest.output(&script, INTERVAL * count as u32 * 3 + Duration::from_secs(20))?;
    let text = String::from_utf8(output.stdout)?;
    let lines = |kind: &'static str| {
        text.lines().filter_map(move |line| {
            let (index, time) = line.strip_prefix(kind)?.split_once(' ')?;
            Some((index.parse::<usize>().ok()?, time.parse::<u64>().ok()?))
        })
    };
    let sent: Vec<u64> = lines("sent ").map(|(_, time)| time).collect();
    ensure!(sent.len() == count, "{} of {count} were sent: {text}", sent.len());
    let arrived: Vec<(usize, f64)> = lines("received ")
        .map(|(index, time)| (index, (time as f64 - sent[index] as f64) / 1e6))
        .collect();
    ensure!(arrived.len() > count / 2, "only {} of {count} arrived", arrived.len());
    Ok(Sample { sent_ns: sent.iter().map(|time| time - sent[0]).collect(), arrived })
}

#[test]
#[ignore = "one half of the comparison, run in the guest by the other"]
fn sends_in_the_guest() {
    let Some(count) = count() else { return };
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(RECEIVER).unwrap();
    let mut lines = String::new();
    let mut next_ns = now_ns();
    for index in 0..count {
        next_ns += INTERVAL.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now_ns())));
        writeln!(lines, "sent {index} {}", now_ns()).unwrap();
        socket.send(&(index as u64).to_be_bytes()).unwrap();
    }
    print!("\n{lines}");
}

#[test]
#[ignore = "one half of the comparison, run in the guest by the other"]
fn receives_in_the_guest() {
    if count().is_none() {
        return;
    }
    let socket = UdpSocket::bind(RECEIVER).unwrap();
    File::create(READY).unwrap();
    let mut lines = String::new();
    let mut datagram = [0; 8];
    while socket.recv(&mut datagram).is_ok() {
        writeln!(lines, "received {} {}", u64::from_be_bytes(datagram), now_ns()).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
    }
    print!("\n{lines}");
}

/// How many datagrams; none outside the guest.
fn count() -> Option<usize> {
    std::env::var("COUNT").ok()?.parse().ok()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_nanos() as u64
}

/// Mean and standard deviation of every value over many runs of the model.
fn expectation(impairment: &Impairment, sent_ns: &[u64]) -> Result<(Metrics, Metrics)> {
    let mut runs = Vec::new();
    for seed in 0..SEEDS {
        let mut pipe = Pipe::new(*impairment, seed)?;
        let mut arrivals = Vec::with_capacity(sent_ns.len());
        for (index, sent) in sent_ns.iter().enumerate() {
            if let Verdict::Deliver { at_ns, .. } = pipe.offer(*sent, PROBE_BYTES) {
                arrivals.push((at_ns, index));
            }
        }
        arrivals.sort_unstable();
        let delay_ms = |(at, index): &(u64, usize)| (*at - sent_ns[*index]) as f64 / 1e6;
        let arrived = arrivals.iter().map(|arrival| (arrival.1, delay_ms(arrival))).collect();
        runs.push(metrics(&Sample { sent_ns: sent_ns.to_vec(), arrived }, AT_ONCE_MS));
    }
    let count = runs.len() as f64;
    let mean: Metrics =
        std::array::from_fn(|index| runs.iter().map(|run| run[index]).sum::<f64>() / count);
    let deviation = std::array::from_fn(|index| {
        let squares = runs.iter().map(|run| (run[index] - mean[index]).powi(2));
        (squares.sum::<f64>() / count).sqrt()
    });
    Ok((mean, deviation))
}

fn metrics(sample: &Sample, at_once_ms: f64) -> Metrics {
    let (sent, arrived) = (sample.sent_ns.len() as f64, sample.arrived.len() as f64);
    let mut highest = 0;
    let mut late = 0;
    for (index, _) in &sample.arrived {
        late += usize::from(*index < highest);
        highest = highest.max(*index);
    }
    let delays = delays(sample);
    let at_once = delays.partition_point(|delay_ms| *delay_ms < at_once_ms);
    [
        100.0 * (1.0 - arrived / sent),
        100.0 * late as f64 / arrived,
        100.0 * at_once as f64 / arrived,
        delays.iter().sum::<f64>() / arrived,
        quantile(&delays, 0.1),
        quantile(&delays, 0.5),
        quantile(&delays, 0.9),
    ]
}

/// Delays in ms, ascending.
fn delays(sample: &Sample) -> Vec<f64> {
    let mut delays: Vec<f64> = sample.arrived.iter().map(|(_, delay_ms)| *delay_ms).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}
