//! A relay behind a line that loses packets: what a stream inside a stream would suffer from.

use lab::topology::Lab;
use lab::wire::Direction;

use sim::impair::Impairment;

use super::*;

const TOPOLOGY: &str = r#"
[hosts.server]
[hosts.a]
[hosts.b]
[[links]]
between = ["a", "server"]
addresses = [["192.0.2.2/24"], ["192.0.2.1/24"]]
[[links]]
between = ["b", "server"]
addresses = [["198.51.100.2/24"], ["198.51.100.1/24"]]
impair = "rate=1gbit limit=1000 delay=5ms loss=1%"
"#;
const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];
/// The server's end of the line that loses, and b's.
const LINE: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// Bits a second of one TCP stream, or of several.
fn rate(from: &Host, to: &Host, address: &str, streams: &str) -> Result<f64> {
    traffic::tcp(from, to, address, &["-t", "2", "-O", "1", "-C", "cubic", "-P", streams])
}

fn by_the_relay(lan: &mut Lan, lab: &Lab) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    for index in 0..2 {
        lan.nodes[index].host.sh("nft add table inet no
            nft 'add chain inet no leaving { type filter hook output priority 0; }'
            nft add rule inet no leaving oifname eth0 meta l4proto udp drop")?;
        lan.up(index, &token, &[])?;
    }
    lan.reaches(0, INSIDE[1])?;
    ensure!(lan.status(0)?["peers"][0]["path"]["kind"] == "relay");
    let [a, b] = [&lan.nodes[0].host, &lan.nodes[1].host];
    let plain = rate(&lan.server, b, LINE[1], "1")?;
    let [to, from] = [rate(a, b, INSIDE[1], "1")?, rate(b, a, INSIDE[0], "1")?];
    eprintln!(
        "1 % lost: {:.0} and {:.0} Mbit/s by the relay, {:.0} of a plain stream on that line",
        to / 1e6,
        from / 1e6,
        plain / 1e6
    );
    ensure!(to.min(from) > 2.0 * plain, "it collapses as streams in streams do");
    // Five streams, and what an application then waits for.
    let wire = lab.wire("b-server")?;
    for direction in [Direction::Forth, Direction::Back] {
        wire.impair(direction, Impairment { loss: 0.03, ..wire.impairment(direction) })?;
    }
    let idle = pings(a)?;
    let (sender, receiver) = (a.clone(), b.clone());
    let load = std::thread::spawn(move || rate(&sender, &receiver, INSIDE[1], "5"));
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let loaded = pings(a)?;
    let five = inside::join(load)?;
    eprintln!("3 % lost, five streams: {:.0} Mbit/s, {loaded:.1} ms after {idle:.1}", five / 1e6);
    ensure!(loaded <= 10.0 * idle, "{loaded} ms under load, {idle} ms without");
    Ok(())
}

/// The median round trip inside, in milliseconds.
fn pings(from: &Host) -> Result<f64> {
    let pings = traffic::Pinger::start(from, INSIDE[1], 20)?;
    std::thread::sleep(seconds(2));
    Ok(pings.stop()?.quantile_ms(0.5))
}

#[test]
fn source_000_16_loss_before_the_relay_does_not_collapse_what_it_carries() -> Result<()> {
    let _turn = turn::alone();
    let lab = lab_of("lossy", TOPOLOGY, "lossy.toml")?;
    let node = |name: &str| -> Result<Node> { Ok(Node::new(name, lab.host(name)?)) };
    let nodes = ["a", "b"].into_iter().map(node).collect::<Result<_>>()?;
    let place = ["0.0.0.0:443", "https://server", "0.0.0.0:3478"].map(str::to_owned);
    let mut lan = Lan::on("lossy", lab.host("server")?.clone(), Place(place), nodes)?;
    let result = by_the_relay(&mut lan, &lab);
    lan.told(result)
}
