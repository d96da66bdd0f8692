//! The built program as people and scripts meet it: words, files, exit codes, streams.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[path = "cli/life.rs"]
mod life;

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

/// A folder of one test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warren-cli-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Self(path)
    }

    /// A wg-quick file with this text, for its owner only.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the test's own folder can be written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the file is ours");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program with `input` and nothing of our environment that would change what it does.
fn run_as(program: &str, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(words)
        .env_remove("LOG_LEVEL")
        .env_remove("WG_PROCESS_FOREGROUND")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    // one that reads no input may be gone by now
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("it ends")
}

fn run(words: &[&str]) -> Output {
    run_as(WARREN, words, b"")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("all that is printed is text")
}

/// What a command printed that had to fail with exit code 1.
fn failure(words: &[&str], input: &[u8]) -> String {
    let output = run_as(WARREN, words, input);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
    assert!(said.starts_with("warren: ") && !said.contains("panicked"), "{said}");
    assert!(!said.contains('\u{1b}'), "colours only on terminals: {said:?}");
    said
}

#[test]
fn help_and_version_succeed_and_mistakes_are_exit_code_2() {
    for words in [&["--help"][..], &["wg", "--help"], &["link", "up", "--help"], &["help", "link"]]
    {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output.stdout).contains("Usage:"), "{words:?}");
    }
    let told = text(&run(&["wg", "--help"]).stdout);
    assert!(told.contains("WG_QUICK_USERSPACE_IMPLEMENTATION"), "all of it is told: {told}");
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version, format!("warren {}\n", env!("CARGO_PKG_VERSION")));
    let mistakes: [&[&str]; 7] = [
        &[],
        &["frobnicate"],
        &["wg"],
        &["wg", "a", "b"],
        &["link", "up"],
        &["genkey", "extra"],
        &["wg", "--log", "loud", "wt0"],
    ];
    for words in mistakes {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
    let near = text(&run(&["genkye"]).stderr);
    assert!(near.contains("genkey"), "a near miss is helped: {near}");
}

#[test]
fn what_went_into_another_program_says_where() {
    for (words, line) in [
        (&["lab", "up", "net.toml"][..], "warren-lab up net.toml"),
        (&["bench", "--help"], "warren-lab bench --help"),
        (&["demo", "--link"], "warren-lab demo --link"),
    ] {
        let output = run(words);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""));
        let told = text(&output.stderr);
        assert!(told.contains(&format!("type `{line}`")) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn long_helps_have_examples_that_begin_with_the_program() {
    for words in [&["up"][..], &["serve"], &["link", "up"], &["policy"], &["why"]] {
        let told = text(&run(&[words, &["--help"]].concat()).stdout);
        let examples = told.split("Examples:\n").nth(1).expect("examples");
        let begin = format!("  warren {}", words.join(" "));
        assert!(examples.lines().all(|line| line.starts_with(&begin)), "{told}");
    }
}

#[test]
fn keys_are_those_of_wg() {
    for _ in 0..8 {
        let key = run(&["genkey"]).stdout;
        assert_eq!(key.len(), 45);
        let ours = run_as(WARREN, &["pubkey"], &key);
        let theirs = run_as("wg", &["pubkey"], &key);
        assert_eq!((ours.status.code(), &ours.stdout), (Some(0), &theirs.stdout));
        let key = run_as("wg", &["genkey"], b"").stdout;
        let ours = run_as(WARREN, &["pubkey"], &key).stdout;
        assert_eq!(ours, run_as("wg", &["pubkey"], &key).stdout);
    }
    let psk = text(&run(&["genpsk"]).stdout);
    assert_eq!(psk.len(), 45);
    assert_ne!(psk, text(&run(&["genpsk"]).stdout));
    let spaced = format!("{KEY}\r\n \t\n");
    let ours = run_as(WARREN, &["pubkey"], spaced.as_bytes());
    assert_eq!(ours.stdout, run_as("wg", &["pubkey"], spaced.as_bytes()).stdout);
}

#[test]
fn what_is_no_key_is_refused_as_wg_refuses_it() {
    let long = format!("{KEY}x");
    let two = format!("{KEY}\n{KEY}\n");
    let bad_tail = KEY.replace("mk=", "ml=");
    for input in ["", "\n", "short", &KEY[1..], &long, &two, &bad_tail, "\u{00ff}\u{0}"] {
        let said = failure(&["pubkey"], input.as_bytes());
        let theirs = run_as("wg", &["pubkey"], input.as_bytes());
        assert_eq!(theirs.status.code(), Some(1), "{input:?}");
        let reason = text(&theirs.stderr).trim_start_matches("wg: ").trim_end().to_owned();
        assert!(said.contains(&reason), "{input:?}: {said} lacks {reason}");
        assert!(!said.contains(KEY), "secrets are not repeated");
    }
}

#[test]
fn a_key_into_a_file_for_all_is_warned_about_as_wg_does() {
    let folder = Folder::new("modes");
    let path = folder.0.join("key");
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        for word in ["genkey", "genpsk"] {
            let file = File::create(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let said = |program: &str| {
                let file = file.try_clone().unwrap();
                let output = Command::new(program).arg(word).stdout(file).output().unwrap();
                assert!(output.status.success());
                text(&output.stderr)
            };
            let ours = said(WARREN);
            assert_eq!(ours, said("wg"));
            assert_eq!(!ours.is_empty(), warned, "{mode:o}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for words in [&["genkey"][..], &["genpsk"], &["completions", "bash"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(WARREN).args(words).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(text(&output.stderr), "", "{words:?}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(WARREN).arg("genkey").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a disk that is full is one");
    assert!(text(&output.stderr).contains("cannot write the key: No space left"));
}

#[test]
fn completions_and_manual_pages_are_there() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        let printed = text(&output.stdout);
        assert!(output.status.success() && printed.contains("genkey"), "{shell}");
        assert!(printed.contains("allow-scripts") && printed.contains("netcheck"), "{shell}");
        assert!(!printed.contains("warren-lab"), "what is hidden is not completed by {shell}");
    }
    // Files of links are names that only the program knows; a shell asks for them.
    let folder = Folder::new("names");
    let source = format!(
        "warren() {{ if [ \"$1\" = names ]; then echo \"$2-one\"; else '{WARREN}' \"$@\"; fi; }}
         eval \"$('{WARREN}' completions bash)\"
         complete_it() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=();
             _warren_named warren \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[*]}}\"; }}
         complete_it warren ping ''
         complete_it warren node show n
         complete_it warren set --exit-node ''
         complete_it warren link reload x
         complete_it warren nod"
    );
    let path = folder.file("complete.sh", &source);
    let said = Command::new("bash").args(["--norc", &path]).output().unwrap();
    let said = text(&said.stdout);
    assert_eq!(said, "peers-one\nnodes-one\npeers-one\n\nnode\n", "as a key is pressed");
    // Asked where nothing runs, it says nothing, and that is no error.
    let mut names = Command::new(WARREN);
    let none = names.args(["names", "peers"]).env("WARREN_SOCKET", "/nowhere").output().unwrap();
    assert!(none.status.success() && none.stdout.is_empty() && none.stderr.is_empty());
    let folder = Folder::new("man");
    let inner = folder.0.join("new/man1");
    assert!(run(&["man", inner.to_str().unwrap()]).status.success());
    for page in ["warren.1", "warren-wg.8", "warren-link.1", "warren-link-up.1", "warren-daemon.8"]
    {
        let roff = fs::read_to_string(inner.join(page)).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(
                roff.contains(&format!(".SH {section}\n"))
                    || roff.contains(&format!(".SH \"{section}\"\n")),
                "{page} {section}: {roff}"
            );
        }
        assert!(!roff.contains("see a summary"), "{page}: {roff}");
    }
    let page = |name: &str| fs::read_to_string(inner.join(name)).unwrap();
    let daemon = page("warren-daemon.8");
    assert!(daemon.contains(".SH FILES\n.TP\n\\fB/var/lib/warren\\-node\\fR\n"), "{daemon}");
    assert!(daemon.contains("\\fBWARREN_STATE\\fR\n"), "{daemon}");
    let create = page("warren-key-create.1");
    assert!(create.contains("warren\\-key(1), warren\\-key\\-list(1)"), "{create}");
    assert!(page("warren.1").contains("\\fBwarren\\-serve(8)\\fR"), "{}", page("warren.1"));
    assert!(!inner.join("warren-daemon.1").exists() && !inner.join("warren-names.1").exists());
    let services = folder.0.join("man8");
    assert!(run(&["man", services.to_str().unwrap(), "--section", "8"]).status.success());
    assert_eq!(fs::read_dir(&services).unwrap().count(), 4);
    assert!(!inner.join("warren-demo.1").exists(), "what is hidden has no page");
    let said = failure(&["man", "/proc/nowhere"], b"");
    assert!(said.contains("cannot make the folder /proc/nowhere"), "{said}");
}

#[test]
fn a_bad_file_is_told_with_line_and_column() {
    let folder = Folder::new("files");
    let path = folder.file("wtcli.conf", "[Interface]\n  Adress = 10.0.0.1/24\nMTU = 1\n");
    let said = failure(&["link", "up", &path], b"");
    let first = format!("warren: {path}:2:3: unknown key `Adress`; did you mean Address?\n");
    assert!(said.starts_with(&first), "{said}");
    assert!(said.contains(&format!("{path}:3:7: MTU: `1` is not a number from 68")), "{said}");

    let secret = format!("[Interface]\nPrivateKey = {}\n", &KEY[1..]);
    let said = failure(&["link", "up", &folder.file("wtcli.conf", &secret)], b"");
    assert!(said.contains(":2:14: PrivateKey: ") && !said.contains(&KEY[1..]), "{said}");

    let missing = folder.0.join("none.conf").display().to_string();
    let said = failure(&["link", "up", &missing], b"");
    assert!(said.contains(&format!("cannot read {missing}: No such file")), "{said}");
    let unnamed = folder.file("a name that is too long.conf", "[Interface]\n");
    assert!(failure(&["link", "up", &unnamed], b"").contains("use --name"));
    let said = failure(&["link", "up", &folder.0.display().to_string()], b"");
    assert!(said.contains("Is a directory"), "{said}");
}

#[test]
fn a_name_that_cannot_be_is_refused_in_the_foreground_and_from_the_background() {
    for words in [&["wg", "-f", "a/b"][..], &["wg", "a/b"], &["wg", "-f", "", "--log", "debug"]] {
        let output = run(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "it is wrong usage: {said}");
        assert!(said.contains("1 to 15"), "{words:?}: {said}");
        assert_eq!(said.matches("1 to 15").count(), 1, "told once: {said}");
    }
}

#[test]
fn a_log_level_of_other_programs_keeps_nobody_from_starting() {
    for (level, logs) in [("warning", false), ("", false), ("NOTICE", false), ("Verbose", true)] {
        let space = Space::new();
        let name = format!("wtl{}", std::process::id());
        let words = ["netns", "exec", &space.0, "timeout", "-s", "INT", "1", WARREN, "wg", "-f"];
        let output = Command::new("ip").args(words).arg(&name).env("LOG_LEVEL", level).output();
        let output = output.expect("iproute2 is installed");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(124), "{level:?}: {said}");
        assert_eq!(said.contains("interface created"), logs, "{level:?}: {said}");
    }
    let help = text(&run(&["wg", "--help"]).stdout);
    assert!(help.contains("[env: LOG_LEVEL]"), "{help}");
}

/// A network namespace for one interface, removed with all that is in it.
struct Space(String);

impl Space {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wt-cli-{}-{number}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        assert!(made.expect("iproute2 is installed").success(), "this test needs root");
        Self(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut all = vec!["netns", "exec", &self.0];
        all.extend(words);
        run_as("ip", &all, b"")
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let pids = run_as("ip", &["netns", "pids", &self.0], b"").stdout;
        for pid in text(&pids).split_whitespace() {
            let _ = Command::new("kill").arg(pid).status();
        }
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn warren_wg_goes_to_the_background_when_wg_can_talk_to_it() {
    let folder = Folder::new("wg");
    let program = folder.0.join("warren-wg");
    symlink(WARREN, &program).unwrap();
    let (space, program) = (Space::new(), program.display().to_string());
    for word in ["--version", "-V"] {
        let version = run_as(&program, &[word], b"");
        assert_eq!(version.status.code(), Some(0));
        assert_eq!(text(&version.stdout), format!("warren {}\n", env!("CARGO_PKG_VERSION")));
    }
    let name = format!("wtc{}", std::process::id());
    // its output is read to the end, so nothing in the background may hold it open
    let started = space.run(&[&program, &name]);
    assert_eq!(text(&started.stderr), "");
    assert_eq!(started.status.code(), Some(0));
    let set = space.run(&["wg", "set", &name, "listen-port", "4242", "fwmark", "7"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    assert_eq!(text(&space.run(&["wg", "show", &name, "fwmark"]).stdout), "0x7\n");
    let again = space.run(&[&program, &name]);
    assert_eq!(again.status.code(), Some(1), "the name is taken");
    assert!(text(&again.stderr).starts_with("warren: "), "{}", text(&again.stderr));

    assert!(space.run(&["ip", "link", "delete", &name]).status.success());
    let socket = PathBuf::from(format!("/var/run/wireguard/{name}.sock"));
    let deadline = Instant::now() + Duration::from_secs(5);
    while socket.exists() {
        assert!(Instant::now() < deadline, "the end of the interface is the end of the program");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_policy_file_is_checked_with_its_tests_and_its_mistakes_have_places() {
    let folder = Folder::new("policy");
    let good = folder.file(
        "good.hujson",
        "{ // ours\n\"tagOwners\": {\"tag:web\": []},\n\"acls\": [{\"action\": \"accept\", \
         \"src\": [\"ann@\"], \"dst\": [\"tag:web:443\"]}],\n\"ssh\": [],\n\
         \"tests\": [{\"src\": \"ann@\", \"accept\": [\"tag:web:443\"], \
         \"deny\": [\"tag:web:22\"]}]}",
    );
    let output = run(&["policy", "check", &good]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{good}: 1 rule, 1 test passed\n"));
    assert!(text(&output.stderr).starts_with(&format!("warning: {good}:4:1: \"ssh\"")));

    let nodes = folder.file("nodes.hujson", "{\"nodes\": [{\"id\": 1}, {\"id\": 1}]}");
    let plain = folder.file("plain.hujson", "{\"acls\": []}");
    let said = failure(&["policy", "check", &plain, "--nodes", &nodes], b"");
    assert!(said.contains("two nodes have the number 1"), "{said}");

    let wrong = folder.file("wrong.hujson", "{\"acls\": [],\n\"group\": {},\n\"hosts\": 5}");
    let said = failure(&["policy", "check", &wrong], b"");
    assert!(said.contains(&format!("\n{wrong}:2:1: the key \"group\" is not known")), "{said}");
    assert!(said.contains(&format!("\n{wrong}:3:10: a number stands where")), "{said}");

    let failing = folder.file(
        "failing.hujson",
        "{\"grants\": [{\"src\": [\"*\"], \"dst\": [\"*\"], \"ip\": [\"*\"]}],\n\
         \"tests\": [{\"src\": \"ann@\", \"deny\": [\"ben@:22\"]}]}",
    );
    let said = failure(&["policy", "check", &failing], b"");
    assert!(said.contains("grants[0] (line 1) allows it"), "{said}");
    assert!(failure(&["policy", "check", "/nowhere"], b"").contains("cannot read /nowhere"));

    let json = |path: &str, code: i32| -> serde_json::Value {
        let output = run(&["policy", "check", path, "--json"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        serde_json::from_str(&text(&output.stdout)).expect("JSON")
    };
    let said = json(&good, 0);
    assert_eq!(
        (&said["schema"], &said["rules"], &said["tests"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        (&said["warnings"][0]["line"], &said["warnings"][0]["column"]),
        (&4.into(), &1.into())
    );
    let said = json(&wrong, 1);
    assert_eq!(said["refused"], wrong.as_str());
    assert_eq!((&said["faults"][0]["line"], &said["faults"][0]["column"]), (&2.into(), &1.into()));
}

#[test]
fn what_no_authority_certifies_is_told_before_anything_is_made() {
    let folder = Folder::new("acme");
    let data = folder.0.join("data").display().to_string();
    let serve = ["serve", "--data", &data, "--url", "https://127.0.0.1:1"];
    for (words, told) in [
        (&["--acme", "*.example.com"][..], "--acme \"*.example.com\": wildcards are proven by DNS"),
        (&["--acme", "vpn.example.com,192.0.2.1"], "--acme \"192.0.2.1\": that is an address"),
        (&["--acme", "vpn.example.com", "--acme-directory", "example.com"], "--acme-directory"),
        (&["--acme", "vpn.example.com", "--acme-email", "nobody"], "--acme-email \"nobody\""),
        (&["--acme", "vpn.example.com", "--acme-ca", "/nowhere"], "--acme-ca: /nowhere: "),
    ] {
        let said = failure(&[&serve[..], words].concat(), b"");
        assert!(said.contains(told), "{words:?}: {said}");
    }
    for words in [
        &["--acme", "a.example", "--tls-cert", "a", "--tls-key", "b"][..],
        &["--acme-email", "a@example.com"],
        &["--acme-ca", "/nowhere"],
        &["--acme-directory", "https://ca.example/directory"],
    ] {
        let output = run(&[&serve[..], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains("--acme"), "{words:?}");
    }
    assert!(!folder.0.join("data").exists());
}

/// What systemd would run, each with `--help` behind it: a word that is none of ours is refused
/// before that.
#[test]
fn the_units_call_the_program_as_it_is() {
    let units = [("warren", "daemon"), ("warren-server", "serve"), ("warren-relay", "relay")];
    for (unit, command) in units {
        let path = format!("{}/packaging/{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let file = fs::read_to_string(path).expect("it is part of the project");
        let start = file.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let start = start.expect("it starts something");
        let start = start.replace("${STATE_DIRECTORY}", "/tmp/x").replace("$FLAGS", "--help");
        let words: Vec<&str> = start.split(' ').skip(1).collect();
        assert_eq!(words[0], command);
        let out = run(&words);
        assert!(out.status.success(), "{words:?}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains("Usage: warren"), "{words:?}");
    }
}
