//! Removing what is recorded: processes, namespaces, mounts, records, in that order.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{STATE_ROOT, check_name, hosts_dir, ip, state_dir, take_lock};
use crate::sys;

/// How long the processes of a host may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Removes what a run that was killed left under `prefix`; nothing if nothing was left.
///
/// # Errors
/// Returns an error when a living process uses the prefix, or something resists removal.
pub fn remove_leftovers(prefix: &str) -> Result<()> {
    check_name("prefix", prefix)?;
    if !state_dir(prefix).exists() {
        return Ok(());
    }
    let _lock = take_lock(prefix)?;
    remove_recorded(prefix)
}

pub(super) fn recorded(prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(hosts_dir(prefix)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|n| check_name("host name", n).is_ok()).collect();
    names.sort();
    names
}

/// Removes everything under `prefix`, the lock's file and the directory included.
pub(super) fn remove_recorded(prefix: &str) -> Result<()> {
    clear(prefix)?;
    // They may be gone, and the parent may be in use by other labs.
    let _ = fs::remove_dir_all(state_dir(prefix));
    let _ = fs::remove_dir(STATE_ROOT);
    Ok(())
}

/// Removes everything under `prefix` but the lock, which the caller holds.
pub(super) fn clear(prefix: &str) -> Result<()> {
    // Its open devices would keep the namespaces alive without a name.
    end_recorded_pump(prefix);
    let names = recorded(prefix);
    let namespaces: Vec<String> = names.iter().map(|name| format!("{prefix}-{name}")).collect();
    let namespaces: Vec<&String> = namespaces.iter().filter(|ns| exists(ns)).collect();
    end_processes(&namespaces);
    let mut refused = Vec::new();
    for namespace in namespaces {
        if let Err(error) = ip(&["netns", "delete", namespace]) {
            refused.push(error.to_string());
        }
    }
    for name in names {
        let dir = hosts_dir(prefix).join(name);
        // Nothing is mounted where /etc had to be copied.
        let _ = sys::unmount(&dir.join("etc"));
        if let Err(error) = remove_files(&dir) {
            refused.push(error.to_string());
        }
    }
    if !refused.is_empty() {
        bail!("could not remove all of the lab {prefix}:\n{}", refused.join("\n"));
    }
    Ok(())
}

/// Ends what runs inside these namespaces, and nothing else.
fn end_processes(namespaces: &[&String]) {
    let inside = || -> Vec<i32> { namespaces.iter().flat_map(|ns| pids(ns)).collect() };
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let living = inside();
        if living.is_empty() {
            return;
        }
        for pid in living {
            // It may have ended in between.
            let _ = sys::kill(pid, signal);
        }
        let start = Instant::now();
        while start.elapsed() < GRACE && !inside().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Records that process `pid` moves the frames of the lab's wires, from outside of it.
pub(crate) fn record_pump(prefix: &str, pid: u32) -> Result<()> {
    fs::write(pump_file(prefix), format!("{pid} {}", started(pid).unwrap_or_default()))?;
    Ok(())
}

fn end_recorded_pump(prefix: &str) {
    let record = fs::read_to_string(pump_file(prefix)).unwrap_or_default();
    let Some((pid, start)) = record.split_once(' ') else { return };
    let Ok(pid) = pid.parse::<u32>() else { return };
    // The number may since have become another process's.
    let same = || started(pid).is_some_and(|now| now == start);
    let begin = Instant::now();
    while same() && begin.elapsed() < GRACE {
        let signal = if begin.elapsed() < GRACE / 2 { libc::SIGTERM } else { libc::SIGKILL };
        // It may have ended in between.
        let _ = sys::kill(pid as i32, signal);
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = fs::remove_file(pump_file(prefix));
}

/// When a process started, in ticks since boot; none if it has ended (proc(5), field 22).
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

fn pump_file(prefix: &str) -> PathBuf {
    state_dir(prefix).join("pump")
}

fn pids(namespace: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let text = ip(&["netns", "pids", namespace]).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid != own).collect()
}

fn exists(namespace: &str) -> bool {
    Path::new("/var/run/netns").join(namespace).exists()
}

/// Removes a host's directory, unless something is still mounted in it: then the files seen
/// there may be the machine's.
fn remove_files(dir: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let below = format!("{}/", dir.display());
    let mounted = |line: &str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(&below));
    if mounts.lines().any(mounted) {
        bail!("something is still mounted below {}", dir.display());
    }
    fs::remove_dir_all(dir)?;
    Ok(())
}
