//! The words of `warren-lab`, which need neither root nor a network.

use std::fs;
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_warren-lab");

fn run(words: &[&str]) -> Output {
    Command::new(LAB).args(words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("all that is printed is text")
}

/// What a command printed that had to fail with exit code 1.
fn failure(words: &[&str]) -> String {
    let output = run(words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
    assert!(said.starts_with("warren-lab: ") && !said.contains("panicked"), "{said}");
    said
}

#[test]
fn help_and_version_succeed_and_mistakes_are_exit_code_2() {
    for words in
        [&["--help"][..], &["up", "--help"], &["bench", "run", "--help"], &["help", "demo"]]
    {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output.stdout).contains("Usage: warren-lab"), "{words:?}");
    }
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version, format!("warren-lab {}\n", env!("CARGO_PKG_VERSION")));
    let help = text(&run(&["--help"]).stdout);
    assert!(!help.contains("pump"), "what is hidden is not shown: {help}");
    for words in [&[][..], &["frobnicate"], &["up"], &["exec", "a"], &["bench"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn completions_and_manual_pages_are_there() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        let printed = text(&output.stdout);
        assert!(output.status.success() && printed.contains("impair"), "{shell}");
        assert!(!printed.contains("pump"), "what is hidden is not completed by {shell}");
    }
    let folder = std::env::temp_dir().join(format!("warren-lab-man-{}", std::process::id()));
    assert!(run(&["man", folder.to_str().expect("UTF-8")]).status.success());
    for page in ["warren-lab", "warren-lab-up", "warren-lab-bench-run", "warren-lab-demo"] {
        let roff = fs::read_to_string(folder.join(format!("{page}.1"))).expect("a page");
        assert!(roff.contains(".SH NAME") && roff.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(!folder.join("warren-lab-wire-pump.1").exists(), "what is hidden has no page");
    fs::remove_dir_all(&folder).expect("the test's own folder");
}

#[test]
fn the_program_to_measure_is_named_beside_this_or_on_the_path() {
    let said = failure(&["bench", "list", "--warren", "/nowhere/warren"]);
    assert!(said.contains("--warren /nowhere/warren: there is no such program"), "{said}");
    // Alone in a folder, with an empty PATH, there is none.
    let folder = std::env::temp_dir().join(format!("warren-lab-alone-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder for temporary files");
    let alone = folder.join("warren-lab");
    // By another process: a thread that forks while we write would have the program busy.
    let copied = Command::new("cp").arg(LAB).arg(&alone).status().expect("cp is there");
    assert!(copied.success());
    let start = |path: &std::path::Path| {
        let mut command = Command::new(&alone);
        command.args(["bench", "list"]).env("PATH", path).output().expect("it starts")
    };
    let empty = start(std::path::Path::new("/nowhere"));
    assert_eq!(empty.status.code(), Some(1));
    let said = text(&empty.stderr);
    assert!(
        said.contains("neither beside this one nor on PATH") && said.contains("--warren"),
        "{said}"
    );
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("our folder");
    fs::write(bin.join("warren"), "").expect("our folder");
    assert!(start(&bin).status.success(), "the one on PATH is taken");
    fs::remove_dir_all(&folder).expect("the test's own folder");
}

/// Any program does for `warren` here: nothing is measured.
#[test]
fn the_bench_lists_what_can_be_measured_and_says_where_there_is_no_run() {
    let output = run(&["bench", "list", "--json", "--warren", LAB]);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let words = |key: &str, name: &str| {
        let all = json[key].as_array().expect("a list").iter();
        all.map(|one| one[name].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(words("profiles", "name"), ["baseline", "low", "medium", "high"]);
    assert!(words("peers", "word").iter().any(|word| word == "easytier-kcp"));
    let list = text(&run(&["bench", "list", "--warren", LAB]).stdout);
    assert!(words("tests", "word").iter().all(|word| list.contains(word)), "{list}");
    for words in [&["bench", "report", "/nowhere"][..], &["bench", "compare", "/nowhere", "/x"]] {
        assert!(failure(words).contains("no run in /nowhere"));
    }
    let wrong = ["bench", "run", "--out", "/nowhere/x", "--peers", "nobody", "--warren", LAB];
    assert!(failure(&wrong).contains("unknown peer \"nobody\": use none, warren"));
}

#[test]
fn init_writes_a_topology_once_and_it_is_one() {
    let folder = std::env::temp_dir().join(format!("warren-lab-init-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder for temporary files");
    let file = folder.join("net.toml");
    let path = file.to_str().expect("UTF-8");
    let output = run(&["init", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&format!("sudo warren-lab up {path}")));
    let said = failure(&["init", path]);
    assert!(said.contains("File exists"), "what is there is not overwritten: {said}");
    let printed = text(&run(&["init", "-"]).stdout);
    assert_eq!(printed, fs::read_to_string(&file).expect("it was written"));
    let topology = lab::topology::Topology::read(&file).expect("it is understood");
    lab::topology::Plan::new(&topology).expect("it makes a network");
    fs::remove_dir_all(&folder).expect("the test's own folder");
}
