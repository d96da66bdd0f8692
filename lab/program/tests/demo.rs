//! `warren-lab demo` as somebody meets it who watches: to its end, interrupted, failing, without
//! the rights. Whatever happens, nothing is left.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_warren-lab");

/// The program that is shown, which cargo builds beside this one with the whole project.
fn warren() -> PathBuf {
    let program = Path::new(LAB).with_file_name("warren");
    assert!(program.is_file(), "build {} first: cargo build", program.display());
    program
}

/// A name for one demonstration, and what it may not leave behind.
struct Name(String);

impl Name {
    fn new(test: &str) -> Self {
        Self(format!("wt-demo-{test}-{}", std::process::id()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(LAB);
        command.arg("--warren").arg(warren());
        command.args(["demo", "--link", "--quick", "--lab", &self.0]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("warren-{}", self.0))
    }

    /// Processes, namespaces and files of this name, found by other means than the program's.
    fn left(&self) -> Vec<String> {
        let namespaces = Command::new("ip").args(["netns", "list"]).output().expect("iproute2");
        let lines = text(&namespaces.stdout);
        let mut left: Vec<String> =
            lines.lines().filter(|line| line.contains(&self.0)).map(str::to_owned).collect();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            // The name is in the folder in which all of them run.
            let inside = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            if inside.starts_with(self.folder()) {
                left.push(entry.path().display().to_string());
            }
        }
        let files = [Path::new("/run/warren-lab").join(&self.0), self.folder()];
        left.extend(files.iter().filter(|f| f.exists()).map(|f| f.display().to_string()));
        left
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.left(), [""; 0]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("all that is printed is text")
}

fn interfaces() -> String {
    text(&Command::new("ip").args(["-o", "link"]).output().expect("iproute2").stdout)
}

/// Standard output and standard error of a demonstration that had to fail.
fn failure(output: &Output) -> (String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(err.starts_with("warren-lab: ") && !err.contains("panicked"), "{err}");
    (out, err)
}

#[test]
fn it_shows_everything_and_leaves_nothing() {
    let name = Name::new("all");
    let output = name.command().output().expect("the program starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    name.assert_nothing_left();
    assert!(!interfaces().contains(" wg0:"), "its interface stays in its hosts");
    assert!(!out.contains('\u{1b}') && !out.contains('\r'), "colour and progress: no terminal");
    let lines = [
        "  alice$ warren link up wg0",
        "  ✓ handshake: the first ping waited for it, and was answered after ",
        "      latest handshake: ",
        "  ✓ ten pings over IPv6, on average ",
        "  alice$ curl -sS -o random.bin http://10.70.0.2:8080/random.bin",
        "  ✓ equal SHA-256 sums",
        "  alice$ iperf3 -c 10.70.0.2 -t 1 -f m -R",
        "  ✓ bob to alice: ",
        "  router$ tcpdump -n -i eth0 ",
        "  ✓ through the link: ",
        "  ✓ the control, beside the link: the marker ",
        "  ✓ nothing is left: no namespace, process, file or interface",
        "  marker, seen by the router  ",
        "  sudo warren-lab down ",
    ];
    let mut rest = out.as_str();
    for line in lines {
        let at = rest.find(&format!("\n{line}"));
        rest = &rest[at.unwrap_or_else(|| panic!("no line {line:?}, in this order:\n{out}")) + 1..];
    }
    assert!(!out.contains("PrivateKey = ") && !out.contains("PresharedKey = "), "{out}");
    let number = |before: &str, after: &str| -> u64 {
        let line = out.lines().find_map(|line| line.split(before).nth(1)?.split(after).next());
        let digits: String = line.expect(before).chars().filter(char::is_ascii_digit).collect();
        digits.parse().expect(before)
    };
    // A text of 1 MiB takes at least as many datagrams as its bytes need.
    assert!(number("through the link: ", " datagrams") >= (1 << 20) / 1500, "{out}");
    assert_eq!(number(" kB, and the marker ", " times"), 0);
    assert!(number("beside the link: the marker ", " times") > 1000, "{out}");
}

#[test]
fn source_000_1_the_network_is_shown_to_its_end_and_leaves_nothing() {
    let name = Name::new("net");
    let mut command = Command::new(LAB);
    command.args(["demo", "--quick", "--lab", &name.0]).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    name.assert_nothing_left();
    let lines = [
        "  server$ warren serve --data . ",
        "  ✓ robot is up, on a campus that lets out nothing but HTTPS",
        "  ✓ office is up, behind a proxy that opens TLS and reads it",
        "  ✓ train is up, in a Wi-Fi that lets out pings and nothing else",
        "  ✓ 30 of 30 ways work, ",
        "  ✓ equal SHA-256 sums",
        "  homenat$ nft ",
        "  ✓ the transfer went on over the relay",
        "  ✓ nothing is left: no namespace, process, file or interface",
    ];
    let mut rest = out.as_str();
    for line in lines {
        let at = rest.find(&format!("\n{line}"));
        rest = &rest[at.unwrap_or_else(|| panic!("no line {line:?}, in this order:\n{out}")) + 1..];
    }
    assert!(!out.contains("warren-join-"), "the token is not shown");
}

/// The server of OpenSSH that `make setup` unpacks, or that is installed; says so if there is none.
fn sshd() -> Option<PathBuf> {
    let tools = Path::new(LAB).ancestors().nth(2).expect("a folder").join("tools");
    let places = ["/usr/sbin/sshd".into(), tools.join("sshd/usr/sbin/sshd")];
    let found = places.into_iter().find(|place| place.exists());
    if found.is_none() {
        eprintln!("\n*** SKIPPED: there is no sshd; `make setup` unpacks one ***\n");
    }
    found
}

/// The demonstration of sites, which has to be shown to its end; `tools` is where its tools are,
/// beside this program without it.
fn sites(name: &Name, tools: Option<&Path>) -> String {
    let mut command = Command::new(LAB);
    command.arg("--warren").arg(warren());
    command.args(["demo", "--sites", "--lab", &name.0]).stdin(Stdio::null());
    if let Some(tools) = tools {
        command.arg("--tools").arg(tools);
    }
    let output = command.output().expect("the program starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    name.assert_nothing_left();
    let lines = [
        "  server$ warren serve --data . ",
        "  server$ cat sites.toml",
        "  server$ . ./accounts && warren sites apply --yes sites.toml",
        "  ✓ three sites are made, and their gateways have joined",
        "  ✓ 30 of 30 ways work, and no machine runs anything of Warren's",
        "  server$ . ./accounts && warren sites quality sites.toml",
        "    FROM ",
        "  ✓ it changes nothing",
        "  paris-gw1$ kill -9 ",
        "  ✓ machines reach each other through the second gateway",
        "    10.0.0.0/8 via 10.4.0.",
        "  ✓ apply has started it again",
        "  server$ . ./accounts && warren sites destroy --yes sites.toml",
        "  ✓ clouds have what they had before, and the server no node",
        "  ✓ nothing is left: no namespace, process, file or interface",
        "  three sites from nothing  ",
        "  ways between machines     30 of 30, ",
        "  again                     ",
        "  a gateway dies            ",
        "  taken away                ",
    ];
    let mut rest = out.as_str();
    for line in lines {
        let at = rest.find(&format!("\n{line}"));
        rest = &rest[at.unwrap_or_else(|| panic!("no line {line:?}, in this order:\n{out}")) + 1..];
    }
    let short = out.split("In short").nth(1).expect("an end");
    eprintln!("In short{}", short.split("\nNext").next().unwrap_or_default());
    assert!(!out.contains("warren-join-") && !out.contains("SECRET"), "no secret is shown: {out}");
    out
}

#[test]
fn source_001_1_001_4_001_14_three_sites_are_shown_to_their_end_and_leave_nothing() {
    if sshd().is_some() {
        let out = sites(&Name::new("sites"), None);
        let is_played = !out.contains("moto is not here");
        assert_eq!(out.contains("\n    provider = \"aws\""), is_played, "{out}");
    }
}

#[test]
fn sites_of_clouds_that_nobody_can_play_are_told_and_shown_by_ssh() {
    let Some(sshd) = sshd() else { return };
    if Path::new("/usr/local/bin/moto_server").exists() {
        eprintln!("\n*** SKIPPED: moto is installed on this machine ***\n");
        return;
    }
    let name = Name::new("nomoto");
    let tools = std::env::temp_dir().join(format!("{}-tools", name.0));
    std::fs::create_dir(&tools).expect("the folder for temporary files");
    if let Some(unpacked) = sshd.ancestors().nth(3).filter(|place| place.ends_with("sshd")) {
        symlink(unpacked, tools.join("sshd")).expect("our folder");
    }
    let out = sites(&name, Some(&tools));
    std::fs::remove_dir_all(&tools).expect("the test's own folder");
    let told = "    moto is not here, which plays AWS: another site of ssh takes its place";
    assert!(out.contains(told) && !out.contains("provider = \"aws\""), "{out}");
    assert!(out.contains("root@dublin-gw1"), "{out}");
}

#[test]
fn an_interrupt_at_any_moment_removes_everything() {
    for (signal, moment) in
        [("INT", "alice$ ping"), ("TERM", "alice$ iperf3"), ("INT", "router$ tcpdump")]
    {
        let name = Name::new(signal);
        let log = name.folder().with_extension("out");
        let file = std::fs::File::create(&log).expect("the folder for temporary files");
        let mut child = name.command().stdout(file).spawn().expect("the program starts");
        let begin = Instant::now();
        let shown = || std::fs::read_to_string(&log).unwrap_or_default();
        while !shown().contains(moment) {
            assert!(begin.elapsed() < Duration::from_secs(40), "never {moment}:\n{}", shown());
            assert!(child.try_wait().expect("a child").is_none(), "ended:\n{}", shown());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!name.left().is_empty(), "there is something to remove");
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill").success());
        let begin = Instant::now();
        let output = child.wait_with_output().expect("it ends");
        assert!(begin.elapsed() < Duration::from_secs(8), "it ends soon: {:?}", begin.elapsed());
        let (_, err) = failure(&output);
        assert!(err.contains("interrupted by a signal"), "{err}");
        let out = shown();
        std::fs::remove_file(&log).expect("the test's own file");
        assert!(out.contains("  ✗ interrupted by a signal"), "{out}");
        assert!(out.contains("  ✓ nothing is left"), "{out}");
        name.assert_nothing_left();
    }
}

#[test]
fn a_failed_step_is_told_with_the_log_and_everything_is_removed() {
    let name = Name::new("fail");
    let folder = std::env::temp_dir().join(format!("{}-bin", name.0));
    std::fs::create_dir(&folder).expect("the folder for temporary files");
    // Somebody's curl that does not work.
    let curl = folder.join("curl");
    std::fs::write(&curl, "#!/bin/sh\necho curl: it rains >&2\nexit 7\n").expect("a file");
    std::fs::set_permissions(&curl, std::fs::Permissions::from_mode(0o755)).expect("our file");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [folder.clone().into_os_string(), path].join(&OsString::from(":"));
    let output = name.command().env("PATH", path).output().expect("the program starts");
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
    let (out, err) = failure(&output);
    assert!(err.contains("`curl -sS -o random.bin") && err.contains("exit status: 7"), "{err}");
    for line in [
        "  ✗ `curl -sS -o random.bin",
        "    curl: it rains",
        "  ✗ the last lines of alice$ warren link up wg0",
        "  ✓ nothing is left",
    ] {
        assert!(out.contains(&format!("\n{line}")), "no line {line:?}:\n{out}");
    }
    name.assert_nothing_left();
}

#[test]
fn a_reader_that_goes_away_ends_it_and_leaves_nothing() {
    let name = Name::new("pipe");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = name.command().stdout(writer).output().expect("the program starts");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    name.assert_nothing_left();
}

#[test]
fn what_is_missing_is_said_before_anything_is_made() {
    let name = Name::new("root");
    let nobody = ["--reuid", "65534", "--clear-groups", "--regid", "65534"];
    // The build's folder may be closed to others: the program is reached through a copy.
    let copy = std::env::temp_dir().join(format!("{}-warren", name.0));
    std::fs::copy(LAB, &copy).expect("the folder for temporary files");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("our file");
    let output = Command::new("setpriv")
        .args(nobody)
        .arg(&copy)
        .arg("demo")
        .arg("--warren")
        .arg("/bin/true")
        .output();
    let (out, err) = failure(&output.expect("setpriv is of util-linux"));
    std::fs::remove_file(&copy).expect("the test's own file");
    assert_eq!(out, "");
    assert!(err.contains("needs root") && err.contains("`sudo warren-lab demo`"), "{err}");

    let empty = std::env::temp_dir().join(format!("{}-empty", name.0));
    std::fs::create_dir(&empty).expect("the folder for temporary files");
    symlink("/bin/true", empty.join("curl")).expect("our folder");
    let output = name.command().env("PATH", &empty).output().expect("the program starts");
    std::fs::remove_dir_all(&empty).expect("the test's own folder");
    let (_, err) = failure(&output);
    assert!(err.contains("iperf3") && err.contains("`make setup`"), "{err}");
    assert!(!err.contains("curl"), "what is there is not missing: {err}");

    let output = Command::new(LAB).args(["demo", "--lab", "a/b"]).output().expect("it starts");
    let (_, err) = failure(&output);
    assert!(err.contains("1 to 40 letters"), "{err}");
    name.assert_nothing_left();
}
