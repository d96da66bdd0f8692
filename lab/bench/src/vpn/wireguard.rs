//! Programs that make a WireGuard interface and are driven by the stock `wg`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{
    Address, Daemon, End, Member, Vpn, WARREN, WARREN_PLAIN, WIREGUARD_GO, find, first_line, inner,
    place, program,
};
use crate::ground::INNER_MTU;

/// The interface in each host.
const IFNAME: &str = "wg0";
const PORT: u16 = 51_820;
/// What Go writes into a program about the module it was built from, before the version.
const GO_MODULE: &[u8] = b"golang.zx2c4.com/wireguard\tv";
/// The word that switches frames, and all that they carry, off.
const FRAMES_OFF: &str = "--frames=off";
/// Its name in the help of a program that knows it.
const FRAMES: &str = "--frames";

/// Whose WireGuard it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Warren,
    WarrenPlain,
    Go,
    Kernel,
}

/// Since this year wireguard-go sends and receives many packets at once.
const QUICK_SINCE: u32 = 2023;

/// A WireGuard, driven by `wg`: a program started as `PROGRAM [wg] -f NAME`, or the kernel's.
#[derive(Debug)]
pub struct WireGuard {
    kind: Kind,
    program: Option<PathBuf>,
    /// Ours under its own name, but with frames switched off.
    frames_off: bool,
}

impl WireGuard {
    /// Ours.
    #[must_use]
    pub fn warren(program: &Path) -> Self {
        Self { kind: Kind::Warren, program: Some(program.to_owned()), frames_off: false }
    }

    /// Speaks plain WireGuard from now on, under the same name.
    #[must_use]
    pub fn frames_off(self) -> Self {
        Self { frames_off: true, ..self }
    }

    /// Ours, with frames switched off: plain WireGuard, without repair. It differs from ours
    /// by one word; a program that does not know the word has nothing to switch off, and then
    /// this contestant is absent.
    #[must_use]
    pub fn warren_plain(program: &Path) -> Self {
        Self { kind: Kind::WarrenPlain, program: Some(program.to_owned()), frames_off: true }
    }

    /// The rival: what `WARREN_BENCH_WIREGUARD_GO` names, or the newest of those on PATH and in
    /// the folder where Go installs; built from source it is called `wireguard`.
    #[must_use]
    pub fn wireguard_go() -> Self {
        Self { kind: Kind::Go, program: newest_wireguard_go(), frames_off: false }
    }

    /// The one in the kernel.
    #[must_use]
    pub fn kernel() -> Self {
        Self { kind: Kind::Kernel, program: None, frames_off: false }
    }

    fn daemon(&self) -> Result<Daemon> {
        let words: &[&str] = match self.kind {
            Kind::Warren | Kind::WarrenPlain if self.frames_off => {
                &["wg", FRAMES_OFF, "-f", IFNAME]
            }
            Kind::Warren | Kind::WarrenPlain => &["wg", "-f", IFNAME],
            Kind::Go => &["-f", IFNAME],
            Kind::Kernel => {
                let before = format!("ip link del {IFNAME} 2>/dev/null || true\n");
                let before = before + &format!("ip link add {IFNAME} type wireguard");
                return Ok(Daemon { before, ..Daemon::default() });
            }
        };
        let program = program(&self.program, self.name())?;
        let env = vec![("LOG_LEVEL".to_owned(), "error".to_owned())];
        // What one that was killed left here, wireguard-go now and then fails to take over.
        let before = format!("rm -f /var/run/wireguard/{IFNAME}.sock");
        Ok(Daemon { env, before, ..Daemon::new(&[&[program], words].concat()) })
    }
}

impl Vpn for WireGuard {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Warren => WARREN,
            Kind::WarrenPlain => WARREN_PLAIN,
            Kind::Go => WIREGUARD_GO,
            Kind::Kernel => "kernel WireGuard",
        }
    }

    fn word(&self) -> &str {
        match self.kind {
            Kind::Warren => "warren",
            Kind::WarrenPlain => "warren-plain",
            Kind::Go => "wireguard-go",
            Kind::Kernel => "wireguard",
        }
    }

    fn version(&self) -> Result<String> {
        if self.kind == Kind::Kernel {
            super::needs("wg", "wireguard-tools")?;
            return kernel_version();
        }
        let found = program(&self.program, self.name())?;
        if self.kind == Kind::WarrenPlain {
            let help = super::make(Path::new("/"), &[found, "wg", "--help"])?;
            ensure!(help.contains(FRAMES), "this Warren has no frames: it is without repair");
        }
        let said = first_line(found, &["--version"])?;
        super::needs("wg", "wireguard-tools")?;
        Ok(match go_module(Path::new(found)) {
            Some(module) if !said.contains(&module) => format!("{said} (module {module})"),
            _ => said,
        })
    }

    fn install_hint(&self) -> &str {
        match self.kind {
            Kind::Warren => "build it: make build",
            Kind::WarrenPlain => "measure a Warren that knows --frames",
            Kind::Go => {
                "install the package wireguard-go, or build a newer one with \
                 `go install golang.zx2c4.com/wireguard@latest`; \
                 WARREN_BENCH_WIREGUARD_GO names one that is not on PATH"
            }
            Kind::Kernel => "use a kernel with WireGuard and load it: modprobe wireguard",
        }
    }

    fn remark(&self, version: &str) -> &str {
        match self.kind {
            Kind::Kernel => "over UDP; has no process: compare the machine's processor time",
            Kind::Warren => "over UDP, with frames and repair",
            Kind::Go if year(version).is_some_and(|year| year < QUICK_SINCE) => {
                "over UDP, plain WireGuard; of before 2023, when it became several times as quick: \
                 beside this one processor time says little"
            }
            Kind::WarrenPlain | Kind::Go => "over UDP, plain WireGuard",
        }
    }

    fn prepare(&self, ends: &[End]) -> Result<Vec<Member>> {
        let private: Vec<String> = ends.iter().map(|_| genkey()).collect::<Result<_>>()?;
        let public: Vec<String> = private.iter().map(|key| pubkey(key)).collect::<Result<_>>()?;
        let mut members = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let mut config =
                format!("[Interface]\nPrivateKey = {}\nListenPort = {PORT}\n", private[i]);
            for (j, other) in ends.iter().enumerate().filter(|(j, _)| *j != i) {
                config += &format!(
                    "\n[Peer]\nPublicKey = {}\nAllowedIPs = {}/32\nEndpoint = {}:{PORT}\n",
                    public[j],
                    inner(j),
                    other.outer
                );
            }
            place(end, "wg0.conf", &config)?;
            let mut daemon = self.daemon()?;
            daemon.ready = format!("wg show {IFNAME}");
            daemon.after = format!(
                "wg setconf {IFNAME} /run/wg0.conf\nip addr add {}/24 dev {IFNAME}\n\
                 ip link set dev {IFNAME} mtu {INNER_MTU} up",
                inner(i)
            );
            members.push(Member {
                ifname: IFNAME.to_owned(),
                daemons: vec![daemon],
                address: Address::Known(inner(i)),
                settled: String::new(),
            });
        }
        Ok(members)
    }
}

/// The kernel's, which says its version once it is loaded.
fn kernel_version() -> Result<String> {
    let read = || std::fs::read_to_string("/sys/module/wireguard/version");
    let version = read().or_else(|_| {
        // Where there is nothing to load, the file stays absent, which is the answer.
        let _ = Command::new("modprobe").args(["-q", "wireguard"]).status();
        read()
    });
    let version = version.context("this kernel has no WireGuard")?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(format!("wireguard {} of Linux {}", version.trim(), release.trim()))
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
    if let Some(named) = super::named("wireguard-go") {
        return Some(named);
    }
    let known = ["wireguard-go", "wireguard"].into_iter().filter_map(|name| {
        let program = find(name)?;
        let said = first_line(program.to_str()?, &["--version"]).ok()?;
        said.contains("wireguard-go").then(|| ((go_module(&program), said), program))
    });
    known.max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, program)| program)
}

/// The year of a version of Go's, as of `wireguard-go v0.0.20220316`; of the module where it is
/// named behind that.
fn year(version: &str) -> Option<u32> {
    let (_, date) = version.rsplit_once("v0.0.")?;
    date.trim_start_matches("0-").get(..4)?.parse().ok()
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
    fn a_version_of_go_tells_its_year() {
        for (version, expected) in [
            ("wireguard-go v0.0.20220316", Some(2022)),
            ("v0.0.20260522210424-ecfc5a8d5446", Some(2026)),
            ("v0.0.0-20230223181233-21636207a675", Some(2023)),
            ("wireguard-go v0.0", None),
            ("v0.0.20x", None),
        ] {
            assert_eq!(year(version), expected, "{version}");
        }
    }

    #[test]
    fn ours_without_repair_differs_by_one_word() {
        let program = Path::new("/x/warren");
        let argv = |vpn: WireGuard| vpn.daemon().expect("a daemon").argv;
        assert_eq!(argv(WireGuard::warren(program)), ["/x/warren", "wg", "-f", "wg0"]);
        let plain = argv(WireGuard::warren_plain(program));
        assert_eq!(plain, ["/x/warren", "wg", "--frames=off", "-f", "wg0"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_absent_with_a_reason() {
        let none = WireGuard::warren(Path::new("/nowhere/warren"));
        let error = format!("{:#}", none.version().expect_err("absent"));
        assert!(error.contains("cannot run /nowhere/warren"), "{error}");
    }
}
