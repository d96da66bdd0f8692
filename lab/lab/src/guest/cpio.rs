//! The archive the kernel unpacks as its first file system: cpio in the "newc" format.
//!
//! One record is a header of 110 ASCII bytes (magic and thirteen 8-digit hexadecimal fields), the
//! name with its NUL, and the content; name and content are each padded to four bytes. A record
//! called `TRAILER!!!` ends the archive. Source: Linux `Documentation/driver-api/early-userspace/
//! buffer-format.rst`.

use std::collections::BTreeSet;

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_PROGRAM: u32 = 0o100_755;
const MODE_CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive being written. Parent directories are added by themselves.
pub(super) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    names: BTreeSet<String>,
}

struct Record<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    content: &'a [u8],
}

impl Archive {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), inode: 0, names: BTreeSet::new() }
    }

    /// A directory and all above it. Paths are absolute or relative to the root; both mean the
    /// same.
    pub(super) fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.directory_alone(&path[..at]);
        }
        self.directory_alone(path);
    }

    /// An executable regular file; a second one under the same name is left out.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if self.names.insert(path.to_owned()) {
            self.record(&Record { name: path, mode: MODE_PROGRAM, device: (0, 0), content });
        }
    }

    /// A character device node; the kernel wants `/dev/console` before anything is mounted.
    pub(super) fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if self.names.insert(path.to_owned()) {
            let mode = MODE_CHARACTER_DEVICE;
            self.record(&Record { name: path, mode, device: (major, minor), content: &[] });
        }
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.record(&Record { name: "TRAILER!!!", mode: 0, device: (0, 0), content: &[] });
        self.bytes
    }

    fn directory_alone(&mut self, path: &str) {
        if !path.is_empty() && self.names.insert(path.to_owned()) {
            let mode = MODE_DIRECTORY;
            self.record(&Record { name: path, mode, device: (0, 0), content: &[] });
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        self.inode += 1;
        let size = u32::try_from(record.content.len()).expect("a guest file is below 4 GiB");
        let name_size = u32::try_from(record.name.len() + 1).expect("a name is short");
        let (major, minor) = record.device;
        // inode, mode, uid, gid, links, mtime, size, device, node device, name size, checksum
        let fields = [self.inode, record.mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(record.name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(record.content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::Archive;

    /// `cpio` of Debian's busybox reads the archive; without busybox the guest cannot run either.
    fn busybox_cpio(archive: &[u8], arguments: &[&str]) -> String {
        let mut child = Command::new("busybox")
            .arg("cpio")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("busybox-static is installed");
        child.stdin.take().unwrap().write_all(archive).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "busybox cpio refused the archive");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn names_and_contents_survive_every_padding() {
        let mut archive = Archive::new();
        archive.character_device("/dev/console", 5, 1);
        for length in 0..9 {
            archive.file(&format!("a/b/{}", "n".repeat(length + 1)), &vec![b'x'; length]);
        }
        archive.file("/a/b/n", b"a second file of one name is left out");
        let bytes = archive.finish();
        let names = busybox_cpio(&bytes, &["-t"]);
        let expected: String = ["dev", "dev/console", "a", "a/b"]
            .into_iter()
            .map(str::to_owned)
            .chain((1..10).map(|n| format!("a/b/{}", "n".repeat(n))))
            .map(|name| name + "\n")
            .collect();
        assert_eq!(names, expected);
        for length in 0..9 {
            let name = format!("a/b/{}", "n".repeat(length + 1));
            let content = busybox_cpio(&bytes, &["-i", "--to-stdout", &name]);
            assert_eq!(content, "x".repeat(length), "{name}");
        }
    }
}
