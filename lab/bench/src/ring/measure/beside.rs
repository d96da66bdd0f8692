//! Pings beside a load: ten a second, for as long as it takes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::Process;

use super::{Scene, p99};
use crate::load;
use crate::ping;

/// Time between two of them.
const EVERY_S: f64 = 0.1;
/// What they may take beyond the load's time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pings under way.
#[derive(Debug)]
pub(super) struct Ping {
    process: Process,
    asked: u32,
}

/// Their round trips, microseconds.
#[derive(Debug)]
pub(super) struct Told {
    times: Vec<f64>,
    asked: u32,
}

impl Ping {
    pub(super) fn start(scene: &Scene<'_>, from: usize, to: usize) -> Result<Self> {
        let asked = (f64::from(scene.seconds) / EVERY_S) as u32;
        let count = asked.to_string();
        let every = EVERY_S.to_string();
        let address = scene.vpn.address(to);
        let argv = ["ping", "-n", "-c", &count, "-i", &every, "-W", "1", address];
        let process = scene.host(from).spawn(&argv).context("install the package iputils-ping")?;
        Ok(Self { process, asked })
    }

    /// Waits for their end, where the load took so many seconds.
    pub(super) fn finish(self, seconds: u32) -> Result<Told> {
        let limit = Duration::from_secs(seconds.into()) + PATIENCE;
        let times = ping::answers(&load::finish(&self.process, limit)?);
        Ok(Told { times, asked: self.asked })
    }
}

impl Told {
    pub(super) fn put(self, scene: &mut Scene<'_>) {
        let asked = f64::from(self.asked.max(1));
        let times = self.times;
        scene.put("loaded_lost_percent", (1.0 - times.len() as f64 / asked).max(0.0) * 100.0);
        if !times.is_empty() {
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            scene.put("loaded_rtt_mean_ms", mean / 1e3);
            scene.put("loaded_rtt_p99_ms", p99(&times) / 1e3);
        }
        scene.outcome.series.insert("loaded_rtt_us".to_owned(), times);
    }
}
