//! Debian's kernel: the one installed on this machine, or the package fetched and unpacked.
//!
//! Installing a kernel package only for a test would make an initial RAM disk, and change what a
//! real machine boots next. So an installed kernel is used when there is one, and otherwise the
//! package is downloaded by `apt-get download` and unpacked below a cache directory: nothing on
//! the machine changes, and no right but writing there is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

/// The meta package which names the current kernel.
const META_PACKAGE: &str = "linux-image-amd64";

/// A kernel image and the directory of its modules.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) version: String,
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The installed kernel, else the one in `cache`, else one fetched into `cache`.
    pub(super) fn find_or_fetch(cache: &Path) -> Result<Self> {
        const FOR: &str = "amd64";
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        // A fetch that panicked left no more than its own scratch directory.
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let there = Self::below(Path::new("/"), FOR).or_else(|| Self::below(cache, FOR));
        if let Some(kernel) = there {
            return Ok(kernel);
        }
        fetch(cache).with_context(|| {
            format!(
                "no kernel for the guest: none in /boot with modules, and fetching {META_PACKAGE} \
                 failed; run `apt-get update` as root, or `apt-get install {META_PACKAGE}`"
            )
        })?;
        Self::below(cache, FOR)
            .context("the unpacked kernel package holds no kernel with WireGuard")
    }

    /// The named modules and all they need, in the order in which to load them; modules which this
    /// kernel has built in are left out.
    pub(super) fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let read = |file: &str| {
            let path = self.modules.join(file);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let order = load_order(&read("modules.dep")?, &read("modules.builtin")?, names)?;
        Ok(order.iter().map(|path| self.modules.join(path)).collect())
    }

    /// The highest version below `root` for this processor, as Debian names it, which has an image,
    /// a module list and WireGuard.
    pub(super) fn below(root: &Path, processor: &str) -> Option<Self> {
        let mut found: Vec<Self> = fs::read_dir(root.join("lib/modules"))
            .ok()?
            .filter_map(|entry| {
                let version = entry.ok()?.file_name().into_string().ok()?;
                let image = root.join("boot").join(format!("vmlinuz-{version}"));
                let modules = root.join("lib/modules").join(&version);
                let list = fs::read_to_string(modules.join("modules.dep")).ok()?;
                let usable = fs::File::open(&image).is_ok()
                    && version.ends_with(processor)
                    && list.contains("/wireguard.ko")
                    && list.contains("/sch_netem.ko");
                usable.then_some(Self { version, image, modules })
            })
            .collect();
        found.sort_by_key(|kernel| version_parts(&kernel.version));
        found.pop()
    }
}

/// The bytes of one module as the kernel loads it; Debian compresses them from version 13 on.
pub(super) fn module_bytes(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(path)
            .output()
            .context("running xz; install xz-utils")?;
        ensure!(output.status.success(), "xz cannot decompress {}", path.display());
        return Ok(output.stdout);
    }
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn fetch(cache: &Path) -> Result<()> {
    let scratch = cache.join(format!("fetch-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let result = fetch_into(&scratch).and_then(|()| {
        for part in ["boot", "lib"] {
            // Another run may have been quicker; its kernel is as good.
            if !cache.join(part).exists() {
                fs::rename(scratch.join("root").join(part), cache.join(part))?;
            }
        }
        Ok(())
    });
    let removed = fs::remove_dir_all(&scratch).context("removing the scratch directory");
    result.and(removed)
}

fn fetch_into(scratch: &Path) -> Result<()> {
    let depends = stdout(Command::new("apt-cache").args(["depends", META_PACKAGE]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .context("apt knows no kernel package")?;
    stdout(Command::new("apt-get").args(["--quiet", "download", package]).current_dir(scratch))?;
    let archive = fs::read_dir(scratch)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get downloaded no package")?;
    let root = scratch.join("root");
    stdout(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&root))?;
    // A package with a merged /usr keeps its modules there.
    if !root.join("lib").exists() {
        fs::rename(root.join("usr/lib"), root.join("lib"))?;
    }
    for entry in fs::read_dir(root.join("lib/modules"))? {
        let version = entry?.file_name();
        // The package's own script would write modules.dep; busybox is needed in any case.
        let base = root.to_string_lossy().into_owned();
        stdout(Command::new("busybox").args(["depmod", "-b", &base]).arg(&version))?;
    }
    Ok(())
}

fn stdout(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Numbers of a version, so that 6.1.0-100 is above 6.1.0-56.
fn version_parts(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Module name of a path: `kernel/net/sched/sch-netem.ko.xz` is `sch_netem`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// Paths in load order, every module after those it depends on.
fn load_order(dependencies: &str, builtin: &str, names: &[&str]) -> Result<Vec<String>> {
    let mut needs: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for line in dependencies.lines() {
        if let Some((path, after)) = line.split_once(':') {
            let after = after.split_whitespace().map(module_name).collect();
            needs.insert(module_name(path), (path.to_owned(), after));
        }
    }
    let builtin: BTreeSet<String> = builtin.lines().map(module_name).collect();
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names {
        let known = needs.contains_key(*name) || builtin.contains(*name);
        ensure!(known, "this kernel has no module {name}");
        visit(name, &needs, &mut seen, &mut order);
    }
    Ok(order)
}

fn visit(
    name: &str,
    needs: &BTreeMap<String, (String, Vec<String>)>,
    seen: &mut BTreeSet<String>,
    order: &mut Vec<String>,
) {
    if let Some((path, after)) = needs.get(name)
        && seen.insert(name.to_owned())
    {
        for needed in after {
            visit(needed, needs, seen, order);
        }
        order.push(path.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::{Kernel, fetch, load_order, module_name, version_parts};

    const DEPENDENCIES: &str = "kernel/a/top.ko.xz: kernel/a/mid-dle.ko.xz kernel/a/base.ko.xz\n\
        kernel/a/mid-dle.ko.xz: kernel/a/base.ko.xz\n\
        kernel/a/base.ko.xz:\n\
        kernel/a/other.ko.xz: kernel/a/base.ko.xz\n";

    #[test]
    fn a_module_loads_after_what_it_needs_and_once() {
        let order = load_order(DEPENDENCIES, "kernel/b/in.ko\n", &["other", "top", "in"]).unwrap();
        let names: Vec<String> = order.iter().map(|path| module_name(path)).collect();
        assert_eq!(names, ["base", "other", "mid_dle", "top"]);
        assert!(load_order(DEPENDENCIES, "", &["in"]).is_err());
    }

    #[test]
    #[ignore = "downloads 70 MB"]
    fn a_fetched_kernel_is_found_with_its_modules() {
        let cache = std::env::temp_dir().join(format!("warren-fetch-{}", std::process::id()));
        let fetched = fetch(&cache).map(|()| Kernel::below(&cache, "amd64").expect("a kernel"));
        let modules = fetched.as_ref().map(|kernel| kernel.modules(&["wireguard", "sch_netem"]));
        let there = modules.is_ok_and(|modules| modules.unwrap().iter().all(|path| path.is_file()));
        std::fs::remove_dir_all(&cache).unwrap();
        assert!(there, "{fetched:?}");
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version_parts("6.1.0-100-amd64") > version_parts("6.1.0-56-amd64"));
    }
}
