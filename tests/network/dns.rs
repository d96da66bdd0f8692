//! Names that are not the network's: an administrator says who is asked for them, and every node
//! does so at once. `dig` asks, and real servers answer, each with what it alone knows.

use std::net::IpAddr;

use ::dns::{Names, Settings};
use host::names::{Place as NamesPlace, Server};

use super::*;

/// Where the resolvers are, on the server's host: for all names, and for one zone.
const GENERAL: &str = "10.9.0.53";
const CORP: &str = "10.9.0.54";

/// A resolver that knows one name of one domain.
pub(super) fn resolver(host: &Host, at: &str, domain: &str, address: &str) -> Result<Server> {
    host.sh(&format!("ip addr add {at}/24 dev br0"))?;
    let parsed = |text: &str| text.parse::<IpAddr>().expect("an address");
    let also = vec!["0.0.0.0/0".parse().expect("a prefix")];
    let place = NamesPlace { addresses: vec![parsed(at)], also };
    let settings = Settings {
        domain: domain.to_owned(),
        own: "ns".to_owned(),
        hosts: vec![("www".to_owned(), vec![parsed(address)])],
        ..Settings::default()
    };
    inside::inside(host, || Ok(Server::start(&place, Names::new(settings)?)?))
}

fn dig(lan: &Lan, name: &str) -> String {
    let ask = format!("dig +tries=1 +time=2 +short @100.64.0.1 {name} A");
    lan.nodes[0].host.sh(&ask).unwrap_or_default().trim().to_owned()
}

#[test]
fn split_zones_and_upstreams_that_an_administrator_sets_are_asked_at_once() -> Result<()> {
    network("dns", 1, |lan| {
        let _general = resolver(&lan.server, GENERAL, "debian.test", "198.51.100.7")?;
        let _corp = resolver(&lan.server, CORP, "corp.test", "198.51.100.8")?;
        let token = lan.token(&[])?;
        lan.up(0, &token, &[])?;
        eventually("its own name is answered", seconds(PATIENCE), || {
            dig(lan, "a.warren.internal") == "100.64.0.1"
        })?;
        ensure!(dig(lan, "www.corp.test").is_empty(), "nobody was named yet");
        let split = format!("Corp.Test.={CORP}");
        let said = lan.admin(&["dns", "set", "--upstream", GENERAL, "--split", &split])?;
        ensure!(said.contains("corp.test: 10.9.0.54\n"), "{said}");
        ensure!(said.ends_with("everything else: 10.9.0.53\n"), "{said}");
        let begin = Instant::now();
        eventually("the zone's own resolver answers", seconds(PATIENCE), || {
            dig(lan, "www.corp.test") == "198.51.100.8"
        })?;
        println!("a split zone is asked {:?} after it was set", begin.elapsed());
        ensure!(dig(lan, "www.debian.test") == "198.51.100.7", "the rest is the upstream's");
        ensure!(dig(lan, "a.warren.internal") == "100.64.0.1", "and ours is ours");

        // What is wrong is told, and what was set holds.
        let words: [(&[&str], &str); 5] = [
            (&["--split", "corp.test"], "write corp.example=10.0.0.53"),
            (&["--upstream", "ns1"], "invalid value"),
            (&["--split", "x.warren.internal=10.0.0.1"], "every node answers itself"),
            (&["--upstream", "127.0.0.53"], "every node can ask"),
            (&[], "--none"),
        ];
        for (words, part) in words {
            let why = lan.admin(&[&["dns", "set"], words].concat()).expect_err("it is refused");
            ensure!(why.to_string().contains(part), "{words:?}: {why}");
        }
        let kept: Value = serde_json::from_str(&lan.admin(&["dns", "get", "--json"])?)?;
        ensure!(kept["zones"][0]["zone"] == "corp.test" && kept["schema"] == 1, "{kept}");
        ensure!(lan.admin(&["audit"])?.contains("dns.set"), "it is in the log");

        // A server that starts again tells the same, and nothing is asked of who was taken away.
        lan.serve.as_mut().context("it runs")?.end()?;
        lan.serve(&[])?;
        ensure!(lan.admin(&["dns", "get", "--json"])? == serde_json::to_string(&kept)? + "\n");
        lan.admin(&["dns", "set", "--none"])?;
        eventually("nobody is asked any more", seconds(PATIENCE), || {
            dig(lan, "www.corp.test").is_empty()
        })?;
        ensure!(dig(lan, "a.warren.internal") == "100.64.0.1");
        Ok(())
    })
}
