//! A log that cannot be written, and what systemd is told.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Folder, Space, WARREN, free_port, text};

/// Starts a daemon whose standard error is `log`, waits until commands find it, takes the log away,
/// and then gives it something to log.
const PLAY: &str = r#"
import os, pty, subprocess, sys, time
log, program, folder, name = sys.argv[1:]
master = None
if log == "terminal":
    master, stderr = pty.openpty()
else:
    stderr = os.open(log, os.O_WRONLY)
socket = folder + "/socket"
words = [program, "daemon", "--state", folder + "/state", "--socket", socket, "--tun", name]
daemon = subprocess.Popen(words, stderr=stderr, start_new_session=True)
os.close(stderr)
for _ in range(200):
    if os.path.exists(socket):
        break
    time.sleep(0.05)
if master is not None:
    os.close(master)
ask = lambda *words: subprocess.run([program, "--socket", socket, *words]).returncode
# The interface is made, addresses change: each is a line of the log.
subprocess.run(["ip", "link", "add", "dummy0", "type", "dummy"])
codes = [ask("set", "--hostname", "h" * n) for n in range(3)] + [ask("status")]
print("codes", codes, "daemon", daemon.poll(), flush=True)
daemon.terminate()
print("ended", daemon.wait())
"#;

#[test]
fn a_log_that_cannot_be_written_harms_nothing() {
    for log in ["/dev/full", "terminal"] {
        let (space, folder) = (Space::new(), Folder::new("unwritten"));
        let path = folder.0.display().to_string();
        let name = format!("wtu{}", std::process::id());
        let words = ["netns", "exec", &space.0, "python3", "-c", PLAY, log, WARREN, &path, &name];
        let output = Command::new("ip").args(words).env("LOG_LEVEL", "trace").output();
        let output = output.expect("python3 is installed");
        let said = text(&output.stdout);
        assert!(said.contains("codes [0, 0, 0, 0] daemon None"), "{log}: {said}");
        assert!(said.contains("ended 0"), "{log}: {said}");
    }
}

/// A program that systemd would watch, ended with this.
struct Watched {
    child: Child,
    socket: UnixDatagram,
    _folder: Folder,
}

impl Watched {
    fn new(command: &mut Command, folder: Folder) -> Self {
        let path = folder.0.join("notify");
        let socket = UnixDatagram::bind(&path).expect("the test's own folder can be written");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time that is none");
        let child = command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "900000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is built");
        Self { child, socket, _folder: folder }
    }

    fn word(&self) -> String {
        let mut bytes = [0; 64];
        let len = self.socket.recv(&mut bytes).expect("it says something in time");
        text(&bytes[..len])
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

#[test]
fn rl_13_both_units_are_watched_and_both_programs_tell_that_they_live() {
    for unit in ["warren", "warren-server"] {
        let path = format!("{}/packaging/{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read_to_string(path).expect("it is part of the project");
        assert!(file.lines().any(|line| line == "WatchdogSec=60"), "{unit}");
    }
    let (space, folder) = (Space::new(), Folder::new("watched-daemon"));
    let name = format!("wtw{}", std::process::id());
    let (state, socket) = (folder.0.join("state"), folder.0.join("socket"));
    let mut daemon = Command::new("ip");
    daemon.args(["netns", "exec", &space.0, WARREN, "daemon", "--tun", &name]);
    daemon.arg("--state").arg(state).arg("--socket").arg(socket);
    let folder_of_server = Folder::new("watched-server");
    let mut server = Command::new(WARREN);
    server.args(["serve", "--url", "https://127.0.0.1:1", "--no-stun", "--listen"]);
    server.arg(format!("127.0.0.1:{}", free_port())).arg("--data");
    server.arg(folder_of_server.0.join("data"));
    for (command, folder) in [(&mut daemon, folder), (&mut server, folder_of_server)] {
        let watched = Watched::new(command, folder);
        let mut words = vec![watched.word(), watched.word()];
        words.sort();
        assert_eq!(words, ["READY=1", "WATCHDOG=1"]);
        let begin = Instant::now();
        for _ in 0..3 {
            assert_eq!(watched.word(), "WATCHDOG=1");
        }
        assert!(begin.elapsed() < Duration::from_millis(2_700), "{:?}", begin.elapsed());
    }
}
