//! The guest's only file system: busybox, stock programs with their libraries, modules, an init.
//!
//! Init loads the modules, sets the addresses and then serves commands: it reads
//! `ID LIMIT_S HEX` lines from a virtio serial port, runs the script which the hexadecimal digits
//! spell, and answers `ID STATUS STDOUT_LEN STDERR_LEN`, a newline, and the bytes of both.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::{Kernel, module_bytes};
use super::{Options, Processor};

/// Loaded at every start: the network card, the command port, WireGuard, and what tests impair and
/// connect with.
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_net", "virtio_console", "wireguard", "sch_netem", "veth"];

/// Stock programs without which the guest is of no use: the control tool of WireGuard, iproute2
/// with netem, ping with exact times; and a shell, because the one in busybox runs its own `ip`,
/// `tc` and `ping` whatever `PATH` says.
const PROGRAMS: [&str; 5] = ["sh", "wg", "ip", "tc", "ping"];

/// The port's device node in the guest; the number is the order on qemu's command line.
const COMMAND_PORT: &str = "/dev/vport0p1";

/// Writes the archive for `options` to `path`.
pub(super) fn write(path: &Path, kernel: &Kernel, options: &Options) -> Result<()> {
    let mut archive = Archive::new();
    for directory in ["proc", "sys", "dev", "run", "tmp", "bin", "etc", "var/run"] {
        archive.directory(directory);
    }
    archive.character_device("/dev/console", 5, 1);
    let processor = &options.processor;
    let busybox = processor.program("busybox").context("install the package busybox-static")?;
    archive.file("/bin/busybox", &read(&busybox)?);
    for name in PROGRAMS.into_iter().chain(options.programs.iter().map(String::as_str)) {
        add_program(&mut archive, processor, name)?;
    }
    let mut load = String::new();
    let mut modules = MODULES.to_vec();
    modules.extend(options.disk.as_ref().map(|_| "virtio_blk"));
    modules.extend(options.modules.iter().map(String::as_str));
    for module in kernel.modules(&modules)? {
        let name = module.file_name().context("a module has a name")?.to_string_lossy();
        let inside = format!("/modules/{}", name.trim_end_matches(".xz"));
        archive.file(&inside, &module_bytes(&module)?);
        writeln!(load, "insmod {inside}").expect("writing to memory");
    }
    archive.file("/init", init_script(&load, options).as_bytes());
    fs::write(path, archive.finish()).with_context(|| format!("writing {}", path.display()))
}

fn add_program(archive: &mut Archive, processor: &Processor, name: &str) -> Result<()> {
    let path = processor.program(name)?;
    let name = name.rsplit('/').next().unwrap_or(name);
    archive.file(&format!("/usr/bin/{name}"), &read(&path)?);
    for (inside, here) in processor.libraries(&path)? {
        archive.file(&inside, &read(&here)?);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn init_script(load: &str, options: &Options) -> String {
    let mut network = String::new();
    for (index, nic) in options.nics.iter().enumerate() {
        writeln!(network, "ip link set eth{index} up").expect("writing to memory");
        for address in &nic.guest_addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            writeln!(network, "ip address add {address} dev eth{index}{nodad}")
                .expect("writing to memory");
        }
    }
    format!(
        r#"#!/usr/bin/sh
export PATH=/usr/bin:/bin HOME=/tmp
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mount -t tmpfs none /tmp
{load}
ip link set lo up
{network}
while [ ! -c {COMMAND_PORT} ]; do sleep 0.05; done
exec 3<>{COMMAND_PORT}
while :; do
    if ! read -r id limit hex <&3; then sleep 0.1; continue; fi
    printf %s "$hex" | xxd -r -p >/run/script
    timeout -k 1 "$limit" /usr/bin/sh /run/script >/run/stdout 2>/run/stderr </dev/null 3>&-
    status=$?
    echo "$id $status $(stat -c %s /run/stdout) $(stat -c %s /run/stderr)" >&3
    cat /run/stdout /run/stderr >&3
done
"#
    )
}
