//! A node's daemon killed at any moment: what was acknowledged is kept, it comes back by itself as
//! who it was, and nobody else's connections notice (threat LC-01).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;

/// The one that is killed.
const B: usize = 1;
const ROUNDS: u64 = 8;

/// SplitMix64, so that a failure can be had again.
fn draw(seed: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

/// A setting that nobody else makes, and that is acknowledged once it is kept.
fn offer(round: u64, n: u64) -> String {
    format!("10.{round}.{n}.0/24")
}

/// Changes settings one after the other until the daemon does not answer: the last that it said
/// yes to.
fn change(lan: &Lan, round: u64) -> impl FnOnce() -> Option<u64> + Send + use<> {
    let (host, socket) = (lan.nodes[B].host.clone(), lan.folder.path("b.sock"));
    move || {
        let mut last = None;
        for n in 0.. {
            let mut command = host.command(&[WARREN]);
            let words = ["set", "--advertise-routes", &offer(round, n)];
            command.args(["--socket", &socket]).args(words);
            if said(&mut command).is_err() {
                return last;
            }
            last = Some(n);
        }
        last
    }
}

#[test]
fn lc_01_a_daemon_killed_at_any_moment_comes_back_as_it_was_and_troubles_nobody() -> Result<()> {
    network("n11", 3, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        lan.reaches(0, "100.64.0.3")?;
        let before = lan.status(B)?["self"].clone();
        let echoes = lan.nodes[2].host.spawn(&["ping", "-n", "-i", "0.05", "100.64.0.1"])?;
        let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
        for round in 0..ROUNDS {
            let after = Duration::from_micros(1_000 + draw(round) % 400_000);
            let changing = std::thread::spawn(change(lan, round));
            std::thread::sleep(after);
            lan.nodes[B].daemon.as_mut().context("it runs")?.kill()?;
            let last = changing.join().expect("it does not panic");
            let begin = Instant::now();
            lan.daemon(B)?;
            lan.reaches(B, "100.64.0.1")?;
            slowest = slowest.max(begin.elapsed());
            let status = lan.status(B)?;
            for field in ["key", "addresses"] {
                ensure!(status["self"][field] == before[field], "{after:?}: {field} {status}");
            }
            let kept = status["settings"]["advertise_routes"][0].as_str().unwrap_or_default();
            // One more may have been kept whose answer was never sent.
            let is_last = |last: u64| [last, last + 1].iter().any(|n| kept == offer(round, *n));
            if let Some(last) = last {
                ensure!(
                    is_last(last),
                    "round {round}, {after:?}: {last} was acknowledged, kept is {kept:?}"
                );
                acknowledged += last + 1;
            }
        }
        println!(
            "{ROUNDS} kills, {acknowledged} changes acknowledged; after the slowest start the \
             first echo came in {slowest:?}"
        );
        ensure!(acknowledged > 5, "the kills came too early");
        echoes.signal(libc::SIGINT)?;
        echoes.wait(seconds(3))?;
        let summary = echoes.log();
        ensure!(summary.contains(" 0% packet loss"), "two others: {summary}");
        let list = lan.admin(&["node", "list", "--json"])?;
        let list: Value = serde_json::from_str(&list)?;
        ensure!(list["nodes"].as_array().map(Vec::len) == Some(3), "it is one node: {list}");
        Ok(())
    })
}

/// A join that is interrupted at any moment ends in one node once it is tried again.
#[test]
fn lc_01_a_daemon_killed_while_it_joins_is_one_node_in_the_end() -> Result<()> {
    network("n12", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.up(0, &token, &[])?;
        let is_over = Arc::new(AtomicBool::new(false));
        for round in 0..ROUNDS {
            lan.daemon(B)?;
            let (host, socket) = (lan.nodes[B].host.clone(), lan.folder.path("b.sock"));
            let (token, over) = (token.clone(), Arc::clone(&is_over));
            let joining = std::thread::spawn(move || {
                let mut command = host.command(&[WARREN]);
                let up = ["up", &token, "--hostname", "b", "--timeout", "20s"];
                command.args(["--socket", &socket]).args(up);
                said(&mut command).is_ok() && over.load(Ordering::Relaxed)
            });
            std::thread::sleep(Duration::from_micros(1_000 + draw(100 + round) % 150_000));
            lan.nodes[B].daemon.as_mut().context("it runs")?.kill()?;
            let _ = joining.join();
        }
        is_over.store(true, Ordering::Relaxed);
        lan.daemon(B)?;
        lan.up(B, &token, &[])?;
        lan.reaches(B, "100.64.0.1")?;
        let list: Value = serde_json::from_str(&lan.admin(&["node", "list", "--json"])?)?;
        ensure!(list["nodes"].as_array().map(Vec::len) == Some(2), "{list}");
        Ok(())
    })
}
