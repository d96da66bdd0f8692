//! The shortest run of circuits: every system that is here carries every step, and a run that was
//! interrupted goes on. It needs root, and claims no figure.

use std::path::PathBuf;

use bench::circuit::{Settings, run, systems};
use bench::facts::Origin;
use serde_json::Value;

/// A program, which cargo builds beside the tests of the whole project.
fn warren() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("a folder of the profile");
    let program = folder.join("warren");
    assert!(program.is_file(), "build {} first: cargo build", program.display());
    program
}

#[test]
fn the_chain_carries_every_step_of_every_system_that_is_here() {
    let out = std::env::temp_dir().join(format!("warren-circuit-bench-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&out);
    let settings = Settings {
        prefix: "wt-bench-circ".to_owned(),
        losses: vec![1],
        clear_mbit: Vec::new(),
        seconds: 1,
        builds: 2,
        ..Settings::quick()
    };
    let origin = Origin { command: "the test".to_owned(), program: warren() };
    let page = run(&settings, &origin, &out, false).expect("a report");
    let page = std::fs::read_to_string(page).expect("it is there");
    // What becomes of a rival in one second is no affair of ours.
    for name in ["no VPN", "Warren"] {
        assert!(!page.contains(&format!("\n- {name}, ")), "{page}");
    }
    // Who is here is in the table, and who is not is named.
    for name in systems() {
        let row = format!("\n| {name} | ");
        assert!(page.contains(&row) || page.contains(&format!("**Not here**: {name}: ")), "{page}");
    }
    for name in ["no VPN", "Warren, circuit"] {
        assert!(page.contains(&format!("\n| {name} | ")), "{page}");
    }
    let samples = out.join("samples.jsonl");
    let text = std::fs::read_to_string(&samples).expect("samples");
    let all: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut ours = all.iter().filter(|one| one["system"] == "Warren, circuit");
    let bulk = ours.find(|one| one["step"] == "down 1").expect("a step of bulk");
    assert!(bulk["values"]["mbit_s"].as_f64().is_some_and(|rate| rate > 1.0), "{bulk}");
    assert!(bulk["values"]["cpu_b_s_gb"].as_f64().is_some_and(|spent| spent > 0.0), "{bulk}");

    // The last step is lost, as in an interrupted run: only that one is measured again.
    let kept: Vec<&str> = text.lines().collect();
    let cut = kept[..kept.len() - 1].join("\n");
    std::fs::write(&samples, format!("{cut}\n{{\"system\": \"Tor")).expect("written");
    assert!(run(&settings, &origin, &out, false).is_err(), "another run is in the folder");
    run(&settings, &origin, &out, true).expect("it goes on");
    let again = std::fs::read_to_string(&samples).expect("samples");
    let read = again.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok());
    assert_eq!(read.count(), all.len(), "{again}");
    let _ = std::fs::remove_dir_all(&out);
}
