//! A Linux guest: another kernel, with its own WireGuard and its own netem, on a wire of the lab.
//!
//! Namespaces share the kernel of the machine, and that kernel may lack the very parts we want to
//! meet: the WireGuard of Linux as a peer, `netem` as the reference for our own impaired wire. A
//! guest brings Debian's kernel, run by qemu in software; it needs neither KVM nor a disk, and
//! boots in a few seconds. Given a disk, it is a machine whose power can be cut: [`Guest::cut`].
//!
//! It is a peer to talk to, not one to measure speed with: emulation costs a factor of ten to
//! thirty. But for the disk nothing is kept, and every program in it is one of the host's, copied
//! with its libraries; or one for another processor: [`Processor::Arm`].
//!
//! One guest lives as follows.
//!
//! 1. [`Guest::start`] finds the kernel (`kernel`: the installed one, or Debian's package
//!    fetched and unpacked below a cache directory) and writes the initial file system
//!    (`image`, an archive as `cpio` has it) into a directory of its own.
//! 2. On the given host it makes one TAP device per [`Nic`], with the host's own
//!    addresses on it, and starts qemu there, so that each TAP is one end of an Ethernet whose
//!    other end is `eth0`, `eth1`, … in the guest. Virtio headers pass between the two as on any
//!    virtual machine: superpackets and checksums left to be completed do arrive.
//! 3. Init in the guest loads the modules, sets the addresses and opens a virtio serial port,
//!    which on our side is a Unix socket. The first command answered ends the start.
//! 4. [`Guest::run`] sends one shell script and waits for its output and exit status. A time limit
//!    holds on both sides: in the guest the script is ended, here the wait is.
//! 5. Drop kills qemu, by its own pid, and removes the TAP devices and the directory. When the
//!    thread which started the guest dies without that, the kernel kills qemu in our place.

mod cpio;
mod image;
mod kernel;
mod processor;

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use kernel::Kernel;

use crate::netns::Host;
use crate::process::Process;

pub use processor::Processor;

/// Time limit of [`Guest::run`].
const RUN_LIMIT: Duration = Duration::from_secs(20);

/// What our side waits longer than the guest does, before it takes the guest for dead.
const ANSWER_SLACK: Duration = Duration::from_secs(10);

/// How long the kernel may take to end a qemu that was killed.
const CUT_LIMIT: Duration = Duration::from_secs(10);

/// A booted guest; killed and removed on drop.
pub struct Guest {
    qemu: Process,
    port: Mutex<Port>,
    kernel_version: String,
    scrap: Scrap,
}

/// How a guest is to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its processor, and where kernel and programs come from.
    pub processor: Processor,
    /// Its network cards, in order: `eth0`, `eth1`, …
    pub nics: Vec<Nic>,
    /// Programs to copy to `/usr/bin`, by name or path, with their libraries; busybox, `sh`, `wg`,
    /// `ip`, `tc` and `ping` are there anyway. Those of [`Processor::Own`] are this machine's.
    pub programs: Vec<String>,
    /// Modules of the kernel to load beside those for network cards, WireGuard and netem.
    pub modules: Vec<String>,
    /// A file that is the guest's disk, `/dev/vda`; what is on it is the caller's to say.
    pub disk: Option<PathBuf>,
    /// Memory of the guest in MiB; 256 is enough for a kernel, WireGuard and small files.
    pub memory_mib: u32,
    /// What its processor must not have, as `aes`: names of qemu's, which are those of
    /// `/proc/cpuinfo`.
    pub cpu_without: Vec<String>,
    /// Longest time from starting qemu to the first command answered.
    pub boot_limit: Duration,
    /// Where a fetched kernel is kept, when none is installed: a directory below `target/`.
    pub kernel_cache: PathBuf,
}

/// One Ethernet between the host and the guest.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Name of the TAP device on the host, at most 15 bytes.
    pub tap: String,
    /// Addresses of the TAP device, as `192.0.2.1/24`.
    pub host_addresses: Vec<String>,
    /// Addresses of the guest's card.
    pub guest_addresses: Vec<String>,
}

/// What a script in the guest left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit status as the shell counts it; 143 or 137 when the time limit ended the script.
    pub status: u32,
    /// Bytes written to standard output.
    pub stdout: Vec<u8>,
    /// Bytes written to standard error.
    pub stderr: Vec<u8>,
}

/// Our end of the command port.
struct Port {
    stream: UnixStream,
    requests: u32,
    /// Received and not yet taken.
    received: Vec<u8>,
}

impl Options {
    /// One network card and nothing optional.
    #[must_use]
    pub fn new(nic: Nic, kernel_cache: impl Into<PathBuf>) -> Self {
        Self { nics: vec![nic], ..Self::without_nics(kernel_cache) }
    }

    /// Nothing optional, and no network card either.
    #[must_use]
    pub fn without_nics(kernel_cache: impl Into<PathBuf>) -> Self {
        Self {
            processor: Processor::Own,
            nics: Vec::new(),
            programs: Vec::new(),
            modules: Vec::new(),
            disk: None,
            memory_mib: 256,
            cpu_without: Vec::new(),
            boot_limit: Duration::from_secs(90),
            kernel_cache: kernel_cache.into(),
        }
    }
}

impl Guest {
    /// Boots a guest with its network cards on `host` and waits until it answers commands. Must
    /// be kept by the thread that started it.
    ///
    /// # Errors
    /// A package is missing (the message names it), the host refuses a TAP device, or the kernel
    /// does not come up within [`Options::boot_limit`]; then the message ends with the last lines
    /// of the guest's console.
    pub fn start(host: &Host, options: &Options) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        ensure!(
            cfg!(target_arch = "x86_64") || matches!(options.processor, Processor::Arm(_)),
            "guests need an x86_64 machine: they run copies of its programs"
        );
        let program = options.processor.emulator()?;
        let kernel = options.processor.kernel(&options.kernel_cache)?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("warren-guest-{}-{number}", std::process::id()));
        let mut scrap = Scrap { host: host.clone(), taps: Vec::new(), directory };
        let directory = &scrap.directory;
        fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        image::write(&directory.join("initramfs"), &kernel, options)?;
        for nic in &options.nics {
            host.ip_batch(&format!("tuntap add dev {} mode tap vnet_hdr\n", nic.tap))?;
            scrap.taps.push(nic.tap.clone());
            let addresses: Vec<&str> = nic.host_addresses.iter().map(String::as_str).collect();
            host.bring_up(&nic.tap, &addresses)?;
        }
        let command = qemu_command(host, &program, &kernel, &scrap.directory, options);
        let qemu = host.spawn_command(command)?;
        let port = connect(&qemu, &scrap.directory, options.boot_limit).with_context(|| {
            format!("the guest did not start; console:\n{}", last_lines(&scrap.directory))
        })?;
        Ok(Self { qemu, port: Mutex::new(port), kernel_version: kernel.version, scrap })
    }

    /// Version of the guest's kernel, as `6.1.0-56-amd64`.
    #[must_use]
    pub fn kernel_version(&self) -> &str {
        &self.kernel_version
    }

    /// Process id of qemu.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// Everything the guest's kernel and init printed so far.
    #[must_use]
    pub fn console(&self) -> String {
        console(&self.scrap.directory)
    }

    /// Cuts the guest's power, and returns what it printed until then. All that its kernel held in
    /// memory is gone; what it had written to its disk is there, whether it was flushed or not.
    ///
    /// # Errors
    /// Qemu had ended before, or does not end.
    pub fn cut(self) -> Result<String> {
        self.qemu.signal(libc::SIGKILL)?;
        self.qemu.wait(CUT_LIMIT)?;
        Ok(self.console())
    }

    /// Runs a shell script in the guest, for at most 20 s, and returns its standard output.
    ///
    /// # Errors
    /// The script's exit status is not 0 (the message has its standard error), or the guest does
    /// not answer.
    pub fn run(&self, script: &str) -> Result<String> {
        let output = self.output(script, RUN_LIMIT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        ensure!(status == 0, "in the guest `{script}` ended with {status}: {}", stderr.trim());
        String::from_utf8(output.stdout).context("the guest printed bytes that are not UTF-8")
    }

    /// Runs a shell script in the guest for at most `limit`. Scripts run one after the other; one
    /// may leave a process in the background if that has its output redirected.
    ///
    /// # Errors
    /// The guest died or does not answer; a failing script is no error.
    pub fn output(&self, script: &str, limit: Duration) -> Result<Output> {
        let mut port = self.port.lock().map_err(|_| {
            anyhow::anyhow!("an earlier command to the guest panicked; start a new guest")
        })?;
        port.request(script, limit, Instant::now() + limit + ANSWER_SLACK)
            .with_context(|| format!("in the guest: `{script}`"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails only when qemu is gone already; what it left is removed by the field after.
        let _ = self.qemu.stop();
    }
}

impl Port {
    fn request(&mut self, script: &str, limit: Duration, deadline: Instant) -> Result<Output> {
        self.requests += 1;
        let id = self.requests;
        let limit_s = limit.as_secs().max(1);
        let mut line = format!("{id} {limit_s} ");
        for byte in script.as_bytes() {
            write!(line, "{byte:02x}").expect("writing to memory");
        }
        line.push('\n');
        self.stream.set_write_timeout(Some(remaining(deadline)?))?;
        self.stream.write_all(line.as_bytes()).context("writing to the command port")?;
        loop {
            let answer = self.take_line(deadline)?;
            let numbers: Vec<usize> =
                answer.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [answered, status, stdout_len, stderr_len] = numbers[..] else {
                bail!("the guest answered `{answer}`, not four numbers");
            };
            let stdout = self.take(stdout_len, deadline)?;
            let stderr = self.take(stderr_len, deadline)?;
            // The late answer to a command given up is passed over.
            if answered == id as usize {
                return Ok(Output { status: u32::try_from(status)?, stdout, stderr });
            }
        }
    }

    fn take_line(&mut self, deadline: Instant) -> Result<String> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let mut line = self.take(end + 1, deadline)?;
                line.pop();
                return String::from_utf8(line).context("the guest's answer is not text");
            }
            self.receive(deadline)?;
        }
    }

    fn take(&mut self, length: usize, deadline: Instant) -> Result<Vec<u8>> {
        while self.received.len() < length {
            self.receive(deadline)?;
        }
        let rest = self.received.split_off(length);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    fn receive(&mut self, deadline: Instant) -> Result<()> {
        let mut buffer = [0; 4096];
        self.stream.set_read_timeout(Some(remaining(deadline)?))?;
        match self.stream.read(&mut buffer) {
            Ok(0) => bail!("the guest closed its command port: qemu ended"),
            Ok(length) => self.received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading the command port"),
        }
        Ok(())
    }
}

/// What a guest leaves on its host and on disk; removed on drop.
struct Scrap {
    host: Host,
    taps: Vec<String>,
    directory: PathBuf,
}

impl Drop for Scrap {
    fn drop(&mut self) {
        for tap in &self.taps {
            // The host may be gone before the guest, and the device with it.
            let _ = self.host.ip_batch(&format!("link delete {tap}\n"));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn qemu_command(
    host: &Host,
    program: &Path,
    kernel: &Kernel,
    directory: &Path,
    options: &Options,
) -> Command {
    let inside = |name: &str| directory.join(name).display().to_string();
    let less = options.cpu_without.iter().map(|flag| format!(",-{flag}")).collect::<String>();
    let cpu = format!("{}{less}", options.processor.cpu());
    let console = options.processor.console();
    let mut command = host.command(&["setpriv", "--pdeathsig", "KILL", "--"]);
    command
        .arg(program)
        .args(options.processor.board())
        .args(["-accel", "tcg", "-cpu", &cpu, "-smp", "1", "-m", &options.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .arg("-kernel")
        .arg(&kernel.image)
        .args(["-initrd", &inside("initramfs")])
        .args(["-append", &format!("console={console} quiet panic=-1 net.ifnames=0")])
        .args(["-serial", &format!("file:{}", inside("console"))])
        .args(["-device", "virtio-serial-pci"])
        .args(["-chardev", &format!("socket,id=port,path={},server=on,wait=off", inside("port"))])
        .args(["-device", "virtserialport,chardev=port,name=warren.command"]);
    if let Some(disk) = &options.disk {
        // It is the guest that loses its memory, and not this machine: writes need not wait for
        // the disk below the file.
        let path = disk.display();
        command
            .args(["-drive", &format!("file={path},format=raw,if=none,id=disk,cache=unsafe")])
            .args(["-device", "virtio-blk-pci,drive=disk"]);
    }
    for (index, nic) in options.nics.iter().enumerate() {
        let tap = &nic.tap;
        command
            .args(["-netdev", &format!("tap,id=n{index},ifname={tap},script=no,downscript=no")])
            .args([
                "-device",
                &format!("virtio-net-pci,netdev=n{index},mac=52:54:00:00:00:{index:02x},romfile="),
            ]);
    }
    command
}

/// Connects to the command port once qemu has opened it, and waits for the guest's first answer.
fn connect(qemu: &Process, directory: &Path, limit: Duration) -> Result<Port> {
    let deadline = Instant::now() + limit;
    let stream = loop {
        match UnixStream::connect(directory.join("port")) {
            Ok(stream) => break stream,
            Err(error) => {
                ensure!(qemu.is_running(), "qemu ended: {}", qemu.log().trim());
                remaining(deadline).context(error)?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    let mut port = Port { stream, requests: 0, received: Vec::new() };
    let first = port.request("true", limit, deadline)?;
    ensure!(first.status == 0, "the guest cannot run `true`");
    Ok(port)
}

fn remaining(deadline: Instant) -> Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    ensure!(!remaining.is_zero(), "no answer in time");
    Ok(remaining)
}

fn console(directory: &Path) -> String {
    let bytes = fs::read(directory.join("console")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_lines(directory: &Path) -> String {
    let console = console(directory);
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
