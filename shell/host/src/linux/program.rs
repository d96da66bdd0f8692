//! Other programs that are asked to do something: `nft`, `resolvconf`, `resolvectl`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Where programs of administrators lie that a daemon's PATH may lack.
const USUAL: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Whether a program of this name is installed.
pub(crate) fn find(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = USUAL.map(Into::into);
    std::env::split_paths(&path).chain(usual).any(|directory| is_program(&directory.join(name)))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Runs a program with `input` on its standard input and gives what it printed; its first words on
/// standard error are the error.
pub(crate) fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let output =
        run(program, arguments, input).map_err(|e| format!("{program} cannot be run: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{program} failed ({}): {said}", output.status))
}

fn run(program: &str, arguments: &[&str], input: &str) -> std::io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", format!("{path}:{}", USUAL.join(":")))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    crate::linux::background::with_default_signals(&mut command);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes()); // its exit tells more than a broken pipe
    }
    child.wait_with_output()
}
