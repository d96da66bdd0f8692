//! Files in a folder of the test's own; what is mounted, in a mount namespace of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use super::*;

const BEFORE: &str = "# by hand\nsearch lan example.org\nnameserver 192.0.2.1\n\
                      nameserver fe80::1%eth0\noptions edns0 timeout:1\nnameserver 100.64.0.1\n";

/// A folder with a resolv.conf, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, content: Option<&str>) -> Self {
        let folder =
            std::env::temp_dir().join(format!("warren-resolver-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        if let Some(content) = content {
            fs::write(folder.join("resolv.conf"), content).unwrap();
        }
        Self(folder)
    }

    fn paths(&self) -> Paths {
        Paths { resolv_conf: self.0.join("resolv.conf"), state: self.0.join("state") }
    }

    fn text(&self) -> String {
        fs::read_to_string(self.0.join("resolv.conf")).unwrap()
    }

    /// Nothing of ours is left but an empty state directory.
    fn assert_clean(&self) {
        let names = |folder: &Path| -> Vec<_> {
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect()
        };
        assert_eq!(names(&self.0.join("state")), [""; 0]);
        assert!(names(&self.0).iter().all(|n| n == "state" || n == "resolv.conf"));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wish() -> Wish {
    Wish {
        link: "warren0".to_owned(),
        servers: vec!["100.64.0.1".parse().unwrap(), "fd77::1".parse().unwrap()],
        domain: "warren.internal".to_owned(),
        ..Wish::default()
    }
}

#[test]
fn a_file_is_replaced_and_comes_back_as_it_was() {
    let folder = Folder::new("plain", Some(BEFORE));
    let path = folder.paths().resolv_conf;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(4242), Some(4343)).unwrap();
    let owner = || {
        let m = fs::metadata(&path).unwrap();
        (m.uid(), m.gid(), m.mode() & 0o777)
    };
    let applied = apply(&wish(), &folder.paths()).unwrap();
    assert_eq!((applied.way(), owner()), (Way::File, (4242, 4343, 0o640)));
    let upstreams = ["192.0.2.1", "fe80::1"].map(|text| text.parse::<IpAddr>().unwrap());
    assert_eq!(applied.upstreams(), upstreams);
    let lines: Vec<String> =
        folder.text().lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "nameserver 100.64.0.1",
            "nameserver fd77::1",
            "options edns0 timeout:1",
            "search warren.internal lan example.org"
        ]
    );
    assert!(applied.is_intact());
    assert_eq!(applied.restore().unwrap(), Restored::Before(Way::File));
    assert_eq!((folder.text().as_str(), owner()), (BEFORE, (4242, 4343, 0o640)));
    folder.assert_clean();
    drop(apply(&wish(), &folder.paths()).unwrap());
    assert_eq!(folder.text(), BEFORE, "dropping puts it back too");
    folder.assert_clean();
}

#[test]
fn dn_07_what_a_killed_daemon_left_is_put_back_at_the_next_start() {
    let folder = Folder::new("killed", Some(BEFORE));
    std::mem::forget(apply(&wish(), &folder.paths()).unwrap());
    assert_ne!(folder.text(), BEFORE);
    assert_eq!(restore_leftovers(&folder.paths()).unwrap(), Restored::Before(Way::File));
    assert_eq!(folder.text(), BEFORE);
    assert_eq!(restore_leftovers(&folder.paths()).unwrap(), Restored::Nothing);
    folder.assert_clean();
    // killed, and started again with another wish: what is kept is the first file, not ours
    std::mem::forget(apply(&wish(), &folder.paths()).unwrap());
    let second = Wish { domain: "other.internal".to_owned(), ..wish() };
    let applied = apply(&second, &folder.paths()).unwrap();
    assert!(folder.text().contains("search other.internal lan example.org"));
    drop(applied);
    assert_eq!(folder.text(), BEFORE);
}

#[test]
fn dn_07_killed_between_any_two_writes_the_file_is_what_it_was() {
    // what is on the disk after each step of taking over: kept, ours, record, replaced
    for step in 0..=4 {
        let folder = Folder::new(&format!("step{step}"), Some(BEFORE));
        let state = folder.paths().state;
        std::mem::forget(apply(&wish(), &folder.paths()).unwrap());
        if step < 4 {
            fs::write(folder.paths().resolv_conf, BEFORE).unwrap();
        }
        for (after, name) in [(3, JOURNAL), (2, "resolv.conf.ours"), (1, "resolv.conf.before")] {
            if step < after {
                fs::remove_file(state.join(name)).unwrap();
            }
        }
        fs::write(state.join("resolver.warren-new"), "half a rec").unwrap();
        restore_leftovers(&folder.paths()).unwrap();
        assert_eq!(folder.text(), BEFORE, "step {step}");
        drop(apply(&wish(), &folder.paths()).unwrap());
        assert_eq!(folder.text(), BEFORE, "step {step}");
        folder.assert_clean();
    }
}

#[test]
fn what_somebody_else_wrote_meanwhile_stays() {
    let theirs = "nameserver 198.51.100.1\n";
    let folder = Folder::new("foreign", Some(BEFORE));
    let applied = apply(&wish(), &folder.paths()).unwrap();
    fs::write(folder.paths().resolv_conf, theirs).unwrap();
    assert!(!applied.is_intact());
    assert_eq!(applied.restore().unwrap(), Restored::Foreign);
    assert_eq!(folder.text(), theirs);
    folder.assert_clean();
    std::mem::forget(apply(&wish(), &folder.paths()).unwrap());
    fs::remove_file(folder.paths().resolv_conf).unwrap();
    symlink("/nonexistent/resolv.conf", folder.paths().resolv_conf).unwrap();
    assert_eq!(restore_leftovers(&folder.paths()).unwrap(), Restored::Foreign);
    assert!(fs::read_link(folder.paths().resolv_conf).is_ok(), "their link stays a link");
}

#[test]
fn a_link_to_a_file_that_we_do_not_know_is_not_touched() {
    let folder = Folder::new("link", None);
    let target = folder.0.join("of-somebody");
    fs::write(&target, BEFORE).unwrap();
    symlink(&target, folder.paths().resolv_conf).unwrap();
    let error = apply(&wish(), &folder.paths()).unwrap_err().to_string();
    assert!(error.contains("of-somebody") && error.contains("--accept-dns=false"), "{error}");
    assert_eq!(fs::read_to_string(&target).unwrap(), BEFORE);
    assert!(!folder.paths().state.exists());
    for (target, program) in [
        ("/run/systemd/resolve/stub-resolv.conf", "resolvectl"),
        ("../run/resolvconf/resolv.conf", "resolvconf"),
    ] {
        fs::remove_file(folder.paths().resolv_conf).unwrap();
        symlink(target, folder.paths().resolv_conf).unwrap();
        if !find(program) {
            let error = apply(&wish(), &folder.paths()).unwrap_err().to_string();
            assert!(error.contains(&format!("there is no {program}")), "{error}");
        }
    }
}

#[test]
fn where_there_was_no_file_there_is_none_after() {
    let folder = Folder::new("none", None);
    let applied = apply(&wish(), &folder.paths()).unwrap();
    assert!(folder.text().contains("nameserver 100.64.0.1") && applied.upstreams().is_empty());
    drop(applied);
    assert!(!folder.paths().resolv_conf.exists());
    folder.assert_clean();
}

/// Runs something in a mount namespace of its own.
fn among_mounts(run: impl FnOnce() + Send + 'static) {
    let inside = std::thread::spawn(move || {
        // SAFETY: unshare takes no memory; it moves this thread alone to a new namespace.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) };
        assert_eq!(rc, 0, "these tests need root");
        mount(&["--make-rprivate", "/"]);
        run();
    });
    inside.join().unwrap();
}

fn mount(words: &[&str]) {
    assert!(Command::new("mount").args(words).status().unwrap().success());
}

#[test]
fn a_file_that_is_a_mount_is_written_in_place() {
    let folder = Folder::new("mount", Some("unused\n"));
    let path = folder.paths().resolv_conf;
    let source = folder.0.join("state-of-container");
    fs::write(&source, BEFORE).unwrap();
    let paths = folder.paths();
    among_mounts(move || {
        mount(&["--bind", source.to_str().unwrap(), path.to_str().unwrap()]);
        let applied = apply(&wish(), &paths).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("nameserver 100.64.0.1"));
        drop(applied);
        assert_eq!(fs::read_to_string(&path).unwrap(), BEFORE);
        std::mem::forget(apply(&wish(), &paths).unwrap());
        assert_eq!(restore_leftovers(&paths).unwrap(), Restored::Before(Way::File));
        assert_eq!(fs::read_to_string(&source).unwrap(), BEFORE);
    });
    assert_eq!(folder.text(), "unused\n");
}

/// As systemd's `ProtectSystem=full` with `ReadWritePaths=/etc/resolv.conf` makes it.
#[test]
fn in_a_folder_that_is_read_only_the_file_alone_is_written_in_place() {
    let folder = Folder::new("sandbox", None);
    let etc = folder.0.join("etc");
    fs::create_dir(&etc).unwrap();
    let path = etc.join("resolv.conf");
    fs::write(&path, BEFORE).unwrap();
    let paths = Paths { resolv_conf: path.clone(), state: folder.0.join("state") };
    among_mounts(move || {
        let [etc, file] = [&etc, &path].map(|path| path.to_str().unwrap());
        mount(&["--bind", etc, etc]);
        mount(&["--bind", file, file]);
        mount(&["-o", "remount,bind,ro", etc]);
        let applied = apply(&wish(), &paths).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("nameserver 100.64.0.1"));
        assert!(applied.is_intact());
        drop(applied);
        assert_eq!(fs::read_to_string(&path).unwrap(), BEFORE);
        mount(&["-o", "remount,bind,ro", file]);
        let error = apply(&wish(), &paths).unwrap_err().to_string();
        assert!(error.contains("/etc/resolv.conf: Read-only"), "{error}");
    });
}

#[test]
fn dn_07_killed_while_it_was_written_in_place_the_file_comes_back() {
    let folder = Folder::new("torn", Some(BEFORE));
    std::mem::forget(apply(&wish(), &folder.paths()).unwrap());
    fs::write(folder.paths().resolv_conf, "").unwrap();
    assert_eq!(restore_leftovers(&folder.paths()).unwrap(), Restored::Before(Way::File));
    assert_eq!(folder.text(), BEFORE);
    folder.assert_clean();
}

#[test]
fn a_file_that_is_no_resolv_conf_by_its_size_is_left_alone() {
    let folder = Folder::new("large", Some(&"#".repeat(70_000)));
    let error = apply(&wish(), &folder.paths()).unwrap_err().to_string();
    assert!(error.contains("64 KiB"), "{error}");
    assert_eq!(folder.text().len(), 70_000);
}

#[test]
fn a_resolver_on_one_link_is_read_with_its_interface() {
    let text =
        "nameserver fe80::53%eth0\nnameserver 192.0.2.1\nnameserver fe80::1\nnameservers x\n";
    let addresses = ["fe80::53", "192.0.2.1", "fe80::1"].map(|a| a.parse::<IpAddr>().unwrap());
    assert_eq!(file::nameservers(text), addresses);
    let zones = file::zones(text);
    assert_eq!((zones.len(), zones[&addresses[0]].as_str()), (1, "eth0"));
}
