//! The system's `ssh`: agents, jump hosts, security keys and `ssh_config` are the user's own.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use sites::Host;

use crate::Error;

/// A script may take so long, programs that are copied included.
const WITHIN: Duration = Duration::from_secs(180);
/// How often it is looked whether a script has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What `ssh` itself fails with; other numbers are the script's.
const SSH_FAILED: i32 = 255;
/// Tries of a connection that fails before anything was run.
const TRIES: u32 = 3;
/// Before the second try, and twice as long before the third.
const PAUSE: Duration = Duration::from_millis(500);
/// Letters of an error that are told.
const TOLD_MAX: usize = 600;

/// Connections to machines, one a machine, shared by all scripts that run there.
pub struct Ssh {
    config: Option<PathBuf>,
    /// A folder that nobody else can enter, with a socket for each connection.
    control: PathBuf,
}

impl Ssh {
    /// Begins, with a configuration file other than the user's.
    ///
    /// # Errors
    /// If no folder can be made for its sockets.
    pub fn new(config: Option<&Path>) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warren-ssh-{}-{count}", std::process::id());
        let control = std::env::temp_dir().join(name);
        let mut folder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
        // One that is there already is not ours, so it is an error.
        folder.create(&control).map_err(|error| {
            Error::new(control.display(), format!("no folder for connections: {error}"))
        })?;
        Ok(Self { config: config.map(Path::to_owned), control })
    }

    /// The socket of a machine's connection. Its name is the host as the site file says it: `%C` of
    /// OpenSSH before 9.3 is the same for two machines of one address behind two jump hosts.
    fn socket(&self, host: &Host) -> PathBuf {
        let digest = digest(&SHA256, host.to_string().as_bytes());
        let letters = digest.as_ref().iter().take(20).map(|byte| format!("{byte:02x}"));
        self.control.join(letters.collect::<String>())
    }

    fn command(&self, host: &Host, first: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(first);
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ControlMaster=auto",
            "ControlPersist=60",
            "ConnectTimeout=10",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "LogLevel=ERROR",
        ] {
            command.arg("-o").arg(option);
        }
        command.arg("-o").arg(format!("ControlPath={}", self.socket(host).display()));
        if let Some(port) = host.port {
            command.arg("-p").arg(port.to_string());
        }
        if let Some(user) = &host.user {
            command.arg("-l").arg(user);
        }
        command.arg("--").arg(&host.address);
        command
    }

    /// Where a machine is found, as the user's own settings have it.
    ///
    /// # Errors
    /// If `ssh` cannot be run, or does not know.
    pub(crate) fn address(&self, host: &Host) -> Result<String, Error> {
        let failed = |what: String| Error::new(host, what);
        let output = self.command(host, &["-G"]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed(format!("ssh cannot be run: {error}")))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let found = said.lines().find_map(|line| line.strip_prefix("hostname "));
        found.map(str::to_owned).ok_or_else(|| failed("ssh -G knows no address of it".to_owned()))
    }

    /// Runs a script of `sh` on a machine, with `input` on its standard input; what it prints.
    ///
    /// # Errors
    /// What `ssh` or the script said, with the machine.
    pub fn run(&self, host: &Host, script: &str, input: &[u8]) -> Result<String, Error> {
        let mut left = TRIES;
        let mut pause = PAUSE;
        loop {
            let (status, out, error) = self.once(host, script, input)?;
            left -= 1;
            if status == Some(0) {
                return Ok(out);
            }
            let is_hopeless = error.contains("verification failed") || error.contains("denied");
            if status != Some(SSH_FAILED) || left == 0 || is_hopeless {
                return Err(Error::new(host, told(status, &error)));
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    fn once(
        &self,
        host: &Host,
        script: &str,
        input: &[u8],
    ) -> Result<(Option<i32>, String, String), Error> {
        let failed = |error: io::Error| Error::new(host, format!("ssh cannot be run: {error}"));
        let quoted = script.replace('\'', "'\\''");
        // Files and not pipes: a connection that stays must not hold our output open.
        let stem = self.control.join(format!("{:?}", std::thread::current().id()));
        let [to, out, error] =
            ["in", "out", "err"].map(|end| PathBuf::from(format!("{}.{end}", stem.display())));
        private(&to).and_then(|mut file| file.write_all(input)).map_err(failed)?;
        let mut child = self
            .command(host, &[])
            .arg(format!("exec sh -c '{quoted}'"))
            .stdin(std::fs::File::open(&to).map_err(failed)?)
            .stdout(private(&out).map_err(failed)?)
            .stderr(private(&error).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if begin.elapsed() > WITHIN {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::new(host, "no answer within 180 s; is it up?"));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let text = |path: &Path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into());
        let said: String = text(&out).map_err(failed)?;
        let why: String = text(&error).map_err(failed)?;
        for path in [to, out, error] {
            let _ = std::fs::remove_file(path);
        }
        Ok((status.code(), said, why))
    }
}

/// A new file that nobody else may read.
fn private(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// What is said of a failure; control characters of others do not reach the terminal.
fn told(status: Option<i32>, error: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let said: String = error.trim().chars().map(plain).take(TOLD_MAX).collect();
    if said.contains("Host key verification failed") || said.contains("host key") {
        return format!(
            "{said}: its key is not known here; compare it with `ssh-keygen -lf` on the machine, \
             then add it to known_hosts"
        );
    }
    if said.contains("Permission denied") {
        return format!("{said}: your key is not accepted there; try `ssh` by hand");
    }
    match status {
        Some(_) if !said.is_empty() => said,
        Some(status) => format!("the script ended with status {status}"),
        None => "ssh was ended by a signal".to_owned(),
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.control).into_iter().flatten().flatten() {
            let mut close = Command::new("ssh");
            close.arg("-o").arg(format!("ControlPath={}", entry.path().display()));
            close.args(["-O", "exit", "any"]).stdin(Stdio::null());
            let _ = close.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let _ = std::fs::remove_dir_all(&self.control);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_short_and_commands_no_terminal() {
        let said = told(Some(1), &"\u{1b}[2J x\n".repeat(500));
        assert!(said.len() <= TOLD_MAX * 4 && !said.contains('\u{1b}'), "{said}");
        assert_eq!(told(Some(3), ""), "the script ended with status 3");
        assert!(told(Some(255), "Host key verification failed.").contains("known_hosts"));
    }

    #[test]
    fn a_machine_that_is_not_there_is_told_with_its_name() {
        let ssh = Ssh::new(Some(Path::new("/dev/null"))).unwrap();
        let host = Host { user: None, address: "127.0.0.1".to_owned(), port: Some(1) };
        let error = ssh.run(&host, "true", b"").unwrap_err();
        assert_eq!(error.place, "127.0.0.1:1");
        let folder = ssh.control.clone();
        drop(ssh);
        assert!(!folder.exists());
    }
}
