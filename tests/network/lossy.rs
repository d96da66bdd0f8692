//! Lines that lose packets: before a relay, where a stream inside a stream would suffer, and
//! between two nodes, where people want to see it.

use lab::wire::Direction;

use sim::impair::Impairment;

use super::*;

/// Two nodes, each with a line of its own to the server; what follows is said of b's.
const HOSTS: &str = r#"
[hosts.server]
[hosts.a]
[hosts.b]
[[links]]
between = ["a", "server"]
addresses = [["192.0.2.2/24"], ["192.0.2.1/24"]]
[[links]]
between = ["b", "server"]
addresses = [["198.51.100.2/24"], ["198.51.100.1/24"]]
"#;
const LOSSY: &str = r#"impair = "rate=1gbit limit=1000 delay=5ms loss=1%""#;
/// And a line between the two.
const WEATHER: &str = r#"
[[links]]
between = ["a", "b"]
addresses = [["203.0.113.1/24"], ["203.0.113.2/24"]]
impair = "rate=300mbit limit=5000 delay=4ms jitter=2ms loss=2%"
"#;
/// Or one that any stream fills.
const NARROW: &str = r#"
[[links]]
between = ["a", "b"]
addresses = [["203.0.113.1/24"], ["203.0.113.2/24"]]
impair = "rate=100mbit limit=170 delay=2ms"
"#;
const PLACE: [&str; 3] = ["0.0.0.0:443", "https://server", "0.0.0.0:3478"];
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
    let lab = lab_of("lossy", &format!("{HOSTS}{LOSSY}"), "lossy.toml")?;
    let mut lan = Lan::in_lab("lossy", &lab, &["a", "b"], PLACE)?;
    let result = by_the_relay(&mut lan, &lab);
    lan.told(result)
}

/// A number of a link's JSON.
fn number(link: &Value, pointer: &str) -> Result<f64> {
    link.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("{pointer} of {link}"))
}

fn what_is_shown(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    lan.reaches(0, INSIDE[1])?;
    lan.direct(0)?;
    let first = rate(&lan.nodes[0].host, &lan.nodes[1].host, INSIDE[1], "1")?;
    // 22 to 30 while a new path was believed to lose nothing, 242 since.
    eprintln!("just after the path became direct: {:.0} Mbit/s", first / 1e6);
    ensure!(first > 60e6, "{first} bit/s: is the new path repaired?");
    let (out, inward) = (lan.status(0)?, lan.status(1)?);
    let (out, inward) = (&out["peers"][0]["link"], &inward["peers"][0]["link"]);
    // Outwards, what met a full queue is not counted as weather: the stream fills the line.
    for (link, way, least) in [(out, "/out", 0.004), (inward, "/in", 0.012)] {
        let [before, after] =
            ["before", "after"].map(|when| number(link, &format!("{way}/loss_{when}")));
        let (before, after) = (before?, after?);
        eprintln!("{way}: {before:.4} before, {after:.5} after");
        ensure!((least..0.03).contains(&before) && after < before / 4.0, "{way} of {link}");
        ensure!(number(link, &format!("{way}/reorder_ms"))? > 0.5, "{way} of {link}");
    }
    ensure!((0.03..0.5).contains(&number(out, "/repair/ratio")?), "{out}");
    ensure!(
        out["repair"]["state"] == "on"
            && out["repair"]["why"] == "the path loses datagrams at random",
        "{out}"
    );
    ensure!(number(out, "/chunk_bytes")? > 1_000.0, "{out}");
    ensure!(number(inward, "/in/order_waited")? > 0.0, "{inward}");
    let is_on = |link: &Value| link["order"]["state"].as_str().is_some_and(|s| s.starts_with("on"));
    ensure!(is_on(inward), "{inward}");
    ensure!(out["cipher_why"].is_string() && out["compression"]["state"].is_string(), "{out}");
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let has = |word: &str| cpu.split_ascii_whitespace().any(|flag| flag == word);
    if has("aes") && has("pclmulqdq") {
        ensure!(out["cipher"] == "AES-256-GCM" && inward["cipher"] == "AES-256-GCM", "{out}");
    }
    // The same for people, and for Prometheus.
    let text = lan.node(0, &["status", "--links"])?;
    let is_told = ["mended", "lossy"].iter().any(|quality| text.contains(quality));
    ensure!(is_told && text.contains("LOST OUT"), "{text}");
    ensure!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let text = lan.node(0, &["why", "b"])?;
    eprintln!("{text}");
    for word in [
        "lost before repair",
        "repair  on: the path",
        "cipher  ",
        "order   ",
        "pacing  ",
        "packed  ",
    ] {
        ensure!(text.contains(word), "{word:?} is not in {text}");
    }
    let metrics = lan.node(0, &["metrics"])?;
    ensure!(metrics.contains("repair=\"on\""), "{metrics}");
    ensure!(metrics.contains("warren_peer_outbound_loss_before_repair_ratio{peer=\"b\"} 0.0"));
    // And why there is nothing to be shown.
    lan.nodes[1].daemon.as_mut().context("it runs")?.end()?;
    lan.daemon_with(1, &["--frames", "off"])?;
    eventually("the link is plain", seconds(PATIENCE), || {
        let _ = lan.node(0, &["ping", "b", "-c", "1"]);
        let status = lan.status(0);
        status.is_ok_and(|status| status["peers"][0]["link"].is_null())
    })?;
    let text = lan.node(0, &["why", "b"])?;
    ensure!(text.contains("link    plain WireGuard: the peer knows no frames"), "{text}");
    Ok(())
}

#[test]
fn what_a_path_loses_is_shown_with_what_is_done_about_it_and_why() -> Result<()> {
    let _turn = turn::alone();
    let lab = lab_of("weather", &format!("{HOSTS}{WEATHER}"), "weather.toml")?;
    let mut lan = Lan::in_lab("weather", &lab, &["a", "b"], PLACE)?;
    let result = what_is_shown(&mut lan);
    lan.told(result)
}

fn bursts_are_paced(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    lan.reaches(0, INSIDE[1])?;
    lan.direct(0)?;
    let pacing = |lan: &Lan| lan.status(0).map(|all| all["peers"][0]["link"]["pacing"].clone());
    let idle = pacing(lan)?;
    ensure!(idle["gap_ms"] == 0.0 && is_of(&idle, "off"), "{idle}");
    for round in 1..=2 {
        let bits = traffic::tcp(
            &lan.nodes[0].host,
            &lan.nodes[1].host,
            INSIDE[1],
            &["-t", "4", "-O", "1", "-C", "cubic"],
        )?;
        let full = pacing(lan)?;
        eprintln!("round {round}: {:.0} Mbit/s, {full}", bits / 1e6);
        // 1500 bytes take 0.12 ms.
        let gap_ms = number(&full, "/gap_ms")?;
        ensure!((0.09..0.25).contains(&gap_ms) && is_of(&full, "on"), "{full}");
        ensure!(bits > 80e6, "{bits} bit/s: pacing bounds bursts, no rates");
    }
    ensure!(lan.node(0, &["why", "b"])?.contains("pacing  on: the last traffic filled the line"));
    Ok(())
}

fn is_of(pacing: &Value, state: &str) -> bool {
    pacing["state"].as_str().is_some_and(|said| said.starts_with(state))
}

#[test]
fn toward_a_line_that_was_filled_bursts_are_paced_and_it_is_told() -> Result<()> {
    let _turn = turn::alone();
    let lab = lab_of("paced", &format!("{HOSTS}{NARROW}"), "paced.toml")?;
    let mut lan = Lan::in_lab("paced", &lab, &["a", "b"], PLACE)?;
    let result = bursts_are_paced(&mut lan);
    lan.told(result)
}
