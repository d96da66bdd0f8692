//! Programs that make a WireGuard interface and are driven by the stock `wg`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use lab::sys;

use super::{End, Vpn, WARREN, WIREGUARD_GO, first_version_line, on_path};
use crate::ground::INNER_MTU;

/// Names the wireguard-go that is to be measured, instead of the newest that is found.
const WIREGUARD_GO_VAR: &str = "WARREN_BENCH_WIREGUARD_GO";
/// The interface in each host.
const IFNAME: &str = "wg0";
/// Addresses through the link.
const INNER: [&str; 2] = ["10.10.0.1", "10.10.0.2"];
const PORT: u16 = 51_820;
/// How long a program may take until `wg` can talk to it.
const START_MAX: Duration = Duration::from_secs(5);
/// What Go writes into a program about the module it was built from, before the version.
const GO_MODULE: &[u8] = b"golang.zx2c4.com/wireguard\tv";

/// A program started as `PROGRAM [wg] -f NAME`.
#[derive(Debug)]
pub struct WireGuard {
    name: &'static str,
    program: Option<PathBuf>,
    words: &'static [&'static str],
    hint: &'static str,
}

impl WireGuard {
    /// Ours.
    #[must_use]
    pub fn warren(program: &Path) -> Self {
        Self {
            name: WARREN,
            program: Some(program.to_owned()),
            words: &["wg"],
            hint: "build it: make build",
        }
    }

    /// The rival: what the environment names, or the newest of those on PATH and in the folder
    /// where Go installs; built from source it is called `wireguard`.
    #[must_use]
    pub fn wireguard_go() -> Self {
        let named = std::env::var_os(WIREGUARD_GO_VAR).filter(|name| !name.is_empty());
        let program = named.map(PathBuf::from).or_else(newest_wireguard_go);
        Self {
            name: WIREGUARD_GO,
            program,
            words: &[],
            hint: "install the package wireguard-go, or build a newer one with \
                   `go install golang.zx2c4.com/wireguard@latest`; \
                   WARREN_BENCH_WIREGUARD_GO names one that is not on PATH",
        }
    }

    fn program(&self) -> Result<&Path> {
        self.program.as_deref().with_context(|| format!("no {} on PATH", self.name))
    }

    fn spawn(&self, host: &Host) -> Result<Process> {
        let program = self.program()?.to_str().context("its path is not UTF-8")?;
        let argv = [&[program], self.words, &["-f", IFNAME]].concat();
        let mut command = host.command(&argv);
        command.env("LOG_LEVEL", "error");
        host.spawn_command(command)
    }
}

impl Vpn for WireGuard {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> Result<String> {
        let program = self.program()?;
        let said = first_version_line(program)?;
        Ok(match go_module(program) {
            Some(module) if !said.contains(&module) => format!("{said} (module {module})"),
            _ => said,
        })
    }

    fn install_hint(&self) -> &str {
        self.hint
    }

    fn start(&self, ends: &[End; 2]) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for end in ends {
            processes.push(self.spawn(&end.host)?);
        }
        let private = [genkey()?, genkey()?];
        let public = [pubkey(&private[0])?, pubkey(&private[1])?];
        for (i, end) in ends.iter().enumerate() {
            wait_for_control(&end.host, &processes[i])?;
            let config = config(&private[i], &public[1 - i], INNER[1 - i], &ends[1 - i].outer);
            let words = ["wg", "setconf", IFNAME, "/dev/stdin"];
            feed(end.host.command(&words), &config)
                .with_context(|| format!("{} was not configured", self.name))?;
            let mtu = INNER_MTU.to_string();
            end.host.run(&["ip", "link", "set", "dev", IFNAME, "mtu", &mtu])?;
            end.host.bring_up(IFNAME, &[&format!("{}/24", INNER[i])])?;
        }
        Ok(processes)
    }

    fn address<'a>(&self, _end: &'a End, index: usize) -> &'a str {
        INNER[index]
    }
}

fn config(private: &str, peer: &str, peer_inner: &str, peer_outer: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {private}\nListenPort = {PORT}\n\n[Peer]\n\
         PublicKey = {peer}\nAllowedIPs = {peer_inner}/32\nEndpoint = {peer_outer}:{PORT}\n"
    )
}

fn wait_for_control(host: &Host, process: &Process) -> Result<()> {
    let start = Instant::now();
    while !host.output(&["wg", "show", IFNAME])?.status.success() {
        sys::check_interrupted()?;
        ensure!(process.is_running(), "it ended at once; its log:\n{}", process.log());
        if start.elapsed() > START_MAX {
            bail!("its control socket did not answer within {START_MAX:?}:\n{}", process.log());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn genkey() -> Result<String> {
    feed(wg("genkey"), "")
}

fn pubkey(private: &str) -> Result<String> {
    feed(wg("pubkey"), private)
}

fn wg(word: &str) -> Command {
    let mut command = Command::new("wg");
    command.arg(word);
    command
}

/// Runs a command with this as its standard input; returns what it prints, trimmed.
fn feed(mut command: Command, input: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{name}`: install the package wireguard-tools"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input says why when it ends.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("`{name}` did not end"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{name}` failed with {}: {}", output.status, error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn newest_wireguard_go() -> Option<PathBuf> {
    let on_path = ["wireguard-go", "wireguard"].into_iter().filter_map(on_path);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin/wireguard"));
    let programs = on_path.chain(home.filter(|program| program.is_file()));
    let known = programs.filter_map(|program| {
        let said = first_version_line(&program).ok()?;
        said.contains("wireguard-go").then(|| ((go_module(&program), said), program))
    });
    known.max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, program)| program)
}

fn go_module(program: &Path) -> Option<String> {
    module_version(&std::fs::read(program).ok()?)
}

/// The version of the module that a program in Go was built from, where it holds one: the
/// program itself often prints an older one.
fn module_version(program: &[u8]) -> Option<String> {
    let at = program.windows(GO_MODULE.len()).position(|window| window == GO_MODULE)?;
    let version = &program[at + GO_MODULE.len() - 1..];
    let good = |byte: &&u8| byte.is_ascii_alphanumeric() || b".-+".contains(byte);
    let version: Vec<u8> = version.iter().take_while(good).take(100).copied().collect();
    String::from_utf8(version).ok().filter(|version| version.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_a_go_program_is_found_in_it() {
        let program = b"\x7fELF\0path\tgolang.zx2c4.com/wireguard\nmod\t\
            golang.zx2c4.com/wireguard\tv0.0.20260522210424-ecfc5a8d5446\th1:abc=\n";
        assert_eq!(module_version(program).as_deref(), Some("v0.0.20260522210424-ecfc5a8d5446"));
    }

    #[test]
    fn a_program_without_a_module_version_has_none() {
        for program in [
            &b""[..],
            b"\x7fELF",
            b"mod\tgolang.zx2c4.com/wireguard\t(devel)\t",
            b"mod\tgolang.zx2c4.com/wireguard\tv",
            b"mod\tgolang.zx2c4.com/wireguard\tv\xff\xff",
        ] {
            assert_eq!(module_version(program), None, "{program:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_absent_with_a_reason() {
        let none = WireGuard::warren(Path::new("/nowhere/warren"));
        let error = format!("{:#}", none.version().expect_err("absent"));
        assert!(error.contains("cannot run /nowhere/warren"), "{error}");
    }
}
