//! A room: a lab whose hosts have a folder each, in which commands run as a user would run them.
//!
//! The folders lie below one that only root can enter. Programs that are shown or measured are
//! found by their names, before others. Every wait looks for signals, so that what is interrupted
//! ends at once.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::process::Process;
use crate::sys;
use crate::topology::{Lab, Plan, Topology};

/// Between two looks at something that is awaited.
pub const GLANCE: Duration = Duration::from_millis(5);
/// Lines of a log that are told after a failure.
const TAIL_LINES: usize = 12;
/// The folder of programs, beside those of the hosts.
const PROGRAMS: &str = "bin";
/// What may be set where this is started, and changes what programs do.
const NOT_OURS: [&str; 8] = [
    "LOG_LEVEL",
    "WG_PROCESS_FOREGROUND",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "WARREN_SOCKET",
];

/// A lab and its folders, both removed on drop.
#[derive(Debug)]
pub struct Room {
    // Goes first: programs of the hosts may have files open.
    lab: Lab,
    folder: Folder,
}

/// Where the commands of all hosts run, removed on drop.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever looks for traces tells of it.
        let _ = remove_folder(&self.0);
    }
}

impl Room {
    /// Builds the lab `name` out of the text of a topology, called `file` in its mistakes, with a
    /// folder for each host. `programs` are found by their names in it.
    ///
    /// # Errors
    /// If the topology has a mistake, the name is in use, or something cannot be made; then all
    /// that was made is removed.
    pub fn lay(name: &str, topology: &str, file: &str, programs: &[(&Path, &str)]) -> Result<Self> {
        let topology = Topology::parse(topology, Path::new(file))?;
        let mut plan = Plan::new(&topology)?;
        name.clone_into(&mut plan.name);
        let lab = Lab::up(plan)?;
        // Whoever has the lab's name has the folder's.
        let folder = folder_of(name);
        make_folder(&folder)?;
        let room = Self { lab, folder: Folder(folder) };
        for name in room.names().chain([PROGRAMS]) {
            fs::create_dir(room.folder().join(name))?;
        }
        for (program, name) in programs {
            symlink(program, room.file(PROGRAMS, name))
                .context("cannot name the programs for their hosts")?;
        }
        Ok(room)
    }

    /// The hosts.
    #[must_use]
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The names of all hosts, routers and switches.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lab.plan().nodes.iter().map(|node| node.name.as_str())
    }

    /// The folder below which each host has its own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// A file in the folder in which `host` runs its commands.
    #[must_use]
    pub fn file(&self, host: &str, name: &str) -> PathBuf {
        self.folder.0.join(host).join(name)
    }

    /// Starts a command in the folder of a host. A shell reads it where it takes one.
    ///
    /// # Errors
    /// If there is no such host, or no such program.
    pub fn start(&self, host: &str, line: &str) -> Result<Running> {
        let what = format!("`{line}` in {host}");
        let host = self.lab.host(host)?;
        let mut command = host.command(&words(line));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.folder.0.join(PROGRAMS)].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(own.chain(["/usr/sbin", "/sbin"].map(PathBuf::from)))?;
        command.env("PATH", path).env("LC_ALL", "C").current_dir(self.folder.0.join(host.name()));
        // What is shown is what anybody gets, whatever is set here.
        for name in NOT_OURS {
            command.env_remove(name);
        }
        Ok(Running { process: host.spawn_command(command)?, what })
    }

    /// Removes everything, as a drop does, and tells what resists.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn clear(self) -> Result<()> {
        let Self { lab, folder } = self;
        lab.down()?;
        remove_folder(&folder.0)
    }
}

/// A command that was started.
#[derive(Debug)]
pub struct Running {
    /// The program.
    pub process: Process,
    /// Its line and its host, for errors.
    what: String,
}

impl Running {
    /// Waits for its end, and calls `glance` until then. What it printed.
    ///
    /// # Errors
    /// If it fails or takes longer than `limit`, a signal asks this process to end, or `glance`
    /// says so.
    pub fn end(
        &self,
        limit: Duration,
        mut glance: impl FnMut(&Process) -> Result<()>,
    ) -> Result<String> {
        let Self { process, what } = self;
        let begin = Instant::now();
        while process.is_running() {
            sys::check_interrupted()?;
            ensure!(begin.elapsed() < limit, "{what} does not end");
            glance(process)?;
            std::thread::sleep(GLANCE);
        }
        let status = process.wait(GLANCE)?;
        let said = process.log();
        if !status.success() {
            // What a signal of the terminal ended is not what failed.
            sys::check_interrupted()?;
            bail!("{what} failed with {status}\n{}", tail(&said));
        }
        Ok(said)
    }

    /// Waits until its log holds `ready`.
    ///
    /// # Errors
    /// If it ends before, that takes longer than `limit`, or a signal asks this process to end.
    pub fn until_said(&self, ready: &str, limit: Duration) -> Result<()> {
        let Self { process, what } = self;
        let begin = Instant::now();
        loop {
            let has_ended = !process.is_running();
            let log = process.log();
            if log.contains(ready) {
                return Ok(());
            }
            ensure!(!has_ended, "{what} ended\n{}", tail(&log));
            sys::check_interrupted()?;
            ensure!(
                begin.elapsed() < limit,
                "waited {limit:?} in vain for {what} to print {ready:?}"
            );
            std::thread::sleep(GLANCE);
        }
    }
}

/// The words of a command, or a shell that reads it where it takes one.
fn words(line: &str) -> Vec<&str> {
    if line.contains(['|', '>', '<', '&', ';', '\'', '"', '$', '*']) {
        return vec!["sh", "-ec", line];
    }
    line.split_whitespace().collect()
}

/// The last lines of a log.
#[must_use]
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Where a room of this name keeps its files.
#[must_use]
pub fn folder_of(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warren-{name}"))
}

/// Makes the folder, for root alone, after removing what a killed program left there.
fn make_folder(folder: &Path) -> Result<()> {
    let what = || format!("cannot make the folder {}", folder.display());
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(what),
        Ok(found) => {
            let is_ours =
                found.is_dir() && found.uid() == 0 && found.permissions().mode() & 0o077 == 0;
            let why = || anyhow!("something of others is there; move it away, or set TMPDIR");
            is_ours.then_some(()).ok_or_else(why).with_context(what)?;
            remove_folder(folder)?;
        }
    }
    fs::DirBuilder::new().mode(0o700).create(folder).with_context(what)
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_a_shell_gets_one() {
        assert_eq!(words("ping -c 3  10.70.0.2"), ["ping", "-c", "3", "10.70.0.2"]);
        assert_eq!(words("a | b"), ["sh", "-ec", "a | b"]);
        assert_eq!(words("umask 077; a"), ["sh", "-ec", "umask 077; a"]);
    }

    #[test]
    fn a_tail_is_the_end_without_empty_lines() {
        assert_eq!(tail(""), "");
        let log: String = (0..40).map(|i| format!("{i}\n\n")).collect();
        let lines = tail(&log);
        assert_eq!(lines.lines().count(), TAIL_LINES);
        assert!(lines.starts_with("28\n") && lines.ends_with("\n39"));
    }

    #[test]
    fn a_folder_of_others_is_left_alone() {
        let folder = folder_of(&format!("unit-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let error = format!("{:#}", make_folder(&folder).unwrap_err());
        assert!(error.contains("something of others"), "{error}");
        fs::remove_dir(&folder).unwrap();
        symlink("/", &folder).unwrap();
        assert!(make_folder(&folder).is_err(), "a link is not followed");
        fs::remove_file(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        remove_folder(&folder).unwrap();
        remove_folder(&folder).unwrap();
    }
}
