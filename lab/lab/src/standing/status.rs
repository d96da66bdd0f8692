//! The status of a standing lab: for people, and with stable names for programs.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sim::impair::LossModel;

use crate::wire::{Direction, Wire};

/// A standing lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Version of this schema.
    pub version: u32,
    /// Its name.
    pub lab: String,
    /// Hosts, routers and switches.
    pub hosts: Vec<HostStatus>,
    /// Links, wires among them.
    pub links: Vec<LinkStatus>,
}

/// One host, router or switch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// `host`, `router` or `switch`.
    pub kind: String,
    /// Its network namespace.
    pub namespace: String,
    /// Its addresses, with prefix, each after its interface: `eth0 10.71.1.1/24`.
    pub addresses: Vec<String>,
}

/// One link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its ends, `host:interface`.
    pub between: [String; 2],
    /// What the wire does, if it is one.
    pub wire: Option<WireStatus>,
}

/// One impaired wire.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireStatus {
    /// The link's name.
    pub link: String,
    /// Processor time its pump has used, seconds.
    pub cpu_s: f64,
    /// From the first end to the second.
    pub forth: DirectionStatus,
    /// From the second end to the first.
    pub back: DirectionStatus,
}

/// One direction of a wire: its weather, then its counters, in frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of sim::impair and lab::wire")]
pub struct DirectionStatus {
    pub delay_us: u64,
    pub jitter_us: u64,
    pub loss: f64,
    pub burst_packets: f64,
    pub reorder: f64,
    pub reorder_correlation: f64,
    pub duplicate: f64,
    pub rate_bps: u64,
    pub limit_packets: usize,
    pub offered: u64,
    pub delivered: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicated: u64,
    pub queue_dropped: u64,
    pub bytes: u64,
    pub oversize: u64,
    pub no_room: u64,
    pub refused: u64,
}

impl Status {
    /// The same for programs; names and meanings stay while `version` stays.
    ///
    /// # Errors
    /// Returns the serializer's refusal.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

impl WireStatus {
    pub(super) fn of_all(wires: &[(String, Wire)]) -> Vec<Self> {
        let of = |(name, wire): &(String, Wire)| Self {
            link: name.clone(),
            cpu_s: wire.cpu_s(),
            forth: DirectionStatus::of(wire, Direction::Forth),
            back: DirectionStatus::of(wire, Direction::Back),
        };
        wires.iter().map(of).collect()
    }
}

impl DirectionStatus {
    fn of(wire: &Wire, direction: Direction) -> Self {
        let (i, t) = (wire.impairment(direction), wire.tally(direction));
        let burst_packets = match i.loss_model {
            LossModel::Bernoulli => 1.0,
            LossModel::GilbertElliott { burst_packets, .. } => burst_packets,
        };
        Self {
            delay_us: i.delay_us,
            jitter_us: i.jitter_us,
            loss: i.loss,
            burst_packets,
            reorder: i.reorder,
            reorder_correlation: i.reorder_correlation,
            duplicate: i.duplicate,
            rate_bps: i.rate_bps,
            limit_packets: i.limit_packets,
            offered: t.model.offered,
            delivered: t.model.delivered,
            lost: t.model.lost,
            reordered: t.model.reordered,
            duplicated: t.model.duplicated,
            queue_dropped: t.model.queue_dropped,
            bytes: t.model.bytes,
            oversize: t.oversize,
            no_room: t.no_room,
            refused: t.refused,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lab {}", self.lab)?;
        for host in &self.hosts {
            let HostStatus { name, kind, addresses, .. } = host;
            writeln!(f, "  {kind:<7} {name:<16} {}", addresses.join(", "))?;
        }
        for link in &self.links {
            let kind = if link.wire.is_some() { "wire" } else { "link" };
            writeln!(f, "  {kind:<7} {:<16} {}", link.name, link.between.join(" -- "))?;
            let directions =
                link.wire.iter().flat_map(|w| [("forth", &w.forth), ("back", &w.back)]);
            for (word, direction) in directions {
                writeln!(f, "          {word:<5} {direction}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for DirectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (delay, jitter) = (self.delay_us as f64 / 1e3, self.jitter_us as f64 / 1e3);
        let rate = self.rate_bps as f64 / 1e6;
        write!(f, "{rate} Mbit/s, {delay} ± {jitter} ms, ")?;
        write!(f, "loss {} %, reorder {} %: ", self.loss * 100.0, self.reorder * 100.0)?;
        write!(f, "{} offered, {} delivered, ", self.offered, self.delivered)?;
        write!(f, "{} lost, {} reordered, ", self.lost, self.reordered)?;
        write!(f, "{} dropped from the queue", self.queue_dropped)
    }
}
