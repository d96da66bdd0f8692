//! IPv6 inside a VPN, for whoever carries it.
//!
//! No VPN gets addresses on its wire. Programs that `wg` drives get them as well, and are told that
//! each peer has one more. A VPN that gives its hosts IPv6 addresses of its own keeps those. About
//! all others nothing is said: their adapters give them IPv4, and that is what is measured.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lab::netns::Host;
use lab::sys;

use crate::ground::{Ground, IFNAME};
use crate::vpn::Running;

/// How long an echo may take to come over addresses that were just given.
const ECHO_MAX: Duration = Duration::from_secs(20);

/// The IPv6 address of each host inside the VPN; none where it carries no IPv6 here.
///
/// # Errors
/// It should carry it, and does not.
pub(super) fn give(ground: &Ground, vpn: &Running<'_>) -> Result<Option<Vec<String>>> {
    let count = ground.ends.len();
    let all = |address: &dyn Fn(usize) -> Result<Option<String>>| -> Result<Option<Vec<String>>> {
        (0..count).map(address).collect()
    };
    let own = |i: usize| -> Result<Option<String>> {
        let known = vpn.address(i);
        if known.contains(':') {
            return Ok(Some(known.to_owned()));
        }
        global(&ground.ends[i].host, vpn.ifname(i))
    };
    let addresses = match all(&own)? {
        Some(addresses) => Some(addresses),
        None => all(&|i| given(&ground.ends[i].host, vpn.ifname(i), i))?,
    };
    if let Some(addresses) = &addresses {
        for (i, end) in ground.ends.iter().enumerate() {
            let others = addresses.iter().enumerate().filter(|(other, _)| *other != i);
            for (_, address) in others {
                wait_for_echo(&end.host, address)?;
            }
        }
    }
    Ok(addresses)
}

/// What this interface has already.
fn global(host: &Host, ifname: &str) -> Result<Option<String>> {
    let text = host.run(&["ip", "-o", "-6", "addr", "show", "dev", ifname, "scope", "global"])?;
    let address = text.split_once(" inet6 ").and_then(|(_, rest)| rest.split('/').next());
    Ok(address.map(str::to_owned))
}

/// Gives this host an address, where that is known to be enough.
fn given(host: &Host, ifname: &str, i: usize) -> Result<Option<String>> {
    if ifname != IFNAME {
        let allowed = host.output(&["wg", "show", ifname, "allowed-ips"])?;
        if !allowed.status.success() {
            return Ok(None);
        }
        for words in more_allowed(&String::from_utf8_lossy(&allowed.stdout)) {
            host.sh(&format!("wg set {ifname} {words}")).context("IPv6 for a peer")?;
        }
    }
    let own = inner6(i);
    host.sh(&format!(
        "sysctl -qw net.ipv6.conf.{ifname}.disable_ipv6=0
         ip -6 addr add {own}/64 dev {ifname} nodad"
    ))?;
    Ok(Some(own))
}

fn inner6(i: usize) -> String {
    format!("fd99::{}", i + 1)
}

/// The words for `wg set` that allow each peer an IPv6 address beside its IPv4 address, which ends
/// with the host's number.
fn more_allowed(text: &str) -> Vec<String> {
    let words = |line: &str| {
        let (key, allowed) = line.split_once('\t')?;
        let number: usize = allowed.split(['/', ' ']).next()?.rsplit('.').next()?.parse().ok()?;
        let own = inner6(number.checked_sub(1)?);
        Some(format!("peer {key} allowed-ips {},{own}/128", allowed.trim().replace(' ', ",")))
    };
    text.lines().filter_map(words).collect()
}

fn wait_for_echo(host: &Host, address: &str) -> Result<()> {
    let begin = Instant::now();
    let ping = ["ping", "-6", "-n", "-q", "-c", "1", "-w", "1", "-i", "0.05", address];
    while !host.output(&ping)?.status.success() {
        sys::check_interrupted()?;
        if begin.elapsed() > ECHO_MAX {
            bail!("no echo came over IPv6 from {address} to {} in {ECHO_MAX:?}", host.name());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_is_allowed_the_address_of_its_number() {
        let text = "KEY=\t10.10.0.2/32\nKEY2=\t10.10.0.3/32 10.1.0.0/16\nKEY3=\t(none)\n";
        let words = more_allowed(text);
        assert_eq!(
            words,
            [
                "peer KEY= allowed-ips 10.10.0.2/32,fd99::2/128",
                "peer KEY2= allowed-ips 10.10.0.3/32,10.1.0.0/16,fd99::3/128",
            ]
        );
    }
}
