//! A policy in a real network: who is told of whom, what passes, and that a revocation cuts.

use super::*;

/// Makes a text the policy.
fn set(lan: &Lan, text: &str) -> Result<()> {
    let file = lan.folder.path("policy.hujson");
    std::fs::write(&file, text)?;
    lan.admin(&["policy", "set", &file]).map(drop)
}

/// Bytes that the network gave to a node's kernel so far.
fn delivered(lan: &Lan, index: usize) -> Result<u64> {
    let host = &lan.nodes[index].host;
    Ok(host.sh("cat /sys/class/net/warren0/statistics/rx_bytes")?.trim().parse()?)
}

fn peers_are(lan: &Lan, index: usize, expected: &[&str]) -> Result<()> {
    eventually(&format!("peers {expected:?}"), seconds(2), || {
        lan.status(index).is_ok_and(|status| names(&status) == expected)
    })
    .map(drop)
}

/// Asks a web server of one line at `to` from a node.
fn asks(lan: &Lan, from: usize, to: &str, port: u16) -> bool {
    let question = format!("curl -sS -m 1 http://{to}:{port}/ 2>/dev/null");
    lan.nodes[from].host.sh(&question).is_ok_and(|answer| answer.contains("yes"))
}

#[test]
fn pf_07_a_running_transfer_stops_within_2_s_when_policy_takes_it_away() -> Result<()> {
    network("n7", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        let log = lan.folder.0.join("iperf.log");
        let host = &lan.nodes[1].host;
        let file = std::fs::File::create(&log)?;
        let mut command = host.command(&["iperf3", "-s"]);
        command.stdout(file.try_clone()?).stderr(file);
        let _server = Running(command.spawn()?);
        std::thread::sleep(seconds(1));
        let mut command = lan.nodes[0].host.command(&["iperf3", "-t", "30", "-c", "100.64.0.2"]);
        let _client = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let before = delivered(lan, 1)?;
        eventually("a transfer", seconds(10), || {
            delivered(lan, 1).is_ok_and(|now| now > before + 10_000_000)
        })?;
        set(lan, "{\"acls\": []}")?;
        let begin = Instant::now();
        std::thread::sleep(seconds(1));
        let then = delivered(lan, 1)?;
        std::thread::sleep(seconds(2));
        ensure!(
            delivered(lan, 1)? == then,
            "bytes come {:?} after the revocation",
            begin.elapsed()
        );
        peers_are(lan, 0, &[])?;
        peers_are(lan, 1, &[])?;
        // And given back, it is there again.
        set(lan, "{}")?;
        println!("back after {:?}", lan.reaches(0, "100.64.0.2")?);
        Ok(())
    })
}

#[test]
fn pf_14_what_passes_is_what_the_policy_says_also_without_the_server() -> Result<()> {
    network("n8", 3, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        lan.reaches(2, "100.64.0.2")?;
        let web = "import http.server as h\n\
            class H(h.BaseHTTPRequestHandler):\n \
             def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(b\"yes\")\n\
            at = (\"0.0.0.0\", int(__import__(\"sys\").argv[1]))\n\
            h.ThreadingHTTPServer(at, H).serve_forever()";
        let mut servers = Vec::new();
        for (index, port) in [(1, "80"), (1, "81"), (0, "80")] {
            let mut command = lan.nodes[index].host.command(&["python3", "-c", web, port]);
            servers.push(Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?));
        }
        eventually("web servers", seconds(10), || {
            asks(lan, 0, "100.64.0.2", 80) && asks(lan, 0, "100.64.0.2", 81)
        })?;
        set(
            lan,
            "{\"hosts\": {\"a\": \"100.64.0.1\", \"b\": \"100.64.0.2\"}, \"grants\": [\
             {\"src\": [\"a\"], \"dst\": [\"b\"], \"ip\": [\"tcp:80\"]}]}",
        )?;
        peers_are(lan, 0, &["b"])?;
        peers_are(lan, 1, &["a"])?;
        peers_are(lan, 2, &[])?;
        let holds = |lan: &Lan| -> Result<()> {
            let is = [
                asks(lan, 0, "100.64.0.2", 80),
                asks(lan, 0, "100.64.0.2", 81),
                asks(lan, 1, "100.64.0.1", 80),
                asks(lan, 2, "100.64.0.2", 80),
                lan.nodes[0].host.sh("ping -c 1 -W 0.5 100.64.0.2").is_ok(),
            ];
            ensure!(is == [true, false, false, false, false], "{is:?}");
            Ok(())
        };
        holds(lan)?;
        // The rules are in the map that was kept.
        std::thread::sleep(seconds(2));
        lan.serve.as_mut().context("it runs")?.kill()?;
        for index in [0, 1] {
            lan.nodes[index].daemon.as_mut().context("it runs")?.kill()?;
            lan.daemon(index)?;
        }
        eventually("the way back", seconds(10), || asks(lan, 0, "100.64.0.2", 80))?;
        holds(lan)
    })
}
