//! A node's life when circumstances are against it: programs killed with a transfer under way,
//! paths that go, addresses that change, damaged files, a full disk, a directory that was copied.
//! Times are printed as measurements; what is asserted is that all of it ends well.

use std::thread::JoinHandle;
use std::time::Duration;

use super::*;

const A: usize = 0;
const B: usize = 1;
/// The nodes' addresses inside.
const INSIDE: [&str; 2] = ["100.64.0.1", "100.64.0.2"];

/// A transfer from `a` to `b` that takes seconds.
fn transfer(lan: &Lan, bytes: u64) -> Result<JoinHandle<Result<Duration>>> {
    let shape = "tc qdisc replace dev eth0 root tbf rate 200mbit burst 128k latency 20ms";
    lan.nodes[A].host.sh(shape)?;
    let hosts = [lan.nodes[A].host.clone(), lan.nodes[B].host.clone()];
    Ok(std::thread::spawn(move || traffic::exact_stream(&hosts[0], &hosts[1], INSIDE[B], bytes)))
}

/// Kills a daemon and starts it again; how long until its first echo.
fn killed(lan: &mut Lan, index: usize) -> Result<Duration> {
    lan.nodes[index].daemon.as_mut().context("it runs")?.kill()?;
    let begin = Instant::now();
    lan.daemon(index)?;
    lan.reaches(index, INSIDE[1 - index])?;
    Ok(begin.elapsed())
}

/// Echoes every 20 ms from `a` to `b`, and the longest time without one.
struct Echoes(lab::process::Process);

impl Echoes {
    fn start(lan: &Lan) -> Result<Self> {
        let ping = ["ping", "-n", "-D", "-i", "0.02", "-W", "1", INSIDE[B]];
        let echoes = lan.nodes[A].host.spawn(&ping)?;
        echoes.wait_for(|log| log.contains("icmp_seq"))?;
        Ok(Self(echoes))
    }

    fn longest_gap_ms(&self) -> Result<u64> {
        let log = self.0.log();
        let lines = log.lines().filter(|line| line.contains("time="));
        let at = |line: &str| line.strip_prefix('[')?.split(']').next()?.parse::<f64>().ok();
        let mut times: Vec<f64> = lines.filter_map(at).collect();
        ensure!(times.len() > 10, "{log}");
        // The time since the last one counts.
        times.push(std::time::UNIX_EPOCH.elapsed()?.as_secs_f64());
        let gaps = times.windows(2).map(|two| ((two[1] - two[0]) * 1e3) as u64);
        gaps.max().context("several")
    }
}

#[test]
fn lc_13_a_transfer_outlives_both_daemons_and_the_server_being_killed() -> Result<()> {
    network("lf1", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.up(A, &token, &[])?;
        let begin = Instant::now();
        lan.up(B, &token, &[])?;
        lan.reaches(B, INSIDE[A])?;
        eprintln!("from the token to the first echo: {:?}", begin.elapsed());
        let bytes = 120_000_000;
        let going = transfer(lan, bytes)?;
        std::thread::sleep(seconds(1));
        ensure!(!going.is_finished(), "it is under way");
        eprintln!("the receiver's daemon was killed; its first echo after {:?}", killed(lan, B)?);
        std::thread::sleep(seconds(1));
        ensure!(!going.is_finished(), "it is under way");
        lan.serve.as_mut().context("it runs")?.kill()?;
        eprintln!("the sender's, and the server: its first echo after {:?}", killed(lan, A)?);
        lan.serve(&[])?;
        eprintln!("{bytes} bytes, each as it was sent, in {:?}", inside::join(going)?);
        eventually("the server is back", seconds(PATIENCE), || {
            lan.status(A).is_ok_and(|status| status["server"]["in_touch"] == true)
        })?;
        Ok(())
    })
}

#[test]
fn lc_07_a_node_that_moves_and_one_whose_udp_is_cut_keep_their_connections() -> Result<()> {
    network("lf2", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, INSIDE[B])?;
        eventually("a direct path", seconds(PATIENCE), || path(lan, A) == "direct")?;
        let going = transfer(lan, 120_000_000)?;
        let echoes = Echoes::start(lan)?;
        std::thread::sleep(seconds(1));
        // Another access point: another address, and nothing of the old one.
        lan.nodes[B]
            .host
            .sh("ip addr del 10.9.0.2/24 dev eth0; ip addr add 10.9.0.77/24 dev eth0")?;
        std::thread::sleep(seconds(1));
        eventually("a direct path", seconds(PATIENCE), || path(lan, A) == "direct")?;
        eprintln!("roaming: the longest time without an echo {} ms", echoes.longest_gap_ms()?);
        drop(echoes);
        let echoes = Echoes::start(lan)?;
        lan.nodes[B].host.sh("nft add table inet cut
             nft 'add chain inet cut in { type filter hook input priority 0; }'
             nft add rule inet cut in iifname eth0 meta l4proto udp drop")?;
        eventually("the relay", seconds(PATIENCE), || path(lan, A) == "relay")?;
        std::thread::sleep(seconds(1));
        eprintln!(
            "direct path lost: the longest time without an echo {} ms",
            echoes.longest_gap_ms()?
        );
        eprintln!("120 MB over all of it in {:?}", inside::join(going)?);
        Ok(())
    })
}

fn path(lan: &Lan, index: usize) -> String {
    let status = lan.status(index).unwrap_or_default();
    status["peers"][0]["path"]["kind"].as_str().unwrap_or("unknown").to_owned()
}

#[test]
fn lc_02_lc_03_a_full_disk_and_damaged_files_are_told_and_lived_with() -> Result<()> {
    network("lf3", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        let folder = lan.folder.path("b");
        std::fs::create_dir_all(&folder)?;
        said(Command::new("mount").args([
            "-t",
            "tmpfs",
            "-o",
            "size=256k,mode=700",
            "tmpfs",
            &folder,
        ]))?;
        let result = full_and_damaged(lan, &token, &folder);
        drop(lan.nodes[B].daemon.take());
        said(Command::new("umount").arg(&folder))?;
        result
    })
}

fn full_and_damaged(lan: &mut Lan, token: &str, folder: &str) -> Result<()> {
    lan.all_up(token)?;
    lan.reaches(B, INSIDE[A])?;
    let [node, map, filler] =
        ["node.json", "map.json", "filler"].map(|name| Path::new(folder).join(name));
    eventually("the map is kept", seconds(PATIENCE), || map.exists())?;
    let _ = std::fs::write(&filler, vec![0; 1 << 20]);
    let why = lan.node(B, &["set", "--hostname", "renamed"]).expect_err("there is no room");
    ensure!(
        why.to_string().contains("No space left") && why.to_string().contains("node.json"),
        "{why}"
    );
    lan.reaches(B, INSIDE[A])?;
    eprintln!("killed on a full disk, the first echo after {:?}", killed(lan, B)?);
    std::fs::remove_file(&filler)?;
    lan.node(B, &["set", "--hostname", "renamed"])?;

    // A damaged map is left aside: the server has it.
    lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
    std::fs::write(&map, "{\"rubbish")?;
    lan.daemon(B)?;
    lan.reaches(B, INSIDE[A])?;
    // Damaged keys are nobody's to replace.
    lan.nodes[B].daemon.as_mut().context("it runs")?.end()?;
    let whole = std::fs::read(&node)?;
    std::fs::write(&node, &whole[..whole.len() / 2])?;
    let words = ["daemon", "--state", folder, "--socket", "/tmp/warren-lf3.sock"];
    let ended = lan.nodes[B].host.command(&[WARREN]).args(words).output()?;
    let why = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.code() == Some(1) && why.contains("put a copy of it back"), "{why}");
    ensure!(std::fs::read(&node)? == whole[..whole.len() / 2], "it is left as it was");
    std::fs::write(&node, &whole)?;
    lan.daemon(B)?;
    lan.reaches(B, INSIDE[A])?;
    Ok(())
}

const YEAR_S: i64 = 365 * 86_400;

/// The other end remembers the latest stamp that it saw, and sends nothing that would begin a
/// handshake from there: whether `a` is heard is up to its own stamps.
#[test]
fn lc_04_lc_05_a_node_whose_clock_was_a_year_off_is_heard_again_after_a_restart() -> Result<()> {
    network("lf5", 2, |lan| {
        let clock = lan.folder.0.join("clock");
        let set = |offset_s: i64| std::fs::write(&clock, offset_s.to_string());
        set(0)?;
        let library = preload::library("tests/interop/wallclock.rs", &lan.folder.0)?;
        let file = clock.display().to_string();
        lan.nodes[A].env = vec![("LD_PRELOAD", library.leak()), ("WALLCLOCK_FILE", file.leak())];
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, INSIDE[B])?;
        for offset_s in [YEAR_S, 0, -YEAR_S, 2 * YEAR_S, 0] {
            set(offset_s)?;
            // It jumps while the daemon lives, and again at a start.
            lan.reaches(A, INSIDE[B])?;
            eprintln!("off by {offset_s} s: {:?} from a start to an echo", killed(lan, A)?);
            lan.reaches(B, INSIDE[A])?;
        }
        // Without what is kept it would not be heard: the other end has seen the future.
        lan.nodes[A].daemon.as_mut().context("it runs")?.kill()?;
        std::fs::remove_file(lan.folder.0.join("a/stamps"))?;
        lan.daemon(A)?;
        let echo = lan.nodes[A].host.sh(&format!("ping -c 20 -i 0.2 -W 1 {}", INSIDE[B]));
        ensure!(echo.is_err(), "the clock was wrong, and this was seen");
        Ok(())
    })
}

/// A sleep as the kernel's clocks show it; longer than any session lives.
#[test]
fn lc_06_a_node_that_slept_looks_at_its_paths_and_is_reached_at_once() -> Result<()> {
    network("lf6", 2, |lan| {
        let clock = lan.folder.0.join("clock");
        std::fs::write(&clock, "0")?;
        let library = preload::library("tests/interop/wallclock.rs", &lan.folder.0)?;
        let file = clock.display().to_string();
        lan.nodes[A].env = vec![("LD_PRELOAD", library.leak()), ("BOOTCLOCK_FILE", file.leak())];
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(A, INSIDE[B])?;
        for slept_s in [200, 4000] {
            std::fs::write(&clock, slept_s.to_string())?;
            eventually("it is noticed", seconds(PATIENCE), || {
                let log = std::fs::read_to_string(lan.folder.0.join("a.log")).unwrap_or_default();
                let told = log.lines().filter(|line| line.contains("the machine slept"));
                told.count() == if slept_s == 200 { 1 } else { 2 }
            })?;
            eprintln!("the first echo after a sleep: {:?}", lan.reaches(A, INSIDE[B])?);
            lan.reaches(B, INSIDE[A])?;
        }
        eventually("a direct path", seconds(PATIENCE), || path(lan, A) == "direct")?;
        Ok(())
    })
}

#[test]
fn rl_07_lc_09_a_copied_directory_is_told_and_troubles_nobody_else() -> Result<()> {
    network("lf4", 4, |lan| {
        let token = lan.token(&["--reusable"])?;
        (0..3).try_for_each(|index| lan.up(index, &token, &[]))?;
        lan.reaches(2, INSIDE[A])?;
        eventually("the map is kept", seconds(PATIENCE), || {
            lan.folder.0.join("b").join("map.json").exists()
        })?;
        let (from, to) = (lan.folder.path("b"), lan.folder.path("d"));
        said(Command::new("cp").args(["-a", &from, &to]))?;
        let echoes = lan.nodes[2].host.spawn(&["ping", "-n", "-i", "0.1", INSIDE[A]])?;
        lan.daemon(3)?;
        for index in [1, 3] {
            eventually("both are told", seconds(PATIENCE), || {
                let health = lan.status(index).map(|status| status["health"].to_string());
                health.is_ok_and(|health| health.contains("another machine uses this node's key"))
            })?;
        }
        // Both keep it, and nobody else has noticed.
        std::thread::sleep(seconds(2));
        let log = std::fs::read_to_string(lan.folder.0.join("d.log"))?;
        ensure!(log.contains("another machine uses this node's key"), "{log}");
        echoes.signal(libc::SIGINT)?;
        echoes.wait(seconds(3))?;
        let summary = echoes.log();
        ensure!(summary.contains(" 0% packet loss"), "{summary}");
        // The copy goes, and the original reaches everybody again.
        lan.nodes[3].daemon.as_mut().context("it runs")?.end()?;
        eprintln!("an echo to the original {:?} after the copy's end", lan.reaches(B, INSIDE[A])?);
        Ok(())
    })
}

/// What the server calls its nodes.
fn called(lan: &Lan) -> Result<Vec<String>> {
    let nodes: Value = serde_json::from_str(&lan.admin(&["node", "list", "--json"])?)?;
    let names = nodes["nodes"].as_array().context("nodes")?.iter();
    Ok(names.filter_map(|node| node["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_hostname_that_is_set_renames_the_node_or_it_is_told_why_not() -> Result<()> {
    network("lf8", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        let told = lan.node(A, &["set", "--hostname", "printer"])?;
        ensure!(told.contains("is called printer in the network"), "{told}");
        eventually("the peer knows", seconds(5), || {
            lan.status(B).is_ok_and(|status| names(&status).contains(&"printer"))
        })?;
        let told = lan.node(B, &["set", "--hostname", "printer"])?;
        ensure!(told.contains("is called printer-1 in the network"), "{told}");
        // By `up` of a node that is up, too, whose first line has the new name.
        let told = lan.node(B, &["up", "--hostname", "scanner"])?;
        ensure!(told.starts_with("scanner is up: ") && told.contains("\nchanged\n"), "{told}");
        lan.admin(&["node", "rename", "printer", "boss"])?;
        eventually("it is boss", seconds(5), || {
            lan.status(A).is_ok_and(|status| status["self"]["name"] == "boss")
        })?;
        let told = lan.node(A, &["set", "--hostname", "clerk"])?;
        ensure!(told.contains("warren node rename boss clerk"), "{told}");
        ensure!(called(lan)?.contains(&"boss".to_owned()));
        lan.serve.as_mut().context("it runs")?.kill()?;
        eventually("out of touch", seconds(20), || {
            lan.status(B).is_ok_and(|status| status["server"]["in_touch"] == false)
        })?;
        let told = lan.node(B, &["set", "--hostname", "late"])?;
        ensure!(told.contains("once it is in touch"), "{told}");
        lan.serve(&[])?;
        eventually("the server knows", seconds(PATIENCE), || {
            called(lan).is_ok_and(|names| names.contains(&"late".to_owned()))
        })?;
        Ok(())
    })
}

#[test]
fn co_15_an_ephemeral_node_that_is_stopped_is_gone_with_its_name_which_the_next_has() -> Result<()>
{
    network("lf9", 3, |lan| {
        let stays = lan.token(&["--reusable"])?;
        let goes = lan.token(&["--reusable", "--ephemeral"])?;
        lan.up(A, &stays, &[])?;
        for index in [B, 2] {
            lan.daemon(index)?;
            lan.node(index, &["up", &goes, "--timeout", "20s", "--hostname", "job"])?;
            ensure!(called(lan)? == ["a", "job"], "{:?}", called(lan)?);
            let begin = Instant::now();
            lan.nodes[index].daemon.as_mut().context("it runs")?.end()?;
            eprintln!("stopped in {:?}", begin.elapsed());
            ensure!(called(lan)? == ["a"], "at once: {:?}", called(lan)?);
            eventually("its peer forgets it", seconds(2), || {
                lan.status(A).is_ok_and(|status| names(&status).is_empty())
            })?;
        }
        // The machine itself knows that it is no member.
        lan.nodes[B].daemon = None;
        lan.daemon(B)?;
        let again = lan.node(B, &["up"]).err().map(|why| format!("{why:#}")).unwrap_or_default();
        ensure!(again.contains("token"), "{again}");
        lan.node(B, &["up", &goes, "--timeout", "20s", "--hostname", "job"])?;
        // Who is no ephemeral node stays in the books, and ends as quickly.
        let begin = Instant::now();
        lan.nodes[A].daemon.as_mut().context("it runs")?.end()?;
        ensure!(begin.elapsed() < seconds(2), "{:?}", begin.elapsed());
        ensure!(called(lan)? == ["a", "job"], "{:?}", called(lan)?);
        Ok(())
    })
}
