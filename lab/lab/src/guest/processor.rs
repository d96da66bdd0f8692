//! The processor of a guest: one like this machine's, or another.
//!
//! With one like this machine's a guest runs copies of its programs. For another there is nothing
//! to copy here, so kernel and programs are Debian's packages for it, unpacked below a
//! directory of their own. Their libraries are found in there by what each file says it needs,
//! because the loader of that processor cannot be asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::kernel::Kernel;

/// Where distributions keep programs; `PATH` of a test may lack the second half.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["usr/local/bin", "usr/bin", "bin", "usr/local/sbin", "usr/sbin", "sbin"];

/// Where packages keep shared objects, the loader first: its path is written into each program.
const LIBRARY_DIRECTORIES: [&str; 4] =
    ["lib", "usr/lib", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"];

/// A guest's processor, and where its kernel and programs come from.
#[derive(Clone, Debug, Default)]
pub enum Processor {
    /// Like this machine's: x86_64.
    #[default]
    Own,
    /// aarch64, with packages of Debian's that are unpacked below this directory.
    Arm(PathBuf),
}

impl Processor {
    /// The program of qemu that is such a machine.
    pub(super) fn emulator(&self) -> Result<PathBuf> {
        let (name, package) = match self {
            Self::Own => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Arm(_) => ("qemu-system-aarch64", "qemu-system-arm"),
        };
        find_program(Path::new("/"), name).with_context(|| format!("install the package {package}"))
    }

    /// What qemu is told beside what every guest has.
    pub(super) fn board(&self) -> &'static [&'static str] {
        match self {
            Self::Own => &[],
            Self::Arm(_) => &["-M", "virt"],
        }
    }

    /// The processor, as qemu names it. Pointers that are signed by ARM's own cipher, and not by
    /// one of qemu's, would make a boot take 11 s of emulation instead of 3.
    pub(super) fn cpu(&self) -> &'static str {
        match self {
            Self::Own => "max",
            Self::Arm(_) => "max,pauth-impdef=on",
        }
    }

    /// The kernel's name of the first serial port.
    pub(super) fn console(&self) -> &'static str {
        match self {
            Self::Own => "ttyS0",
            Self::Arm(_) => "ttyAMA0",
        }
    }

    /// The kernel; `cache` is for one that has to be fetched.
    pub(super) fn kernel(&self, cache: &Path) -> Result<Kernel> {
        match self {
            Self::Own => Kernel::find_or_fetch(cache),
            Self::Arm(root) => Kernel::below(root, "arm64")
                .with_context(|| format!("no kernel below {}: make test-arm", root.display())),
        }
    }

    /// A program by its name there, or by its path here.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf> {
        match self {
            Self::Own => find_program(Path::new("/"), name),
            Self::Arm(root) => find_program(root, name),
        }
    }

    /// Shared objects that a program loads, its loader among them: where each is in the guest, and
    /// where it is here.
    pub(super) fn libraries(&self, program: &Path) -> Result<BTreeMap<String, PathBuf>> {
        match self {
            Self::Own => loaded(program),
            Self::Arm(root) => needed(root, program),
        }
    }
}

/// A program by name, in the usual directories below `root`; or by its path.
fn find_program(root: &Path, name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        ensure!(Path::new(name).is_file(), "there is no program {name}");
        return Ok(PathBuf::from(name));
    }
    PROGRAM_DIRECTORIES
        .iter()
        .map(|directory| root.join(directory).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("the program {name} is not installed"))
}

/// As the loader of this machine says.
fn loaded(program: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let text = said(Command::new("ldd").arg(program))?;
    let paths = text.lines().flat_map(str::split_whitespace);
    let paths = paths.filter(|word| word.starts_with('/'));
    Ok(paths.map(|path| (path.to_owned(), PathBuf::from(path))).collect())
}

/// As the files below `root` say themselves, each of what another needs.
fn needed(root: &Path, program: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut unread = vec![program.to_owned()];
    while let Some(object) = unread.pop() {
        let text = said(Command::new("readelf").env("LC_ALL", "C").arg("-dW").arg(&object))?;
        for name in text.lines().filter_map(needed_name) {
            let (directory, path) = LIBRARY_DIRECTORIES
                .iter()
                .map(|directory| (directory, root.join(directory).join(name)))
                .find(|(_, path)| path.is_file())
                .with_context(|| format!("{} needs {name}, not unpacked", object.display()))?;
            // In the guest there is no /usr/lib: a merged /usr shows one path for both.
            let inside = format!("/{}/{name}", directory.trim_start_matches("usr/"));
            if found.insert(inside, path.clone()).is_none() {
                unread.push(path);
            }
        }
    }
    Ok(found)
}

/// ` 0x01 (NEEDED)  Shared library: [libc.so.6]` is `libc.so.6`.
fn needed_name(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("(NEEDED)")?;
    name.split_once('[')?.1.split_once(']').map(|(name, _)| name)
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::needed_name;

    #[test]
    fn a_needed_library_is_told_from_other_lines() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libmnl.so.0]";
        assert_eq!(needed_name(line), Some("libmnl.so.0"));
        assert_eq!(needed_name(" 0x0e (SONAME)  Library soname: [libmnl.so.0]"), None);
    }
}
