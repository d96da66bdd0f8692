//! A PostgreSQL server of a test's own: in a folder below the temporary one, on a socket in it,
//! run by a user without rights. It ends with the program that started it, however that ends.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than a start takes on a busy machine, recovery included.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Nobody: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;
/// Runs the server until its input ends, with the program or by it.
const RUN: &str = "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' :); \
    postgres -D \"$1/data\" -k \"$1\" -c fsync=\"$2\" -c ssl=\"$3\" -p \"$4\" \
      -c listen_addresses=\"$([ $3 = on ] && echo localhost)\" \
      -c max_connections=30 -c shared_buffers=16MB -c dynamic_shared_memory_type=mmap \
      >>\"$1/log\" 2>&1 & \
    read -r word; [ \"$word\" = leave ] && exit 0; kill -QUIT $! 2>/dev/null; wait; rm -rf \"$1\"";
const MAKE: &str = "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' :); \
    initdb -D \"$1/data\" -U warren -A trust -E UTF8 --locale=C --no-sync >\"$1/log\" 2>&1";

/// One server.
pub(crate) struct Cluster {
    folder: PathBuf,
    fsync: &'static str,
    ssl: &'static str,
    port: u16,
    child: Option<Child>,
}

/// The one that the tests of a program share, whose own power is never cut.
pub(crate) static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::new("off"));

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        behind.split(' ').nth(1) == Some(&parent.to_string())
    };
    all.filter(is_child).collect()
}

fn shell(script: &str, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(folder).args(words).current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

impl Cluster {
    pub(crate) fn new(fsync: &'static str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("warren-pg-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = shell(MAKE, &folder, &[]).status().unwrap();
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(made.success(), "initdb, of Debian's postgresql (`make setup`): {log}");
        let mut cluster = Self { folder, fsync, ssl: "off", port: 5432, child: None };
        cluster.start();
        cluster
    }

    /// Starts it, again if it was killed, and waits until it answers.
    pub(crate) fn start(&mut self) {
        self.leave();
        let port = self.port.to_string();
        let words = [self.fsync, self.ssl, &port];
        let begin = Instant::now();
        while self.psql("postgres", "SELECT 1").is_none() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(begin.elapsed() < START_WITHIN, "PostgreSQL does not start: {}", log());
            // After a kill the first tries may find processes of the one before.
            if self.pid().is_none() {
                self.leave();
                let run = shell(RUN, &self.folder, &words).stdin(Stdio::piped()).spawn();
                self.child = Some(run.unwrap());
                std::thread::sleep(Duration::from_millis(300));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the server with all its processes, of which some would work on for a moment.
    pub(crate) fn kill(&self) {
        let pid = self.pid().expect("it runs");
        let all: Vec<u32> = [pid].into_iter().chain(children(pid)).collect();
        let words = all.iter().map(ToString::to_string);
        // One may have ended by itself meanwhile.
        let _ = Command::new("kill").arg("-9").args(words).stderr(Stdio::null()).status();
        while all.iter().any(|pid| is_running(*pid)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server with all its processes, without ending any.
    pub(crate) fn freeze(&self) -> Frozen {
        let pid = self.pid().expect("it runs");
        let mut all: Vec<u32> = vec![pid];
        send("-STOP", &all);
        // Who is stopped makes no more of them.
        all.extend(children(pid));
        send("-STOP", &all);
        Frozen(all)
    }

    /// Starts it again with TLS: the port of localhost where it is then.
    pub(crate) fn serve_tls(&mut self, certificate: &str, key: &str) -> u16 {
        self.kill();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.folder.join("data").join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        (self.ssl, self.port) = ("on", free.local_addr().unwrap().port());
        drop(free);
        self.start();
        self.port
    }

    /// Its process, if that runs.
    fn pid(&self) -> Option<u32> {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        let pid = file.lines().next()?.parse().ok()?;
        is_running(pid).then_some(pid)
    }

    /// Lets the shell that watches go, without what it watches.
    fn leave(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.stdin.take().map(|mut to| to.write_all(b"leave\n"));
            let _ = child.wait();
        }
    }

    /// What a statement prints; nothing if it fails.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> Option<String> {
        let mut command = Command::new("psql");
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        command.args(["-U", "warren", "-d", database, "-qAtc", sql]);
        let output = command.stderr(Stdio::null()).output().expect("psql, see `make setup`");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The URL of a new, empty database.
    pub(crate) fn database(&self, name: &str) -> String {
        let name = name.replace('-', "_");
        self.psql("postgres", &format!("CREATE DATABASE {name}")).expect("a new database");
        self.url(&name)
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("postgres://warren@/{name}?host={}", self.folder.display())
    }
}

/// Processes that go on when this is dropped.
pub(crate) struct Frozen(Vec<u32>);

impl Drop for Frozen {
    fn drop(&mut self) {
        send("-CONT", &self.0);
    }
}

fn send(signal: &str, to: &[u32]) {
    let words = to.iter().map(ToString::to_string);
    let _ = Command::new("kill").arg(signal).args(words).stderr(Stdio::null()).status();
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
