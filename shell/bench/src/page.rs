//! What a run says to people: `report.html` and `report.md` in its folder, and lists.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use sim::profile;

use crate::ring::sample;
use crate::ring::{RING, Test, grid};
use crate::vpn::Vpn;

/// Writes both forms into the folder of a run; returns their paths.
///
/// # Errors
/// Returns an error when there is no run, or the folder cannot be written.
pub fn write(dir: &Path) -> Result<[PathBuf; 2]> {
    let (_note, _samples) = sample::read(dir)?;
    todo!()
}

/// What is different between two runs.
///
/// # Errors
/// Returns an error when either folder holds no run.
pub fn compare(_a: &Path, _b: &Path) -> Result<String> {
    todo!()
}

/// Peers, profiles and tests, for people.
#[must_use]
pub fn list(peers: &[Box<dyn Vpn>]) -> String {
    let mut text = String::from("Peers\n");
    for vpn in peers {
        let (word, name) = (vpn.word(), vpn.name());
        let _ = match vpn.version() {
            Ok(version) => writeln!(text, "  {word:<14} {name}: {version}"),
            Err(why) => {
                let hint = vpn.install_hint();
                writeln!(text, "  {word:<14} {name}: absent, {why:#}\n{:17}get it: {hint}", "")
            }
        };
    }
    text += "\nProfiles, for each host's way out: 1 Gbit/s, a queue of 1000 packets, and\n";
    for name in profile::PROFILES {
        let _ = writeln!(text, "  {name:<14} {}", weather(name));
    }
    text += "  or words joined by +, as delay=20ms+loss=1%+burst=4+rate=50mbit+limit=83\n";
    let _ = writeln!(text, "  --grid measures {} such profiles", grid().len());
    text += "\nTests\n";
    for test in Test::ALL {
        let _ = writeln!(text, "  {:<14} {}", test.word(), test.title());
    }
    text
}

/// The same as JSON, schema 1.
///
/// # Errors
/// Returns an error when it cannot be written as JSON, which does not happen.
pub fn list_json(peers: &[Box<dyn Vpn>]) -> Result<String> {
    let peer = |vpn: &Box<dyn Vpn>| {
        let version = vpn.version();
        json!({
            "word": vpn.word(),
            "name": vpn.name(),
            "version": version.as_ref().ok(),
            "absent": version.as_ref().err().map(|why| format!("{why:#}")),
            "hint": vpn.install_hint(),
            "remark": vpn.remark(),
        })
    };
    let all = json!({
        "schema": 1,
        "peers": peers.iter().map(peer).collect::<Vec<_>>(),
        "profiles": profile::PROFILES.map(|n| json!({"name": n, "weather": weather(n)})),
        "tests": Test::ALL.map(|t| json!({"word": t.word(), "title": t.title()})),
    });
    Ok(serde_json::to_string_pretty(&all).context("cannot write JSON")? + "\n")
}

/// A profile in words.
fn weather(name: &str) -> String {
    let Some(i) = profile::named(name) else { return String::new() };
    if i.delay_us == 0 && i.loss == 0.0 {
        return "nothing else".to_owned();
    }
    format!(
        "{} ± {} ms, {} % lost, {} % sent at once (correlation {} %)",
        i.delay_us / 1_000,
        i.jitter_us / 1_000,
        i.loss * 100.0,
        i.reorder * 100.0,
        i.reorder_correlation * 100.0
    )
}
