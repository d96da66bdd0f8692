//! What the program holds is what `web` builds: built again here, and compared byte by byte. Who
//! cannot have Node or the packages is told so, and the rest of the tests go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A network that answers nothing is not waited for any longer.
const WITHIN: Duration = Duration::from_secs(180);

/// A folder, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the tree is as it was");
    for entry in fs::read_dir(from).expect("the tree is as it was") {
        let path = entry.expect("the tree is as it was").path();
        let name = path.file_name().expect("the tree is as it was");
        if path.is_dir() && name != "node_modules" && name != "dist" {
            copy(&path, &to.join(name));
        } else if path.is_file() {
            fs::copy(&path, to.join(name)).expect("the tree is as it was");
        }
    }
}

/// Runs npm, unless it is not here or takes too long.
fn npm(folder: &Path, words: &[&str]) -> Option<Output> {
    let mut child = Command::new("npm")
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + WITHIN;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().ok()
}

/// The bytes of a gzip file.
fn unpacked(path: &Path) -> Vec<u8> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().expect("the tree is as it was");
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the tree is as it was");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry.expect("the tree is as it was"))).collect();
    names.sort();
    names
}

#[test]
fn what_is_committed_is_what_the_sources_build() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder =
        Folder(std::env::temp_dir().join(format!("warren-ui-built-{}", std::process::id())));
    copy(&crate_folder.join("web"), &folder.0);
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
    match npm(&folder.0, &install) {
        Some(output) if output.status.success() => {}
        Some(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(!why.contains("EUSAGE"), "package.json and its lock disagree: {why}");
            println!("SKIPPED: the packages of the web interface cannot be had: {why:.500}");
            return;
        }
        None => {
            println!("SKIPPED: there is no npm here, or no registry that answers");
            return;
        }
    }
    let build = npm(&folder.0, &["exec", "--offline", "--", "vite", "build", "--logLevel", "warn"]);
    let build = build.expect("npm was here a moment ago");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let (built, dist) = (crate_folder.join("built"), folder.0.join("dist"));
    let packed: Vec<String> = names(&dist).iter().map(|name| format!("{name}.gz")).collect();
    assert_eq!(names(&built), packed, "run make ui");
    for name in names(&dist) {
        let committed = unpacked(&built.join(format!("{name}.gz")));
        assert!(
            committed == fs::read(dist.join(&name)).expect("the tree is as it was"),
            "{name} differs: run make ui"
        );
    }
}
