//! A crowd at the server's door: thousands of connections that never ask for anything, from
//! several addresses, while members work and others come in.

use std::time::Duration;

use super::*;

/// Connections that are opened, by how many programs and how many addresses of each: one program
/// may hold fewer descriptors than all of them.
const CROWD: usize = 20_000;
const PROGRAMS: usize = 4;
const ADDRESSES: usize = 3;
/// The server's resident memory, at most: some 40 kB for each of 4,096 that wait, and the rest.
const RESIDENT_KIB_MAX: u64 = 250 * 1024;

/// Opens connections that say nothing, half of the first message of TLS, or all of it, and keeps
/// them; then goes on, the oldest going for each that is new.
const SCRIPT: &str = r#"
import resource, socket, ssl, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
host, port, first, sources, crowd = sys.argv[1], *map(int, sys.argv[2:])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
try: context.wrap_bio(into, out).do_handshake()
except ssl.SSLWantReadError: pass
hello = out.read()
held, made = [], 0
def add(n):
    global made
    s = socket.socket()
    s.bind((f"10.9.0.{first + n % sources}", 0))
    s.settimeout(5)
    try:
        s.connect((host, port))
        s.send([b"\x16", hello[:len(hello) // 2], hello][n % 3])
        made += 1
    except OSError: pass
    held.append(s)
for n in range(crowd): add(n)
print("made", made, flush=True)
while True:
    for n in range(2): held.pop(0).close(); add(n)
    time.sleep(0.05)
"#;

/// Lets the server hold as many descriptors as it may.
fn raise_limit(pid: &str) -> Result<()> {
    let words = ["--nofile", "--output", "HARD", "--noheadings", "--raw", "--pid", pid];
    let hard = said(Command::new("prlimit").args(words))?;
    let both = format!("--nofile={0}:{0}", hard.trim());
    said(Command::new("prlimit").args([&both, "--pid", pid])).map(drop)
}

/// Starts a part of the crowd, which says how many connections it made.
fn gather(lan: &Lan, part: usize) -> Result<(Running, PathBuf)> {
    let log = lan.folder.0.join(format!("crowd-{part}.log"));
    let file = std::fs::File::create(&log)?;
    let first = (100 + part * ADDRESSES).to_string();
    let (addresses, count) = (ADDRESSES.to_string(), (CROWD / PROGRAMS).to_string());
    let mut command = lan.nodes[2].host.command(&["python3", "-c", SCRIPT]);
    command.args([SERVER, "8443", &first, &addresses, &count]);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok((Running(command.spawn()?), log))
}

fn resident_kib(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a field")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[test]
fn rl_05_co_11_twenty_thousand_that_say_nothing_cost_little_and_keep_nobody_out() -> Result<()> {
    network("n10", 3, |lan| {
        let pid = lan.serve.as_ref().context("it runs")?.0.id().to_string();
        raise_limit(&pid)?;
        let token = lan.token(&["--reusable"])?;
        lan.up(0, &token, &[])?;
        let pid: u32 = pid.parse()?;
        let before = resident_kib(pid, "VmRSS:")?;
        for n in 0..PROGRAMS * ADDRESSES {
            let address = format!("ip addr add 10.9.0.{}/24 dev eth0", 100 + n);
            lan.nodes[2].host.sh(&address)?;
        }
        let begin = Instant::now();
        let crowd = (0..PROGRAMS).map(|part| gather(lan, part)).collect::<Result<Vec<_>>>()?;
        let made = || -> Option<usize> {
            let texts = crowd.iter().map(|(_, log)| std::fs::read_to_string(log).ok());
            texts.map(|text| text?.trim().strip_prefix("made ")?.parse::<usize>().ok()).sum()
        };
        eventually("the crowd is there", seconds(120), || made().is_some())?;
        let count = made().context("it was")?;
        println!("{count} connections in {:?}", begin.elapsed());
        ensure!(count > CROWD * 9 / 10, "{count}");

        // Others come in, one after the other, while it stands there.
        let ask = format!("curl -skS -m 10 https://{SERVER}:8443/api/v1/health");
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let asked = Instant::now();
            let told = lan.nodes[0].host.sh(&ask)?;
            ensure!(told.contains("\"ok\":true"), "{told}");
            slowest = slowest.max(asked.elapsed());
        }
        println!("the slowest of ten others was answered in {slowest:?}");
        let joining = Instant::now();
        lan.up(1, &token, &[])?;
        lan.reaches(1, "100.64.0.1")?;
        println!("another joined and had its first echo in {:?}", joining.elapsed());
        let [now, peak] = ["VmRSS:", "VmHWM:"].map(|field| resident_kib(pid, field));
        let (now, peak) = (now?, peak?);
        println!("resident: {before} KiB before, {now} now, {peak} at most");
        ensure!(peak < RESIDENT_KIB_MAX, "{peak} KiB");
        ensure!(slowest < seconds(2), "{slowest:?}");
        // Whoever it was that went, it was one of the crowd, and it was counted.
        let data = lan.folder.path("server");
        let metrics = lan
            .server
            .sh(&format!("curl -sS --unix-socket {data}/warren.sock http://warren/metrics"))?;
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<u64>().ok())
        };
        let waiting = value("warren_waiting_connections ").context(metrics.clone())?;
        let displaced = value("warren_displaced_connections_total ").context("it is counted")?;
        println!("{waiting} wait, {displaced} were displaced");
        ensure!(waiting <= 4096 && displaced > 1000, "{metrics}");
        ensure!(value("warren_nodes_online ") == Some(2), "{metrics}");
        Ok(())
    })
}
