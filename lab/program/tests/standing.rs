//! A lab that stands while no command runs, as docs/lab.md begins with one: made of what `init`
//! writes, used, made worse, looked at and taken away.

use std::path::PathBuf;
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_warren-lab");

/// A lab of this name, which goes with the test however that ends.
struct Lab {
    name: String,
    folder: PathBuf,
}

impl Lab {
    fn up() -> Self {
        let name = format!("wt-stand-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).expect("the folder for temporary files");
        // The name of the lab is that of the file.
        let file = folder.join(format!("{name}.toml"));
        let lab = Self { name, folder };
        let path = file.to_str().expect("UTF-8");
        lab.does(&["init", path]);
        lab.does(&["up", path]);
        lab
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(LAB).args(words).output().expect("the program starts")
    }

    /// What a command prints that has to work.
    fn does(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// What a command says that has to fail.
    fn refuses(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn impair(&self, words: &[&str]) -> String {
        self.does(&[&["impair", "--lab", &self.name], words].concat())
    }

    /// The mean round trip of five pings, in milliseconds.
    fn rtt_ms(&self, from: &str, to: &str) -> f64 {
        let words = ["exec", "--lab", &self.name, from, "ping", "-c", "5", "-i", "0.2", to];
        let said = self.does(&words);
        let mean = said.split("min/avg/max").nth(1).and_then(|rest| rest.split('/').nth(2));
        mean.unwrap_or_else(|| panic!("{said}")).trim().parse().expect("a number")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.run(&["down", &self.name]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_init_writes_stands_and_any_of_its_links_is_made_worse() {
    let lab = Lab::up();
    let clear_ms = lab.rtt_ms("bob", "server");
    assert!(clear_ms < 30.0, "{clear_ms} ms");
    lab.impair(&["home-internet", "delay=60ms", "jitter=0ms", "loss=0%"]);
    let slow_ms = lab.rtt_ms("alice", "server");
    assert!(slow_ms > 115.0, "{slow_ms} ms over a wire of 60 ms each way");

    // One that began as a plain link, at a switch, and one between a host and a router.
    lab.impair(&["server-internet", "delay=50ms"]);
    lab.impair(&["--direction", "forth", "bob-office", "delay=30ms", "correlation=25%"]);
    let far_ms = lab.rtt_ms("bob", "server");
    assert!((125.0..250.0).contains(&far_ms), "{far_ms} ms: 50 ms each way, 30 ms there");
    let status = lab.does(&["status", "--lab", &lab.name]);
    for line in ["wire    server-internet ", "1000 Mbit/s, queue 1000, 50 ms", ", seed "] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(status.contains("20 Mbit/s in bursts of 32kb, a queue of 50 ms"), "{status}");
    assert!(status.lines().all(|line| line.chars().count() <= 120), "{status}");

    let said = lab.refuses(&["impair", "--lab", &lab.name, "office-internet", "loss=1%"]);
    assert!(said.contains("is shaped, and a wire has a rate of its own"), "{said}");
    let said = lab.refuses(&["impair", "--lab", &lab.name, "alice-home", "los=1%"]);
    assert!(said.contains("unknown key \"los\""), "{said}");
    let said = lab.refuses(&["impair", "--lab", &lab.name, "nowhere", "loss=1%"]);
    assert!(said.contains("no link nowhere: there are alice-home, bob-office"), "{said}");
    let json = lab.does(&["status", "--lab", &lab.name, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let wires = json["links"].as_array().expect("links").iter();
    assert_eq!(wires.filter(|link| !link["wire"].is_null()).count(), 3, "{json}");
    lab.does(&["down", &lab.name]);
    assert!(lab.refuses(&["status", "--lab", &lab.name]).contains("is up"));
}
