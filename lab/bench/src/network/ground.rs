//! The ground of a network: a server's host and others, all on one switch.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::netns::{Host, Net};
use lab::wire::{Config, Wire};
use sim::impair::Impairment;

use crate::ground::{self, IFNAME};
use crate::vpn::End;

/// Hosts; everything is removed on drop.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) ends: Vec<End>,
    shared: PathBuf,
    hub: Host,
    _wire: Option<Wire>,
    _net: Net,
}

impl Ground {
    /// `count` hosts, of which the first will have the server. The last one's line is impaired if
    /// that is asked for.
    pub(super) fn lay(prefix: &str, count: usize, last: Option<Impairment>) -> Result<Self> {
        let names: Vec<String> = (0..count).map(|index| format!("h{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (mut net, hosts, shared) = ground::hosts(prefix, &names)?;
        let hub = net.host("hub")?;
        hub.sh("ip link add br0 type bridge && ip link set br0 up")?;
        let mut wire = None;
        for (index, host) in hosts.iter().enumerate() {
            let address = format!("{}/24", outer(index));
            let port = format!("p{index}");
            match last.filter(|_| index + 1 == count) {
                None => net.veth((&hub, &port, &[]), (host, IFNAME, &[&address]))?,
                Some(impairment) => {
                    let config = Config::between((&hub, &port), (host, IFNAME), impairment);
                    wire = Some(Wire::start(config)?);
                    hub.bring_up(&port, &[])?;
                    host.bring_up(IFNAME, &[&address])?;
                    host.wait_until_ready(IFNAME)?;
                }
            }
            hub.sh(&format!("ip link set {port} master br0"))?;
        }
        let ends = ground::ends(hosts, &shared, outer);
        Ok(Self { ends, shared, hub, _wire: wire, _net: net })
    }

    /// Nothing leaves or enters a host but TCP to or from port 443, and ARP.
    pub(super) fn block_all_but_https(&self, index: usize) -> Result<()> {
        // Rules of what may, for nft makes one comparison of two that are beside each other.
        let rules = ["leaving oifname", "coming iifname"].map(|place| {
            let rule = |what: &str| format!("nft add rule inet bench {place} {IFNAME} {what}\n");
            ["tcp dport 443 accept", "tcp sport 443 accept", "drop"].map(rule).concat()
        });
        self.refuse(index, &rules.concat())
    }

    /// No UDP in or out of a host.
    pub(super) fn block_udp(&self, index: usize) -> Result<()> {
        self.refuse(index, &Self::no_udp("", ""))
    }

    /// No UDP in or out of a host, but for what it and the server's host say to each other.
    pub(super) fn block_udp_but_to_server(&self, index: usize) -> Result<()> {
        let server = outer(0);
        let [leaving, coming] = ["daddr", "saddr"].map(|end| format!("ip {end} != {server}"));
        self.refuse(index, &Self::no_udp(&leaving, &coming))
    }

    fn no_udp(leaving: &str, coming: &str) -> String {
        format!(
            "nft add rule inet bench leaving oifname {IFNAME} {leaving} meta l4proto udp drop
             nft add rule inet bench coming iifname {IFNAME} {coming} meta l4proto udp drop"
        )
    }

    fn refuse(&self, index: usize, rules: &str) -> Result<()> {
        self.ends[index].host.sh(&format!(
            "nft add table inet bench
             nft 'add chain inet bench leaving {{ type filter hook output priority 0; }}'
             nft 'add chain inet bench coming {{ type filter hook input priority 0; }}'
             {rules}"
        ))?;
        Ok(())
    }

    /// Every host's line carries so much each way, and what waits before it waits for 20 ms.
    pub(super) fn limit(&self, rate: &str) -> Result<()> {
        let shape = |device: &str| {
            format!("tc qdisc replace dev {device} root tbf rate {rate} burst 128k latency 20ms")
        };
        for (index, end) in self.ends.iter().enumerate() {
            end.host.sh(&shape(IFNAME))?;
            self.hub.sh(&shape(&format!("p{index}")))?;
        }
        Ok(())
    }

    /// Gives a host another address, as a change of network does: the old one goes first, for with
    /// the first of a subnet the kernel takes all others.
    pub(super) fn move_host(&self, index: usize) -> Result<()> {
        self.ends[index].host.sh(&format!(
            "ip address del {}/24 dev {IFNAME} && ip address add 10.30.0.{}/24 dev {IFNAME}",
            self.ends[index].outer,
            100 + index
        ))?;
        Ok(())
    }

    /// The longest time without an answer at `address`, asked every 10 ms from a host, while
    /// `change` happens; milliseconds.
    pub(super) fn outage_ms(
        &self,
        from: usize,
        address: &str,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<f64> {
        let ping = ["ping", "-n", "-i", "0.01", "-W", "1", address];
        let asking = self.ends[from].host.spawn(&ping)?;
        std::thread::sleep(Duration::from_millis(500));
        change()?;
        std::thread::sleep(Duration::from_secs(4));
        asking.signal(2)?;
        asking.wait(Duration::from_secs(5))?;
        longest_gap(&asking.log()).map(|missing| missing as f64 * 10.0)
    }
}

/// A host's address on the ground.
fn outer(index: usize) -> String {
    format!("10.30.0.{}", index + 1)
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.shared);
    }
}

/// How many numbers are missing in a row at most, between two that were answered.
fn longest_gap(log: &str) -> Result<u64> {
    let number = |line: &str| {
        let (_, rest) = line.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    let mut answered: Vec<u64> =
        log.lines().filter(|line| line.contains(" time=")).filter_map(number).collect();
    answered.sort_unstable();
    let gaps = answered.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1));
    let longest = gaps.max().context("too few echoes were answered")?;
    let sent = log.lines().rev().find_map(|line| line.split_once(" packets transmitted"));
    let sent: u64 = sent.and_then(|(count, _)| count.trim().parse().ok()).context("a summary")?;
    // Nothing came any more: the outage had no end while it was watched.
    let unanswered = sent.saturating_sub(answered.last().copied().unwrap_or_default());
    Ok(longest.max(unanswered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_counts_also_at_the_end() {
        let line = |n: u64| format!("64 bytes from 1.2.3.4: icmp_seq={n} ttl=64 time=0.1 ms\n");
        let log = |seen: &[u64], sent: u64| {
            let lines: String = seen.iter().map(|n| line(*n)).collect();
            format!("{lines}\n--- ping ---\n{sent} packets transmitted, 9 received\n")
        };
        assert_eq!(longest_gap(&log(&[1, 2, 3, 9, 10], 10)).ok(), Some(5));
        assert_eq!(longest_gap(&log(&[1, 2, 3], 50)).ok(), Some(47));
        assert_eq!(longest_gap(&log(&[1, 2, 3], 3)).ok(), Some(0));
        assert!(longest_gap(&log(&[1], 9)).is_err());
    }
}
