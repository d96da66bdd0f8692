//! The control socket, spoken byte by byte, for what the stock `wg` would never say.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Where the socket of an interface lies.
pub fn path(ifname: &str) -> PathBuf {
    PathBuf::from(format!("/var/run/wireguard/{ifname}.sock"))
}

/// Whether something answers there.
pub fn answers(ifname: &str) -> bool {
    ask(ifname, "get=1\n\n").is_ok_and(|reply| reply.contains("errno=0"))
}

/// Sends `request` as it is and returns the reply up to its empty line.
pub fn ask(ifname: &str, request: &str) -> Result<String> {
    ask_bytes(ifname, request.as_bytes())
}

/// As [`ask`], with bytes that need not be text.
pub fn ask_bytes(ifname: &str, request: &[u8]) -> Result<String> {
    let path = path(ifname);
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("cannot connect to {}", path.display()))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request)?;
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while !reply.ends_with(b"\n\n") {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => reply.extend_from_slice(&chunk[..n]),
            Err(error) => return Err(error).context("the control socket did not answer"),
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// The number in a reply's `errno=` line.
pub fn errno(reply: &str) -> Option<i32> {
    reply.lines().find_map(|line| line.strip_prefix("errno=")?.parse().ok())
}
