//! The status of a standing lab: for people, and with stable names for programs.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sim::impair::LossModel;

use crate::wire::{Direction, Wire};

/// A standing lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Version of this schema, as every `--json` has it.
    pub schema: u32,
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
    /// What limits both ways, in the words of `tc`'s tbf, if anything does.
    #[serde(default)]
    pub shape: Option<String>,
    /// What the wire does, if it is one.
    pub wire: Option<WireStatus>,
}

/// One impaired wire.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireStatus {
    /// The link's name.
    pub link: String,
    /// Decides all of its chance.
    #[serde(default)]
    pub seed: u64,
    /// Processor time its pump has used, seconds.
    pub cpu_s: f64,
    /// From the first end to the second.
    pub forth: DirectionStatus,
    /// From the second end to the first.
    pub back: DirectionStatus,
}

/// One direction of a wire: its weather, then its counters, in frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of sim::impair and lab::wire")]
pub struct DirectionStatus {
    pub delay_us: u64,
    pub jitter_us: u64,
    pub handover_us: u64,
    pub swing_us: u64,
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
    /// The same for programs; names and meanings stay while `schema` stays.
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
            seed: wire.seed(),
            cpu_s: wire.cpu_s(),
            forth: DirectionStatus::of(wire, Direction::Forth),
            back: DirectionStatus::of(wire, Direction::Back),
        };
        wires.iter().map(of).collect()
    }
}

impl DirectionStatus {
    fn of(wire: &Wire, direction: Direction) -> Self {
        let i = wire.impairment(direction);
        let t = wire.tally(direction);
        let burst_packets = match i.loss_model {
            LossModel::Bernoulli => 1.0,
            LossModel::GilbertElliott { burst_packets, .. } => burst_packets,
        };
        Self {
            delay_us: i.delay_us,
            jitter_us: i.jitter_us,
            handover_us: i.handover_us,
            swing_us: i.swing_us,
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
            writeln!(f, "  {kind:<7} {name:<16} {}", by_interface(addresses))?;
        }
        for link in &self.links {
            let kind = if link.wire.is_some() { "wire" } else { "link" };
            write!(f, "  {kind:<7} {:<16} {}", link.name, link.between.join(" -- "))?;
            if let Some(shape) = &link.shape {
                write!(f, ", {}", shaped(shape))?;
            }
            let Some(wire) = &link.wire else {
                writeln!(f)?;
                continue;
            };
            writeln!(f, ", seed {}", wire.seed)?;
            for (word, direction) in [("forth", &wire.forth), ("back", &wire.back)] {
                writeln!(f, "          {word:<5} {}", direction.weather())?;
                writeln!(f, "                {}", direction.counts())?;
            }
        }
        Ok(())
    }
}

/// Addresses, each interface told once: `eth0 10.0.0.2/24 fd00::2/64, eth1 10.0.1.1/24`.
fn by_interface(addresses: &[String]) -> String {
    let mut text = String::new();
    let mut last = "";
    for (interface, address) in addresses.iter().filter_map(|one| one.split_once(' ')) {
        if interface != last {
            text += if text.is_empty() { "" } else { ", " };
            text += interface;
            last = interface;
        }
        text += " ";
        text += address;
    }
    text
}

/// The words of `tc`'s tbf, for people.
fn shaped(shape: &str) -> String {
    let number = |word: &str, unit: &str| word.strip_suffix(unit)?.parse::<f64>().ok();
    let read = match shape.split(' ').collect::<Vec<_>>()[..] {
        ["rate", rate, "burst", burst, "latency", latency] => {
            number(rate, "bit").zip(number(latency, "us")).map(|(rate, latency)| {
                let rate_mbit_s = rate / 1e6;
                let queue_ms = latency / 1e3;
                format!("{rate_mbit_s} Mbit/s in bursts of {burst}, a queue of {queue_ms} ms")
            })
        }
        _ => None,
    };
    read.unwrap_or_else(|| shape.to_owned())
}

impl DirectionStatus {
    /// What happens to packets, as `impair` takes it; what does not happen is left out.
    fn weather(&self) -> String {
        let ms = |us: u64| us as f64 / 1e3;
        let percent = |share: f64| (share * 1e6).round() / 1e4;
        let mut said = Vec::new();
        if self.rate_bps > 0 {
            let rate = self.rate_bps as f64 / 1e6;
            said.push(format!("{rate} Mbit/s, queue {}", self.limit_packets));
        }
        match (self.delay_us, self.jitter_us) {
            (0, 0) => {}
            (delay, 0) => said.push(format!("{} ms", ms(delay))),
            (delay, jitter) => said.push(format!("{} ± {} ms", ms(delay), ms(jitter))),
        }
        if self.swing_us > 0 {
            let handover_s = self.handover_us as f64 / 1e6;
            said.push(format!("± {} ms more at each handover, {handover_s} s", ms(self.swing_us)));
        }
        if self.loss > 0.0 {
            let lost = format!("{} % lost", percent(self.loss));
            let in_a_row =
                (self.burst_packets > 1.0).then(|| format!(" ({} in a row)", self.burst_packets));
            said.push(lost + &in_a_row.unwrap_or_default());
        }
        if self.reorder > 0.0 {
            let correlation = percent(self.reorder_correlation);
            let at_once = percent(self.reorder);
            said.push(format!("{at_once} % at once (correlation {correlation} %)"));
        }
        if self.duplicate > 0.0 {
            said.push(format!("{} % twice", percent(self.duplicate)));
        }
        if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
    }

    /// What happened to packets.
    fn counts(&self) -> String {
        format!(
            "{} offered, {} delivered, {} lost, {} reordered, {} dropped from the queue",
            self.offered, self.delivered, self.lost, self.reordered, self.queue_dropped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_the_version_of_the_form_where_every_answer_has_it() {
        let status = Status { schema: 1, lab: "x".to_owned(), hosts: vec![], links: vec![] };
        let told: serde_json::Value = serde_json::from_str(&status.to_json().unwrap()).unwrap();
        assert_eq!(told, serde_json::json!({ "schema": 1, "lab": "x", "hosts": [], "links": [] }));
    }

    #[test]
    fn a_person_reads_each_interface_once_and_all_of_the_weather() {
        let told = ["eth0 10.0.0.2/24", "eth0 fd00::2/64", "eth1 10.0.1.1/24"].map(str::to_owned);
        assert_eq!(by_interface(&told), "eth0 10.0.0.2/24 fd00::2/64, eth1 10.0.1.1/24");
        let low = DirectionStatus {
            delay_us: 2_000,
            jitter_us: 2_000,
            loss: 0.0025,
            burst_packets: 4.0,
            reorder: 0.005,
            reorder_correlation: 0.25,
            rate_bps: 1_000_000_000,
            limit_packets: 1_000,
            ..DirectionStatus::default()
        };
        let said = "1000 Mbit/s, queue 1000, 2 ± 2 ms, 0.25 % lost (4 in a row), 0.5 % at once \
                    (correlation 25 %)";
        assert_eq!(low.weather(), said);
        assert_eq!(DirectionStatus::default().weather(), "nothing");
        let link = LinkStatus {
            name: "dsl".to_owned(),
            between: ["a:eth0", "b:eth0"].map(str::to_owned),
            shape: Some("rate 20000000bit burst 32kb latency 50000us".to_owned()),
            wire: None,
        };
        let wire = LinkStatus {
            shape: None,
            wire: Some(WireStatus {
                link: "dsl".to_owned(),
                seed: 7,
                cpu_s: 0.0,
                back: DirectionStatus::default(),
                forth: low,
            }),
            ..link.clone()
        };
        let links = vec![link, wire];
        let text = Status { schema: 1, lab: "x".to_owned(), hosts: vec![], links }.to_string();
        let dsl = "a:eth0 -- b:eth0, 20 Mbit/s in bursts of 32kb, a queue of 50 ms\n";
        assert!(text.contains(dsl), "{text}");
        assert!(text.contains("b:eth0, seed 7\n          forth 1000 Mbit/s"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
