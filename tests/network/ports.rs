//! Ports of gateways: a real miniupnpd makes a way through a NAT that has none, and a gateway that
//! means no good gets nothing for it.

use lab::process::Process;

use super::*;

const TOPOLOGY: &str = include_str!("ports.toml");
const EVIL: &str = include_str!("evil.py");
const A: usize = 0;
const B: usize = 1;
/// Where miniupnpd puts its rules.
const TABLE: &str = "table inet upnp {
  chain forward { type filter hook forward priority -5; }
  chain prerouting { type nat hook prerouting priority -110; }
  chain postrouting { type nat hook postrouting priority 110; }
}";

/// Starts miniupnpd on a gateway whose inside is eth0.
fn miniupnpd(gateway: &Host, more: &str) -> Result<Process> {
    let config = format!(
        "ext_ifname=eth1\nlistening_ip=eth0\nsecure_mode=yes\nuuid=00000000-0000-4000-8000-\
         000000000001\nupnp_table_name=upnp\nupnp_nat_table_name=upnp\nupnp_forward_chain=forward\n\
         upnp_nat_chain=prerouting\nupnp_nat_postrouting_chain=postrouting\n{more}\n\
         allow 1024-65535 192.168.1.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n"
    );
    std::fs::write(gateway.etc().join("upnp.conf"), config)?;
    std::fs::write(gateway.etc().join("upnp.nft"), TABLE)?;
    gateway.sh("nft delete table inet upnp 2>/dev/null || true; nft -f /etc/upnp.nft")?;
    let process = gateway.spawn(&["miniupnpd", "-d", "-f", "/etc/upnp.conf", "-P", "/run/upnp"])?;
    process.wait_for(|log| log.contains("HTTP listening on port"))?;
    Ok(process)
}

/// Until both ends say that they speak in this way.
fn both(lan: &Lan, kind: &str) -> Result<std::time::Duration> {
    let way = |index: usize| lan.status(index).map(|status| status["peers"][0]["path"].clone());
    let is_so = |index: usize| way(index).is_ok_and(|path| path["kind"] == kind);
    eventually(&format!("both are {kind}"), seconds(PATIENCE), || {
        // From the one that was just started: it may begin a handshake at once.
        let _ = lan.nodes[B].host.sh("ping -c 1 -W 0.2 100.64.0.1");
        is_so(A) && is_so(B)
    })
}

/// Until the gateway of `index` has given a port by `protocol`.
fn mapped(lan: &Lan, index: usize, protocol: &str) -> Result<Value> {
    let mapping = || lan.status(index).map(|status| status["port_mapping"].clone());
    eventually(&format!("a port by {protocol}"), seconds(PATIENCE), || {
        mapping().is_ok_and(|mapping| mapping["protocol"] == protocol)
    })
    .with_context(|| format!("{:?}", mapping()))?;
    mapping()
}

fn rules(gateway: &Host) -> Result<String> {
    gateway.sh("nft list chain inet upnp prerouting")
}

#[test]
fn nt_09_a_port_of_the_gateway_makes_a_direct_path_and_a_hostile_gateway_none() -> Result<()> {
    let _turn = turn::shared();
    let lab = lab_of("ports", TOPOLOGY, "ports.toml")?;
    let evil = lab.host("gw-a")?.spawn(&["python3", "-c", EVIL, "11.72.0.1:80"])?;
    // Counts who comes to the place that the hostile gateway names.
    let victim = lab.host("server")?;
    victim.sh("nft add table inet victim
         nft 'add chain inet victim in { type filter hook input priority 0; }'
         nft add rule inet victim in tcp dport 80 counter reject")?;
    let node = |name: &str| -> Result<Node> { Ok(Node::new(name, lab.host(name)?)) };
    let place = ["11.72.0.1:443", "https://11.72.0.1", "11.72.0.1:3478"].map(str::to_owned);
    let server = victim.clone();
    let mut lan = Lan::on("ports", server, Place(place), vec![node("a")?, node("b")?])?;
    let result = through(&mut lan, lab.host("gw-b")?);
    lan.told(result)?;

    refused(&lan, &evil, "169.254.169.254")?;
    drop(evil);
    let evil = lab.host("gw-a")?.spawn(&["python3", "-c", EVIL, "11.72.0.1:80", "old"])?;
    lan.nodes[A].daemon.as_mut().context("it runs")?.end()?;
    lan.daemon(A)?;
    refused(&lan, &evil, "10.0.0.1")?;
    let came = victim.sh("nft list chain inet victim in")?;
    ensure!(came.contains("packets 0"), "nobody is sent elsewhere: {came}");
    Ok(())
}

/// Until `a` has told why it takes nothing from its gateway, which named an `address`.
fn refused(lan: &Lan, evil: &Process, address: &str) -> Result<()> {
    let mapping = || lan.status(A).map(|status| status["port_mapping"].clone());
    eventually("a gateway that is not believed", seconds(PATIENCE), || {
        let trouble = mapping().map(|mapping| mapping["trouble"].to_string());
        trouble.is_ok_and(|trouble| trouble.contains(address) && trouble.contains("UPnP"))
    })
    .with_context(|| format!("{:?}", mapping()))?;
    ensure!(mapping()?["external"].is_null(), "{}", mapping()?);
    let said = ["lifetime 3600", "SSDP", "lifetime 0"];
    eventually("what is of no use is given back", seconds(PATIENCE), || {
        let asked = evil.log();
        said.iter().all(|words| asked.contains(words))
    })
    .with_context(|| evil.log())?;
    Ok(())
}

/// By each protocol in turn, with what is left after each end.
fn through(lan: &mut Lan, gateway: &Host) -> Result<()> {
    let upnp = miniupnpd(gateway, "enable_natpmp=yes\nenable_upnp=yes")?;
    let token = lan.token(&["--reusable"])?;
    // Who wants none has none, and then there is no way but the relay's.
    lan.daemon_with(B, &["--no-port-mapping"])?;
    lan.all_up(&token)?;
    eprintln!("by the relay after {:?}", both(lan, "relay")?);
    std::thread::sleep(seconds(1));
    both(lan, "relay")?;
    ensure!(lan.status(B)?["port_mapping"].is_null(), "none is wanted");
    lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
    lan.daemon(B)?;
    let mapping = mapped(lan, B, "pcp")?;
    let external = mapping["external"].as_str().unwrap_or_default().to_owned();
    ensure!(external.starts_with("11.72.0.3:"), "{mapping}");
    ensure!(rules(gateway)?.contains("192.168.1.2:41820"), "{}", rules(gateway)?);
    eprintln!("direct by PCP after {:?}", both(lan, "direct")?);
    let seen = lan.status(A)?["peers"][0]["path"]["endpoint"].clone();
    ensure!(seen == external, "a sends to {seen}");
    let check: Value = serde_json::from_str(&lan.node(B, &["netcheck", "--json"])?)?;
    ensure!(check["port_mapping"]["external"] == external, "{check}");

    // Killed, it left its mapping, which the next one takes over.
    lan.nodes[B].daemon.as_mut().context("it runs")?.kill()?;
    ensure!(rules(gateway)?.contains("41820"), "{}", rules(gateway)?);
    lan.daemon(B)?;
    let mapping = mapped(lan, B, "pcp")?;
    ensure!(mapping["external"] == external, "{mapping}");
    eprintln!("direct after a kill {:?}", both(lan, "direct")?);
    lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
    ensure!(!rules(gateway)?.contains("41820"), "given back at the end: {}", rules(gateway)?);

    drop(upnp);
    let _upnp = miniupnpd(gateway, "enable_natpmp=no\nenable_upnp=yes")?;
    lan.daemon(B)?;
    mapped(lan, B, "upnp")?;
    eprintln!("direct by UPnP after {:?}", both(lan, "direct")?);
    lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
    ensure!(!rules(gateway)?.contains("41820"), "given back at the end: {}", rules(gateway)?);
    Ok(())
}
