//! `nft`, for who has no way of its own to run it.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs `nft` with these words and `input`, and gives what it printed.
///
/// # Errors
/// What it said, or that it is not there.
pub fn nft(words: &[&str], input: &str) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("nft");
    command.args(words).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: std::io::Error| format!("nft cannot be run: {error}");
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        // Its exit tells more than a broken pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(cannot)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("nft failed ({}): {said}", output.status))
}
