//! A slow line that a transfer fills, and what steers a robot beside it: with `--line-rate` packets
//! wait in the node's own queues, by their classes, and no longer in the line's.

use serde_json::json;

use super::*;

/// 20 Mbit/s each way, with a queue of 300 ms.
const SLOW: &str = r#"
[hosts.server]
[hosts.a]
[hosts.b]
[[links]]
between = ["a", "server"]
addresses = [["192.0.2.2/24"], ["192.0.2.1/24"]]
[[links]]
between = ["b", "server"]
addresses = [["198.51.100.2/24"], ["198.51.100.1/24"]]
[[links]]
between = ["a", "b"]
addresses = [["203.0.113.1/24"], ["203.0.113.2/24"]]
impair = "rate=20mbit limit=500 delay=10ms"
"#;
const PLACE: [&str; 3] = ["0.0.0.0:443", "https://server", "0.0.0.0:3478"];
const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];
/// DSCP EF, as ping wants it: what steers.
const STEERS: u8 = 46 << 2;

/// How long what steers is watched: 99 of 100 want more than a test has time for.
fn span() -> u64 {
    if figures::are_wanted() { 30 } else { 4 }
}

fn pings(lan: &Lan, span: u64) -> Result<traffic::Pings> {
    let pings = traffic::Pinger::start_with(&lan.nodes[0].host, INSIDE[1], 20, STEERS)?;
    std::thread::sleep(seconds(span));
    pings.stop()
}

/// What a transfer moves in Mbit/s, and the round trips beside it, once it is under way.
fn beside_bulk(lan: &Lan) -> Result<(f64, traffic::Pings)> {
    let (sender, receiver) = (lan.nodes[0].host.clone(), lan.nodes[1].host.clone());
    let bulk = std::thread::spawn(move || {
        let span = (span() + 3).to_string();
        traffic::tcp(&sender, &receiver, INSIDE[1], &["-t", &span, "-O", "2", "-P", "4"])
    });
    std::thread::sleep(seconds(3));
    let pings = pings(lan, span())?;
    Ok((inside::join(bulk)? / 1e6, pings))
}

/// For the report of `make home`.
fn told(pings: &traffic::Pings, moved: f64) -> Value {
    let [half, most] = [0.5, 0.99].map(|share| figures::rounded(pings.quantile_ms(share)));
    json!({
        "rtt_p50_ms": half, "rtt_p99_ms": most, "asked": pings.sent, "lost": pings.lost(),
        "moved_mbit_s": figures::rounded(moved),
    })
}

fn steer(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    lan.reaches(0, INSIDE[1])?;
    lan.direct(0)?;
    let quiet = pings(lan, span())?;
    let idle = quiet.quantile_ms(0.5);
    let (without, beside) = beside_bulk(lan)?;
    let before_ms = beside.quantile_ms(0.99);
    let before = told(&beside, without);
    for index in 0..2 {
        lan.node(index, &["set", "--line-rate", "19mbit"])?;
    }
    let (with, beside) = beside_bulk(lan)?;
    let after_ms = beside.quantile_ms(0.99);
    let after = told(&beside, with);
    let idle_told = told(&quiet, 0.0);
    figures::keep("steers", &json!({ "idle": idle_told, "no_rate": before, "rate": after }))?;
    eprintln!(
        "20 Mbit/s: {idle:.1} ms idle; beside bulk of {without:.1} Mbit/s 99 of 100 within \
         {before_ms:.1} ms; with a line rate {with:.1} Mbit/s, {after_ms:.1} ms"
    );
    ensure!(before_ms > idle + 20.0, "the line's queue was never filled");
    // Five are asked for on a quiet machine; a test's machine is none.
    ensure!(after_ms < idle + 12.0, "{after_ms:.1} ms beside bulk, {idle:.1} idle");
    ensure!(with > 0.75 * without, "{with:.1} Mbit/s, without a rate {without:.1}");
    // A round trip is longer than the pause between two: two may be under way at the end.
    ensure!(beside.lost() <= 2, "what steers is not dropped: {beside:?}");
    lan.node(0, &["set", "--line-rate", "off"])?;
    let flags = lan.node(0, &["set", "--line-rate", "20"]);
    ensure!(flags.is_err_and(|why| why.to_string().contains("128kbit")), "a rate has a unit");
    Ok(())
}

#[test]
fn what_steers_goes_before_what_fills_the_line_where_the_line_has_a_rate() -> Result<()> {
    let _turn = turn::alone();
    let lab = lab_of("classes", SLOW, "classes.toml")?;
    let mut lan = Lan::in_lab("classes", &lab, &["a", "b"], PLACE)?;
    let result = steer(&mut lan);
    lan.told(result)
}
