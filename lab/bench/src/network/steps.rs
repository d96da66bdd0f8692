//! The steps of one round, each on new ground.

use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sim::impair::Impairment;

use super::Settings;
use super::ground::Ground;
use crate::crowd;
use crate::load::{self, Outcome};
use crate::report::Skipped;
use crate::rounds;
use crate::scenario::Load;
use crate::vpn::{Headscale, Network, Running, Vpn};

/// How long a daemon is watched at rest.
const REST: Duration = Duration::from_secs(10);
/// Nodes of a crowd.
const CROWD: usize = 1000;
/// Pairs of the relays' study, relays beside the server's, and the names of what is measured:
/// the rate of all, and what the server's relay takes of a core.
const STUDY: [Study; 4] = [
    Study { pairs: 1, relays: 0, rate: "pairs-1", cores: "cores-1" },
    Study { pairs: 2, relays: 0, rate: "pairs-2", cores: "cores-2" },
    Study { pairs: 4, relays: 0, rate: "pairs-4", cores: "cores-4" },
    Study { pairs: 4, relays: 1, rate: "pairs-4-two", cores: "cores-4-two" },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Study {
    pairs: usize,
    relays: usize,
    rate: &'static str,
    cores: &'static str,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    kind: Kind,
    prefix: String,
    seconds: u32,
    warren: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Join,
    JoinHttps,
    Lost,
    Roam,
    Relayed(Way),
    RelayedHeadscale,
    Loaded(Way),
    Pairs(Study),
    Crowd,
}

/// What a relay is reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nothing but TCP to port 443 leaves.
    Https,
    /// UDP passes to the relay and nowhere else.
    Quic,
}

type Values = Vec<(&'static str, f64)>;

impl Step {
    /// All that can be measured here, and who is absent.
    pub(super) fn all(settings: &Settings, warren: &Path) -> (Vec<Self>, Vec<Skipped>) {
        let rival = Headscale::relayed();
        let absent = rival.version().err().map(|error| Skipped {
            name: rival.name().to_owned(),
            why: format!("{error:#}"),
            hint: rival.install_hint().to_owned(),
        });
        let mut kinds = vec![Kind::Join, Kind::JoinHttps, Kind::Lost, Kind::Roam];
        kinds.extend([Way::Https, Way::Quic].map(Kind::Relayed));
        if absent.is_none() {
            kinds.push(Kind::RelayedHeadscale);
        }
        kinds.extend([Way::Https, Way::Quic].map(Kind::Loaded));
        kinds.extend(STUDY.map(Kind::Pairs));
        kinds.push(Kind::Crowd);
        let step = |kind| Self {
            kind,
            prefix: settings.prefix.clone(),
            seconds: settings.seconds,
            warren: warren.to_owned(),
        };
        (kinds.into_iter().map(step).collect(), absent.into_iter().collect())
    }

    pub(super) fn measure(&self) -> Result<Values> {
        let ours = Network::relayed(&self.warren);
        match self.kind {
            Kind::Join => self.join(),
            Kind::JoinHttps => self.join_https(),
            Kind::Lost => self.outage("lost", |ground| ground.block_udp(1)),
            Kind::Roam => self.outage("roam", |ground| ground.move_host(1)),
            Kind::Relayed(way) => {
                let name = if way == Way::Quic { "relayed-quic" } else { "relayed" };
                Ok(vec![(name, self.relayed(&ours, way)?)])
            }
            Kind::RelayedHeadscale => {
                let theirs = Headscale::relayed();
                Ok(vec![("relayed-headscale", self.relayed(&theirs, Way::Https)?)])
            }
            Kind::Loaded(way) => self.loaded(way),
            Kind::Pairs(study) => self.pairs(study),
            Kind::Crowd => self.crowd(),
        }
    }

    fn join(&self) -> Result<Values> {
        let ground = Ground::lay(&self.prefix, 3, None)?;
        let vpn = Network::direct(&self.warren);
        let mut running = Running::start(&vpn, &ground.ends)?;
        let join = ms(*running.connect().last().context("an echo")?);
        // The server, its host's node, then one node each.
        let before = running.each_cpu_s();
        std::thread::sleep(REST);
        let after = running.each_cpu_s();
        let cpu = (after[2] - before[2]) / REST.as_secs_f64() * 100.0;
        let rss = running.rss_kib()[2] as f64 / 1024.0;
        let restart = again(&mut running)?;
        running.cut(0)?;
        let alone = again(&mut running)?;
        Ok(vec![
            ("join", join),
            ("rest-cpu", cpu),
            ("rest-rss", rss),
            ("restart", restart),
            ("restart-alone", alone),
        ])
    }

    fn join_https(&self) -> Result<Values> {
        let ground = self.blocked(3, Way::Https, None)?;
        let vpn = Network::relayed(&self.warren);
        let running = Running::start(&vpn, &ground.ends)?;
        Ok(vec![("join-https", ms(*running.connect().last().context("an echo")?))])
    }

    fn outage(
        &self,
        name: &'static str,
        change: impl FnOnce(&Ground) -> Result<()>,
    ) -> Result<Values> {
        let ground = Ground::lay(&self.prefix, 3, None)?;
        let vpn = Network::direct(&self.warren);
        let running = Running::start(&vpn, &ground.ends)?;
        let silence = ground.outage_ms(1, running.address(2), || change(&ground))?;
        Ok(vec![(name, silence)])
    }

    /// Hosts that cannot speak UDP with each other, but for the server's.
    fn blocked(&self, count: usize, way: Way, last: Option<Impairment>) -> Result<Ground> {
        let ground = Ground::lay(&self.prefix, count, last)?;
        (1..count).try_for_each(|index| match way {
            Way::Https => ground.block_all_but_https(index),
            Way::Quic => ground.block_udp_but_to_server(index),
        })?;
        Ok(ground)
    }

    fn relayed(&self, vpn: &dyn Vpn, way: Way) -> Result<f64> {
        let ground = self.blocked(3, way, None)?;
        ground.limit("1gbit")?;
        let running = Running::start(vpn, &ground.ends)?;
        self.rate(&ground, &running, (1, 2), 1)
    }

    fn rate(
        &self,
        ground: &Ground,
        running: &Running<'_>,
        pair: (usize, usize),
        streams: u32,
    ) -> Result<f64> {
        let (from, to) = pair;
        let hosts = [&ground.ends[from].host, &ground.ends[to].host];
        match load::run(hosts, running.address(to), Load::Tcp(streams), self.seconds)? {
            Outcome::Transfer(transfer) => Ok(transfer.mbit_s()),
            Outcome::Pings(_) => bail!("a transfer yields a rate"),
        }
    }

    fn loaded(&self, way: Way) -> Result<Values> {
        let line = sim::profile::named("baseline").context("a profile")?;
        let line = Impairment { delay_us: 5_000, loss: 0.03, ..line };
        let ground = self.blocked(3, way, Some(line))?;
        let vpn = Network::relayed(&self.warren);
        let running = Running::start(&vpn, &ground.ends)?;
        let hosts = [&ground.ends[1].host, &ground.ends[2].host];
        let ping = || match load::run(hosts, running.address(2), Load::Ping, 1)? {
            Outcome::Pings(times) => middle(times),
            Outcome::Transfer(_) => bail!("pings yield times"),
        };
        let idle = ping()?;
        let loaded = std::thread::scope(|scope| {
            let load = scope.spawn(|| self.rate(&ground, &running, (1, 2), 5));
            std::thread::sleep(Duration::from_millis(1500));
            let loaded = ping();
            joined(load).and(loaded)
        })?;
        let name = if way == Way::Quic { "loaded-quic-ratio" } else { "loaded-ratio" };
        Ok(vec![(name, loaded / idle)])
    }

    fn crowd(&self) -> Result<Values> {
        let warren = self.warren.to_str().context("the program's path is no text")?;
        let found = crowd::measure(warren, &self.prefix, CROWD)?;
        Ok(vec![
            ("crowd-join", found.joined_s),
            ("crowd-back", found.back_s),
            ("crowd-policy", found.change.p99_s),
            ("crowd-meeting", found.meeting.p99_s),
            ("crowd-cpu", found.meeting.cpu_s),
            ("crowd-rss", found.rss_mib),
        ])
    }

    fn pairs(&self, study: Study) -> Result<Values> {
        let Study { pairs: count, relays, rate, cores } = study;
        let first = 1 + relays;
        let ground = self.blocked(first + 2 * count, Way::Https, None)?;
        let vpn = Network::with_relays(&self.warren, relays);
        let running = Running::start(&vpn, &ground.ends)?;
        // The server and its host's node, then a relay and its host's node.
        let relay_cpu_s = || {
            let each = running.each_cpu_s();
            (0..=relays).map(|relay| each[2 * relay]).collect::<Vec<f64>>()
        };
        let before = relay_cpu_s();
        let rates = std::thread::scope(|scope| {
            let ground = &ground;
            let running = &running;
            let pair = |n: usize| (first + 2 * n, first + 2 * n + 1);
            let load = |n| scope.spawn(move || self.rate(ground, running, pair(n), 1));
            let loads: Vec<_> = (0..count).map(load).collect();
            loads.into_iter().map(joined).collect::<Result<Vec<f64>>>()
        })?;
        let all: f64 = rates.iter().sum();
        let spent: Vec<f64> =
            relay_cpu_s().iter().zip(before).map(|(now, before)| now - before).collect();
        let mut values = vec![(rate, all), (cores, spent[0] / f64::from(self.seconds) * 100.0)];
        if relays > 0 {
            let busiest = spent.iter().copied().fold(0.0, f64::max);
            values.push(("share-two", busiest / spent.iter().sum::<f64>() * 100.0));
        } else if count == STUDY[2].pairs {
            let gigabytes = all * 1e6 / 8.0 * f64::from(self.seconds) / 1e9;
            values.push(("relay-cpu", spent[0] / gigabytes));
            values.push(("relay-rss", running.rss_kib()[0] as f64 / 1024.0));
        }
        Ok(values)
    }
}

impl rounds::Step for Step {
    fn title(&self) -> String {
        match self.kind {
            Kind::Join => "joining, resting and starting again".to_owned(),
            Kind::JoinHttps => "joining where only HTTPS passes".to_owned(),
            Kind::Lost => "a direct path is lost".to_owned(),
            Kind::Roam => "an address changes".to_owned(),
            Kind::Relayed(way) => format!("one relayed stream, {way:?}"),
            Kind::Crowd => format!("{CROWD} nodes"),
            Kind::RelayedHeadscale => "one relayed stream, Headscale".to_owned(),
            Kind::Loaded(way) => format!("round trips under relayed streams, {way:?}"),
            Kind::Pairs(Study { pairs, relays, .. }) => {
                format!("relayed pairs: {pairs}, relays: {}", relays + 1)
            }
        }
    }

    fn expected_s(&self) -> f64 {
        let transfer = f64::from(self.seconds) + 3.0;
        match self.kind {
            Kind::Join => REST.as_secs_f64() + 8.0,
            Kind::JoinHttps => 4.0,
            Kind::Lost | Kind::Roam => 8.0,
            Kind::RelayedHeadscale => transfer + 15.0,
            Kind::Crowd => 35.0,
            Kind::Relayed(_) | Kind::Loaded(_) | Kind::Pairs(..) => transfer + 6.0,
        }
    }
}

/// Kills the daemon of host 1 and starts it again: milliseconds until its echo is answered.
fn again(running: &mut Running<'_>) -> Result<f64> {
    running.cut(1)?;
    let begin = Instant::now();
    running.start_member(1)?;
    running.wait_for_echo(1, 2, &[])?;
    Ok(ms(begin.elapsed()))
}

/// What a load's thread measured.
fn joined(load: ScopedJoinHandle<'_, Result<f64>>) -> Result<f64> {
    load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn middle(times: Vec<f64>) -> Result<f64> {
    Ok(crate::ratio::Spread::of(&times).context("echoes")?.median)
}
