//! WireGuard in WireGuard in WireGuard: the client has one interface toward each hop, each through
//! the one before, and every hop gives what it decrypts its own address.

use std::time::Duration;

use anyhow::Result;

use super::chain::{Chain, SERVER};
use super::running::{Inside, Running, program, until};

const PORT: u16 = 51_820;
/// Each layer costs 60 bytes.
const MTU: [u32; 3] = [1_440, 1_380, 1_320];
/// Where each hop is reached.
const HOPS: [&str; 3] = ["10.10.1.2", "10.10.2.2", "10.10.3.2"];

pub(super) fn start(chain: &Chain) -> Result<Running> {
    let go = program("wireguard-go")?;
    let mut running = Running::new(Inside::Client);
    let client = chain.client();
    for (i, at) in HOPS.into_iter().enumerate() {
        let hop = &chain.hosts[i + 1];
        let own = format!("c{}", i + 1);
        let theirs = "wg0";
        for (host, name, role) in [(hop, theirs, i + 1), (client, &own[..], 0)] {
            running.roles[role].push(host.spawn(&[&go, "-f", name])?);
            until("its interface", Duration::from_secs(10), || {
                Ok(host
                    .sh(&format!("test -S /run/wireguard/{name}.sock && ip link show {name}"))
                    .is_ok())
            })?;
        }
        let key = |host: &lab::netns::Host, name: &str| {
            host.sh(&format!(
                "umask 077; wg genkey > /run/{name}.key; wg set {name} private-key /run/{name}.key
                 wg pubkey < /run/{name}.key"
            ))
        };
        let hop_key = key(hop, theirs)?;
        let own_key = key(client, &own)?;
        let net = 51 + i;
        hop.sh(&format!(
            "wg set {theirs} listen-port {PORT} peer {} allowed-ips 10.{net}.0.2/32
             ip addr add 10.{net}.0.1/24 dev {theirs} && ip link set {theirs} mtu {} up
             nft add table ip nest
             nft 'add chain ip nest out {{ type nat hook postrouting priority srcnat; }}'
             nft add rule ip nest out ip saddr 10.{net}.0.0/24 oifname != {theirs} masquerade",
            own_key.trim(),
            MTU[i]
        ))?;
        let next = HOPS.get(i + 1).copied().unwrap_or(SERVER);
        client.sh(&format!(
            "wg set {own} peer {} endpoint {at}:{PORT} allowed-ips 0.0.0.0/0
             ip addr add 10.{net}.0.2/24 dev {own} && ip link set {own} mtu {} up
             ip route replace {next}/32 dev {own}",
            hop_key.trim(),
            MTU[i]
        ))?;
    }
    let ping = format!("ping -n -q -c 1 -W 1 {SERVER}");
    until("an echo through three", Duration::from_secs(30), || Ok(client.sh(&ping).is_ok()))?;
    Ok(running)
}
