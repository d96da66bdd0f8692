//! Which program is tested, and which one it is tested against.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use lab::netns::Host;

/// Set by tests that measure: programs write no more than errors from then on.
pub static QUIET: AtomicBool = AtomicBool::new(false);

/// A program that makes a WireGuard interface and serves its control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sut {
    /// Our own.
    Warren,
    /// Our own, speaking plain WireGuard with everybody.
    Plain,
    /// Our own, whose small packets wait 32 ms for each other.
    Held,
    /// Our own, that spends at most a twentieth on repair.
    Thrifty,
    /// Our own, that holds and compresses what it may.
    Packed,
    /// Another one, started as `PROGRAM -f NAME`.
    Foreign(PathBuf),
}

impl Sut {
    /// The one that `WARREN_SUT` names; ours without it.
    pub fn under_test() -> Self {
        match std::env::var("WARREN_SUT") {
            Err(_) => Self::Warren,
            Ok(name) if name.is_empty() || name == "warren" => Self::Warren,
            Ok(name) => Self::Foreign(on_path(&name).unwrap_or_else(|| name.into())),
        }
    }

    /// The newest wireguard-go on PATH; its own builds are called `wireguard`.
    pub fn wireguard_go() -> Option<Self> {
        let names = ["wireguard-go", "wireguard"];
        let found = names.iter().filter_map(|name| on_path(name));
        let newest = found.max_by_key(|program| version(program))?;
        version(&newest).contains("wireguard-go").then_some(Self::Foreign(newest))
    }

    pub fn is_warren(&self) -> bool {
        !matches!(self, Self::Foreign(_))
    }

    /// The words that start it in the foreground for one interface.
    pub fn argv(&self, ifname: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Warren => &[env!("CARGO_BIN_EXE_warren"), "wg", "-f", ifname],
            Self::Plain => &[env!("CARGO_BIN_EXE_warren"), "wg", "-f", "--frames", "off", ifname],
            Self::Held => &[env!("CARGO_BIN_EXE_warren"), "wg", "-f", "--hold-ms", "32", ifname],
            Self::Thrifty => {
                &[env!("CARGO_BIN_EXE_warren"), "wg", "-f", "--repair-max", "5%", ifname]
            }
            Self::Packed => &[
                env!("CARGO_BIN_EXE_warren"),
                "wg",
                "-f",
                "--hold-ms",
                "32",
                "--compress",
                "on",
                ifname,
            ],
            Self::Foreign(path) => &[path.to_str().expect("an UTF-8 path"), "-f", ifname],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// The same as a command inside `host`.
    pub fn command(&self, host: &Host, ifname: &str) -> Command {
        let argv = self.argv(ifname);
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut command = host.command(&words);
        let level = if QUIET.load(Ordering::Relaxed) { "error" } else { "verbose" };
        command.env("LOG_LEVEL", std::env::var("LOG_LEVEL").as_deref().unwrap_or(level));
        // The cases of netns.sh are about plain WireGuard, and count bytes.
        if env!("CARGO_CRATE_NAME") == "netns" {
            command.env("WARREN_FRAMES", "off");
        }
        command
    }

    /// The same as a word list for a shell, with `ifname` as it stands.
    pub fn shell(&self, ifname: &str) -> String {
        self.argv(ifname).join(" ")
    }
}

/// Where `name` lies on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let output = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    output.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
