//! The worst pair: nothing but HTTPS on one side, a real intercepting proxy (mitmproxy) on the
//! other; and what robots say to each other over it.

use lab::process::Process;
use lab::topology::Lab;

use super::*;
use crate::support::capture::Capture;

const TOPOLOGY: &str = include_str!("proxy.toml");
const ROS: &str = include_str!("ros.py");
const ROBOT: usize = 0;
const OFFICE: usize = 1;
const NAMES: [&str; 2] = ["robot.warren.internal", "office.warren.internal"];
/// What the proxy must not read: the payload of echoes, as `ping -p` writes it.
const MARK: &[u8] = b"not-for-proxies!";

/// Server, robot and office, the proxy being `argv` in its host; what it logs.
fn worst(
    id: &str,
    argv: &[&str],
    body: impl FnOnce(&Lan, &Lab, &Process) -> Result<()>,
) -> Result<()> {
    let _turn = turn::shared();
    let lab = lab_of(id, TOPOLOGY, "proxy.toml")?;
    let proxy = lab.host("proxy")?.spawn(argv)?;
    eventually("the proxy listens", seconds(PATIENCE), || {
        lab.host("office").is_ok_and(|office| {
            office.sh("curl -s -o /dev/null --max-time 1 http://10.9.5.1:3128/").is_ok()
        })
    })
    .with_context(|| proxy.log())?;
    let node = |name: &str, env: &[(&'static str, &'static str)]| -> Result<Node> {
        Ok(Node { env: env.to_vec(), ..Node::new(name, lab.host(name)?) })
    };
    let nodes =
        vec![node("robot", &[])?, node("office", &[("HTTPS_PROXY", "http://10.9.5.1:3128")])?];
    let place = ["10.72.0.1:443", "https://10.72.0.1", "10.72.0.1:3478"].map(str::to_owned);
    let mut lan = Lan::on(id, lab.host("server")?.clone(), Place(place), nodes)?;
    let result = join(&mut lan).and_then(|()| body(&lan, &lab, &proxy));
    lan.told(result).with_context(|| proxy.log())
}

fn join(lan: &mut Lan) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.up(ROBOT, &token, &[])?;
    let begin = Instant::now();
    lan.up(OFFICE, &token, &[])?;
    lan.reaches(OFFICE, "100.64.0.1")?;
    eprintln!("HTTPS alone: from the token to the first echo {:?}", begin.elapsed());
    Ok(())
}

#[test]
fn co_12_rl_10_source_000_5_9_10_an_intercepting_proxy_carries_it_all_and_reads_nothing()
-> Result<()> {
    let program = tools().join("mitmproxy/bin/mitmdump");
    if !program.exists() {
        eprintln!("SKIPPED: there is no mitmproxy at {}: run `make setup`", program.display());
        return Ok(());
    }
    let folder = Folder::new("mitm-flows")?;
    let (program, flows) = (program.display().to_string(), folder.path("flows"));
    let confdir = format!("confdir={}", folder.path("conf"));
    let options = ["--listen-host", "10.9.5.1", "-p", "3128", "--ssl-insecure", "-w", &flows];
    let more = ["--set", &confdir, "--set", "flow_detail=1"];
    let argv = [&[program.as_str()], &options[..], &more[..]].concat();
    worst("mitm", &argv, |lan, lab, proxy| {
        lan.reaches(ROBOT, "100.64.0.2")?;
        let status = lan.status(OFFICE)?;
        ensure!(status["peers"][0]["path"]["kind"] == "relay", "{status}");
        ensure!(status["server"]["in_touch"] == true, "{status}");
        let [robot, office] = [&lan.nodes[ROBOT].host, &lan.nodes[OFFICE].host];
        traffic::exact_stream(robot, office, "100.64.0.2", 2_000_000)?;
        traffic::exact_stream(office, robot, "100.64.0.1", 2_000_000)?;
        marked(robot, office, lab.host("server")?)?;
        ros(lan, ROBOT)?;
        ros(lan, OFFICE)?;
        // It opened TLS: it saw the calls and the upgrade. It did not open what is inside.
        let log = proxy.log();
        ensure!(log.contains("GET https://10.72.0.1/relay"), "{log}");
        proxy.signal(libc::SIGTERM)?;
        proxy.wait(seconds(10))?;
        let read = std::fs::read(&flows)?;
        eprintln!("the proxy recorded {} bytes", read.len());
        ensure!(read.len() > 4_000_000, "it has the relay's stream");
        for secret in [MARK, b"office", b"xxxxxxxxxxxxxxxx"] {
            let is_there = read.windows(secret.len()).any(|window| window == secret);
            ensure!(!is_there, "the proxy read {:?}", String::from_utf8_lossy(secret));
        }
        Ok(())
    })
}

/// Sends marked packets: the receiver's interface shows them in clear, the relay's line does not.
fn marked(robot: &Host, office: &Host, relay: &Host) -> Result<()> {
    let mark: String = MARK.iter().map(|byte| format!("{byte:02x}")).collect();
    let captures = [Capture::start(robot, "warren0")?, Capture::start(relay, "eth0")?];
    office.sh(&format!("ping -c 5 -i 0.05 -s 400 -p {mark} 100.64.0.1"))?;
    let [inside, outside] = captures.map(Capture::stop);
    let shows = |packet: &Vec<u8>| packet.windows(MARK.len()).any(|window| window == MARK);
    let (inside, outside) = (inside?, outside?);
    ensure!(inside.iter().filter(|packet| shows(packet)).count() >= 10, "asked and answered");
    let carried: usize = outside.iter().map(Vec::len).sum();
    ensure!(carried > 4_000, "the relay carried {carried} bytes");
    ensure!(!outside.iter().any(shows), "the relay's line shows what is inside");
    Ok(())
}

/// A robot and its operator, the master being on the side of `master`.
fn ros(lan: &Lan, master: usize) -> Result<()> {
    let begin = Instant::now();
    let start = |index: usize, words: &[&str]| {
        lan.nodes[index].host.spawn(&[&["python3", "-c", ROS], words].concat())
    };
    let at = format!("http://{}:11311/", NAMES[master]);
    let master = start(master, &["master", NAMES[master]])?;
    master.wait_for(|log| log.contains("master at"))?;
    let robot = start(ROBOT, &["robot", &at, NAMES[ROBOT]])?;
    robot.wait_for_within(seconds(PATIENCE), |log| log.contains("robot ready"))?;
    let operator = start(OFFICE, &["operator", &at, NAMES[OFFICE]])?;
    let done = operator.wait_for_within(seconds(PATIENCE), |log| log.contains("done"));
    done.with_context(|| format!("robot: {}\nmaster: {}", robot.log(), master.log()))?;
    eprintln!("topics, a service and an action, master at {at}: {:?}", begin.elapsed());
    Ok(())
}
