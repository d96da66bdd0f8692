//! The power of a machine is cut: what was acknowledged is on its disk, and it starts again.
//!
//! The machine is a guest with a disk, on which a real server and a real node keep what they have.
//! This very test program, copied into the guest, writes to both as fast as they answer and tells
//! every acknowledgement on the serial console, which is a file on our side. At a random moment
//! qemu is killed: all that the guest's kernel held in memory is gone. A new guest with the same
//! disk starts server and node, and everything that was acknowledged must be there.
//!
//! So that a cut is known to be one, files are written and told in the same way without being
//! synced; of those some must be lost. A disk that loses what it said it had is not tried.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use daemon::protocol::Request;
use daemon::{Changes, Client};
use dial::{Admin, SystemRandom};
use lab::guest::{Guest, Options};
use lab::netns::{Host, Net};
use serde_json::{Value, json};
use server::store::{Place, Store};

use super::kernel_cache;

/// Cuts of `make test`, each a boot of some seconds; `make soak` asks for more.
const CUTS: u64 = 2;
const CUTS_MAX: u64 = 100;
/// So many cuts hit one disk; the first of them hits the first start of all.
const CUTS_PER_DISK: u64 = 10;
const DISK_BYTES: u64 = 256 << 20;
/// A first start is cut within this time, and writing within the other.
const START_LIMIT_US: u64 = 2_500_000;
const WRITING_LIMIT_US: u64 = 3_000_000;
/// How long an emulated machine may take for what a real one does at once.
const PATIENCE: Duration = Duration::from_secs(90);

const SERVER: &str = "/disk/server";
const SOCKET: &str = "/run/warren.sock";
/// Waits until a program has said that it is ready.
const READY: &str = "ready() {
    for i in $(seq 400); do if grep -q \"$2\" /run/$1.log; then return; fi; sleep 0.1; done
    cat /run/$1.log >&2; exit 1
}";

/// A machine that can be switched on and off, its disk, and what it was told is done.
struct Machine {
    host: Host,
    folder: PathBuf,
    told: Told,
    lost: usize,
    written: usize,
    _net: Net,
}

/// Everything that was acknowledged on one disk.
#[derive(Default)]
struct Told {
    /// The node's key and name, once it has joined.
    node: Option<(Value, Value)>,
    users: Vec<String>,
    policies: Vec<(u64, String)>,
    hostnames: Vec<(u64, u64)>,
    unsynced: Vec<String>,
}

impl Machine {
    fn new() -> Result<Self> {
        let mut net = Net::new("wt-guest-power")?;
        let host = net.host("user")?;
        let folder = std::env::temp_dir().join(format!("warren-power-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let own = std::env::current_exe()?;
        for (from, to) in [(Path::new(env!("CARGO_BIN_EXE_warren")), "warren"), (&own, "writer")] {
            strip(from, &folder.join(to))?;
        }
        Ok(Self { host, folder, told: Told::default(), lost: 0, written: 0, _net: net })
    }

    fn new_disk(&mut self) -> Result<()> {
        let disk = self.folder.join("disk");
        let _ = fs::remove_file(&disk);
        File::create(&disk)?.set_len(DISK_BYTES)?;
        self.told = Told::default();
        let mut make = Command::new("mke2fs");
        let path = "/usr/sbin:/sbin:/usr/bin:/bin";
        command(make.env("PATH", path).args(["-q", "-F", "-t", "ext4"]).arg(&disk))
    }

    /// Switches it on; its disk is mounted.
    fn on(&self) -> Result<Guest> {
        let program = |name: &str| self.folder.join(name).display().to_string();
        let options = Options {
            programs: vec![program("warren"), program("writer")],
            // What ext4 sums its blocks with is not named as something that it needs.
            modules: ["crc32c_generic", "ext4", "tun"].map(str::to_owned).to_vec(),
            disk: Some(self.folder.join("disk")),
            memory_mib: 512,
            ..Options::without_nics(kernel_cache())
        };
        let guest = Guest::start(&self.host, &options)?;
        guest.run("mkdir /disk; mount -t ext4 /dev/vda /disk; mkdir -p /disk/unsynced")?;
        Ok(guest)
    }

    /// What the disk has, as the server and the node tell it, is what was acknowledged.
    fn check(&mut self, guest: &Guest) -> Result<()> {
        within(guest, "writer --ignored --exact power::reads_in_the_guest", PATIENCE)?;
        self.count_lost(guest)?;
        start(guest, "")?;
        let ask = |words: &str| -> Result<Value> {
            let said = within(guest, &format!("warren {words} --json"), PATIENCE)?;
            Ok(serde_json::from_str(&said)?)
        };
        if self.told.node.is_none() {
            let up = format!("up $(warren key create --data {SERVER}) --accept-dns=false");
            ask(&format!("--socket {SOCKET} {up} --hostname h-0-0 --timeout 60s"))?;
            self.told.hostnames.push((0, 0));
        }
        let status = ask(&format!("--socket {SOCKET} up --timeout 60s"))?;
        let node = (status["self"]["key"].clone(), status["self"]["addresses"].clone());
        let known = self.told.node.get_or_insert_with(|| node.clone());
        ensure!(*known == node, "the node was {known:?} and is {node:?}");
        self.check_hostname(status["settings"]["hostname"].as_str().context("it has one")?)?;

        let listed = ask(&format!("user list --data {SERVER}"))?;
        let listed = listed["users"].as_array().context("a list")?;
        for name in &self.told.users {
            ensure!(listed.iter().any(|user| user["name"] == name.as_str()), "no user {name}");
        }
        if let Some((version, text)) = self.told.policies.last() {
            let holds = ask(&format!("policy get --data {SERVER}"))?;
            let known = holds["version"].as_u64().context("it has a version")?;
            // One more may have been made whose answer was never heard.
            let fits = known == version + 1 || known == *version && holds["text"] == text.as_str();
            ensure!(fits, "policy {version} was {text:?}, and there is {holds}");
        }
        Ok(())
    }

    fn check_hostname(&mut self, is: &str) -> Result<()> {
        let [cut, n] = numbers(is).context("it is one of ours")?;
        let last = self.told.hostnames.last().copied().unwrap_or_default();
        // What was on its way when the power went may have been kept.
        ensure!((cut, n) >= last, "{last:?} was acknowledged, and there is {is}");
        Ok(())
    }

    fn count_lost(&mut self, guest: &Guest) -> Result<()> {
        let there = guest.run("cd /disk/unsynced; grep -s . * || true")?;
        let is_there = |name: &&String| there.lines().any(|line| line == format!("{name}:{name}"));
        self.written += self.told.unsynced.len();
        self.lost += self.told.unsynced.iter().filter(|name| !is_there(name)).count();
        self.told.unsynced.clear();
        guest.run("rm -rf /disk/unsynced; mkdir /disk/unsynced; sync -f /disk")?;
        Ok(())
    }

    /// Lets everything be written, and cuts the power.
    fn write_and_cut(&mut self, guest: Guest, cut: u64) -> Result<()> {
        let writer = "writer --ignored --exact power::writes_in_the_guest";
        guest.run(&format!("CUT={cut} {writer} > /run/writer.log 2>&1 &"))?;
        let begin = Instant::now();
        while !["user ", "policy ", "hostname "].iter().all(|kind| has(&guest.console(), kind)) {
            ensure!(begin.elapsed() < PATIENCE, "nothing is written: {:?}", guest.run(WHY));
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_micros(draw(cut) % WRITING_LIMIT_US));
        let console = guest.cut()?;
        for line in acknowledged(&console) {
            let (kind, what) = line.split_once(' ').context("a kind and a name")?;
            match kind {
                "user" => self.told.users.push(what.to_owned()),
                "unsynced" => self.told.unsynced.push(what.to_owned()),
                "hostname" => {
                    let [cut, n] = numbers(what).context("it is one of ours")?;
                    self.told.hostnames.push((cut, n));
                }
                _ => {
                    let (version, text) = what.split_once(' ').context("a version and a text")?;
                    self.told.policies.push((version.parse()?, text.to_owned()));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const WHY: &str = "cat /run/writer.log /run/serve.log /run/daemon.log";

/// Starts server and node, and waits until both are ready, unless `then` says otherwise.
fn start(guest: &Guest, then: &str) -> Result<()> {
    let words = "--listen 127.0.0.1:443 --url https://127.0.0.1 --stun 127.0.0.1:0 --no-quic";
    let then = if then.is_empty() { "ready serve serving; ready daemon 'daemon at'" } else { then };
    let script = format!(
        "{READY}
         warren serve --data {SERVER} {words} > /run/serve.log 2>&1 &
         warren daemon --state /disk/node --socket {SOCKET} --tun warren0 \\
           --no-port-mapping > /run/daemon.log 2>&1 &
         {then}"
    );
    within(guest, &script, PATIENCE).map(drop)
}

pub(crate) fn within(guest: &Guest, script: &str, limit: Duration) -> Result<String> {
    let output = guest.output(script, limit)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status == 0, "`{script}` ended with {}: {out}{err}", output.status);
    Ok(out)
}

fn command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Copies a program without what only a debugger reads: so it fits into a guest's memory.
pub(crate) fn strip(from: &Path, to: &Path) -> Result<()> {
    command(Command::new("strip").arg("-o").arg(to).arg(from))
}

/// SplitMix64, so that a failure can be had again.
fn draw(seed: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

/// The numbers of a name like `h-3-17`.
fn numbers(name: &str) -> Option<[u64; 2]> {
    let (cut, n) = name.strip_prefix("h-")?.split_once('-')?;
    Some([cut.parse().ok()?, n.parse().ok()?])
}

/// What the console tells as acknowledged; a line that the cut has cut is none.
fn acknowledged(console: &str) -> impl Iterator<Item = &str> {
    let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.trim_end_matches('\r').strip_prefix("acknowledged "))
}

fn has(console: &str, kind: &str) -> bool {
    acknowledged(console).any(|line| line.starts_with(kind))
}

#[test]
fn lc_01_what_was_acknowledged_is_there_after_the_power_was_cut() {
    let asked = std::env::var("WARREN_SEEDS").ok().and_then(|text| text.parse::<u64>().ok());
    let cuts = asked.map_or(CUTS, |cuts| cuts.clamp(2, CUTS_MAX));
    let mut machine = Machine::new().unwrap();
    let mut sum = [0; 3];
    for cut in 0..cuts {
        if cut % CUTS_PER_DISK == 0 {
            machine.new_disk().unwrap();
            let guest = machine.on().unwrap();
            let after = draw(cut) % START_LIMIT_US;
            start(&guest, "true").unwrap();
            std::thread::sleep(Duration::from_micros(after));
            guest.cut().unwrap();
            println!("cut {cut}, in the first start after {after} us");
            continue;
        }
        let guest = machine.on().unwrap();
        machine.check(&guest).unwrap_or_else(|why| panic!("before cut {cut}: {why:#}"));
        machine.write_and_cut(guest, cut).unwrap();
        let told = &machine.told;
        sum = [told.users.len(), told.policies.len(), told.hostnames.len()];
        println!("cut {cut}: {sum:?} users, policies, settings were acknowledged on this disk");
    }
    let guest = machine.on().unwrap();
    machine.check(&guest).unwrap_or_else(|why| panic!("at the end: {why:#}"));
    drop(guest);
    println!("without a sync {} of {} files were lost", machine.lost, machine.written);
    assert!(sum.iter().all(|count| *count > 0), "the cuts came too early");
    assert!(machine.lost > 0, "nothing that was never synced was lost: these were no cuts");
}

/// Writes for ever: users and policies to the server, settings to the node, and unsynced files.
#[test]
#[ignore = "the half that runs in the guest, until its power is cut"]
fn writes_in_the_guest() {
    let Ok(cut) = std::env::var("CUT") else { return };
    let console = Mutex::new(File::options().append(true).open("/dev/console").unwrap());
    let tell = |what: String| {
        console.lock().unwrap().write_all(format!("acknowledged {what}\n").as_bytes()).unwrap();
    };
    let call = |method: &str, path: &str, body: &Value| -> Value {
        let mut admin = Admin::local(Path::new(SERVER)).unwrap();
        let reply = admin.call(method, path, &body.to_string()).unwrap();
        assert!(reply.status < 400, "{}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_u64.. {
                let name = format!("user-{cut}-{n}");
                call("POST", "/api/v1/users", &json!({ "name": name }));
                tell(format!("user {name}"));
            }
        });
        scope.spawn(|| {
            for n in 0_u64.. {
                let text = format!("{{}} // {cut} {n}");
                let answer = call("PUT", "/api/v1/policy", &json!({ "text": text }));
                tell(format!("policy {} {text}", answer["version"]));
            }
        });
        scope.spawn(|| {
            let mut client = Client::connect(Path::new(SOCKET)).unwrap();
            for n in 0_u64.. {
                let hostname = format!("h-{cut}-{n}");
                let changes = Changes { hostname: Some(hostname.clone()), ..Changes::default() };
                client.ask(&Request::Set { changes, how: Default::default() }).unwrap();
                tell(format!("hostname {hostname}"));
            }
        });
        for n in 0_u64.. {
            let name = format!("{cut}-{n}");
            fs::write(Path::new("/disk/unsynced").join(&name), &name).unwrap();
            tell(format!("unsynced {name}"));
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// The books, if there are any yet, are whole and their log is as it was written.
#[test]
#[ignore = "the half that runs in the guest, when its power is back"]
fn reads_in_the_guest() {
    let books = Path::new(SERVER).join("warren.db");
    if books.exists() {
        let place = Place::File(books);
        let store = Store::open(&place, &[0; 32], None, &mut SystemRandom).unwrap();
        store.verify_audit().unwrap();
    }
}
