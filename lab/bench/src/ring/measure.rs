//! One measurement in a new lab: what each test does, and the figures that come out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::netns::Host;
use lab::sys;

use super::stream::{self, Flow, Job, Kind, Transfer, UDP_BYTES, transfer};
use super::{BASELINE, Place, SHARED_TIMES, Test, Turn, download};
use crate::ground::{Ground, IFNAME, WireCount};
use crate::load;
use crate::ping;
use crate::ratio::{Percentile, Spread};
use crate::unread::{Echoes, Unread};
use crate::vpn::Running;

mod beside;
mod inside6;
mod quic;
mod video;

/// Pings on an idle link, and the time between two. Source 002 had 100, of which one alone makes
/// the 99th percentile, in the same 20 s.
const PINGS: u32 = 400;
const PING_EVERY_S: &str = "0.05";
/// A flood of pings: so many under way, whose packets have 1,200 bytes, which fit through every
/// VPN without being cut in two; for the time of a transfer, as what comes at the begin, when
/// nobody knows the path, is no more of it than it is of a transfer.
const FLOOD_UNDER_WAY: u32 = 100;
const FLOOD_PAYLOAD: &str = "1172";
const FLOOD_BYTES: f64 = 1_200.0;
/// One that ends before this share of its time was ended by an error.
const FLOOD_SHARE_MIN: f64 = 0.9;
/// Ping ends by itself; it is not waited for any longer than that.
const FLOOD_REST: Duration = Duration::from_secs(30);
const FLOOD_LATE: Duration = Duration::from_millis(300);
/// How the ways of a flow begin the names of its figures.
const FORTH: &str = "forward";
const BACK: &str = "back";
const PORT: u16 = 5_201;
/// Of the flow that runs beside the VPN.
const BESIDE_PORT: u16 = PORT + 1;
/// Times that a transfer may begin that iperf3 does not get to load the line with, for reasons of
/// its own: at 2.5 % of loss each way that is one in twenty of UDP.
const TRIES: u32 = 3;
/// How long is waited after a connection of iperf3's broke.
const PAUSE: Duration = Duration::from_secs(3);

/// The wire publishes its counters every 20 ms.
const PUBLISHED: Duration = Duration::from_millis(50);

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) series: BTreeMap<String, Vec<f64>>,
}

/// Readings before a load, to be compared with those after it.
struct Before {
    at: Instant,
    each_cpu_s: Vec<f64>,
    busy_s: f64,
    wire: Option<WireCount>,
    sent: Option<u64>,
}

/// A VPN at work on its ground.
struct Scene<'a> {
    turn: &'a Turn<'a>,
    ground: &'a Ground,
    vpn: Running<'a>,
    outcome: Outcome,
    /// What the wire did during a load that was set apart.
    wire: Option<WireCount>,
    /// How long a transfer takes.
    seconds: u32,
    /// The run's folder.
    dir: &'a Path,
}

/// Measures on new ground; everything that runs there ends when this returns. What the wire did is
/// told in `wire`, also of a failure.
pub(super) fn measure(
    turn: &Turn<'_>,
    place: &Place<'_>,
    wire: &mut Option<WireCount>,
) -> Result<Outcome> {
    let ground = match turn.test {
        Test::Shared => Ground::lay_bottleneck(place.prefix)?,
        _ => Ground::lay_ring(place.prefix, turn.impairment, turn.superpackets, turn.seed)?,
    };
    for end in &ground.ends {
        tune(&end.host, place.tuning)?;
    }
    // Without pace, all depends on what there is to wait for.
    if turn.test == Test::Udp && turn.impairment.rate_bps > 0 {
        ground.add_cards(turn.impairment.rate_bps)?;
    }
    let begun = ground.wire_count();
    let vpn = Running::start(turn.vpn, &ground.ends)?;
    let outcome = Outcome::default();
    let seconds = turn.seconds;
    let mut scene =
        Scene { turn, ground: &ground, vpn, outcome, wire: None, seconds, dir: place.dir };
    let connect = scene.vpn.connect().iter().map(|time| time.as_secs_f64() * 1e3);
    let connect: Vec<f64> = connect.collect();
    if let Some(mtu) = scene.vpn.mtu() {
        scene.put("mtu_bytes", f64::from(mtu));
    }
    if let Some(idle) = scene.vpn.rss_kib().iter().max() {
        scene.put("rss_idle_mib", *idle as f64 / 1_024.0);
    }
    if turn.test == Test::Connect {
        scene.put("connect_ms", connect.iter().copied().fold(0.0, f64::max));
        scene.outcome.series.insert("connect_ms".to_owned(), connect);
    }
    let done = scene.load().and_then(|()| scene.vpn.check());
    // Where no load is set apart, all that was done is the load.
    std::thread::sleep(PUBLISHED);
    let whole = begun.zip(ground.wire_count()).map(|(old, new)| new.since(old));
    *wire = scene.wire.or(whole);
    match done {
        Ok(()) => Ok(scene.outcome),
        Err(error) => {
            let logs = scene.vpn.logs();
            let logs = logs.trim();
            ensure!(!logs.is_empty(), "{error:#}");
            bail!("{error:#}\nWhat its programs printed last:\n{logs}")
        }
    }
}

/// The only flow of a transfer.
fn only(flows: Vec<Flow>) -> Result<Flow> {
    flows.into_iter().next().context("a transfer without a flow")
}

/// Kernel settings of source 002's follow-up; those of a namespace only.
fn tune(host: &Host, tuning: &str) -> Result<()> {
    for setting in super::sysctls(tuning) {
        host.run(&["sysctl", "-qw", setting])?;
    }
    Ok(())
}

impl Scene<'_> {
    fn load(&mut self) -> Result<()> {
        match self.turn.test {
            Test::Connect => Ok(()),
            Test::Ping => self.ping(),
            Test::Tcp => self.tcp(1),
            Test::Six => self.tcp(6),
            Test::Both => self.both(),
            Test::Parallel => self.parallel(),
            Test::Udp => self.udp(),
            Test::Flood => self.flood(),
            Test::Quic => self.quic(),
            Test::Video => self.video(),
            Test::Grid => self.grid(),
            Test::Download => self.download(),
            Test::Reconnect => self.reconnect(),
            Test::Shared => self.shared(),
        }
    }

    fn put(&mut self, name: &str, value: f64) {
        self.outcome.metrics.insert(name.to_owned(), value);
    }

    fn host(&self, index: usize) -> &Host {
        &self.ground.ends[index].host
    }

    fn job(&self, from: usize, to: usize, kind: Kind) -> Job<'_> {
        Job {
            from: self.host(from),
            to: self.host(to),
            address: self.vpn.address(to),
            port: PORT,
            kind,
            seconds: self.seconds,
        }
    }

    fn before(&self) -> Result<Before> {
        Ok(Before {
            at: Instant::now(),
            each_cpu_s: self.vpn.each_cpu_s(),
            busy_s: busy_s()?,
            wire: self.ground.wire_count(),
            sent: self.ground.sent_bytes(self.turn.from),
        })
    }

    /// What the load cost: `received` bytes of payload arrived, all flows together.
    fn after(&mut self, before: Before, received: f64) -> Result<()> {
        let gb = received / 1e9;
        let mut pump_s = 0.0;
        let busy = busy_s()? - before.busy_s;
        self.put_busy(busy, before.at.elapsed().as_secs_f64())?;
        std::thread::sleep(PUBLISHED);
        if let Some((old, new)) = before.wire.zip(self.ground.wire_count()) {
            let wire = new.since(old);
            pump_s = wire.pump_cpu_s;
            self.wire = Some(wire);
            ensure!(wire.failed == 0, "the wire itself refused or had no room for: {wire:?}");
        }
        let rss = self.vpn.rss_kib();
        if let Some(largest) = rss.iter().max() {
            self.put("rss_mib", *largest as f64 / 1_024.0);
            let after = self.vpn.each_cpu_s().into_iter().zip(&before.each_cpu_s);
            let each: Vec<f64> = after.map(|(after, before)| after - before).collect();
            self.put("cpu_s_per_gb", each.iter().sum::<f64>() / gb);
            let rss = rss.iter().map(|kib| *kib as f64 / 1_024.0).collect();
            // Of every daemon, in the order of the hosts.
            self.outcome.series.insert("daemons_rss_mib".to_owned(), rss);
            self.outcome.series.insert("daemons_cpu_s".to_owned(), each);
        }
        self.put("machine_cpu_s_per_gb", (busy_s()? - before.busy_s - pump_s).max(0.0) / gb);
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        let from = self.turn.from;
        let to = self.turn.to;
        let count = PINGS.to_string();
        let address = self.vpn.address(to);
        let argv = ["ping", "-n", "-c", &count, "-i", PING_EVERY_S, "-W", "1", address];
        let ping = self.host(from).spawn(&argv).context("install the package iputils-ping")?;
        let times = ping::answers(&load::finish(&ping, Duration::from_secs(60))?);
        let spread = Spread::of(&times).context("no ping was answered")?;
        let ms = |us: f64| us / 1e3;
        self.put("rtt_mean_ms", ms(times.iter().sum::<f64>() / times.len() as f64));
        self.put("rtt_median_ms", ms(spread.median));
        self.put("rtt_p99_ms", ms(p99(&times)));
        self.put("rtt_max_ms", ms(spread.max));
        let steps = times.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        self.put("jitter_ms", ms(steps.sum::<f64>() / (times.len() - 1).max(1) as f64));
        let lost = 1.0 - times.len().min(PINGS as usize) as f64 / f64::from(PINGS);
        self.put("ping_lost_percent", lost * 100.0);
        self.outcome.series.insert("rtt_us".to_owned(), times);
        Ok(())
    }

    /// Streams forth, then as many back, each time alone; with pings beside those forth.
    fn tcp(&mut self, streams: u32) -> Result<()> {
        let from = self.turn.from;
        let to = self.turn.to;
        let forth = self.forth(Kind::Tcp(streams))?;
        self.put_flow(FORTH, &forth);
        let back = transfer(&self.job(to, from, Kind::Tcp(streams))).context("the way back")?;
        let back = only(back)?;
        self.put_flow(BACK, &back);
        Ok(())
    }

    /// One transfer forth with all that is read around it.
    fn forth(&mut self, kind: Kind) -> Result<Flow> {
        let from = self.turn.from;
        let to = self.turn.to;
        let before = self.before()?;
        let sent = before.sent;
        let unread = Unread::of(self.host(to))?;
        let running = Transfer::start(&self.job(from, to, kind))?;
        let ping = beside::Ping::start(self, from, to)?;
        let mut flow = only(running.finish()?)?;
        let told = ping.finish(self.seconds)?;
        let unread = Unread::by_closed(unread, Unread::of(self.host(to))?);
        flow.unread_bytes = unread as f64 * f64::from(UDP_BYTES);
        self.after(before, flow.arrived_bytes())?;
        if let Some((old, new)) = sent.zip(self.ground.sent_bytes(from)) {
            self.put("wire_bytes_per_byte", (new - old) as f64 / flow.arrived_bytes());
        }
        told.put(self);
        Ok(flow)
    }

    /// What a flow had, under the name of its way: `forward` or `back`.
    fn put_flow(&mut self, way: &str, flow: &Flow) {
        self.put(&format!("{way}_mbit_s"), flow.mbit_s());
        if let Some(again) = flow.retransmits {
            self.put(&format!("{way}_retransmits"), again);
        }
        if let Some(percent) = flow.again_percent() {
            self.put(&format!("{way}_again_percent"), percent);
        }
        if let Some(cwnd) = flow.cwnd_bytes {
            self.put(&format!("{way}_cwnd_kb"), cwnd / 1e3);
        }
        let seconds = flow.seconds_mbit_s.clone();
        self.outcome.series.insert(format!("{way}_seconds_mbit_s"), seconds);
    }

    fn both(&mut self) -> Result<()> {
        let from = self.turn.from;
        let to = self.turn.to;
        let (before, flows) = again(|| {
            let before = self.before()?;
            Ok((before, transfer(&self.job(from, to, Kind::Both))?))
        })?;
        self.after(before, flows.iter().map(|flow| flow.received_bytes).sum())?;
        self.put_flow(FORTH, &flows[0]);
        self.put_flow(BACK, &flows[1]);
        self.put("sum_mbit_s", flows.iter().map(Flow::mbit_s).sum());
        Ok(())
    }

    /// All three links at once, one stream each way on each: six flows, or a failure.
    fn parallel(&mut self) -> Result<()> {
        let (before, flows) = again(|| Ok((self.before()?, self.six_flows()?)))?;
        let all = || flows.iter().flatten();
        self.after(before, all().map(|flow| flow.received_bytes).sum())?;
        self.put("sum_mbit_s", all().map(Flow::mbit_s).sum());
        self.put("forward_sum_mbit_s", flows.iter().map(|both| both[0].mbit_s()).sum());
        self.put("back_sum_mbit_s", flows.iter().map(|both| both[1].mbit_s()).sum());
        let again: f64 = flows.iter().filter_map(|both| both[0].retransmits).sum();
        self.put("forward_retransmits", again);
        let again: f64 = flows.iter().filter_map(|both| both[1].retransmits).sum();
        self.put("back_retransmits", again);
        let rates = all().map(Flow::mbit_s).collect();
        self.outcome.series.insert("flows_mbit_s".to_owned(), rates);
        Ok(())
    }

    fn six_flows(&self) -> Result<Vec<Vec<Flow>>> {
        let count = self.ground.ends.len();
        let start = |from: usize| {
            let to = (from + 1) % count;
            let mut job = self.job(from, to, Kind::Both);
            job.seconds *= 2;
            Transfer::start(&job)
        };
        let running: Vec<Transfer> = (0..count).map(start).collect::<Result<_>>()?;
        let mut flows = Vec::new();
        let mut failed = Vec::new();
        let mut crossed = None;
        for (from, transfer) in running.into_iter().enumerate() {
            let link = super::LINKS[from].0;
            match transfer.finish() {
                Ok(both) => flows.push(both),
                Err(error) if stream::never_began(&error) => crossed = Some(error),
                Err(error) => failed.push(format!("link {link}: {error:#}")),
            }
        }
        let rates: Vec<String> =
            flows.iter().flatten().map(|flow| format!("{:.1}", flow.mbit_s())).collect();
        ensure!(
            failed.is_empty(),
            "{}; not summed, the others carried {} Mbit/s",
            failed.join("; "),
            rates.join(" ")
        );
        crossed.map_or(Ok(flows), Err)
    }

    fn udp(&mut self) -> Result<()> {
        let (flow, broken) = self.datagrams(|scene| scene.forth(Kind::Udp))?;
        self.put_flow(FORTH, &flow);
        self.put("sent_mbit_s", flow.sent_mbit_s());
        self.put("lost_percent", flow.lost_percent());
        self.put("unread_percent", flow.unread_bytes / flow.sent_bytes * 100.0);
        let from = self.turn.from;
        let to = self.turn.to;
        let (back, broken_back) = self
            .datagrams(|scene| only(transfer(&scene.job(to, from, Kind::Udp))?))
            .context("the way back")?;
        self.put_flow(BACK, &back);
        self.put("connections_broken", broken + broken_back);
        Ok(())
    }

    /// A transfer of datagrams. What iperf3 could not tell of, since its connection broke, begins
    /// again and takes half the time. Returns how often that was, too.
    fn datagrams(
        &mut self,
        mut transfer: impl FnMut(&mut Self) -> Result<Flow>,
    ) -> Result<(Flow, f64)> {
        let whole = self.seconds;
        let mut broken = 0;
        let flow = loop {
            match again(|| transfer(self)) {
                Err(error) if broken + 1 < TRIES && stream::lost_touch(&error) => broken += 1,
                flow => break flow,
            }
            self.seconds = (whole >> broken).max(1);
            // What the peer remembers of the connection is to be over.
            std::thread::sleep(PAUSE);
        };
        self.seconds = whole;
        Ok((flow?, f64::from(broken)))
    }

    /// What is neither TCP nor UDP, at a rate at which the wire's cost for each byte can be told.
    fn flood(&mut self) -> Result<()> {
        let from = self.turn.from;
        let to = self.turn.to;
        let before = self.before()?;
        let sent = before.sent;
        let address = self.vpn.address(to);
        let seconds = self.seconds.to_string();
        let most = FLOOD_UNDER_WAY.to_string();
        let many = ["-f", "-l", &most, "-s", FLOOD_PAYLOAD, "-w", &seconds];
        let argv = [&["ping", "-n", "-q"], many.as_slice(), &[address]].concat();
        let counted = self.echoes(from, to)?;
        let ping = self.host(from).spawn(&argv).context("install the package iputils-ping")?;
        let limit = Duration::from_secs(self.seconds.into()) + FLOOD_REST;
        let said = load::finish(&ping, limit)?;
        let told = ping::summary(&said)?;
        let in_time = (self.echoes(from, to)?.0 - counted.0) as f64;
        // Ping does not wait for the last ones.
        std::thread::sleep(FLOOD_LATE);
        let (came, unanswered) = self.echoes(from, to)?;
        let came = (came - counted.0) as f64;
        let unanswered = (unanswered - counted.1) as f64;
        ensure!(came > 0.0, "none of {} pings was answered", told.sent);
        let least_s = FLOOD_SHARE_MIN * f64::from(self.seconds);
        ensure!(told.time_s > least_s, "ping gave up after {} s: {}", told.time_s, said.trim());
        let bytes = came * FLOOD_BYTES;
        self.after(before, bytes)?;
        if let Some((old, new)) = sent.zip(self.ground.sent_bytes(from)) {
            let arrived = bytes + unanswered * FLOOD_BYTES;
            self.put("wire_bytes_per_byte", (new - old) as f64 / arrived);
        }
        self.put("forward_mbit_s", bytes * 8.0 / 1e6 / told.time_s);
        let percent = |pings: f64| pings.max(0.0) / told.sent * 100.0;
        self.put("ping_lost_percent", percent(told.sent - came - unanswered));
        self.put("unanswered_percent", percent(unanswered));
        // As many as may come between its end and the kernel's count.
        let unread = in_time - told.answered - f64::from(FLOOD_UNDER_WAY);
        self.put("unread_percent", percent(unread));
        Ok(())
    }

    /// Answers that came back to `from`, and requests that `to` did not answer.
    fn echoes(&self, from: usize, to: usize) -> Result<(u64, u64)> {
        Ok((Echoes::of(self.host(from))?.came, Echoes::of(self.host(to))?.unanswered))
    }

    fn grid(&mut self) -> Result<()> {
        let flow = self.forth(Kind::Tcp(1))?;
        self.put_flow(FORTH, &flow);
        Ok(())
    }

    /// Where a line has nothing that slows it down, a second one, ten times as large, follows: the
    /// first is over before a flow has found its rate.
    fn download(&mut self) -> Result<()> {
        let before = self.before()?;
        let (mut s, mut bytes) = self.fetch(download::BYTES)?;
        self.put("download_s", s);
        if self.turn.key.profile == BASELINE {
            let more = self.fetch(download::BYTES_LONG)?;
            self.put("long_download_s", more.0);
            s += more.0;
            bytes += more.1;
        }
        let busy = busy_s()? - before.busy_s;
        self.after(before, bytes as f64)?;
        // Without what client and server need to begin.
        self.put_busy(busy, s)
    }

    /// A download of so many bytes; its seconds and its bytes.
    fn fetch(&self, total: f64) -> Result<(f64, u64)> {
        let client = self.turn.from;
        let server = self.turn.to;
        let what = (total, self.turn.seed);
        let hosts = (self.host(server), self.host(client));
        download::run(hosts, self.vpn.address(server), what, self.turn.https)
    }

    /// Of all processors for so many seconds, what share `busy_s` is.
    fn put_busy(&mut self, busy_s: f64, seconds: f64) -> Result<()> {
        let processors = std::thread::available_parallelism().context("no processors")?;
        let share = busy_s / (seconds * processors.get() as f64);
        self.put("busy_percent", (100.0 * share).min(100.0));
        Ok(())
    }

    /// The second host loses its link and its daemons at once, and gets them back.
    fn reconnect(&mut self) -> Result<()> {
        let host = 1;
        let other = 0;
        self.vpn.cut(host)?;
        self.host(host).run(&["ip", "link", "set", IFNAME, "down"])?;
        std::thread::sleep(Duration::from_secs(1));
        let begin = Instant::now();
        self.host(host).run(&["ip", "link", "set", IFNAME, "up"])?;
        self.vpn.start_member(host)?;
        self.vpn.wait_for_echo(host, other, &[])?;
        self.vpn.wait_for_echo(other, host, &[])?;
        self.put("reconnect_s", begin.elapsed().as_secs_f64());
        sys::check_interrupted()?;
        Ok(())
    }

    /// One flow through the VPN and one beside it, over one queue.
    fn shared(&mut self) -> Result<()> {
        let drops = self.ground.bottleneck_drops()?;
        self.ground.watch_flow(BESIDE_PORT)?;
        let before = self.before()?;
        let seconds = self.seconds * SHARED_TIMES;
        let through = Job { seconds, ..self.job(0, 1, Kind::Tcp(1)) };
        let address = &self.ground.ends[1].outer;
        let beside = Job { address, port: BESIDE_PORT, ..through };
        // Who begins finds an empty line and keeps an advantage for long, so each does once.
        let mut rates = [0.0; 2];
        let mut received = 0.0;
        let mut again = 0.0;
        for first in 0..2 {
            let jobs = [&through, &beside];
            let one = Transfer::start(jobs[first])?;
            let other = Transfer::start(jobs[1 - first])?;
            let mut flows = [one.finish(), other.finish()];
            flows.rotate_left(first);
            let [inside, outside] = flows;
            let inside = only(inside.context("the flow inside")?)?;
            let outside = only(outside.context("the flow outside")?)?;
            rates[0] += inside.mbit_s() / 2.0;
            rates[1] += outside.mbit_s() / 2.0;
            received += inside.received_bytes;
            again += outside.retransmits.unwrap_or(0.0);
        }
        self.after(before, received)?;
        let [inside, outside] = rates;
        let sum = inside + outside;
        self.put("inside_mbit_s", inside);
        self.put("outside_mbit_s", outside);
        self.put("inside_percent", inside / sum * 100.0);
        self.put("outside_percent", outside / sum * 100.0);
        self.put("outside_retransmits", again);
        self.put("outside_queue_drops", self.ground.flow_drops()? as f64);
        let dropped = self.ground.bottleneck_drops()?.saturating_sub(drops);
        self.put("queue_drops", dropped as f64);
        Ok(())
    }
}

/// Begins again what iperf3 did not get to load the line with.
fn again<T>(mut transfer: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match transfer() {
            Err(error) if tries < TRIES && stream::never_began(&error) => tries += 1,
            flow => return flow,
        }
    }
}

fn p99(times: &[f64]) -> f64 {
    Percentile::of(times, 0.99).map_or(f64::NAN, |percentile| percentile.value)
}

/// Processor time that the whole machine has spent so far, seconds, over all processors.
fn busy_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    ensure!(ticks.len() >= 7, "/proc/stat has no line of all processors");
    // user, nice, system, then idle and waiting, then interrupts.
    Ok((ticks[..3].iter().sum::<f64>() + ticks[5..7].iter().sum::<f64>()) / sys::clock_ticks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_time_only_grows() {
        let before = busy_s().expect("a number");
        let mut n = 0u64;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            n = n.wrapping_add(1);
        }
        assert!(busy_s().expect("a number") >= before && n > 0);
    }
}
