//! `warren debug bundle`: what helps others to find out what is wrong, in one tar.
//!
//! The daemon tells of itself: status, counters, map, plan, the last lines of its log. What the
//! machine does with packets is asked of the programs that administrators use. Neither has keys. A
//! daemon that does not answer is no reason for an empty tar: then it is told why.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::daemon::protocol::Request;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::client::Target;

/// A program may take so long, and say so much.
const WITHIN: Duration = Duration::from_secs(10);
const SAID_BYTES_MAX: u64 = 4 << 20;
/// How often it is looked whether a program has ended.
const GLANCE_EVERY: Duration = Duration::from_millis(5);
/// Where programs of administrators lie that PATH may lack.
const USUAL: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// What of the service is told.
const SERVICE: &str = "ActiveState,SubState,Result,ExecMainStatus,ExecMainStartTimestamp,NRestarts";

/// Files of the tar that are what programs say.
const SAID: [(&str, &[&str]); 11] = [
    ("addresses.txt", &["ip", "address"]),
    ("routes.txt", &["ip", "-4", "route", "show", "table", "all"]),
    ("routes-ipv6.txt", &["ip", "-6", "route", "show", "table", "all"]),
    ("rules.txt", &["ip", "-4", "rule"]),
    ("rules-ipv6.txt", &["ip", "-6", "rule"]),
    ("nft.txt", &["nft", "list", "ruleset"]),
    ("sockets.txt", &["ss", "-lntu"]),
    ("resolvectl.txt", &["resolvectl", "status", "--no-pager"]),
    ("kernel.txt", &["uname", "-a"]),
    // Not its status, which has the words of its processes: a token may be one.
    ("service.txt", &["systemctl", "show", "warren", "-p", SERVICE]),
    ("journal.txt", &["journalctl", "-u", "warren", "-n", "500", "--no-pager", "-o", "short-iso"]),
];

/// Files of the tar that are files of the machine, several in one.
const FILES: [(&str, &[&str]); 3] = [
    ("resolver.txt", &["/etc/resolv.conf", "/etc/nsswitch.conf"]),
    ("system.txt", &["/etc/os-release", "/proc/version", "/proc/uptime"]),
    (
        "sysctl.txt",
        &[
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/net/ipv6/conf/all/forwarding",
            "/proc/sys/net/ipv6/conf/all/disable_ipv6",
            "/proc/sys/net/ipv4/conf/all/rp_filter",
            "/proc/sys/net/ipv4/conf/all/src_valid_mark",
            "/proc/sys/net/core/rmem_max",
            "/proc/sys/net/core/wmem_max",
        ],
    ),
];

/// What the tar says of itself.
const ABOUT: &str = "\
What helps to find out what is wrong with a node of Warren.

Names and addresses of the network and of this machine are in these files; keys, tokens and
passwords are not. Look through them before you send them. A file that is one line may say why there
is no more: not every machine has every program, and some want root.
";

/// Writes the tar, or with `--json` what the daemon tells alone.
pub(crate) fn run(target: &Target, out: Option<&Path>) -> Result<()> {
    let told = target.ask(&Request::Debug);
    if target.json() {
        return write(out, (serde_json::to_string_pretty(&told?)? + "\n").as_bytes());
    }
    if out.is_none() && std::io::stdout().is_terminal() {
        bail!("a bundle is a tar, and no text for a terminal: name a file with --out bundle.tar");
    }
    let told = told.unwrap_or_else(|why| {
        let text = format!("warren: what the daemon would tell is missing: {why:#}\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
        json!({ "error": format!("{why:#}") })
    });
    let mut files = of_daemon(&told);
    files.extend(FILES.iter().map(|(name, paths)| (*name, read(paths))));
    files.extend(SAID.iter().map(|(name, words)| (*name, said(words))));
    write(out, &tar(&files, now_s()))?;
    if let Some(path) = out {
        let text = format!(
            "{} is written; names and addresses are in it, keys are not: look through it before \
             you send it\n",
            path.display()
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    Ok(())
}

fn now_s() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

fn write(out: Option<&Path>, bytes: &[u8]) -> Result<()> {
    match out {
        None => std::io::stdout().lock().write_all(bytes).context("cannot write the answer"),
        Some(path) => {
            std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
        }
    }
}

/// What the daemon tells, a file each.
fn of_daemon(told: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| match value {
        Value::Null => "the daemon tells none\n".to_owned(),
        Value::String(text) => text.clone() + "\n",
        other => format!("{other:#}\n"),
    };
    let version = env!("CARGO_PKG_VERSION");
    let mut files = vec![
        ("README.txt", ABOUT.to_owned()),
        ("version.txt", format!("this command: warren {version}\n")),
    ];
    if told["error"].is_string() {
        files.push(("daemon.txt", text(&told["error"])));
        return files;
    }
    files.extend([
        ("status.json", text(&told["status"])),
        ("netcheck.json", text(&told["netcheck"])),
        ("map.json", text(&told["map"])),
        ("counters.json", text(&told["counters"])),
        ("plan.txt", text(&told["plan"])),
        ("log.txt", text(&told["log"])),
    ]);
    files
}

/// What files of the machine say, each below its name.
fn read(paths: &[&str]) -> String {
    let one = |path: &&str| {
        let text = std::fs::read_to_string(path);
        let text = text.unwrap_or_else(|why| format!("cannot be read: {why}"));
        format!("== {path}\n{}\n", text.trim_end())
    };
    paths.iter().map(one).collect()
}

/// What a program says, or why it says nothing.
fn said(words: &[&str]) -> String {
    let line = words.join(" ");
    ask(words).map_or_else(|why| format!("$ {line}\n{why:#}\n"), |text| format!("$ {line}\n{text}"))
}

fn ask(words: &[&str]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut file = scratch()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:{USUAL}"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .spawn()
        .context("it cannot be run")?;
    let begin = Instant::now();
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break if status.success() { String::new() } else { format!("({status})\n") };
        }
        if begin.elapsed() > WITHIN {
            let _ = child.kill();
            let _ = child.wait();
            break format!("(ended after {} s)\n", WITHIN.as_secs());
        }
        std::thread::sleep(GLANCE_EVERY);
    };
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned() + &end)
}

/// A file of our own that is gone when it is closed.
fn scratch() -> Result<File> {
    let name = format!("warren-bundle-{}-{}", std::process::id(), now_s());
    let path: PathBuf = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let _ = std::fs::remove_file(&path);
    Ok(file)
}

/// Bytes of a block of a tar.
const BLOCK: usize = 512;

/// An archive in the form of POSIX (ustar), with its files in a folder of their own.
fn tar(files: &[(&str, String)], now_s: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, text) in files {
        out.extend(head(&format!("warren-bundle/{name}"), text.len(), now_s));
        out.extend(text.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

/// The head of a file: its fields are text, numbers in octal, at fixed places.
fn head(name: &str, len: usize, now_s: u64) -> [u8; BLOCK] {
    let mut head = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        for (byte, letter) in head.iter_mut().skip(at).zip(text.bytes()) {
            *byte = letter;
        }
    };
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{len:011o}"));
    put(136, &format!("{now_s:011o}"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    for (byte, letter) in head.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *byte = letter;
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_itself_reads_what_was_packed() {
        let long = "x".repeat(1300);
        let files = [("a.txt", "one\n".to_owned()), ("empty", String::new()), ("b.txt", long)];
        let folder = std::env::temp_dir().join(format!("warren-tar-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x.tar"), tar(&files, 1_700_000_000)).unwrap();
        let mut command = Command::new("tar");
        let done = command.args(["-xf", "x.tar"]).current_dir(&folder).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        for (name, text) in &files {
            let path = folder.join("warren-bundle").join(name);
            assert_eq!(&std::fs::read_to_string(path).unwrap(), text, "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_or_fails_is_told_in_its_file() {
        assert!(said(&["warren-no-such-program"]).contains("it cannot be run"));
        let failed = said(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert!(failed.starts_with("$ sh -c") && failed.contains("out\nerr\n"), "{failed}");
        assert!(failed.contains("(exit status: 3)"), "{failed}");
        assert_eq!(said(&["echo", "x"]), "$ echo x\nx\n");
        let none = read(&["/no/such/file"]);
        assert!(none.starts_with("== /no/such/file\ncannot be read"), "{none}");
        let told = of_daemon(&json!({ "error": "no daemon answers" }));
        assert!(told.contains(&("daemon.txt", "no daemon answers\n".to_owned())), "{told:?}");
    }
}
