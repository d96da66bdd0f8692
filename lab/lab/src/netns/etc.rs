//! A host's own `/etc`: the machine's, seen through a layer that keeps every change.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::sys;

/// Makes `<dir>/etc` with the host's own resolv.conf, hosts, hostname and machine-id. Where
/// the kernel has no overlayfs, the machine's directory is copied instead.
pub(super) fn make(dir: &Path, name: &str) -> Result<()> {
    let etc = dir.join("etc");
    let upper = dir.join("etc-upper");
    let work = dir.join("etc-work");
    for part in [&etc, &upper, &work] {
        fs::create_dir_all(part)?;
    }
    if sys::mount_overlay("/etc", &upper, &work, &etc).is_err() {
        let status = Command::new("cp").args(["-a", "/etc/."]).arg(&etc).status()?;
        ensure!(status.success(), "copying /etc failed with {status}");
    }
    let id: String = name.bytes().cycle().take(16).map(|b| format!("{b:02x}")).collect();
    let hosts = format!("127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost\n");
    replace(&etc.join("resolv.conf"), "")?;
    replace(&etc.join("hosts"), &hosts)?;
    replace(&etc.join("hostname"), &format!("{name}\n"))?;
    replace(&etc.join("machine-id"), &format!("{id}\n"))
}

/// Writes a file anew: the machine's may be a link to somewhere outside `/etc`.
fn replace(path: &Path, text: &str) -> Result<()> {
    // It may well not be there.
    let _ = fs::remove_file(path);
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
