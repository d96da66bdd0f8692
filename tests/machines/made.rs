//! What else is made of the program: an image, a repository, and the same bytes each time.

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::machine::Machine;
use serde_json::Value;

use crate::ansible::tools;
use crate::packages::package;
use crate::support::scene::scene;
use crate::support::*;
use crate::{SERVER, WARREN, boot, can_boot, token};

/// A folder of the test's own, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("warren-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {why}");
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// A script of `packaging`, to be run in the root of the sources.
fn script(name: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("bash");
    command.arg(root.join("packaging").join(name)).current_dir(root);
    command
}

/// Everything that `make packages` makes of a program, and the sums. The program is a small one, so
/// that nothing has to be compressed for long; pages and completions are those of the real one.
fn make(folder: &Path) -> Result<String> {
    let made = folder.join("x86_64");
    std::fs::create_dir_all(&made)?;
    std::fs::write(made.join("warren"), "#!/bin/sh\n")?;
    said(Command::new("chmod").arg("755").arg(made.join("warren")))?;
    let mut command = script("build.sh");
    command.env("PACKAGES", folder).env("NFPM", tools().join("bin/nfpm")).env("ARCH", "x86_64");
    let real = Path::new(WARREN).parent().context("a folder")?;
    command.env("SHOWN", real).env("VERSION", "0.1.0").env("MAKE", "make");
    said(&mut command)?;
    Ok(std::fs::read_to_string(made.join("SHA256SUMS"))?)
}

#[test]
fn sc_03_packages_of_the_same_program_are_the_same_bytes() -> Result<()> {
    let [first, again] = ["first", "again"].map(|name| {
        let folder = Folder::new(name)?;
        make(&folder.0)
    });
    let first = first?;
    let again = again?;
    ensure!(first.lines().count() >= 2 && first == again, "two times:\n{first}\n{again}");
    Ok(())
}

#[test]
#[ignore = "needs the packages: make test-packages"]
fn a_signed_apt_repository_is_used_and_a_changed_one_is_refused() -> Result<()> {
    let deb = package(".deb")?;
    if !can_boot() {
        return Ok(());
    }
    scene("apt", |scene| {
        let machines = boot(scene, &["server"])?;
        let [machine] = &machines[..] else { bail!("one") };
        let folder = Folder::new("apt")?;
        let home = folder.0.join("gnupg");
        std::fs::create_dir(&home)?;
        said(Command::new("chmod").arg("700").arg(&home))?;
        let key = ["--quick-generate-key", "Test <test@example.org>", "ed25519", "sign", "never"];
        let mut gpg = Command::new("gpg");
        gpg.env("GNUPGHOME", &home).args(["--batch", "--passphrase", ""]).args(key);
        said(&mut gpg)?;
        let out = folder.0.join("apt");
        let mut command = script("repository.sh");
        command.env("GNUPGHOME", &home).arg("test@example.org");
        said(command.arg(deb.parent().context("a folder")?).arg(&out))?;
        said(Command::new("gpgconf").env("GNUPGHOME", &home).args(["--kill", "all"]))?;
        said(Command::new("cp").arg("-r").arg(&out).arg(machine.root().join("srv/apt")))?;
        installs_from(machine)
    })
}

fn installs_from(machine: &Machine) -> Result<()> {
    machine.sh("cp /srv/apt/warren.gpg /usr/share/keyrings/
         rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
         sed 's,https://packages.example.com/warren,file:/srv/apt,' /srv/apt/warren.sources \
           > /etc/apt/sources.list.d/warren.sources")?;
    machine.run(&["apt-get", "update"])?;
    machine.run(&["apt-get", "install", "-y", "--no-install-recommends", "warren"])?;
    ensure!(machine.run(&["warren", "--version"])?.contains(env!("CARGO_PKG_VERSION")), "which?");
    machine.sh(
        "cd /srv/apt/dists/stable/main/binary-amd64; sed -i 's/^Version: .*/Version: 9.9/' Packages
         gzip -9nkf Packages; rm -rf /var/lib/apt/lists/*",
    )?;
    ensure!(machine.run(&["apt-get", "update"]).is_err(), "a list was taken that nobody signed");
    Ok(())
}

/// Unpacks the image as a runtime does, and checks its digests; what it says of itself.
fn unpack(machine: &Machine, image: &Path) -> Result<Value> {
    let root = machine.root().join("srv/lab/image");
    std::fs::create_dir_all(&root)?;
    said(Command::new("tar").arg("xf").arg(image).arg("-C").arg(&root))?;
    let json = |path: PathBuf| -> Result<Value> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    };
    let blob = |value: &Value| -> Result<PathBuf> {
        let digest = value["digest"].as_str().and_then(|text| text.strip_prefix("sha256:"));
        let digest = digest.context("a digest")?;
        let path = root.join("blobs/sha256").join(digest);
        ensure!(said(Command::new("sha256sum").arg(&path))?.starts_with(digest), "{digest}");
        Ok(path)
    };
    ensure!(json(root.join("oci-layout"))?["imageLayoutVersion"] == "1.0.0", "the layout");
    let manifest = json(blob(&json(root.join("index.json"))?["manifests"][0])?)?;
    let layer = blob(&manifest["layers"][0])?;
    std::fs::create_dir(root.join("root"))?;
    said(Command::new("tar").arg("xzf").arg(layer).arg("-C").arg(root.join("root")))?;
    Ok(json(blob(&manifest["config"])?)?["config"].clone())
}

/// Starts the image's entry with these words, as systemd runs a program below another root.
fn start(machine: &Machine, unit: &str, more: &[&str], words: &[&str]) -> Result<()> {
    let mut argv = vec!["systemd-run", "-q", "--unit", unit, "-p", "MountAPIVFS=yes"];
    argv.extend(["-p", "RootDirectory=/srv/lab/image/root"]);
    argv.extend(more);
    argv.push("/usr/bin/warren");
    argv.extend(words);
    machine.run(&argv)?;
    Ok(())
}

#[test]
#[ignore = "needs the packages: make test-packages"]
fn an_image_runs_as_what_it_is_told_to_be() -> Result<()> {
    if !can_boot() {
        return Ok(());
    }
    let image = package("oci-amd64.tar")?;
    scene("oci", |scene| {
        let machines = boot(scene, &["server", "node"])?;
        let [server, node] = &machines[..] else { bail!("two") };
        let config = unpack(server, &image)?;
        unpack(node, &image)?;
        ensure!(config["Entrypoint"][0] == "/usr/bin/warren" && config["Cmd"][0] == "daemon");
        let url = format!("WARREN_URL=https://{SERVER}:8443");
        start(server, "c-server", &["-E", &url, "-E", "WARREN_LISTEN=[::]:8443"], &["serve"])?;
        let health = format!("curl -skf https://{SERVER}:8443/healthz");
        eventually("/healthz", seconds(20), || node.sh(&health).is_ok())?;
        server.sh("ln -s /srv/lab/image/root/usr/bin/warren /usr/bin/warren
                   ln -s /srv/lab/image/root/var/lib/warren /var/lib/warren")?;
        let join = format!("WARREN_JOIN={}", token(server)?);
        let metrics = ["daemon", "--metrics", "127.0.0.1:9101"];
        start(node, "c-node", &["-E", &join], &metrics)?;
        let joined = || server.run(&["warren", "node", "list"]).is_ok_and(|s| s.contains("node"));
        eventually("it joins by itself", seconds(20), joined)?;
        let alive = || node.sh("curl -sf http://127.0.0.1:9101/healthz").is_ok();
        eventually("the node's /healthz", seconds(20), alive)?;
        node.run(&["systemctl", "stop", "c-node"])?;
        // Without the device it ends and says what to give it.
        let bare = ["-p", "PrivateDevices=yes", "-E", "WARREN_STATE=/var/lib/warren-relay"];
        start(node, "c-bare", &bare, &["daemon"])?;
        let log = || node.run(&["journalctl", "-u", "c-bare", "--no-pager"]).unwrap_or_default();
        eventually("it says so", seconds(20), || log().contains("/dev/net/tun"))?;
        eprintln!("{}", log());
        Ok(())
    })
}
