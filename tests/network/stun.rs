//! What a server does that was told nothing of STUN: two ports answer, and by two answers a node
//! behind a NAT sees what kind of NAT it is.

use super::*;

/// One node on the open network, one behind a NAT that draws a port for each destination.
const TOPOLOGY: &str = r#"
[hosts.server]
[hosts.open]
[hosts.symmetric]
[switches.internet]
[routers.gw]
nat = "symmetric"
outside = ["outside"]
[[links]]
between = ["server", "internet"]
addresses = [["10.73.0.1/24"], []]
[[links]]
between = ["open", "internet"]
addresses = [["10.73.0.2/24"], []]
[[links]]
name = "outside"
between = ["gw", "internet"]
addresses = [["10.73.0.14/24"], []]
[[links]]
between = ["symmetric", "gw"]
addresses = [["192.168.1.2/24"], ["192.168.1.1/24"]]
"#;

#[test]
fn nt_11_two_stun_ports_answer_unasked_and_netcheck_says_what_the_nat_does() -> Result<()> {
    let _turn = turn::shared();
    let lab = lab_of("stun", TOPOLOGY, "stun.toml")?;
    let place = ["10.73.0.1:443", "https://10.73.0.1", ""];
    let mut lan = Lan::in_lab("stun", &lab, &["open", "symmetric"], place)?;
    let result = both_are_told(&mut lan);
    lan.told(result)
}

fn both_are_told(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    for (index, varies) in [(0, false), (1, true)] {
        let check = || -> Result<Value> {
            Ok(serde_json::from_str(&lan.node(index, &["netcheck", "--json"])?)?)
        };
        eventually("two servers have answered", seconds(PATIENCE), || {
            check().is_ok_and(|check| check["mapping_varies"] == varies)
        })?;
        let check = check()?;
        let servers = check["stun"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(servers == ["10.73.0.1:3478", "10.73.0.1:3479"], "the map names both: {check}");
        ensure!(check["stun_servers"].as_array().map(Vec::len) == Some(2), "{check}");
        let said = lan.node(index, &["netcheck"])?;
        let kind = if varies {
            "maps each destination to another port"
        } else {
            "maps all destinations alike"
        };
        ensure!(said.contains(kind), "{said}");
    }
    // One of the ports is somebody else's: the other one is there.
    lan.serve.as_mut().context("it runs")?.end()?;
    let taken = lan.server.spawn(&["python3", "-c", TAKES])?;
    taken.wait_for(|log| log.contains("taken"))?;
    lan.serve(&[])?;
    let log = std::fs::read_to_string(lan.folder.0.join("serve.log"))?;
    ensure!(log.contains("10.73.0.1:3478") && log.contains("STUN is not answered there"), "{log}");
    eventually("one server is named", seconds(PATIENCE), || {
        let check = lan.node(0, &["netcheck", "--json"]).unwrap_or_default();
        let check: Value = serde_json::from_str(&check).unwrap_or_default();
        check["stun"].as_array().is_some_and(|stun| stun == &["10.73.0.1:3479"])
    })?;
    Ok(())
}

/// Holds the first port.
const TAKES: &str = "import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.73.0.1', 3478))
print('taken', flush=True)
time.sleep(600)";
