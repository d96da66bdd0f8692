//! Traces of a demonstration, looked for where they would be.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::netns::STATE_ROOT;
use lab::room::folder_of;

use crate::stage::Stage;

/// Interfaces that exist inside the hosts, and must not come out.
const INTERFACES: [&str; 3] = ["wg0", "eth0", "eth1"];
/// Where `ip netns` keeps its names.
const NAMESPACES: &str = "/run/netns";
/// What was told to end may take this long.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was there before a demonstration, and what to look for after it.
#[derive(Debug)]
pub struct Traces {
    lab: String,
    files: Vec<PathBuf>,
    before: BTreeSet<&'static str>,
    namespaces: BTreeSet<u64>,
}

impl Traces {
    /// To be called before the demonstration of this name.
    #[must_use]
    pub fn before(lab: &str) -> Self {
        Self {
            lab: lab.to_owned(),
            files: vec![Path::new(STATE_ROOT).join(lab), folder_of(lab)],
            before: interfaces(),
            namespaces: BTreeSet::new(),
        }
    }

    /// Remembers the namespaces by their numbers, by which processes show where they are.
    pub(crate) fn watch(&mut self, stage: &Stage<'_>) {
        let number = |path: PathBuf| fs::metadata(path).ok().map(|found| found.ino());
        self.namespaces.extend(stage.namespaces().filter_map(number));
    }

    /// Everything that is left, in words; what is just about to end is waited for.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let left = self.look();
            if left.is_empty() || begin.elapsed() > PATIENCE {
                return left;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn look(&self) -> Vec<String> {
        let mut left = Vec::new();
        let prefix = format!("{}-", self.lab);
        for name in names(NAMESPACES).filter(|name| name.starts_with(&prefix)) {
            left.push(format!("the namespace {name}"));
        }
        for pid in names("/proc").filter_map(|name| name.parse::<u32>().ok()) {
            let within = fs::metadata(format!("/proc/{pid}/ns/net")).map(|found| found.ino());
            if within.is_ok_and(|number| self.namespaces.contains(&number)) {
                left.push(format!("the process {pid}"));
            }
        }
        let files = self.files.iter().filter(|path| path.symlink_metadata().is_ok());
        left.extend(files.map(|path| path.display().to_string()));
        left.extend(interfaces().difference(&self.before).map(|n| format!("the interface {n}")));
        left
    }
}

fn interfaces() -> BTreeSet<&'static str> {
    let is_there = |name: &&str| Path::new("/sys/class/net").join(name).exists();
    INTERFACES.into_iter().filter(is_there).collect()
}

fn names(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found() {
        let name = format!("traces-{}", std::process::id());
        let mut traces = Traces::before(&name);
        assert_eq!(traces.look(), [""; 0]);
        fs::create_dir(folder_of(&name)).unwrap();
        let here = fs::metadata("/proc/self/ns/net").unwrap().ino();
        traces.namespaces.insert(here);
        let left = traces.look();
        fs::remove_dir(folder_of(&name)).unwrap();
        assert!(left.contains(&folder_of(&name).display().to_string()), "{left:?}");
        let own = format!("the process {}", std::process::id());
        assert!(left.contains(&own), "a process in a namespace of ours: {left:?}");
    }
}
