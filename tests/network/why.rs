//! `warren why`: rule, route, path and loss in one answer, from a node and from the server.

use super::*;

fn asked(lan: &Lan, from: usize, words: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&lan.node(from, &[&["why", "--json"], words].concat())?)?)
}

fn refusal(lan: &Lan, from: usize, words: &[&str]) -> String {
    let answer = lan.node(from, &[&["why"], words].concat());
    answer.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn why_tells_rule_route_path_and_loss_in_one_answer() -> Result<()> {
    network("y1", 3, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        let open = asked(lan, 0, &["b:22"])?;
        ensure!(open["policy"]["allowed"] == true && open["policy"]["line"].is_null(), "{open}");
        let policy = r#"{ "hosts": { "a": "100.64.0.1", "b": "100.64.0.2", "lan": "10.7.0.0/16" },
  "acls": [
    { "action": "accept", "src": ["a"], "dst": ["b:22", "lan:80"] },
    { "action": "accept", "proto": "udp", "src": ["a"], "dst": ["b:53"] },
  ] }"#;
        let file = lan.folder.path("policy.hujson");
        std::fs::write(&file, policy)?;
        lan.admin(&["policy", "set", &file])?;
        eventually("the rules are told", seconds(PATIENCE), || {
            asked(lan, 0, &["b:22"]).is_ok_and(|answer| answer["policy"]["line"] == 3)
        })?;
        lan.node(0, &["ping", "b", "-c", "2"])?;
        let ssh = asked(lan, 0, &["b:22"])?;
        ensure!(ssh["schema"] == 1 && ssh["route"]["peer"] == "b", "{ssh}");
        ensure!(ssh["path"]["kind"] == "direct" && ssh["path"]["mtu"].is_u64(), "{ssh}");
        ensure!(ssh["rtt_ms"].is_f64() && ssh["link"]["out"]["loss_before"] == 0.0, "{ssh}");
        ensure!(ssh["verdict"] == "packets reach b by a direct path", "{ssh}");
        let web = asked(lan, 0, &["a", "100.64.0.2:443"])?;
        ensure!(web["policy"]["allowed"] == false, "{web}");
        ensure!(web["policy"]["why"].as_str().is_some_and(|why| why.contains("tcp:22")), "{web}");
        let name = asked(lan, 0, &["--protocol", "udp", "b:53"])?;
        ensure!(name["policy"]["line"] == 4, "{name}");
        // The other end says the same of packets that come, and nothing begins the other way.
        ensure!(asked(lan, 1, &["a", "b:22"])?["policy"]["line"] == 3);
        ensure!(asked(lan, 1, &["a:22"])?["policy"]["allowed"] == false);
        let text = lan.node(0, &["why", "b:22"])?;
        ensure!(text.contains("line 3") && text.contains("direct udp"), "{text}");
        println!("{text}");
        // A subnet: offered, approved, and then accepted.
        lan.node(1, &["set", "--advertise-routes", "10.7.0.0/16"])?;
        lan.admin(&["route", "approve", "b", "10.7.0.0/16"])?;
        eventually("the way to accept is told", seconds(PATIENCE), || {
            refusal(lan, 0, &["10.7.0.9:80"]).contains("--accept-routes")
        })?;
        lan.node(0, &["set", "--accept-routes"])?;
        eventually("the route", seconds(PATIENCE), || {
            asked(lan, 0, &["10.7.0.9:80"]).is_ok_and(|a| a["route"]["prefix"] == "10.7.0.0/16")
        })?;
        // Whom the policy hides, who is nobody, and what no node can know.
        ensure!(refusal(lan, 0, &["c"]).contains("called \"c\""));
        ensure!(refusal(lan, 0, &["192.0.2.1"]).contains("no node has 192.0.2.1"));
        ensure!(refusal(lan, 0, &["a"]).contains("both ends are at this node"));
        // The server answers about any two.
        let told = lan.admin(&["why", "a", "b:22"])?;
        ensure!(told.contains("allowed: acls[0] (line 3)"), "{told}");
        let told = lan.admin(&["why", "c", "a"])?;
        ensure!(told.contains("denied: no rule has the source"), "{told}");
        let told = lan.admin(&["why", "--json", "a", "10.7.0.9:80"])?;
        let told: Value = serde_json::from_str(&told)?;
        ensure!(told["policy"]["allowed"] == true && told["destination"]["node"] == 2, "{told}");
        ensure!(lan.admin(&["why", "nobody", "a"]).is_err());
        Ok(())
    })
}
