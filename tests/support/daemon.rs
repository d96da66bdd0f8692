//! One running WireGuard program, driven by the stock `wg`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use lab::netns::Host;
use lab::process::Process;

use super::{Sut, eventually, uapi};

/// How long a program may take until its control socket answers.
const START_MAX: Duration = Duration::from_secs(5);

/// A program with one interface. Its sockets stay in `home`, the interface may be moved.
pub struct Daemon {
    pub ifname: String,
    pub home: Host,
    pub process: Process,
}

impl Daemon {
    /// Starts `sut` in `home` and waits until its control socket answers.
    pub fn start(sut: &Sut, home: &Host, ifname: &str) -> Result<Rc<Self>> {
        Self::start_command(sut.command(home, ifname), home, ifname)
    }

    /// As [`Self::start`], with a command made by the caller.
    pub fn start_command(command: Command, home: &Host, ifname: &str) -> Result<Rc<Self>> {
        let process = home.spawn_command(command)?;
        let daemon = Self { ifname: ifname.to_owned(), home: home.clone(), process };
        let ready = || uapi::answers(ifname) || !daemon.process.is_running();
        let waited = eventually("the control socket answers", START_MAX, ready);
        let waited = waited.and_then(|_| {
            ensure!(daemon.process.is_running(), "the program ended at once");
            Ok(())
        });
        waited.with_context(|| format!("starting {ifname}; its log:\n{}", daemon.process.log()))?;
        Ok(Rc::new(daemon))
    }

    /// Runs `wg` with these words; the text goes to its standard input (`/dev/stdin`).
    pub fn wg_with(&self, words: &[&str], input: &str) -> Result<String> {
        let output = wg(words, input)?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "wg {words:?} failed with {}: {err}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `wg set <this interface> <words>`, with the words as in a shell line.
    pub fn set(&self, words: &str) -> Result<()> {
        let mut argv = vec!["set", self.ifname.as_str()];
        argv.extend(words.split_whitespace());
        self.wg_with(&argv, "").map(drop)
    }

    /// `wg set` with one key, read from its standard input.
    pub fn set_secret(&self, words: &str, secret: &str) -> Result<()> {
        let mut argv = vec!["set", self.ifname.as_str()];
        argv.extend(words.split_whitespace());
        self.wg_with(&argv, secret).map(drop)
    }

    /// `wg setconf`: this and nothing else.
    pub fn set_config(&self, config: &str) -> Result<()> {
        self.wg_with(&["setconf", &self.ifname, "/dev/stdin"], config).map(drop)
    }

    /// `wg syncconf`: to this, by the least change.
    pub fn sync_config(&self, config: &str) -> Result<()> {
        self.wg_with(&["syncconf", &self.ifname, "/dev/stdin"], config).map(drop)
    }

    /// `wg show <this interface> <what>`.
    pub fn show(&self, what: &str) -> Result<String> {
        Ok(self.wg_with(&["show", &self.ifname, what], "")?.trim_end().to_owned())
    }

    /// One line of `wg show`, for one peer, without its key.
    pub fn show_peer(&self, what: &str, public: &str) -> Result<String> {
        let all = self.show(what)?;
        let line = all.lines().find_map(|line| line.strip_prefix(public));
        let line = line.with_context(|| format!("no peer {public} in `wg show … {what}`"))?;
        Ok(line.trim().to_owned())
    }

    /// Where `wg` says this peer is.
    pub fn endpoint(&self, public: &str) -> Result<String> {
        self.show_peer("endpoints", public)
    }

    /// Bytes received from and sent to this peer.
    pub fn transfer(&self, public: &str) -> Result<(u64, u64)> {
        let line = self.show_peer("transfer", public)?;
        let mut numbers = line.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(rx)), Some(Ok(tx))) => Ok((rx, tx)),
            _ => bail!("`wg show … transfer` said {line:?}"),
        }
    }

    /// When the last handshake with this peer was, in seconds since 1970; zero if never.
    pub fn handshake_s(&self, public: &str) -> Result<u64> {
        Ok(self.show_peer("latest-handshakes", public)?.parse()?)
    }

    /// Moves the interface to another host; the sockets stay where they are.
    pub fn move_to(&self, host: &Host) -> Result<()> {
        let target = host.namespace();
        self.home.run(&["ip", "link", "set", &self.ifname, "netns", target]).map(drop)
    }

    /// Waits until it listens on the UDP port it was given, which shows that it noticed `up`.
    pub fn wait_bound(&self, port: u16) -> Result<()> {
        let filter = format!("sport = :{port}");
        let bound = || {
            let sockets = self.home.run(&["ss", "-Hlun", &filter]);
            sockets.is_ok_and(|lines| !lines.trim().is_empty())
        };
        let what = format!("{} listens on UDP port {port}", self.ifname);
        eventually(&what, Duration::from_secs(5), bound).map(drop)
    }
}

/// Runs the stock `wg`, which finds the program by its control socket alone.
pub fn wg(words: &[&str], input: &str) -> Result<std::process::Output> {
    let mut child = Command::new("wg")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `wg`: install the package wireguard-tools")?;
    if let Some(mut stdin) = child.stdin.take() {
        // It does not read what it does not need.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().context("`wg` did not end")
}
